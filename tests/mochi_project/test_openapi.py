from __future__ import annotations

import json
import re
from urllib.parse import urljoin

import pytest

METHODS = {"get", "post", "put", "patch", "delete"}

ROUTES = {
    "GET /api/v1/health",
    "GET /api/v1/models",
    "GET /api/v1/models/available",
    "GET /api/v1/models/check",
    "GET /api/v1/models/{model_name}",
    "GET /api/v1/sessions",
    "POST /api/v1/sessions",
    "GET /api/v1/sessions/{session_id}",
    "DELETE /api/v1/sessions/{session_id}",
    "PATCH /api/v1/sessions/{session_id}",
    "GET /api/v1/sessions/{session_id}/messages",
    "PUT /api/v1/sessions/{session_id}/messages/{message_index}",
    "PUT /api/v1/sessions/{session_id}/system-prompt",
    "DELETE /api/v1/sessions/{session_id}/system-prompt",
    "GET /api/v1/sessions/{session_id}/status",
    "POST /api/v1/sessions/{session_id}/summarize",
    "GET /api/v1/sessions/{session_id}/summary",
    "POST /api/v1/chat",
    "POST /api/v1/chat/stream",
    "POST /api/v1/chat/{session_id}",
    "POST /api/v1/chat/{session_id}/stream",
    "POST /api/v1/chat/{session_id}/confirm-tool",
    "GET /api/v1/chat/{session_id}/confirmations",
    "GET /api/v1/tools",
    "GET /api/v1/tools/stats",
    "POST /api/v1/tools/reload",
    "GET /api/v1/tools/{tool_name}",
    "GET /api/v1/agents",
    "POST /api/v1/agents/reload",
    "GET /api/v1/agents/chats",
    "GET /api/v1/agents/chats/{session_id}",
    "GET /api/v1/agents/{agent_name}",
    "GET /api/v1/system-prompts",
    "POST /api/v1/system-prompts",
    "GET /api/v1/system-prompts/{filename}",
    "PUT /api/v1/system-prompts/{filename}",
    "DELETE /api/v1/system-prompts/{filename}",
}


@pytest.fixture
async def document(api):
    response = await api.get("/openapi.json")
    assert response.status_code == 200
    return response.json()


def operations(document):
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert method in METHODS
            yield f"{method.upper()} {path}", operation


async def test_every_route_is_documented_and_no_other(document):
    assert {name for name, _ in operations(document)} == ROUTES


async def test_every_answer_has_an_example_and_every_error_its_body(document):
    for name, operation in operations(document):
        for status, response in operation["responses"].items():
            if status == "204":
                assert "content" not in response, name
                continue
            for media, content in response["content"].items():
                found = content.get("examples") or content.get("example")
                assert found, f"{name} {status} {media} has no example"
            if int(status) >= 400:
                for code, example in response["content"]["application/json"]["examples"].items():
                    assert example["value"]["error"]["code"] == code
                    assert example["value"]["error"]["message"]
                    assert example["summary"]


async def test_every_route_names_its_errors(document):
    for name, operation in operations(document):
        assert {"401", "403", "500"} <= set(operation["responses"]), name
        assert operation["summary"], name
        if "requestBody" in operation:
            assert operation["requestBody"]["content"]["application/json"]["example"], name
            assert {"400", "413", "422"} <= set(operation["responses"]), name
        for parameter in operation["parameters"]:
            assert "example" in parameter, f"{name} {parameter['name']}"


async def test_every_schema_of_a_body_has_an_example(document):
    for name, schema in document["components"]["schemas"].items():
        if re.search("(Create|Patch|Set|Edit|Update|Request)$", name):
            assert "example" in schema, name


async def test_the_events_of_a_stream_are_described(document):
    stream = document["paths"]["/api/v1/chat/{session_id}/stream"]["post"]["responses"]["200"]
    assert list(stream["content"]) == ["text/event-stream"]
    examples = stream["content"]["text/event-stream"]["examples"]
    assert "event: content_delta\ndata: {" in examples["reply"]["value"]
    assert "event: done" in examples["failure"]["value"]


async def test_every_reference_leads_somewhere(document):
    for name in re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(document)):
        assert name in document["components"]["schemas"], name


@pytest.mark.parametrize("place", ["/docs", "/docs/"])
async def test_the_page_needs_nothing_from_elsewhere(api, place):
    page = await api.get(place)
    text = page.content.decode()
    assert page.status_code == 200
    assert "//" not in re.sub(r"<!--.*?-->", "", text)
    links = re.findall(r'(?:src|href)="([^"]+)"', text)
    assert len(links) == 4
    for link in links:
        asset = await api.client.get(urljoin(f"/api/v1{place}", link))
        assert asset.status_code == 200, link
        assert len(asset.content) > 100
    (settings,) = re.findall(r'id="swagger-settings">(.*?)</script>', text)
    document = urljoin(f"/api/v1{place}", json.loads(settings)["url"])
    assert document == "/api/v1/openapi.json"
    assert (await api.get("/docs/settings.py")).status_code == 404
