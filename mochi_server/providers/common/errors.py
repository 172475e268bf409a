"""What vendors say when they refuse, as errors with our names: the one table for all of them."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any, Final
from urllib.parse import urljoin, urlsplit, urlunsplit

from ...config.installation import install_command
from ...errors import (
    ContextOverflow,
    JSONObject,
    MochiError,
    ModelNotFound,
    ProviderBusy,
    ProviderError,
    ProviderNotConfigured,
)
from .tool_calls import count_of

BUSY: Final = frozenset({
    "429", "503", "529", "rate_limit_error", "rate_limit_exceeded", "overloaded_error",
    "engine_overloaded_error", "server_overloaded", "RESOURCE_EXHAUSTED", "UNAVAILABLE",
})  # fmt: skip
SPENT: Final = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_error"})
"""Answered with 429 as well; waiting does not help."""

UNKNOWN_MODEL: Final = frozenset({"404", "not_found_error", "model_not_found", "NOT_FOUND"})
TOO_LONG: Final = frozenset({
    "413", "context_length_exceeded", "exceed_context_size_error", "request_too_large",
})  # fmt: skip
_LONGEST_WAIT: Final = 10**9
"""In seconds; what is longer is a mistake."""

_NOT_OF_LENGTH: Final = frozenset({"401", "402", "403", "404", "429", "503", "529"})
_TOO_LONG_WORDS: Final = tuple(
    re.compile(pattern, re.IGNORECASE | re.DOTALL)
    for pattern in (
        r"prompt is too long(?:: (?P<needed>\d+) tokens > (?P<room>\d+))?",
        r"exceed context limit: (?P<needed>\d+) \+ (?P<reply>\d+) > (?P<room>\d+)",
        r"token count (?:of )?\(?(?P<needed>\d+)\)? exceeds .*?(?P<room>\d+)",
        # With the room that was wanted for the reply
        r"is too large: (?P<reply>\d+)\..* length is (?P<room>\d+) .* has (?P<needed>\d+) input",
        r"length is (?P<room>\d+) .*requested (?P<reply>\d+) output .* (?P<needed>\d+) input",
        r"passed (?P<needed>\d+) input .*requested (?P<reply>\d+) output .* only (?P<room>\d+)",
        (
            r"length is (?P<room>\d+) .*requested (?:about )?(?P<total>\d+) tokens \(.*"
            r" (?P<reply>\d+) (?:in|for) the (?:completion|output)"
        ),
        # Without
        r"maximum (?:context|prompt) length is (?P<room>\d+).*?(?P<needed>\d+)",
        r"\((?P<needed>\d+) tokens\) (?:exceeds|is longer).*? context \w+ \((?P<room>\d+)",
        r"prompt \((?:total )?length (?P<needed>\d+)\) .* length (?:of )?(?P<room>\d+)",
        r"exceeded model token limit: (?P<room>\d+)(?: \(requested: (?P<needed>\d+))?",
        r"maximum (?:context|prompt) length|available context size|context the overflows",
        r"(?:exceed\w*|greater|longer|larger) (?:than )?(?:the )?(?:\S+ )?(?:maximum )?context",
        r"too large for model with|reduce the length of the (?:messages|input|prompt)",
        r"context (?:window exceeds|size has been exceeded)|prompt exceeds max",
        r"input is too long|range of input length",
    )
)
_LIMIT_TOO_LARGE: Final = re.compile(r"max_(?:completion_)?tokens\S* is too large")
"""Not the prompt, though the context length may be named as well."""


def _counts_in(words: str) -> Mapping[str, int] | None:
    """The numbers in words that say that a prompt is too long; None for other words.

    The room is what the reply that was asked for leaves to the prompt.
    """
    matches = (pattern.search(words) for pattern in _TOO_LONG_WORDS)
    found = next(filter(None, matches), None)
    if found is None:
        return None
    said = {key: int(value) for key, value in found.groupdict().items() if value}
    reply = said.pop("reply", None)
    if reply is None:
        return None if _LIMIT_TOO_LARGE.search(words) else said
    if (total := said.pop("total", None)) is not None:
        said["needed"] = total - reply
    said["room"] -= reply
    return said if said["room"] > 0 else None  # no prompt were short enough


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A refusal, as far as the vendors' have something in common."""

    words: str
    """The service's own."""
    status: int | None = None
    """Of HTTP; None, or 200, for an event in mid-stream."""
    codes: tuple[object, ...] = ()
    """Names that it gives the error; the first is shown."""
    is_spent: bool = False
    """Whether a quota is used up that waiting does not give back."""
    retry_after: int | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    """``n_prompt_tokens`` and ``n_ctx``, where it tells them apart from its words."""

    def without(self, hide: Callable[[str], str]) -> Failure:
        """The same, its words and codes as ``hide`` shows them."""
        codes = tuple(None if code is None else hide(str(code)) for code in self.codes)
        return replace(self, words=hide(self.words), codes=codes)

    def redirecting(self, answer: Any) -> Failure:  # noqa: ANN401 - the HTTP library's
        """The same; where the answer is a redirect, its words say where it points."""
        if not getattr(answer, "has_redirect_location", False):
            return self
        where = _target_of(str(answer.url), answer.headers["location"])
        words = f"it redirects to {where}. Redirects are not followed: correct its address."
        return replace(self, words=words)

    def as_error(self, alias: str, model: str | None) -> MochiError:
        """The error with our name, for a provider and the model that was asked."""
        codes = {str(code) for code in (self.status, *self.codes) if code is not None}
        details: JSONObject = {"provider": alias}
        if self.codes:
            details["upstream_code"] = str(self.codes[0]) if self.codes[0] is not None else None
        if self.status is not None:
            details["upstream_status"] = self.status
        if self.is_spent or codes & SPENT:
            return ProviderError(f"Provider {alias!r}: {self.words}", details=details)
        if (counts := self._too_long(codes)) is not None:
            details |= {"upstream": self.words, **counts}
            return ContextOverflow(model=model, details=details)
        if codes & BUSY:
            words = f"Provider {alias!r} is busy: {self.words}"
            return ProviderBusy(words, details=details, retry_after=self.retry_after)
        if codes & UNKNOWN_MODEL and model is not None:
            words = f"Model {model!r} is not available: {self.words}"
            return ModelNotFound(words, details={**details, "model": model})
        return ProviderError(f"Provider {alias!r}: {self.words}", details=details)

    def _too_long(self, codes: set[str]) -> Mapping[str, int] | None:
        """What is known of a prompt that is too long; None where that is not the failure."""
        said = None if codes & _NOT_OF_LENGTH else _counts_in(self.words)
        if said is None:
            return _sane(self.counts) if codes & TOO_LONG else None
        names = {"needed": "n_prompt_tokens", "room": "n_ctx"}
        return _sane({**{names[key]: count for key, count in said.items()}, **self.counts})


def _target_of(url: str, location: str) -> str:
    """Where a redirect points, without login and query."""
    try:
        parts = urlsplit(urljoin(url, location))
    except ValueError:
        return "what is no address"
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _sane(counts: Mapping[str, int]) -> Mapping[str, int]:
    """Those that can be numbers of tokens, and can be sent on."""
    return {name: count for name, count in counts.items() if count_of(count) is not None}


def not_configured(alias: str, variable: str) -> ProviderNotConfigured:
    """The error of a provider without key."""
    return ProviderNotConfigured(
        f"Provider {alias!r} is not configured: set {variable}.", details={"provider": alias}
    )


def not_installed(alias: str, package: str, extra: str) -> ProviderNotConfigured:
    """The error of a provider without its package."""
    return ProviderNotConfigured(
        f"Provider {alias!r} needs the package {package}: {install_command(extra)}",
        details={"provider": alias},
    )


def http_errors() -> tuple[type[Exception], ...]:
    """What the SDKs' HTTP libraries raise; SDKs let them through in the middle of a stream."""
    loaded = [sys.modules.get(name) for name in ("httpx", "httpx2")]
    names = ("HTTPError", "InvalidURL")
    return tuple(getattr(module, name) for module in loaded if module for name in names)


def wait_of(headers: Mapping[str, str]) -> int | None:
    """How long a service wants to be left alone, in seconds, rounded up."""
    found = seconds_of(headers.get("retry-after"))
    if found is None and (milliseconds := headers.get("retry-after-ms", "")).isdecimal():
        found = seconds_of(f"{milliseconds}e-3")
    return found


def seconds_of(header: str | None) -> int | None:
    """The seconds of a ``Retry-After``, rounded up, whether it counts them or names the instant."""
    if not header:
        return None
    try:
        return min(max(0, -int(-float(header) // 1)), _LONGEST_WAIT)
    except (ValueError, OverflowError):
        pass
    try:
        until = parsedate_to_datetime(header)
    except (ValueError, OverflowError):
        return None
    if until.tzinfo is None:  # "-0000"
        until = until.replace(tzinfo=timezone.utc)
    left = (until - datetime.now(timezone.utc)).total_seconds()
    return min(max(0, -int(-left // 1)), _LONGEST_WAIT)
