"""Texts, numbers and JSON as services send them, made fit to be stored, sent on and shown."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final
from urllib.parse import SplitResult, quote, unquote

from ...core.limits import CALL_LEVELS, is_too_deep
from ...protocol.completions import Chunk, ContentDelta, ThinkingDelta

REDACTED: Final = "…"
SHORT_SECRET: Final = 6
"""Characters; a shorter secret is redacted only as a whole word. A key ``x``, which servers of
one's own take, would make nonsense of every text, also of the words by which errors are known."""
_MAX_TOKENS: Final = 2**53
_HALF: Final = re.compile("[\ud800-\udfff]")
_REPLACEMENT: Final = "\ufffd"

_PAGE: Final = re.compile(r"<[a-z!?]", re.IGNORECASE)
_ERROR_KEYS: Final = ("message", "error", "detail", "errors")
_ERROR_LEVELS: Final = 4


def plain_text(text: object) -> str:
    """Return the text in whole characters; each half of a surrogate pair becomes ``?``."""
    return str(text).encode("utf-8", "replace").decode()


def token_count(value: object) -> int | None:
    """Return the value if it is a possible number of tokens, else None."""
    return value if isinstance(value, int) and 0 <= value < _MAX_TOKENS else None


def error_text(body: object, levels: int = _ERROR_LEVELS) -> str:
    """Find the words of an error in a body, parsed or as text; nothing in a page for browsers."""
    if isinstance(body, str):
        text = body.strip()
        return "" if _PAGE.match(text) else text
    if not isinstance(body, (dict, list)) or not body or not levels:
        return ""
    if isinstance(body, dict):
        texts = (error_text(body.get(key), levels - 1) for key in _ERROR_KEYS)
        if text := next(filter(None, texts), ""):
            metadata = body.get("metadata")  # OpenRouter: what the service behind it said
            raw = error_text(metadata.get("raw"), levels - 1) if isinstance(metadata, dict) else ""
            return f"{text}: {raw}" if raw else text
    return "" if is_too_deep(body, CALL_LEVELS) else json.dumps(body, ensure_ascii=False)


def redaction(key: str | None, address: SplitResult | None) -> Callable[[str], str]:
    """Return a function that makes a text plain and replaces a provider's secrets in it.

    Those are the key, the password of the address (its user, where it has no password), both
    together as they are sent, and the values of its parameters, but for short ones, such as
    versions. The longest is replaced first: one may be a part of another.
    """
    pattern = secrets_pattern({key or "", *(() if address is None else _secrets_of(address))})
    return lambda text: pattern.sub(REDACTED, plain_text(text))


def secrets_pattern(secrets: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern that finds secrets in texts, the longest first; a short one as a word."""
    secrets = {*secrets} - {""}
    short = [rf"(?<!\w){re.escape(one)}(?!\w)" for one in secrets if len(one) < SHORT_SECRET]
    long = sorted((one for one in secrets if len(one) >= SHORT_SECRET), key=len, reverse=True)
    return re.compile("|".join([*map(re.escape, long), *short]) or r"(?!)")


def _secrets_of(address: SplitResult) -> Iterator[str]:
    name, password = address.username or "", address.password or ""
    yield from _spellings(password or name)
    if name or password:
        login = f"{unquote(name)}:{unquote(password)}"
        yield b64encode(login.encode()).decode().rstrip("=")
    for parameter in address.query.split("&"):
        key, _, value = parameter.partition("=")
        if len(value or key) >= SHORT_SECRET:
            yield from _spellings(value or key)


def _spellings(secret: str) -> Iterator[str]:
    plain = unquote(secret)
    yield from (secret, plain, quote(plain), quote(plain, safe=""))


class WholeCharacters:
    """Lets only whole characters through, which alone can be stored and sent.

    Some servers cut a reply between the two halves of an emoji, or leave one of them out.
    """

    def __init__(self) -> None:
        self._half = ""
        self._kind: type[ContentDelta | ThinkingDelta] = ContentDelta

    def add(self, chunk: Chunk) -> Sequence[Chunk]:
        """Return what can be handed on after one more chunk."""
        is_text = isinstance(chunk, (ContentDelta, ThinkingDelta))
        chunks: list[Chunk] = []
        if self._half and not (is_text and type(chunk) is self._kind):
            chunks.append(self._kind(_REPLACEMENT))
            self._half = ""
        if not isinstance(chunk, (ContentDelta, ThinkingDelta)):
            return [*chunks, chunk]
        if not self._half and not _HALF.search(chunk.content):
            return [*chunks, chunk]
        self._kind = type(chunk)
        if text := self._join(self._half + chunk.content):
            chunks.append(self._kind(text))
        return chunks

    def _join(self, text: str) -> str:
        """Join the pairs of a text; a first half at its end is kept for the next chunk."""
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
        self._half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        return _HALF.sub(_REPLACEMENT, text.removesuffix(self._half))
