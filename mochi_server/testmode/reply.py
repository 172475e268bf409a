"""Composes a reply from a request: the same beats for the same request, whatever the wire."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from ..core.aio import in_thread
from .beats import Beat, CallPiece, Cut, End, Said, Silence, inserted, limited, size_of
from .example import example_of
from .lorem import SHORTEST, length_of, lorem, pieces, stable_hash
from .script import (
    BadScript,
    CallAsText,
    Cancel,
    Disconnect,
    Failure,
    Interruption,
    Item,
    Script,
    Stall,
    Usage,
    script_in,
)

REASON: Final = "\nReason:"
"""What makes a message without a script be thought about."""

LETTERS: Final = 12
"""Letters of a call's arguments in one piece; more where there would be too many pieces."""

MOST_PIECES: Final = 1000

LONG: Final = 100_000
"""Bytes of a request that is answered by a thread's work."""

TOKEN: Final = 4
"""Characters that count as a token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a request says, as far as it matters here."""

    messages: Sequence[Mapping[str, Any]]
    """``role`` and ``content`` as OpenAI and Ollama have them."""
    tools: Sequence[Any] = ()
    schema: Mapping[str, Any] | None = None
    """JSON schema that the reply must obey."""
    thinks: bool = True
    """Whether thinking is sent."""
    must_think: bool = False
    """Whether a message without a script is thought about also where it does not ask for that."""
    window: int | None = None
    """Tokens to which the prompt is cut."""
    limit: int | None = None
    """Tokens after which the reply is cut."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Some of the streams of a reply, and why each of them ends."""

    beats: tuple[Beat, ...] = ()
    reason: tuple[int, str] | None = None

    def without_thinking(self) -> _Part:
        said = (beat for beat in self.beats if not isinstance(beat, Said) or beat.kind == "content")
        return replace(self, beats=tuple(said))


async def composed(asked: Asked, cancel_after_words: int | None = None, *, size: int) -> list[Beat]:
    """The same as ``compose``, holding nobody up; ``size`` is that of the request in bytes."""
    if size > LONG:
        return await in_thread(compose, asked, cancel_after_words)
    return compose(asked, cancel_after_words)


def compose(asked: Asked, cancel_after_words: int | None = None) -> list[Beat]:
    """The whole reply.

    Args:
        asked: the request.
        cancel_after_words: where every reply is cut, as by an item ``cancel``.

    Raises:
        BadScript: the instruction block is no script.
        NoExample: no reply obeys the schema.
    """
    items: list[Item] = []
    if asked.schema is not None:
        text = orjson.dumps(example_of(asked.schema)).decode()
        parts = [_Part(tuple(_said("content", 0, text, text)), (0, "stop"))]
    else:
        parts, items = _chosen(asked.messages, must_think=asked.must_think)
        if not asked.thinks:
            parts = [part.without_thinking() for part in parts]
    beats: Iterable[Beat] = [*(beat for part in parts for beat in part.beats)]
    beats = [*beats, _end(asked, parts, items)]
    for interruption in _later(items, cancel_after_words):
        beats = inserted(beats, interruption.after_words or 0, _beat_of(interruption))
    whole = _until_cut(beats)
    return list(whole if asked.limit is None else limited(whole, asked.limit * TOKEN, asked.limit))


def _chosen(
    messages: Sequence[Mapping[str, Any]], *, must_think: bool
) -> tuple[list[_Part], list[Item]]:
    """What is said, and the items that say it, if a script does."""
    last = _last_user(messages, len(messages))
    script, at = _script(messages, last)
    message = text_of(messages[last]) if last is not None else ""
    if script is None or at is None:
        return [_plain(message, must_think=must_think)], []
    number = sum(entry.get("role") == "assistant" for entry in messages[at + 1 :])
    items = script.step(number)
    if items is not None:
        seed = f"{text_of(messages[at])}\0{number}"
        # The same block twice in a conversation calls twice, with ids of their own.
        calls = f"{seed}\0{len(messages)}"
        return [
            _part(script, item, i, f"{calls if item.calls else seed}\0{i}")
            for i, item in enumerate(items)
        ], items
    if at == last:
        return [_closing(script, messages[at + 1 :], message)], []
    return [_plain(message, must_think=must_think)], []


def _last_user(messages: Sequence[Mapping[str, Any]], before: int) -> int | None:
    """The position of the last message of a user before another one."""
    found = (i for i in range(before - 1, -1, -1) if messages[i].get("role") == "user")
    return next(found, None)


def _script(
    messages: Sequence[Mapping[str, Any]], at: int | None
) -> tuple[Script | None, int | None]:
    """The script that holds, and where it stands: the latest message's, or a lasting one."""
    latest = True
    while at is not None:
        try:
            script = script_in(text_of(messages[at]))
        except BadScript:
            if latest:
                raise
            return None, None  # it was the error of its own message
        if script is not None:
            return (script, at) if latest or script.lasting else (None, None)
        latest, at = False, _last_user(messages, at)
    return None, None


def text_of(message: Mapping[str, Any]) -> str:
    """The text of a message, also where it comes in parts."""
    content = message.get("content")
    if isinstance(content, list):
        parts = (part.get("text") for part in content if isinstance(part, dict))
        return "".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def _plain(message: str, *, must_think: bool) -> _Part:
    """Lorem ipsum and the message itself; thinking first where the message or request wants it."""
    beats: list[Beat] = []
    _, mark, reason = message.partition(REASON)
    if mark or must_think:
        thought = reason.strip() if mark else lorem(SHORTEST, f"{message}\0thinking")
        beats += _said("reasoning", 0, f"{thought}\n\n{message}", message)
    text = f"{lorem(length_of(message), message)}\n\n{message}"
    return _Part((*beats, *_said("content", 0, text, message)), (0, "stop"))


def _closing(script: Script, since: Sequence[Mapping[str, Any]], message: str) -> _Part:
    """What follows the last step: the results of the tools, as the model was told them."""
    results = [text_of(entry) for entry in since if entry.get("role") == "tool"]
    text = _framed(script, "\n".join(results) or lorem(SHORTEST, message))
    return _Part(tuple(_said("content", 0, text, message)), (0, "stop"))


def _part(script: Script, item: Item, choice: int, seed: str) -> _Part:
    if (text := item.text_message) is not None:
        beats: list[Beat] = []
        if (reasoning := text.reasoning or script.reasoning) is not None:
            thought = _framed(script, reasoning.words(f"{seed}\0reasoning"))
            beats += _said("reasoning", choice, thought, seed)
        beats += _said("content", choice, _framed(script, text.words(seed)), seed)
        return _Part(tuple(beats), (choice, "stop"))
    if item.calls:
        return _Part(tuple(_called(item.calls, choice, seed)), (choice, "tool_calls"))
    interruption = item.interruption
    if interruption is None or interruption.after_words is not None:
        return _Part()
    return _Part((_beat_of(interruption),))


def _framed(script: Script, text: str) -> str:
    """The text between two times the id."""
    return " ".join(part for part in (script.id_message, text, script.id_message) if part)


def _said(kind: Any, choice: int, text: str, seed: str) -> Iterator[Beat]:  # noqa: ANN401 - of Said
    for piece, words in pieces(text, f"{seed}\0{kind}"):
        yield Said(kind=kind, choice=choice, text=piece, words=words)


def _called(calls: Sequence[CallAsText], choice: int, seed: str) -> Iterator[Beat]:
    for index, call in enumerate(calls):
        arguments = call.arguments
        call_id = call.id or f"call_{stable_hash(f'{seed}{index}') % 2**32:08x}"
        yield CallPiece(choice=choice, index=index, id=call_id, name=call.name, last=not arguments)
        letters = max(LETTERS, len(arguments) // MOST_PIECES)
        for at in range(0, len(arguments), letters):
            piece, last = arguments[at : at + letters], at + letters >= len(arguments)
            yield CallPiece(choice=choice, index=index, id=call_id, arguments=piece, last=last)


def _end(asked: Asked, parts: Sequence[_Part], items: Sequence[Item]) -> End:
    reasons = [part.reason for part in parts if part.reason is not None] or [(0, "stop")]
    wanted = next((item.finish_reason for item in items if item.finish_reason), None)
    if wanted is not None:
        reasons = [(choice, wanted) for choice, _ in reasons]
    usage = next((item.usage for item in items if item.usage is not None), None)
    prompt = prompt_tokens(asked.messages, asked.tools)
    usage = usage or Usage(
        prompt_tokens=prompt if asked.window is None else min(prompt, asked.window),
        completion_tokens=_tokens(sum(size_of(beat) for part in parts for beat in part.beats)),
    )
    return End(
        reasons=tuple(reasons),
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
    )


def prompt_tokens(messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] = ()) -> int:
    """How many tokens a prompt has: a quarter of its characters, and four for each message."""
    said = [text_of(message) + (message.get("thinking") or "") for message in messages]
    called = [message["tool_calls"] for message in messages if message.get("tool_calls")]
    written = len(orjson.dumps([*called, *tools])) if called or tools else 0
    return _tokens(sum(map(len, said)) + written) + TOKEN * len(messages)


def tokens_of(text: str) -> int:
    """How many tokens a text has."""
    return _tokens(len(text))


def _tokens(characters: int) -> int:
    return -(-characters // TOKEN)


def _later(items: Sequence[Item], cancel_after_words: int | None) -> Iterator[Interruption]:
    """Those that come after so many words, wherever they stand."""
    if cancel_after_words is not None:
        yield Cancel(after_words=cancel_after_words)
    for item in items:
        interruption = item.interruption
        if interruption is not None and interruption.after_words is not None:
            yield interruption


def _beat_of(interruption: Interruption) -> Beat:
    match interruption:
        case Stall():
            return Silence(seconds=interruption.seconds)
        case Failure():
            return Cut(kind="error", failure=interruption)
        case Disconnect():
            return Cut(kind="disconnect")
        case _:
            return Cut(kind="cancel")


def _until_cut(beats: Iterable[Beat]) -> Iterator[Beat]:
    for beat in beats:
        yield beat
        if isinstance(beat, Cut):
            return
