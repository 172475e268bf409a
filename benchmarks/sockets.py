"""What WebSockets cost beside server-sent events: memory when idle, CPU and gaps when streaming.

    python benchmarks/sockets.py            # about a minute
    python benchmarks/sockets.py --quick

One server, on a core of its own, holds idle sockets; meanwhile it streams the same paced turns as
events and over sockets, in turn. Exits with 1 when a limit is missed. benchmarks/README.md names
the limits.
"""

import argparse
import asyncio
import statistics
import tempfile
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
import uvloop
from streaming_peers.client import Result, load, watch
from streaming_peers.processes import LOAD_CORE, Server, pin, server, upstream
from streaming_peers.report import OURS

TOKENS = 250
MODEL = f"bench-{TOKENS}-20ms:latest"
STREAMS = 200
IDLE = 1000
RAMP_SECONDS = 2.0
LIMIT_SECONDS = 60.0
MOST_CPU = 1.5
"""CPU per event on a socket, as a multiple of that of a server-sent event."""
MOST_KIB = 100
"""Memory of an idle socket."""


@asynccontextmanager
async def idle_sockets(http: aiohttp.ClientSession, target: Server, count: int):
    """Sockets that were told that they are ready, and say nothing."""
    async with AsyncExitStack() as stack:
        for _ in range(count):
            opened = http.ws_connect(f"http://127.0.0.1:{target.port}/ws/chat?model={MODEL}")
            socket = await stack.enter_async_context(opened)
            await socket.receive_str()
        yield


async def socket_turn(
    http: aiohttp.ClientSession, target: Server, session: str, pause: float, result: Result
) -> None:
    """One turn over a socket of its own."""
    loop = asyncio.get_running_loop()
    await asyncio.sleep(pause)
    address = f"http://127.0.0.1:{target.port}/ws/chat?session_id={session}"
    async with http.ws_connect(address) as socket:
        await socket.receive_str()
        asked, last = loop.time(), 0.0
        await socket.send_str('{"event":"message","data":{"message":"Tell me a story."}}')
        async for message in socket:
            if message.type is not aiohttp.WSMsgType.TEXT:
                break
            if message.data.startswith('{"event":"content_delta"'):
                now = loop.time()
                (result.gaps if last else result.first).add(now - (last or asked))
                result.events += 1
                last = now
            elif message.data.startswith('{"event":"done"'):
                result.turns += 1
                return
            elif message.data.startswith('{"event":"error"'):
                result.failures.append(message.data[:300])
                return
        result.failures.append("the socket was closed")


async def over_sockets(http: aiohttp.ClientSession, target: Server, sessions: list[str]) -> Result:
    """Stream a turn of each session over a socket."""
    result = Result()
    watcher = asyncio.get_running_loop().create_task(watch(result))
    turns = [
        socket_turn(http, target, session, RAMP_SECONDS * at / len(sessions), result)
        for at, session in enumerate(sessions)
    ]
    await asyncio.wait_for(asyncio.gather(*turns), LIMIT_SECONDS)
    watcher.cancel()
    return result


async def measure(target: Server, rounds: int) -> bool:
    """Measure both in turn, print a table, and return whether the limits are kept."""
    cpu: dict[str, list[float]] = {"events": [], "sockets": []}
    kept = True
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        await over_sockets(http, target, target.sessions(MODEL, 4))  # warm-up
        before = target.rss()
        async with idle_sockets(http, target, IDLE):
            kib = (target.rss() - before) / 1024 / IDLE
            print(f"{IDLE} idle sockets: {kib:.0f} KiB of memory each")
            titles = ("us/event", "p50 ms", "p99 ms", "client p99", "delivered")
            print(" " * 9 + "".join(f"{title:>12}" for title in titles))
            for _ in range(rounds):
                for name, used in cpu.items():
                    sessions = target.sessions(MODEL, STREAMS)
                    began = target.cpu()
                    if name == "events":
                        result = await load(
                            target.port,
                            [[session] for session in sessions],
                            ramp=RAMP_SECONDS,
                            limit=LIMIT_SECONDS,
                        )
                    else:
                        result = await over_sockets(http, target, sessions)
                    used.append((target.cpu() - began) * 1e6 / max(1, result.events))
                    delivered = result.events / (STREAMS * TOKENS)
                    kept = kept and delivered == 1 and not result.failures
                    gaps, late = result.gaps, result.late.percentile(0.99)
                    print(
                        f"{name:9}{used[-1]:12.1f}{gaps.percentile(0.5):12.1f}"
                        f"{gaps.percentile(0.99):12.1f}{late:12.1f}{delivered:12.4f}"
                    )
                    print("\n".join(result.failures[:5]), end="")
    ratio = statistics.median(a / b for a, b in zip(cpu["sockets"], cpu["events"], strict=True))
    print(f"CPU per event over sockets: {ratio:.2f} times that of server-sent events")
    return kept and ratio <= MOST_CPU and kib <= MOST_KIB


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    rounds = 1 if parser.parse_args().quick else 3
    pin(LOAD_CORE)
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        upstream() as address,
        server(OURS, address, Path(folder)) as target,
    ):
        return 0 if uvloop.run(measure(target, rounds)) else 1


if __name__ == "__main__":
    raise SystemExit(main())
