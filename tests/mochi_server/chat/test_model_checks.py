"""What a conversation is refused for, where a provider says of itself what it cannot do."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import pytest

from mochi_server import Runtime
from mochi_server.config import load_settings
from mochi_server.errors import ThinkingNotSupported
from mochi_server.providers.base import (
    Capabilities,
    Chunk,
    ContentDelta,
    Finish,
    ModelInfo,
    ModelRequest,
    Provider,
)
from tests.support.turns import read_all


class PlainProvider(Provider):
    """Thinks never, and says nothing of its models."""

    capabilities = Capabilities(tools=False, thinking=False, structured_output=False)

    async def list_models(self) -> list[ModelInfo]:
        return []

    async def show_model(self, name: str) -> ModelInfo:
        return ModelInfo(name=name)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        yield ContentDelta("Well.")
        yield Finish(reason="stop")

    async def check(self) -> bool:
        return True


async def test_thinking_is_refused_where_the_provider_never_thinks(tmp_path: Path) -> None:
    settings = load_settings(data_dir=tmp_path, summarization_enabled=False)
    async with aclosing(Runtime(settings, providers={"plain": PlainProvider("plain")})) as runtime:
        session_id = (await runtime.sessions.create("plain/any")).session_id
        with pytest.raises(ThinkingNotSupported):
            await runtime.chat.open_turn(session_id, message="Hello", think=True)
        turn = await runtime.chat.open_turn(session_id, message="Hello")
        assert (await read_all(runtime.chat.start(turn)))[-1].type == "done"
