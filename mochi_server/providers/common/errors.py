"""Vendors' refusals as this project's errors, by one table for all of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

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
from .http import without_login
from .values import token_count

BUSY: Final = frozenset({
    "429", "503", "529", "rate_limit_error", "rate_limit_exceeded", "overloaded_error",
    "engine_overloaded_error", "server_overloaded", "RESOURCE_EXHAUSTED", "UNAVAILABLE",
})  # fmt: skip
SPENT: Final = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_error"})
"""Codes of a spent quota, which comes with 429 as well; waiting does not help."""
UNKNOWN_MODEL: Final = frozenset({"404", "not_found_error", "model_not_found", "NOT_FOUND"})
TOO_LONG: Final = frozenset({
    "413", "context_length_exceeded", "exceed_context_size_error", "request_too_large",
})  # fmt: skip
_NOT_OF_LENGTH: Final = frozenset({"401", "402", "403", "404", "429", "503", "529"})
# Whose words each is: tests/mochi_server/providers/test_vendor_failures.py has them whole.
_TOO_LONG_WORDS: Final = tuple(
    re.compile(pattern, re.IGNORECASE | re.DOTALL)
    for pattern in (
        # Of Anthropic
        r"prompt is too long(?:: (?P<needed>\d+) tokens > (?P<room>\d+))?",
        r"exceed context limit: (?P<needed>\d+) \+ (?P<reply>\d+) > (?P<room>\d+)",
        # Of Gemini and of Copilot
        r"token count (?:of )?\(?(?P<needed>\d+)\)? exceeds .*?(?P<room>\d+)",
        # Of vLLM, with the room that was wanted for the reply; the last one also of OpenRouter
        r"is too large: (?P<reply>\d+)\..* length is (?P<room>\d+) .* has (?P<needed>\d+) input",
        r"length is (?P<room>\d+) .*requested (?P<reply>\d+) output .* (?P<needed>\d+) input",
        r"passed (?P<needed>\d+) input .*requested (?P<reply>\d+) output .* only (?P<room>\d+)",
        (
            r"length is (?P<room>\d+) .*requested (?:about )?(?P<total>\d+) tokens \(.*"
            r" (?P<reply>\d+) (?:in|for) the (?:completion|output)"
        ),
        # Without that room. Of OpenAI and vLLM, of llama.cpp and SGLang, of vLLM, of Kimi
        r"maximum (?:context|prompt) length is (?P<room>\d+).*?(?P<needed>\d+)",
        r"\((?P<needed>\d+) tokens\) (?:exceeds|is longer).*? context \w+ \((?P<room>\d+)",
        r"prompt \((?:total )?length (?P<needed>\d+)\) .* length (?:of )?(?P<room>\d+)",
        r"exceeded model token limit: (?P<room>\d+)(?: \(requested: (?P<needed>\d+))?",
        # Without numbers. Of OpenAI, old llama.cpp and LM Studio in the first of these lines
        r"maximum (?:context|prompt) length|available context size|context the overflows",
        r"(?:exceed\w*|greater|longer|larger) (?:than )?(?:the )?(?:\S+ )?(?:maximum )?context",
        # Of Mistral, of Groq
        r"too large for model with|reduce the length of the (?:messages|input|prompt)",
        # Of MiniMax (the first)
        r"context (?:window exceeds|size has been exceeded)|prompt exceeds max",
        # Of Bedrock, of Qwen
        r"input is too long|range of input length",
    )
)
_LIMIT_TOO_LARGE: Final = re.compile(r"max_(?:completion_)?tokens\S* is too large")
"""Matches a refusal of the reply's limit, which may name the context length as well."""


def _counts_in(text: str) -> Mapping[str, int] | None:
    """Return the numbers in a text that says that a prompt is too long; None for other texts.

    ``room`` is what the reply that was asked for leaves to the prompt.
    """
    matches = (pattern.search(text) for pattern in _TOO_LONG_WORDS)
    match = next(filter(None, matches), None)
    if match is None:
        return None
    counts = {key: int(value) for key, value in match.groupdict().items() if value}
    reply = counts.pop("reply", None)
    if reply is None:
        return None if _LIMIT_TOO_LARGE.search(text) else counts
    if (total := counts.pop("total", None)) is not None:
        counts["needed"] = total - reply
    counts["room"] -= reply
    return counts if counts["room"] > 0 else None  # no prompt would be short enough


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A service's refusal of a request, with what all vendors' refusals have."""

    text: str
    status: int | None = None
    """Of HTTP; None, or 200, for an event in mid-stream."""
    codes: tuple[object, ...] = ()
    """Names that it gives the error; the first is shown."""
    retry_after: int | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    """``n_prompt_tokens`` and ``n_ctx``, where it tells them apart from its words."""

    def redacted(self, redact: Callable[[str], str]) -> Refusal:
        codes = tuple(None if code is None else redact(str(code)) for code in self.codes)
        return replace(self, text=redact(self.text), codes=codes)

    def naming_redirect(self, response: Any) -> Refusal:  # noqa: ANN401 - the HTTP library's
        """Return the same; where the response is a redirect, the text says where it points."""
        if not getattr(response, "has_redirect_location", False):
            return self
        try:
            target = without_login(
                urlsplit(urljoin(str(response.url), response.headers["location"]))
            )
        except ValueError:
            target = "what is no address"
        text = f"it redirects to {target}. Redirects are not followed: correct its address."
        return replace(self, text=text)

    def as_error(self, alias: str, model: str | None) -> MochiError:
        """Return the error with our name, for a provider and the model that was asked."""
        codes = {str(code) for code in (self.status, *self.codes) if code is not None}
        details: JSONObject = {"provider": alias}
        if self.codes:
            details["upstream_code"] = str(self.codes[0]) if self.codes[0] is not None else None
        if self.status is not None:
            details["upstream_status"] = self.status
        if codes & SPENT:
            return ProviderError(f"Provider {alias!r}: {self.text}", details=details)
        if (counts := self._overflow(codes)) is not None:
            details |= {"upstream": self.text, **counts}
            return ContextOverflow(model=model, details=details)
        if codes & BUSY:
            message = f"Provider {alias!r} is busy: {self.text}"
            return ProviderBusy(message, details=details, retry_after=self.retry_after)
        if codes & UNKNOWN_MODEL and model is not None:
            message = f"Model {model!r} is not available: {self.text}"
            return ModelNotFound(message, details={**details, "model": model})
        return ProviderError(f"Provider {alias!r}: {self.text}", details=details)

    def _overflow(self, codes: set[str]) -> Mapping[str, int] | None:
        """Return the counts of a prompt that is too long; None where that is not the reason."""
        counts = None if codes & _NOT_OF_LENGTH else _counts_in(self.text)
        if counts is None:
            return _sane(self.counts) if codes & TOO_LONG else None
        names = {"needed": "n_prompt_tokens", "room": "n_ctx"}
        return _sane({**{names[key]: count for key, count in counts.items()}, **self.counts})


def _sane(counts: Mapping[str, int]) -> Mapping[str, int]:
    return {name: count for name, count in counts.items() if token_count(count) is not None}


def not_installed(alias: str, package: str, extra: str) -> ProviderNotConfigured:
    return ProviderNotConfigured(
        f"Provider {alias!r} needs the package {package}: {install_command(extra)}",
        details={"provider": alias},
    )
