"""What a reply consists of before it has the words of a wire."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from .lorem import words_of
from .script import Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A piece of text, or of thinking."""

    kind: Literal["content", "reasoning"]
    choice: int
    text: str
    words: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPiece:
    """A piece of a call: first its name, then its arguments, a few letters at a time."""

    choice: int
    index: int
    """Position of the call within its choice."""
    id: str
    name: str | None = None
    arguments: str = ""
    last: bool = False
    words: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """Nothing for a while."""

    seconds: float
    words: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The reply ends here, and not as it should."""

    kind: Literal["error", "disconnect", "cancel"]
    failure: Failure | None = None
    words: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The reply is whole."""

    reasons: tuple[tuple[int, str], ...]
    """Choice and reason of each stream."""
    prompt_tokens: int
    completion_tokens: int
    words: int = 0


Beat: TypeAlias = Said | CallPiece | Silence | Cut | End


def inserted(beats: Iterable[Beat], at: int, extra: Beat) -> Iterator[Beat]:
    """The beats with one more after so many words; before the end where there are not so many."""
    left: int | None = at
    for beat in beats:
        if left is not None and (beat.words > left or isinstance(beat, End)):
            if isinstance(beat, Said) and left:
                first, beat = _split(beat, left)  # noqa: PLW2901 - the rest of it follows
                yield first
            yield extra
            left = None
        elif left is not None:
            left -= beat.words
        yield beat


def limited(beats: Iterable[Beat], characters: int, tokens: int) -> Iterator[Beat]:
    """The beats up to so many characters, which are said to be so many tokens.

    A call that is not whole by then is none.
    """
    left, call = characters, list[Beat]()
    rest = iter(beats)
    for beat in rest:
        size = size_of(beat)
        if isinstance(beat, End):
            yield beat
        elif size <= left:
            left -= size
            call.append(beat)
            if not isinstance(beat, CallPiece) or beat.last:
                yield from call
                call.clear()
        else:
            if isinstance(beat, Said) and left:
                text = beat.text[:left]
                yield replace(beat, text=text, words=len(words_of(text)))
            break
    for beat in rest:
        if isinstance(beat, End):
            reasons = tuple((choice, "length") for choice, _ in beat.reasons)
            yield replace(beat, reasons=reasons, completion_tokens=tokens)


def size_of(beat: Beat) -> int:
    """How many characters a model has to write for it."""
    if isinstance(beat, Said):
        return len(beat.text)
    return len(beat.name or "") + len(beat.arguments) if isinstance(beat, CallPiece) else 0


def _split(beat: Said, at: int) -> tuple[Said, Said]:
    words = words_of(beat.text)
    first, rest = "".join(words[:at]), "".join(words[at:])
    return replace(beat, text=first, words=at), replace(beat, text=rest, words=beat.words - at)


async def paced(beats: Iterable[Beat], words_per_second: float) -> AsyncGenerator[Beat, None]:
    """The beats in time; each comes when its words would have been said.

    Late wake-ups do not add up: each beat has its moment from the start on.

    Args:
        beats: of one reply.
        words_per_second: 0 for no pace; silences stay.
    """
    loop = asyncio.get_running_loop()
    moment = loop.time()
    for beat in beats:
        if isinstance(beat, Silence):
            moment = max(moment, loop.time()) + beat.seconds
        elif words_per_second:
            moment += beat.words / words_per_second
        await asyncio.sleep(max(moment - loop.time(), 0))  # also without a pace: others want to run
        yield beat


async def first_sound(beats: AsyncGenerator[Beat, None]) -> Beat:
    """The first beat that is no silence: nothing is sent before it, no status either."""
    async for beat in beats:
        if not isinstance(beat, Silence):
            return beat
    raise AssertionError("a reply has an end")
