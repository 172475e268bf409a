"""The chunks of a streamed reply of chat completions.

Some servers want more of a reply back than its text and its calls: the thinking (DeepSeek, Kimi),
signed or encrypted thinking (OpenRouter), signatures of calls (Gemini). What came is kept in
``provider_data`` and goes back where it came from: to the same model, in the same fields.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from ...core.limits import LARGEST_RESPONSE, too_large
from ...errors import JSONObject, ProviderError
from ..base import Chunk, ContentDelta, Finish, ThinkingDelta
from ..common.history import ToolNames
from ..common.tool_calls import CallFragments, FragmentedCalls
from ..common.values import error_text, plain_text, read_json, token_count
from .requests import DETAILS, FORM, THOUGHT_FIELDS

if TYPE_CHECKING:
    from openai.types import CompletionUsage
    from openai.types.chat import ChatCompletionChunk
    from openai.types.chat.chat_completion_chunk import ChoiceDelta

REASONS: Final = {"function_call": "tool_calls", "eos": "stop"}
EXTRA: Final = "extra_content"
"""Where Gemini's endpoint of this protocol puts the signature of a call."""


class ChatCompletionsReply:
    """One reply, put together from the pieces of its stream.

    Several choices become one reply: texts as paragraphs in the order of their arrival, calls in
    the order of the choices.
    """

    def __init__(self, model: str, names: ToolNames) -> None:
        self._model = model
        self._names = names
        self._calls = FragmentedCalls()
        self._speaker: dict[type[ContentDelta | ThinkingDelta], int] = {}
        """The choice that each kind of text came from last."""
        self._reason: str | None = None
        self._refused = False
        self._usage: CompletionUsage | None = None
        self._thought_field: str | None = None
        self._details: list[JSONObject] = []
        self._details_size = 0

    def add(self, chunk: ChatCompletionChunk) -> Iterator[Chunk]:
        """Yield what a piece of the stream says at once; calls wait until they are whole.

        Raises:
            ProviderError: it says that something went wrong.
        """
        if chunk.usage is not None:
            self._usage = chunk.usage
        if str(chunk.object) == "error":  # vLLM's, where others send ``error``
            raise ProviderError(str(getattr(chunk, "message", None) or "The server failed."))
        for choice in chunk.choices or ():
            if text := error_text(getattr(choice, "error", None)):  # OpenRouter's
                raise ProviderError(f"The model's reply broke off: {text}")
            self._reason = choice.finish_reason or self._reason
            if choice.delta is not None:
                yield from self._add_delta(choice.delta, choice.index or 0)

    def _add_delta(self, delta: ChoiceDelta, choice: int) -> Iterator[Chunk]:
        yield from self._add_thinking(delta, choice)
        for thought, text in _texts(delta.content):
            kind = ThinkingDelta if thought else ContentDelta
            yield kind(self._joined(kind, choice) + text)
        if delta.refusal:
            self._refused = True
            yield ContentDelta(self._joined(ContentDelta, choice) + delta.refusal)
        for piece in delta.tool_calls or ():
            function = piece.function
            name, arguments = (function.name, function.arguments) if function else (None, None)
            call = self._calls.add((choice, piece.index or 0), piece.id, name, arguments)
            if isinstance(extra := getattr(piece, EXTRA, None), dict):
                call.extra = {EXTRA: extra}

    def _add_thinking(self, delta: ChoiceDelta, choice: int) -> Iterator[Chunk]:
        fields = ((name, getattr(delta, name, None)) for name in THOUGHT_FIELDS)
        field, thought = next(((name, text) for name, text in fields if text), (None, None))
        details = getattr(delta, DETAILS, None)
        if isinstance(details, list):
            texts = [self._add_detail(detail) for detail in details if isinstance(detail, dict)]
            thought = thought or "".join(texts)
        if thought:
            self._thought_field = self._thought_field or field
            yield ThinkingDelta(self._joined(ThinkingDelta, choice) + str(thought))

    def _add_detail(self, detail: JSONObject) -> str:
        """Keep a part of the thinking, joined with the one that it continues; return its text."""
        self._details_size += len(json.dumps(detail))
        if self._details_size > LARGEST_RESPONSE:
            raise too_large(LARGEST_RESPONSE)
        texts = [key for key in ("text", "summary") if isinstance(detail.get(key), str)]
        last = self._details[-1] if self._details else {}
        if texts and all(last.get(key) == detail.get(key) for key in ("type", "index")):
            joined = {key: f"{last.get(key) or ''}{detail[key]}" for key in texts}
            kept = {key: value for key, value in detail.items() if value is not None}
            self._details[-1] = {**last, **kept, **joined}
        else:
            self._details.append(detail)
        return "".join(str(detail[key]) for key in texts)

    def _joined(self, kind: type[ContentDelta | ThinkingDelta], choice: int) -> str:
        """Return what stands between the texts of two choices."""
        before = self._speaker.get(kind, choice)
        self._speaker[kind] = choice
        return "" if before == choice else "\n\n"

    def finish(self) -> Iterator[Chunk]:
        """Yield the calls and the end of the reply.

        Raises:
            ProviderError: the stream ended without saying that it is finished, or says that it
                failed.
        """
        if self._reason is None or self._reason == "error":
            raise ProviderError("The model's reply broke off before its end.")
        calls = [call for call in self._calls if call.name or call.has_arguments]
        reason = plain_text(self._reason).lower()
        reason = REASONS.get(reason, reason)
        for call in calls:
            call.name = self._names.from_vendor(call.name)
            yield call.complete(reason)
        if self._refused:
            reason = "refusal"
        elif reason in {"stop", "tool_calls"}:
            reason = "tool_calls" if calls else "stop"
        usage = self._usage
        yield Finish(
            reason=reason,
            eval_count=token_count(usage.completion_tokens) if usage else None,
            prompt_eval_count=token_count(usage.prompt_tokens) if usage else None,
            provider_data=self._provider_data(calls),
        )

    def _provider_data(self, calls: Sequence[CallFragments]) -> JSONObject | None:
        """Return what must go back with the reply beside its text and its calls."""
        kept: JSONObject = {}
        if self._thought_field:
            kept["thinking"] = self._thought_field
        if any(detail.get("signature") or detail.get("data") for detail in self._details):
            kept[DETAILS] = list(self._details)
        if any(call.extra for call in calls):
            kept["calls"] = [call.extra for call in calls]
        # What our own encoder cannot write is no JSON that the server could read again.
        safe = read_json(json.dumps(kept)) if kept else None
        return {"form": FORM, "model": self._model, **safe} if safe else None


def _texts(content: object) -> Iterator[tuple[bool, str]]:
    """Yield the texts of a delta, and whether they are thinking; Mistral's are lists of parts."""
    if isinstance(content, str):
        if content:
            yield False, content
        return
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict) and part.get("type") == "thinking":
            yield from ((True, text) for _, text in _texts(part.get("thinking")))
        elif isinstance(part, dict):
            yield from _texts(part.get("text"))
