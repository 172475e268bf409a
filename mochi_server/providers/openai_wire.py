"""The words of OpenAI's chat completions: stored messages to requests, fragments to chunks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import JSONObject, ProviderError
from ..messages import new_call_id
from .base import Chunk, ContentDelta, Finish, ThinkingDelta
from .calls import Fragments, calls_of, take_call

if TYPE_CHECKING:
    from openai.types import CompletionUsage
    from openai.types.chat import ChatCompletionChunk
    from openai.types.chat.chat_completion_chunk import ChoiceDelta

THOUGHT_FIELDS = ("reasoning_content", "reasoning")
"""Where servers put thinking: DeepSeek and llama.cpp the first, vLLM and OpenRouter the second."""

NO_CHAT = re.compile(
    r"embedding|whisper|tts|dall-e|moderation|image|sora|realtime|transcribe|audio|babbage|davinci"
)
"""Models of OpenAI's own list that have no chat completions."""


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
            calls = [_call_to_wire(call) for call in calls_of(message)]
            open_calls = [(str(call["id"]), str(call["function"]["name"])) for call in calls]
            entry: JSONObject = {"role": "assistant", "content": text}
            wire.append({**entry, "tool_calls": list(calls)} if calls else entry)
        elif role == "tool":
            call_id = take_call(open_calls, message)
            wire.append({"role": "tool", "tool_call_id": call_id, "content": text})
    return wire


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


class Assembly:
    """Folds the pieces of one streamed reply into chunks.

    Several choices become one reply: texts as paragraphs in the order of their arrival, calls in
    the order of the choices.
    """

    def __init__(self) -> None:
        self._calls: dict[tuple[int, int], Fragments] = {}
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
            call = self._calls.setdefault((choice, piece.index or 0), Fragments())
            said = piece.function
            call.add(piece.id, said.name if said else None, said.arguments if said else None)

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
