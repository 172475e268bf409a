"""What is asked of a model for a session: its history, fitted to the context window."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import orjson

from ..core.aio import in_thread_if
from ..errors import ContextOverflow, JSONObject
from ..protocol.files import FILES
from ..protocol.messages import AssistantMessage
from ..protocol.options import ModelOptions
from ..protocol.response_format import ResponseFormat
from ..providers.base import ModelRequest, Think
from ..sessions import ChatSession
from ..sessions.attachments import AttachmentStore
from .attachments import with_latest_images, write_out
from .chat_model import ChatModel
from .compaction.covered import covered_part
from .compaction.fitting import LongHistory
from .compaction.text import HistoryRoom
from .context_window import DynamicContextWindowService, Window, budget_of, record, room_for_tools
from .described_tools import DescribedTools, describe, instructed, with_calls_as_text
from .history import FittedHistory, estimate, objects, system_of, usage_of
from .models.resolver import ModelSetup
from .response_format import instruction

LONG_SESSION = 200
"""Messages from which on the history is fitted in a thread: a large window may take them all."""
SMALLEST_REPLY = 256
"""Tokens that a reply may always have, even when the window seems full."""
FILLED = 0.75
"""Share of the window that is filled again after an overflow."""


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
    withheld: Sequence[JSONObject] = ()
    """Schemas of tools that it does not carry; a text that calls them is no answer."""
    must_call: bool = False
    """Whether the reply must call one of the tools."""

    @property
    def demands_call(self) -> bool:
        """Whether a call is demanded, and there is a tool to call."""
        return self.must_call and bool(self.tools)

    def estimate(self, ratio: float, described: DescribedTools | None = None) -> int:
        """Estimate the tokens, of tools as they are sent or as they are described."""
        tokens = sum(estimate(message, ratio) for message in self.messages)
        if described is not None:
            return tokens + described.estimate(ratio)
        return tokens + (int(len(orjson.dumps(self.tools)) / ratio) if self.tools else 0)


NO_EXTRAS = RequestExtras()


@dataclass(slots=True, kw_only=True)
class RequestBuilder:
    """Builds the requests of one conversation, and learns from their outcomes."""

    model: ChatModel
    think: Think | None
    options: ModelOptions
    limits: RequestLimits
    windows: DynamicContextWindowService
    attachments: AttachmentStore
    """The files of messages."""
    files_of: str
    """The session whose files they are."""
    setup: ModelSetup
    """Has the system prompt of a preset or an agent."""
    response_format: ResponseFormat | None = None
    """The form of the final answer."""
    is_compacted: bool = False
    """Whether a summary stands for old messages that do not fit."""
    is_prompted: bool = False
    """Whether tools, calls and results are texts in the messages."""
    window: Window | None = field(default=None, init=False)
    dropped: int = field(default=0, init=False)
    """Messages that the last request left out."""
    summarised: int = field(default=0, init=False)
    """Messages in whose place it has a summary."""
    through_message_id: str | None = field(default=None, init=False)
    """The last of them."""
    shortened: int = field(default=0, init=False)
    """Results of tools of which it has the first and last lines only."""
    room: HistoryRoom | None = field(default=None, init=False)
    """What requests have room for, and what the history took of it; None if none is compacted."""
    tool_cost: int = field(default=0, init=False)
    """Tokens of the tools of the last request that had some, by our estimate."""
    sent: int = field(default=0, init=False)
    """Characters of the last request, as far as they count as prompt."""
    has_files: bool = field(default=False, init=False)
    """Whether the last request had images or documents, whose tokens no characters tell."""
    extent: tuple[int | None, ...] = field(default=(), init=False)
    """Window, messages left out, summarised and shortened, and reply limit of the last request.

    If the provider found it too long, another request with the same is too long as well.
    """
    ceiling: int | None = field(default=None, init=False)
    """Most tokens of history by our estimate, once an overflow has shown that it was wrong."""

    async def build(self, session: ChatSession, extras: RequestExtras) -> ModelRequest:
        is_long = len(session.messages) >= LONG_SESSION
        request = await in_thread_if(is_long, self._build, session, extras)
        messages = await write_out(
            request.messages,
            self.attachments,
            self.files_of,
            self.model.readable,
        )
        if self.is_prompted:
            messages = with_calls_as_text(messages)
        self.has_files = any(FILES in message for message in messages)
        return replace(request, messages=messages)

    def _build(self, session: ChatSession, extras: RequestExtras) -> ModelRequest:
        ratio = self.windows.ratio(self.model.full_name)
        described = self.describe(extras)
        extra_tokens = extras.estimate(ratio, described)
        has_format = self._carries_format(tools=bool(extras.tools))
        window, fitted = self._fit(session, extra_tokens, has_format=has_format)
        prompt_tokens = fitted.tokens + extra_tokens
        max_tokens = self._max_reply(window, prompt_tokens)
        # Ollama counts the prompt only, others what the reply may have as well.
        counted = None if self.model.provider.capabilities.context_size else max_tokens
        self.window = window
        self.tool_cost = self.tool_tokens(extras.tools) if extras.tools else self.tool_cost
        left_out = (fitted.dropped, fitted.summarised, fitted.shortened)
        self.dropped, self.summarised, self.shortened = left_out
        self.sent = int(prompt_tokens * ratio)
        self.extent = (window.num_ctx, *left_out, counted)
        request = ModelRequest(
            model=self.model.name,
            messages=[*fitted.messages, *extras.messages] if extras.messages else fitted.messages,
            tools=extras.tools,
            must_call=extras.demands_call and self.model.provider.capabilities.forced_calls,
            think=self.think,
            num_ctx=window.num_ctx,
            max_tokens=max_tokens,
            options=self.options,
            response_format=self.response_format if has_format else None,
        )
        return request if described is None else described.within(request)

    def _fit(
        self, session: ChatSession, extra_tokens: int, *, has_format: bool
    ) -> tuple[Window, FittedHistory]:
        """Return the window of a request, and what of the history is sent in it."""
        usage, last_model = usage_of(
            self._backwards(session, len(session.messages)), self.model.info.context_length
        )
        # The provider's count of the last reply normally includes what is sent beside the history.
        used = usage if last_model else usage + extra_tokens + self._prompt_tokens(session)
        window = self._decide_window(session, used, last_model)
        history = self._history(session, window, extra_tokens, has_format=has_format)
        fitted = history.fit()
        if fitted.dropped and last_model and extra_tokens:
            # It may not (tools may be new): try a larger window before messages are dropped.
            window = self._decide_window(session, usage + extra_tokens, last_model)
            history = self._history(session, window, extra_tokens, has_format=has_format)
            fitted = history.fit()
        if self.is_compacted:
            fitted = self._compacted(session, history, fitted)
            self._note_room(session, fitted, extra_tokens)
        if self.window is not None and window.reason == "no_adjustment":
            window = replace(window, reason=self.window.reason)  # reported once for the turn
        return window, fitted

    def tool_tokens(self, tools: Sequence[JSONObject]) -> int:
        """Estimate the tokens of tools in a request, as schemas or as they are described."""
        extras = RequestExtras(tools=tools)
        return extras.estimate(self.windows.ratio(self.model.full_name), self.describe(extras))

    def room_for_tools(self, session: ChatSession) -> int | None:
        """Return how many tokens schemas may take of a session's window; None: not known."""
        size = self._largest_window(session)
        return None if size is None else room_for_tools(size)

    def _largest_window(self, session: ChatSession) -> int | None:
        return self.windows.largest(
            self.model.full_name,
            self.model.info,
            session.metadata.context_window_config,
            ours=self.model.provider.capabilities.context_size,
        )

    def describe(self, extras: RequestExtras) -> DescribedTools | None:
        """Return what the system prompt says of tools, where a request does not carry them."""
        is_held = self.is_held_to_call(extras)
        if not extras.tools or not (is_held or self.is_prompted):
            return None
        return describe(extras.tools, must_call=is_held)

    def is_held_to_call(self, extras: RequestExtras) -> bool:
        """Return whether the text of a reply has the form of a call."""
        capabilities = self.model.provider.capabilities
        is_text = self.is_prompted or not capabilities.forced_calls
        return extras.demands_call and is_text and capabilities.structured_output

    @property
    def can_demand_calls(self) -> bool:
        """Whether the provider can demand a call, or hold a reply to the form of one."""
        capabilities = self.model.provider.capabilities
        return capabilities.forced_calls or capabilities.structured_output

    def _backwards(self, session: ChatSession, total: int) -> Iterator[JSONObject]:
        """Yield so many of the last messages as they are sent, the last one first."""
        return with_latest_images(objects(islice(session.tail(), total)), self.model.readable)

    def _carries_format(self, *, tools: bool) -> bool:
        """Return whether a request carries the response format, if there is one."""
        return self.response_format is not None and self.model.provider.takes_format(
            self.model.name, self.response_format, tools=tools
        )

    def _prompt_tokens(self, session: ChatSession) -> int:
        """Estimate what the setup adds to the session's system message."""
        ratio = self.windows.ratio(self.model.full_name)
        own = system_of(session)
        system = self.setup.system_message(own)
        if system is None:
            return 0
        return estimate(system, ratio) - (estimate(own, ratio) if own is not None else 0)

    @property
    def ignored_options(self) -> Sequence[str]:
        """Names of the options that the requests do not carry, ``response_format`` among them."""
        provider, name = self.model.provider, self.model.name
        ignored = provider.ignored_options(name, self.options, self.think or False)
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

    def _history(
        self, session: ChatSession, window: Window, extra_tokens: int, *, has_format: bool
    ) -> LongHistory:
        budget = self._least(window.budget)
        own = system_of(session)
        system = self.setup.system_message(own)
        if self.response_format is not None and not has_format:
            system = instructed(system, instruction(self.response_format))
        return LongHistory(
            system=system,
            backwards=lambda count: self._backwards(session, count),
            total=len(session.messages) - (own is not None),
            budget=None if budget is None else max(budget - extra_tokens, 1),
            ratio=self.windows.ratio(self.model.full_name),
            max_messages=self.limits.max_history_messages,
        )

    def _least(self, budget: int | None) -> int | None:
        """Return the least of a budget and the limits that hold for every request."""
        limits = (budget, self.limits.max_history_tokens, self.ceiling)
        return min((limit for limit in limits if limit), default=None)

    def _compacted(
        self, session: ChatSession, history: LongHistory, fitted: FittedHistory
    ) -> FittedHistory:
        """Return what is sent: where a history does not fit, or a person wants it, a short one."""
        wanted = session.metadata.history_summary
        if fitted.fits and (wanted is None or not wanted.requested):
            return fitted
        covered = covered_part(session)
        if not fitted.fits or covered is not None:
            fitted = history.fit_compacted(covered)
        if covered is not None and fitted.summarised:
            self.through_message_id = covered.summary.through_message_id
        return fitted

    def _note_room(self, session: ChatSession, fitted: FittedHistory, extra_tokens: int) -> None:
        size = self._largest_window(session)
        tokens = self._least(None if size is None else budget_of(size))
        ratio = self.windows.ratio(self.model.full_name)
        first = next(iter(fitted.messages), None)
        self.room = HistoryRoom(
            tokens=None if tokens is None else max(tokens - extra_tokens, 1),
            messages=self.limits.max_history_messages,
            fixed=estimate(first, ratio) if first and first.get("role") == "system" else 0,
            used=fitted.tokens,
            count=len(fitted.messages),
            ratio=ratio,
        )

    def note_stored(self, messages: Iterable[JSONObject]) -> None:
        """Note what was stored since the last request; the next one has it as well."""
        if self.room is not None:
            self.room = self.room.after(messages)

    @property
    def is_full(self) -> bool:
        """Whether a summary of the oldest messages should be made now."""
        return self.room is not None and (self.dropped > 0 or self.room.is_full)

    def _max_reply(self, window: Window, prompt_tokens: int) -> int | None:
        """Limit the reply to what the window leaves, so that nothing is shifted out of it."""
        room = window.num_ctx or window.size
        left = None if room is None else max(room - prompt_tokens, SMALLEST_REPLY)
        limits = (left, self.limits.max_output_tokens, self.options.max_tokens)
        return min((limit for limit in limits if limit is not None), default=None)

    def note_window(self, session: ChatSession) -> None:
        metadata = session.metadata
        if self.window is not None:
            metadata.context_window_config = record(metadata.context_window_config, self.window)

    def window_payload(self, message: AssistantMessage) -> JSONObject:
        """Return ``context_window`` of ``message_complete`` (docs/reference/events.md)."""
        window = self.window
        return {
            "current_window": window.size if window else None,
            "usage_tokens": (message.prompt_eval_count or 0) + (message.eval_count or 0),
            "reason": window.reason if window else "no_adjustment",
            "dropped_messages": self.dropped,
            "summarised_messages": self.summarised,
            "shortened_results": self.shortened,
            "tool_tokens": self.tool_cost,
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


def _count(overflow: ContextOverflow, key: str) -> int:
    value = overflow.details.get(key)
    return value if isinstance(value, int) else 0
