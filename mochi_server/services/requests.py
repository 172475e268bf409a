"""What is asked of a model for a session: its history, fitted to the context window."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import orjson

from ..core.aio import in_thread_if
from ..core.media import IMAGES
from ..errors import (
    AttachmentUnsupported,
    ContextOverflow,
    ImagesNotSupported,
    JSONObject,
    ThinkingNotSupported,
    ToolsNotSupported,
)
from ..protocol.files import FILES
from ..protocol.messages import AssistantMessage, UserMessage
from ..protocol.options import ModelOptions
from ..protocol.response_format import ResponseFormat
from ..providers.base import ModelInfo, ModelRequest, Provider, Think
from ..sessions import ChatSession
from ..sessions.attachments import AttachmentStore
from .attachments import Readable, attached_tokens, with_latest_images, write_out
from .context_window import DynamicContextWindowService, Window, record
from .history import FittedHistory, estimate, fit, objects, system_of, usage_of
from .models.resolver import ModelSetup
from .response_format import instruction

LONG_SESSION = 200
"""Messages from which on the history is fitted in a thread: a large window may take them all."""
SMALLEST_REPLY = 256
"""Tokens that a reply may always have, even when the window seems full."""
FILLED = 0.75
"""Share of the window that is filled again after an overflow."""
DENSEST_TEXT = 6.0
"""Characters a token that hardly any text exceeds: what overflows even so surely does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatModel:
    """A model that exists, with checks that refuse what is known to fail."""

    full_name: str
    """Name in sessions: with the provider's alias where that is not the default."""
    name: str
    """The provider's own name."""
    info: ModelInfo
    provider: Provider

    def check_tools(self) -> None:
        """Refuse tools for a model that is known not to call any."""
        if not self.info.can_call_tools or not self.provider.capabilities.tools:
            raise ToolsNotSupported(model=self.full_name)

    @property
    def may_think(self) -> bool:
        """Whether it is not known that the model cannot think."""
        unable = self.info.capabilities and "thinking" not in self.info.capabilities
        return self.provider.capabilities.thinking and not unable

    @property
    def thinks_unasked(self) -> bool:
        """Whether it thinks where a request does not say."""
        return self.may_think and self.provider.capabilities.thinks_unasked

    def check_thinking(self, think: Think) -> None:
        """Refuse thinking for a model that is known not to do it."""
        if think and not self.may_think:
            raise ThinkingNotSupported(model=self.full_name)

    @property
    def readable(self) -> Readable:
        """What the model can read beside texts; where it is not known, it shall say so itself."""
        capabilities = self.info.capabilities
        return Readable(
            images=not capabilities or "vision" in capabilities,
            documents=self.provider.capabilities.documents,
            result_images="vision" in capabilities,
        )

    def check_attachments(self, message: JSONObject) -> None:
        """Refuse a message with a file that the model is known not to read."""
        if (entry := self.readable.refused(message)) is None:
            return
        if entry.get("media_type") in IMAGES:
            raise ImagesNotSupported(model=self.full_name)
        raise AttachmentUnsupported(
            name=entry.get("name") or "file", reason=f"model {self.full_name!r} reads no PDF files"
        )

    def check_length(self, system: JSONObject | None, message: UserMessage) -> None:
        """Refuse a message that cannot fit the model by any count, with this system message."""
        longest = self.info.context_length
        if not longest:
            return
        stored = message.as_stored()
        tokens = estimate(stored, DENSEST_TEXT) - attached_tokens(stored)  # they may be fewer
        if system is not None:
            tokens += estimate(system, DENSEST_TEXT)
        if tokens > longest:
            raise ContextOverflow(
                model=self.full_name, estimated_tokens=tokens, context_length=longest
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """Limits of each request of a conversation; null for none."""

    max_output_tokens: int | None = None
    max_history_tokens: int | None = None
    max_history_messages: int | None = None
    max_reply_mb: float | None = None
    """Longest reply, in millions of bytes as the session file has it."""

    @property
    def max_reply_bytes(self) -> float:
        return math.inf if self.max_reply_mb is None else self.max_reply_mb * 10**6


@dataclass(frozen=True, slots=True)
class RequestExtras:
    """What a request carries beside the history; it is not stored."""

    tools: Sequence[JSONObject] = ()
    """Schemas of the tools that are offered."""
    messages: Sequence[JSONObject] = ()
    """Messages behind the history."""
    must_call: bool = False
    """Whether the reply must call one of the tools."""

    def estimate(self, ratio: float) -> int:
        tokens = sum(estimate(message, ratio) for message in self.messages)
        return tokens + (int(len(orjson.dumps(self.tools)) / ratio) if self.tools else 0)


NO_EXTRAS = RequestExtras()


@dataclass(slots=True, kw_only=True)
class RequestBuilder:
    """Builds the requests of one conversation, and learns from their outcomes."""

    model: ChatModel
    think: Think
    options: ModelOptions
    limits: RequestLimits
    windows: DynamicContextWindowService
    attachments: AttachmentStore
    """The files of messages."""
    files_of: str | None = None
    """The session whose files they are; None: that of the conversation."""
    setup: ModelSetup
    """Has the system prompt of a preset or an agent."""
    response_format: ResponseFormat | None = None
    """The form of the final answer."""
    window: Window | None = field(default=None, init=False)
    dropped: int = field(default=0, init=False)
    """Messages that the last request left out."""
    sent: int = field(default=0, init=False)
    """Characters of the last request, as far as they count as prompt."""
    has_files: bool = field(default=False, init=False)
    """Whether the last request had images or documents, whose tokens no characters tell."""
    extent: tuple[int | None, ...] = field(default=(), init=False)
    """Window, dropped messages and reply limit of the last request.

    If the provider found it too long, another request with the same three is too long as well.
    """
    ceiling: int | None = field(default=None, init=False)
    """Most tokens of history by our estimate, once an overflow has shown that it was wrong."""

    async def build(self, session: ChatSession, extras: RequestExtras) -> ModelRequest:
        is_long = len(session.messages) >= LONG_SESSION
        request = await in_thread_if(is_long, self._build, session, extras)
        messages = await write_out(
            request.messages,
            self.attachments,
            self.files_of or session.session_id,
            self.model.readable,
        )
        self.has_files = any(FILES in message for message in messages)
        return replace(request, messages=messages)

    def _build(self, session: ChatSession, extras: RequestExtras) -> ModelRequest:
        usage, last_model = usage_of(
            self._backwards(session, len(session.messages)), self.model.info.context_length
        )
        ratio = self.windows.ratio(self.model.full_name)
        extra_tokens = extras.estimate(ratio)
        # The provider's count of the last reply normally includes these extras.
        used = usage if last_model else usage + extra_tokens + self._prompt_tokens(session, ratio)
        window = self._decide_window(session, used, last_model)
        has_format = self._carries_format(tools=bool(extras.tools))
        fitted = self._fit(session, window, extra_tokens, has_format=has_format)
        if fitted.dropped and last_model and extra_tokens:
            # It may not (tools may be new): try a larger window before messages are dropped.
            window = self._decide_window(session, usage + extra_tokens, last_model)
            fitted = self._fit(session, window, extra_tokens, has_format=has_format)
        if self.window is not None and window.reason == "no_adjustment":
            window = replace(window, reason=self.window.reason)  # reported once for the turn
        prompt_tokens = fitted.tokens + extra_tokens
        max_tokens = self._max_reply(window, prompt_tokens)
        # Ollama counts the prompt only, others what the reply may have as well.
        counted = None if self.model.provider.capabilities.context_size else max_tokens
        self.window = window
        self.dropped = fitted.dropped
        self.sent = int(prompt_tokens * ratio)
        self.extent = (window.num_ctx, fitted.dropped, counted)
        return ModelRequest(
            model=self.model.name,
            messages=[*fitted.messages, *extras.messages] if extras.messages else fitted.messages,
            tools=extras.tools,
            must_call=extras.must_call and self.model.provider.capabilities.forced_calls,
            think=self.think,
            num_ctx=window.num_ctx,
            max_tokens=max_tokens,
            options=self.options,
            response_format=self.response_format if has_format else None,
        )

    def _backwards(self, session: ChatSession, total: int) -> Iterator[JSONObject]:
        """Yield so many of the last messages as they are sent, the last one first."""
        return with_latest_images(objects(islice(session.tail(), total)), self.model.readable)

    def _carries_format(self, *, tools: bool) -> bool:
        """Return whether a request carries the response format, if there is one."""
        return self.response_format is not None and self.model.provider.takes_format(
            self.model.name, self.response_format, tools=tools
        )

    def _prompt_tokens(self, session: ChatSession, ratio: float) -> int:
        """Estimate what the setup adds to the session's system message."""
        own = system_of(session)
        system = self.setup.system_message(own)
        if system is None:
            return 0
        return estimate(system, ratio) - (estimate(own, ratio) if own is not None else 0)

    @property
    def ignored_options(self) -> Sequence[str]:
        """Names of the options that the requests do not carry, ``response_format`` among them."""
        ignored = self.model.provider.ignored_options(self.model.name, self.options, self.think)
        if self.response_format is None or self._carries_format(tools=False):
            return ignored
        return [*ignored, "response_format"]

    def _decide_window(self, session: ChatSession, usage: int, last_model: str | None) -> Window:
        return self.windows.decide(
            self.model.full_name,
            self.model.info,
            session.metadata.context_window_config,
            usage=usage,
            ours=self.model.provider.capabilities.context_size,
            model_changed=last_model is not None and last_model != self.model.full_name,
        )

    def _fit(
        self, session: ChatSession, window: Window, extra_tokens: int, *, has_format: bool
    ) -> FittedHistory:
        limits = (window.budget, self.limits.max_history_tokens, self.ceiling)
        budget = min((limit for limit in limits if limit), default=None)
        total = len(session.messages)
        system = system_of(session)
        if system is not None:
            total -= 1
        system = self.setup.system_message(system)
        if self.response_format is not None and not has_format:
            system = _instructed(system, self.response_format)
        return fit(
            system,
            self._backwards(session, total),
            total=total,
            budget=None if budget is None else max(budget - extra_tokens, 1),
            ratio=self.windows.ratio(self.model.full_name),
            max_messages=self.limits.max_history_messages,
        )

    def _max_reply(self, window: Window, prompt_tokens: int) -> int | None:
        """Limit the reply to what the window leaves, so that nothing is shifted out of it."""
        room = window.num_ctx or window.size
        left = None if room is None else max(room - prompt_tokens, SMALLEST_REPLY)
        limits = (left, self.limits.max_output_tokens, self.options.max_tokens)
        return min((limit for limit in limits if limit is not None), default=None)

    def note_window(self, session: ChatSession) -> None:
        if self.window is not None:
            metadata = session.metadata
            metadata.context_window_config = record(metadata.context_window_config, self.window)

    def window_payload(self, message: AssistantMessage) -> JSONObject:
        """Return ``context_window`` of ``message_complete`` (docs/reference/events.md)."""
        window = self.window
        return {
            "current_window": window.size if window else None,
            "usage_tokens": (message.prompt_eval_count or 0) + (message.eval_count or 0),
            "reason": window.reason if window else "no_adjustment",
            "dropped_messages": self.dropped,
        }

    def make_room(self, overflow: ContextOverflow) -> None:
        """Prepare for one more try: a larger window if there is one, and what fits into it."""
        needed, room = (_count(overflow, key) for key in ("n_prompt_tokens", "n_ctx"))
        grown = None
        if self.window is not None and self.window.num_ctx is not None:
            grown = self.windows.grow(self.model.full_name, self.model.info, needed)
        elif room:
            self.windows.loaded(self.model.full_name, room)
        if not self.has_files:
            self.windows.calibrate(self.model.full_name, self.sent, needed)
        if grown and not needed:
            return  # the larger window may hold everything; how much it has to hold is unknown
        room = grown or room
        share = FILLED * room / needed if room and needed else FILLED / 2
        if share < 1:
            self.ceiling = int(self.sent / self.windows.ratio(self.model.full_name) * share)

    def learn(self, message: AssistantMessage) -> None:
        """Calibrate the estimate by the tokens that the provider counted for the last request."""
        is_whole = not self.dropped and not self.has_files
        if message.prompt_eval_count and is_whole and self.window is not None:
            self.windows.calibrate(self.model.full_name, self.sent, message.prompt_eval_count)


def _instructed(system: JSONObject | None, response_format: ResponseFormat) -> JSONObject:
    """Return the system message with what the model is to know of the format."""
    texts = [str((system or {}).get("content") or ""), instruction(response_format)]
    return {"role": "system", **(system or {}), "content": "\n\n".join(filter(None, texts))}


def _count(overflow: ContextOverflow, key: str) -> int:
    value = overflow.details.get(key)
    return value if isinstance(value, int) else 0
