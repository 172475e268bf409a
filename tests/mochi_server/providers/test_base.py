"""A provider of one's own that leaves out all that it may (docs/how-to/add-a-provider.md)."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator

import pytest
from pydantic import BaseModel

from mochi_server.errors import ModelNotFound, ProviderError
from mochi_server.providers.base import (
    Chunk,
    ContentDelta,
    Finish,
    ModelInfo,
    ModelRequest,
    Provider,
    ThinkingDelta,
)

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
