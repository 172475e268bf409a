"""Requests of Gemini's ``generateContent`` (history, tools, thinking, schemas), and replies."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ...core.ids import new_call_id
from ...errors import JSONObject, ProviderError
from ...protocol.files import RequestFile
from ...protocol.messages import ToolCall
from ...protocol.response_format import JsonObjectFormat
from ..base import Chunk, ContentDelta, Finish, ModelInfo, ModelRequest, Think, ThinkingDelta
from ..common.history import (
    NO_RESULT,
    HistoryCall,
    HistoryStep,
    ReplyStep,
    ToolNames,
    UserStep,
    alternate,
    normalize_history,
    system_prompt,
)
from ..common.options import extra_of, fields_of
from ..common.reply_parts import ReplyParts, split
from ..common.tools import CallFragments, parameters_of
from ..common.values import token_count

if TYPE_CHECKING:
    from google.genai.types import FunctionCall, GenerateContentResponse, Part

FORM: Final = "gemini"
OPTIONS: Final = frozenset(
    {"temperature", "top_p", "top_k", "seed", "presence_penalty", "frequency_penalty"}
)
LEGAL_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")
BUDGETS: Final[dict[Think, int]] = {"low": 1024, "medium": 8192, "high": 24576, "max": -1}
"""Tokens of thinking for models that count them; -1 lets the model choose."""
LEVELS: Final[dict[Think, str]] = {"low": "LOW", "medium": "MEDIUM", "high": "HIGH", "max": "HIGH"}
_COUNTED: Final = re.compile(r"gemini-2\.")
_UNSIGNED: Final = re.compile(r"gemini-[12]\.|(?!gemini)")
"""Models that accept calls without a signature."""
PLACEHOLDER_SIGNATURE: Final = b"skip_thought_signature_validator"
"""Stands for the signature of a call that another model made; Google documents it."""
_THINKING_CAN_BE_OFF: Final = re.compile(r"gemini-2\.5-flash")
"""Models whose thinking is switched off by a budget of 0."""
REASONS: Final = {"STOP": "stop", "MAX_TOKENS": "length"}
MALFORMED_CALL: Final = "MALFORMED_FUNCTION_CALL"
"""The reason of a reply that ends with a call which only its message about the end has."""
BROKEN: Final = frozenset({MALFORMED_CALL, "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL"})
MAX_MESSAGE_CHARACTERS: Final = 500

Parts = list[dict[str, Any]]


def contents_of(messages: Sequence[JSONObject], model: str, names: ToolNames) -> Parts:
    """Return the messages of a request: roles alternate, the first is the user's.

    The results of a reply's calls are one message, in the order of the calls.
    """
    history = normalize_history(messages, model, names=names, legal_id=lambda stored, _own: stored)
    contents = alternate((_turn(step, model) for step in history), key="parts")
    if not _UNSIGNED.match(model):
        _sign(contents)
    return contents


def _turn(step: HistoryStep, model: str) -> tuple[str, Parts]:
    match step:
        case UserStep(text=text, files=files):
            return "user", [*map(_file, files), *([{"text": text}] if text else [])]
        case ReplyStep():
            return "model", _reply(step, model)
        case _:
            results = [_result(call, text) for call, text in step.results]
            return "user", [*results, *map(_file, step.all_images)]


def _file(file: RequestFile) -> dict[str, Any]:
    # The SDK takes bytes, and encodes them again.
    return {"inline_data": {"mime_type": file.media_type, "data": base64.b64decode(file.data)}}


def without_ids(contents: Sequence[Mapping[str, Any]]) -> Parts:
    """Return the same messages without ids; results follow the order of their calls."""

    def plain(part: Mapping[str, Any]) -> dict[str, Any]:
        calls = {"function_call", "function_response"} & part.keys()
        return {**part, **{kind: _without_id(part[kind]) for kind in calls}}

    return [{**content, "parts": list(map(plain, content["parts"]))} for content in contents]


def _without_id(call: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in call.items() if key != "id"}


def _sign(contents: Sequence[Mapping[str, Any]]) -> None:
    """Give the first call of each reply of the present turn a signature, where it has none."""
    for content in reversed(contents):
        calls = [part for part in content["parts"] if "function_call" in part]
        if calls:
            calls[0].setdefault("thought_signature", PLACEHOLDER_SIGNATURE)
        elif content["role"] == "user" and not _is_results(content):
            return


def _is_results(content: Mapping[str, Any]) -> bool:
    parts = content["parts"]
    return "function_response" in parts[0] and not any("text" in part for part in parts)


def _result(call: HistoryCall, text: str | None) -> dict[str, Any]:
    response = {"error": NO_RESULT} if text is None else {"output": text}
    return {"function_response": {"id": call.id, "name": call.name, "response": response}}


def _call(call: HistoryCall) -> dict[str, Any]:
    return {"function_call": {"id": call.id, "name": call.name, "args": call.arguments}}


def _reply(reply: ReplyStep, model: str) -> Parts:
    parts = split(reply.message, reply.calls, form=FORM, model=model)
    if parts is None:
        text = [{"text": reply.text}] if reply.text else []
        return [*text, *map(_call, reply.calls)]
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


def config_of(
    request: ModelRequest, info: ModelInfo | None, names: ToolNames, alias: str
) -> dict[str, Any]:
    """Return the configuration of a request, without its limit, from what is known of the model."""
    config: dict[str, Any] = {"automatic_function_calling": {"disable": True}}
    if system := system_prompt(request.messages):
        config["system_instruction"] = system
    if request.tools:
        declarations = [_tool(tool, names) for tool in request.tools]
        config["tools"] = [{"function_declarations": declarations}]
        if request.must_call:
            config["tool_config"] = {"function_calling_config": {"mode": "ANY"}}
    config |= fields_of(request.options, OPTIONS)
    if stops := request.options.stops:
        config["stop_sequences"] = stops
    if extra := extra_of(request.options, alias):
        config["http_options"] = {"extra_body": extra}
    if request.think:
        config["thinking_config"] = _thinking(request.model, request.think)
    elif _thinks(info) and _THINKING_CAN_BE_OFF.match(request.model):
        config["thinking_config"] = {"thinking_budget": 0}
    if request.schema is not None:
        config["response_mime_type"] = "application/json"
        if not isinstance(request.response_format, JsonObjectFormat):
            config["response_json_schema"] = request.schema
    return config


def thinks_unasked(request: ModelRequest, info: ModelInfo | None) -> bool:
    """Return whether the model thinks though it was not asked to: unseen, within its limit."""
    return not request.think and _thinks(info) and not _THINKING_CAN_BE_OFF.match(request.model)


def _thinks(info: ModelInfo | None) -> bool:
    return info is not None and "thinking" in info.capabilities


def _tool(tool: Mapping[str, Any], names: ToolNames) -> dict[str, Any]:
    function = tool["function"]
    name = names.to_vendor(function["name"])
    declaration = {"name": name, "description": function["description"]}
    schema = parameters_of(tool)
    return {**declaration, **({"parameters_json_schema": schema} if schema["properties"] else {})}


def _thinking(model: str, think: Think) -> dict[str, Any]:
    if think is True:
        return {"include_thoughts": True}
    if _COUNTED.search(model):
        return {"include_thoughts": True, "thinking_budget": BUDGETS[think]}
    return {"include_thoughts": True, "thinking_level": LEVELS[think]}


@dataclass(slots=True)
class GeminiReply:
    """One reply, put together from the answers of its stream."""

    model: str
    names: ToolNames
    _calls: list[ToolCall] = field(default_factory=list)
    _parts: ReplyParts = field(default_factory=ReplyParts)
    _signed: bool = False
    _reason: str | None = None
    _prompt_tokens: int | None = None
    _reply_tokens: int | None = None

    def add(self, answer: GenerateContentResponse) -> Iterator[Chunk]:
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
        both = (usage.candidates_token_count, usage.thoughts_token_count)
        self._reply_tokens = sum(token_count(one) or 0 for one in both) or self._reply_tokens

    def _add_part(self, part: Part) -> Iterator[Chunk]:
        signature = None
        if part.thought_signature:
            signature = base64.b64encode(part.thought_signature).decode()
        if part.function_call is not None:
            self._calls.append(_complete(part.function_call, self.names))
            self._parts.add("call", **({"signature": signature} if signature else {}))
            self._signed = False
        elif (text := part.text) is not None:
            kind = "thinking" if part.thought else "text"
            self._parts.add_text(kind, text, signature, new=self._signed or signature is not None)
            self._signed = signature is not None
            if text:
                yield ThinkingDelta(text) if part.thought else ContentDelta(text)

    def finish(self, message: str = "") -> Iterator[Chunk]:
        """Yield the calls and the end of the reply; ``message`` is the service's about the end."""
        if self._reason is None:
            raise ProviderError("The model's reply broke off before its end.")
        if self._reason == MALFORMED_CALL:
            self._add_malformed_call(message)
        elif self._reason in BROKEN:
            raise self._unusable(message)
        yield from self._calls
        reason = REASONS.get(self._reason, self._reason.lower())
        yield Finish(
            reason="tool_calls" if reason == "stop" and self._calls else reason,
            eval_count=self._reply_tokens,
            prompt_eval_count=self._prompt_tokens,
            provider_data=self._parts.provider_data(FORM, self.model),
        )

    def _add_malformed_call(self, message: str) -> None:
        """Add a call that the service could not read, as one that cannot run."""
        if (name := self.names.find_in(message)) is None:
            raise self._unusable(message)
        problem = f"they cannot be read ({message[:MAX_MESSAGE_CHARACTERS]})"
        arguments: JSONObject = {"input": message}
        self._calls.append(
            ToolCall(id=new_call_id(), name=name, arguments=arguments, problem=problem)
        )
        self._parts.add("call")
        self._reason = "STOP"

    def _unusable(self, message: str) -> ProviderError:
        return ProviderError(
            f"The model's reply cannot be used: {message or self._reason}",
            details={"finish_reason": self._reason},
        )


def _name(value: Any) -> str:  # noqa: ANN401 - an enum, or a word that it does not know
    return str(getattr(value, "value", value))


def _complete(call: FunctionCall, names: ToolNames) -> ToolCall:
    fragments = CallFragments()
    fragments.add(call.id, call.name, call.args)
    fragments.name = names.from_vendor(fragments.name)
    return fragments.complete()
