"""Parse the bytes of ``/api/chat`` into chunks, without a socket.

The stream is one JSON object a line (application/x-ndjson). Every field may be missing, tool calls
ride on any chunk, the last one included, and an error is a line of its own.
"""

from __future__ import annotations

from typing import Any

import orjson

from ..core.ids import new_call_id
from ..core.limits import CALL_LEVELS, CALL_VALUES, has_more_values, is_too_deep
from ..errors import MochiError
from ..protocol.completions import Chunk, ContentDelta, Finish, ThinkingDelta
from ..protocol.messages import ToolCall
from .failures import failure_of_line, incomplete, not_json

LONGEST_LINE = 4 * 2**20
"""Bytes; the longest lines have all calls of a reply. Parsing one holds the event loop."""


TOO_MANY = f"(more than {CALL_VALUES:,} values)"
"""Stands for the arguments of a call that would take long to read."""
LONG_LINE = 64 * 2**10
"""Bytes; in a longer line the values are counted before it is parsed."""
LINE_VALUES = 200_000
"""Most values of a line: those of some ten thousand calls."""


class LineSplitter:
    r"""Cuts a stream of bytes at ``\n``, and nowhere else.

    Text may hold other line ends (U+0085 comes unescaped), so ``splitlines`` would cut inside it.
    """

    __slots__ = ("_pieces", "_size")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that ``data`` completes."""
        if not self._pieces and data.find(b"\n") == len(data) - 1 >= 0:
            return [data[:-1]]  # just one, as it comes when a model is slower than we are
        if b"\n" not in data:
            self._pieces.append(data)
            self._size += len(data)
            return []
        if self._pieces:
            self._pieces.append(data)
            data = b"".join(self._pieces)
            self._pieces.clear()
        lines = data.split(b"\n")
        rest = lines.pop()
        if rest:
            self._pieces.append(rest)
        self._size = len(rest)
        return lines

    @property
    def pending(self) -> int:
        """Bytes of the line that is not complete."""
        return self._size

    def rest(self) -> bytes:
        """Return what follows the last line end."""
        return b"".join(self._pieces)


class ReplyReader:
    """Collects one reply.

    An error in the middle does not take away what came before it: `feed` returns the chunks up to
    there, and then `error` is set.
    """

    __slots__ = ("_call_ids", "_lines", "_model", "error", "finished")

    def __init__(self, model: str) -> None:
        self._model = model
        self._lines = LineSplitter()
        self._call_ids: set[str] = set()
        self.error: MochiError | None = None
        """The error that ended the reply, if one did."""
        self.finished = False
        """Whether the last chunk has come."""

    def feed(self, data: bytes) -> list[Chunk]:
        """Return the chunks that ``data`` completes."""
        chunks: list[Chunk] = []
        for line in self._lines.feed(data):
            if len(line) > LONG_LINE and has_more_values(line, LINE_VALUES):
                self.error = incomplete(f"has a line of more than {LINE_VALUES} values")
                return chunks
            try:
                entry = orjson.loads(line)
                message = entry["message"]
                text = message["content"]
            except (orjson.JSONDecodeError, LookupError, TypeError):
                self._read(line, chunks)
            else:
                if is_plain(entry, message) and type(text) is str:
                    if text:
                        chunks.append(ContentDelta(text))
                    continue
                self._read_entry(entry, chunks)
            if self.finished or self.error is not None:
                return chunks
        if self._lines.pending > LONGEST_LINE:
            self.error = incomplete(f"has a line of more than {LONGEST_LINE} bytes")
        return chunks

    @property
    def pending(self) -> int:
        """Bytes of the line that is not complete."""
        return self._lines.pending

    def close(self) -> list[Chunk]:
        """End the stream and return the chunks of a last line that has no line end."""
        chunks: list[Chunk] = []
        self._read(self._lines.rest(), chunks, is_last=True)
        if not self.finished and self.error is None:
            self.error = incomplete("ended without finishing")
        return chunks

    def _read(self, line: bytes, chunks: list[Chunk], *, is_last: bool = False) -> None:
        """Append the chunks of a line of any kind, or set `error`."""
        try:
            data = orjson.loads(line)
        except orjson.JSONDecodeError:
            if line.strip():
                self.error = incomplete("ended within a line") if is_last else not_json(line)
            return
        self._read_entry(data, chunks)

    def _read_entry(self, data: Any, chunks: list[Chunk]) -> None:  # noqa: ANN401 - any JSON
        message = data.get("message") if type(data) is dict else None
        if type(message) is not dict or "error" in data:
            self.error = failure_of_line(data, model=self._model)
            return
        if type(thought := message.get("thinking")) is str and thought:
            chunks.append(ThinkingDelta(thought))
        if type(text := message.get("content")) is str and text:
            chunks.append(ContentDelta(text))
        if calls := message.get("tool_calls"):
            chunks.extend(self._calls(calls))
        if data.get("done"):
            self.finished = True
            chunks.append(_finish(data))

    def _calls(self, calls: Any) -> list[ToolCall]:  # noqa: ANN401 - any JSON
        tool_calls: list[ToolCall] = []
        for call in calls if isinstance(calls, list) else []:
            function = call.get("function") if isinstance(call, dict) else None
            if isinstance(function, dict) and isinstance(function.get("name"), str):
                arguments = as_arguments(function.get("arguments"))
                identity = self._identify(call.get("id"))
                tool_calls.append(ToolCall(id=identity, name=function["name"], arguments=arguments))
        return tool_calls

    def _identify(self, sent_id: object) -> str:
        """Return the model's id of a call, or one of ours where it has none or repeats it.

        Order of arrival is what identifies a call: indexes repeat, and old servers send no ids.
        """
        identity = sent_id if isinstance(sent_id, str) and sent_id else new_call_id()
        while identity in self._call_ids:
            identity = new_call_id()
        self._call_ids.add(identity)
        return identity


def is_plain(entry: dict[str, Any], message: dict[str, Any]) -> bool:
    """Return whether a line has a piece of text and nothing else, as nearly all lines have.

    ``{"model", "created_at", "message": {"role", "content"}, "done": false}``
    """
    return (
        len(entry) == 4  # noqa: PLR2004
        and entry.get("done") is False
        and "error" not in entry
        and len(message) == 2  # noqa: PLR2004
        and "role" in message
    )


def as_arguments(value: object) -> dict[str, Any]:
    """Return the arguments of a call as an object; a text that is none is kept under ``input``.

    What is nested too deeply to be stored and sent, or has too many values, is replaced by saying
    so.
    """
    if isinstance(value, str):
        if has_more_values(value.encode(), CALL_VALUES):
            return {"input": TOO_MANY}
        try:
            value = orjson.loads(value) if value.strip() else {}
        except orjson.JSONDecodeError:
            return {"input": value}
    if value is None:
        return {}
    if is_too_deep(value, CALL_LEVELS):
        return {"input": f"(nested more than {CALL_LEVELS} levels deep)"}
    if has_more_values(orjson.dumps(value), CALL_VALUES):
        return {"input": TOO_MANY}
    return value if isinstance(value, dict) else {"input": value}


def _finish(data: dict[str, Any]) -> Finish:
    reason = data.get("done_reason")
    return Finish(
        reason=reason if isinstance(reason, str) and reason else "stop",
        eval_count=_count(data.get("eval_count")),
        prompt_eval_count=_count(data.get("prompt_eval_count")),
        load_seconds=(_count(data.get("load_duration")) or 0) / 1e9,
    )


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
