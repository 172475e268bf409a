"""The chunks of a streamed reply of Gemini."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ...core.ids import new_call_id
from ...errors import ProviderError
from ...protocol.messages import ToolCall
from ..base import Chunk, ContentDelta, Finish, ThinkingDelta
from ..common.history import ToolNames
from ..common.reply_parts import ReplyParts
from ..common.tool_calls import CallFragments
from ..common.values import token_count
from .requests import FORM

if TYPE_CHECKING:
    from google.genai.types import FunctionCall, GenerateContentResponse, Part

REASONS: Final = {"STOP": "stop", "MAX_TOKENS": "length"}
MALFORMED_CALL: Final = "MALFORMED_FUNCTION_CALL"
"""The reason of a reply that ends with a call which only its message about the end has."""

BROKEN: Final = frozenset({MALFORMED_CALL, "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL"})
LONGEST_WORDS: Final = 500
"""Characters of what the service says of a call that it could not read."""


@dataclass(slots=True)
class GeminiReply:
    """One reply, put together from the answers of its stream."""

    model: str
    names: ToolNames
    _calls: list[ToolCall] = field(default_factory=list)
    _parts: ReplyParts = field(default_factory=ReplyParts)
    _signed: bool = False
    """Whether the last part is closed by a signature."""
    _reason: str | None = None
    _prompt_tokens: int | None = None
    _reply_tokens: int | None = None

    def add(self, answer: GenerateContentResponse) -> Iterator[Chunk]:
        """Yield what a piece of the stream says at once; calls wait for the end.

        Raises:
            ProviderError: the prompt was blocked.
        """
        self._count(answer)
        feedback = answer.prompt_feedback
        if feedback is not None and feedback.block_reason and not answer.candidates:
            raise ProviderError(
                f"Gemini blocked the prompt: {_name(feedback.block_reason)}.",
                details={"block_reason": _name(feedback.block_reason)},
            )
        for candidate in (answer.candidates or ())[:1]:
            if candidate.content is not None:
                for part in candidate.content.parts or ():
                    yield from self._add_part(part)
            if candidate.finish_reason:
                self._reason = _name(candidate.finish_reason)

    def _count(self, answer: GenerateContentResponse) -> None:
        usage = answer.usage_metadata
        if usage is None:
            return
        self._prompt_tokens = token_count(usage.prompt_token_count) or self._prompt_tokens
        counts = [
            token_count(usage.candidates_token_count),
            token_count(usage.thoughts_token_count),
        ]
        if any(counts):
            self._reply_tokens = sum(count or 0 for count in counts)

    def _add_part(self, part: Part) -> Iterator[Chunk]:
        signature = None
        if part.thought_signature:
            signature = base64.b64encode(part.thought_signature).decode()
        if part.function_call is not None:
            self._calls.append(_complete(part.function_call, self.names))
            self._parts.add("call", **({"signature": signature} if signature else {}))
            self._signed = False
        elif part.text is not None:
            yield from self._add_text(part.text, signature, thought=bool(part.thought))

    def _add_text(self, text: str, signature: str | None, *, thought: bool) -> Iterator[Chunk]:
        kind = "thinking" if thought else "text"
        self._parts.add_text(kind, text, signature, new=self._signed or signature is not None)
        self._signed = signature is not None
        if text:
            yield ThinkingDelta(text) if thought else ContentDelta(text)

    def finish(self, words: str = "") -> Iterator[Chunk]:
        """Yield the calls and the end of the reply.

        Args:
            words: The service's message about the end.

        Raises:
            ProviderError: the stream ended without saying that it is finished, or its end says
                that it cannot be used.
        """
        if self._reason is None:
            raise ProviderError("The model's reply broke off before its end.")
        if self._reason == MALFORMED_CALL:
            self._add_malformed_call(words)
        elif self._reason in BROKEN:
            raise self._unusable(words)
        yield from self._calls
        reason = REASONS.get(self._reason, self._reason.lower())
        yield Finish(
            reason="tool_calls" if reason == "stop" and self._calls else reason,
            eval_count=self._reply_tokens,
            prompt_eval_count=self._prompt_tokens,
            provider_data=self._parts.provider_data(FORM, self.model),
        )

    def _add_malformed_call(self, words: str) -> None:
        """Add a call that the service could not read, as one that cannot run.

        Raises:
            ProviderError: nothing says which tool was called.
        """
        if (name := self.names.find_in(words)) is None:
            raise self._unusable(words)
        self._calls.append(
            ToolCall(
                id=new_call_id(),
                name=name,
                arguments={"input": words},
                problem=f"they cannot be read ({words[:LONGEST_WORDS]})",
            )
        )
        self._parts.add("call")
        self._reason = "STOP"

    def _unusable(self, words: str) -> ProviderError:
        return ProviderError(
            f"The model's reply cannot be used: {words or self._reason}",
            details={"finish_reason": self._reason},
        )


def _name(value: Any) -> str:  # noqa: ANN401 - an enum, or a word that it does not know
    return str(getattr(value, "value", value))


def _complete(call: FunctionCall, names: ToolNames) -> ToolCall:
    """Return the call; Gemini streams none in fragments."""
    fragments = CallFragments()
    fragments.add(call.id, call.name, call.args)
    fragments.name = names.from_vendor(fragments.name)
    return fragments.complete()
