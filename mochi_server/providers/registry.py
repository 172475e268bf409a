"""Which provider runs a model: ``alias/name``, or a name of the default provider."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from functools import partial
from typing import Final

import anyio
from pydantic import JsonValue

from ..core.aio import in_thread
from ..errors import (
    InternalError,
    JSONObject,
    MochiError,
    ModelNotFound,
    ProviderError,
    ProviderNotConfigured,
    ProviderUnreachable,
)
from .base import EmbeddingRequest, Embeddings, LoadedModel, ModelInfo, Provider, PullableModel

LIST_SECONDS: Final = 40.0
"""Longest wait for a provider's models, imports included; our own providers give up earlier."""

TEXTS_AT_ONCE: Final = 64
"""Texts that one request embeds: its answer must not be longer than ``MAX_RESPONSE``."""

NEAREST: Final = 3
"""Most models that are named in the place of one that is nowhere."""
NEAREST_SECONDS: Final = 2.0
"""Longest wait for the names of a provider's models, to name one of them."""
LEAST_LIKENESS: Final = 0.6

logger = logging.getLogger(__name__)


class NobodyHasModel(ModelNotFound):
    """The provider does not answer, is not known to have had the model, and no other one has it."""


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
        async with self._finding(model, provider, name):
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
            async with self._finding(request.model, provider, name):
                made = await provider.embed(replace(request, model=name, texts=texts))
            vectors += made.vectors
            tokens += made.prompt_tokens
        return Embeddings(vectors=vectors, prompt_tokens=tokens)

    @asynccontextmanager
    async def _finding(self, model: str, provider: Provider, name: str) -> AsyncIterator[None]:
        """Name a model that is nowhere as it was asked for, and others like it."""
        try:
            with self._telling_errors(provider):
                yield
        except ModelNotFound as error:
            text = error.message.replace(f"Model {name!r}", f"Model {model!r}", 1)
            nearest = await self._nearest(model)
            details = {**error.details, **_details(model, nearest)}
            raise ModelNotFound(text + _hint(nearest), details=details) from error
        except ProviderUnreachable as error:
            if provider.may_have(name):
                raise
            nearest = await self._nearest(model)
            text = f"No provider that answers has a model {model!r}.{_hint(nearest)}"
            details = _details(model, nearest)
            details["problems"] = list[JsonValue]([problem_of(provider.alias, error)])
            raise NobodyHasModel(text, details=details) from error

    async def _nearest(self, model: str) -> list[str]:
        """Return the names of models that are there, and nearest to that of one that is not."""
        listed = await asyncio.gather(
            *(self._models_or_error(alias, NEAREST_SECONDS) for alias in self.aliases)
        )
        names = [one.name for each in listed if isinstance(each, list) for one in each]
        return await in_thread(nearest_names, model, names)

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

        ``tools``: it must be able to call tools.

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

    async def _models_or_error(
        self, alias: str, seconds: float | None = None
    ) -> list[ModelInfo] | MochiError:
        seconds = LIST_SECONDS if seconds is None else seconds
        with anyio.move_on_after(seconds):
            try:
                return await self.models_of(alias)
            except MochiError as error:
                return error
            except Exception:
                logger.exception("The provider %s failed to list its models", alias)
                return InternalError()
        return ProviderUnreachable(f"No answer within {seconds:g} s.")

    async def aclose(self) -> None:
        """Close every provider, also when one of them fails to."""
        results = await asyncio.gather(
            *(provider.aclose() for provider in self._providers.values()), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result


def nearest_names(model: str, names: Iterable[str]) -> list[str]:
    """Return the names most like one, best first; providers and tags tell only equal ones apart."""

    def likeness(name: str) -> tuple[float, float]:
        pairs = ((_short(name), _short(model)), (name.casefold(), model.casefold()))
        short, full = (SequenceMatcher(None, *pair).ratio() for pair in pairs)
        return short, full

    alike = [(likeness(name), name) for name in names]
    found = sorted((each for each in alike if each[0][0] >= LEAST_LIKENESS), reverse=True)
    return [name for _, name in found[:NEAREST]]


def _short(name: str) -> str:
    """Return a name without its provider, the folders of its maker, and its tag."""
    return name.rpartition("/")[2].partition(":")[0].casefold()


def _hint(nearest: Sequence[str]) -> str:
    return f" Did you mean {' or '.join(map(repr, nearest))}?" if nearest else ""


def _details(model: str, nearest: Sequence[str]) -> JSONObject:
    return {"model": model, "nearest": list[JsonValue](nearest)}


def problem_of(alias: str, error: MochiError) -> JSONObject:
    return {"provider": alias, "code": error.code, "message": error.message}
