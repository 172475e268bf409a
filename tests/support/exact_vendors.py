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
from mochi_server.providers.anthropic.provider import AnthropicProvider
from mochi_server.providers.base import Chunk, ModelRequest
from mochi_server.providers.gemini.provider import GeminiProvider
from mochi_server.providers.openai import OpenAICompatibleProvider
from mochi_server.providers.vendor import VendorProvider

from . import fake_anthropic, fake_gemini, fake_openai
from .sse_vendor import Script

HELLO = [{"role": "user", "content": "Hello"}]
JSON = "application/json"


class Vendor(ABC):
    """A service that answers in exact bytes, and our provider for it."""

    model: str
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

    def reply(self, *words: str) -> bytes:
        """A whole reply."""
        return self.says(*words) + self.ends()

    def request(self, **fields: Any) -> ModelRequest:
        return ModelRequest(**{"model": self.model, "messages": HELLO, **fields})

    async def ask(self) -> list[Chunk]:
        with anyio.fail_after(30):
            async with aclosing(self.provider.stream(self.request())) as chunks:
                return [chunk async for chunk in chunks]

    async def failure(self) -> MochiError:
        with pytest.raises(MochiError) as caught:
            await self.ask()
        return caught.value


class OpenAI(Vendor):
    model = "gpt-test"

    async def open(self, stack: AsyncExitStack) -> None:
        self.fake = await stack.enter_async_context(fake_openai.running_fake())
        self.provider = OpenAICompatibleProvider("it", base_url=self.fake.base_url, api_key="k")

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

    @staticmethod
    def _event(chunk: dict[str, Any]) -> bytes:
        return f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n".encode()


class Anthropic(Vendor):
    model = fake_anthropic.MODEL

    async def open(self, stack: AsyncExitStack) -> None:
        self.fake = fake_anthropic.FakeAnthropic()
        await stack.enter_async_context(self.fake)
        self.provider = AnthropicProvider("it", api_key=fake_anthropic.KEY, base_url=self.fake.url)

    def answers(self, pieces, *, status=200, kind="text/event-stream", then="end", headers=None):
        given = {"Content-Type": kind, **(headers or {})}
        self.fake.scripts.append(Script(pieces=pieces, status=status, then=then, headers=given))

    def says(self, *words: str) -> bytes:
        return b"".join((fake_anthropic.start(), *fake_anthropic.text(0, *words)))

    def ends(self) -> bytes:
        return b"".join(fake_anthropic.end())


class Gemini(Vendor):
    model = fake_gemini.MODEL

    async def open(self, stack: AsyncExitStack) -> None:
        self.fake = fake_gemini.FakeGemini()
        await stack.enter_async_context(self.fake)
        self.provider = GeminiProvider("it", api_key=fake_gemini.KEY, base_url=self.fake.url)

    answers = Anthropic.answers

    def says(self, *words: str) -> bytes:
        return b"".join(fake_gemini.piece({"text": word}) for word in words)

    def ends(self) -> bytes:
        return fake_gemini.piece(reason="STOP")


VENDORS: dict[str, type[Vendor]] = {"openai": OpenAI, "anthropic": Anthropic, "gemini": Gemini}


@asynccontextmanager
async def serving(name: str) -> AsyncIterator[Vendor]:
    """One of them, listening."""
    async with AsyncExitStack() as stack:
        found = VENDORS[name]()
        await found.open(stack)
        import_module(found.provider.module)  # of which a busy machine makes half a minute
        stack.push_async_callback(found.provider.aclose)
        yield found
