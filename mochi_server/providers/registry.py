"""Which provider runs a model: ``alias/name``, or a name of the default provider."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pydantic import JsonValue

from ..errors import JSONObject, MochiError, ProviderNotConfigured
from .base import ModelInfo, Provider


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelList:
    """What all providers together have."""

    models: list[ModelInfo]
    """Names as requests use them, the default provider's first."""
    problems: list[JSONObject] = field(default_factory=list)
    """``{"provider", "code", "message"}`` of each provider that did not answer, or has no model
    and knows why."""


class ProviderRegistry:
    """The configured providers by alias; the first is the default one."""

    def __init__(self, providers: Mapping[str, Provider]) -> None:
        self._providers = dict(providers)
        self.default = next(iter(self._providers))

    @property
    def aliases(self) -> list[str]:
        """Configured aliases, the default one first."""
        return [
            alias
            for alias, provider in self._providers.items()
            if provider.configured or alias == self.default
        ]

    @property
    def known(self) -> list[str]:
        """Every alias, also of providers without their key: to use those is an error."""
        return list(self._providers)

    def get(self, alias: str) -> Provider:
        """The provider of an alias.

        Raises:
            KeyError: no such alias.
        """
        return self._providers[alias]

    def resolve(self, model: str) -> tuple[Provider, str]:
        """The provider, and its own name of the model.

        Names of Ollama may contain slashes: only a configured alias counts as one.
        """
        alias, slash, name = model.partition("/")
        if slash and name and alias in self._providers:
            return self._providers[alias], name
        return self._providers[self.default], model

    def full_name(self, alias: str, name: str) -> str:
        """The name by which requests call a provider's model."""
        return name if alias == self.default else f"{alias}/{name}"

    async def show_model(self, model: str) -> ModelInfo:
        """One model, under the name that was asked for.

        Raises:
            ModelNotFound, ProviderUnreachable, ProviderError.
        """
        provider, name = self.resolve(model)
        return replace(await provider.show_model(name), name=model, provider=provider.alias)

    async def list_models(self) -> ModelList:
        """Every model of every provider that answers, asked all at once.

        Raises:
            ProviderError: no provider has a model, and this is why the first one has none;
                ``details["problems"]`` has every provider's reason.
        """
        answers = await asyncio.gather(*(self._of(alias) for alias in self.aliases))
        models = [model for found, _, _ in answers for model in found]
        problems = [problem for _, problem, _ in answers if problem is not None]
        error = next((error for _, _, error in answers if error is not None), None)
        if error is not None and not models:
            error.details["problems"] = list[JsonValue](problems)
            raise error
        return ModelList(models=models, problems=problems)

    async def _of(self, alias: str) -> tuple[list[ModelInfo], JSONObject | None, MochiError | None]:
        """The models of a provider, else its problem, and the error if it is one."""
        provider = self._providers[alias]
        try:
            found = await provider.list_models()
            reason = None if found else await provider.problem()
        except MochiError as error:
            return [], _problem(alias, error.code, error.message), error
        if reason is not None:
            return [], _problem(alias, ProviderNotConfigured.code, reason), None
        named = [
            replace(model, name=self.full_name(alias, model.name), provider=alias)
            for model in found
        ]
        return named, None, None

    async def aclose(self) -> None:
        """Close every provider, also when one of them fails to."""
        closed = await asyncio.gather(
            *(provider.aclose() for provider in self._providers.values()), return_exceptions=True
        )
        for outcome in closed:
            if isinstance(outcome, BaseException):
                raise outcome


def _problem(alias: str, code: str, message: str) -> JSONObject:
    return {"provider": alias, "code": code, "message": message}
