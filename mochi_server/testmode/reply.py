"""Composes the reply to a request: the same chunks for the same request, on every wire."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any, Final

import orjson

from ..core.aio import in_thread
from ..protocol.completions import ModelInfo
from .chunks import Abort, CallDelta, Delta, End, Pause, ScriptedChunk, insert_after, size_of
from .samples import MIN_WORDS, example_of, length_of, lorem, pieces, stable_hash
from .script import (
    BadScript,
    CallAsText,
    Cancel,
    Disconnect,
    Interruption,
    Item,
    Script,
    ScriptedError,
    Stall,
    Usage,
    script_in,
)

CREATED: Final = 1_735_689_600
"""When the models and all chunks were made; a clock would make two streams differ."""

CONTEXT: Final = 32_768
"""Tokens; no reply is ever refused for being too long."""

_EVERYTHING = ["completion", "tools", "thinking", "vision"]
_LISTED: Final = {
    "lorem": (CONTEXT, _EVERYTHING),
    "lorem-small": (4096, _EVERYTHING),
    "lorem-plain": (CONTEXT, ["completion"]),
}


def model_info(name: str, alias: str = "test") -> ModelInfo:
    context, capabilities = _LISTED.get(name, (CONTEXT, _EVERYTHING))
    return ModelInfo(
        name=name,
        size_mb=1.0,
        format="gguf",
        family="lorem",
        parameter_size="0",
        quantization_level="F16",
        capabilities=list(capabilities),
        context_length=context,
        provider=alias,
        modified_at=datetime.fromtimestamp(CREATED, timezone.utc),
    )


def listed_models(alias: str = "test") -> list[ModelInfo]:
    return [model_info(name, alias) for name in _LISTED]


FILES: Final = "files"

REASON: Final = "\nReason:"
"""A message with this text is answered with thinking first."""

LETTERS: Final = 12
"""Characters of a call's arguments in one chunk; more if there would be too many chunks."""

MAX_PIECES: Final = 1000

LONG: Final = 100_000
"""Bytes; the reply to a larger request is composed in a thread."""

TOKEN: Final = 4
"""Characters that count as a token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyRequest:
    """What a reply depends on, whatever the wire of its request."""

    messages: Sequence[Mapping[str, Any]]
    """``role`` and ``content`` as OpenAI has them, and ``files``: how many there are."""
    tools: Sequence[Any] = ()
    must_call: bool = False
    """Whether the reply must call a tool."""
    schema: Mapping[str, Any] | None = None
    """JSON schema of the reply."""
    thinks: bool = True
    """Whether thinking is sent."""


@dataclass(frozen=True, slots=True)
class _ReplyItem:
    """The chunks of one item, and its choice and finish reason."""

    chunks: tuple[ScriptedChunk, ...] = ()
    reason: tuple[int, str] | None = None

    def without_thinking(self) -> _ReplyItem:
        kept = (
            chunk
            for chunk in self.chunks
            if not isinstance(chunk, Delta) or chunk.kind == "content"
        )
        return replace(self, chunks=tuple(kept))


async def compose_async(
    request: ReplyRequest, cancel_after_words: int | None = None, *, size: int
) -> list[ScriptedChunk]:
    """Compose a reply, in a thread if the request is large; ``size`` is its size in bytes."""
    if size > LONG:
        return await in_thread(compose, request, cancel_after_words)
    return compose(request, cancel_after_words)


def compose(request: ReplyRequest, cancel_after_words: int | None = None) -> list[ScriptedChunk]:
    """Compose the whole reply.

    Args:
        request: What the reply depends on.
        cancel_after_words: Where every reply breaks off, as by an item ``cancel``.

    Raises:
        BadScript: The instruction block is no script.
        NoExample: No reply fits the schema.
    """
    items: list[Item] = []
    if request.schema is not None:
        text = orjson.dumps(example_of(request.schema)).decode()
        parts = [_ReplyItem(tuple(_deltas("content", 0, text, text)), (0, "stop"))]
    else:
        parts, items = _items_of(request)
        if not request.thinks:
            parts = [part.without_thinking() for part in parts]
    chunks: Iterable[ScriptedChunk] = [*(chunk for part in parts for chunk in part.chunks)]
    chunks = [*chunks, _end(request, parts, items)]
    interruptions = [item.interruption for item in items]
    if cancel_after_words is not None:
        interruptions.insert(0, Cancel(after_words=cancel_after_words))
    for each in interruptions:
        if each is not None and each.after_words is not None:
            chunks = insert_after(chunks, each.after_words, _chunk_of(each))
    return list(_until_abort(chunks))


def _items_of(request: ReplyRequest) -> tuple[list[_ReplyItem], list[Item]]:
    messages = request.messages
    last = _last_user(messages, len(messages))
    script, at = _script(messages, last)
    message = _shown(messages[last]) if last is not None else ""
    if script is None or at is None:
        return [_called(request) if request.must_call else _plain(message)], []
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
    return [_plain(message)], []


def _last_user(messages: Sequence[Mapping[str, Any]], before: int) -> int | None:
    """Return the position of the last user message before position ``before``."""
    earlier = range(before - 1, -1, -1)
    return next((i for i in earlier if messages[i].get("role") == "user"), None)


def _script(
    messages: Sequence[Mapping[str, Any]], at: int | None
) -> tuple[Script | None, int | None]:
    """Return the script that applies and its position: the latest message's, or a lasting one."""
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
    content = message.get("content")
    if isinstance(content, list):
        parts = (part.get("text") for part in content if isinstance(part, dict))
        return "".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def _shown(message: Mapping[str, Any]) -> str:
    """Return the text of a message, and how many files came with it."""
    content, files = message.get("content"), message.get(FILES, 0)
    if isinstance(content, list):
        files = sum(part.get("type") != "text" for part in content if isinstance(part, dict))
    return f"{text_of(message)}\n\n[files: {files}]" if files else text_of(message)


def _plain(message: str) -> _ReplyItem:
    """Answer with lorem ipsum and the message itself, thinking first if asked for."""
    chunks: list[ScriptedChunk] = []
    _, mark, reason = message.partition(REASON)
    if mark:
        chunks += _deltas("reasoning", 0, f"{reason.strip()}\n\n{message}", message)
    text = f"{lorem(length_of(message), message)}\n\n{message}"
    return _ReplyItem((*chunks, *_deltas("content", 0, text, message)), (0, "stop"))


def _called(request: ReplyRequest) -> _ReplyItem:
    """Call the first tool, with arguments that its schema allows."""
    function = request.tools[0]["function"]
    arguments = orjson.dumps(example_of(function.get("parameters") or {"type": "object"})).decode()
    call = CallAsText(name=function["name"], arguments=arguments)
    seed = f"{len(request.messages)}\0{arguments}"
    return _ReplyItem(tuple(_call_deltas([call], 0, seed)), (0, "tool_calls"))


def _closing(script: Script, since: Sequence[Mapping[str, Any]], message: str) -> _ReplyItem:
    """Answer after the last step with the results of the tools."""
    results = [text_of(entry) for entry in since if entry.get("role") == "tool"]
    text = _framed(script, "\n".join(results) or lorem(MIN_WORDS, message))
    return _ReplyItem(tuple(_deltas("content", 0, text, message)), (0, "stop"))


def _part(script: Script, item: Item, choice: int, seed: str) -> _ReplyItem:
    if (text := item.text_message) is not None:
        chunks: list[ScriptedChunk] = []
        if (reasoning := text.reasoning or script.reasoning) is not None:
            thought = _framed(script, reasoning.words(f"{seed}\0reasoning"))
            chunks += _deltas("reasoning", choice, thought, seed)
        chunks += _deltas("content", choice, _framed(script, text.words(seed)), seed)
        return _ReplyItem(tuple(chunks), (choice, "stop"))
    if item.calls:
        return _ReplyItem(tuple(_call_deltas(item.calls, choice, seed)), (choice, "tool_calls"))
    interruption = item.interruption
    if interruption is None or interruption.after_words is not None:
        return _ReplyItem()
    return _ReplyItem((_chunk_of(interruption),))


def _framed(script: Script, text: str) -> str:
    """Put the script's ``id_message`` before and after the text."""
    return " ".join(part for part in (script.id_message, text, script.id_message) if part)


def _deltas(kind: Any, choice: int, text: str, seed: str) -> Iterator[ScriptedChunk]:  # noqa: ANN401 - of Delta
    for piece, words in pieces(text, f"{seed}\0{kind}"):
        yield Delta(kind=kind, choice=choice, text=piece, words=words)


def _call_deltas(calls: Sequence[CallAsText], choice: int, seed: str) -> Iterator[ScriptedChunk]:
    for index, call in enumerate(calls):
        arguments = call.arguments
        call_id = call.id or f"call_{stable_hash(f'{seed}{index}') % 2**32:08x}"
        yield CallDelta(choice=choice, index=index, id=call_id, name=call.name, last=not arguments)
        letters = max(LETTERS, len(arguments) // MAX_PIECES)
        for at in range(0, len(arguments), letters):
            piece, last = arguments[at : at + letters], at + letters >= len(arguments)
            yield CallDelta(choice=choice, index=index, id=call_id, arguments=piece, last=last)


def _end(request: ReplyRequest, parts: Sequence[_ReplyItem], items: Sequence[Item]) -> End:
    reasons = [part.reason for part in parts if part.reason is not None] or [(0, "stop")]
    scripted = next((item.finish_reason for item in items if item.finish_reason), None)
    if scripted is not None:
        reasons = [(choice, scripted) for choice, _ in reasons]
    usage = next((item.usage for item in items if item.usage is not None), None)
    usage = usage or Usage(
        prompt_tokens=prompt_tokens(request.messages, request.tools),
        completion_tokens=_tokens(sum(size_of(chunk) for part in parts for chunk in part.chunks)),
    )
    return End(
        reasons=tuple(reasons),
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        stop_sequence=next((item.stop_sequence for item in items if item.stop_sequence), None),
    )


def prompt_tokens(messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] = ()) -> int:
    """Count a prompt's tokens: a quarter of its characters, and four for each message."""
    texts = [text_of(message) + (message.get("thinking") or "") for message in messages]
    calls = [message["tool_calls"] for message in messages if message.get("tool_calls")]
    json_bytes = len(orjson.dumps([*calls, *tools])) if calls or tools else 0
    return _tokens(sum(map(len, texts)) + json_bytes) + TOKEN * len(messages)


def tokens_of(text: str) -> int:
    return _tokens(len(text))


def _tokens(characters: int) -> int:
    return -(-characters // TOKEN)


def _chunk_of(interruption: Interruption) -> ScriptedChunk:
    match interruption:
        case Stall():
            return Pause(seconds=interruption.seconds)
        case ScriptedError():
            return Abort(kind="error", failure=interruption)
        case Disconnect():
            return Abort(kind="disconnect")
        case _:
            return Abort(kind="cancel")


def _until_abort(chunks: Iterable[ScriptedChunk]) -> Iterator[ScriptedChunk]:
    for chunk in chunks:
        yield chunk
        if isinstance(chunk, Abort):
            return
