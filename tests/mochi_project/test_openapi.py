from __future__ import annotations

import json
import re
from typing import Annotated
from urllib.parse import urlencode, urljoin

import jsonschema_rs
import orjson
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator
from pydantic import BaseModel, TypeAdapter, ValidationError

from mochi_project.api import api as ours
from mochi_project.openapi import example_of
from mochi_project.schemas import EncodedAs

METHODS = {"get", "post", "put", "patch", "delete"}

ROUTES = {
    "GET /api/v1/health": "readHealth",
    "GET /api/v1/health/live": "checkLive",
    "GET /api/v1/health/ready": "checkReady",
    "GET /api/v1/audit": "readAuditLog",
    "GET /api/v1/models": "listModels",
    "GET /api/v1/models/available": "listAvailableModels",
    "GET /api/v1/models/check": "checkModels",
    "GET /api/v1/doctor": "examineServer",
    "GET /api/v1/models/pull": "listPullableModels",
    "POST /api/v1/models/pull": "pullModel",
    "GET /api/v1/models/{model_name}": "readModel",
    "GET /api/v1/sessions": "listSessions",
    "POST /api/v1/sessions": "createSession",
    "GET /api/v1/sessions/{session_id}": "readSession",
    "DELETE /api/v1/sessions/{session_id}": "deleteSession",
    "PATCH /api/v1/sessions/{session_id}": "patchSession",
    "POST /api/v1/sessions/import": "importSessions",
    "POST /api/v1/sessions/export": "exportSessions",
    "GET /api/v1/sessions/{session_id}/export": "readExport",
    "POST /api/v1/sessions/{session_id}/fork": "forkSession",
    "GET /api/v1/sessions/{session_id}/variants": "listVariants",
    "POST /api/v1/sessions/{session_id}/variants/{message_id}/select": "selectVariant",
    "GET /api/v1/sessions/{session_id}/messages": "listMessages",
    "PUT /api/v1/sessions/{session_id}/messages/{message_index}": "editMessage",
    "PUT /api/v1/sessions/{session_id}/system-prompt": "setSystemPrompt",
    "DELETE /api/v1/sessions/{session_id}/system-prompt": "removeSystemPrompt",
    "GET /api/v1/sessions/{session_id}/status": "readSessionStatus",
    "POST /api/v1/sessions/{session_id}/summarize": "summarizeSession",
    "POST /api/v1/sessions/{session_id}/compact": "compactSession",
    "GET /api/v1/sessions/{session_id}/summary": "readSessionSummary",
    "GET /api/v1/sessions/{session_id}/files": "listFiles",
    "GET /api/v1/sessions/{session_id}/files/{file}": "readFile",
    "PUT /api/v1/sessions/{session_id}/files/{file}": "writeFile",
    "DELETE /api/v1/sessions/{session_id}/files/{file}": "deleteFile",
    "POST /api/v1/sessions/{session_id}/attachments": "uploadAttachment",
    "GET /api/v1/sessions/{session_id}/attachments": "listSessionAttachments",
    "GET /api/v1/sessions/{session_id}/attachments/{attachment_id}": "readAttachment",
    "GET /api/v1/tags": "listTags",
    "POST /api/v1/chat": "simpleChat",
    "POST /api/v1/chat/stream": "streamSimpleChat",
    "POST /api/v1/chat/{session_id}": "chat",
    "POST /api/v1/chat/{session_id}/stream": "streamChat",
    "POST /api/v1/chat/{session_id}/confirm-tool": "confirmTool",
    "GET /api/v1/chat/{session_id}/confirmations": "listConfirmations",
    "GET /api/v1/chat/{session_id}/stream": "streamSession",
    "POST /api/v1/chat/{session_id}/stop": "stopSession",
    "POST /api/v1/chat/{session_id}/runs": "startRun",
    "GET /api/v1/runs": "listRuns",
    "GET /api/v1/runs/{run_id}": "readRun",
    "GET /api/v1/runs/{run_id}/events": "readEvents",
    "POST /api/v1/runs/{run_id}/stop": "stopRun",
    "GET /api/v1/confirmations": "listAllConfirmations",
    "GET /api/v1/confirmations/events": "followConfirmations",
    "GET /api/v1/confirmations/history": "readConfirmationHistory",
    "POST /api/v1/confirmations/{confirmation_id}": "decideConfirmation",
    "GET /api/v1/policies": "listPolicies",
    "DELETE /api/v1/policies/{rule_id}": "deletePolicy",
    "GET /api/v1/tools": "listTools",
    "GET /api/v1/tools/stats": "readToolStats",
    "POST /api/v1/tools/reload": "reloadTools",
    "GET /api/v1/mcp/servers": "listMcpServers",
    "GET /api/v1/mcp/health": "readMcpHealth",
    "POST /api/v1/mcp/add": "addMcpServer",
    "PATCH /api/v1/mcp/{name}": "updateMcpServer",
    "DELETE /api/v1/mcp/{name}": "deleteMcpServer",
    "POST /api/v1/mcp/{name}/restart": "restartMcpServer",
    "GET /api/v1/mcp/{name}/log": "readMcpLog",
    "GET /api/v1/mcp/{name}/resources": "listMcpResources",
    "GET /api/v1/mcp/events": "followMcpServers",
    "GET /api/v1/tools/{tool_name}": "readTool",
    "GET /api/v1/agents": "listAgents",
    "POST /api/v1/agents/reload": "reloadAgents",
    "GET /api/v1/agents/chats": "listAgentChats",
    "GET /api/v1/agents/chats/{session_id}": "readAgentChat",
    "GET /api/v1/agents/{agent_name}": "readAgent",
    "GET /api/v1/system-prompts": "listPrompts",
    "POST /api/v1/system-prompts": "createPrompt",
    "GET /api/v1/system-prompts/{filename}": "readPrompt",
    "PUT /api/v1/system-prompts/{filename}": "updatePrompt",
    "DELETE /api/v1/system-prompts/{filename}": "deletePrompt",
    "GET /api/v1/presets": "listPresets",
    "GET /api/v1/presets/{name}": "readPreset",
    "PUT /api/v1/presets/{name}": "writePreset",
    "DELETE /api/v1/presets/{name}": "deletePreset",
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


async def test_the_document_is_valid(document):
    OpenAPIV31SpecValidator(document).validate()


async def test_operations_have_names_that_a_client_would_give_them(document):
    found = {name: operation["operationId"] for name, operation in operations(document)}
    assert found == ROUTES


async def test_the_document_says_how_to_authorize(document):
    assert document["components"]["securitySchemes"] == {
        "token": {"type": "http", "scheme": "bearer"}
    }
    assert document["security"] == [{}, {"token": []}]
    assert document["paths"]["/api/v1/health"]["get"]["security"] == []


async def test_no_key_has_a_default_that_a_generated_client_would_send_or_require(document):
    for name, schema in document["components"]["schemas"].items():
        for key, field in schema.get("properties", {}).items():
            assert "default" not in field, f"{name}.{key}"


async def test_a_body_has_one_content_type_and_its_object_a_name(document):
    for name, operation in operations(document):
        content = operation.get("requestBody", {}).get("content", {})
        assert len(content) <= 1, name
        for media in content.values():
            assert "properties" not in media["schema"], name


async def test_messages_and_events_have_names(document):
    schemas = document["components"]["schemas"]
    assert {each["$ref"].rpartition("/")[2] for each in schemas["Message"]["oneOf"]} == {
        "UserMessage",
        "SystemMessage",
        "AssistantMessage",
        "ToolMessage",
    }
    events = {
        each["properties"]["event"]["const"]: each["properties"]["data"]["$ref"]
        for each in schemas["ChatEvent"]["oneOf"]
    }
    assert len(events) == 25
    assert events["content_delta"] == "#/components/schemas/ContentDeltaEvent"
    assert {"ChunkEvent", "MessageEvent"} <= set(schemas)
    for holder in ("SessionDetail", "MessageList", "AgentChat"):
        items = schemas[holder]["properties"]["messages"]["items"]["anyOf"]
        assert items[0] == {"$ref": "#/components/schemas/Message"}, holder
    assert schemas["ChatReply"]["properties"]["message"] == {
        "$ref": "#/components/schemas/AssistantMessage"
    }


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": None, "tool_calls": [
            {"function": {"name": "add", "arguments": {}}}]},
        {"role": "developer", "content": "Be brief."},
        {"role": "tool", "content": "5", "tool_name": "add", "somebody": "else's"},
    ],
)  # fmt: skip
async def test_a_stored_message_fits_one_kind_of_the_document(document, message):
    messages = document["components"]["schemas"]["MessageList"]["properties"]["messages"]
    kinds = [*document["components"]["schemas"]["Message"]["oneOf"], messages["items"]["anyOf"][1]]
    parts = {"components": document["components"]}
    fits = [jsonschema_rs.validator_for(kind | parts).is_valid(message) for kind in kinds]
    assert fits.count(True) == 1


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


async def test_every_example_fits_its_schema(document):
    schemas, examples = {}, {}
    for name, operation in operations(document):
        answers = operation["responses"] | {"request": operation.get("requestBody", {})}
        for status, answer in answers.items():
            media = answer.get("content", {}).get("application/json", {})
            values = [example["value"] for example in media.get("examples", {}).values()]
            values += [media["example"]] if "example" in media else []
            for number, value in enumerate(values):
                key = f"{name} {status} {number}"
                schemas[key], examples[key] = media["schema"], value
    together = {"properties": schemas, "components": document["components"]}
    jsonschema_rs.validator_for(together).validate(examples)


async def test_every_route_names_its_errors(document):
    for name, operation in operations(document):
        assert {"401", "403", "500"} <= set(operation["responses"]), name
        assert operation["summary"], name
        if "requestBody" in operation:
            (kind, content), *_ = operation["requestBody"]["content"].items()
            assert content["example"], name
            of_json = {"400", "422"} if kind == "application/json" else set()
            assert {"413", *of_json} <= set(operation["responses"]), name
        for parameter in operation["parameters"]:
            given = {"example"} if parameter["required"] else {"example", "description"}
            assert given & set(parameter), f"{name} {parameter['name']}"


@pytest.mark.parametrize("path", ["/sessions", "/agents/chats"])
async def test_the_values_that_the_page_fills_in_leave_nothing_out_of_a_list(api, document, path):
    await api.new_session()
    parameters = document["paths"][f"/api/v1{path}"]["get"]["parameters"]
    filled_in = {one["name"]: one["example"] for one in parameters if "example" in one}
    response = await api.get(f"{path}?{urlencode(filled_in, doseq=True)}")
    assert response.status_code == 200
    assert response.json()["sessions"] == (await api.get(path)).json()["sessions"]


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


def test_the_document_is_made_once_for_each_place_where_the_application_is_mounted():
    document = ours.get_openapi_schema(path_prefix="/api/v1/")
    elsewhere = ours.get_openapi_schema(path_prefix="/mochi/api/v1/")
    assert ours.get_openapi_schema(path_prefix="/api/v1/") is document
    assert "/api/v1/health" in document["paths"]
    assert "/mochi/api/v1/health" in elsewhere["paths"]


@pytest.mark.parametrize(
    ("schema", "example"),
    [
        ({"type": "string", "examples": ["a", "b"]}, "a"),
        ({"anyOf": [{"$ref": "#/components/schemas/Named"}, {"type": "null"}]}, {"name": "a"}),
        ({"type": "array", "items": {"type": "boolean"}}, [False]),
        ({"additionalProperties": {"$ref": "#/components/schemas/Named"}}, {"a": {"name": "a"}}),
    ],
)
def test_an_example_is_put_together_from_those_of_the_parts(schema, example):
    text = {"type": "string", "examples": ["a"]}
    named = {"properties": {"name": text, "left_out": {"type": "string"}}, "required": ["name"]}
    assert example_of(schema, {"Named": named}) == example


def test_a_text_without_an_example_is_named():
    with pytest.raises(LookupError, match="no example of"):
        example_of({"type": "string"}, {})


@pytest.mark.parametrize("place", ["/docs", "/docs/"])
async def test_the_page_needs_nothing_from_elsewhere(api, place):
    page = await api.get(place)
    text = page.content.decode()
    assert page.status_code == 200
    assert page["Content-Security-Policy"] == "frame-ancestors 'none'"
    assert page["X-Frame-Options"] == "DENY"
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


# Parts of answers that are encoded already


class Inner(BaseModel):
    """A described type."""

    name: str


class Outer(BaseModel):
    """An answer with a part that is encoded already."""

    inner: Annotated[orjson.Fragment, EncodedAs(list[Inner])]


def test_encoded_json_is_sent_as_it_is():
    answer = Outer(inner=orjson.Fragment(b'[{"name" : "a", "other": 1}]'))
    assert orjson.dumps(answer.model_dump()) == b'{"inner":[{"name" : "a", "other": 1}]}'


@pytest.mark.parametrize("mode", ["validation", "serialization"])
def test_encoded_json_is_described_by_its_type(mode):
    schema = Outer.model_json_schema(mode=mode)
    assert schema["properties"]["inner"]["items"] == {"$ref": "#/$defs/Inner"}
    assert schema["$defs"]["Inner"]["required"] == ["name"]


@pytest.mark.parametrize("value", [[{"name": "a"}], "[]", None])
def test_what_is_not_encoded_is_refused(value):
    with pytest.raises(ValidationError):
        Outer(inner=value)


def test_a_whole_answer_is_bytes():
    answers = TypeAdapter(Annotated[bytes, EncodedAs(Inner)])
    assert answers.dump_python(answers.validate_python(b'{"name":"a"}')) == b'{"name":"a"}'
    with pytest.raises(ValidationError):
        answers.validate_python("{}")
