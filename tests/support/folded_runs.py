"""Runs and what they come to, which every reader of events is held to."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mochi_server.chat.runs.log import RunLog
from mochi_server.errors import MochiError
from mochi_server.protocol.events import ErrorEvent, Event, event_of


@dataclass(frozen=True)
class FoldedRun:
    """A run of the table."""

    name: str
    payloads: list[tuple[str, dict[str, Any]]]
    """Its events, as a client reads them."""
    comes_to: dict[str, Any]
    """``text``, ``thinking``, ``calls`` (id, agent's call, state, result), ``client_calls``,
    ``retries``, ``waits`` (confirmations), ``end``; ``streamed``: the text where a void reply
    cannot be taken back."""

    @property
    def events(self) -> list[Event]:
        made = [event_of(name, data) for name, data in self.payloads]
        assert None not in made
        return [event for event in made if event is not None]

    def log(self) -> RunLog:
        """The run, which has ended."""
        log = RunLog()
        log.extend(self.events)
        errors = [event for event in self.events if isinstance(event, ErrorEvent)]
        log.close(_failure(errors[0]) if errors else None)
        return log


def _failure(event: ErrorEvent) -> MochiError:
    class Failure(MochiError, code=event.code, status=502):
        pass

    return Failure(event.message)


_TABLE = json.loads((Path(__file__).parents[1] / "data" / "runs.json").read_bytes())
RUNS = {name: FoldedRun(name, run["events"], run["comes_to"]) for name, run in _TABLE.items()}
EACH_RUN = pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
