"""An upstream that speaks Ollama's protocol as cheaply as Python can: one write per token.

The model's name says what to do: ``bench-1000-20ms:latest`` answers 1,000 tokens, one each 20 ms;
with 0 ms each token is a write of its own, as fast as the reader takes them. Thousands of paced
streams share one timer. The port is the first line of the output.
"""

import argparse
import asyncio
import json
import re
import sys
from collections import deque
from functools import lru_cache

import uvloop

MODEL = re.compile(r"bench-(\d+)-(\d+)ms")
LISTED = tuple(
    f"bench-{tokens}-{pace}ms:latest"
    for tokens, pace in ((1, 0), (20, 0), (300, 0), (1000, 0), (150, 20), (1000, 20))
)
CREATED = "2026-01-01T00:00:00.000000000Z"
DETAILS = {
    "parent_model": "",
    "format": "gguf",
    "family": "llama",
    "families": ["llama"],
    "parameter_size": "1B",
    "quantization_level": "Q4_0",
    "context_length": 131072,
    "embedding_length": 2048,
}
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n"
)
TICK = 0.001


def http_chunk(value: object) -> bytes:
    """One line of NDJSON as one chunk of HTTP."""
    line = json.dumps(value, separators=(",", ":")).encode() + b"\n"
    return b"%x\r\n%s\r\n" % (len(line), line)


@lru_cache(maxsize=64)
def reply(model: str, tokens: int) -> list[bytes]:
    """Everything after the head: one chunk per token, then the final one with HTTP's end."""
    start = {"model": model, "created_at": CREATED}
    chunks = [
        http_chunk(
            {**start, "message": {"role": "assistant", "content": f" token{i}"}, "done": False}
        )
        for i in range(tokens)
    ]
    final = {
        **start,
        "message": {"role": "assistant", "content": ""},
        "done": True,
        "done_reason": "stop",
        "total_duration": 1_000_000,
        "load_duration": 1_000,
        "prompt_eval_count": 16,
        "prompt_eval_duration": 1_000,
        "eval_count": tokens,
        "eval_duration": 1_000_000,
    }
    return [*chunks, http_chunk(final) + b"0\r\n\r\n"]


def listed(name: str) -> dict[str, object]:
    """One entry of ``/api/tags``."""
    return {
        "name": name,
        "model": name,
        "modified_at": CREATED,
        "size": 1_000_000,
        "digest": "0" * 64,
        "details": DETAILS,
        "capabilities": ["completion"],
    }


SHOW = {
    "details": DETAILS,
    "model_info": {"general.architecture": "llama", "llama.context_length": 131072},
    "capabilities": ["completion"],
    "modified_at": CREATED,
}


class Wheel:
    """One timer for all streams of one pace."""

    def __init__(self, loop: asyncio.AbstractEventLoop, delay: float) -> None:
        self.loop = loop
        self.slots: list[set[Upstream]] = [set() for _ in range(max(1, round(delay / TICK)))]
        self.at = 0
        self.due = loop.time()
        self.tick()

    def add(self, stream: "Upstream") -> None:
        """Give the stream its first token at the next tick, and one per turn of the wheel."""
        self.slots[self.at].add(stream)
        stream.slot = self.slots[self.at]

    def tick(self) -> None:
        now = self.loop.time()
        while self.due <= now:
            for stream in tuple(self.slots[self.at]):
                stream.token()
            self.at = (self.at + 1) % len(self.slots)
            self.due += TICK
        # uvloop counts whole milliseconds: a shorter pause would spin.
        self.loop.call_later(TICK, self.tick)


class Flow:
    """All streams without delay: one token of each in each round of the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.streams: set[Upstream] = set()
        self.running = False

    def add(self, stream: "Upstream") -> None:
        """Let the stream flow, until it ends, pauses or is closed."""
        if not self.running:
            self.running = True
            self.loop.call_soon(self.round)
        self.streams.add(stream)
        stream.slot = self.streams

    def round(self) -> None:
        for stream in tuple(self.streams):
            if stream.left and not stream.paused:
                stream.transport.write(stream.left.popleft())
            else:
                stream.leave()
        self.running = bool(self.streams)
        if self.running:
            self.loop.call_soon(self.round)


class Upstream(asyncio.Protocol):
    """One connection."""

    flow: Flow
    wheels: dict[float, Wheel] = {}  # noqa: RUF012 - shared on purpose

    def __init__(self) -> None:
        self.buffer = b""
        self.left: deque[bytes] = deque()
        self.slot: set[Upstream] | None = None
        self.paused = False

    def connection_made(self, transport) -> None:
        self.transport = transport
        self.loop = asyncio.get_running_loop()

    def connection_lost(self, _exc: Exception | None) -> None:
        self.left.clear()
        self.leave()

    def leave(self) -> None:
        if self.slot is not None:
            self.slot.discard(self)
            self.slot = None

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while True:
            end = self.buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            head = self.buffer[:end]
            length = re.search(rb"(?i)content-length: *(\d+)", head)
            size = end + 4 + (int(length[1]) if length else 0)
            if len(self.buffer) < size:
                return
            body, self.buffer = self.buffer[end + 4 : size], self.buffer[size:]
            self.answer(head.split(b" ", 2)[1].split(b"?")[0], body)

    def answer(self, path: bytes, body: bytes) -> None:
        if path == b"/api/chat":
            model = json.loads(body)["model"]
            name = MODEL.match(model)
            if name is None:
                return self.send({"error": f"model '{model}' not found"}, "404 Not Found")
            return self.start(model, int(name[1]), int(name[2]) / 1000)
        answers = {
            b"/api/tags": {"models": [listed(name) for name in LISTED]},
            b"/api/show": SHOW,
            b"/api/ps": {"models": []},
            b"/api/version": {"version": "0.33.0"},
        }
        if path in answers:
            return self.send(answers[path])
        return self.send({"error": "not found"}, "404 Not Found")

    def send(self, value: object, status: str = "200 OK") -> None:
        body = json.dumps(value).encode()
        self.transport.write(
            f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )

    def start(self, model: str, tokens: int, delay: float) -> None:
        self.left = deque(reply(model, tokens))
        self.transport.write(STREAM_HEAD)
        if not delay:
            return self.flow.add(self)
        wheel = self.wheels.get(delay)
        if wheel is None:
            wheel = self.wheels[delay] = Wheel(self.loop, delay)
        return wheel.add(self)

    def token(self) -> None:
        """The wheel has come round."""
        if self.left and not self.paused:
            self.transport.write(self.left.popleft())
        if len(self.left) == 1 and not self.paused:  # the end follows the last token at once
            self.transport.write(self.left.popleft())
        if not self.left:
            self.leave()

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        if self.slot is None and self.left:
            self.flow.add(self)


async def serve(port: int) -> None:
    """Serve until killed."""
    loop = asyncio.get_running_loop()
    Upstream.flow = Flow(loop)
    server = await loop.create_server(Upstream, "127.0.0.1", port, backlog=4096)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    uvloop.run(serve(parser.parse_args().port))
