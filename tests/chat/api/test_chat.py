from __future__ import annotations

import asyncio

import pytest

from tests.support.api import error_of, events_of


async def test_a_reply_comes_in_one_piece(api, ollama):
    ollama.reply(["Pa", "ris."])
    session_id = await api.new_session()
    response = await api.post(f"/chat/{session_id}", {"message": "Capital of France?"})
    body = response.json()
    assert response.status_code == 200
    assert body["session_id"] == session_id
    assert body["message"]["content"] == "Paris."
    assert body["tool_calls_executed"] == []
    assert body["context_window"]["current_window"]
    stored = (await api.get(f"/sessions/{session_id}/messages")).json()["messages"]
    assert [message["role"] for message in stored] == ["user", "assistant"]
    assert stored[1]["message_id"] == body["message"]["message_id"]


@pytest.mark.parametrize("body", [None, {}, {"message": None}])
@pytest.mark.parametrize("route", ["", "/stream"])
async def test_without_a_message_the_last_one_is_answered_again(api, ollama, route, body):
    ollama.reply(["first"])
    ollama.reply(["second"])
    session_id = await api.new_session()
    await api.post(f"/chat/{session_id}", {"message": "Hello"})
    response = await api.post(f"/chat/{session_id}{route}", body)
    assert response.status_code == 200
    if route:
        await events_of(response)
    stored = (await api.get(f"/sessions/{session_id}/messages")).json()["messages"]
    assert [message["content"] for message in stored] == ["Hello", "second"]


@pytest.mark.parametrize("route", ["", "/stream"])
@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"message": " \n\t"}, 422, "VALIDATION_ERROR"),
        ({"message": ""}, 422, "VALIDATION_ERROR"),
        ({"message": ["x"]}, 422, "VALIDATION_ERROR"),
        ({"message": "x", "think": "deeply"}, 422, "VALIDATION_ERROR"),
        ({"massage": "x"}, 422, "VALIDATION_ERROR"),
        ([], 422, "VALIDATION_ERROR"),
        (b"{", 400, "INVALID_JSON"),
        ({}, 400, "EMPTY_HISTORY"),
        ({"message": "x", "think": True}, 400, "THINKING_NOT_SUPPORTED"),
    ],
)
async def test_what_can_fail_before_the_first_byte_fails_as_json(api, route, body, status, code):
    session_id = await api.new_session(model="gemma3:4b")
    response = await api.post(f"/chat/{session_id}{route}", body)
    assert error_of(response) == (status, code)
    assert set(response.json()["error"]) == {"code", "message", "details"}
    stored = (await api.get(f"/sessions/{session_id}/messages")).json()["messages"]
    assert stored == []


@pytest.mark.parametrize("level", [True, False, "low", "medium", "high", "max"])
async def test_each_level_of_thinking_is_passed_on(api, ollama, level):
    session_id = await api.new_session()
    response = await api.post(f"/chat/{session_id}", {"message": "Hello", "think": level})
    assert response.status_code == 200, response.content
    assert ollama.chats[-1]["think"] == level


@pytest.mark.parametrize("route", ["", "/stream"])
async def test_an_unknown_session_is_not_found(api, route):
    response = await api.post(f"/chat/0123456789{route}", {"message": "x"})
    assert error_of(response) == (404, "SESSION_NOT_FOUND")


@pytest.mark.parametrize("route", ["", "/stream"])
async def test_an_ollama_that_went_away_is_a_bad_gateway(api, ollama, route):
    session_id = await api.new_session()
    await ollama.__aexit__(None, None, None)
    response = await api.post(f"/chat/{session_id}{route}", {"message": "x"})
    if response.status_code == 200:  # known to the cache: the stream tells
        received = await events_of(response)
        assert [event.event for event in received] == ["run_start", "error", "done"]
        assert received[1].data["code"] == "OLLAMA_UNREACHABLE"
    else:
        assert error_of(response) == (502, "OLLAMA_UNREACHABLE")


async def test_a_second_turn_is_refused_while_the_first_one_runs(api, ollama):
    gate = asyncio.Event()
    ollama.reply(["slow"], gate=gate)
    session_id = await api.new_session()
    first = await api.post(f"/chat/{session_id}/stream", {"message": "one"})
    for route in ("", "/stream"):
        response = await api.post(f"/chat/{session_id}{route}", {"message": "two"})
        assert error_of(response) == (409, "SESSION_BUSY")
    gate.set()
    assert (await events_of(first))[-1].event == "done"
    stored = (await api.get(f"/sessions/{session_id}/messages")).json()["messages"]
    assert [message["content"] for message in stored] == ["one", "slow"]


@pytest.mark.parametrize("route", ["/chat", "/chat/{id}"])
async def test_a_body_that_asks_for_a_stream_is_told_where_there_is_one(api, route):
    session_id = await api.new_session()
    body = {"message": "Hi", "stream": True}
    response = await api.post(route.format(id=session_id), body)
    assert response.status_code == 422
    [problem] = response.json()["error"]["details"]["errors"]
    assert (problem["field"], problem["type"]) == ("stream", "extra_forbidden")
    hint = "unknown field; for a stream, send this to /chat/stream or /chat/{session_id}/stream"
    assert problem["message"] == hint
