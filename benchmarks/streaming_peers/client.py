"""The load: one raw connection per stream, which counts events and the gaps between them.

Nothing is parsed but the names of events: in a stream each frame arrives whole within the bytes of
one connection, so counting a name counts its events.
"""

import asyncio
from dataclasses import dataclass, field

END = b"0\r\n\r\n"
BUCKETS = 20_000
PER_SECOND = 10_000
"""A gap is counted in steps of 0.1 ms up to two seconds; longer ones count as two."""


@dataclass(frozen=True, kw_only=True)
class Wire:
    """How a turn is asked for, and by what its events are known."""

    content: bytes = b"event: content_delta"
    done: bytes = b"event: done"
    failed: bytes = b"event: error"
    path: str = "/api/v1/chat/{session}/stream"
    body: str = '{"message":"Tell me a story of one thousand words."}'

    def request(self, port: int, session: str) -> bytes:
        """One turn of a session."""
        body = self.body.replace("{session}", session)
        return (
            f"POST {self.path.format(session=session)} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
            f"X-Mochi-Session: {session}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
        ).encode()


OWN = Wire()


class Histogram:
    """Counts of durations, in bounded memory."""

    def __init__(self) -> None:
        self.counts = [0] * (BUCKETS + 1)

    def add(self, seconds: float, times: int = 1) -> None:
        at = int(seconds * PER_SECOND)
        self.counts[min(BUCKETS, at)] += times

    def total(self) -> int:
        return sum(self.counts)

    def percentile(self, share: float) -> float:
        """Milliseconds that this share of the durations does not exceed."""
        total = self.total()
        seen = 0
        for at, count in enumerate(self.counts):
            seen += count
            if total and seen >= share * total:
                return at * 1000 / PER_SECOND
        return 0.0


@dataclass
class Result:
    """What one load saw."""

    events: int = 0
    turns: int = 0
    """Turns that ended with ``done``."""
    seconds: float = 0.0
    """From the first request to the end of the last turn."""
    failures: list[str] = field(default_factory=list)
    gaps: Histogram = field(default_factory=Histogram)
    """Between two events of one stream; events that arrive together have none."""
    first: Histogram = field(default_factory=Histogram)
    """From the request to its first event."""
    late: Histogram = field(default_factory=Histogram)
    """How late this client itself was: what is large here disturbed the measurement."""


class Stream(asyncio.Protocol):
    """One connection; its turns one after another."""

    def __init__(self, port: int, sessions: list[str], result: Result, wire: Wire = OWN) -> None:
        self.wire = wire
        self.keep = max(len(wire.content), len(wire.done), len(wire.failed)) - 1
        self.requests = [wire.request(port, session) for session in sessions]
        self.result = result
        self.loop = asyncio.get_running_loop()
        self.finished = self.loop.create_future()
        self.tail = b""
        self.done = False
        self.asked = self.last = 0.0

    def connection_made(self, transport) -> None:
        self.transport = transport
        self.ask()

    def ask(self) -> None:
        self.tail, self.done, self.last = b"", False, 0.0
        self.asked = self.loop.time()
        self.transport.write(self.requests.pop())

    def data_received(self, data: bytes) -> None:
        if not self.last:
            self.begin(data)
        joined = self.tail + data
        count = joined.count(self.wire.content)
        # The tail is shorter than any name, so nothing in it is counted twice.
        self.tail = joined[-self.keep :]
        if count:
            self.count(count)
        if self.wire.done in joined:
            self.done = True
        if self.wire.failed in joined:
            self.fail("the stream has an error")
        if self.done and self.tail.endswith(END):
            self.turn_ended()

    def begin(self, data: bytes) -> None:
        """The answer's head is the first that arrives."""
        self.last = -1.0
        if not data.startswith(b"HTTP/1.1 200"):
            self.fail(data[:300].decode(errors="replace"))
            self.transport.abort()

    def count(self, events: int) -> None:
        now = self.loop.time()
        result = self.result
        result.events += events
        if self.last < 0:
            result.first.add(now - self.asked)
        else:
            result.gaps.add(now - self.last)
        if events > 1:
            result.gaps.add(0.0, events - 1)
        self.last = now

    def turn_ended(self) -> None:
        self.result.turns += 1
        if self.requests:
            self.ask()
        else:
            self.transport.close()

    def fail(self, why: str) -> None:
        if len(self.result.failures) < 5:
            self.result.failures.append(why)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done or self.requests:
            self.fail(f"connection lost: {exc}")
        if not self.finished.done():
            self.finished.set_result(None)


async def watch(result: Result, pause: float = 0.005) -> None:
    """Measure how late the event loop wakes."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + pause
        await asyncio.sleep(pause)
        result.late.add(max(0.0, loop.time() - due))


async def load(
    port: int,
    sessions: list[list[str]],
    *,
    ramp: float,
    limit: float,
    result: Result | None = None,
    wire: Wire = OWN,
) -> Result:
    """Run the turns of every connection at once; ``sessions`` holds one list per connection.

    Args:
        port: of the server on loopback.
        sessions: ids; each is used for one turn.
        ramp: seconds over which the connections start.
        limit: seconds after which what still runs is cut off and so not delivered.
        result: filled while the load runs, for who wants to look meanwhile.
        wire: how the turns are asked for.
    """
    loop = asyncio.get_running_loop()
    result = result or Result()
    watcher = loop.create_task(watch(result))
    started = loop.time()
    streams: list[Stream] = []
    for at, names in enumerate(sessions):
        pause = started + ramp * at / len(sessions) - loop.time()
        if pause > 0:
            await asyncio.sleep(pause)
        stream = Stream(port, names, result, wire)
        streams.append(stream)
        loop.create_task(  # noqa: RUF006 - the stream's future is awaited below
            loop.create_connection(lambda stream=stream: stream, "127.0.0.1", port)
        )
    left = max(0.0, started + limit - loop.time())
    _, open_ = await asyncio.wait([stream.finished for stream in streams], timeout=left)
    result.seconds = loop.time() - started
    watcher.cancel()
    for stream in streams:
        if not stream.finished.done() and hasattr(stream, "transport"):
            stream.transport.abort()
    if open_:
        result.failures.append(f"{len(open_)} streams cut off after {limit:.0f} s")
    return result
