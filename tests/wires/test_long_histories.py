"""Conversations of thousands of messages are answered, and refused beyond the limits."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest

from tests.support.fake_ollama import FakeOllama
from tests.support.scripts import says, scripted
from tests.support.server import Server, running_server
from tests.support.wires import HELLO

pytestmark = pytest.mark.asyncio(loop_scope="module")

QUESTION = scripted([says("Hi.")])


def turns(count: int, **fields: Any) -> list[dict[str, Any]]:
    """Questions and answers, and a question at the end."""
    said = [{"role": role, "content": "Go on."} for role in ("user", "assistant")]
    return [*said * (count // 2), {"role": "user", "content": QUESTION, **fields}]


def parts(count: int) -> list[dict[str, Any]]:
    """The same as messages of AG-UI and of Vercel's UI."""
    return [
        {"id": str(number), **each, "parts": [{"type": "text", "text": each["content"]}]}
        for number, each in enumerate(turns(count))
    ]


def post(server: Server, path: str, content: bytes) -> Any:
    """Send a long body, piece by piece."""
    headers = {"Content-Type": "application/json"}
    body = aiohttp.BytesIOPayload(BytesIO(content))
    return server.http.post(server.url + path, data=body, headers=headers)


BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": turns(10_000)},
    "/v1/messages": {"messages": turns(3_500), "max_tokens": 100},
    "/v1/responses": {"input": turns(3_500), "store": False},
    "/ollama/api/chat": {"messages": turns(3_500), "stream": False},
    "/api/v1/agui": {
        "messages": parts(2_500),
        "threadId": "1",
        "runId": "1",
        "forwardedProps": {"model": "lorem"},
    },
    "/api/v1/ui/chat": {"id": "1", "trigger": "submit-message", "messages": parts(2_500)},
}


async def test_every_wire_with_a_model_is_in_the_table() -> None:
    assert BODIES.keys() == HELLO.keys()


@pytest.mark.parametrize("path", BODIES)
async def test_a_long_history_is_answered(server: Server, path: str) -> None:
    body = {"model": "lorem", **BODIES[path]}
    async with post(server, path, json.dumps(body).encode()) as response:
        answer = await response.text()
        assert response.status == 200, answer
    assert "Hi." in answer


@pytest.mark.parametrize(
    ("field", "value", "most"),
    [
        ("messages", [{"role": "user", "content": ""}] * 84_000, 250_000),
        ("tools", [{"type": "mochi", "names": ["a"]}] * 4_000, 10_000),
        ("metadata", {"x": [0] * 10_001}, 10_000),
    ],
)
async def test_more_values_than_a_history_has_are_refused(
    server: Server, field: str, value: object, most: int
) -> None:
    body = {"model": "lorem", "messages": turns(2), field: value}
    async with post(server, "/v1/chat/completions", json.dumps(body).encode()) as response:
        assert response.status == 400
        assert f"more than {most:,} values" in (await response.json())["error"]["message"]


async def test_results_of_very_many_calls_are_stored_once_each(server: Server) -> None:
    function = {"name": "f", "arguments": "{}"}
    calls = [{"id": f"c{n}", "type": "function", "function": function} for n in range(2_600)]
    results = [{"role": "tool", "tool_call_id": f"c{n}", "content": "1"} for n in range(2_600)]
    messages = [*turns(0)[:1], {"role": "assistant", "tool_calls": calls}]
    path = server.url + "/v1/chat/completions"
    body = {"model": "lorem", "messages": [*messages, *results[::-1]]}
    async with server.http.post(path, json=body) as response:
        assert response.status == 200, await response.text()
    body["messages"] = [*body["messages"], results[0]]  # type: ignore[misc] # a list
    async with server.http.post(path, json=body) as response:
        assert response.status == 400
        assert "No call 'c0' waits" in (await response.json())["error"]["message"]


async def test_a_small_window_clips_nothing_unseen(tmp_path: Path) -> None:
    """30,000 tokens to a model of 8,192: what it is not sent is counted, and the client told."""
    history: list[Any] = [{"role": "system", "content": "Be brief."}]
    for number in range(70):
        history.append({"role": "user", "content": f"Question {number}? {'word ' * 200}"})
        history.append({"role": "assistant", "content": f"Answer {number}. {'word ' * 200}"})
    history.append({"role": "user", "content": "And now?"})
    async with (
        FakeOllama() as ollama,
        running_server(data_dir=tmp_path, ollama=ollama) as server,
        openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as client,
    ):
        ollama.add_model("small:1b", context_length=8_192)
        assert ollama.count(history, []) > 30_000
        for is_stream in (False, True):
            ollama.reply(["Now."])
            raw = await client.chat.completions.with_raw_response.create(
                model="small:1b", messages=history, stream=is_stream
            )
            parsed: Any = raw.parse()
            answer = [chunk async for chunk in parsed][-1] if is_stream else parsed
            told = answer.mochi["dropped_messages"]
            assert told == int(raw.headers["X-Mochi-Dropped-Messages"])
            assert 0 < told < len(history) - 2
            sent = ollama.chats[-1]
            assert sent["truncate"] is False
            assert ollama.count(sent["messages"], []) < sent["options"]["num_ctx"] <= 8_192
            assert [each["content"] for each in sent["messages"]] == [
                each["content"] for each in (history[0], *history[1 + told :])
            ]
