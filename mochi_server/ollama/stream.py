"""The reply of a model as it is generated: the hot path of the server.

Between the socket and the consumer there is one loop: no task, no queue, no timer for a chunk.
The stream of ``/api/chat`` is one JSON object a line (application/x-ndjson). Every field may be
missing, tool calls ride on any chunk, the last one included, and an error is a line of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import orjson

from ..core.aio import in_thread
from ..core.ids import new_call_id
from ..core.limits import has_more_values
from ..core.utf8 import valid_utf8
from ..errors import MochiError, OllamaUnreachable
from ..protocol.completions import Chunk, ContentDelta, Finish, ThinkingDelta
from ..protocol.messages import ToolCall
from .failures import failure_of_line, incomplete, not_json
from .transport import Transport
from .types import as_arguments

if TYPE_CHECKING:
    import aiohttp

LONG_READ = 32 * 2**10
"""Bytes; parsing more takes milliseconds."""
MAX_LINE = 4 * 2**20
"""Bytes; the longest lines have all calls of a reply. Parsing one holds the event loop."""
LONG_LINE = 64 * 2**10
"""Bytes; in a longer line the values are counted before it is parsed."""
LINE_VALUES = 200_000
"""Most values of a line: those of some ten thousand calls."""


class _TooSilent(Exception):
    """Nothing came for too long."""


class _SilenceTimer:
    """One timer for a whole stream; it waits again when something came in the meantime."""

    __slots__ = ("_handle", "_limit", "_loop", "_response", "since")

    def __init__(self, response: aiohttp.ClientResponse, limit: float) -> None:
        self._response = response
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self.since: float | None = None
        """Start of the present wait; None while the consumer works."""
        self._handle = self._loop.call_later(limit, self._expire)

    def _expire(self) -> None:
        now = self._loop.time()
        due = (self.since if self.since is not None else now) + self._limit
        if due > now:
            self._handle = self._loop.call_at(due, self._expire)
        else:
            self._response.content.set_exception(_TooSilent())

    def stop(self) -> None:
        self._handle.cancel()


async def stream_chat(
    transport: Transport, body: Callable[[], Awaitable[bytes]], *, model: str
) -> AsyncGenerator[list[Chunk], None]:
    """Send one ``/api/chat`` request and yield what comes together; closing it hangs up.

    What is long is read in a thread: one line may hold thousands of calls. Raises what Ollama's
    failures become, with ``details["incomplete"]`` true for a reply that had begun.
    """
    response = await transport.post("/api/chat", await body())
    import aiohttp  # noqa: PLC0415 - the transport has done so by now

    del body  # it may be long, and a stream lives long
    timer = _SilenceTimer(response, transport.limits.idle)
    try:
        if response.status != HTTPStatus.OK:
            raise await transport.read_refusal(response, model=model)
        reader = ReplyReader(model)
        read, clock = response.content.readany, asyncio.get_running_loop().time
        while True:
            timer.since = clock()
            data = await read()
            timer.since = None
            if not data:
                chunks = reader.close()
            elif reader.pending + len(data) > LONG_READ:
                chunks = await in_thread(reader.feed, data)
            else:
                chunks = reader.feed(data)
            if chunks:
                yield chunks
            if reader.finished:
                return
            if reader.error is not None:
                raise reader.error
    except _TooSilent as error:
        raise OllamaUnreachable(
            f"Ollama at {transport.host} sent nothing for {transport.limits.idle:g} s"
            " (MOCHI_OLLAMA_IDLE_TIMEOUT_SECONDS).",
            details={"host": transport.host, "incomplete": True},
        ) from error
    except (aiohttp.ClientError, OSError) as error:
        raise incomplete("broke off: the connection was lost") from error
    finally:
        timer.stop()
        response.close()


class LineSplitter:
    r"""Cuts a stream of bytes at ``\n``, and nowhere else.

    Text may hold other line ends (U+0085 comes unescaped), so ``splitlines`` would cut inside it.
    """

    __slots__ = ("_pieces", "pending")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self.pending = 0
        """Bytes of the line that is not complete."""

    def feed(self, data: bytes) -> list[bytes]:
        if not self._pieces and data.find(b"\n") == len(data) - 1 >= 0:
            return [data[:-1]]  # just one, as it comes when a model is slower than we are
        if b"\n" not in data:
            self._pieces.append(data)
            self.pending += len(data)
            return []
        lines = b"".join([*self._pieces, data]).split(b"\n")
        rest = lines.pop()
        self._pieces = [rest] if rest else []
        self.pending = len(rest)
        return lines

    def rest(self) -> bytes:
        return b"".join(self._pieces)


class ReplyReader:
    """Collects one reply, without a socket.

    An error in the middle does not take away what came before it: `feed` returns the chunks up to
    there, and then `error` is set.
    """

    __slots__ = ("_call_ids", "_lines", "_model", "error", "finished")

    def __init__(self, model: str) -> None:
        self._model = model
        self._lines = LineSplitter()
        self._call_ids: set[str] = set()
        self.error: MochiError | None = None
        self.finished = False

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
                if _is_plain(entry, message) and type(text) is str:
                    if text:
                        chunks.append(ContentDelta(text))
                    continue
                self._read_entry(entry, chunks)
            if self.finished or self.error is not None:
                return chunks
        if self._lines.pending > MAX_LINE:
            self.error = incomplete(f"has a line of more than {MAX_LINE} bytes")
        return chunks

    @property
    def pending(self) -> int:
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
            data = orjson.loads(valid_utf8(line))
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
        if isinstance(calls := message.get("tool_calls"), list):
            chunks.extend(self._calls(calls))
        if data.get("done"):
            self.finished = True
            chunks.append(_finish(data))

    def _calls(self, calls: list[Any]) -> list[ToolCall]:
        tool_calls: list[ToolCall] = []
        for call in calls:
            function = call.get("function") if isinstance(call, dict) else None
            if isinstance(function, dict) and isinstance(function.get("name"), str):
                arguments = as_arguments(function.get("arguments"))
                identity = self._identify(call.get("id"))
                tool_calls.append(ToolCall(id=identity, name=function["name"], arguments=arguments))
        return tool_calls

    def _identify(self, sent_id: object) -> str:
        """Return the model's id of a call, or one of ours where it has none or repeats it."""
        identity = sent_id if isinstance(sent_id, str) and sent_id else new_call_id()
        while identity in self._call_ids:
            identity = new_call_id()
        self._call_ids.add(identity)
        return identity


def _is_plain(entry: dict[str, Any], message: dict[str, Any]) -> bool:
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
