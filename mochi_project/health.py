"""Which providers answer, and whether Redis does; asked seldom and never for long."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache, partial

from mochi_server.core.single_flight import CachedResult
from mochi_server.errors import MochiError
from mochi_server.runtime import Runtime

from .probe import answer_of, ask_all

LIMIT_SECONDS = 1.0
"""A provider that has not answered by then counts as not reachable."""

FRESH_SECONDS = 3.0
"""Age up to which an answer is given again."""

BELIEVED_SECONDS = 60.0
"""How long a service is believed to be there that counts what is asked of it, once it was."""

REDIS = "redis"


@dataclass(frozen=True, slots=True)
class Reachable:
    """Who answers."""

    providers: dict[str, bool]
    """By alias, in the order of the aliases."""
    redis: bool | None
    """Null where none is configured."""


async def ask(runtime: Runtime, believed: dict[str, float]) -> Reachable:
    """Ask all of them.

    Args:
        runtime: whose providers.
        believed: the times by alias until which those are that were there lately; kept by this.
    """
    aliases = runtime.providers.aliases
    questions = {f"check of {alias}": _check(runtime, alias, believed) for alias in aliases}
    if runtime.settings.redis_url is not None:
        questions[REDIS] = runtime.confirmations.check()
    found = await ask_all(questions, tasks=runtime.background, limit=LIMIT_SECONDS)
    return Reachable(
        providers={alias: answer_of(found[f"check of {alias}"]) or False for alias in aliases},
        redis=(answer_of(found[REDIS]) or False) if REDIS in found else None,
    )


async def _check(runtime: Runtime, alias: str, believed: dict[str, float]) -> bool:
    if believed.get(alias, 0.0) > time.monotonic():
        return True
    provider = runtime.providers.get(alias)
    try:
        is_there = await provider.check()
    except MochiError:  # not configured
        return False
    if is_there and provider.lists_to_check:
        believed[alias] = time.monotonic() + BELIEVED_SECONDS
    return is_there


@lru_cache(maxsize=1)
def health_of(runtime: Runtime) -> CachedResult[Reachable]:
    """Who answers this runtime."""
    return CachedResult(
        partial(ask, runtime, {}),
        tasks=runtime.background,
        fresh_seconds=FRESH_SECONDS,
        name="check of the providers",
    )
