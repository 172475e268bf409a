"""The texts of a session that can be searched."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import orjson
from pydantic import JsonValue

from ...core.aio import yield_to_loop
from ..codec import NotASession, disassemble
from ..types import NotMetadata, SessionMetadata, read_metadata
from .text_folding import normalize, split_unspaced

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
            by_role[role].append(_ready(text))


def _head(metadata: SessionMetadata) -> tuple[list[str], list[str], list[str]]:
    summary = metadata.summary
    texts = [] if summary is None else [summary.summary, *summary.topics]
    return [metadata.title or ""], metadata.tags, texts


def _joined(texts: Iterable[str]) -> str:
    return _SEPARATOR.join(map(_ready, texts))


def _ready(text: str) -> str:
    return split_unspaced(normalize(text))
