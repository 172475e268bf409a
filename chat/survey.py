"""What every provider has and whether it answers; asked seldom, side by side, never for long."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field, replace

from mochi_server.errors import InternalError, JSONObject, MochiError, ProviderUnreachable
from mochi_server.messages import now
from mochi_server.providers.base import ModelInfo
from mochi_server.runtime import Runtime

LIMIT_SECONDS = 3.0
"""A provider that has not told its models by then is given up."""

FRESH_SECONDS = 60.0
"""Age up to which an answer is given again."""


@dataclass(slots=True, kw_only=True)
class ProviderAnswer:
    """One provider, as far as it has answered."""

    configured: bool
    reachable: bool = False
    latency_ms: float | None = None
    """Until it said that it is there."""
    models: list[ModelInfo] | None = None
    """Null where it did not tell."""
    problem: JSONObject | None = None
    """``{"provider", "code", "message"}``"""


@dataclass(frozen=True, slots=True)
class Survey:
    """All providers at one moment."""

    providers: dict[str, ProviderAnswer] = field(default_factory=dict)
    """By alias, the default one first."""
    checked_at: str = field(default_factory=now)


class ModelSurvey:
    """The survey of a runtime; one at a time, however many ask."""

    def __init__(
        self, runtime: Runtime, *, limit: float = LIMIT_SECONDS, fresh: float = FRESH_SECONDS
    ) -> None:
        """Ask the runtime's providers.

        Args:
            runtime: whose.
            limit: seconds after which one that hangs is given up.
            fresh: seconds for which an answer is given again.
        """
        self.runtime = runtime
        self._limit = limit
        self._fresh = fresh
        self._last: Survey | None = None
        self._at = float("-inf")
        self._asking: asyncio.Task[Survey] | None = None

    async def read(self) -> Survey:
        """The last one if it is fresh, else a new one; never later than the limit."""
        if self._last is not None and time.monotonic() - self._at <= self._fresh:
            return self._last
        if self._asking is None or self._asking.done():
            self._asking = self.runtime.background.spawn(self._ask_all(), name="survey of models")
        return await asyncio.shield(self._asking)

    async def _ask_all(self) -> Survey:
        registry = self.runtime.providers
        found = {
            alias: ProviderAnswer(configured=registry.get(alias).configured)
            for alias in registry.known
        }
        tasks = {
            self.runtime.background.spawn(self._ask(alias, answer), name=f"models of {alias}"): (
                alias,
                answer,
            )
            for alias, answer in found.items()
            if answer.configured
        }
        if tasks:
            await asyncio.wait(tasks, timeout=self._limit)
        for task, (alias, answer) in tasks.items():
            self._settle(task, alias, answer)
        self._last = Survey(found)
        self._at = time.monotonic()
        return self._last

    async def _ask(self, alias: str, answer: ProviderAnswer) -> None:
        """Fill in the answer step by step: what is known stays when the time is over."""
        registry = self.runtime.providers
        provider = registry.get(alias)
        begin = time.perf_counter()
        try:
            if await provider.check():
                answer.reachable = True
                answer.latency_ms = round((time.perf_counter() - begin) * 1000, 1)
            models = await provider.list_models()
            reason = None if models else await provider.problem()
        except MochiError as error:
            answer.problem = problem_of(alias, error.code, error.message)
            return
        answer.models = [
            replace(one, name=registry.full_name(alias, one.name), provider=alias) for one in models
        ]
        if reason is not None:
            answer.problem = problem_of(alias, "PROVIDER_NOT_CONFIGURED", reason)

    def _settle(self, task: asyncio.Task[None], alias: str, answer: ProviderAnswer) -> None:
        """Say of one that hangs, or has failed in a way of its own, what is wrong."""
        if not task.done():
            task.cancel()  # and not waited for: it may take its time over that as well
            text = f"No answer within {self._limit:g} s."
            answer.problem = problem_of(alias, ProviderUnreachable.code, text)
        elif not task.cancelled() and task.exception() is not None:  # logged by its owner
            error = InternalError()
            answer.problem = problem_of(alias, error.code, error.message)


def problem_of(alias: str, code: str, message: str) -> JSONObject:
    """What is wrong with a provider."""
    return {"provider": alias, "code": code, "message": message}


_current: ModelSurvey | None = None


def survey_of(runtime: Runtime) -> ModelSurvey:
    """The one of this runtime."""
    global _current  # noqa: PLW0603 - as long as the runtime itself
    if _current is None or _current.runtime is not runtime:
        _current = ModelSurvey(runtime)
    return _current
