from __future__ import annotations

from pathlib import Path

import pytest

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
        "prompts": [{"filename": "a.md", "preview": "Be kind, and brief.", "word_count": 4}]
    }
    deleted = await api.delete("/system-prompts/a.md")
    assert (deleted.status_code, deleted.content) == (204, b"")
    assert (await api.get("/system-prompts")).json() == {"prompts": []}


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


async def test_the_longest_prompt_is_accepted(api):
    response = await api.post("/system-prompts", {"filename": "a.txt", "content": "x" * 9_999})
    assert response.status_code == 201


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


async def test_a_folder_in_the_place_of_a_prompt_is_not_a_prompt(api, mochi):
    (mochi.system_prompts_path / "e.md").mkdir(parents=True)
    for method in ("GET", "DELETE"):
        assert (await api(method, "/system-prompts/e.md")).status_code == 404
    created = await api.post("/system-prompts", {"filename": "e.md", "content": "x"})
    assert created.status_code == 409
