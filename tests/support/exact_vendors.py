"""Vendors' services that answer in exact bytes, each with our provider for it."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from importlib import import_module
from typing import Any

import anyio
import pytest

from mochi_server.errors import MochiError
from mochi_server.protocol.messages import ToolCall
from mochi_server.providers.anthropic.provider import AnthropicProvider
from mochi_server.providers.base import (
    Chunk,
    ContentDelta,
    Finish,
    ModelRequest,
    Provider,
    ThinkingDelta,
)
from mochi_server.providers.gemini.provider import GeminiProvider
from mochi_server.providers.openai import OpenAICompatibleProvider
from mochi_server.providers.vendor import VendorProvider

from . import fake_anthropic, fake_gemini, fake_openai
from .sse_vendor import Script

HELLO = [{"role": "user", "content": "Hello"}]
JSON = "application/json"


async def chunks_of(provider: Provider, **fields: Any) -> list[Chunk]:
    """Return a whole reply to "Hello", or to the messages that are named."""
    request = ModelRequest(**{"messages": HELLO, **fields})
    with anyio.fail_after(60):  # the import of an SDK may take long
        async with aclosing(provider.stream(request)) as chunks:
            return [chunk async for chunk in chunks]


def stored(chunks: list[Chunk], *results: str, **fields: Any) -> list[dict[str, Any]]:
    """Return a reply as it is stored, and the results of its calls."""
    calls = [chunk for chunk in chunks if isinstance(chunk, ToolCall)]
    last = chunks[-1]
    assert isinstance(last, Finish)
    message = {
        "role": "assistant",
        "content": "".join(c.content for c in chunks if isinstance(c, ContentDelta)),
        "thinking": "".join(c.content for c in chunks if isinstance(c, ThinkingDelta)),
        "tool_calls": [call.as_stored() for call in calls],
        "provider_data": last.provider_data,
        **fields,
    }
    answers = [
        {"role": "tool", "tool_name": c.name, "tool_call_id": c.id, "content": result}
        for c, result in zip(calls, results, strict=True)
    ]
    return [message, *answers]


class Vendor(ABC):
    """A service that answers in exact bytes, and our provider for it."""

    model: str
    made: type[VendorProvider[Any]]
    """The class of our provider."""
    provider: VendorProvider[Any]

    @abstractmethod
    async def open(self, stack: AsyncExitStack) -> None: ...

    @abstractmethod
    def answers(
        self,
        pieces: Sequence[bytes],
        *,
        status: int = 200,
        kind: str = "text/event-stream",
        then: str = "end",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Queue an answer; each piece is one write."""

    @abstractmethod
    def says(self, *words: str) -> bytes:
        """The text of a reply as this vendor streams it."""

    @abstractmethod
    def ends(self) -> bytes:
        """The end of a reply."""

    @abstractmethod
    async def left(self) -> None:
        """Wait until a client has gone in the midst of an answer."""

    def reply(self, *words: str) -> bytes:
        """A whole reply."""
        return self.says(*words) + self.ends()

    def request(self, **fields: Any) -> ModelRequest:
        return ModelRequest(**{"model": self.model, "messages": HELLO, **fields})

    async def ask(self) -> list[Chunk]:
        return await chunks_of(self.provider, model=self.model)

    async def failure(self) -> MochiError:
        with pytest.raises(MochiError) as caught:
            await self.ask()
        return caught.value


class OpenAI(Vendor):
    model = "gpt-test"
    made = OpenAICompatibleProvider

    async def open(self, stack: AsyncExitStack) -> None:
        self.fake = await stack.enter_async_context(fake_openai.running_fake())
        self.provider = self.made("it", base_url=self.fake.base_url, api_key="k")

    def answers(self, pieces, *, status=200, kind="text/event-stream", then="end", headers=None):
        answer = fake_openai.Answer(
            pieces=list(pieces),
            status=status,
            content_type=kind,
            headers=dict(headers or {}),
            then=then,
        )
        self.fake.answers.append(answer)

    def says(self, *words: str) -> bytes:
        return b"".join(map(self._event, (fake_openai.delta(content=word) for word in words)))

    def ends(self) -> bytes:
        return self._event(fake_openai.finished()) + b"data: [DONE]\n\n"

    async def left(self) -> None:
        await self.fake.client_gone.wait()

    @staticmethod
    def _event(chunk: dict[str, Any]) -> bytes:
        return f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n".encode()


class Anthropic(Vendor):
    model = fake_anthropic.MODEL
    made = AnthropicProvider

    async def open(self, stack: AsyncExitStack) -> None:
        self.fake = fake_anthropic.FakeAnthropic()
        await stack.enter_async_context(self.fake)
        self.provider = self.made("it", api_key=fake_anthropic.KEY, base_url=self.fake.url)

    def answers(self, pieces, *, status=200, kind="text/event-stream", then="end", headers=None):
        given = {"Content-Type": kind, **(headers or {})}
        self.fake.scripts.append(Script(pieces=pieces, status=status, then=then, headers=given))

    def says(self, *words: str) -> bytes:
        return b"".join((fake_anthropic.start(), *fake_anthropic.text(0, *words)))

    def ends(self) -> bytes:
        return b"".join(fake_anthropic.end())

    async def left(self) -> None:
        await self.fake.left.wait()


class Gemini(Vendor):
    model = fake_gemini.MODEL
    made = GeminiProvider

    async def open(self, stack: AsyncExitStack) -> None:
        self.fake = fake_gemini.FakeGemini()
        await stack.enter_async_context(self.fake)
        self.provider = self.made("it", api_key=fake_gemini.KEY, base_url=self.fake.url)

    answers = Anthropic.answers
    left = Anthropic.left

    def says(self, *words: str) -> bytes:
        return b"".join(fake_gemini.piece({"text": word}) for word in words)

    def ends(self) -> bytes:
        return fake_gemini.piece(reason="STOP")


VENDORS: dict[str, type[Vendor]] = {"openai": OpenAI, "anthropic": Anthropic, "gemini": Gemini}
PROVIDERS: list[Any] = [vendor.made for vendor in VENDORS.values()]


@asynccontextmanager
async def serving(name: str) -> AsyncIterator[Vendor]:
    """One of them, listening."""
    async with AsyncExitStack() as stack:
        found = VENDORS[name]()
        await found.open(stack)
        import_module(found.provider.module)  # of which a busy machine makes half a minute
        stack.push_async_callback(found.provider.aclose)
        yield found
