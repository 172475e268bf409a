"""What the vendors' adapters share: patience with a busy service, replies with a schema."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Final

import anyio
from pydantic import SecretStr, ValidationError

from ..errors import MochiError, ProviderBusy, ProviderError, ProviderNotConfigured
from .base import Chunk, ContentDelta, ModelRequest, Provider, T

ATTEMPTS: Final = 3
LONGEST_PAUSE_SECONDS: Final = 10.0
"""A service that wants more time than that is the client's to wait for."""

FIRST_PAUSE_SECONDS: Final = 0.5
CHECK_SECONDS: Final = 5.0


async def patiently(
    once: Callable[[], AsyncGenerator[Chunk, None]], *, attempts: int = ATTEMPTS
) -> AsyncGenerator[Chunk, None]:
    """The stream of ``once()``, again when the service was busy and nothing had come.

    Waits as long as the service says (``Retry-After``), else half a second, then a whole one.

    Raises:
        ProviderBusy: it still is, or wants more than ten seconds, or was in mid-stream.
    """
    for attempt in range(1, attempts + 1):
        begun = False
        try:
            async with aclosing(once()) as chunks:
                async for chunk in chunks:
                    begun = True
                    yield chunk
        except ProviderBusy as error:
            pause = _pause(error, attempt)
            if begun or attempt == attempts or pause > LONGEST_PAUSE_SECONDS:
                raise
        else:
            return
        await anyio.sleep(pause)


def _pause(error: ProviderBusy, attempt: int) -> float:
    """Seconds to wait after an attempt."""
    if error.retry_after is not None:
        return error.retry_after
    return FIRST_PAUSE_SECONDS * float(2 ** (attempt - 1))


async def structured_reply(provider: Provider, request: ModelRequest, shape: type[T]) -> T:
    """A reply that validates as ``shape``, from a provider whose stream obeys ``schema``.

    Raises:
        ProviderError: the reply does not validate, or was cut.
    """
    asked = replace(request, schema=shape.model_json_schema())
    text = ""
    async with aclosing(provider.stream(asked)) as chunks:
        async for chunk in chunks:
            if isinstance(chunk, ContentDelta):
                text += chunk.content
    try:
        return shape.model_validate_json(text)
    except ValidationError as error:
        raise ProviderError(
            f"Model {request.model!r} did not answer in the shape of {shape.__name__}.",
            details={"reply": text[:1000], "problems": error.error_count()},
        ) from error


async def lists_models(provider: Provider) -> bool:
    """Whether a provider lists its models now, within five seconds."""
    try:
        with anyio.fail_after(CHECK_SECONDS):
            await provider.list_models()
    except (MochiError, TimeoutError):
        return False
    return True


def plain(key: SecretStr | str | None) -> str | None:
    """The text of a key."""
    return key.get_secret_value() if isinstance(key, SecretStr) else key


def not_configured(alias: str, variable: str) -> ProviderNotConfigured:
    """The error of a provider without key."""
    return ProviderNotConfigured(
        f"Provider {alias!r} is not configured: set {variable}.", details={"provider": alias}
    )


def not_installed(alias: str, package: str, extra: str) -> ProviderNotConfigured:
    """The error of a provider without its package."""
    return ProviderNotConfigured(
        f"Provider {alias!r} needs the package {package}: pip install 'mochi-server[{extra}]'",
        details={"provider": alias},
    )


def http_errors() -> tuple[type[Exception], ...]:
    """What the SDKs' HTTP libraries raise; SDKs let them through in the middle of a stream."""
    loaded = [sys.modules.get(name) for name in ("httpx", "httpx2")]
    return tuple(module.HTTPError for module in loaded if module is not None)


def seconds_of(header: str | None) -> int | None:
    """The seconds of a ``Retry-After``, rounded up; None for a date, and for none."""
    try:
        return max(0, -int(-float(header or "") // 1))
    except (ValueError, OverflowError):
        return None
