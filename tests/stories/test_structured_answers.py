"""Answers of a form that the request names: sent to the model, checked, repaired once."""

from __future__ import annotations

import anyio
import pytest

from mochi_project.runtime import get_runtime
from tests.support.sse import events
from tests.support.tools import PlainSource

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


async def read(response):
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
    found = await read(await api.post(f"/chat/{session_id}/stream", ASK))
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
    found = await read(await api.post(f"/chat/{session_id}/stream", {**ASK, "think": True}))
    assert [name for name, _ in found] == [
        "run_start",
        *("thinking_delta", "content_delta", "reply_retry", "thinking_delta", "content_delta"),
        *("message_complete", "done"),
    ]
    assert dict(found)["reply_retry"] == {"problem": PROBLEM}
    assert text_after(found, "reply_retry") == GOOD
    reply, told = ollama.chats[-1]["messages"][-2:]
    assert (reply["role"], reply["content"]) == ("assistant", BAD)
    assert (told["role"], PROBLEM in told["content"]) == ("user", True)
    assert await stored(api, session_id) == [("user", ASK["message"]), ("assistant", GOOD)]
    replay = await read(await api.get(f"/chat/{session_id}/stream?after=0"))
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
    found = await read(await api.post("/chat/stream", body))
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
