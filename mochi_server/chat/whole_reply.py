"""The events of a turn as one JSON answer."""

from __future__ import annotations

from pydantic import JsonValue

from ..errors import InternalError, JSONObject
from ..protocol.agent_events import AgentDelta, AgentEvent, AgentStart
from ..protocol.events import (
    ConfirmationDecided,
    ConfirmationRequired,
    Event,
    MessageComplete,
    ToolCallStarted,
    ToolResultReady,
)


class WholeReply:
    """Folds the events of a turn into one JSON answer."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._calls: list[JSONObject] = []
        self._open: dict[str, JSONObject] = {}
        """By id; a model may use an id again in its next reply."""
        self._runs: dict[str, list[JsonValue]] = {}
        """What agents did, by the call that started them; agents within are in the outermost."""
        self._final: MessageComplete | None = None

    def add(self, event: Event) -> None:
        """The next event of the turn."""
        match event:
            case ConfirmationRequired() | ConfirmationDecided() if event.agent_call_id is not None:
                self._of_agent(event, event.agent_call_id)
            case ToolCallStarted():
                self._begin(event.tool_call_id, event.payload())
            case ConfirmationRequired():
                self._begin(event.tool_call_id, announced(event))
            case ConfirmationDecided():
                self._open[event.tool_call_id].update(settled(event))
            case ToolResultReady():
                self._open.pop(event.tool_call_id).update(event.payload())
            case MessageComplete():
                self._final = event
            case AgentStart():
                self._start_run(event)
                self._of_agent(event, event.agent_call_id)
            case _ if isinstance(event, AgentEvent):
                self._of_agent(event, event.agent_call_id)
            case _:
                pass

    def _begin(self, call_id: str, entry: JSONObject) -> None:
        self._open[call_id] = entry
        self._calls.append(entry)

    def _start_run(self, event: AgentStart) -> None:
        if event.parent_call_id is not None:
            self._runs[event.agent_call_id] = self._runs[event.parent_call_id]
            return
        run: list[JsonValue] = []
        self._runs[event.agent_call_id] = run
        self._open[event.agent_call_id]["agent_events"] = run

    def _of_agent(self, event: Event, call_id: str) -> None:
        """One more event of an agent; neighbouring pieces of its text as one."""
        run = self._runs[call_id]
        last = run[-1] if run else None
        data = event.payload()
        if isinstance(event, AgentDelta) and isinstance(last, dict) and last["event"] == event.type:
            before = last["data"]
            if isinstance(before, dict) and before["agent_call_id"] == call_id:
                before["content"] = f"{before['content']}{event.content}"
                return
        run.append({"event": event.type, "data": data})

    def as_json(self) -> JSONObject:
        """The answer.

        Raises:
            InternalError: the turn ended without a final message and without an error.
        """
        if self._final is None:
            raise InternalError
        answer: JSONObject = {
            "session_id": self._session_id,
            "message": self._final.message,
            "tool_calls_executed": list(self._calls),
            "context_window": self._final.context_window,
            "finish_reason": self._final.finish_reason,
        }
        if self._final.tool_rounds_exhausted:
            answer["tool_rounds_exhausted"] = True
        return answer


def announced(event: ConfirmationRequired) -> JSONObject:
    """A call that a person was asked about, as an entry of ``tool_calls_executed``."""
    return {
        "tool_name": event.tool_name,
        "arguments": event.arguments,
        "call_index": event.call_index,
        "tool_call_id": event.tool_call_id,
        "confirmation_id": event.confirmation_id,
    }


def settled(event: ConfirmationDecided) -> JSONObject:
    """What the decision adds to that entry: what ran, and whether a person has changed it."""
    return {"arguments": event.arguments, "edited": event.edited, "approved": event.approved}
