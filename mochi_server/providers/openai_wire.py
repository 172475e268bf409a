"""The words of OpenAI's chat completions: stored messages to requests, fragments to chunks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from ..errors import JSONObject, ProviderError
from ..messages import ToolCall, new_call_id
from ..nesting import CALL_LEVELS, is_too_deep
from .base import Chunk, ContentDelta, Finish, ThinkingDelta

if TYPE_CHECKING:
    from openai.types import CompletionUsage
    from openai.types.chat import ChatCompletionChunk
    from openai.types.chat.chat_completion_chunk import ChoiceDelta, ChoiceDeltaToolCall

THOUGHT_FIELDS = ("reasoning_content", "reasoning")
"""Where servers put thinking: DeepSeek and llama.cpp the first, vLLM and OpenRouter the second."""


def to_wire(messages: Sequence[JSONObject]) -> list[JSONObject]:
    """Stored messages as the request has them.

    Each result carries the id of its call. Old files have none: ids are made up, and results are
    matched with the open calls in order.
    """
    wire: list[JSONObject] = []
    open_calls: list[tuple[str, str]] = []
    for message in messages:
        role, text = message.get("role"), message.get("content") or ""
        if role in {"system", "user"}:
            wire.append({"role": role, "content": text})
        elif role == "assistant":
            calls = [_call_to_wire(call) for call in _calls_of(message)]
            open_calls = [(str(call["id"]), str(call["function"]["name"])) for call in calls]
            entry: JSONObject = {"role": "assistant", "content": text}
            wire.append({**entry, "tool_calls": list(calls)} if calls else entry)
        elif role == "tool":
            call_id = _take_call(open_calls, message)
            wire.append({"role": "tool", "tool_call_id": call_id, "content": text})
    return wire


def _calls_of(message: JSONObject) -> list[Mapping[str, Any]]:
    calls = message.get("tool_calls")
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


def _call_to_wire(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function") or {}
    arguments = function.get("arguments") or {}
    return {
        "id": call.get("id") or new_call_id(),
        "type": "function",
        "function": {
            "name": function.get("name") or "",
            "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments),
        },
    }


def _take_call(open_calls: list[tuple[str, str]], message: JSONObject) -> str:
    """The id of the call that a result answers: its own, else by name, else the first open one."""
    given, name = message.get("tool_call_id"), message.get("tool_name")
    if given:
        matching = [call for call in open_calls if call[0] == given]
    else:
        matching = [call for call in open_calls if call[1] == name] or open_calls
    if not matching:
        return str(given) if given else new_call_id()
    call_id = matching[0][0]
    open_calls.remove(matching[0])
    return call_id


@dataclass(slots=True)
class _Fragments:
    """A call as far as it has come."""

    id: str = ""
    name: str = ""
    arguments: str = ""

    def add(self, piece: ChoiceDeltaToolCall) -> None:
        self.id = self.id or piece.id or ""
        if piece.function is not None:
            self.name += piece.function.name or ""
            self.arguments += piece.function.arguments or ""

    def whole(self) -> ToolCall:
        """The call.

        Raises:
            ProviderError: its arguments are not a JSON object.
        """
        arguments = _parsed(self.arguments or "{}")
        if not isinstance(arguments, dict) or is_too_deep(arguments, CALL_LEVELS):
            raise ProviderError(
                f"The model called {self.name!r} with arguments that are not a JSON object.",
                details={"arguments": self.arguments[:1000]},
            )
        return ToolCall(id=self.id or new_call_id(), name=self.name, arguments=arguments)


def _parsed(text: str) -> Any:  # noqa: ANN401 - any JSON
    """JSON that our own encoder can write again; null for what is none.

    Halves of surrogate pairs become ``?``, whole numbers beyond 64 bits become floats.
    """
    try:
        plain = json.dumps(json.loads(text), ensure_ascii=False)
        return orjson.loads(plain.encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None


class Assembly:
    """Folds the pieces of one streamed reply into chunks.

    Several choices become one reply: texts as paragraphs in the order of their arrival, calls in
    the order of the choices.
    """

    def __init__(self) -> None:
        self._calls: dict[tuple[int, int], _Fragments] = {}
        self._speaker: dict[type[ContentDelta | ThinkingDelta], int] = {}
        """The choice that each kind of text came from last."""
        self._reason: str | None = None
        self._usage: CompletionUsage | None = None

    def add(self, chunk: ChatCompletionChunk) -> Iterator[Chunk]:
        """What a piece of the stream says at once; calls wait until they are whole."""
        if chunk.usage is not None:
            self._usage = chunk.usage
        for choice in chunk.choices or ():
            self._reason = choice.finish_reason or self._reason
            if choice.delta is not None:
                yield from self._add_delta(choice.delta, choice.index or 0)

    def _add_delta(self, delta: ChoiceDelta, choice: int) -> Iterator[Chunk]:
        for field in THOUGHT_FIELDS:
            thought = getattr(delta, field, None)
            if thought:
                yield ThinkingDelta(self._joined(ThinkingDelta, choice) + str(thought))
                break
        if delta.content:
            yield ContentDelta(self._joined(ContentDelta, choice) + delta.content)
        for piece in delta.tool_calls or ():
            self._calls.setdefault((choice, piece.index or 0), _Fragments()).add(piece)

    def _joined(self, kind: type[ContentDelta | ThinkingDelta], choice: int) -> str:
        """What stands between the texts of two choices."""
        before = self._speaker.get(kind, choice)
        self._speaker[kind] = choice
        return "" if before == choice else "\n\n"

    def finish(self) -> Iterator[Chunk]:
        """The calls and the end of the reply.

        Raises:
            ProviderError: the stream ended without saying that it is finished.
        """
        if self._reason is None:
            raise ProviderError("The model's reply broke off before its end.")
        for index in sorted(self._calls):
            yield self._calls[index].whole()
        usage = self._usage
        yield Finish(
            reason=self._reason,
            eval_count=usage.completion_tokens if usage else None,
            prompt_eval_count=usage.prompt_tokens if usage else None,
        )
