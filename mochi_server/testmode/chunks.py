"""A scripted reply as chunks, before a wire encodes them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from .samples import words_of
from .script import ScriptedError


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """Some words of text or of thinking."""

    kind: Literal["content", "reasoning"]
    choice: int
    text: str
    words: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CallDelta:
    """A part of a tool call: first its name, then its arguments, a few characters at a time."""

    choice: int
    index: int
    """Position of the call within its choice."""
    id: str
    name: str | None = None
    arguments: str = ""
    last: bool = False
    words: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Nothing is sent for a while."""

    seconds: float
    words: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Abort:
    """The reply breaks off."""

    kind: Literal["error", "disconnect", "cancel"]
    failure: ScriptedError | None = None
    words: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The reply is complete."""

    reasons: tuple[tuple[int, str], ...]
    """Choice and finish reason of each stream."""
    prompt_tokens: int
    completion_tokens: int
    stop_sequence: str | None = None
    """Which of the texts that end a reply has ended it."""
    words: int = 0


ScriptedChunk: TypeAlias = Delta | CallDelta | Pause | Abort | End


def insert_after(
    chunks: Iterable[ScriptedChunk], at: int, extra: ScriptedChunk
) -> Iterator[ScriptedChunk]:
    """Insert one more chunk after so many words, or before the end of a shorter reply."""
    left: int | None = at
    for chunk in chunks:
        if left is not None and (chunk.words > left or isinstance(chunk, End)):
            if isinstance(chunk, Delta) and left:
                first, chunk = _split(chunk, left)  # noqa: PLW2901 - the rest of it follows
                yield first
            yield extra
            left = None
        elif left is not None:
            left -= chunk.words
        yield chunk


def size_of(chunk: ScriptedChunk) -> int:
    """Return how many characters a model would write for the chunk."""
    if isinstance(chunk, Delta):
        return len(chunk.text)
    return len(chunk.name or "") + len(chunk.arguments) if isinstance(chunk, CallDelta) else 0


def _split(chunk: Delta, at: int) -> tuple[Delta, Delta]:
    words = words_of(chunk.text)
    first, rest = "".join(words[:at]), "".join(words[at:])
    return replace(chunk, text=first, words=at), replace(chunk, text=rest, words=chunk.words - at)


async def paced(
    chunks: Iterable[ScriptedChunk], words_per_second: float
) -> AsyncGenerator[ScriptedChunk, None]:
    """Yield the chunks at the pace of a model; 0 is no pace, but pauses stay.

    Late wake-ups do not add up: the moment of each chunk counts from the start.
    """
    loop = asyncio.get_running_loop()
    moment = loop.time()
    for chunk in chunks:
        if isinstance(chunk, Pause):
            moment = max(moment, loop.time()) + chunk.seconds
        elif words_per_second:
            moment += chunk.words / words_per_second
        await asyncio.sleep(max(moment - loop.time(), 0))  # without a pace too: others run
        yield chunk


async def first_audible(chunks: AsyncGenerator[ScriptedChunk, None]) -> ScriptedChunk:
    """Return the first chunk that is no pause: before it not even a status is sent."""
    async for chunk in chunks:
        if not isinstance(chunk, Pause):
            return chunk
    raise AssertionError("a reply has an end")
