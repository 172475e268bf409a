"""What is imported when: the wires and most routers only once somebody asks for them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.urls import URLResolver, get_resolver

from mochi_project.http.wires import WIRES
from mochi_server.agents import folder as agents
from mochi_server.sessions.storage.base import RESERVED_IDS
from mochi_server.tools import loading as tools
from mochi_server.tools.mcp.config import file as mcp
from tests.support.wires import paths_of

LATE = {
    **{paths_of(wire)[0]: wire.routes_module for wire in WIRES},
    "/api/v1/sessions": "sessions_app.schemas",
    "/api/v1/sessions/a1b2c3d4e5/attachments/b94d": "sessions_app.attachments",
    "/api/v1/chat/stream": "chat.api.simple_routes",
    "/api/v1/runs": "chat.api.runs",
    "/api/v1/confirmations": "chat.api.confirmations",
    "/api/v1/policies": "chat.api.confirmations",
    "/api/v1/models": "chat.api.models",
    "/api/v1/tools": "tools_app.schemas",
    "/api/v1/mcp/health": "tools_app.mcp_schemas",
    "/api/v1/mcp/events": "chat.api.mcp_events",
    "/api/v1/agents": "agents_app.schemas",
    "/api/v1/system-prompts": "prompts_app.schemas",
    "/api/v1/presets": "prompts_app.presets",
}
"""A path of each part, and a module that it needs."""

OF_VENDORS = {
    path: module
    for path, module in LATE.items()
    if path in {"/v1/chat/completions", "/v1/messages", "/v1/responses", "/ollama/api/chat"}
}

NEVER_AT_START = {"aiohttp", "chat.wires.socket.consumer", "openai", "anthropic", "mcp", "PIL"}
"""Modules that take long to import, and that no answer of ``/health`` needs."""


FREE = {
    "api/v1/confirmations/<confirmation_id>",  # begin with conf_
    "v1/responses/<response_id>",  # begin with resp_
    "ollama/v1/responses/<response_id>",
}
"""Routes whose names the server makes itself."""

RESERVED = {
    "api/v1/chat/<session_id>": RESERVED_IDS,
    "api/v1/sessions/<session_id>": RESERVED_IDS,
    "api/v1/agents/<agent_name>": agents.RESERVED_NAMES,
    "api/v1/tools/<tool_name>": tools.RESERVED_NAMES,
    "api/v1/mcp/<name>": mcp.RESERVED_NAMES,
    # A model of this name is reached with its tag, or the name of its provider.
    "api/v1/models/<path:model_name>": {"available", "check", "pull"},
}
"""What beside a fixed name is one that people choose, and the names that they cannot."""


def routes(resolver: URLResolver, start: str = "") -> Iterator[str]:
    for pattern in resolver.url_patterns:
        path = start + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from routes(pattern, path)
        else:
            yield path


def test_nothing_has_a_name_that_another_route_has() -> None:
    paths = {*routes(get_resolver())}
    named = {path for path in paths if path.endswith(">")} - FREE
    hidden: dict[str, set[str]] = {}
    for path in named:
        folder, _, _ = path.rpartition("/")
        beside = (each[len(folder) + 1 :] for each in paths if each.startswith(f"{folder}/"))
        if fixed := {each for each in beside if "/" not in each and "<" not in each}:
            hidden[path] = fixed
    assert hidden.keys() == RESERVED.keys()
    for path, fixed in hidden.items():
        assert fixed <= RESERVED[path], path


def said_by(code: str, folder: Path) -> str:
    """Run code in a process of its own, with the application, and return what it prints."""
    program = (
        "import asyncio, json, os, sys\n"
        "from mochi_server.app import create_app\n"
        f"application = create_app(data_dir={str(folder)!r}, ollama_host='http://127.0.0.1:9')\n"
        "assert {'ninja.conf', 'unittest', 'django.test'} & {*sys.modules} == {'ninja.conf'}\n"
        "from django.test import AsyncClient\n"
        "from django.urls import resolve\n"
        f"{code}\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_health_is_answered_without_wires_and_without_an_http_client(tmp_path: Path) -> None:
    code = (
        "from mochi_project.runtime import get_runtime\n"
        "async def ask():\n"
        "    assert (await AsyncClient().get('/api/v1/health')).status_code == 200\n"
        "    await get_runtime().aclose()\n"
        "asyncio.run(ask())\n"
        "print(*sys.modules)"
    )
    loaded = {*said_by(code, tmp_path).split()}
    assert "mochi_project.server_routes" in loaded
    assert loaded & ({*LATE.values()} | NEVER_AT_START) == set()


UNKNOWN = "/api/v1/tomorrow"


@pytest.fixture(scope="module")
def resolved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, set[str]]]:
    """By path: the name of what answers its first request, and what is imported then."""
    code = (
        f"for path in {[*LATE, UNKNOWN]!r}:\n"
        "    if (child := os.fork()) == 0:\n"
        "        view = resolve(path).func.__name__\n"
        "        print(json.dumps([path, view, [*sys.modules]]), flush=True)\n"
        "        os._exit(0)\n"
        "    assert os.waitpid(child, 0)[1] == 0"
    )
    lines = said_by(code, tmp_path_factory.mktemp("data")).splitlines()
    return {path: (view, {*modules}) for path, view, modules in map(json.loads, lines)}


@pytest.mark.parametrize("path", LATE)
def test_a_part_is_loaded_by_the_first_request_for_its_path(path: str, resolved: Any) -> None:
    view, loaded = resolved[path]
    assert view != "nowhere"
    assert LATE[path] in loaded
    for other, module in OF_VENDORS.items():
        assert module not in loaded or other == path


def test_an_unknown_path_loads_nothing(resolved: Any) -> None:
    view, loaded = resolved[UNKNOWN]
    assert view == "nowhere"
    assert loaded.isdisjoint(LATE.values())
