"""Images and documents of messages, as each vendor takes them."""

from __future__ import annotations

import base64
from contextlib import AsyncExitStack, aclosing
from typing import Any

import anyio
import pytest

from mochi_server.protocol.files import RequestFile, with_files
from mochi_server.providers.base import ModelRequest
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


@pytest.mark.parametrize("kind", SENT)
async def test_files_go_with_their_message_in_the_vendors_own_form(kind: type[Service]) -> None:
    service = kind()
    async with AsyncExitStack() as stack:
        await service.start(stack)
        service.says([], ["Yes."])
        request = ModelRequest(model=service.model, messages=MESSAGES)
        with anyio.fail_after(60):
            async with aclosing(service.provider.stream(request)) as chunks:
                async for _ in chunks:
                    pass
        key, sent = SENT[kind]
        assert service.last_request()[key] == sent
