"""What MCP servers cost: the start with 20 of them, the first list of tools, and a call.

``python benchmarks/mcp_servers.py [--quick]``. Exits 1 when a bar is missed. A call is compared
with the same call by the SDK's own client over its own transport, turn by turn.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from startup import MAX_SECONDS, NOBODY, ROOT, answers, free_port

from mochi_server.tools.base import ToolContext
from mochi_server.tools.execution import ToolExecutionResult, ToolExecutionService
from mochi_server.tools.mcp.config.file import McpConfigFile
from mochi_server.tools.mcp.oauth.authorizations import McpAuthorizations
from mochi_server.tools.mcp.servers.opening import TransportOpener
from mochi_server.tools.mcp.servers.registry import McpServers
from mochi_server.tools.mcp.source import McpSource, McpTool

LIST_BAR_MS = 100.0
START_BAR_SECONDS = 0.2
CALL_BAR_MS = 2.0
PARALLEL = 100
WIRE = ROOT / "tests" / "support" / "mcp_wire.py"
GOOD = 15
BROKEN: dict[str, Any] = {
    "missing": {"command": "there-is-no-such-program"},
    "ends": {"command": "sh", "args": ["-c", "exit 3"]},
    "hangs": {"command": "sleep", "args": ["1000"]},
    "rubbish": {"command": "sh", "args": ["-c", "while echo hello; do sleep 0.01; done"]},
    "away": {"url": NOBODY},
}


def write_config(folder: Path) -> None:
    """Write 15 servers of ten tools each, and 5 broken ones."""
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    servers = {}
    for number in range(GOOD):
        plan = folder / f"plan{number}"
        tools = [
            {"name": f"t{at}", "description": "Do.", "inputSchema": schema} for at in range(10)
        ]
        plan.write_text(json.dumps({"tools": tools}))
        servers[f"s{number}"] = {"command": sys.executable, "args": [str(WIRE), str(plan)]}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": servers | BROKEN}))


def get(port: int, path: str) -> tuple[float, Any]:
    """Milliseconds of one request, and its answer."""
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=MAX_SECONDS)
    began = time.perf_counter()
    link.request("GET", f"/api/v1{path}")
    body = json.loads(link.getresponse().read())
    link.close()
    return (time.perf_counter() - began) * 1000, body


def start(folder: Path, *, tools: int) -> tuple[float, float]:
    """Seconds of a start, milliseconds of the first list; waits until that many are listed."""
    port = free_port()
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("MOCHI_")},
        "MOCHI_DATA_DIR": str(folder),
        "MOCHI_OLLAMA_HOST": NOBODY,
    }
    command = [sys.executable, "-m", "mochi_server", "--port", str(port)]
    began = time.perf_counter()
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=quiet, stderr=quiet) as child:
        try:
            while not answers(port):
                if child.poll() is not None or time.perf_counter() - began > MAX_SECONDS:
                    raise SystemExit("the server does not answer")
                time.sleep(0.005)
            seconds = time.perf_counter() - began
            milliseconds, listed = get(port, "/tools")
            until = time.perf_counter() + 4 * MAX_SECONDS
            while len(listed["tools"]) < tools and time.perf_counter() < until:
                time.sleep(0.2)
                _, listed = get(port, "/tools")
            if len(listed["tools"]) < tools:
                raise SystemExit(f"only {len(listed['tools'])} tools are listed")
            time.sleep(1)  # the lists are written
        finally:
            child.terminate()
    return seconds, milliseconds


def measure_starts(count: int) -> list[bool]:
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        start(folder, tools=0)  # the disk's cache
        without = [start(folder, tools=0) for _ in range(count)]
        write_config(folder)
        new = start(folder, tools=GOOD * 10)
        known = [start(folder, tools=GOOD * 10) for _ in range(count)]
    usual, later = (statistics.median(each[0] for each in runs) for runs in (without, known))
    first = max(each[1] for each in known)
    print(f"20 servers, 5 of them broken; start without any: {usual:.2f} s")
    print(f"first /tools without any server: {max(each[1] for each in without):.0f} ms")
    return [
        judge(f"start with them: {later - usual:+.2f} s", later - usual < START_BAR_SECONDS),
        judge(f"first /tools when nothing is known: {new[1]:.0f} ms", new[1] < LIST_BAR_MS),
        judge(f"first /tools, all tools known: {first:.0f} ms", first < LIST_BAR_MS),
    ]


def judge(what: str, met: bool) -> bool:  # noqa: FBT001 - a verdict
    print(f"  {'ok  ' if met else 'MISS'} {what}")
    return met


async def ours(tool: McpTool, service: ToolExecutionService, text: str) -> str:
    """One call as a conversation makes it."""
    context = ToolContext(session_id="s", tool_call_id="call")
    arguments = await tool.validate({"text": text})
    async for step in service.execute(tool, arguments, context):
        if isinstance(step, ToolExecutionResult) and step.result is not None:
            return step.result
    raise SystemExit("a call failed")


async def timed(call: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await call()
    return (time.perf_counter() - began) * 1000


async def measure_calls(count: int) -> list[bool]:
    from mcp.client.client import Client  # noqa: PLC0415 - slow
    from mcp.client.stdio import StdioServerParameters  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        write_config(folder)
        config = json.loads((folder / "mcp.json").read_text())["mcpServers"]["s0"]
        (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"s0": config}}))
        opener = TransportOpener(McpAuthorizations(folder, redirect_url=""))
        servers = McpServers(McpConfigFile(folder / "mcp.json"), opener, default_timeout=60)
        source = McpSource(servers)
        service = ToolExecutionService()
        async with Client(StdioServerParameters(**config)) as client:
            await source.wait_for(["s0__t0"], None)
            tool = (await source.tools())[0]
            mine, theirs = [], []
            for number in range(count):
                text = f"text {number}"
                theirs.append(await timed(lambda text=text: client.call_tool("t0", {"text": text})))
                mine.append(await timed(lambda text=text: ours(tool, service, text)))
            texts = [f"text {number}" for number in range(PARALLEL)]
            began = time.perf_counter()
            found = await asyncio.gather(*(ours(tool, service, text) for text in texts))
            seconds = time.perf_counter() - began
        await source.aclose()
    middle, sdk = statistics.median(mine), statistics.median(theirs)
    print(f"one call: {sdk:.2f} ms by the SDK, here {middle:.2f} ms")
    mixed = sum(json.loads(each)["text"] != text for each, text in zip(found, texts, strict=True))
    at_once = f"{PARALLEL} calls at once, {mixed} mixed up: {seconds * 1000:.0f} ms"
    return [
        judge(f"overhead of a call, median: {middle - sdk:.2f} ms", middle - sdk <= CALL_BAR_MS),
        judge(at_once, not mixed),
    ]


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer starts and calls")
    is_quick = parser.parse_args().quick
    met = asyncio.run(measure_calls(100 if is_quick else 1_000))
    met += measure_starts(1 if is_quick else 5)
    return 0 if all(met) else 1


if __name__ == "__main__":
    raise SystemExit(main())
