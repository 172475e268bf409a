"""Which provider runs a model: ``alias/name``, or a name of the default provider."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import anyio
from pydantic import JsonValue

from ..errors import (
    InternalError,
    JSONObject,
    MochiError,
    ModelNotFound,
    ProviderError,
    ProviderNotConfigured,
    ProviderUnreachable,
)
from .base import (
    EmbeddingRequest,
    Embeddings,
    LoadedModel,
    ModelInfo,
    Provider,
    PullableModel,
)

LIST_SECONDS: Final = 40.0
"""Longest wait for a provider's models, imports included; our own providers give up earlier."""

TEXTS_AT_ONCE: Final = 64
"""Texts that one request embeds: its answer must not be longer than ``MAX_RESPONSE``."""

logger = logging.getLogger(__name__)


class HasNoModel(ProviderNotConfigured):
    """The provider answers, has no model, and says what to do about it."""


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
        self.on_error: Callable[[str, MochiError], None] | None = None
        """Called with the alias of a provider that has not described or embedded, and why."""

    @property
    def aliases(self) -> list[str]:
        """Aliases to show: the default one first, then those of configured providers."""
        providers = self._providers.items()
        return [alias for alias, one in providers if one.configured or alias == self.default]

    @property
    def all_aliases(self) -> list[str]:
        """Every alias, also of providers without their key: to use those is an error."""
        return list(self._providers)

    def get(self, alias: str) -> Provider:
        return self._providers[alias]

    def resolve(self, model: str) -> tuple[Provider, str]:
        """Return the provider of a model, and its own name of the model.

        Names of Ollama may contain slashes: only a configured alias counts as one.
        """
        alias, slash, name = model.partition("/")
        if slash and name and alias in self._providers:
            return self._providers[alias], name
        return self._providers[self.default], model

    def memory_key(self, model: str) -> str:
        """Return the address of the server whose memory the model shares, else the model's name.

        A request for a model may unload another one with the same key.
        """
        provider, _ = self.resolve(model)
        return provider.shared_server or model

    def full_name(self, alias: str, name: str) -> str:
        return name if alias == self.default else f"{alias}/{name}"

    async def show_model(self, model: str) -> ModelInfo:
        """Return one model, under the name that was asked for; raises as the provider does."""
        provider, name = self.resolve(model)
        with self._telling_errors(provider), _not_found_as(model, name):
            info = await provider.show_model(name)
        return replace(info, name=model, provider=provider.alias)

    async def embed(self, request: EmbeddingRequest) -> Embeddings:
        """Return a vector for each text, by several requests where there are many.

        Raises:
            MochiError: what ``Provider.embed`` raises.
        """
        provider, name = self.resolve(request.model)
        vectors: list[Sequence[float]] = []
        tokens = 0
        for start in range(0, len(request.texts) or 1, TEXTS_AT_ONCE):
            texts = request.texts[start : start + TEXTS_AT_ONCE]
            with self._telling_errors(provider), _not_found_as(request.model, name):
                made = await provider.embed(replace(request, model=name, texts=texts))
            vectors += made.vectors
            tokens += made.prompt_tokens
        return Embeddings(vectors=vectors, prompt_tokens=tokens)

    @contextmanager
    def _telling_errors(self, provider: Provider) -> Iterator[None]:
        try:
            yield
        except ProviderError as error:
            if self.on_error is not None:
                self.on_error(provider.alias, error)
            raise

    async def pullable_models(self) -> list[PullableModel]:
        """Return what the providers can fetch, under the names by which requests call it."""
        return [
            replace(model, name=self.full_name(alias, model.name))
            for alias in self.aliases
            for model in await self._providers[alias].pullable_models()
        ]

    async def models_of(self, alias: str) -> list[ModelInfo]:
        """Return every model of a provider, under the names by which requests call them.

        Raises:
            HasNoModel: it has none, and knows why.
        """
        provider = self._providers[alias]
        with self._telling_errors(provider):
            models = await provider.list_models()
        if not models and (reason := await provider.problem()) is not None:
            raise HasNoModel(reason)
        full_name = partial(self.full_name, alias)
        return [replace(one, name=full_name(one.name), provider=alias) for one in models]

    async def list_models(self) -> ModelList:
        """Return every model of every provider that answers, asked all at once.

        Raises:
            MochiError: no provider has a model, and this is why the first one that failed has
                none; ``details["problems"]`` has every provider's reason.
        """
        aliases = self.aliases
        answers = await asyncio.gather(*map(self._models_or_error, aliases))
        models = [model for answer in answers if isinstance(answer, list) for model in answer]
        pairs = zip(aliases, answers, strict=True)
        errors = [(alias, error) for alias, error in pairs if isinstance(error, MochiError)]
        problems = [problem_of(alias, error) for alias, error in errors]
        failed = (error for _, error in errors if not isinstance(error, HasNoModel))
        if not models and (error := next(failed, None)) is not None:
            error.details["problems"] = list[JsonValue](problems)
            raise error
        return ModelList(models=models, problems=problems)

    async def loaded_models(self) -> list[LoadedModel]:
        """Return the models that are loaded, under their full names, of providers that answer."""
        aliases = self.aliases
        answers = await asyncio.gather(
            *(self._providers[alias].loaded_models() for alias in aliases), return_exceptions=True
        )
        loaded: list[LoadedModel] = []
        for alias, answer in zip(aliases, answers, strict=True):
            if isinstance(answer, MochiError):
                continue
            if isinstance(answer, BaseException):
                raise answer
            for each in answer:
                name = self.full_name(alias, each.model.name)
                loaded.append(replace(each, model=replace(each.model, name=name, provider=alias)))
        return loaded

    async def first_model(self, *, tools: bool = False) -> str:
        """Return the full name of the first model that there is, of the default provider if it can.

        Args:
            tools: Whether it must be able to call tools.

        Raises:
            ModelNotFound: there is none.
            MochiError: there is none, as the first provider that failed did not answer.
        """
        failed: MochiError | None = None
        for alias in self.aliases:
            answer = await self._models_or_error(alias)
            if isinstance(answer, MochiError):
                failed = failed or answer
                continue
            for model in answer:
                if model.can_call_tools or not tools:
                    return model.name
        wanted = "model that can call tools" if tools else "model"
        raise failed or ModelNotFound(f"There is no {wanted}.")

    async def _models_or_error(self, alias: str) -> list[ModelInfo] | MochiError:
        with anyio.move_on_after(LIST_SECONDS):
            try:
                return await self.models_of(alias)
            except MochiError as error:
                return error
            except Exception:
                logger.exception("The provider %s failed to list its models", alias)
                return InternalError()
        return ProviderUnreachable(f"No answer within {LIST_SECONDS:g} s.")

    async def aclose(self) -> None:
        """Close every provider, also when one of them fails to."""
        results = await asyncio.gather(
            *(provider.aclose() for provider in self._providers.values()), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result


@contextmanager
def _not_found_as(model: str, name: str) -> Iterator[None]:
    """Name a model that a provider does not have as it was asked for."""
    try:
        yield
    except ModelNotFound as error:
        message = error.message.replace(f"Model {name!r}", f"Model {model!r}", 1)
        raise ModelNotFound(message, details={**error.details, "model": model}) from error


def problem_of(alias: str, error: MochiError) -> JSONObject:
    return {"provider": alias, "code": error.code, "message": error.message}
