"""All providers together: the models of all, and one that is asked for by its full name."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import anyio
import pytest
from pydantic import BaseModel

from mochi_server import Runtime
from mochi_server.config import load_settings
from mochi_server.errors import InternalError, ModelNotFound, ProviderError, ProviderNotConfigured
from mochi_server.protocol.turn_request import TurnRequest
from mochi_server.providers import registry
from mochi_server.providers.anthropic.provider import AnthropicProvider
from mochi_server.providers.base import (
    Chunk,
    ContentDelta,
    Finish,
    ModelInfo,
    ModelRequest,
    Provider,
    ThinkingDelta,
)
from mochi_server.providers.registry import ProviderRegistry, nearest_names
from tests.support import fake_anthropic


class GoodProvider(Provider):
    """One model."""

    async def list_models(self) -> list[ModelInfo]:
        return [ModelInfo(name="a")]

    async def show_model(self, name: str) -> ModelInfo:
        if name != "a":
            raise ModelNotFound(model=name)
        return ModelInfo(name=name)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        yield Finish(reason="stop")

    async def check(self) -> bool:
        return True


class BrokenProvider(GoodProvider):
    """One with a mistake in it."""

    async def list_models(self) -> list[ModelInfo]:
        raise RuntimeError("a mistake")


class OddProvider(GoodProvider):
    """One that answers with what is no model."""

    async def list_models(self) -> list[ModelInfo]:
        return [None]  # type: ignore[list-item]


class HangingProvider(GoodProvider):
    """One that never answers."""

    async def list_models(self) -> list[ModelInfo]:
        await anyio.sleep_forever()
        return []


class LateProvider(GoodProvider):
    """One whose own limit of time is over."""

    async def list_models(self) -> list[ModelInfo]:
        raise TimeoutError


class EmptyProvider(GoodProvider):
    """One that knows why it has none."""

    async def list_models(self) -> list[ModelInfo]:
        return []

    async def problem(self) -> str | None:
        return "Buy one."


def registry_of(**kinds: type[Provider]) -> ProviderRegistry:
    return ProviderRegistry({alias: kind(alias) for alias, kind in kinds.items()})


async def test_one_bad_provider_hides_no_good_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(registry, "LIST_SECONDS", 0.2)
    providers = registry_of(
        bad=BrokenProvider,
        odd=OddProvider,
        hanging=HangingProvider,
        late=LateProvider,
        empty=EmptyProvider,
        good=GoodProvider,
    )
    with anyio.fail_after(30):
        found = await providers.list_models()
    assert [(model.name, model.provider) for model in found.models] == [("good/a", "good")]
    assert [(problem["provider"], problem["code"]) for problem in found.problems] == [
        ("bad", "INTERNAL_ERROR"),
        ("odd", "INTERNAL_ERROR"),
        ("hanging", "PROVIDER_UNREACHABLE"),
        ("late", "INTERNAL_ERROR"),
        ("empty", "PROVIDER_NOT_CONFIGURED"),
    ]
    assert "a mistake" not in str(found.problems), "which is the log's"
    assert "RuntimeError: a mistake" in caplog.text
    assert found.problems[2]["message"] == "No answer within 0.2 s."
    assert found.problems[4]["message"] == "Buy one."


async def test_where_nobody_has_a_model_the_first_failure_is_the_answer() -> None:
    with pytest.raises(InternalError) as caught:
        await registry_of(empty=EmptyProvider, bad=BrokenProvider).list_models()
    problems = caught.value.details["problems"]
    assert isinstance(problems, list)
    assert len(problems) == 2
    found = await registry_of(empty=EmptyProvider).list_models()
    assert found.models == []
    assert [problem["message"] for problem in found.problems] == ["Buy one."]


async def test_the_models_of_one_provider_have_their_full_names() -> None:
    providers = registry_of(first=GoodProvider, second=GoodProvider, empty=EmptyProvider)
    assert [model.name for model in await providers.models_of("first")] == ["a"]
    assert [model.name for model in await providers.models_of("second")] == ["second/a"]
    with pytest.raises(ProviderNotConfigured, match="Buy one"):
        await providers.models_of("empty")


async def test_a_model_that_is_not_there_is_named_as_it_was_asked_for(tmp_path: Path) -> None:
    async with fake_anthropic.FakeAnthropic() as fake:
        vendor = AnthropicProvider("vendor", api_key=fake_anthropic.KEY, base_url=fake.url)
        providers = {"first": GoodProvider("first"), "own": GoodProvider("own"), "vendor": vendor}
        settings = load_settings(data_dir=tmp_path, summarization_enabled=False)
        async with aclosing(Runtime(settings, providers=providers)) as runtime:
            session = await runtime.sessions.create("a")
            for name in ("zzz", "own/zzz", "vendor/zzz"):
                with pytest.raises(ModelNotFound, match=f"'{name}'") as caught:
                    await runtime.providers.show_model(name)
                assert caught.value.details["model"] == name
                with pytest.raises(ModelNotFound, match=f"'{name}'") as caught:
                    await runtime.chat.open_turn(
                        session.session_id, TurnRequest(message="Hi", model=name)
                    )
                assert caught.value.details["model"] == name


NAMES = ["qwen3:14b", "qwen3:4b", "openai/gpt-4o", "openai/gpt-5", "local/smollm2:135m"]


@pytest.mark.parametrize(
    ("model", "nearest"),
    [
        ("quen3:14b", ["qwen3:14b", "qwen3:4b"]),
        ("qwen3:4", ["qwen3:4b", "qwen3:14b"]),
        ("gpt-4o", ["openai/gpt-4o", "openai/gpt-5"]),
        ("GPT-4o-mini", ["openai/gpt-4o"]),
        ("smolm2", ["local/smollm2:135m"]),
        ("unknown", []),
        ("", []),
    ],
)
def test_models_of_like_names_are_named(model, nearest):
    assert nearest_names(model, NAMES) == nearest


# What all providers have


HELLO = [{"role": "user", "content": "Hello"}]


class Town(BaseModel):
    name: str


class TownProvider(Provider):
    """Answers with the same words, whatever is asked."""

    def __init__(self, alias: str, words: str) -> None:
        super().__init__(alias)
        self._words = words
        self.schemas: list[object] = []

    async def list_models(self) -> list[ModelInfo]:
        return []

    async def show_model(self, name: str) -> ModelInfo:
        raise ModelNotFound(model=name)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        self.schemas.append(request.schema)
        yield ThinkingDelta("Hm.")
        for letter in self._words:
            yield ContentDelta(letter)
        yield Finish(reason="length")

    async def check(self) -> bool:
        return True


async def test_a_structured_reply_is_asked_for_by_its_schema_and_validated() -> None:
    provider = TownProvider("it", json.dumps({"name": "Rome"}))
    request = ModelRequest(model="m", messages=HELLO)
    assert await provider.structured(request, Town) == Town(name="Rome")
    assert provider.schemas == [Town.model_json_schema()]


async def test_a_reply_that_ignores_the_schema_is_an_error_with_a_name() -> None:
    provider = TownProvider("it", "I like Rome.")
    with pytest.raises(ProviderError, match="shape of Town") as caught:
        await provider.structured(ModelRequest(model="m", messages=HELLO), Town)
    assert caught.value.details["reply"] == "I like Rome."
    assert caught.value.details["finish_reason"] == "length"
