"""OpenAI itself: the one thing that no stand-in can answer for."""

from __future__ import annotations

from contextlib import aclosing

import anyio
import pytest

from mochi_server.backends import build_provider, default_providers
from mochi_server.config import load_settings
from mochi_server.providers.base import ContentDelta, Finish, ModelRequest

CHEAP = ("gpt-4.1-nano", "gpt-4o-mini", "gpt-5-nano")


@pytest.mark.e2e
async def test_the_real_openai_answers():
    settings = load_settings()
    if settings.openai_api_key is None:
        pytest.skip("OPENAI_API_KEY is not set")
    provider = build_provider("openai", default_providers(settings)["openai"])
    try:
        with anyio.fail_after(50):
            models = [model.name for model in await provider.list_models()]
            model = next((name for name in CHEAP if name in models), models[0])
            hello = [{"role": "user", "content": "Say hello."}]
            request = ModelRequest(model=model, messages=hello, max_tokens=2000)
            async with aclosing(provider.stream(request)) as stream:
                chunks = [chunk async for chunk in stream]
    finally:
        await provider.aclose()
    assert any(isinstance(chunk, ContentDelta) and chunk.content for chunk in chunks)
    assert isinstance(chunks[-1], Finish)
    assert chunks[-1].eval_count
