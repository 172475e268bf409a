from __future__ import annotations

import asyncio
import json
import logging

import pytest
from django.test import AsyncClient
from django.utils.decorators import async_only_middleware

from mochi_project.http.handler import MochiASGIHandler
from mochi_project.runtime import get_runtime

NAMES = [f"name-{number}" for number in range(1001)]


def is_error(response, status, code):
    body = response.json()
    assert response.status_code == status
    assert set(body) == {"error"}
    assert set(body["error"]) == {"code", "message", "details"}
    assert body["error"]["code"] == code
    assert response["Content-Type"] == "application/json"
    return body["error"]


@pytest.mark.parametrize(
    "path", ["/", "/nowhere", "/sessions/a/b/c", "/chats", "/models//x/../..%00", "//", "/docs/x/y"]
)
async def test_an_unknown_path_is_a_named_error(api, path):
    response = await api.get(path)
    if path.startswith("/models"):
        is_error(response, 404, "MODEL_NOT_FOUND")
    else:
        error = is_error(response, 404, "NOT_FOUND")
        assert error["details"]["path"].startswith("/api/v1")


async def test_outside_of_the_api_is_a_named_error_too(api):
    is_error(await AsyncClient().get("/admin"), 404, "NOT_FOUND")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/health", "GET, HEAD, OPTIONS"),
        ("PUT", "/sessions", "GET, HEAD, OPTIONS, POST"),
        ("GET", "/chat/0123456789", "OPTIONS, POST"),
        ("HEAD", "/chat/0123456789", "OPTIONS, POST"),
        ("TRACE", "/models", "GET, HEAD, OPTIONS"),
        ("BREW", "/models", "GET, HEAD, OPTIONS"),
    ],
)
async def test_a_wrong_method_is_told_the_right_ones(api, method, path, allowed):
    response = await api(method, path)
    assert response.status_code == 405
    assert response["Allow"] == allowed
    if method != "HEAD":
        error = is_error(response, 405, "METHOD_NOT_ALLOWED")
        assert error["details"] == {"method": method, "allowed": allowed.split(", ")}


async def test_options_tells_the_methods(api):
    response = await api("OPTIONS", "/sessions")
    assert (response.status_code, response.content) == (204, b"")
    assert response["Allow"] == "GET, HEAD, OPTIONS, POST"
    is_error(await api("OPTIONS", "/nowhere"), 404, "NOT_FOUND")


async def test_head_is_get_without_the_body(api):
    response = await api("HEAD", "/models")
    assert response.status_code == 200
    assert int(response["Content-Length"]) > 100


@pytest.mark.parametrize("path", ["/health/", "/models/", "/sessions//"])
async def test_a_slash_at_the_end_does_no_harm(api, path):
    assert (await api.get(path)).status_code == 200


async def test_a_post_with_a_slash_at_the_end_keeps_its_body(api):
    response = await api.post("/sessions/", {"model": "qwen3:14b"})
    assert response.status_code == 201


async def test_what_nobody_foresaw_is_logged_and_not_shown(api, caplog):
    get_runtime().sessions = None
    with caplog.at_level(logging.ERROR):
        response = await api.get("/sessions")
    error = is_error(response, 500, "INTERNAL_ERROR")
    assert error["details"] == {}
    assert "Traceback" not in response.content.decode()
    records = [record for record in caplog.records if record.exc_info]
    assert len(records) == 1
    get_runtime().sessions = get_runtime().agent_sessions


@async_only_middleware
def failing(get_response):
    async def middleware(request):
        raise ZeroDivisionError

    return middleware


async def test_a_failure_outside_the_routes_is_logged_once_with_its_trace(mochi, settings, caplog):
    settings.MIDDLEWARE = [f"{__name__}.failing"]
    handler, sent = MochiASGIHandler(), []
    parts = [b""]

    async def receive():
        if not parts:  # it stays until it is answered
            await asyncio.get_running_loop().create_future()
        return {"type": "http.request", "body": parts.pop(), "more_body": False}

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/api/v1/health", "headers": []}
    await handler(scope | {"query_string": b"", "root_path": ""}, receive, send)
    assert sent[0]["status"] == 500
    assert json.loads(sent[1]["body"])["error"]["code"] == "INTERNAL_ERROR"
    traces = [record for record in caplog.records if record.exc_info]
    assert [record.exc_info[0] for record in traces] == [ZeroDivisionError]


async def test_a_huge_body_is_refused(api, settings):
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 100
    response = await api.post("/sessions", {"model": "x" * 200})
    is_error(response, 413, "PAYLOAD_TOO_LARGE")


async def test_several_wrong_fields_are_all_named(api):
    response = await api.post("/sessions", {"model": "", "x": 1, "tool_settings": 7})
    error = is_error(response, 422, "VALIDATION_ERROR")
    assert {entry["field"] for entry in error["details"]["errors"]} == {
        "model",
        "x",
        "tool_settings",
    }
    assert "(and 2 more)" in error["message"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"message": " \n"}, "message: Empty, or only white space."),
        ([], "The request is not valid. Must be a JSON object."),
        ({"message": "Hi", "model": []}, "model: Input should be a valid string"),
    ],
)
async def test_what_is_wrong_is_told_in_the_words_of_a_client(api, body, words):
    error = is_error(await api.post("/chat", body), 422, "VALIDATION_ERROR")
    assert words in error["message"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/sessions", {"model": "m", "tool_settings": {"tools": ["a"] * 10_001}}),
        ("/chat", {"message": "Hi", **{f"k{number}": 1 for number in range(10_001)}}),
        ("/chat", {"message": [[] for _ in range(10_001)]}),
    ],
)
async def test_a_body_of_too_many_values_is_refused_unread(api, path, body):
    error = is_error(await api.post(path, body), 422, "VALIDATION_ERROR")
    assert error["details"] == {"values": 10_000}


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/sessions", {"model": "m", "tool_settings": {"tools": NAMES}}, "tool_settings.tools"),
        (
            "/sessions",
            {"model": "m", "agent_settings": {"enabled_agents": NAMES}},
            "agent_settings.enabled_agents",
        ),
        ("/chat/stream", {"message": "Hi", "selected_tools": NAMES}, "selected_tools"),
        ("/sessions", {"model": "m", "tags": NAMES}, "tags"),
    ],
)
async def test_every_list_of_names_has_an_end(api, path, body, field):
    error = is_error(await api.post(path, body), 422, "VALIDATION_ERROR")
    assert [entry["field"] for entry in error["details"]["errors"]] == [field]


async def test_a_long_name_of_a_field_is_repeated_in_part(api):
    response = await api.post("/chat", {"message": "Hi", "k" * 100_000: 1})
    error = is_error(response, 422, "VALIDATION_ERROR")
    assert error["details"]["errors"][0]["field"] == "k" * 200 + "…"
    assert len(response.content) < 2_000


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("/chat", {"message": "x", "session_id": "!" * 100_000}, "SESSION_NOT_FOUND"),
        ("/system-prompts", {"filename": "a" * 100_000, "content": "x"}, "VALIDATION_ERROR"),
    ],
)
async def test_an_error_repeats_little_of_a_long_text(api, path, body, code):
    response = await api.post(path, body)
    assert response.json()["error"]["code"] == code
    assert len(response.content) < 5_000
