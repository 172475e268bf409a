"""The wire of test mode without a server: requests through the transport, and what they say."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import openai

from mochi_server.testmode.provider import BASE_URL, scripted_client

Message = dict[str, Any]


def client(*, pace: float = 0, cancel_after_words: int | None = None) -> Any:
    """The HTTP client that OpenAI's SDK gets."""
    return scripted_client(openai, words_per_second=pace, cancel_after_words=cancel_after_words)


def body_of(said: str | Sequence[Message], **fields: Any) -> dict[str, Any]:
    """A request that streams; a text is the message of a user."""
    messages = [{"role": "user", "content": said}] if isinstance(said, str) else list(said)
    return {"model": "any", "messages": messages, "stream": True, **fields}


async def answer(
    said: str | Sequence[Message],
    *,
    pace: float = 0,
    cancel_after_words: int | None = None,
    **fields: Any,
) -> tuple[int, bytes]:
    """Status and bytes of the response."""
    async with client(pace=pace, cancel_after_words=cancel_after_words) as http:
        url = f"{BASE_URL}/chat/completions"
        response = await http.post(url, json=body_of(said, **fields))
        return response.status_code, response.content


async def chunks(said: str | Sequence[Message], **fields: Any) -> list[dict[str, Any]]:
    """The events of a good response, without the terminator."""
    status, content = await answer(said, **fields)
    assert status == 200, content
    return parsed(content)


def parsed(content: bytes) -> list[dict[str, Any]]:
    """The events of a body, without the terminator."""
    frames = [frame.removeprefix("data: ") for frame in content.decode().split("\n\n") if frame]
    return [json.loads(frame) for frame in frames if frame != "[DONE]"]


def deltas(found: list[dict[str, Any]], kind: str, choice: int = 0) -> list[Any]:
    """What the deltas of one stream have under a key."""
    entries = [entry for chunk in found for entry in chunk.get("choices", ())]
    return [
        entry["delta"][kind]
        for entry in entries
        if entry["index"] == choice and kind in entry["delta"]
    ]


def text(found: list[dict[str, Any]], kind: str = "content", choice: int = 0) -> str:
    """The whole text of a stream."""
    return "".join(deltas(found, kind, choice))


def finishes(found: list[dict[str, Any]]) -> list[tuple[int, str]]:
    """Choice and reason of every finish chunk."""
    entries = [entry for chunk in found for entry in chunk.get("choices", ())]
    return [(entry["index"], entry["finish_reason"]) for entry in entries if entry["finish_reason"]]
