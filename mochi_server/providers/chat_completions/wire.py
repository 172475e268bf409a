"""The words of OpenAI's chat completions: stored messages to requests, fragments to chunks.

Some servers want more of a reply back than its text and its calls: the thinking (DeepSeek, Kimi),
signed or encrypted thinking (OpenRouter), signatures of calls (Gemini). What came is kept in
``provider_data`` and goes back where it came from: to the same model, in the same fields.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ...core.http_limits import LARGEST_RESPONSE, too_large
from ...errors import JSONObject, ProviderError
from ..base import Chunk, ContentDelta, Finish, ModelRequest, ThinkingDelta
from ..common.history import NO_RESULT, Answer, Call, Names, Question, short_id, steps_of, system_of
from ..common.http import words_of
from ..common.tool_calls import CallAssembly, Fragments, count_of, parsed, plain_text
from ..common.tool_schemas import parameters_of

if TYPE_CHECKING:
    from openai.types import CompletionUsage
    from openai.types.chat import ChatCompletionChunk
    from openai.types.chat.chat_completion_chunk import ChoiceDelta

FORM: Final = "openai"
THOUGHT_FIELDS: Final = ("reasoning_content", "reasoning")
"""Where servers put thinking: DeepSeek and llama.cpp the first, vLLM and OpenRouter the second."""

DETAILS: Final = "reasoning_details"
"""OpenRouter's parts of the thinking, some signed or encrypted."""

EXTRA: Final = "extra_content"
"""Where Gemini's endpoint of this protocol puts the signature of a call."""

LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
REASONS: Final = {"function_call": "tool_calls", "eos": "stop"}
NO_CHAT: Final = re.compile(
    r"(ft:)?[^:]*(embedding|whisper|tts|dall-e|moderation|image|sora|realtime|transcribe|audio"
    r"|babbage|davinci)"
)
"""Begins the names on OpenAI's own list that have no chat completions; in a fine-tuned model's, the
names behind the model's are its owner's."""

CUT_OFF: Final = "(The reply was cut off.)"
_STRICT: Final = re.compile(r"[a-z]stral|mixtral", re.IGNORECASE)
"""Mistral's models: their API and their templates refuse a question right after results."""

_NINE: Final = re.compile(r"[a-zA-Z0-9]{9}")


def to_wire(request: ModelRequest, names: Names) -> list[JSONObject]:
    """Stored messages as the request has them; the system prompt is the first."""
    wire: list[JSONObject] = []
    if system := system_of(request.messages):
        wire.append({"role": "system", "content": system})
    for step in steps_of(request.messages, request.model, names=names, legal_id=_legal_id):
        match step:
            case Question(text=text):
                if wire and wire[-1]["role"] == "tool" and _STRICT.search(request.model):
                    wire.append({"role": "assistant", "content": CUT_OFF})
                wire.append({"role": "user", "content": text})
            case Answer():
                _add_answer(wire, step, request.model)
            case _:
                wire += [
                    {
                        "role": "tool",
                        "tool_call_id": call.id,
                        "name": call.name,
                        "content": NO_RESULT if text is None else text,
                    }
                    for call, text in step.results
                ]
    return wire


def _legal_id(stored: str, own: bool) -> str:  # noqa: FBT001 - as the steps ask
    """The server's own ids as they came; others in the one form that no template refuses."""
    return stored if own or _NINE.fullmatch(stored) else short_id(stored)


def _add_answer(wire: list[JSONObject], answer: Answer, model: str) -> None:
    """One more reply; two in a row are one, since many templates want the roles to alternate."""
    echo = _echo_of(answer.message, model)
    entry: JSONObject = {"role": "assistant", "content": answer.text, **_thinking(answer, echo)}
    if answer.calls:
        beside = echo.get("calls")
        if not isinstance(beside, list) or len(beside) != len(answer.calls):
            beside = [None] * len(answer.calls)
        entry["tool_calls"] = [
            _call_to_wire(call, extra if isinstance(extra, dict) else {})
            for call, extra in zip(answer.calls, beside, strict=True)
        ]
    if wire and (last := wire[-1])["role"] == "assistant":
        entry["content"] = "\n\n".join(text for text in (str(last["content"]), answer.text) if text)
        wire[-1] = {**last, **entry}
    else:
        wire.append(entry)


def _echo_of(message: Mapping[str, Any], model: str) -> Mapping[str, Any]:
    """What is to go back of a reply; nothing of another model's."""
    data = message.get("provider_data")
    if not isinstance(data, dict) or (data.get("form"), data.get("model")) != (FORM, model):
        return {}
    return data


def _thinking(answer: Answer, echo: Mapping[str, Any]) -> JSONObject:
    thought, where = answer.message.get("thinking"), echo.get("thinking")
    found: JSONObject = {}
    if thought and where in THOUGHT_FIELDS:
        found[str(where)] = str(thought)
    if isinstance(echo.get(DETAILS), list):
        found[DETAILS] = echo[DETAILS]
    return found


def _call_to_wire(call: Call, extra: Mapping[str, Any]) -> JSONObject:
    function: JSONObject = {"name": call.name, "arguments": json.dumps(call.arguments)}
    return {"id": call.id, "type": "function", "function": function, **extra}


def tools_of(tools: Sequence[JSONObject], names: Names) -> list[JSONObject]:
    """The tools that are offered, by the names that the vendor takes."""
    found: list[JSONObject] = []
    for tool in tools:
        function = tool.get("function")
        if isinstance(function, dict):
            named = {**function, "name": names.theirs(str(function.get("name")))}
            # OpenAI and LM Studio refuse an object that names no properties.
            named["parameters"] = parameters_of(tool)
            found.append({**tool, "function": named})
        else:
            found.append(tool)
    return found


class Assembly:
    """Folds the pieces of one streamed reply into chunks.

    Several choices become one reply: texts as paragraphs in the order of their arrival, calls in
    the order of the choices.
    """

    def __init__(self, model: str, names: Names) -> None:
        self._model = model
        self._names = names
        self._calls = CallAssembly()
        self._speaker: dict[type[ContentDelta | ThinkingDelta], int] = {}
        """The choice that each kind of text came from last."""
        self._reason: str | None = None
        self._refused = False
        self._usage: CompletionUsage | None = None
        self._thought_field: str | None = None
        self._details: list[JSONObject] = []
        self._details_size = 0

    def add(self, chunk: ChatCompletionChunk) -> Iterator[Chunk]:
        """What a piece of the stream says at once; calls wait until they are whole.

        Raises:
            ProviderError: it says that something went wrong.
        """
        if chunk.usage is not None:
            self._usage = chunk.usage
        if str(chunk.object) == "error":  # vLLM's, where others send ``error``
            raise ProviderError(str(getattr(chunk, "message", None) or "The server failed."))
        for choice in chunk.choices or ():
            if words := words_of(getattr(choice, "error", None)):  # OpenRouter's
                raise ProviderError(f"The model's reply broke off: {words}")
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
            said = piece.function
            name, arguments = (said.name, said.arguments) if said else (None, None)
            call = self._calls.add((choice, piece.index or 0), piece.id, name, arguments)
            if isinstance(extra := getattr(piece, EXTRA, None), dict):
                call.extra = {EXTRA: extra}

    def _add_thinking(self, delta: ChoiceDelta, choice: int) -> Iterator[Chunk]:
        found = ((name, getattr(delta, name, None)) for name in THOUGHT_FIELDS)
        where, thought = next(((name, text) for name, text in found if text), (None, None))
        details = getattr(delta, DETAILS, None)
        if isinstance(details, list):
            said = [self._add_detail(detail) for detail in details if isinstance(detail, dict)]
            thought = thought or "".join(said)
        if thought:
            self._thought_field = self._thought_field or where
            yield ThinkingDelta(self._joined(ThinkingDelta, choice) + str(thought))

    def _add_detail(self, detail: JSONObject) -> str:
        """Keep a part of the thinking, joined with the one before where it goes on; its text.

        Raises:
            ProviderError: such parts are too large.
        """
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
        """What stands between the texts of two choices."""
        before = self._speaker.get(kind, choice)
        self._speaker[kind] = choice
        return "" if before == choice else "\n\n"

    def finish(self) -> Iterator[Chunk]:
        """The calls and the end of the reply.

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
            call.name = self._names.ours(call.name)
            yield call.whole(reason)
        if self._refused:
            reason = "refusal"
        elif reason in {"stop", "tool_calls"}:
            reason = "tool_calls" if calls else "stop"
        usage = self._usage
        yield Finish(
            reason=reason,
            eval_count=count_of(usage.completion_tokens) if usage else None,
            prompt_eval_count=count_of(usage.prompt_tokens) if usage else None,
            provider_data=self._echo(calls),
        )

    def _echo(self, calls: Sequence[Fragments]) -> JSONObject | None:
        """What must go back with the reply beside its text and its calls."""
        kept: JSONObject = {}
        if self._thought_field:
            kept["thinking"] = self._thought_field
        if any(detail.get("signature") or detail.get("data") for detail in self._details):
            kept[DETAILS] = list(self._details)
        if any(call.extra for call in calls):
            kept["calls"] = [call.extra for call in calls]
        # What our own encoder cannot write is no JSON that the server could read again.
        safe = parsed(json.dumps(kept)) if kept else None
        return {"form": FORM, "model": self._model, **safe} if safe else None


def _texts(content: object) -> Iterator[tuple[bool, str]]:
    """The texts of a delta, and whether they are thinking; Mistral's are lists of parts."""
    if isinstance(content, str):
        if content:
            yield False, content
        return
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict) and part.get("type") == "thinking":
            yield from ((True, text) for _, text in _texts(part.get("thinking")))
        elif isinstance(part, dict):
            yield from _texts(part.get("text"))
