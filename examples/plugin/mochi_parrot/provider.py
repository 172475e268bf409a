"""A provider that repeats what it is told."""

from collections.abc import AsyncGenerator

from mochi_server.errors import ModelNotFound
from mochi_server.providers.base import (
    Capabilities,
    Chunk,
    ContentDelta,
    Finish,
    ModelInfo,
    ModelRequest,
    Provider,
)


class ParrotProvider(Provider):
    """Answers with the last message, word by word."""

    capabilities = Capabilities(tools=False, thinking=False, structured_output=False)

    async def list_models(self) -> list[ModelInfo]:
        return [ModelInfo(name="parrot", capabilities=["completion"], context_length=8192)]

    async def show_model(self, name: str) -> ModelInfo:
        for model in await self.list_models():
            if model.name == name:
                return model
        raise ModelNotFound(model=name)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        for word in str(request.messages[-1]["content"]).split():
            yield ContentDelta(word + " ")
        yield Finish(reason="stop")

    async def check(self) -> bool:
        return True
