"""Random requests, valid and not, from the OpenAPI document, against a real server."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.hostile.aftermath import everything_below, is_unharmed, strangers
from tests.support.fake_ollama import FakeOllama
from tests.support.server import Server, environment, running_server

LIMIT_SECONDS = 1_800
"""More than ten times what it takes."""
REQUEST_SECONDS = 20

pytestmark = pytest.mark.timeout(LIMIT_SECONDS + 50)

# A request may have the documented shape and still be refused: a session without a message to
# answer, an index that is out of range, a cursor that we did not give, a denial to remember.
CONFIG = """
[checks.positive_data_acceptance]
expected-statuses = ["2xx", "400", "404", "409", "413", "415", "424", "502", "503"]

[[operations]]
include-name = "GET /api/v1/sessions"
checks.positive_data_acceptance.expected-statuses = ["2xx", "422"]

[[operations]]
include-name = "GET /api/v1/agents/chats"
checks.positive_data_acceptance.expected-statuses = ["2xx", "422"]

[[operations]]
include-name = "GET /api/v1/audit"
checks.positive_data_acceptance.expected-statuses = ["2xx", "422"]

[[operations]]
include-name = "GET /api/v1/confirmations"
checks.positive_data_acceptance.expected-statuses = ["2xx", "422"]

# What is in the string must be an object of texts.
[[operations]]
include-name = "GET /api/v1/system-prompts/{filename}"
checks.positive_data_acceptance.expected-statuses = ["2xx", "400", "404", "422"]

# A name may have only some characters, and a preset cannot have another one as its model.
[[operations]]
include-name = "PUT /api/v1/presets/{name}"
checks.positive_data_acceptance.expected-statuses = ["2xx", "400", "404", "422"]

# A turn makes a session and no question in it: the 404 is about the question.
[[operations]]
include-name = "POST /api/v1/chat/{session_id}/confirm-tool"
checks.ensure_resource_availability.enabled = false
checks.positive_data_acceptance.expected-statuses = ["404", "422"]

[[operations]]
include-name = "POST /api/v1/confirmations/{confirmation_id}"
checks.positive_data_acceptance.expected-statuses = ["404", "422"]

# The model of the session may be one that is not trusted with summaries.
[[operations]]
include-name = "POST /api/v1/sessions/{session_id}/summarize"
checks.positive_data_acceptance.expected-statuses = [
    "2xx", "400", "404", "409", "422", "424", "502", "503"
]

# It fetches a model from elsewhere.
[[operations]]
include-name = "POST /api/v1/models/pull"
enabled = false

# It ends with the server.
[[operations]]
include-name = "GET /api/v1/confirmations/events"
enabled = false

[[operations]]
include-name = "GET /api/v1/mcp/events"
enabled = false

[checks.not_a_server_error]
expected-statuses = ["2xx", "3xx", "4xx", "502", "503"]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A data folder; nothing else may come to be beside it, and nothing odd in it."""
    (tmp_path / "tool").mkdir()
    data = tmp_path / "data"
    data.mkdir()
    before = everything_below(tmp_path)
    yield data
    new = {path for path in everything_below(tmp_path) - before if data not in path.parents}
    assert {path for path in new if tmp_path / "tool" not in path.parents} == set()
    assert strangers(data) == []


def as_it_reads_streams(document: dict[str, Any]) -> dict[str, Any]:
    """The document with each event's schema where schemathesis looks for it before OpenAPI 3.2."""
    for path in document["paths"].values():
        for operation in path.values():
            stream = operation["responses"].get("200", {}).get("content", {})
            if (media := stream.get("text/event-stream")) is not None:
                media["schema"] = media.pop("x-itemSchema")
    return document


async def schemathesis(server: Server, cwd: Path, *options: str) -> tuple[int, str]:
    """Run it; the exit code and what it prints."""
    (cwd / "schemathesis.toml").write_text(CONFIG)
    _, document = await server.get("/openapi.json")
    (cwd / "openapi.json").write_text(json.dumps(as_it_reads_streams(document)))
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).parent / "schemathesis"),
        "run",
        "openapi.json",
        f"--url={server.url}",
        "--generation-deterministic",
        "--continue-on-failure",
        "--no-color",
        "--no-shrink",
        "--warnings=off",
        f"--request-timeout={REQUEST_SECONDS}",
        *options,
        cwd=cwd,
        env=environment(),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        with anyio.fail_after(LIMIT_SECONDS):
            out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, out.decode()


def requests_of(output: str) -> int:
    """How many requests were made."""
    found = re.search(r"(\d+) generated", output)
    assert found, output
    return int(found[1])


slow = partial(pytest.param, marks=pytest.mark.slow)
ALONE = "--phases=coverage,fuzzing"
TOOLS = "/(tools|mcp|confirmations|policies|agents)"
ASK_A_MODEL = (
    "--exclude-path-regex=/(tools|mcp|confirmations|policies|audit|tags|files|attachments|variants)",
    "--mode=positive",
)
"""Leaves out what answers the same with Ollama and without, as what is malformed does."""


@pytest.mark.parametrize(
    ("options", "least_requests", "least_turns"),
    [
        pytest.param(("--phases=examples",), 200, 10, id="examples"),
        slow((ALONE, "--include-path-regex=/sessions"), 700, 0, id="sessions"),
        slow((ALONE, "--include-path-regex=/chat/"), 700, 21, id="turns"),
        slow((ALONE, f"--include-path-regex={TOOLS}"), 700, 0, id="tools"),
        slow((ALONE, f"--exclude-path-regex=/sessions|/chat/|{TOOLS}"), 700, 0, id="others"),
        slow(("--phases=stateful",), 6, 0, id="all"),  # one after the other
    ],
)
async def test_every_answer_is_as_documented_whatever_is_asked(
    folder: Path, options: tuple[str, ...], least_requests: int, least_turns: int
) -> None:
    """What the document has as examples, then what is made of it, in parts of like length."""
    async with (
        FakeOllama(any_model=True) as ollama,
        running_server(data_dir=folder, ollama=ollama) as server,
    ):
        tool = folder.parent / "tool"
        code, output = await schemathesis(server, tool, "--max-examples=20", *options)
        assert code == 0, output + server.log
        assert requests_of(output) >= least_requests, output
        assert len(ollama.chats) >= least_turns
        await is_unharmed(server)


@pytest.mark.slow
async def test_without_ollama_every_answer_is_as_documented_too(folder: Path) -> None:
    async with running_server(data_dir=folder, ollama=None) as server:
        options = ("--max-examples=5", "--phases=examples,coverage", *ASK_A_MODEL)
        code, output = await schemathesis(server, folder.parent / "tool", *options)
        assert code == 0, output + server.log
        await is_unharmed(server)
