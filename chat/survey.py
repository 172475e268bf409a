"""What every provider has and whether it answers; asked seldom, side by side, never for long."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

from mochi_project.probe import ask_all
from mochi_server.core.single_flight import CachedResult
from mochi_server.errors import (
    InternalError,
    JSONObject,
    MochiError,
    ProviderNotConfigured,
    ProviderUnreachable,
)
from mochi_server.protocol.messages import now
from mochi_server.providers.base import ModelInfo
from mochi_server.providers.registry import ProviderRegistry, problem_of
from mochi_server.runtime import Runtime

LIMIT_SECONDS = 3.0
"""A provider that has not told its models by then is given up."""

PREPARE_SECONDS = 30.0
"""What a provider does once before it asks, such as importing its package, is no silence of its
service; by then it is asked all the same."""

FRESH_SECONDS = 60.0
"""Age up to which an answer is given again."""


PROBE_SECONDS = 30.0
"""A model that has not begun to reply by then is given up."""

PROBES_AT_ONCE = 8
"""Of one provider; vendors refuse what comes too fast."""


@dataclass(slots=True, kw_only=True)
class ModelAnswer:
    """One model that a provider has listed."""

    available: bool = True
    """False where it was asked and did not answer."""
    latency_ms: float | None = None
    """Until it answered; null where it was not asked."""
    problem: JSONObject | None = None
    """``{"provider", "model", "code", "message"}``"""


@dataclass(slots=True, kw_only=True)
class ProviderAnswer:
    """One provider, as far as it has answered."""

    configured: bool
    """Whether it has what it needs, as far as is known without its service."""
    reachable: bool = False
    latency_ms: float | None = None
    """Until it said that it is there."""
    models: list[ModelInfo] | None = None
    """Null where it did not tell."""
    problem: JSONObject | None = None
    """``{"provider", "code", "message"}``"""
    model_status: dict[str, ModelAnswer] = field(default_factory=dict)
    """By name as in ``models``."""


@dataclass(frozen=True, slots=True)
class Survey:
    """All providers at one moment."""

    providers: dict[str, ProviderAnswer] = field(default_factory=dict)
    """By alias, the default one first."""
    checked_at: str = field(default_factory=now)


async def ask(runtime: Runtime, *, limit: float = LIMIT_SECONDS) -> Survey:
    """Ask every provider that is configured.

    Args:
        runtime: whose providers.
        limit: seconds after which one that hangs is given up; those that it needs once before
            the first question do not count.
    """
    registry = runtime.providers
    found = {
        alias: ProviderAnswer(configured=registry.get(alias).configured) for alias in registry.known
    }
    names = {alias: f"models of {alias}" for alias, one in found.items() if one.configured}
    first = {f"setting up {alias}": _prepare(registry, alias, found[alias]) for alias in names}
    await ask_all(first, tasks=runtime.background, limit=PREPARE_SECONDS)
    names = {alias: name for alias, name in names.items() if found[alias].configured}
    questions = {name: _fill_in(registry, alias, found[alias]) for alias, name in names.items()}
    tasks = await ask_all(questions, tasks=runtime.background, limit=limit)
    for alias, name in names.items():
        if reason := _why_none(tasks[name], limit):
            found[alias].problem = problem_of(alias, reason)
    for one in found.values():
        one.model_status = {model.name: ModelAnswer() for model in one.models or ()}
    return Survey(found)


async def probe(runtime: Runtime, *, limit: float = PROBE_SECONDS) -> Survey:
    """Ask every provider, and then every model that it has.

    Args:
        runtime: whose providers.
        limit: seconds after which models that have not answered are given up.
    """
    survey = await ask(runtime)
    questions: dict[str, Coroutine[Any, Any, None]] = {}
    answers: dict[str, tuple[str, str, ModelAnswer]] = {}
    for alias, one in survey.providers.items():
        turn = asyncio.Semaphore(PROBES_AT_ONCE)
        for name, answer in one.model_status.items():
            task = f"probing {name} of {alias}"
            questions[task] = _probe(runtime.providers, alias, name, answer, turn)
            answers[task] = (alias, name, answer)
    tasks = await ask_all(questions, tasks=runtime.background, limit=limit)
    for task, (alias, name, answer) in answers.items():
        if reason := _why_none(tasks[task], limit):
            _refuse(answer, alias, name, reason)
    return survey


async def _probe(
    registry: ProviderRegistry,
    alias: str,
    name: str,
    answer: ModelAnswer,
    turn: asyncio.Semaphore,
) -> None:
    provider, own_name = registry.resolve(name)
    async with turn:
        begin = time.perf_counter()
        try:
            await provider.probe(own_name)
        except MochiError as error:
            _refuse(answer, alias, name, error)
        else:
            answer.latency_ms = _since(begin)


def _refuse(answer: ModelAnswer, alias: str, name: str, error: MochiError) -> None:
    answer.available = False
    answer.problem = {**problem_of(alias, error), "model": name}


async def _prepare(registry: ProviderRegistry, alias: str, answer: ProviderAnswer) -> None:
    try:
        await registry.get(alias).prepare()
    except MochiError as error:
        _note(alias, error, answer)


def _note(alias: str, error: MochiError, answer: ProviderAnswer) -> None:
    answer.configured = not isinstance(error, ProviderNotConfigured)
    answer.problem = problem_of(alias, error)


async def _fill_in(registry: ProviderRegistry, alias: str, answer: ProviderAnswer) -> None:
    """Step by step: what is known stays when the time is over."""
    provider = registry.get(alias)
    begin = time.perf_counter()
    try:
        if not provider.lists_to_check and await provider.check():
            _heard(answer, begin)
        answer.models = await registry.models_of(alias)
        if provider.lists_to_check:
            _heard(answer, begin)
    except MochiError as error:
        _note(alias, error, answer)


def _heard(answer: ProviderAnswer, begin: float) -> None:
    answer.reachable = True
    answer.latency_ms = _since(begin)


def _since(begin: float) -> float:
    return round((time.perf_counter() - begin) * 1000, 1)


def _why_none(task: asyncio.Task[None], limit: float) -> MochiError | None:
    """Of one that hangs, or has failed in a way of its own, what is wrong."""
    if not task.done():
        return ProviderUnreachable(f"No answer within {limit:g} s.")
    if not task.cancelled() and task.exception() is not None:  # logged by its owner
        return InternalError()
    return None


@lru_cache(maxsize=1)
def survey_of(runtime: Runtime) -> CachedResult[Survey]:
    """The survey of this runtime."""
    return CachedResult(
        partial(ask, runtime),
        tasks=runtime.background,
        fresh_seconds=FRESH_SECONDS,
        name="survey of models",
    )


@lru_cache(maxsize=1)
def probes_of(runtime: Runtime) -> CachedResult[Survey]:
    """The same with every model asked, shared by those who ask meanwhile and never given again."""
    return CachedResult(
        partial(probe, runtime), tasks=runtime.background, fresh_seconds=0, name="probes of models"
    )
