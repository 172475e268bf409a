"""Options of a model, and answers of a form that the request names."""

from __future__ import annotations

import json

import anyio
import pytest

from mochi_project.runtime import get_runtime
from tests.support.api import events_of
from tests.support.sse import events
from tests.support.tools import PlainSource


def sent(ollama):
    return ollama.chats[-1].get("options", {})


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
    chunks = await events_of(await api.post("/chat/stream", body))
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


SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "people": {"type": "integer"}},
    "required": ["city", "people"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "town", "schema": SCHEMA}}
GOOD = '{"city": "Rome", "people": 2750000}'
BAD = '{"city": "Rome", "people": "many"}'
PROBLEM = "$.people: 'many' is not of type 'integer'"
ASK = {"message": "The largest town?", "response_format": FORMAT}


async def told(response):
    with anyio.fail_after(30):
        return [(event.event, event.data) async for event in events(response.streaming_content)]


def names(found):
    return list(dict.fromkeys(name for name, _ in found))


def text_after(found, name):
    begin = [kind for kind, _ in found].index(name)
    return "".join(data["content"] for kind, data in found[begin:] if kind == "content_delta")


async def stored(api, session_id):
    answer = (await api.get(f"/sessions/{session_id}/messages")).json()
    return [(message["role"], message["content"]) for message in answer["messages"]]


async def test_a_reply_of_the_right_form_is_left_as_it_is(api, ollama):
    ollama.reply([GOOD[:9], GOOD[9:]])
    session_id = await api.new_session()
    found = await told(await api.post(f"/chat/{session_id}/stream", ASK))
    assert names(found) == ["run_start", "content_delta", "message_complete", "done"]
    assert "ignored_options" not in dict(found)["message_complete"]
    assert ollama.chats[-1]["format"] == SCHEMA
    ollama.reply(["{}"])
    body = {"response_format": {"type": "json_object"}}
    assert (await api.post(f"/chat/{session_id}", body)).json()["message"]["content"] == "{}"
    assert ollama.chats[-1]["format"] == "json"
    assert len(ollama.chats) == 2


async def test_a_reply_of_another_form_is_repaired_once(api, ollama):
    """Readers are told, the model too, and only the last reply is kept."""
    for text in (BAD, GOOD):
        ollama.reply([text], thinking=["Hm."])
    session_id = await api.new_session()
    found = await told(await api.post(f"/chat/{session_id}/stream", {**ASK, "think": True}))
    assert [name for name, _ in found] == [
        "run_start",
        *("thinking_delta", "content_delta", "reply_retry", "thinking_delta", "content_delta"),
        *("message_complete", "done"),
    ]
    assert dict(found)["reply_retry"] == {"problem": PROBLEM}
    assert text_after(found, "reply_retry") == GOOD
    reply, notice = ollama.chats[-1]["messages"][-2:]
    assert (reply["role"], reply["content"]) == ("assistant", BAD)
    assert (notice["role"], PROBLEM in notice["content"]) == ("user", True)
    assert await stored(api, session_id) == [("user", ASK["message"]), ("assistant", GOOD)]
    replay = await told(await api.get(f"/chat/{session_id}/stream?after=0"))
    assert text_after(replay, "reply_retry") == GOOD


async def test_a_reply_that_is_not_repaired_is_an_error(api, ollama):
    """It says what is wrong; what the model has said last is kept."""
    ollama.reply(["Rome."])
    ollama.reply([BAD])
    session_id = await api.new_session()
    answer = await api.post(f"/chat/{session_id}", ASK)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (502, "RESPONSE_FORMAT_NOT_MET")
    assert error["details"]["reason"] == PROBLEM
    assert error["details"]["finish_reason"] == "stop"
    messages = (await api.get(f"/sessions/{session_id}/messages")).json()["messages"]
    assert messages[-1]["content"] == BAD
    assert messages[-1]["message_id"] == error["details"]["message_id"]
    assert len(ollama.chats) == 2


async def test_beside_tools_the_model_is_told_the_form(api, ollama):
    """Ollama holds a model to a form that then calls no tools: only the repair carries it."""
    session_id = await api.new_session(
        tool_settings={"tools": ["look"], "execution_policy": "never_confirm"},
        system_prompt="Be brief.",
    )
    get_runtime().tools.sources.append(PlainSource("mcp:towns", ["look"]))
    ollama.reply(tool_calls=[{"name": "look", "arguments": {}}])
    ollama.reply(["Rome, with many people."])
    ollama.reply([GOOD])
    answer = (await api.post(f"/chat/{session_id}", ASK)).json()
    assert answer["message"]["content"] == GOOD
    assert "ignored_options" not in answer
    assert [call["tool_name"] for call in answer["tool_calls_executed"]] == ["look"]
    first, second, last = ollama.chats
    for beside_tools in (first, second):
        assert "format" not in beside_tools
        assert beside_tools["messages"][0]["content"].startswith("Be brief.\n\nYour final answer")
        assert "people" in beside_tools["messages"][0]["content"]
    assert last["format"] == SCHEMA
    assert "tools" not in last
    assert [role for role, _ in await stored(api, session_id)] == [
        *("system", "user", "assistant", "tool", "assistant")
    ]


async def test_the_simple_routes_take_a_format(api, ollama):
    body = {**ASK, "model": "qwen3:14b"}
    ollama.reply([GOOD])
    assert (await api.post("/chat", body)).json()["response"] == GOOD
    ollama.reply([BAD])
    ollama.reply([GOOD])
    found = await told(await api.post("/chat/stream", body))
    assert names(found) == ["chunk", "reply_retry"]
    texts = [data["content"] for name, data in found if name == "chunk"]
    assert "".join(texts) == BAD + GOOD


@pytest.mark.parametrize(
    ("response_format", "code", "field"),
    [
        ("json", "VALIDATION_ERROR", "response_format"),
        ({"type": "text"}, "VALIDATION_ERROR", "response_format"),
        ({"type": "json_schema"}, "VALIDATION_ERROR", "json_schema"),
        (
            {"type": "json_schema", "json_schema": {"schema": {"properties": {"a": 5}}}},
            *("RESPONSE_FORMAT_INVALID", "response_format.json_schema.schema.properties.a"),
        ),
    ],
)
async def test_a_format_of_no_use_is_refused_before_anything_is_stored(
    api, ollama, response_format, code, field
):
    session_id = await api.new_session()
    for route in ("", "/stream", "/runs"):
        body = {"message": "Hello", "response_format": response_format}
        answer = await api.post(f"/chat/{session_id}{route}", body)
        assert answer.status_code == (422 if code == "VALIDATION_ERROR" else 400)
        assert answer.json()["error"]["code"] == code
        assert field in answer.content.decode()
    assert await stored(api, session_id) == []
    assert ollama.chats == []
