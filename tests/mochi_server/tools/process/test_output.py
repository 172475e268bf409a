"""The log of what tools print."""

from mochi_server.tools.process.output import LINES_AT_ONCE, LineAllowance


def test_lines_are_refused_in_a_flood_and_allowed_again_later():
    now = 0.0
    allowance = LineAllowance(lambda: now)

    assert all(allowance.take() for _ in range(LINES_AT_ONCE))
    assert not allowance.take()
    assert allowance.refused == 1
    now = 1.0
    assert sum(allowance.take() for _ in range(100)) == 20
