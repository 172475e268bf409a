"""Images and documents of messages, as each vendor takes them."""

from __future__ import annotations

import base64
from contextlib import AsyncExitStack
from typing import Any

import pytest

from mochi_server.protocol.files import RequestFile, with_files
from tests.support.exact_vendors import chunks_of
from tests.support.images import PDF, png
from tests.support.model_services import Anthropic, Gemini, Ollama, OpenAI, Service

IMAGE, PAPER = base64.b64encode(png()).decode(), base64.b64encode(PDF).decode()


def user(text: str, *files: RequestFile) -> dict[str, Any]:
    return with_files({"role": "user", "content": text}, files)


MESSAGES = [
    user("Look", RequestFile(media_type="image/png", data=IMAGE, name="cat.png")),
    user("And read", RequestFile(media_type="application/pdf", data=PAPER, name="paper.pdf")),
    {"role": "assistant", "content": "Yes."},
    user("", RequestFile(media_type="image/png", data=IMAGE)),
]


def anthropic_file(kind: str, media_type: str, data: str) -> dict[str, Any]:
    return {"type": kind, "source": {"type": "base64", "media_type": media_type, "data": data}}


def gemini_file(media_type: str, data: str) -> dict[str, Any]:
    # The SDK leaves the names within as it gets them, and the service takes both kinds of names.
    return {"inlineData": {"mime_type": media_type, "data": data}}


URL = f"data:image/png;base64,{IMAGE}"
SENT: dict[type[Service], tuple[str, list[dict[str, Any]]]] = {
    OpenAI: (
        "messages",
        [
            {
                "role": "user",
                "content": [
                    {"type": "image_url", "image_url": {"url": URL}},
                    {
                        "type": "file",
                        "file": {
                            "filename": "paper.pdf",
                            "file_data": f"data:application/pdf;base64,{PAPER}",
                        },
                    },
                    {"type": "text", "text": "Look\n\nAnd read"},
                ],
            },
            {"role": "assistant", "content": "Yes."},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": URL}}]},
        ],
    ),
    Anthropic: (
        "messages",
        [
            {
                "role": "user",
                "content": [
                    anthropic_file("image", "image/png", IMAGE),
                    anthropic_file("document", "application/pdf", PAPER) | {"title": "paper.pdf"},
                    {"type": "text", "text": "Look\n\nAnd read"},
                ],
            },
            {"role": "assistant", "content": [{"type": "text", "text": "Yes."}]},
            {"role": "user", "content": [anthropic_file("image", "image/png", IMAGE)]},
        ],
    ),
    Gemini: (
        "contents",
        [
            {
                "role": "user",
                "parts": [
                    gemini_file("image/png", IMAGE),
                    gemini_file("application/pdf", PAPER),
                    {"text": "Look\n\nAnd read"},
                ],
            },
            {"role": "model", "parts": [{"text": "Yes."}]},
            {"role": "user", "parts": [gemini_file("image/png", IMAGE)]},
        ],
    ),
    Ollama: (
        "messages",
        [
            {"role": "user", "content": "Look", "images": [IMAGE]},
            {"role": "user", "content": "And read"},
            {"role": "assistant", "content": "Yes."},
            {"role": "user", "content": "", "images": [IMAGE]},
        ],
    ),
}


CALL = {"id": "call12345", "function": {"name": "draw", "arguments": {}}}
DRAWN: list[dict[str, Any]] = [
    {"role": "user", "content": "Draw"},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    with_files(
        {"role": "tool", "content": "Here.", "tool_name": "draw", "tool_call_id": "call12345"},
        [RequestFile(media_type="image/png", data=IMAGE)],
    ),
]
MARK = {"type": "text", "text": "(The images are of the results above.)"}
PICTURE = {"type": "image_url", "image_url": {"url": URL}}
OF_RESULTS: dict[type[Service], list[dict[str, Any]]] = {
    OpenAI: [
        {"role": "tool", "tool_call_id": "call12345", "name": "draw", "content": "Here."},
        {"role": "user", "content": [PICTURE, MARK]},
    ],
    Anthropic: [
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "call12345",
                    "content": [
                        {"type": "text", "text": "Here."},
                        anthropic_file("image", "image/png", IMAGE),
                    ],
                }
            ],
        }
    ],
    Gemini: [
        {
            "role": "user",
            "parts": [
                {
                    "functionResponse": {
                        "id": "call12345",
                        "name": "draw",
                        "response": {"output": "Here."},
                    }
                },
                gemini_file("image/png", IMAGE),
            ],
        }
    ],
    Ollama: [
        {
            "role": "tool",
            "content": "Here.",
            "tool_name": "draw",
            "tool_call_id": "call12345",
            "images": [IMAGE],
        }
    ],
}


@pytest.mark.parametrize("kind", SENT)
async def test_files_go_with_their_message_in_the_vendors_own_form(kind: type[Service]) -> None:
    key, sent = SENT[kind]
    assert (await sent_by(kind, MESSAGES))[key] == sent


@pytest.mark.parametrize("kind", OF_RESULTS)
async def test_images_of_a_result_go_with_it(kind: type[Service]) -> None:
    key, sent = SENT[kind][0], OF_RESULTS[kind]
    assert (await sent_by(kind, DRAWN))[key][2:] == sent


async def test_images_of_a_result_and_the_next_question_are_one_message() -> None:
    for question in (user("And?"), user("And?", RequestFile(media_type="image/png", data=IMAGE))):
        sent = (await sent_by(OpenAI, [*DRAWN, question]))["messages"][3:]
        own = [{"type": "text", "text": "And?"}]
        pictures = [PICTURE] if "files" in question else []
        assert sent == [{"role": "user", "content": [PICTURE, MARK, *pictures, *own]}]


async def sent_by(kind: type[Service], messages: list[dict[str, Any]]) -> dict[str, Any]:
    """The request of a service for these messages."""
    service = kind()
    async with AsyncExitStack() as stack:
        await service.start(stack)
        service.says([], ["Yes."])
        await chunks_of(service.provider, model=service.model, messages=messages)
        return service.last_request()
