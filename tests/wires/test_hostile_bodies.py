"""Rubbish in any field of a request is refused in the vendor's shape, or answered."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import reduce
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from chat.wires.agui.schemas import RunAgentInput
from chat.wires.anthropic.schemas import MessagesRequest
from chat.wires.ollama.schemas import EmbedRequest, OllamaChatRequest
from chat.wires.openai.schemas import (
    ChatCompletionRequest,
    CreateEmbeddingsRequest,
    TextCompletionRequest,
)
from chat.wires.responses.schemas import ResponseRequest
from chat.wires.vercel.schemas import UIChatRequest
from tests.support.scripts import says, scripted
from tests.support.server import Server
from tests.support.wires import WITHOUT_MODEL, wires_without

pytestmark = pytest.mark.asyncio(loop_scope="module")

QUESTION = scripted([says("Hi.")])
CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}

CHAT: dict[str, Any] = {
    "model": "lorem",
    "messages": [
        {"role": "system", "content": "Hi"},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": "22"},
        {"role": "user", "content": QUESTION},
    ],
    "tools": [
        {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}},
        {"type": "mochi", "names": []},
    ],
    "tool_choice": "auto",
    "temperature": 0.5,
    "stop": ["x"],
    "seed": 1,
    "max_completion_tokens": 100,
    "reasoning_effort": "low",
    "stream": False,
    "stream_options": {"include_usage": True},
    "response_format": {"type": "text"},
    "metadata": {},
}
RESPONSE: dict[str, Any] = {
    "model": "lorem",
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": []},
        {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "22"},
        {"type": "message", "role": "user", "content": QUESTION},
    ],
    "instructions": "Hi",
    "store": False,
    "tools": [{"type": "function", "name": "weather", "parameters": SCHEMA}],
    "tool_choice": "auto",
    "text": {"format": {"type": "text"}},
    "reasoning": {"effort": "low"},
    "metadata": {"a": "b"},
    "temperature": 0.5,
    "max_output_tokens": 100,
}
MESSAGES: dict[str, Any] = {
    "model": "lorem",
    "max_tokens": 100,
    "system": [{"type": "text", "text": "Hi"}],
    "messages": [
        {"role": "user", "content": "Hi"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "x"},
                {"type": "redacted_thinking", "data": "x"},
                {"type": "tool_use", "id": "call_1", "name": "weather", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "call_1", "content": "22"},
                {"type": "text", "text": QUESTION},
            ],
        },
    ],
    "tools": [{"name": "weather", "input_schema": SCHEMA}, {"type": "mochi", "names": []}],
    "tool_choice": {"type": "auto"},
    "thinking": {"type": "disabled"},
    "stop_sequences": ["x"],
    "temperature": 0.5,
    "metadata": {},
    "stream": False,
}
AGENT: dict[str, Any] = {
    "threadId": "thread",
    "runId": "run",
    "messages": [
        {"id": "1", "role": "developer", "content": "Hi"},
        {"id": "2", "role": "user", "content": [{"type": "text", "text": "Hi"}]},
        {"id": "3", "role": "reasoning", "content": "Hm."},
        {"id": "4", "role": "assistant", "content": "", "toolCalls": [CALL]},
        {"id": "5", "role": "tool", "toolCallId": "call_1", "content": "22"},
        {"id": "6", "role": "user", "content": QUESTION},
    ],
    "tools": [{"name": "weather", "description": "", "parameters": SCHEMA}],
    "context": [{"description": "Place", "value": "Rome"}],
    "forwardedProps": {"model": "lorem", "tools": [], "think": False, "options": {"seed": 1}},
    "resume": [],
}
TOOL_PART = {"toolCallId": "call_1", "state": "output-available", "input": {}, "output": "22"}
DECIDED = {"type": "dynamic-tool", "toolName": "x", "toolCallId": "2", "state": "output-denied"}
UI_CHAT: dict[str, Any] = {
    "id": "chat",
    "trigger": "submit-message",
    "messages": [
        {"id": "1", "role": "user", "parts": [{"type": "text", "text": "Hi"}]},
        {
            "id": "2",
            "role": "assistant",
            "parts": [
                {"type": "step-start"},
                {"type": "reasoning", "text": "Hm."},
                {"type": "tool-weather", **TOOL_PART},
                {**DECIDED, "input": {}, "approval": {"id": "conf_1", "approved": False}},
            ],
        },
        {"id": "3", "role": "user", "parts": [{"type": "text", "text": QUESTION}]},
    ],
    "model": "lorem",
    "tools": [{"type": "function", "name": "weather", "inputSchema": SCHEMA}],
    "think": False,
    "options": {"seed": 1},
}
OLLAMA_CHAT: dict[str, Any] = {
    "model": "lorem",
    "messages": [
        {"role": "system", "content": "Hi"},
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "weather"}}]},
        {"role": "tool", "tool_name": "weather", "content": "22"},
        {"role": "user", "content": QUESTION, "images": []},
    ],
    "tools": [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}],
    "stream": False,
    "think": False,
    "format": "",
    "options": {"seed": 1, "stop": ["x"]},
    "keep_alive": "5m",
}
RUBBISH: tuple[Any, ...] = (None, -1, 10**30, "x" * 300, [], {"type": "x"}, [None])
WIRES = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": {"model": "lorem", "prompt": QUESTION, "stop": "x", "echo": False},
    "/v1/embeddings": {
        "model": "lorem",
        "input": ["x"],
        "encoding_format": "base64",
        "dimensions": 8,
    },
    "/v1/messages": MESSAGES,
    "/v1/responses": RESPONSE,
    "/api/v1/agui": AGENT,
    "/api/v1/ui/chat": UI_CHAT,
    "/ollama/api/chat": OLLAMA_CHAT,
    "/ollama/api/embed": {"model": "lorem", "input": ["x"], "dimensions": 8, "keep_alive": "5m"},
}


SCHEMAS = (
    *(ChatCompletionRequest, TextCompletionRequest, CreateEmbeddingsRequest, MessagesRequest),
    *(ResponseRequest, RunAgentInput, UIChatRequest, OllamaChatRequest, EmbedRequest),
)


async def test_every_wire_with_a_model_is_in_the_table():
    assert wires_without(WIRES) == WITHOUT_MODEL


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of all values in a body."""
    if path:
        yield path
    inner = value.items() if isinstance(value, dict) else ()
    for key, each in enumerate(value) if isinstance(value, list) else inner:
        yield from places(each, (*path, key))


def changed(body: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    made = copy.deepcopy(body)
    inner: Any = made
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return made


def has_message(answer: dict[str, Any]) -> bool:
    """Return whether an error says something; Ollama's are texts."""
    error = answer.get("error")
    return bool(error["message"] if isinstance(error, dict) else error)


@pytest.mark.parametrize("wire", WIRES)
async def test_rubbish_in_any_place(server: Server, wire: str) -> None:
    found = []
    for path in places(WIRES[wire]):
        for value in RUBBISH:
            body = changed(WIRES[wire], path, value)
            async with server.http.post(server.url + wire, json=body) as response:
                if response.status == 200:
                    await response.read()
                    continue
                answer = await response.json()
                if response.status not in {400, 404} or not has_message(answer):
                    found.append((path, value, response.status, answer))
    assert found == []


@pytest.mark.parametrize(
    ("wire", "schema"),
    [*zip(WIRES, SCHEMAS, strict=True)],
)
async def test_of_many_invalid_parts_the_first_alone_is_looked_at(
    wire: str, schema: type[BaseModel]
) -> None:
    """To name 100,000 of them took the event loop half a second."""
    body = WIRES[wire]
    for path in places(body):
        is_list = isinstance(reduce(lambda value, key: value[key], path, body), list)
        if is_list and path != ("options", "stop"):  # Ollama's options are read later
            with pytest.raises(ValidationError) as refused:
                schema.model_validate(changed(body, path, [5.5] * 1_000))
            assert refused.value.error_count() < 10, path


@pytest.mark.parametrize("wire", WIRES)
async def test_an_endless_name_of_a_model_is_refused(server: Server, wire: str) -> None:
    """Each piece of a stream would repeat it."""
    name, body = "x" * 100_000, WIRES[wire]
    props = {"forwardedProps": {"model": name}} if wire.endswith("agui") else {}
    async with server.http.post(
        server.url + wire, json={**body, "model": name, **props}
    ) as response:
        assert response.status == 400
        assert len(await response.read()) < 5_000


@pytest.mark.parametrize("wire", WIRES)
async def test_rubbish_as_a_whole(server: Server, wire: str) -> None:
    for content in (b"", b"{", b"[]", b"null", b'"x"', b"\xff", b"[" * 100_000, b'{"a":NaN}'):
        headers = {"Content-Type": "application/json"}
        async with server.http.post(server.url + wire, data=content, headers=headers) as response:
            assert response.status == 400, content[:10]
            assert has_message(await response.json())
