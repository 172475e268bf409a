"""What a streamed token costs on the wires of vendors, beside our own server-sent events.

    python benchmarks/wires.py            # about a minute
    python benchmarks/wires.py --quick

One server, on a core of its own, has the same turns asked for on each wire in turn, in sessions
that are kept. Exits with 1 when a limit is missed. benchmarks/README.md names the limits.
"""

import argparse
import gc
import json
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path

import uvloop
from streaming_peers.client import OWN, Wire, load
from streaming_peers.processes import LOAD_CORE, Server, pin, server, upstream
from streaming_peers.report import OURS

TOKENS = 1000
MOST = 1.3
"""CPU per event, as a multiple of that of our own events."""
FIRST_MS = 5.0
"""How much later the first event may come."""
LIMIT_SECONDS = 120
TURNS = 16
"""Of one load."""


def model_of(tokens: int) -> str:
    """The upstream reads its orders from the model's name."""
    return f"bench-{tokens}-0ms:latest"


def wire(path: str, *, content: bytes, done: bytes, failed: bytes, **fields: object) -> Wire:
    """A wire whose requests name the model and have one message."""
    text = json.loads(OWN.body)["message"]
    parts = [{"type": "text", "text": text}]
    message = {"id": "1", "role": "user", "content": text, "parts": parts}
    body = {"model": model_of(TOKENS), "messages": [message], "stream": True, **fields}
    return Wire(content=content, done=done, failed=failed, path=path, body=json.dumps(body))


WIRES = {
    "own": OWN,
    "openai": wire(
        "/v1/chat/completions",
        content=b'"delta":{"content":',
        done=b"data: [DONE]",
        failed=b'data: {"error":',
    ),
    "anthropic": wire(
        "/v1/messages",
        content=b"event: content_block_delta",
        done=b"event: message_stop",
        failed=b"event: error",
        max_tokens=100_000,
    ),
    "responses": wire(
        "/v1/responses",
        content=b"event: response.output_text.delta",
        done=b"event: response.completed",
        failed=b"event: response.failed",
        input=json.loads(OWN.body)["message"],
        conversation="conv_{session}",
    ),
    "ollama": wire(
        "/ollama/api/chat",
        content=b'"done":false',
        done=b'"done":true',
        failed=b'{"error":',
    ),
    "ag-ui": wire(
        "/api/v1/agui",
        content=b'"type":"TEXT_MESSAGE_CONTENT"',
        done=b'"type":"RUN_FINISHED"',
        failed=b'"type":"RUN_ERROR"',
        threadId="thread",
        runId="run",
        tools=[],
        context=[],
        forwardedProps={"model": model_of(TOKENS)},
    ),
    "vercel": wire(
        "/api/v1/ui/chat",
        content=b'"type":"text-delta"',
        done=b"data: [DONE]",
        failed=b'"type":"error"',
    ),
}


def measure(
    target: Server, asked: Wire, streams: int, tokens: int = TOKENS
) -> tuple[float, float, list[str]]:
    """Return microseconds of CPU per event, the median of the first event in ms, and failures."""
    model = model_of(tokens)
    asked = replace(asked, body=asked.body.replace(model_of(TOKENS), model))
    names = target.sessions(model, TURNS)
    sessions = [names[at::streams] for at in range(streams)]
    gc.collect()
    gc.disable()
    before = target.cpu()
    result = uvloop.run(load(target.port, sessions, ramp=0, limit=LIMIT_SECONDS, wire=asked))
    used = target.cpu() - before
    gc.enable()
    if result.events != TURNS * tokens and not result.failures:
        result.failures.append(f"{result.events} events of {TURNS * tokens}")
    return used * 1e6 / max(1, result.events), result.first.percentile(0.5), result.failures


def compare(target: Server, streams: int, rounds: int) -> bool:
    """Measure all wires in turn, print a table, and return whether the limits are kept."""
    cpu: dict[str, list[float]] = {name: [] for name in WIRES}
    first: dict[str, list[float]] = {name: [] for name in WIRES}
    failures = []
    for number in range(rounds):
        names = [*WIRES] if number % 2 else [*WIRES][::-1]
        for name in names:
            cost, _, failed = measure(target, WIRES[name], streams)
            _, began, others = measure(target, WIRES[name], 1, tokens=1)
            cpu[name].append(cost)
            first[name].append(began)
            failures += [f"{name}: {each}" for each in (*failed, *others)]
    print(f"\n{streams:2} streams{'us/event':>18}{'x own':>8}{'first p50 ms':>14}")
    kept = not failures
    own = statistics.median(first["own"])
    for name in WIRES:
        pairs = zip(cpu[name], cpu["own"], strict=True)
        ratio = statistics.median(cost / base for cost, base in pairs)
        began = statistics.median(first[name])
        print(f"{name:12}{statistics.median(cpu[name]):16.1f}{ratio:8.2f}{began:14.1f}")
        kept = kept and ratio <= MOST and began <= own + FIRST_MS
    print("\n".join(failures))
    return kept


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    rounds = 3 if parser.parse_args().quick else 9
    pin(LOAD_CORE)
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        upstream() as address,
        server(OURS, address, Path(folder)) as target,
    ):
        for asked in WIRES.values():
            measure(target, asked, 4)  # warm-up
        kept = [compare(target, streams, rounds) for streams in (1, TURNS)]
    return 0 if all(kept) else 1


if __name__ == "__main__":
    raise SystemExit(main())
