"""Chooses the model that writes the summary of a session."""

from __future__ import annotations

from ..constants import SUMMARY_UNSUPPORTED_MODELS
from ..errors import (
    MochiError,
    ModelNotFound,
    ProviderError,
    ProviderNotConfigured,
    SummaryModelRequired,
)
from ..providers.registry import ProviderRegistry
from ..sessions.types import SessionMetadata
from .models.resolver import ModelResolver


class SummaryModelManager:
    """Chooses among the model of the chat, the session's ``summary_model``, and a named one."""

    def __init__(self, providers: ProviderRegistry, names: ModelResolver) -> None:
        self._providers = providers
        self._names = names

    def can_summarize(self, model: str) -> bool:
        """Return whether the model, which need not exist, can be trusted with structured output."""
        provider, name = self._providers.resolve(model)
        family = name.rpartition("/")[2].partition(":")[0].lower()
        return provider.capabilities.structured_output and family not in SUMMARY_UNSUPPORTED_MODELS

    async def choose(self, metadata: SessionMetadata) -> str | None:
        """Return the chat's model, else the session's ``summary_model``; None if neither can."""
        for model in (await self.of_chat(metadata), metadata.summary_model):
            if model is not None and self.can_summarize(model) and await self._is_there(model):
                return model
        return None

    async def of_chat(self, metadata: SessionMetadata) -> str | None:
        """Return the chat's model; None if that is a preset or an agent that cannot be used."""
        try:
            return (await self._names.resolve(metadata.model)).model
        except ProviderError:
            raise
        except MochiError:
            return None

    async def require(self, metadata: SessionMetadata, named: str | None = None) -> str:
        """Return the named model, or the one that ``choose`` returns."""
        if named is not None:
            await self.check(named)
            return named
        chosen = await self.choose(metadata)
        if chosen is None:
            raise SummaryModelRequired(model=metadata.model)
        return chosen

    async def check(self, model: str) -> None:
        """Check that the model exists and can write summaries.

        Raises:
            ModelNotFound: it does not exist.
            SummaryModelRequired: it cannot.
            ProviderError: of its provider.
        """
        if not self.can_summarize(model):
            raise SummaryModelRequired(model=model)
        await self._providers.show_model(model)

    async def _is_there(self, model: str) -> bool:
        try:
            await self._providers.show_model(model)
        except (ModelNotFound, ProviderNotConfigured):
            return False
        return True
