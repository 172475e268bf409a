"""The provider ``openai`` as the settings make it, and vendors that nobody has set up."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from pydantic import BaseModel

from mochi_server.backends import build_provider, default_providers
from mochi_server.config import load_settings
from mochi_server.errors import ProviderNotConfigured
from mochi_server.protocol.options import ModelOptions
from mochi_server.protocol.turn_request import TurnRequest
from mochi_server.providers.base import ContentDelta, Finish, ModelRequest
from mochi_server.providers.builtin.engine import Engine
from mochi_server.runtime import Runtime
from tests.support.exact_vendors import HELLO, VENDORS, chunks_of
from tests.support.fake_openai import (
    JSON,
    Answer,
    FakeOpenAI,
    delta,
    finished,
    running_fake,
    stream,
)
from tests.support.local_model import folder_with_model
from tests.support.turns import read_all, text_of

CHEAP = ("gpt-4.1-nano", "gpt-4o-mini", "gpt-5-nano")


@pytest.fixture
async def fake() -> AsyncIterator[FakeOpenAI]:
    async with running_fake() as server:
        yield server


def models(*names: str) -> Answer:
    body = {"object": "list", "data": [{"id": name, "object": "model"} for name in names]}
    return Answer(pieces=[json.dumps(body).encode()], content_type=JSON)


async def test_a_server_of_ones_own_needs_no_key(fake: FakeOpenAI) -> None:
    settings = load_settings(openai_base_url=fake.base_url)
    provider = build_provider("openai", default_providers(settings)["openai"])
    fake.answers = [models("tiny"), stream(delta(content="a"), finished())]
    (model,) = await provider.list_models()
    assert (model.name, model.capabilities) == (
        "tiny",
        ["completion", "tools", "thinking", "vision"],
    )
    request = ModelRequest(model="tiny", messages=HELLO, max_tokens=9)
    chunks = [chunk async for chunk in provider.stream(request)]
    assert chunks[0] == ContentDelta("a")
    assert fake.bodies[1]["max_tokens"] == 9
    await provider.aclose()


async def test_vendors_without_a_key_are_an_error_at_use_and_shown_nowhere(tmp_path: Path) -> None:
    runtime = Runtime(load_settings(data_dir=tmp_path, ollama_host="http://127.0.0.1:9"))
    registry = runtime.providers
    assert set(VENDORS) <= set(registry.all_aliases)
    assert not set(VENDORS) & set(registry.aliases)
    for alias in VENDORS:
        with pytest.raises(ProviderNotConfigured, match=f"{alias.upper()}_API_KEY"):
            await registry.show_model(f"{alias}/some-model")
    await runtime.aclose()


class Town(BaseModel):
    name: str


@pytest.mark.slow
async def test_a_real_llama_cpp_server_answers_with_text_and_in_a_shape(tmp_path: Path) -> None:
    folder = folder_with_model(tmp_path)
    (weights,) = folder.iterdir()
    place = Engine.shared_folder(weights, 2048)
    engine = Engine(weights, folder=place, context=2048, slots=1, threads=2, idle_seconds=1)
    async with engine.use() as endpoint:
        settings = load_settings(
            data_dir=tmp_path / "data",
            openai_base_url=endpoint.base_url,
            openai_api_key=endpoint.api_key,
            max_output_tokens=24,
        )
        runtime = Runtime(settings)
        provider = runtime.providers.get("openai")
        (model,) = await provider.list_models()
        request = ModelRequest(
            model=model.name, messages=HELLO, max_tokens=24, options=ModelOptions(temperature=0.0)
        )
        session = await runtime.sessions.create(f"openai/{model.name}")
        with anyio.fail_after(50):
            chunks = [chunk async for chunk in provider.stream(request)]
            town = await provider.structured(replace(request, max_tokens=None), Town)
        opened = await runtime.chat.open_turn(session.session_id, TurnRequest(message="Say hello."))
        events = await read_all(runtime.chat.start(opened))
        assert sum(isinstance(chunk, ContentDelta) for chunk in chunks) > 1
        assert isinstance(chunks[-1], Finish)
        assert isinstance(town.name, str)
        assert [event.type for event in events[-2:]] == ["message_complete", "done"]
        assert events[-2].payload()["model"] == f"openai/{model.name}"
        assert text_of(events)
        await runtime.aclose()


@pytest.mark.e2e
@pytest.mark.parametrize("alias", VENDORS)
async def test_the_real_service_answers(alias: str) -> None:
    settings = load_settings()
    if getattr(settings, f"{alias}_api_key") is None:
        pytest.skip(f"{alias.upper()}_API_KEY is not set")
    provider = build_provider(alias, default_providers(settings)[alias])
    models = [model.name for model in await provider.list_models()]
    model = next((name for name in CHEAP if name in models), models[0])
    chunks = await chunks_of(provider, model=model, max_tokens=2000)
    await provider.aclose()
    assert any(isinstance(chunk, ContentDelta) and chunk.content for chunk in chunks)
    assert isinstance(chunks[-1], Finish)
    assert chunks[-1].eval_count


def test_keys_do_not_stand_in_the_table_of_backends() -> None:
    keys = {f"{alias}_api_key": f"very-secret-{alias}" for alias in VENDORS}
    assert "very-secret" not in repr(default_providers(load_settings(**keys)))
