"""``/presets``, and sessions that name presets over HTTP."""

from __future__ import annotations

import os

import pytest

BRIEF = {
    "description": "Answers in one sentence.",
    "model": "qwen3:14b",
    "options": {"temperature": 0.2, "stop": ["1e5", "null"], "keep_alive": "10m", "seed": None},
    "tools": ["add"],
    "agents": ["coder"],
    "policy": "confirm_destructive",
    "think": "high",
    "text_calls": "ask",
    "compaction": False,
    "tool_mode": "prompted",
    "system_prompt": "Be brief: one sentence.\n\n---\n# Ünïcode 😀",
}


async def test_a_preset_is_written_read_used_and_deleted(api, mochi, ollama):
    written = await api.put("/presets/brief", BRIEF)
    assert written.status_code == 200
    assert written.json() == {"name": "brief", **BRIEF, "warnings": ["There is no tool 'add'."]}
    assert (await api.get("/presets/brief")).json() == {"name": "brief", **BRIEF}
    assert (await api.get("/presets")).json()["presets"] == [
        {
            "name": "brief",
            "description": "Answers in one sentence.",
            "model": "qwen3:14b",
            "valid": True,
            "error_message": None,
        }
    ]
    session = await api.new_session(model="preset/brief")
    answer = await api.post(f"/chat/{session}", {"message": "Hello"})
    assert answer.json()["message"]["model"] == "qwen3:14b"
    request = ollama.chats[-1]
    assert request["messages"][0] == {"role": "system", "content": BRIEF["system_prompt"]}
    assert (request["options"]["stop"], request["keep_alive"]) == (["1e5", "null"], "10m")
    status = (await api.get(f"/sessions/{session}/status")).json()
    assert (status["model"], status["provider_model"]) == ("preset/brief", "qwen3:14b")
    await api.put("/presets/brief", {"model": "qwen3:14b"})
    await api.post(f"/chat/{session}", {"message": "Hello"})
    assert ollama.chats[-1]["messages"][0]["role"] == "user"
    shown = (await api.get("/models/preset/brief")).json()
    assert (shown["name"], shown["kind"]) == ("preset/brief", "preset")
    listed = [each["name"] for each in (await api.get("/models")).json()["models"]]
    assert listed[-1] == "preset/brief"
    assert (await api.delete("/presets/brief")).status_code == 204
    for response in (
        await api.get("/presets/brief"),
        await api.delete("/presets/brief"),
        await api.post(f"/chat/{session}", {"message": "Hello"}),
        await api.post("/sessions", {"model": "preset/brief"}),
        await api.patch(f"/sessions/{session}", {"model": "preset/brief"}),
        await api.get("/models/preset/brief"),
    ):
        assert (response.status_code, response.json()["error"]["code"]) == (404, "PRESET_NOT_FOUND")
    assert (await api.post("/sessions", {"model": "agent/nobody"})).status_code == 404
    assert [*mochi.presets_path.iterdir()] == []


async def test_files_that_cannot_be_used_are_listed_with_their_problem(api, mochi, tmp_path):
    folder = mochi.presets_path
    folder.mkdir(parents=True)
    outside = tmp_path / "outside.md"
    outside.write_text("---\nmodel: x\n---\n")
    (folder / "link.md").symlink_to(outside)
    (folder / "folder.md").mkdir()
    (folder / ".hidden.md").write_text("")
    (folder / "notes.txt").write_text("")
    files = {
        "a b": ("---\nmodel: x\n---\n", "a b.md:1: no preset can have this name"),
        "chain": ("---\nmodel: preset/x\n---\n", "chain.md:2: model: "),
        "empty": ("", "empty.md:1: the file must begin with front matter"),
        "key": ("---\nmodel: x\ntemperature: 1\n---\n", "key.md:3: there is no key 'temperature'"),
        "long": (f"---\nmodel: x\n---\n{'x' * 10_000}", "long.md:1: the system prompt: "),
        "nothing": ("---\ntools: []\n---\n", "nothing.md:1: model is missing"),
        "option": ("---\nmodel: x\noptions: {top_p: 2}\n---\n", "option.md:3: options.top_p: "),
        "policy": ("---\nmodel: x\npolicy: yes\n---\n", "policy.md:3: policy: "),
        "think": ("---\nmodel: x\nthink: hard\n---\n", "think.md:3: think"),
        "thinks": ("---\nmodel: x\nthink: [high]\n---\n", "thinks.md:3: think must be a text"),
    }
    for name, (text, _) in files.items():
        (folder / f"{name}.md").write_text(text)
    listed = {each["name"]: each for each in (await api.get("/presets")).json()["presets"]}
    assert list(listed) == sorted([*files, "link"])
    assert listed["link"]["error_message"] == "link.md:1: cannot be read: not a plain file"
    for name, (_, reason) in files.items():
        assert listed[name]["valid"] is False
        assert listed[name]["error_message"].startswith(reason)
    response = await api.get("/presets/nothing")
    assert (response.status_code, response.json()["error"]["code"]) == (422, "PRESET_INVALID")
    assert (await api.get("/presets/link")).status_code == 404
    assert (await api.delete("/presets/nothing")).status_code == 204
    assert (await api.put("/presets/key", {"model": "x"})).status_code == 200


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("..%2fup", {"model": "x"}),
        (".hidden", {"model": "x"}),
        ("a b", {"model": "x"}),
        ("x" * 65, {"model": "x"}),
        ("a", {}),
        ("a", {"model": "agent/coder"}),
        ("a", {"model": "x", "modell": "y"}),
        ("a", {"model": "x", "options": {"temperature": "1"}}),
        ("a", {"model": "x", "policy": "perhaps"}),
        ("a", {"model": "x", "tools": ["x" * 400 + str(number) for number in range(100)]}),
        ("a", {"model": "x", "system_prompt": "x" * 10_000}),
    ],
)
async def test_what_cannot_be_a_preset_is_refused(api, mochi, tmp_path, name, body):
    response = await api.put(f"/presets/{name}", body)
    assert response.status_code in (404, 422)
    assert not [*tmp_path.rglob("*.md")]


async def test_a_preset_that_another_program_changes_is_read_anew(api, mochi):
    path = mochi.presets_path / "brief.md"
    path.parent.mkdir(parents=True)
    path.write_text("---\nmodel: qwen3:14b\n---\nBe brief.\n")
    os.utime(path, (1, 1))
    for text in ("Be brief.", "Be quick."):
        path.write_text(path.read_text().replace("Be brief.", text))
        os.utime(path, (1, 1))  # as programs do that keep the time
        for _ in range(3):
            assert (await api.get("/presets/brief")).json()["system_prompt"] == text
    path.unlink()
    assert (await api.get("/presets/brief")).status_code == 404
