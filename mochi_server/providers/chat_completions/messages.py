"""Requests and replies of chat completions.

Some servers want more of a reply back than its text and its calls: the thinking (DeepSeek, Kimi),
signed or encrypted thinking (OpenRouter), signatures of calls (Gemini). What came is kept in
``provider_data`` and goes back where it came from: to the same model, in the same fields.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pydantic import JsonValue

from ...core.json_text import read_json
from ...core.limits import MAX_RESPONSE, too_large
from ...errors import JSONObject, ProviderError
from ...protocol.files import RequestFile
from ...protocol.response_format import JsonObjectFormat, ResponseFormat
from ..base import Chunk, ContentDelta, Finish, ModelRequest, ThinkingDelta
from ..common.history import (
    NO_RESULT,
    HistoryCall,
    ReplyStep,
    ToolNames,
    UserStep,
    normalize_history,
    short_id,
    system_prompt,
)
from ..common.tools import CallFragments, FragmentedCalls, parameters_of
from ..common.values import error_text, plain_text, token_count

if TYPE_CHECKING:
    from openai.types import CompletionUsage
    from openai.types.chat import ChatCompletionChunk
    from openai.types.chat.chat_completion_chunk import Choice, ChoiceDelta

FORM: Final = "openai"
THOUGHT_FIELDS: Final = ("reasoning_content", "reasoning")
"""Where servers put thinking: DeepSeek and llama.cpp the first, vLLM and OpenRouter the second."""
DETAILS: Final = "reasoning_details"
"""OpenRouter's parts of the thinking, some signed or encrypted."""
STREAM_OPTIONS: Final = "stream_options"
EFFORT: Final = "reasoning_effort"
NO_EFFORT: Final = "none"
FORMAT: Final = "response_format"
LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
UNNAMED: Final = "document.pdf"
"""OpenAI requires a name of a document."""
IMAGES_OF_RESULTS: Final = "(The images are of the results above.)"
"""What a message of the user says that has them: results may have no images in this protocol."""
CUT_OFF: Final = "(The reply was cut off.)"
_MISTRAL: Final = re.compile(r"[a-z]stral|mixtral", re.IGNORECASE)
"""Models whose API and templates refuse a message of the user right after results."""
_NINE: Final = re.compile(r"[a-zA-Z0-9]{9}")
REASONS: Final = {"function_call": "tool_calls", "eos": "stop"}
EXTRA: Final = "extra_content"
"""Where Gemini's endpoint of this protocol puts the signature of a call."""

Payload = dict[str, Any]


def format_field(response_format: ResponseFormat) -> JSONObject:
    """Return the field of a request that holds the model to a form."""
    if isinstance(response_format, JsonObjectFormat):
        return {"type": response_format.type}
    schema = response_format.json_schema
    described: JSONObject = {"name": schema.name, "schema": schema.content}
    if schema.description is not None:
        described["description"] = schema.description
    if schema.strict is not None:
        described["strict"] = schema.strict
    return {"type": response_format.type, "json_schema": described}


def messages_of(request: ModelRequest, names: ToolNames) -> list[JSONObject]:
    messages: list[JSONObject] = []
    if system := system_prompt(request.messages):
        messages.append({"role": "system", "content": system})
    history = normalize_history(request.messages, request.model, names=names, legal_id=_legal_id)
    for step in history:
        match step:
            case UserStep():
                if messages and messages[-1]["role"] == "tool" and _MISTRAL.search(request.model):
                    messages.append({"role": "assistant", "content": CUT_OFF})
                _add_user(messages, step)
            case ReplyStep():
                _add_reply(messages, step, request.model)
            case _:
                messages += [_result(call, text) for call, text in step.results]
                if (images := step.all_images) and not _MISTRAL.search(request.model):
                    mark: JsonValue = {"type": "text", "text": IMAGES_OF_RESULTS}
                    messages.append({"role": "user", "content": [*map(_file, images), mark]})
    return messages


def _add_user(messages: list[JSONObject], step: UserStep) -> None:
    """Add what the user said; templates want one message where images of results are before it."""
    content = _user_content(step)
    if messages and messages[-1]["role"] == "user":
        parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
        images = messages.pop()["content"]
        assert isinstance(images, list)  # noqa: S101
        content = [*images, *parts]
    messages.append({"role": "user", "content": content})


def without_images_of_results(messages: Sequence[JSONObject]) -> list[JSONObject]:
    """Return the messages as they are for a model that does not see."""
    mark: JsonValue = {"type": "text", "text": IMAGES_OF_RESULTS}
    kept: list[JSONObject] = []
    for message in messages:
        content = message.get("content")
        if not isinstance(content, list) or mark not in content:
            kept.append(message)
        elif parts := content[content.index(mark) + 1 :]:
            kept.append({**message, "content": _text_alone(parts) or parts})
    return kept


def _text_alone(parts: Sequence[JsonValue]) -> JsonValue:
    """Return the text of a message that has nothing else, which every server takes."""
    first = parts[0]
    return first.get("text") if len(parts) == 1 and isinstance(first, dict) else None


def _user_content(step: UserStep) -> JsonValue:
    """Return the text, or parts where there are files; many servers take texts only."""
    if not step.files:
        return step.text
    text: list[JsonValue] = [{"type": "text", "text": step.text}] if step.text else []
    return [*map(_file, step.files), *text]


def _file(file: RequestFile) -> JsonValue:
    if file.is_image:
        return {"type": "image_url", "image_url": {"url": file.data_url}}
    name = file.name or UNNAMED
    return {"type": "file", "file": {"filename": name, "file_data": file.data_url}}


def _result(call: HistoryCall, text: str | None) -> JSONObject:
    content = NO_RESULT if text is None else text
    return {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": content}


def _legal_id(stored: str, own: bool) -> str:  # noqa: FBT001 - as the history asks
    """Keep the server's own ids; others get the one form that no template refuses."""
    return stored if own or _NINE.fullmatch(stored) else short_id(stored)


def _add_reply(messages: list[JSONObject], reply: ReplyStep, model: str) -> None:
    """Add a reply; two in a row become one, since many templates want the roles to alternate."""
    data = reply.message.get("provider_data")
    if not isinstance(data, dict) or (data.get("form"), data.get("model")) != (FORM, model):
        data = {}  # nothing of another model's goes back
    entry: JSONObject = {"role": "assistant", "content": reply.text, **_thinking(reply, data)}
    if reply.calls:
        extras = data.get("calls")
        if not isinstance(extras, list) or len(extras) != len(reply.calls):
            extras = [None] * len(reply.calls)
        entry["tool_calls"] = [
            _call(call, extra if isinstance(extra, dict) else {})
            for call, extra in zip(reply.calls, extras, strict=True)
        ]
    if messages and (last := messages[-1])["role"] == "assistant":
        entry["content"] = "\n\n".join(text for text in (str(last["content"]), reply.text) if text)
        messages[-1] = {**last, **entry}
    else:
        messages.append(entry)


def _thinking(reply: ReplyStep, data: Mapping[str, Any]) -> JSONObject:
    thought, thought_field = reply.message.get("thinking"), data.get("thinking")
    fields: JSONObject = {}
    if thought and thought_field in THOUGHT_FIELDS:
        fields[str(thought_field)] = str(thought)
    if isinstance(data.get(DETAILS), list):
        fields[DETAILS] = data[DETAILS]
    return fields


def _call(call: HistoryCall, extra: Mapping[str, Any]) -> JSONObject:
    function: JSONObject = {"name": call.name, "arguments": json.dumps(call.arguments)}
    return {"id": call.id, "type": "function", "function": function, **extra}


def tools_of(tools: Sequence[Mapping[str, Any]], names: ToolNames) -> list[JSONObject]:
    """Return the tools to send; OpenAI and LM Studio refuse an object that names no properties."""
    return [
        {
            **tool,
            "function": {
                **tool["function"],
                "name": names.to_vendor(tool["function"]["name"]),
                "parameters": parameters_of(tool),
            },
        }
        for tool in tools
    ]


def _stop_sequence_of(choice: Choice) -> str | None:
    """Return the text that has ended a choice; vLLM and SGLang say it, each in its own field."""
    texts = (getattr(choice, name, None) for name in ("stop_reason", "matched_stop"))
    return next((text for text in texts if isinstance(text, str)), None)


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
        self._stop_sequence: str | None = None
        self._refused = False
        self._usage: CompletionUsage | None = None
        self._thought_field: str | None = None
        self._details: list[JSONObject] = []
        self._details_size = 0

    def add(self, chunk: ChatCompletionChunk) -> Iterator[Chunk]:
        if chunk.usage is not None:
            self._usage = chunk.usage
        if str(chunk.object) == "error":  # vLLM's, where others send ``error``
            raise ProviderError(str(getattr(chunk, "message", None) or "The server failed."))
        for choice in chunk.choices or ():
            if text := error_text(getattr(choice, "error", None)):  # OpenRouter's
                raise ProviderError(f"The model's reply broke off: {text}")
            self._reason = choice.finish_reason or self._reason
            self._stop_sequence = _stop_sequence_of(choice) or self._stop_sequence
            if choice.delta is not None:
                yield from self._add_delta(choice.delta, choice.index or 0)

    def _add_delta(self, delta: ChoiceDelta, choice: int) -> Iterator[Chunk]:
        yield from self._add_thinking(delta, choice)
        for thought, text in _texts(delta.content):
            kind = ThinkingDelta if thought else ContentDelta
            yield kind(self._separator_before(kind, choice) + text)
        if delta.refusal:
            self._refused = True
            yield ContentDelta(self._separator_before(ContentDelta, choice) + delta.refusal)
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
            yield ThinkingDelta(self._separator_before(ThinkingDelta, choice) + str(thought))

    def _add_detail(self, detail: JSONObject) -> str:
        """Keep a part of the thinking, joined with the one that it continues; return its text."""
        self._details_size += len(json.dumps(detail))
        if self._details_size > MAX_RESPONSE:
            raise too_large(MAX_RESPONSE)
        texts = [key for key in ("text", "summary") if isinstance(detail.get(key), str)]
        last = self._details[-1] if self._details else {}
        if texts and all(last.get(key) == detail.get(key) for key in ("type", "index")):
            joined = {key: f"{last.get(key) or ''}{detail[key]}" for key in texts}
            kept = {key: value for key, value in detail.items() if value is not None}
            self._details[-1] = {**last, **kept, **joined}
        else:
            self._details.append(detail)
        return "".join(str(detail[key]) for key in texts)

    def _separator_before(self, kind: type[ContentDelta | ThinkingDelta], choice: int) -> str:
        """Return a blank line where the text before was another choice's; else nothing."""
        before = self._speaker.get(kind, choice)
        self._speaker[kind] = choice
        return "" if before == choice else "\n\n"

    def finish(self) -> Iterator[Chunk]:
        if self._reason is None or self._reason == "error":
            raise ProviderError("The model's reply broke off before its end.")
        calls = [call for call in self._calls if call.name or call.arguments]
        reason = plain_text(self._reason).lower()
        reason = REASONS.get(reason, reason)
        for call in calls:
            call.name = self._names.from_vendor(call.name)
            yield call.complete(reason)
        if self._refused:
            reason = "refusal"
        elif reason in {"stop", "tool_calls"}:
            reason = "tool_calls" if calls else "stop"
        usage = self._usage  # None where the server does not count
        yield Finish(
            reason=reason,
            eval_count=token_count(getattr(usage, "completion_tokens", None)),
            prompt_eval_count=token_count(getattr(usage, "prompt_tokens", None)),
            stop_sequence=self._stop_sequence,
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
