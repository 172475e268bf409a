"""A server that behaves like Ollama on the socket.

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
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from .http_wire import Connection, Request, go_json
from .ollama_rules import (
    Answer,
    FakeModel,
    check_chat,
    default_models,
    example_of,
    overflow,
)

FIXTURES: dict[str, Any] = json.loads(
    (Path(__file__).parent.parent / "data" / "ollama-fixtures.json").read_text("utf-8")
)
CREATED = "2026-11-21T20:31:05.031456789Z"
NDJSON = {"Content-Type": "application/x-ndjson"}
LOCAL = ("localhost", "127.0.0.1", "[::1]")


@dataclass
class Reply:
    """What a model is to say, in the order thinking, tokens, calls."""

    tokens: Sequence[str] = ()
    thinking: Sequence[str] = ()
    tool_calls: Sequence[dict[str, Any]] = ()
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

    def suits(self, body: dict[str, Any]) -> bool:
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
        self._port = port
        self.one_at_a_time = one_at_a_time
        self.load_delay = load_delay
        """Seconds that loading and reloading a model takes."""
        self.any_model = any_model
        """Every name is a model that can everything."""
        self.old = old
        """``/api/tags`` as before 0.30."""
        self.version = "0.24.0" if old else "0.33.0"
        self.models: dict[str, FakeModel] = default_models()
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
        self._scripts: dict[str, deque[Reply | dict[str, Any]]] = defaultdict(deque)
        self._changed = asyncio.Event()
        self._connections: set[Connection] = set()
        self._framed: dict[tuple[str, tuple[str, ...]], list[bytes]] = {}

    # -- for tests

    @property
    def chats(self) -> list[dict[str, Any]]:
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
                "headers": NDJSON if headers is None else headers,
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

    def forget(self) -> None:
        """Drop all that is queued."""
        self._scripts.clear()

    async def disconnected(self, count: int = 1) -> None:
        """Wait until that many clients have left in the middle of an answer."""
        await self._until(lambda: self.disconnects >= count)

    async def requested(self, count: int = 1, path: str = "/api/chat") -> None:
        """Wait until that many requests for the path have come."""
        await self._until(lambda: sum(r.path == path for r in self.requests) >= count)

    async def _until(self, reached: Callable[[], bool]) -> None:
        with anyio.fail_after(5):
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
        tasks = [task for c in self._connections if (task := c.stop()) is not None]
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
        head = request.method == "HEAD"
        try:
            await self._route(request, connection)
        except Answer as answer:
            kind = answer.content_type if answer.body else None
            connection.send(answer.status, answer.body, kind, head=head)

    async def _route(self, request: Request, connection: Connection) -> None:
        host = request.headers.get("host", "").rpartition(":")[0]
        if "origin" in request.headers or host not in LOCAL:
            raise Answer(403, b"")
        routes: dict[str, tuple[str, Callable[..., Awaitable[None]]]] = {
            "/api/chat": ("POST", self._chat),
            "/api/show": ("POST", self._show),
            "/api/tags": ("GET", self._tags),
            "/api/ps": ("GET", self._ps),
            "/api/version": ("GET", self._about),
            "/": ("GET", self._about),
        }
        if request.path not in routes:
            raise Answer(404, b"404 page not found", "text/plain")
        method, handler = routes[request.path]
        if request.method not in (method, "HEAD"):
            raise Answer(405, b"405 method not allowed", "text/plain")
        scripts = self._scripts[request.path]
        if handler != self._chat and scripts:
            await self._perform(scripts.popleft(), connection)  # type: ignore[arg-type]
        else:
            await handler(request, connection)

    async def _about(self, request: Request, connection: Connection) -> None:
        if request.path == "/":
            text = b"Ollama is running"
            connection.send(200, text, "text/plain; charset=utf-8", head=request.method == "HEAD")
        else:
            raise Answer(200, {"version": self.version})

    async def _tags(self, _: Request, __: Connection) -> None:
        raise Answer(200, {"models": [m.listed(new=not self.old) for m in self.models.values()]})

    async def _ps(self, _: Request, __: Connection) -> None:
        loaded = [model for model in self.models.values() if model.loaded]
        raise Answer(200, {"models": [model.running() for model in loaded]})

    async def _show(self, request: Request, _: Connection) -> None:
        raise Answer(200, self._model(self._body(request), normalised=True).shown())

    def _body(self, request: Request) -> dict[str, Any]:
        if not request.raw:
            raise Answer(400, "missing request body")
        try:
            body = request.body
        except ValueError as error:
            text = "invalid character '}' looking for beginning of value"
            raise Answer(400, text) from error
        if not body.get("model"):
            raise Answer(400, "model is required")
        return body

    def _model(self, body: dict[str, Any], *, normalised: bool = False) -> FakeModel:
        name = body["model"]
        full = name if ":" in name else f"{name}:latest"
        if full not in self.models and self.any_model:
            self.add_model(full)
        if full not in self.models:
            raise Answer(404, f"model '{full if normalised else name}' not found")
        return self.models[full]

    async def _chat(self, request: Request, connection: Connection) -> None:
        body = self._body(request)
        model = self._model(body)
        check_chat(body, model)
        if not body.get("messages"):
            return await self._load_only(body, model)
        script = self._next(body) or self._default(body)
        if isinstance(script, dict) and script["kind"] == "body":
            return await self._perform(script, connection)
        async with self._slot(model, body) as load_ns:
            if isinstance(script, dict):
                return await self._perform(script, connection)
            self._check_fits(body, model)
            metrics = self._metrics(body, script, load_ns)
            if body.get("stream", True):
                return await self._stream(body, script, metrics, connection)
            return await self._whole(body, script, metrics)

    def _next(self, body: dict[str, Any]) -> Reply | dict[str, Any] | None:
        """Take what was queued first of all that may answer this request."""
        scripts = self._scripts["/api/chat"]
        for number, script in enumerate(scripts):
            if isinstance(script, dict) or script.suits(body):
                del scripts[number]
                return script
        return None

    async def _load_only(self, body: dict[str, Any], model: FakeModel) -> None:
        reason = "unload" if body.get("keep_alive") == 0 else "load"
        if reason == "load":
            async with self._slot(model, body):
                pass
        else:
            model.loaded = None
        raise Answer(200, {**_line(body, {"content": ""}), "done": True, "done_reason": reason})

    @asynccontextmanager
    async def _slot(self, model: FakeModel, body: dict[str, Any]) -> AsyncIterator[int]:
        """The runner, loaded with the window that is wanted; nanoseconds of loading."""
        wanted = (body.get("options") or {}).get("num_ctx") or model.default_num_ctx
        wanted = min(max(wanted, 4), model.context_length or wanted)
        while model.busy and (self.one_at_a_time or model.loaded != wanted):
            await self._changed.wait()
        model.busy += 1
        load_ns = 1_334_875
        try:
            if model.loaded != wanted:
                self.loads += 1
                self.reloads += model.loaded is not None
                model.loaded = wanted
                await asyncio.sleep(self.load_delay)
                load_ns += int(self.load_delay * 1e9)
            yield load_ns
        finally:
            model.busy -= 1
            self._notify()

    def _check_fits(self, body: dict[str, Any], model: FakeModel) -> None:
        tokens = _prompt_tokens(body)
        if body.get("truncate") is False and model.loaded and tokens > model.loaded:
            raise overflow(tokens, model.loaded)

    def _default(self, body: dict[str, Any]) -> Reply:
        if self.default_reply is not None:
            return self.default_reply
        if isinstance(body.get("format"), dict):
            return Reply([json.dumps(example_of(body["format"]))])
        said = [m.get("content", "") for m in body["messages"] if m.get("role") == "user"]
        words = f"You said: {said[-1] if said else ''}".split(" ")
        return Reply([words[0], *(f" {word}" for word in words[1:])])

    def _metrics(self, body: dict[str, Any], reply: Reply, load_ns: int) -> dict[str, Any]:
        said = len(reply.tokens) + len(reply.thinking) + 12 * len(reply.tool_calls)
        prompt = reply.prompt_eval_count
        found = {
            "total_duration": 4_883_583_458,
            "load_duration": load_ns,
            "prompt_eval_count": _prompt_tokens(body) if prompt is None else prompt,
            "prompt_eval_duration": 342_546_000,
            "eval_count": said + 1 if reply.eval_count is None else reply.eval_count,
            "eval_duration": 4_535_599_000,
        }
        return {key: value for key, value in found.items() if value}

    def _parts(self, body: dict[str, Any], reply: Reply) -> tuple[list[bytes], str | None]:
        """The framed lines before the last one, and why it ends."""
        limit = (body.get("options") or {}).get("num_predict", -1)
        tokens, reason = tuple(reply.tokens), reply.done_reason
        if 0 <= limit < len(tokens):
            tokens, reason = tokens[:limit], "length"
        key = (body["model"], tokens)
        if key not in self._framed:
            lines = [{**_line(body, {"content": text}), "done": False} for text in tokens]
            self._framed[key] = [_frame(line) for line in lines]
        early = [{"content": "", "thinking": text} for text in reply.thinking]
        late = (
            []
            if reply.calls_in_final
            else [{"content": "", "tool_calls": [call]} for call in _calls(reply)]
        )
        wrap = [[_frame({**_line(body, m), "done": False}) for m in part] for part in (early, late)]
        return wrap[0] + self._framed[key] + wrap[1], reason

    async def _stream(
        self, body: dict[str, Any], reply: Reply, metrics: dict[str, Any], connection: Connection
    ) -> None:
        parts, reason = self._parts(body, reply)
        wait_at = reply.pause_after or 0
        if reply.gate is not None and not wait_at:
            await reply.gate.wait()
        connection.start(200, NDJSON)
        await self._send_parts(parts, reply, wait_at, connection)
        if reply.error is not None:
            connection.chunk(go_json({"error": reply.error}) + b"\n")
        else:
            message: dict[str, Any] = {"content": ""}
            if reply.calls_in_final:
                message["tool_calls"] = _calls(reply)
            final = {**_line(body, message), "done": True}
            final |= {"done_reason": reason} if reason else {}
            connection.transport.write(_frame({**final, **metrics}))
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
            await connection.drain()

    async def _whole(self, body: dict[str, Any], reply: Reply, metrics: dict[str, Any]) -> None:
        if reply.gate is not None:
            await reply.gate.wait()
        await asyncio.sleep(reply.delay * len(reply.tokens))
        if reply.error is not None:
            raise Answer(500, reply.error)
        message: dict[str, Any] = {"content": "".join(reply.tokens)}
        if reply.thinking:
            message["thinking"] = "".join(reply.thinking)
        if reply.tool_calls:
            message["tool_calls"] = _calls(reply)
        final = {**_line(body, message), "done": True, "done_reason": reply.done_reason}
        raise Answer(200, {**final, **metrics})

    async def _perform(self, script: dict[str, Any], connection: Connection) -> None:
        """Play a recorded exchange."""
        if script["kind"] == "body":
            kind = script["headers"].get("Content-Type")
            connection.send(script["status"], script["body"].encode(), kind, head=False)
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


def _line(body: dict[str, Any], message: dict[str, Any]) -> dict[str, Any]:
    return {
        "model": body["model"],
        "created_at": CREATED,
        "message": {"role": "assistant", **message},
    }


def _frame(line: dict[str, Any]) -> bytes:
    data = go_json(line) + b"\n"
    return b"%x\r\n%b\r\n" % (len(data), data)


def _calls(reply: Reply) -> list[dict[str, Any]]:
    found = []
    for index, call in enumerate(reply.tool_calls):
        function = {"index": index, "name": call["name"], "arguments": call.get("arguments", {})}
        identity = call.get("id", f"call_{secrets.token_hex(4)}")
        found.append({"id": identity, "function": function} if identity else {"function": function})
    return found


def _prompt_tokens(body: dict[str, Any]) -> int:
    said = sum(len(m.get("content") or "") + len(m.get("thinking") or "") for m in body["messages"])
    tools = len(json.dumps(body["tools"])) if body.get("tools") else 0
    return (said + tools) // 4 + 4 * len(body["messages"])


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
