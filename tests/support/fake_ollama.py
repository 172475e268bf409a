"""An Ollama for tests: what it must say and do is queued, and what it was asked can be seen.

What Ollama refuses, and the words of its answers, are those of ``tests.support.ollama``.
In tests::

    async with FakeOllama() as ollama:
        ollama.reply(["Hel", "lo"])
        ollama.play("tool_two")        # a recorded exchange of tests/data/ollama-fixtures.json
        ...                            # talk to ollama.url
        assert ollama.chats[0]["truncate"] is False

As a process, for measurements: ``python -m tests.support.fake_ollama --port 0 --tokens 1000``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import signal
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from mochi_server.testmode.reply import prompt_tokens
from mochi_server.testmode.samples import example_of

from .http_wire import Connection, Request
from .ollama.answers import NDJSON, Body, FakeResponse, encoded
from .ollama.chat import called, last_line, line, metrics_of
from .ollama.models import FakeModel, FakeModels
from .ollama.rules import (
    VERSION,
    chat_of,
    check_fits,
    check_host,
    check_origin,
    check_route,
    limit_of,
    shown_model,
    unloads,
    window_of,
)
from .ollama.vectors import embedded

FIXTURES: dict[str, Any] = json.loads(
    (Path(__file__).parent.parent / "data" / "ollama-fixtures.json").read_text("utf-8")
)
STREAM = {"Content-Type": NDJSON}
LOADED_NS = 1_334_875
"""What it takes to find that a model is loaded."""


@dataclass
class Reply:
    """What a model is to say, in the order thinking, tokens, calls."""

    tokens: Sequence[str] = ()
    thinking: Sequence[str] = ()
    tool_calls: Sequence[Body] = ()
    calls_in_final: bool = False
    """As the native path and gpt-oss do."""
    delay: float = 0.0
    """Seconds between tokens."""
    gate: asyncio.Event | None = None
    """Nothing is sent before it is set."""
    pause_after: int | None = None
    """With ``gate``: send that many pieces first, then wait."""
    error: str | None = None
    """An error line instead of the end."""
    done_reason: str | None = "stop"
    eval_count: int | None = None
    prompt_eval_count: int | None = None
    match: str | None = None
    """Only to a request that has this text in one of its messages; others pass it over."""
    sent: list[float] = field(default_factory=list)
    """When each piece was written, by the monotonic clock."""
    left: float | None = None
    """When the client left in the midst of it."""

    def suits(self, body: Body) -> bool:
        """Whether it may answer this request."""
        texts = (message.get("content") or "" for message in body["messages"])
        return self.match is None or any(self.match in text for text in texts)


class FakeOllama:
    """The server; all of its state may be read and changed by the test."""

    def __init__(
        self,
        *,
        port: int = 0,
        one_at_a_time: bool = True,
        load_delay: float = 0.0,
        any_model: bool = False,
        old: bool = False,
    ) -> None:
        """Open nothing; with ``any_model`` every name is a model that can everything."""
        self._port = port
        self.one_at_a_time = one_at_a_time
        self.load_delay = load_delay
        """Seconds that loading and reloading a model takes."""
        self.old = old
        """``/api/tags`` as before 0.30."""
        self.one_fits = False
        """Whether a model is unloaded when another one is needed, as with
        ``OLLAMA_MAX_LOADED_MODELS=1``."""
        self.version = "0.24.0" if old else VERSION
        self.models = FakeModels(default_models(), others=FakeModel if any_model else None)
        self.requests: list[Request] = []
        self.loads = 0
        self.reloads = 0
        """Times that a loaded model was loaded again with another window."""
        self.disconnects = 0
        """Clients that left in the middle of an answer."""
        self.connections = 0
        """Connections made, closed ones included."""
        self.default_reply: Reply | None = None
        """Instead of the echo."""
        self.url = ""
        self._busy: Counter[str] = Counter()
        """Generations under way, for each model."""
        self.count: Callable[[Sequence[Any], Sequence[Any]], int] = prompt_tokens
        """Tokens of messages and tools."""
        self._scripts: dict[str, deque[Reply | Body]] = defaultdict(deque)
        self._changed = asyncio.Event()
        self._connections: set[Connection] = set()
        self._framed: dict[tuple[str, tuple[str, ...]], list[bytes]] = {}

    # -- for tests

    @property
    def chats(self) -> list[Body]:
        """The bodies that came to ``/api/chat``."""
        return [request.body for request in self.requests if request.path == "/api/chat"]

    def add_model(self, name: str, **fields: Any) -> FakeModel:
        """Pull a model."""
        self.models[name] = FakeModel(name, **fields)
        return self.models[name]

    def reply(self, tokens: Sequence[str] = (), **fields: Any) -> Reply:
        """Queue what the model says to the next chat; the fields are those of `Reply`.

        A call is ``{"name", "arguments"}``, and may have an ``id``; without one it gets one, and
        with ``"id": None`` it has none.
        """
        scripted = Reply(tokens, **fields)
        self._scripts["/api/chat"].append(scripted)
        return scripted

    def play(self, *names: str, path: str = "/api/chat", speed: float = 1.0) -> None:
        """Queue recorded exchanges for a path; ``speed`` 10 makes pauses ten times shorter."""
        for name in names:
            self._scripts[path].append({**FIXTURES[name], "speed": speed})

    def play_raw(
        self,
        segments: Sequence[bytes],
        *,
        end: str = "clean",
        path: str = "/api/chat",
        status: int = 200,
        headers: dict[str, str] | None = None,
        first_byte_ms: float = 0,
        delay_ms: float = 0,
    ) -> None:
        """Queue a chunked answer: one segment is one HTTP chunk and one write."""
        self._scripts[path].append(
            {
                "kind": "stream",
                "status": status,
                "headers": STREAM if headers is None else headers,
                "segments": [{"data_hex": part.hex(), "delay_ms": delay_ms} for part in segments],
                "first_byte_ms": first_byte_ms,
                "end": end,
            }
        )

    def play_body(
        self, body: bytes, *, status: int = 200, content_type: str, path: str = "/api/chat"
    ) -> None:
        """Queue a whole answer."""
        script = {"kind": "body", "status": status, "body": body.decode()}
        self._scripts[path].append({**script, "headers": {"Content-Type": content_type}})

    def unload(self) -> None:
        """Let every model go, as the server does after ``keep_alive``."""
        for model in self.models.values():
            model.loaded = None

    def forget(self) -> None:
        """Drop all that is queued."""
        self._scripts.clear()

    async def renew(self) -> None:
        """Make it ready for another test: no answers under way, nothing queued, nothing counted."""
        await self._end([each for each in self._connections if each.answering])
        self.forget()
        self.requests.clear()
        self.disconnects = self.connections = self.loads = self.reloads = 0
        self.default_reply = None

    async def disconnected(self, count: int = 1) -> None:
        """Wait until that many clients have left in the middle of an answer."""
        await self._until(lambda: self.disconnects >= count)

    async def requested(self, count: int = 1, path: str = "/api/chat") -> None:
        """Wait until that many requests for the path have come."""
        await self._until(lambda: sum(r.path == path for r in self.requests) >= count)

    async def _until(self, reached: Callable[[], bool]) -> None:
        with anyio.fail_after(30):
            while not reached():
                await self._changed.wait()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    # -- life

    async def __aenter__(self) -> FakeOllama:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            self._connect, "127.0.0.1", self._port, backlog=2048
        )
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await _a_few_rounds()  # of the loop, for connections that were just accepted
        await self._end(self._connections)

    async def _end(self, connections: Iterable[Connection]) -> None:
        tasks = [task for each in connections if (task := each.stop()) is not None]
        await asyncio.gather(*tasks, return_exceptions=True)
        await _a_few_rounds()  # for the sockets to be closed

    def _connect(self) -> Connection:
        connection = Connection(self._answer)
        self.connections += 1
        connection.gone = self._left
        self._connections.add(connection)
        connection.closed = lambda: self._connections.discard(connection)
        return connection

    def _left(self) -> None:
        self.disconnects += 1
        self._notify()

    # -- answers

    async def _answer(self, request: Request, connection: Connection) -> None:
        self.requests.append(request)
        self._notify()
        try:
            await self._route(request, connection)
        except FakeResponse as answer:
            head = request.method == "HEAD"
            connection.send(answer.status, answer.body, answer.content_type, head=head)

    async def _route(self, request: Request, connection: Connection) -> None:
        host = request.headers.get("host", "")
        check_origin(request.headers.get("origin"), host)
        check_host(host)
        check_route(request.method, request.path)
        scripts = self._scripts[request.path]
        if request.path == "/api/chat":
            await self._chat(request, connection)
        elif scripts:
            await self._perform(scripts.popleft(), connection)  # type: ignore[arg-type]
        else:
            raise self._about(request)

    def _about(self, request: Request) -> FakeResponse:
        match request.path:
            case "/":
                return FakeResponse(200, b"Ollama is running", "text/plain; charset=utf-8")
            case "/api/tags":
                return FakeResponse(200, self.models.tags(new=not self.old))
            case "/api/ps":
                return FakeResponse(200, self.models.ps())
            case "/api/embed":
                return FakeResponse(200, embedded(request.raw, self.models))
            case "/api/show":
                return FakeResponse(200, shown_model(request.raw, self.models).shown())
            case _:
                return FakeResponse(200, {"version": self.version})

    async def _chat(self, request: Request, connection: Connection) -> None:
        body, model = chat_of(request.raw, self.models)
        if not body.get("messages"):
            return await self._load_only(body, model)
        script = self._next(body) or self._default(body)
        if isinstance(script, dict) and script["kind"] == "body":
            return await self._perform(script, connection)
        async with self._slot(model, body) as load_ns:
            if isinstance(script, dict):
                return await self._perform(script, connection)
            tokens = self.count(body["messages"], body.get("tools") or ())
            check_fits(body, tokens, model.runner.loaded or tokens)
            metrics = self._metrics(tokens, script, load_ns)
            if body.get("stream", True):
                return await self._stream(body, script, metrics, connection)
            return await self._whole(body, script, metrics)

    def _next(self, body: Body) -> Reply | Body | None:
        """Take what was queued first of all that may answer this request."""
        scripts = self._scripts["/api/chat"]
        for number, script in enumerate(scripts):
            if isinstance(script, dict) or script.suits(body):
                del scripts[number]
                return script
        return None

    async def _load_only(self, body: Body, model: FakeModel) -> None:
        if unloads(body):
            model.runner.loaded = None
        else:
            async with self._slot(model, body):
                pass
        reason = "load" if model.runner.loaded else "unload"
        raise FakeResponse(200, last_line(body["model"], {"content": ""}, reason))

    @asynccontextmanager
    async def _slot(self, model: FakeModel, body: Body) -> AsyncIterator[int]:
        """The runner, loaded with the window that is wanted; nanoseconds of loading."""
        wanted = window_of(body, model)
        model = model.runner
        while self._must_wait(model, wanted):
            await self._changed.wait()
        self._busy[model.name] += 1
        load_ns = LOADED_NS
        try:
            if model.loaded != wanted:
                self.loads += 1
                self.reloads += model.loaded is not None
                if self.one_fits:
                    self.unload()
                model.loaded = wanted
                await asyncio.sleep(self.load_delay)
                load_ns += int(self.load_delay * 1e9)
            yield load_ns
        finally:
            self._busy[model.name] -= 1
            self._notify()

    def _must_wait(self, model: FakeModel, wanted: int) -> bool:
        if self.one_fits and any(n for name, n in self._busy.items() if name != model.name):
            return True
        return bool(self._busy[model.name]) and (self.one_at_a_time or model.loaded != wanted)

    def _default(self, body: Body) -> Reply:
        if self.default_reply is not None:
            return self.default_reply
        if isinstance(body.get("format"), dict):
            return Reply([json.dumps(example_of(body["format"]))])
        said = [m.get("content", "") for m in body["messages"] if m.get("role") == "user"]
        words = f"You said: {said[-1] if said else ''}".split(" ")
        return Reply([words[0], *(f" {word}" for word in words[1:])])

    def _metrics(self, tokens: int, reply: Reply, load_ns: int) -> Body:
        said = len(reply.tokens) + len(reply.thinking) + 12 * len(reply.tool_calls)
        prompt, generated = reply.prompt_eval_count, reply.eval_count
        return metrics_of(
            tokens if prompt is None else prompt,
            said + 1 if generated is None else generated,
            load=load_ns,
        )

    def _parts(self, model: str, limit: int | None, reply: Reply) -> tuple[list[bytes], str | None]:
        """The framed lines before the last one, and why it ends."""
        tokens, reason = tuple(reply.tokens), reply.done_reason
        if limit is not None and limit < len(tokens):
            tokens, reason = tokens[:limit], "length"
        key = (model, tokens)
        if key not in self._framed:
            self._framed[key] = [_frame(line(model, {"content": text})) for text in tokens]
        early = [{"content": "", "thinking": text} for text in reply.thinking]
        calls = [] if reply.calls_in_final else _calls(reply)
        late = [{"content": "", "tool_calls": [call]} for call in calls]
        wrap = [[_frame(line(model, message)) for message in part] for part in (early, late)]
        return wrap[0] + self._framed[key] + wrap[1], reason

    async def _stream(
        self, body: Body, reply: Reply, metrics: Body, connection: Connection
    ) -> None:
        parts, reason = self._parts(body["model"], limit_of(body), reply)
        wait_at = reply.pause_after or 0
        if reply.gate is not None and not wait_at:
            await reply.gate.wait()
        connection.start(200, STREAM)
        try:
            await self._send_parts(parts, reply, wait_at, connection)
        except asyncio.CancelledError:
            reply.left = asyncio.get_running_loop().time()
            raise
        if reply.error is not None:
            connection.chunk(encoded({"error": reply.error}))
        else:
            message: Body = {"content": ""}
            if reply.calls_in_final:
                message["tool_calls"] = _calls(reply)
            connection.transport.write(_frame(last_line(body["model"], message, reason, metrics)))
        connection.finish()

    async def _send_parts(
        self, parts: list[bytes], reply: Reply, wait_at: int, connection: Connection
    ) -> None:
        loop = asyncio.get_running_loop()
        start, write = loop.time(), connection.transport.write
        for number, part in enumerate(parts):
            if wait_at and number == wait_at and reply.gate is not None:
                await reply.gate.wait()
            if reply.delay:
                await asyncio.sleep(start + number * reply.delay - loop.time())
            elif not number % 64:
                await asyncio.sleep(0)
            write(part)
            reply.sent.append(loop.time())
            await connection.drain()

    async def _whole(self, body: Body, reply: Reply, metrics: Body) -> None:
        if reply.gate is not None:
            await reply.gate.wait()
        await asyncio.sleep(reply.delay * len(reply.tokens))
        if reply.error is not None:
            raise FakeResponse(500, reply.error)
        message: Body = {"content": "".join(reply.tokens)}
        if reply.thinking:
            message["thinking"] = "".join(reply.thinking)
        if reply.tool_calls:
            message["tool_calls"] = _calls(reply)
        raise FakeResponse(200, last_line(body["model"], message, reply.done_reason, metrics))

    async def _perform(self, script: Body, connection: Connection) -> None:
        """Play a recorded exchange."""
        if script["kind"] == "body":
            kind = script["headers"].get("Content-Type")
            connection.send(script["status"], script["body"].encode(), kind)
            return
        speed = script.get("speed", 1.0)
        await asyncio.sleep(script.get("first_byte_ms", 0) / 1000 / speed)
        while not connection.transport.is_closing():
            for segment in script["segments"]:
                if segment["delay_ms"]:
                    await asyncio.sleep(segment["delay_ms"] / 1000 / speed)
                if not connection.streaming:  # not even the status comes before the first chunk
                    connection.start(script["status"], script["headers"])
                data = segment.get("data_hex")
                connection.chunk(bytes.fromhex(data) if data else segment["data"].encode())
                await connection.drain()
            if not connection.streaming:
                connection.start(script["status"], script["headers"])
            if script["end"] != "repeat":
                break
            await asyncio.sleep(0)
        if script["end"] == "clean":
            connection.finish()
        else:
            await asyncio.sleep(0.01)  # let the peer read what is there
            connection.cut(reset=script["end"] == "reset")


async def _a_few_rounds() -> None:
    for _ in range(4):
        await asyncio.sleep(0)


def _frame(found: Body) -> bytes:
    data = encoded(found)
    return b"%x\r\n%b\r\n" % (len(data), data)


def _calls(reply: Reply) -> list[Body]:
    return [
        called(
            index,
            call["name"],
            call.get("arguments", {}),
            call.get("id", f"call_{secrets.token_hex(4)}"),
        )
        for index, call in enumerate(reply.tool_calls)
    ]


def default_models() -> list[FakeModel]:
    """One that can everything, one that cannot think or call, one that only embeds."""
    return [
        FakeModel("qwen3:14b"),
        FakeModel(
            "gemma3:4b",
            capabilities=["completion", "vision"],
            context_length=131_072,
            embedding_length=2560,
            family="gemma3",
            parameter_size="4.3B",
            size=3_338_801_804,
        ),
        FakeModel(
            "nomic-embed-text:latest",
            capabilities=["embedding"],
            context_length=2048,
            embedding_length=768,
            family="nomic-bert",
            parameter_size="137M",
            quantization="F16",
            size=274_302_450,
        ),
    ]


async def _serve(options: argparse.Namespace) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    fake = FakeOllama(port=options.port, one_at_a_time=options.one_at_a_time, any_model=True)
    if options.tokens:
        words = [f"token{number} " for number in range(options.tokens)]
        fake.default_reply = Reply(words, delay=options.delay_ms / 1000)
    async with fake:
        print(fake.port, flush=True)  # noqa: T201
        await stopped.wait()


def main() -> None:
    """Serve until SIGTERM; the port is the first line of the output."""
    parser = argparse.ArgumentParser(prog="fake-ollama")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--tokens", type=int, default=0, help="tokens of each reply; 0 echoes")
    parser.add_argument("--delay-ms", type=float, default=0.0, help="between two tokens")
    parser.add_argument("--one-at-a-time", action="store_true", help="as the real one by default")
    asyncio.run(_serve(parser.parse_args()))


if __name__ == "__main__":
    main()
