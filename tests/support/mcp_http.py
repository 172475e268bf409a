"""Raw MCP requests over HTTP, and tools for real servers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .server import Server

ACCEPTED = {"Accept": "application/json, text/event-stream"}
TOOLS = '''
from pathlib import Path
import time

__all__ = ["echo", "note", "hang"]
__destructive__ = ["note"]


def echo(text: str) -> str:
    """Return the text."""
    print("to standard output")
    return text


def note(text: str) -> str:
    """Write the text."""
    with Path("notes.txt").open("a") as file:
        file.write(text + "\\n")
    return "noted"


def hang() -> str:
    """Take long."""
    Path("hangs.txt").write_text("")
    time.sleep(30)
    return "late"
'''


def write_mcp_tools(folder: Path) -> None:
    """Tools of a data folder: a harmless one, one that is asked about, and a slow one."""
    (folder / "tools").mkdir(parents=True)
    (folder / "tools" / "__init__.py").write_text(TOOLS)


def request(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def modern(method: str, **params: Any) -> dict[str, Any]:
    """A request of 2026-07-28, which says everything about its client."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    return request(method, **params, _meta=meta)


def modern_headers(method: str, name: str | None = None) -> dict[str, str]:
    headers = {**ACCEPTED, "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method}
    return headers if name is None else {**headers, "Mcp-Name": name}


async def call(server: Server, name: str, **arguments: Any) -> Any:
    """The result of a call in the protocol of 2026-07-28."""
    body = modern("tools/call", name=name, arguments=arguments)
    headers = modern_headers("tools/call", name)
    async with server.http.post(f"{server.url}/mcp", json=body, headers=headers) as response:
        text = await response.text()
        assert response.status == 200, text
        if response.content_type == "text/event-stream":
            text = [line for line in text.splitlines() if line.startswith("data: ")][-1][6:]
        return json.loads(text)["result"]
