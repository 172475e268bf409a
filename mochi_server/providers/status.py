"""Whether providers and their models answer: asked side by side, seldom, and never for long."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ..core.aio import BackgroundTasks
from ..core.single_flight import CachedResult
from ..errors import (
    InternalError,
    JSONObject,
    MochiError,
    ProviderNotConfigured,
    ProviderUnreachable,
)
from ..protocol.completions import ModelInfo
from ..protocol.messages import now
from .registry import ProviderRegistry, problem_of

REACHABLE_SECONDS = 1.0
"""A provider that has not said by then that it is there counts as not reachable."""
REACHABLE_FRESH_SECONDS = 3.0
"""Age up to which it is not asked again who is reachable."""
BELIEVED_SECONDS = 60.0
"""How long a service that counts requests is believed to be reachable, once it was."""
STATUS_SECONDS = 3.0
STATUS_FRESH_SECONDS = 60.0
"""Age up to which a status is returned again."""
PREPARE_SECONDS = 30.0
"""Longest wait for what a provider does once before it is asked, such as importing its package:
its service is not silent meanwhile. After that time it is asked all the same."""
PROBE_SECONDS = 30.0
"""Longest wait for models to begin a reply, all of them together."""
MODELS_AT_ONCE = 8
"""Models of one provider that are asked at the same time: vendors refuse too many requests."""
K = TypeVar("K")
T = TypeVar("T")


class NoAnswerInTime(ProviderUnreachable):
    """The provider was asked and has not answered within its time."""


@dataclass(frozen=True, slots=True)
class Reachability:
    """Which services answer."""

    providers: dict[str, bool]
    redis: bool | None


@dataclass(slots=True, kw_only=True)
class ModelAvailability:
    """One model that a provider lists."""

    available: bool = True
    """False where it did not answer, or is not there."""
    asked: bool = False
    """Whether it has begun a reply; else it is only listed, or was looked up."""
    latency_ms: float | None = None
    """Until it began to reply, or was looked up; None without a probe."""
    problem: JSONObject | None = None


@dataclass(slots=True, kw_only=True)
class ProviderStatus:
    """One provider, as far as it has answered."""

    configured: bool
    """Whether it has what it needs, as far as is known without its service."""
    reachable: bool = False
    latency_ms: float | None = None
    models: list[ModelInfo] | None = None
    problem: JSONObject | None = None
    model_status: dict[str, ModelAvailability] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StatusReport:
    """All providers at one moment."""

    providers: dict[str, ProviderStatus]
    """By alias, the default one first; also those that are not configured."""
    checked_at: str = field(default_factory=now)


class ProviderChecks:
    """What clients ask about providers; whoever asks meanwhile shares the answer.

    Args:
        registry: The providers.
        tasks: Where the checks run, as whoever asked may leave before their end.
        redis: Asks whether Redis answers; None where none is configured.
    """

    def __init__(
        self,
        registry: ProviderRegistry,
        *,
        tasks: BackgroundTasks,
        redis: Callable[[], Coroutine[Any, Any, bool]] | None = None,
    ) -> None:
        self._registry, self._tasks, self._redis = registry, tasks, redis
        self._believed_until: dict[str, float] = {}
        """By alias, until when a service that counts requests is believed to be reachable."""
        self.reachability = self._cached(self.check_reachability, REACHABLE_FRESH_SECONDS)
        self.status = self._cached(self.check_providers, STATUS_FRESH_SECONDS)
        self.status_of_models = self._cached(self.check_models, 0)

    def _cached(
        self, compute: Callable[[], Coroutine[Any, Any, T]], seconds: float
    ) -> CachedResult[T]:
        name = f"status: {compute.__name__}"
        return CachedResult(compute, tasks=self._tasks, fresh_seconds=seconds, name=name)

    async def check_reachability(self) -> Reachability:
        """Ask every configured provider whether it is there."""
        aliases = self._registry.aliases
        questions = {("provider", alias): self._is_reachable(alias) for alias in aliases}
        if self._redis is not None:
            questions["redis", ""] = self._redis()
        answers = await _ask_all(
            questions, tasks=self._tasks, name="check of", limit=REACHABLE_SECONDS
        )
        reachable = {key: answer is True for key, answer in answers.items()}
        return Reachability(
            providers={alias: reachable["provider", alias] for alias in aliases},
            redis=reachable.get(("redis", "")),
        )

    async def _is_reachable(self, alias: str) -> bool:
        if self._believed_until.get(alias, 0.0) > time.monotonic():
            return True
        provider = self._registry.get(alias)
        reachable = await provider.check()
        if reachable and provider.check_costs_request:
            self._believed_until[alias] = time.monotonic() + BELIEVED_SECONDS
        return reachable

    async def check_providers(self, limit: float = STATUS_SECONDS) -> StatusReport:
        """Ask every configured provider for its models, each for at most ``limit`` seconds."""
        registry = self._registry
        statuses = {
            alias: ProviderStatus(configured=registry.get(alias).configured)
            for alias in registry.all_aliases
        }
        answers = await ask_providers(
            registry,
            lambda alias: self._complete(statuses[alias], alias),
            aliases=[alias for alias, status in statuses.items() if status.configured],
            tasks=self._tasks,
            limit=limit,
        )
        for alias, error in answers.items():
            if error is not None:
                statuses[alias].configured = not isinstance(error, ProviderNotConfigured)
                statuses[alias].problem = problem_of(alias, error)
        for status in statuses.values():
            status.model_status = {model.name: ModelAvailability() for model in status.models or ()}
        return StatusReport(statuses)

    async def _complete(self, status: ProviderStatus, alias: str) -> None:
        """Write down each answer as it comes: it stays when the time is over."""
        provider = self._registry.get(alias)
        began = time.perf_counter()
        if not provider.check_costs_request and await provider.check():
            status.reachable, status.latency_ms = True, _milliseconds_since(began)
        status.models = await self._registry.models_of(alias)
        if provider.check_costs_request:
            status.reachable, status.latency_ms = True, _milliseconds_since(began)

    async def check_models(self, limit: float = PROBE_SECONDS) -> StatusReport:
        """Ask the providers, and every model for one token, within ``limit`` seconds."""
        report = await self.check_providers()
        models: dict[tuple[str, str], ModelAvailability] = {}
        questions: dict[tuple[str, str], Coroutine[Any, Any, None]] = {}
        for alias, status in report.providers.items():
            slots = asyncio.Semaphore(MODELS_AT_ONCE)
            for name, model in status.model_status.items():
                models[alias, name] = model
                questions[alias, name] = self._ask_model(model, name, slots)
        answers = await _ask_all(
            questions, tasks=self._tasks, name="question to the model", limit=limit
        )
        for (alias, name), error in answers.items():
            if error is not None:
                models[alias, name].available = False
                models[alias, name].problem = {**problem_of(alias, error), "model": name}
        return report

    async def _ask_model(
        self, status: ModelAvailability, name: str, slots: asyncio.Semaphore
    ) -> None:
        provider, own_name = self._registry.resolve(name)
        async with slots:
            began = time.perf_counter()
            status.asked = await provider.probe(own_name)
            status.latency_ms = _milliseconds_since(began)


async def ask_providers(
    registry: ProviderRegistry,
    ask: Callable[[str], Coroutine[Any, Any, T]],
    *,
    aliases: Iterable[str],
    tasks: BackgroundTasks,
    limit: float,
) -> dict[str, T | MochiError]:
    """Prepare the providers of these aliases, then ask them side by side, for ``limit`` seconds.

    Preparing comes first and has a time of its own: importing a package is no wait for an answer,
    and slows down all others.

    Returns:
        By alias, the answer or why there is none, as :func:`_ask_all` says.
    """
    preparations = {alias: registry.get(alias).prepare() for alias in aliases}
    prepared = await _ask_all(
        preparations, tasks=tasks, name="preparation of", limit=PREPARE_SECONDS
    )
    refused = {
        alias: error
        for alias, error in prepared.items()
        if isinstance(error, ProviderNotConfigured)
    }
    questions = {alias: ask(alias) for alias in prepared if alias not in refused}
    answers = await _ask_all(questions, tasks=tasks, name="question to", limit=limit)
    return {alias: refused.get(alias) or answers[alias] for alias in prepared}


async def _ask_all(
    questions: Mapping[K, Coroutine[Any, Any, T]],
    *,
    tasks: BackgroundTasks,
    name: str,
    limit: float,
) -> dict[K, T | MochiError]:
    """Run all side by side, and give up after ``limit`` seconds those that have not ended.

    What is given up is cancelled and not waited for: it may take its time over that as well.

    Returns:
        By key, what came back, or the error that was raised: :class:`NoAnswerInTime` of what was
        given up; :class:`InternalError`, with the exception as its cause, of a mistake.
    """
    running = {
        key: tasks.spawn(_error_as_value(question), name=f"{name} {key}")
        for key, question in questions.items()
    }
    if running:
        _, late = await asyncio.wait(running.values(), timeout=limit)
        for task in late:
            task.cancel()
    return {key: _outcome(task, limit) for key, task in running.items()}


async def _error_as_value(question: Coroutine[Any, Any, T]) -> T | MochiError:
    try:
        return await question
    except MochiError as error:
        return error


def _outcome(task: asyncio.Task[T | MochiError], limit: float) -> T | MochiError:
    if not task.done() or task.cancelled():
        return NoAnswerInTime(f"No answer within {limit:g} s.")
    if (mistake := task.exception()) is None:
        return task.result()
    error = InternalError()
    error.__cause__ = mistake
    return error


def _milliseconds_since(began: float) -> float:
    return round((time.perf_counter() - began) * 1000, 1)
