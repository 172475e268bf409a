"""The prompts of MCP servers as system prompts."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
import pytest

from mochi_project.runtime import forget_runtime, get_runtime
from mochi_server.tools.base import ToolContext
from mochi_server.tools.mcp.servers.server import PATIENCE_SECONDS
from tests.support.mcp import SECONDS, Wire, tool, write_config

pytestmark = pytest.mark.usefixtures("ollama_url")

GUIDE = {
    "name": "guide",
    "title": "Guide",
    "description": "Speaks as a guide.\u202eevil",
    "arguments": [
        {"name": "city", "description": "Where", "required": True},
        {"name": "style"},
    ],
}
TEXT = "You are a guide to {city}.\u200b"


async def listed(api: Any, count: int) -> list[dict[str, Any]]:
    with anyio.fail_after(SECONDS):
        while True:
            prompts: list[dict[str, Any]] = (await api.get("/system-prompts?source=mcp")).json()[
                "prompts"
            ]
            if len(prompts) == count:
                return prompts
            await anyio.sleep(0.02)


def with_arguments(name: str, **arguments: Any) -> str:
    return f"/system-prompts/{name}?arguments={quote(json.dumps(arguments))}"


async def test_a_prompt_of_a_server_is_listed_filled_in_and_used_by_a_session(
    api: Any, mochi: Any, tmp_path: Path
) -> None:
    plan = {"prompts": [GUIDE, {"name": "a b"}], "texts": {"guide": TEXT, "a b": "Be brief."}}
    wire = Wire(tmp_path / "wire", tools=[tool("read")], **plan)
    write_config(mochi.data_dir, travel=wire.entry())
    prompts = await listed(api, 2)
    assert prompts[0] == {
        "name": "travel__guide",
        "server": "travel",
        "title": "Guide",
        "description": "Speaks as a guide.\\u202eevil",
        "arguments": [
            {"name": "city", "description": "Where", "required": True},
            {"name": "style", "description": "", "required": False},
        ],
    }
    assert (await api.get("/system-prompts")).json() == {"prompts": []}

    filled = await api.get(with_arguments("travel__guide", city="Lyon"))
    assert filled.status_code == 200
    assert filled.json() == {
        **prompts[0],
        "content": "You are a guide to Lyon.\u200b",
        "shown_content": "You are a guide to Lyon.\\u200b",
    }
    assert (await api.get("/system-prompts/travel__a_b")).json()["content"] == "Be brief."

    body = {"model": "qwen3:14b", "system_prompt_source_file": "travel__guide"}
    created = await api.post("/sessions", {**body, "system_prompt_arguments": {"city": "Rome"}})
    assert created.status_code == 201
    path = f"/sessions/{created.json()['session_id']}"
    first = (await api.get(f"{path}/messages")).json()["messages"][0]
    assert first["content"] == "You are a guide to Rome.\u200b"
    assert first["source_file"] == "travel__guide"
    changed = await api.put(f"{path}/system-prompt", {"source_file": "travel__a_b"})
    assert changed.json()["messages"][0]["content"] == "Be brief."

    sessions = len((await api.get("/sessions")).json()["sessions"])
    for found, code, words in (
        (await api.get("/system-prompts/travel__guide"), "PROMPT_ARGUMENTS_INVALID", "'city'"),
        (await api.post("/sessions", body), "PROMPT_ARGUMENTS_INVALID", "it needs 'city'"),
        (
            await api.get(with_arguments("travel__guide", city="Rome", town="Rome")),
            "PROMPT_ARGUMENTS_INVALID",
            "no 'town'; its arguments: 'city', 'style'",
        ),
        (await api.get("/system-prompts/travel__other"), "PROMPT_NOT_FOUND", "travel__other"),
        (await api.get("/system-prompts/travel__a_b?arguments=x"), "VALIDATION_ERROR", ""),
    ):
        assert found.json()["error"]["code"] == code
        assert words in found.json()["error"]["message"]
        assert found.status_code in {400, 404, 422}
    assert len((await api.get("/sessions")).json()["sessions"]) == sessions


async def test_a_server_that_refuses_or_fails_says_why(api: Any, mochi: Any, tmp_path: Path):
    prompts = [{"name": "gone"}, {"name": "broken"}]
    plan = {"prompts": prompts, "results": {"broken": {"messages": 1}}}
    wire = Wire(tmp_path / "wire", tools=[tool("read")], **plan)
    write_config(mochi.data_dir, a=wire.entry(timeout_seconds=20))
    await listed(api, 2)
    refused = await api.get("/system-prompts/a__gone")
    assert (refused.status_code, refused.json()["error"]["code"]) == (
        400,
        "PROMPT_ARGUMENTS_INVALID",
    )
    assert "there is no such thing" in refused.json()["error"]["message"]
    broken = await api.get("/system-prompts/a__broken")
    assert (broken.status_code, broken.json()["error"]["code"]) == (502, "MCP_SERVER_FAILED")


async def test_the_list_waits_for_no_server_and_is_known_after_a_restart(
    api: Any, mochi: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mochi_server.tools.mcp.servers.connection.PROMPTS_SECONDS", 3)
    good = Wire(tmp_path / "good", tools=[tool("read")], prompts=[GUIDE])
    hangs = Wire(tmp_path / "hangs", tools=[tool("read")], prompts="hang")
    bad = Wire(tmp_path / "bad", start="hang")
    write_config(mochi.data_dir, good=good.entry(), hangs=hangs.entry(), bad=bad.entry())
    await api.get("/system-prompts?source=mcp")
    began = time.monotonic()
    await api.get("/system-prompts?source=mcp")
    assert time.monotonic() - began < PATIENCE_SECONDS / 2
    assert [each["name"] for each in await listed(api, 1)] == ["good__guide"]
    with anyio.fail_after(SECONDS):  # its tools are there all the same
        while "hangs__read" not in (await api.get("/tools")).json()["tools"]:  # noqa: ASYNC110
            await anyio.sleep(0.02)

    good.plan(tools=[tool("read")], prompts=[GUIDE, {"name": "new"}], calls={"read": CHANGED})
    read = (await get_runtime().tools.inventory()).tools["good__read"]
    async for _ in read.run({}, ToolContext(session_id="s", tool_call_id="c")):
        pass
    assert len(await listed(api, 2)) == 2

    await get_runtime().aclose()
    forget_runtime()
    Path(tmp_path / "good").write_text(json.dumps({"start": "exit"}))
    again = (await api.get("/system-prompts?source=mcp")).json()["prompts"]
    assert [each["name"] for each in again] == ["good__guide", "good__new"]


CHANGED = {"do": "notify", "method": "notifications/prompts/list_changed", "count": 1}
