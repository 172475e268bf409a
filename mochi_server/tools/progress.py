"""``report_progress``, with which a tool says how far a call is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

Report = Callable[[float, "float | None", "str | None"], None]
R = TypeVar("R", bound=Report)

_report: ContextVar[Report | None] = ContextVar("mochi_report", default=None)


def report_progress(
    progress: float, total: float | None = None, message: str | None = None
) -> None:
    """Tell the readers of the conversation how far this call of a tool is.

    For functions that are tools. It may be called as often as one likes; outside of a call, and in
    processes that a tool starts, it does nothing.

    Args:
        progress: What is done; it should grow.
        total: What there is to do, if that is known.
        message: What is being done now.
    """
    if (report := _report.get()) is not None:
        report(float(progress), None if total is None else float(total), message)


def current_report() -> Report | None:
    """Return where the call that runs now reports to."""
    return _report.get()


@contextmanager
def reporting_to(report: R) -> Iterator[R]:
    """Let ``report_progress`` report to this, in this context and those copied from it."""
    token = _report.set(report)
    try:
        yield report
    finally:
        _report.reset(token)
