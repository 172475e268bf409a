"""What vendors' services, and gateways before them, answer beside a well-formed stream."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from typing import Any

import anyio
import pytest

from mochi_server.errors import MochiError, ModelNotFound, ProviderBusy, ProviderError
from mochi_server.providers.anthropic import AnthropicProvider
from mochi_server.providers.base import Chunk, ContentDelta, Finish, ModelRequest, Provider
from mochi_server.providers.gemini import GeminiProvider
from mochi_server.providers.openai_compatible import OpenAICompatibleProvider
from tests.support import fake_anthropic, fake_gemini, fake_openai
from tests.support.sse_vendor import Script

HELLO = [{"role": "user", "content": "Hello"}]
JSON = "application/json"
HTML = "text/html; charset=utf-8"


class Vendor(ABC):
    """A service that answers in exact bytes, and our provider for it."""

    model: str
    provider: Provider

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
    def reply(self, *words: str) -> bytes:
        """A whole reply as this vendor streams it."""

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

    def reply(self, *words: str) -> bytes:
        chunks = [fake_openai.delta(content=word) for word in words]
        lines = [json.dumps(c, ensure_ascii=False) for c in (*chunks, fake_openai.finished())]
        return "".join(f"data: {line}\n\n" for line in (*lines, "[DONE]")).encode()


class Anthropic(Vendor):
    model = fake_anthropic.MODEL

    async def open(self, stack: AsyncExitStack) -> None:
        self.fake = fake_anthropic.FakeAnthropic()
        await stack.enter_async_context(self.fake)
        self.provider = AnthropicProvider("it", api_key=fake_anthropic.KEY, base_url=self.fake.url)

    def answers(self, pieces, *, status=200, kind="text/event-stream", then="end", headers=None):
        given = {"Content-Type": kind, **(headers or {})}
        self.fake.scripts.append(Script(pieces=pieces, status=status, then=then, headers=given))

    def reply(self, *words: str) -> bytes:
        parts = (fake_anthropic.start(), *fake_anthropic.text(0, *words), *fake_anthropic.end())
        return b"".join(parts)


class Gemini(Vendor):
    model = fake_gemini.MODEL

    async def open(self, stack: AsyncExitStack) -> None:
        self.fake = fake_gemini.FakeGemini()
        await stack.enter_async_context(self.fake)
        self.provider = GeminiProvider("it", api_key=fake_gemini.KEY, base_url=self.fake.url)

    answers = Anthropic.answers

    def reply(self, *words: str) -> bytes:
        parts = [fake_gemini.piece({"text": word}) for word in words]
        return b"".join((*parts, fake_gemini.piece(reason="STOP")))


VENDORS: dict[str, type[Vendor]] = {"openai": OpenAI, "anthropic": Anthropic, "gemini": Gemini}


@pytest.fixture(params=VENDORS)
async def vendor(request: pytest.FixtureRequest) -> AsyncIterator[Vendor]:
    async with AsyncExitStack() as stack:
        found = VENDORS[request.param]()
        await found.open(stack)
        stack.push_async_callback(found.provider.aclose)
        yield found


BODIES: list[Any] = [
    {"error": "The words."},
    {"detail": "The words."},
    {"detail": [{"loc": ["body", "messages"], "msg": "The words."}]},
    {"message": "The words.", "object": "error"},
    {"errors": [{"message": "The words."}]},
    {"error": {"code": 1, "reason": "The words."}},
    [{"error": {"message": "The words."}}],
    "The words.",
]


@pytest.mark.parametrize("body", BODIES, ids=str)
async def test_a_refusal_of_any_shape_is_told_in_its_own_words(vendor: Vendor, body: Any) -> None:
    vendor.answers([json.dumps(body).encode()], status=400, kind=JSON)
    found = await vendor.failure()
    assert type(found) is ProviderError
    assert "The words." in found.message
    vendor.answers([b"The words."], status=404, kind="text/plain")
    found = await vendor.failure()
    assert type(found) is ModelNotFound
    assert "The words." in found.message


@pytest.mark.parametrize("status", [502, 200])
async def test_a_page_for_browsers_is_an_error_that_a_person_can_read(
    vendor: Vendor, status: int
) -> None:
    page = b"<html>" + b"x" * 200_000
    vendor.answers([page], status=status, kind=HTML)
    found = await vendor.failure()
    assert type(found) is ProviderError
    assert "502" in str(found.as_json()) if status == 502 else "html" in found.message
    assert len(str(found.as_json())) < 3000


WORDLESS: list[Any] = [[], {}, 7, {"odd": [[]]}, {"odd": json.loads("[" * 300 + "]" * 300)}]


@pytest.mark.parametrize("body", WORDLESS, ids=lambda body: str(body)[:14])
@pytest.mark.parametrize("status", [500, 200])
async def test_a_body_without_words_is_an_error_all_the_same(
    vendor: Vendor, body: Any, status: int
) -> None:
    vendor.answers([json.dumps(body).encode()], status=status, kind=JSON)
    found = await vendor.failure()
    assert type(found) is ProviderError
    assert "500" in str(found.as_json()) if status == 500 else True


async def test_an_error_is_not_longer_than_a_person_reads(vendor: Vendor) -> None:
    body = {"error": {"message": "The words. " * 20_000, "type": "odd" * 20_000, "code": 500}}
    vendor.answers([json.dumps(body).encode()], status=500, kind=JSON)
    found = await vendor.failure()
    assert "The words." in found.message
    assert len(str(found.as_json())) < 6000


@pytest.mark.parametrize("kind", [JSON, "application/json; charset=utf-8", "text/plain"])
async def test_an_error_that_calls_itself_a_success_is_an_error(vendor: Vendor, kind: str) -> None:
    """As gateways send it: status 200, and the error as JSON."""
    body = {"error": {"message": "No credits.", "code": 402, "type": "odd", "status": "ODD"}}
    vendor.answers([json.dumps(body).encode()], kind=kind)
    found = await vendor.failure()
    assert type(found) is ProviderError
    assert "No credits." in found.message


async def test_a_busy_service_that_calls_it_a_success_is_busy(vendor: Vendor) -> None:
    codes = {"code": 429, "type": "rate_limit_error", "status": "RESOURCE_EXHAUSTED"}
    body = json.dumps({"error": {"message": "Slow down.", **codes}}, indent=1).encode()
    for _ in range(3):
        vendor.answers([body], kind=JSON)
    assert type(await vendor.failure()) is ProviderBusy


async def test_a_stream_need_not_call_itself_one(vendor: Vendor) -> None:
    vendor.answers([vendor.reply("Yes")], kind=JSON)
    first, finish = await vendor.ask()
    assert first == ContentDelta("Yes")
    assert isinstance(finish, Finish)


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
async def test_a_reply_may_come_in_single_bytes(vendor: Vendor, end: bytes) -> None:
    words = "Grüße, 😀\u2028\u0085."
    reply = vendor.reply(words).replace(b"\n", end)
    vendor.answers([reply[n : n + 1] for n in range(len(reply))])
    chunks = await vendor.ask()
    assert "".join(c.content for c in chunks if isinstance(c, ContentDelta)) == words
