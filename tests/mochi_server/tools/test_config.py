"""Who is asked about what."""

from __future__ import annotations

import pytest

from mochi_server.sessions.types import ToolExecutionPolicy, ToolSettings
from mochi_server.tools.config import needs_confirmation
from tests.support.tools import PlainTool

CASES = [
    ("always_confirm", True, True),
    ("always_confirm", False, True),
    ("always_confirm", None, True),
    ("never_confirm", True, False),
    ("never_confirm", False, False),
    ("never_confirm", None, False),
    ("confirm_destructive", True, True),
    ("confirm_destructive", False, False),
    ("confirm_destructive", None, True),
]


@pytest.mark.parametrize(("policy", "destructive", "asked"), CASES)
def test_a_person_is_asked_unless_the_policy_or_the_package_says_no(policy, destructive, asked):
    tool = PlainTool("wipe", destructive=destructive)
    assert needs_confirmation(ToolExecutionPolicy(policy), tool) is asked


@pytest.mark.parametrize("policy", ["sometimes", "NEVER_CONFIRM", "", None, False, {}])
def test_a_policy_that_nobody_knows_asks(policy):
    assert needs_confirmation(policy, PlainTool("look", destructive=False))


@pytest.mark.parametrize(
    ("session", "own", "asked"),
    [
        ("never_confirm", {"wipe": "always_confirm"}, True),
        ("never_confirm", {"wipe": "confirm_destructive"}, True),
        ("never_confirm", {"wipe": "never_confirm"}, False),
        ("never_confirm", {"look": "always_confirm"}, False),
        ("never_confirm", {"wipe": "as_yesterday"}, True),
        ("never_confirm", {"wipe": None}, True),
        ("never_confirm", ["wipe"], True),
        ("never_confirm", None, False),
        ("always_confirm", {"wipe": "never_confirm"}, True),
        ("confirm_destructive", {"wipe": "never_confirm"}, True),
        ("as_yesterday", {"wipe": "never_confirm"}, True),
    ],
)
def test_the_stricter_of_the_policies_of_session_and_tool_counts(session, own, asked):
    settings = ToolSettings(execution_policy=session, tool_policies=own)
    wipe = PlainTool("wipe", destructive=True)
    assert any(needs_confirmation(each, wipe) for each in settings.policies_of("wipe")) is asked


def test_every_policy_is_decided():
    assert {policy for policy, _, _ in CASES} == {policy.value for policy in ToolExecutionPolicy}
