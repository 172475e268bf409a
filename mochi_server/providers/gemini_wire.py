"""The words of Gemini's ``generateContent``: stored messages to requests, answers to chunks."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import orjson

from ..errors import JSONObject, ProviderError
from ..messages import ToolCall, new_call_id
from ..nesting import CALL_LEVELS, is_too_deep
from .base import Chunk, ContentDelta, Finish, ModelRequest, Think, ThinkingDelta
from .calls import calls_of, parsed, take_call
from .outline import Outline, cut

if TYPE_CHECKING:
    from google.genai.types import FunctionCall, GenerateContentResponse, Part

FORM: Final = "gemini"
LEFT_OUT: Final = "(What was said before is left out.)"
NO_RESULT: Final = "Error: the call was interrupted."
REASONS: Final = {"STOP": "stop", "MAX_TOKENS": "length"}
BROKEN: Final = frozenset({"MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL"})
BUDGETS: Final[dict[Think, int]] = {"low": 1024, "medium": 8192, "high": 24576, "max": -1}
"""Tokens of thinking for models that count them; -1 lets the model choose."""

LEVELS: Final[dict[Think, str]] = {"low": "LOW", "medium": "MEDIUM", "high": "HIGH", "max": "HIGH"}
_COUNTED: Final = re.compile(r"gemini-2\.")

Parts = list[dict[str, Any]]


def contents_of(messages: Sequence[JSONObject], model: str) -> list[dict[str, Any]]:
    """Stored messages as the request has them: roles alternate, the first is the user's.

    The results of a reply's calls are one message, in the order of the calls' results.
    """
    wire = _Wire()
    for message in messages:
        match message.get("role"):
            case "user":
                wire.add("user", _text(message.get("content")))
            case "assistant":
                wire.add_assistant(message, model)
            case "tool":
                wire.add_result(message)
    wire.close_calls()
    return wire.contents


class _Wire:
    """The contents of a request as far as they are made."""

    def __init__(self) -> None:
        self.contents: list[dict[str, Any]] = []
        self._open: list[tuple[str, str]] = []
        """Id and name of the calls that have no result yet."""

    def add(self, role: str, parts: Parts) -> None:
        if not parts:
            return
        self.close_calls()
        self._join(role, parts)

    def add_assistant(self, message: Mapping[str, Any], model: str) -> None:
        parts = _assistant(message, model)
        self.add("model", parts)
        calls = [part["function_call"] for part in parts if "function_call" in part]
        self._open = [(call["id"], call["name"]) for call in calls]

    def add_result(self, message: Mapping[str, Any]) -> None:
        names = dict(self._open)
        if not names:
            return  # of a call that is not there; the API would refuse the whole request
        call_id = take_call(self._open, message)
        if call_id in names:
            text = str(message.get("content") or "")
            self._join("user", [_result(call_id, names[call_id], {"output": text})])

    def close_calls(self) -> None:
        """Give the calls a result that have none: each must have one."""
        missing = [_result(call_id, name, {"error": NO_RESULT}) for call_id, name in self._open]
        self._open = []
        if missing:
            self._join("user", missing)

    def _join(self, role: str, parts: Parts) -> None:
        if not self.contents and role == "model":
            self.contents.append({"role": "user", "parts": _text(LEFT_OUT)})
        if self.contents and self.contents[-1]["role"] == role:
            self.contents[-1]["parts"].extend(parts)
        else:
            self.contents.append({"role": role, "parts": parts})


def _text(text: object) -> Parts:
    return [{"text": str(text)}] if text else []


def _result(call_id: str, name: str, response: dict[str, str]) -> dict[str, Any]:
    return {"function_response": {"id": call_id, "name": name, "response": response}}


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function") or {}
    arguments = function.get("arguments") or {}
    if isinstance(arguments, str):
        arguments = parsed(arguments)
    return {
        "function_call": {
            "id": str(call.get("id") or new_call_id()),
            "name": str(function.get("name") or ""),
            "args": arguments if isinstance(arguments, dict) else {},
        }
    }


def _assistant(message: Mapping[str, Any], model: str) -> Parts:
    parts = cut(message, form=FORM, model=model)
    if parts is None:
        return [*_text(message.get("content")), *map(_call, calls_of(message))]
    return [entry for part, value in parts for entry in _part(part, value)]


def _part(part: Mapping[str, Any], value: Any) -> Parts:  # noqa: ANN401 - a text or a call
    signature = _signature(part.get("signature"))
    signed = {"thought_signature": signature} if signature else {}
    match part.get("kind"):
        case "text" if value or signed:
            return [{"text": value, **signed}]
        case "call":
            return [{**_call(value), **signed}]
    return []  # thoughts are not sent back


def _signature(text: object) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True) if isinstance(text, str) else None
    except binascii.Error:
        return None


def config_of(request: ModelRequest) -> dict[str, Any]:
    """The configuration of a request, without its limit."""
    texts = [str(m.get("content") or "") for m in request.messages if m.get("role") == "system"]
    config: dict[str, Any] = {"automatic_function_calling": {"disable": True}}
    if system := "\n\n".join(filter(None, texts)):
        config["system_instruction"] = system
    if request.tools:
        config["tools"] = [{"function_declarations": [_tool(tool) for tool in request.tools]}]
    if request.temperature is not None:
        config["temperature"] = request.temperature
    if request.think:
        config["thinking_config"] = _thinking(request.model, request.think)
    if request.schema is not None:
        config["response_mime_type"] = "application/json"
        config["response_json_schema"] = request.schema
    return config


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    function = tool.get("function") or {}
    found = {"name": function.get("name"), "description": function.get("description") or ""}
    schema = function.get("parameters") or {}
    return {**found, "parameters_json_schema": schema} if schema.get("properties") else found


def _thinking(model: str, think: Think) -> dict[str, Any]:
    if think is True:
        return {"include_thoughts": True}
    if _COUNTED.search(model):
        return {"include_thoughts": True, "thinking_budget": BUDGETS[think]}
    return {"include_thoughts": True, "thinking_level": LEVELS[think]}


@dataclass(slots=True)
class Assembly:
    """Folds the answers of one streamed reply into chunks."""

    model: str
    _calls: list[ToolCall] = field(default_factory=list)
    _outline: Outline = field(default_factory=Outline)
    _signed: bool = False
    """Whether the last part is closed by a signature."""
    _reason: str | None = None
    _words: str | None = None
    _prompt: int | None = None
    _generated: int | None = None

    def add(self, answer: GenerateContentResponse) -> Iterator[Chunk]:
        """What a piece of the stream says at once; calls wait for the end.

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
                self._words = candidate.finish_message

    def _count(self, answer: GenerateContentResponse) -> None:
        usage = answer.usage_metadata
        if usage is None:
            return
        self._prompt = usage.prompt_token_count or self._prompt
        counts = (usage.candidates_token_count, usage.thoughts_token_count)
        if any(counts):
            self._generated = sum(count or 0 for count in counts)

    def _add_part(self, part: Part) -> Iterator[Chunk]:
        signature = None
        if part.thought_signature:
            signature = base64.b64encode(part.thought_signature).decode()
        if part.function_call is not None:
            self._calls.append(_whole(part.function_call))
            self._outline.add("call", **({"signature": signature} if signature else {}))
            self._signed = False
        elif part.text is not None:
            yield from self._add_text(part.text, signature, thought=bool(part.thought))

    def _add_text(self, text: str, signature: str | None, *, thought: bool) -> Iterator[Chunk]:
        kind = "thinking" if thought else "text"
        self._outline.grow(kind, text, signature, new=self._signed or signature is not None)
        self._signed = signature is not None
        if text:
            yield ThinkingDelta(text) if thought else ContentDelta(text)

    def finish(self) -> Iterator[Chunk]:
        """The calls and the end of the reply.

        Raises:
            ProviderError: the stream ended without saying that it is finished, or the model called
                tools in a way that cannot be read.
        """
        if self._reason is None:
            raise ProviderError("The model's reply broke off before its end.")
        if self._reason in BROKEN:
            raise ProviderError(
                f"The model's reply cannot be used: {self._words or self._reason}",
                details={"finish_reason": self._reason},
            )
        yield from self._calls
        reason = REASONS.get(self._reason, self._reason.lower())
        yield Finish(
            reason="tool_calls" if reason == "stop" and self._calls else reason,
            eval_count=self._generated,
            prompt_eval_count=self._prompt,
            provider_data=self._outline.as_stored(FORM, self.model),
        )


def _name(value: Any) -> str:  # noqa: ANN401 - an enum, or a word that it does not know
    return str(getattr(value, "value", value))


def _whole(call: FunctionCall) -> ToolCall:
    """The call; Gemini streams none in fragments.

    Raises:
        ProviderError: its arguments cannot be stored.
    """
    arguments = parsed(
        orjson.dumps(call.args or {}, option=orjson.OPT_PASSTHROUGH_SUBCLASS).decode()
    )
    if not isinstance(arguments, dict) or is_too_deep(arguments, CALL_LEVELS):
        raise ProviderError(f"The model called {call.name!r} with arguments that cannot be stored.")
    return ToolCall(id=call.id or new_call_id(), name=call.name or "", arguments=arguments)
