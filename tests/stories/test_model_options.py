"""Options of a model: kept by a session, changed for one message, sent, and named if not taken."""

from __future__ import annotations

import json

import anyio
import pytest

from mochi_project.runtime import get_runtime
from tests.support.sse import events


def sent(ollama):
    return ollama.chats[-1].get("options", {})


async def read(response):
    with anyio.fail_after(30):
        return [event async for event in events(response.streaming_content)]


async def test_a_session_keeps_its_options(api, ollama):
    options = {"temperature": 0.2, "stop": ["END"], "keep_alive": "10m"}
    created = (await api.post("/sessions", {"model": "qwen3:14b", "options": options})).json()
    path = f"/sessions/{created['session_id']}"
    chat = f"/chat/{created['session_id']}"
    assert created["options"] == options
    assert (await api.get(path)).json()["options"] == options
    await api.post(chat, {"message": "Hello"})
    assert ollama.chats[-1]["keep_alive"] == "10m"
    assert {"temperature": 0.2, "stop": ["END"]}.items() <= sent(ollama).items()
    changed = await api.patch(path, {"options": {"seed": 7}})
    assert changed.json()["options"] == {"seed": 7}
    await api.post(chat, {"message": "Hello"})
    assert "temperature" not in sent(ollama)
    assert sent(ollama)["seed"] == 7
    for nothing in (None, {}):
        await api.patch(path, {"options": {"seed": 7}})
        assert "options" not in (await api.patch(path, {"options": nothing})).json()
        assert "options" not in (await api.get(path)).json()


async def test_a_message_changes_the_options_for_its_turn(api, ollama):
    session_id = await api.new_session(options={"temperature": 0.2, "seed": 7})
    body = {"message": "Hello", "options": {"temperature": 0.9, "seed": None}}
    await api.post(f"/chat/{session_id}", body)
    assert sent(ollama)["temperature"] == 0.9
    assert "seed" not in sent(ollama)
    await api.post(f"/chat/{session_id}", {})
    assert {"temperature": 0.2, "seed": 7}.items() <= sent(ollama).items()


async def test_a_whole_number_may_have_a_point(api, ollama):
    session_id = await api.new_session()
    options = {"top_k": 3.0, "seed": -7.0, "max_tokens": 5.0, "temperature": 1}
    await api.post(f"/chat/{session_id}", {"message": "Hello", "options": options})
    used = sent(ollama)
    assert (used["top_k"], used["seed"], used["num_predict"]) == (3, -7, 5)
    assert [type(used[name]) for name in ("top_k", "seed")] == [int, int]


async def test_the_shorter_limit_of_a_reply_counts(api, ollama):
    session_id = await api.new_session(options={"max_tokens": 5})
    await api.post(f"/chat/{session_id}", {"message": "Hello"})
    assert sent(ollama)["num_predict"] == 5
    await api.post(f"/chat/{session_id}", {"options": {"max_tokens": 16_000_000}})
    assert 5 < sent(ollama)["num_predict"] < 16_000_000


async def test_the_simple_routes_take_options_and_name_those_that_are_not_taken(api, ollama):
    options = {"temperature": 0.9, "min_p": 0.1}
    body = {"model": "qwen3:14b", "message": "Hello", "options": options}
    answer = (await api.post("/chat", body)).json()
    assert "ignored_options" not in answer
    assert options.items() <= sent(ollama).items()
    body["model"] = "test/words"
    assert (await api.post("/chat", body)).json()["ignored_options"] == ["min_p"]
    chunks = await read(await api.post("/chat/stream", body))
    assert chunks[-1].data["ignored_options"] == ["min_p"]
    assert "ignored_options" not in chunks[0].data


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": "0.5"},
        {"temperature": -1},
        {"temperature": True},
        {"top_p": 1.5},
        {"seed": 0.5},
        {"stop": [""]},
        {"stop": ["x"] * 17},
        {"max_tokens": 0},
        {"temprature": 1},
        {"extra": {"ollama": {"num_ctx": 100_000}}},
        {"extra": {"ollama": {"NUM_CTX": 100_000}}},
        {"extra": {"openai": {"max_completion_tokens": 100_000}}},
        {"extra": {"openai": {"stream_options": {}}}},
        {"extra": {"anthropic": {"max_tokens": 100_000}}},
        {"extra": {"gemini": {"systemInstruction": {"parts": []}}}},
        {"extra": {"gemini": {"generationConfig": {"maxOutputTokens": 100_000}}}},
        {"extra": {"gemini": {"generation_config": {"max_output_tokens": 100_000}}}},
        {"extra": {"openai": {"n": 2}}},
        {"extra": {"ollama": 1}},
        {"keep_alive": ""},
        {"keep_alive": "soon"},
        {"keep_alive": "inf"},
        {"keep_alive": True},
        [],
    ],
)
async def test_wrong_options_are_refused(api, ollama, options):
    session_id = await api.new_session()
    for path, body in (
        (f"/chat/{session_id}", {"message": "Hello", "options": options}),
        ("/chat", {"message": "Hello", "model": "qwen3:14b", "options": options}),
        ("/sessions", {"model": "qwen3:14b", "options": options}),
    ):
        response = await api.post(path, body)
        assert (response.status_code, response.json()["error"]["code"]) == (422, "VALIDATION_ERROR")
    assert (await api.patch(f"/sessions/{session_id}", {"options": options})).status_code == 422
    assert ollama.chats == []
    assert (await api.get(f"/sessions/{session_id}/messages")).json()["messages"] == []


async def test_options_of_another_program_are_kept_and_those_that_fit_are_used(api, ollama):
    session_id = await api.new_session(options={"seed": 7})
    path = get_runtime().settings.sessions_path / f"{session_id}.json"
    content = json.loads(path.read_bytes())
    others = {"seed": 8, "temperature": "hot", "of_another": {"x": 1}}
    content["metadata"]["options"] = others
    path.write_text(json.dumps(content))
    await api.post(f"/chat/{session_id}", {"message": "Hello"})
    assert sent(ollama)["seed"] == 8
    assert "temperature" not in sent(ollama)
    assert json.loads(path.read_bytes())["metadata"]["options"] == others
