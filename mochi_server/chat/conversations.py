"""Opens conversations, all with the same limits and context windows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass

from ..protocol.completions import Finish
from ..protocol.events import ContentDelta
from ..protocol.turn_request import NO_REQUEST, TurnRequest
from ..providers.base import ModelRequest, Think
from ..providers.registry import ProviderRegistry
from ..services.chat_model import ChatModel
from ..services.compaction.service import CompactionService
from ..services.context_window import DynamicContextWindowService, learn_window
from ..services.history import estimate
from ..services.models.resolver import ModelSetup
from ..services.requests import RequestBuilder, RequestLimits
from ..sessions import ChatSession, SessionManager
from ..sessions.attachments import AttachmentStore
from ..sessions.types import TextCallMode, ToolSettings
from ..tools.base import SamplingAnswer, SamplingRequest
from .conversation import Conversation
from .runs.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversations:
    """Opens conversations, all with the same limits and context windows."""

    providers: ProviderRegistry
    windows: DynamicContextWindowService
    limits: RequestLimits
    attachments: AttachmentStore
    """The files of messages."""
    text_calls: TextCallMode
    """What becomes of calls that models write as text, where a session does not say."""
    compaction: CompactionService
    """Makes summaries of the oldest messages, and finds them."""
    preempt: Callable[[str, str], None]
    """Called with model and session before each request, to stop background work on the server."""

    async def find_model(
        self, full_name: str, *, think: Think | None = None, tools: bool = False
    ) -> ChatModel:
        """Find a model that can do what is wanted, and learn how large it is loaded.

        Raises:
            ThinkingNotSupported, ToolsNotSupported: it is known not to.
            ModelNotFound, ProviderNotConfigured, ProviderUnreachable, ProviderError.
        """
        provider, name = self.providers.resolve(full_name)
        info = await self.providers.show_model(full_name)
        model = ChatModel(full_name=full_name, name=name, info=info, provider=provider)
        model.check_thinking(think)
        if tools:
            model.check_tools()
        await learn_window(self.windows, full_name, provider, name)
        return model

    async def sample(
        self, full_name: str, request: SamplingRequest
    ) -> tuple[SamplingAnswer, Finish]:
        """Let a model continue a text that is no session's, for a tool.

        Raises:
            MochiError: it says nothing.
        """
        model = await self.find_model(full_name)
        ratio = self.windows.ratio(full_name)
        tokens = sum(estimate(message, ratio) for message in request.messages)
        window = self.windows.decide(
            full_name,
            model.info,
            None,
            usage=tokens + request.max_tokens,
            ours=model.provider.capabilities.context_size,
        )
        limits = (request.max_tokens, self.limits.max_output_tokens)
        stream = model.provider.stream(
            ModelRequest(
                model=model.name,
                messages=request.messages,
                num_ctx=window.num_ctx,
                max_tokens=min(limit for limit in limits if limit is not None),
            )
        )
        texts, finish = [], Finish(reason="stop")
        async with aclosing(stream) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, ContentDelta):
                    texts.append(chunk.content)
                elif isinstance(chunk, Finish):
                    finish = chunk
        text = "".join(texts)
        is_cut = finish.reason == "length"
        return SamplingAnswer(text=text, model=full_name, is_cut=is_cut), finish

    def open(
        self,
        session: ChatSession,
        model: ChatModel,
        run: Run,
        *,
        sessions: SessionManager,
        settings: ToolSettings,
        request: TurnRequest = NO_REQUEST,
        setup: ModelSetup | None = None,
    ) -> Conversation:
        setup = setup or ModelSetup(model=model.full_name)
        compacts = self.compaction.enabled if setup.compaction is None else setup.compaction
        requests = RequestBuilder(
            model=model,
            think=request.think,
            options=request.options,
            limits=self.limits,
            windows=self.windows,
            attachments=self.attachments,
            files_of=run.head.session_id,
            setup=setup,
            response_format=request.response_format,
            is_compacted=compacts,
            is_prompted=settings.is_prompted or not model.can_call_tools,
        )
        return Conversation(
            session_id=session.session_id,
            session=session,
            last_message_id=session.last_message_id,
            run_number=session.metadata.run_number,
            model=model,
            run=run,
            requests=requests,
            finds_text_calls=settings.text_calls_or(self.text_calls) != "off",
            sessions=sessions,
            preempt=self.preempt,
            compaction=self.compaction,
        )
