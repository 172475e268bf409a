"""Encodes a run as a response: an object that grows, and the events by which it does."""

from __future__ import annotations

from typing import Any, ClassVar

import orjson

from mochi_server.chat.responses import ResponseId
from mochi_server.chat.runs.log import LogReader, Numbered
from mochi_server.errors import MochiError
from mochi_server.protocol.events import (
    ConfirmationDecided,
    ConfirmationRequired,
    ContentDelta,
    Done,
    ErrorEvent,
    Event,
    HistoryShortened,
    MessageComplete,
    ReplyRetry,
    RunStart,
    ThinkingDelta,
    ToolCallStarted,
    ToolContinuationStart,
    ToolResultReady,
)
from mochi_server.protocol.fold import Fold, FoldedPart

from ..common.answers import left_out_of
from ..common.encoder import not_met
from ..openai.errors import code_of
from ..sse import PING
from .items import (
    Item,
    approval_item,
    call_error,
    function_call_item,
    message_item,
    reasoning_item,
    seconds_of,
    summary_part,
    text_part,
    tool_call_item,
)
from .resource import usage_of

STRIDE = 1_000
"""Most events of a response for one event of a run: a client names its last one by a number."""


DELTA = STRIDE - 1
"""What the number of a delta has beyond a multiple of ``STRIDE``: it is the last of its event."""


def events_until(sequence_number: int) -> int:
    """Return how many events of the run a client has whole, by the number of its last one."""
    return max((sequence_number + 1) // STRIDE - 1, 0)


_BEGIN_OF_DELTA = {
    part: b'event: response.%b.delta\ndata: {"type":"response.%b.delta","sequence_number":%%d'
    % (part.encode(), part.encode())
    for part in ("output_text", "reasoning_text", "reasoning_summary_text")
}


class ResponseEncoder:
    """Encodes the events of one run, and has the response as far as it has come."""

    content_type: ClassVar[str] = "text/event-stream; charset=utf-8"
    ping: ClassVar[bytes] = PING

    def __init__(
        self,
        response: dict[str, Any],
        reader: LogReader,
        response_id: ResponseId,
        *,
        asks: bool = True,
        is_whole: bool = False,
        after: int = -1,
        begin: int | None = None,
    ) -> None:
        """Begin with an empty response.

        Args:
            response: The response without output.
            reader: Reads its run; it leaves when the response ends before its run.
            response_id: Its id.
            asks: Whether a call that a person must confirm ends the response, which asks for it.
            is_whole: Whether the client gets the response only when it has ended, so that what is
                void can be left out.
            after: Number of the last event that the client has.
            begin: Number of the event from which the reader reads; None: from the first.
        """
        self.response = response
        self.is_ended = False
        self._reader = reader
        self._id = response_id
        self._asks = asks
        self._is_whole = is_whole
        self._as_summary = response["reasoning"]["summary"] is not None
        self._thought_part = "reasoning_summary_text" if self._as_summary else "reasoning_text"
        self._after = after
        self._begin_at = begin
        self._first: int | None = None
        self._number = 0
        """Of the next event of the response."""
        self.fold = Fold(keeps_text=True)
        self._begin_of_delta = self._place = b""
        """What says where deltas belong that come now."""
        self._begin_of_reply = 0
        self._calls: dict[str, int] = {}
        """Places of calls of the server's tools in the output, by their ids."""

    def __call__(self, batch: list[Numbered]) -> bytes:
        """Encode a batch; what has no place on this wire is left out."""
        parts: list[bytes] = []
        if self._first is None and self._begin_at is not None:
            before = self._reader.before(self._begin_at)
            batch = [*(each for each in before if each[0] > self._id.part), *batch]
        if self._first is None and self._id.part:
            parts += self._begin()  # its run has begun before
        for number, event in batch:
            if self._first is None:
                self._first = number
            self._number = (number - self._first + 1) * STRIDE
            if not self.is_ended:
                parts += self._encode(event, number)
        return b"".join(parts)

    def cut(self, failure: MochiError) -> bytes:  # noqa: ARG002 - as the others
        """Say nothing: the response goes on, and can be read on."""
        return b""

    def _encode(self, event: Event, number: int) -> list[bytes]:
        before = self.fold.part
        self.fold.add(event)
        part, parts = self.fold.part, []
        if part is not before:
            if before is not None:
                is_cut = isinstance(event, ErrorEvent | Done | ReplyRetry)
                parts = self._close(before, "incomplete" if is_cut else "completed")
            if part is not None:
                parts += self._open(part)
        match event:  # the commonest first: this runs for each token
            case ContentDelta() | ThinkingDelta():
                parts += self._delta(event.content)
            case RunStart():
                parts += self._begin()
            case MessageComplete():
                parts += self._complete(event)
            case ErrorEvent() | Done() | ReplyRetry():
                parts += self._fail(event)
            case _:
                parts += self._encode_call(event, number)
        return parts

    def _encode_call(self, event: Event, number: int) -> list[bytes]:
        """Encode an event of the server's tools; what agents do has no place on this wire."""
        match event:
            case ToolContinuationStart():
                self._begin_of_reply = len(self._output)
                return []
            case HistoryShortened():
                self.response["mochi"] |= event.payload()
                return []
            case ConfirmationRequired() if self._asks:
                return self._ask(event, number)
            case ToolCallStarted() | ConfirmationDecided() if event.agent_call_id is None:
                return self._start_call(event)
            case ToolResultReady() if event.agent_call_id is None:
                return self._end_call(event)
            case _:
                return []

    def _frame(self, kind: str, **data: Any) -> bytes:  # noqa: ANN401 - JSON
        """Encode an event, unless the client has it."""
        number, self._number = self._number, self._number + 1
        if number <= self._after:
            return b""
        content = orjson.dumps({"type": kind, "sequence_number": number, **data})
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), content)

    def _begin(self) -> list[bytes]:
        self.response["status"] = "in_progress"
        names = ("response.created", "response.in_progress")
        return [self._frame(name, response=self.response) for name in names]

    @property
    def _output(self) -> list[Item]:
        output: list[Item] = self.response["output"]
        return output

    def _delta(self, text: str) -> list[bytes]:
        number = self._number + DELTA - self._number % STRIDE
        self._number = number + 1
        if number <= self._after:
            return []
        return [b"%b%b%b}\n\n" % (self._begin_of_delta % number, self._place, orjson.dumps(text))]

    def _of_open(self, kind: str, **data: Any) -> bytes:  # noqa: ANN401 - JSON
        """Encode an event of the open item."""
        return self._frame(kind, **self._place_of_open(), **data)

    def _place_of_open(self) -> dict[str, Any]:
        """Return where the only part of the open item is."""
        item = self._output[-1]
        is_summary = self._as_summary and item["type"] == "reasoning"
        place = {"item_id": item["id"], "output_index": len(self._output) - 1}
        return {**place, "summary_index" if is_summary else "content_index": 0}

    def _open(self, part: FoldedPart) -> list[bytes]:
        """Begin the item of a text or thought."""
        is_text = part.kind == "text"
        name = self._id.item("msg" if is_text else "rs", self._name_of(part))
        item = (
            message_item(name, None, "in_progress")
            if is_text
            else reasoning_item(name, "", "in_progress")
        )
        parts = [self._add(item)]
        place = self._place_of_open()
        if is_text:
            place["logprobs"] = []
            parts.append(self._of_open("response.content_part.added", part=text_part("")))
        elif self._as_summary:
            added = "response.reasoning_summary_part.added"
            parts.append(self._of_open(added, part=summary_part("")))
        # What all deltas of the item have in common.
        self._begin_of_delta = _BEGIN_OF_DELTA["output_text" if is_text else self._thought_part]
        self._place = b',%b,"delta":' % orjson.dumps(place)[1:-1]
        return parts

    def _name_of(self, part: FoldedPart) -> str:
        """Return the number of its reply; with another one from the second of its kind on."""
        kinds = [(each.kind, each.reply) for each in self.fold.parts]
        count = kinds.count((part.kind, part.reply))
        return f"{part.reply}_{count}" if count > 1 else str(part.reply)

    def _add(self, item: Item) -> bytes:
        self._output.append(item)
        index = len(self._output) - 1
        return self._frame("response.output_item.added", output_index=index, item=item)

    def _finish(self, index: int, item: Item) -> bytes:
        self._output[index] = item
        return self._frame("response.output_item.done", output_index=index, item=item)

    def _close(self, part: FoldedPart, status: str) -> list[bytes]:
        """End the item of a text or thought."""
        item, index, text = self._output[-1], len(self._output) - 1, part.text
        parts = []
        if part.kind == "text":
            done = message_item(item["id"], text, status)
            parts.append(self._of_open("response.output_text.done", text=text, logprobs=[]))
            parts.append(self._of_open("response.content_part.done", part=text_part(text)))
        else:
            done = reasoning_item(item["id"], text, status, as_summary=self._as_summary)
            parts.append(self._of_open(f"response.{self._thought_part}.done", text=text))
            if self._as_summary:
                ended = "response.reasoning_summary_part.done"
                parts.append(self._of_open(ended, part=summary_part(text)))
        return [*parts, self._finish(index, done)]

    def _start_call(self, event: ToolCallStarted | ConfirmationDecided) -> list[bytes]:
        call = (event.tool_call_id, event.tool_name, event.arguments)
        item = tool_call_item(call, self._id.item("mcp", call[0]), status="in_progress")
        self._calls[event.tool_call_id] = index = len(self._output)
        place = {"item_id": item["id"], "output_index": index}
        return [
            self._add(item),
            self._frame("response.mcp_call.in_progress", **place),
            self._frame("response.mcp_call_arguments.done", **place, arguments=item["arguments"]),
        ]

    def _end_call(self, event: ToolResultReady) -> list[bytes]:
        parts: list[bytes] = []
        if event.tool_call_id not in self._calls:
            if (start := self._start_of(event)) is None:
                return []
            parts = self._start_call(start)
        index = self._calls.pop(event.tool_call_id)
        item = {
            **self._output[index],
            "output": event.result if event.success else None,
            "error": None if event.success else call_error(event.error_message or ""),
            "status": "completed" if event.success else "failed",
        }
        kind = "completed" if event.success else "failed"
        place = {"item_id": item["id"], "output_index": index}
        parts.append(self._frame(f"response.mcp_call.{kind}", **place))
        return [*parts, self._finish(index, item)]

    def _start_of(self, result: ToolResultReady) -> ToolCallStarted | ConfirmationDecided | None:
        """Return the start of a call that began in the response before this one.

        None: it began in another process.
        """
        starts = (
            event
            for _, event in reversed(self._reader.before(self._first or 0))
            if isinstance(event, ToolCallStarted | ConfirmationDecided)
            and event.tool_call_id == result.tool_call_id
        )
        return next(starts, None)

    def _ask(self, event: ConfirmationRequired, number: int) -> list[bytes]:
        """Ask for a decision, which comes with another request, and end."""
        item = approval_item(event, number)
        parts = [self._add(item), self._finish(len(self._output) - 1, item)]
        self._reader.leave(abandon=False)
        return [*parts, *self._end("completed")]

    def _complete(self, event: MessageComplete) -> list[bytes]:
        parts = [part for call in event.client_calls for part in self._client_call(call)]
        self.response["usage"] = usage_of(event.prompt_eval_count or 0, event.eval_count or 0)
        self.response["mochi"] |= left_out_of(event)
        if event.ignored_options:
            self.response["mochi"] |= {"ignored_options": [*event.ignored_options]}
        if event.finish_reason == "length":
            self.response["incomplete_details"] = {"reason": "max_output_tokens"}
            return [*parts, *self._end("incomplete")]
        self.response["completed_at"] = seconds_of(event.timestamp)
        return [*parts, *self._end("completed")]

    def _client_call(self, call: Any) -> list[bytes]:  # noqa: ANN401 - JSON
        index, given = len(self._output), (call["id"], call["name"], call["arguments"])
        item = function_call_item(given, self._id.item("fc", given[0]))
        place = {"item_id": item["id"], "output_index": index}
        begun = {**item, "arguments": "", "status": "in_progress"}
        return [
            self._add(begun),
            self._frame("response.function_call_arguments.delta", **place, delta=item["arguments"]),
            self._frame(
                "response.function_call_arguments.done",
                **place,
                name=item["name"],
                arguments=item["arguments"],
            ),
            self._finish(index, item),
        ]

    def _fail(self, event: ErrorEvent | Done | ReplyRetry) -> list[bytes]:
        if isinstance(event, Done):
            return self._end("cancelled")
        if isinstance(event, ReplyRetry) and self._is_whole:
            del self._output[self._begin_of_reply :]
            return []
        if isinstance(event, ReplyRetry):
            event = not_met(event)
        error = {"code": code_of(event.code), "message": event.message}
        return self._end("failed", error)

    def _end(self, status: str, error: Any = None) -> list[bytes]:  # noqa: ANN401 - JSON
        self.is_ended = True
        self.response["status"] = status
        self.response["error"] = error
        kind = "incomplete" if status == "cancelled" else status
        return [self._frame(f"response.{kind}", response=self.response)]
