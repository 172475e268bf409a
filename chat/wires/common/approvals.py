"""Decisions on the wire: an answer ends with what it asks, and another request decides.

The run waits meanwhile, whether its session is kept or not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from typing_extensions import Self

from mochi_project.runtime import get_runtime
from mochi_server.chat.confirmations.confirmation import StoredConfirmation
from mochi_server.chat.control import StartedRun
from mochi_server.chat.runs.log import LogReader
from mochi_server.errors import (
    ConfirmationNotFound,
    InvalidRequest,
    JSONObject,
    RunNotFound,
    ToolConfirmationTimeout,
)

_ID = re.compile(
    r"(?P<confirmation>conf_[0-9a-f]{1,64})_(?P<run>[0-9a-f]{16})_(?P<number>\d{1,18})"
)


@dataclass(frozen=True, slots=True)
class ApprovalId:
    """The id under which a wire asks for a decision."""

    confirmation_id: str
    run_id: str
    number: int
    """Number of the event that asks."""

    def __str__(self) -> str:
        return f"{self.confirmation_id}_{self.run_id.removeprefix('run_')}_{self.number}"

    @classmethod
    def read(cls, text: str) -> Self:
        """Read an id.

        Raises:
            InvalidRequest: it is none.
        """
        found = _ID.fullmatch(text)
        if found is None:
            raise InvalidRequest("This id was not given by this server.", details={"id": text})
        return cls(found["confirmation"], f"run_{found['run']}", int(found["number"]))


async def join(run_id: str, after: int = 0) -> LogReader:
    """Join a run that an earlier answer was of.

    Raises:
        RunNotFound: it has nothing more to say, or it has ended too long ago.
    """
    reader = await get_runtime().run_control.join(run_id, after)
    if reader is None:
        raise RunNotFound(run_id=run_id)
    return reader


async def asked(approval: ApprovalId) -> StoredConfirmation | None:
    """Return what was asked; None if it is over, or of somebody else.

    Raises:
        ConfirmationNotFound: another run has asked this.
    """
    stored = await get_runtime().inbox.find(approval.confirmation_id)
    if stored is not None and stored.confirmation.run_id != approval.run_id:
        raise ConfirmationNotFound(confirmation_id=approval.confirmation_id, session_id=None)
    return stored


async def decide(
    approval: ApprovalId,
    *,
    approved: bool,
    reason: str | None = None,
    arguments: JSONObject | None = None,
) -> StartedRun:
    """Decide, and go on with the run, which is read from its first event.

    What is decided already, or was not in time, stays so: the run says what became of it.

    Raises:
        RunNotFound: the run has ended too long ago.
        InvalidRequest: the arguments do not fit; the run still waits.
        ConfirmationUnavailable: the store cannot be reached.
    """
    runtime = get_runtime()
    status = await runtime.run_control.find(approval.run_id)
    reader = await join(approval.run_id)
    try:
        await runtime.inbox.decide(
            approval.confirmation_id,
            approved=approved,
            reason=reason,
            arguments=arguments,
            session_id=status.session_id,
        )
    except (ConfirmationNotFound, ToolConfirmationTimeout):
        pass
    except BaseException:
        reader.leave(abandon=False)
        raise
    return StartedRun(status.run_id, status.session_id, "running", reader, status.model)
