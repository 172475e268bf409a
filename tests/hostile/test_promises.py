"""Small promises that random requests found broken, and folders that are none."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import anyio
import jsonschema_rs
import pytest

from mochi_server.errors import PromptNotFound, StorageError
from mochi_server.services.system_prompts import SystemPromptService
from tests.hostile.aftermath import is_unharmed
from tests.support.server import running_server


async def schema_of(api: Any, name: str) -> dict[str, Any]:
    document = (await api.get("/openapi.json")).json()
    found: dict[str, Any] = document["components"]["schemas"][name]
    return found


async def test_a_whole_list_has_the_keys_that_the_document_requires(api: Any) -> None:
    whole = (await api.get("/sessions")).json()
    page = (await api.get("/sessions?limit=1")).json()
    schema = await schema_of(api, "SessionList")
    assert set(schema["required"]) == set(whole)
    found = (await api.get("/sessions?query=a")).json()
    assert set(schema["properties"]) == set(page) | set(found)


@pytest.mark.parametrize("value", [0, 1, "true", "yes", "on", 0.0])
async def test_what_only_looks_like_a_boolean_is_refused(api: Any, value: object) -> None:
    one = await api.new_session()
    asked = await api.post(f"/chat/{one}", {"message": "Hello", "think": value})
    window = {"manual_override": value, "current_window": 8192}
    changed = await api("PATCH", f"/sessions/{one}", {"context_window": window})
    assert (asked.status_code, changed.status_code) == (422, 422)


@pytest.mark.parametrize("value", ["8192", True, 8192.5])
async def test_what_only_looks_like_a_number_is_refused(api: Any, value: object) -> None:
    one = await api.new_session()
    window = {"manual_override": True, "current_window": value}
    changed = await api("PATCH", f"/sessions/{one}", {"context_window": window})
    assert changed.status_code == 422


BODIES = [
    ("ContextWindowPatch", {"manual_override": True}, False),
    ("ContextWindowPatch", {"manual_override": True, "current_window": None}, False),
    ("ContextWindowPatch", {"manual_override": True, "current_window": 8192}, True),
    ("ContextWindowPatch", {"manual_override": True, "current_window": 8192.0}, True),
    ("ContextWindowPatch", {"manual_override": False}, True),
    ("SystemPromptSet", {}, False),
    ("SystemPromptSet", {"content": None, "source_file": None}, False),
    ("SystemPromptSet", {"content": "Hi", "text": "Hi"}, False),
    ("SystemPromptSet", {"content": "Hi"}, True),
    ("SystemPromptSet", {"source_file": "helpful.md", "content": None}, True),
    ("PromptCreate", {"filename": "../x.md", "content": "Hi"}, False),
    ("PromptCreate", {"filename": "x.exe", "content": "Hi"}, False),
    ("PromptCreate", {"filename": "x.md", "content": ""}, False),
    ("PromptCreate", {"filename": "x.md", "content": "y" * 10_000}, False),
    ("PromptCreate", {"filename": "x.md", "content": "y" * 9_999}, True),
    ("PromptUpdate", {"content": "  "}, False),
    ("PromptUpdate", {"content": "Hi"}, True),
]


@pytest.mark.parametrize(("name", "body", "right"), BODIES)
async def test_the_document_says_which_bodies_are_refused(
    api: Any, name: str, body: Any, right: bool
) -> None:
    one = await api.new_session()
    await api.post("/system-prompts", {"filename": "helpful.md", "content": "Be brief."})
    method, path, sent = {
        "ContextWindowPatch": ("PATCH", f"/sessions/{one}", {"context_window": body}),
        "SystemPromptSet": ("PUT", f"/sessions/{one}/system-prompt", body),
        "PromptCreate": ("POST", "/system-prompts", body),
        "PromptUpdate": ("PUT", "/system-prompts/helpful.md", body),
    }[name]
    assert jsonschema_rs.validator_for(await schema_of(api, name)).is_valid(body) == right
    assert ((await api(method, path, sent)).status_code < 300) == right


async def test_a_body_of_wrong_keys_is_not_answered_with_a_longer_one(api: Any) -> None:
    body = {f"k{number}": 1 for number in range(10_000)}
    answer = await api.post("/sessions", body)
    error = answer.json()["error"]
    assert answer.status_code == 422
    assert len(answer.content) < 10_000
    assert len(error["details"]["errors"]) == 20
    assert "(and 10000 more)" in error["message"]  # model is missing as well


async def test_a_folder_that_cannot_be_looked_into_is_a_named_error(tmp_path: Path) -> None:
    prompts = SystemPromptService(tmp_path / ("a" * 300))
    with pytest.raises(StorageError):
        await prompts.update("helpful.md", "Be brief.")
    with pytest.raises(StorageError):
        await prompts.create("helpful.md", "Be brief.")
    with pytest.raises(StorageError):
        await prompts.read("helpful.md")
    with pytest.raises(StorageError):
        await prompts.delete("helpful.md")


async def test_a_pipe_is_no_prompt_and_nobody_waits_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.md")
    try:
        with anyio.fail_after(30), pytest.raises(PromptNotFound):
            await SystemPromptService(tmp_path).read("pipe.md")
    finally:  # let a thread go that reads from it
        os.close(os.open(tmp_path / "pipe.md", os.O_RDWR | os.O_NONBLOCK))


async def test_pipes_and_folders_among_the_sessions_do_not_hang_anything(tmp_path: Path) -> None:
    folder = tmp_path / "chat_sessions"
    folder.mkdir()
    os.mkfifo(folder / "pipe.json")
    (folder / "folder.json").mkdir()
    (folder / "loop.json").symlink_to("loop.json")
    async with running_server(data_dir=tmp_path) as server:
        with anyio.fail_after(60):
            status, listed = await server.get("/sessions")
            assert (status, listed["sessions"]) == (200, [])
            for name in ("pipe", "folder", "loop"):
                for method, path in (
                    ("GET", f"/sessions/{name}"),
                    ("PATCH", f"/sessions/{name}"),
                    ("POST", f"/chat/{name}"),
                    ("DELETE", f"/sessions/{name}"),
                ):
                    body = None if method in {"GET", "DELETE"} else {}
                    status, answer = await server.request(method, path, body)
                    assert (status, answer["error"]["code"]) == (404, "SESSION_NOT_FOUND")
        await is_unharmed(server)
