from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from mochi_project.runtime import forget_runtime, get_runtime
from mochi_server.tools.base import ToolContext
from mochi_server.tools.mcp.servers.server import PATIENCE_SECONDS
from tests.support.mcp import Wire, tool, write_config
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("ollama_url")

FOLDER = "system_prompts"


async def test_a_prompt_is_created_read_replaced_listed_and_deleted(api, mochi):
    created = await api.post("/system-prompts", {"filename": "a.md", "content": "Be brief."})
    assert (created.status_code, created.json()) == (
        201,
        {"filename": "a.md", "content": "Be brief."},
    )
    updated = await api.put("/system-prompts/a.md", {"content": "Be kind, and\nbrief."})
    assert (updated.status_code, updated.json()["content"]) == (200, "Be kind, and\nbrief.")
    assert (await api.get("/system-prompts/a.md")).json() == updated.json()
    listed = (await api.get("/system-prompts")).json()
    assert listed == {
        "prompts": [{"filename": "a.md", "preview": "Be kind, and brief.", "word_count": 4}],
        "problems": [],
    }
    deleted = await api.delete("/system-prompts/a.md")
    assert (deleted.status_code, deleted.content) == (204, b"")
    assert (await api.get("/system-prompts")).json() == {"prompts": [], "problems": []}


async def test_an_existing_prompt_is_not_created_again(api, mochi):
    await api.post("/system-prompts", {"filename": "a.md", "content": "first"})
    response = await api.post("/system-prompts", {"filename": "a.md", "content": "second"})
    assert response.status_code == 409
    assert response.json()["error"] == {
        "code": "PROMPT_EXISTS",
        "message": "System prompt 'a.md' exists already.",
        "details": {"filename": "a.md"},
    }
    assert (mochi.system_prompts_path / "a.md").read_text() == "first"


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
@pytest.mark.parametrize("name", ["nothing.md", ".hidden.md", "a.exe", "%2e%2e", "x" * 200 + ".md"])
async def test_a_prompt_that_cannot_be_is_not_found(api, method, name):
    body = {"content": "x"} if method == "PUT" else None
    response = await api(method, f"/system-prompts/{name}", body)
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "PROMPT_NOT_FOUND"


@pytest.mark.parametrize(
    "name",
    ["../up.md", "/etc/x.md", "a/b.md", "a\\b.md", ".hidden.md", "a.exe", "", " a.md", "a\0.md",
     "x" * 126 + ".md", "a.md\n", "ä.md"],
)  # fmt: skip
async def test_a_name_with_a_way_out_of_the_folder_is_refused(api, mochi, tmp_path, name):
    before = sorted(tmp_path.rglob("*.md"))
    response = await api.post("/system-prompts", {"filename": name, "content": "x"})
    assert response.status_code == 422
    assert response.json()["error"]["code"] == "VALIDATION_ERROR"
    assert sorted(tmp_path.rglob("*.md")) == before


@pytest.mark.parametrize(("content", "part"), [(" \n", "empty"), ("x" * 10_000, "10,000")])
async def test_an_empty_or_excessive_prompt_is_refused(api, content, part):
    response = await api.post("/system-prompts", {"filename": "a.md", "content": content})
    assert response.status_code == 422
    assert part in response.json()["error"]["message"]
    assert (await api.get("/system-prompts/a.md")).status_code == 404


async def test_an_unknown_field_is_named(api):
    response = await api.post("/system-prompts", {"filename": "a.md", "content": "x", "tags": []})
    error = response.json()["error"]
    assert response.status_code == 422
    assert error["details"]["errors"] == [
        {"in": "body", "field": "tags", "message": "unknown field", "type": "extra_forbidden"}
    ]


async def test_files_that_are_no_prompts_are_not_listed(api, mochi):
    folder: Path = mochi.system_prompts_path
    folder.mkdir(parents=True)
    for name in (".a.md", "b.py", "c.md", "d.txt"):
        (folder / name).write_text("hello world")
    (folder / "e.md").mkdir()
    listed = (await api.get("/system-prompts")).json()["prompts"]
    assert [prompt["filename"] for prompt in listed] == ["c.md", "d.txt"]


# Prompts of MCP servers


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
    answer = await until(
        lambda: api.get("/system-prompts?source=mcp"),
        lambda answer: len(answer.json()["prompts"]) == count,
    )
    prompts: list[dict[str, Any]] = answer.json()["prompts"]
    return prompts


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
    assert (await api.get("/system-prompts")).json() == {"prompts": [], "problems": []}

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
    monkeypatch.setattr("mochi_server.tools.mcp.servers.facts.PROMPTS_SECONDS", 6)
    good = Wire(tmp_path / "good", tools=[tool("read")], prompts=[GUIDE])
    hangs = Wire(tmp_path / "hangs", tools=[tool("read")], prompts="hang")
    bad = Wire(tmp_path / "bad", start="hang")
    write_config(mochi.data_dir, good=good.entry(), hangs=hangs.entry(), bad=bad.entry())
    await api.get("/system-prompts?source=mcp")
    began = time.monotonic()
    await api.get("/system-prompts?source=mcp")
    assert time.monotonic() - began < PATIENCE_SECONDS / 2
    assert [each["name"] for each in await listed(api, 1)] == ["good__guide"]
    await until(lambda: api.get("/tools"), lambda answer: "hangs__read" in answer.json()["tools"])

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
