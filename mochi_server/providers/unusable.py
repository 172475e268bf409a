"""The provider of a package that cannot be used: the server goes on, and says why."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from ..errors import ProviderNotConfigured
from .base import Capabilities, Chunk, ModelInfo, ModelRequest, Provider


class UnusableProvider(Provider):
    """Has no model, and a problem."""

    capabilities = Capabilities(tools=False, thinking=False, structured_output=False)

    def __init__(self, alias: str, *, problem: str) -> None:
        super().__init__(alias)
        self._problem = problem

    async def list_models(self) -> list[ModelInfo]:
        return []

    async def show_model(self, name: str) -> ModelInfo:
        raise self._error(name)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        raise self._error(request.model)
        yield  # a generator, as the others

    async def check(self) -> bool:
        return False

    async def problem(self) -> str:
        return self._problem

    def _error(self, model: str) -> ProviderNotConfigured:
        return ProviderNotConfigured(self._problem, details={"model": model})
