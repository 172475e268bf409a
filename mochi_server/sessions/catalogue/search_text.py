"""The texts of a session in the form in which they are indexed and searched."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import NamedTuple

import orjson
from pydantic import JsonValue

from ...core.aio import yield_to_loop
from ..codec import NotASession, disassemble
from ..types import SessionMetadata
from ..versions import NotMetadata, read_metadata

JOINT = "\x1f"
"""Between characters that belong together in the text and are words of their own in the index."""

UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3100-\u312f\u31a0-\u31bf"
    "\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Thai, Lao, Burmese, Khmer, Japanese, Chinese, and Korean, whose endings stick to the words."""

_RUN = re.compile(f"[{UNSPACED}]+")
_SURROGATES = re.compile("[\ud800-\udfff]")
_LAST_WITH_ACCENTS = 0x2000
"""In Japanese and Korean, which come after it, removing marks would make other letters."""

_YIELD_EVERY = 256
"""Messages read before other threads may run."""

_SEPARATOR = "\n\n"


class SearchDocument(NamedTuple):
    """The texts of a session, by where they stand: the columns of the index, in their order."""

    title: str = ""
    tags: str = ""
    summary: str = ""
    """And the topics."""
    user: str = ""
    assistant: str = ""
    tool: str = ""


def search_document(data: bytes, session_id: str) -> SearchDocument | None:
    """Extract the texts of a session file; return None when it is no session."""
    try:
        document = disassemble(data)
        metadata = read_metadata(orjson.loads(document.head), session_id)
    except (NotASession, NotMetadata):
        return None
    by_role: dict[str, list[str]] = {"user": [], "assistant": [], "tool": []}
    for number, line in enumerate(document.lines, start=1):
        _add(by_role, orjson.loads(line))
        if number % _YIELD_EVERY == 0:
            yield_to_loop()
    texts = {role: _SEPARATOR.join(texts) for role, texts in by_role.items()}
    return SearchDocument(*map(_joined, _head(metadata)), **texts)


def _add(by_role: dict[str, list[str]], message: JsonValue) -> None:
    match message:
        case {"role": str() as role, "content": str() as text} if role in by_role:
            # One by one: all at once would hold the interpreter lock for long.
            by_role[role].append(split_unspaced(normalize(text)))


def _head(metadata: SessionMetadata) -> tuple[list[str], list[str], list[str]]:
    summary = metadata.summary
    texts = [] if summary is None else [summary.summary, *summary.topics]
    return [metadata.title or ""], metadata.tags, texts


def _joined(texts: Iterable[str]) -> str:
    return _SEPARATOR.join(split_unspaced(normalize(text)) for text in texts)


def normalize(text: str) -> str:
    """Return the text in normal form (NFKC), without characters that SQLite cannot store."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", _SURROGATES.sub("\ufffd", text))
    return text.replace("\0", " ").replace(JOINT, " ")


def split_unspaced(text: str) -> str:
    """Make each character of a script without spaces a separate word."""
    if text.isascii():
        return text
    return _RUN.sub(lambda run: f"{JOINT}{JOINT.join(run[0])}{JOINT}", text)


def join_unspaced(text: str) -> str:
    return text.replace(JOINT, "")


class _Folding(dict[int, str]):
    """A table with one character for each, so that positions stay the same."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        if code < _LAST_WITH_ACCENTS:
            character = unicodedata.normalize("NFD", character)[0]
        self[code] = character.lower()[0]
        return self[code]


_folding = _Folding()


def fold(text: str) -> str:
    """Return lower-case letters without accents; the number of characters stays the same."""
    # Most texts have no accents, and are folded a hundred times faster.
    if unicodedata.is_normalized("NFD", text) and len(small := text.lower()) == len(text):
        return small
    return text.translate(_folding)
