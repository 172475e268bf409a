"""The door to conversations: open a turn, run it, read it whole or as it comes."""

from __future__ import annotations

from contextlib import AsyncExitStack

from ..config import MochiServerSettings
from ..errors import (
    ContextOverflow,
    InternalError,
    JSONObject,
    MochiError,
    ProviderError,
    ProviderUnreachable,
    ThinkingNotSupported,
)
from ..events import Event, MessageComplete, ToolCallStarted, ToolResultReady
from ..messages import UserMessage
from ..providers.base import ModelInfo, Provider, Think
from ..providers.registry import ProviderRegistry
from ..services.context_window import DynamicContextWindowService
from ..services.history import estimate
from ..sessions import ChatSession, SessionManager
from ..sessions.types import ContextWindowConfig
from .tool_calls import unanswered
from .turn import Limits, Turn, objects, system_of
from .turns import TurnLog, TurnRegistry

DENSEST_TEXT = 6.0
"""Characters a token that hardly any text exceeds: what overflows even so surely does."""


class ChatService:
    """Opens turns on sessions, one at a time for each."""

    def __init__(
        self,
        *,
        settings: MochiServerSettings,
        sessions: SessionManager,
        providers: ProviderRegistry,
        windows: DynamicContextWindowService,
        turns: TurnRegistry,
    ) -> None:
        self._sessions = sessions
        self._providers = providers
        self._windows = windows
        self._turns = turns
        self._limits = Limits(
            max_tool_rounds=settings.max_tool_rounds,
            max_output_tokens=settings.max_output_tokens,
            max_history_tokens=settings.max_history_tokens,
            max_history_messages=settings.max_history_messages,
        )

    async def open_turn(
        self, session_id: str, *, message: str | None = None, think: Think = False
    ) -> Turn:
        """Check everything that can be checked, claim the session, store the user's message.

        Without a message the last user message is answered again: what follows it is dropped.
        Any error leaves the session as it was. Whoever gets the turn must ``start`` it or
        ``release`` it.

        Raises:
            SessionNotFound, SessionBusy, SessionUnreadable, EmptyHistory, ModelNotFound,
            ThinkingNotSupported, ContextOverflow, ProviderUnreachable, ProviderError,
            ShuttingDown, StorageError.
        """
        self._turns.check_open()
        async with AsyncExitStack() as stack:
            session = await stack.enter_async_context(self._sessions.claim(session_id))
            model = session.metadata.model
            provider, name = self._providers.resolve(model)
            info = await provider.show_model(name)
            check_thinking(model, info, think)
            await self._learn_window(model, provider, name)

            def change(session: ChatSession) -> None:
                check_length(model, info, session, message)
                prepare(session, message)

            session = await self._sessions.update(session_id, change)
            return Turn(
                session_id=session_id,
                model=model,
                name=name,
                info=info,
                provider=provider,
                think=think,
                limits=self._limits,
                sessions=self._sessions,
                windows=self._windows,
                claim=stack.pop_all(),
                session=session,
            )

    def start(self, turn: Turn) -> TurnLog:
        """Run the turn; read its log at once, for the last reader that leaves cancels it."""
        return self._turns.start(turn)

    async def complete(
        self, session_id: str, *, message: str | None = None, think: Think = False
    ) -> JSONObject:
        """The whole reply in one piece: ``POST /chat/{id}`` in docs/reference/http-api.md.

        Raises:
            MochiError: what ``open_turn`` raises, or what ended the turn.
        """
        log = self.start(await self.open_turn(session_id, message=message, think=think))
        reader = log.reader()
        fold = WholeReply(session_id)
        try:
            while (batch := await reader.next()) is not None:
                for _, event in batch:
                    fold.add(event)
        finally:
            reader.leave()
        if log.error is not None:
            raise log.error
        return fold.as_json()

    async def _learn_window(self, model: str, provider: Provider, name: str) -> None:
        """See how large the model is loaded, if that is not known: so much costs no reload."""
        if not provider.capabilities.context_size or self._windows.knows(model):
            return
        try:
            window = await provider.loaded_window(name)
        except ProviderUnreachable:
            raise
        except ProviderError:  # a server that does not tell costs a reload, not the turn
            window = None
        self._windows.loaded(model, window)

    async def status(self, session_id: str) -> JSONObject:
        """``GET /sessions/{id}/status`` in docs/reference/http-api.md.

        Raises:
            SessionNotFound, SessionUnreadable.
        """
        session = await self._sessions.get(session_id)
        metadata = session.metadata
        tools, agents = metadata.tool_settings, metadata.agent_settings
        config = metadata.context_window_config or ContextWindowConfig()
        system = system_of(session)
        summary = metadata.summary
        return {
            "session_id": session_id,
            "model": metadata.model,
            "message_count": len(session.messages),
            "turn_running": self._turns.log_of(session_id) is not None,
            "context_window": {
                "dynamic_enabled": self._windows.enabled and config.dynamic_enabled,
                "current_window": config.current_window,
                "model_max_context": await self._context_length(metadata.model),
                "last_adjustment_reason": config.last_adjustment,
                "manual_override": config.manual_override,
            },
            "tools_enabled": bool(tools and (tools.tools or tools.tool_group)),
            "active_tools": [],
            "unknown_tools": list(tools.tools) if tools else [],
            "execution_policy": tools.execution_policy.value if tools else None,
            "agents_enabled": bool(agents and agents.enabled_agents),
            "enabled_agents": [],
            "unknown_agents": list(agents.enabled_agents) if agents else [],
            "system_prompt_file": system.get("source_file") if system else None,
            "summary": summary.model_dump(mode="json") if summary else None,
            "summary_model": metadata.summary_model,
        }

    async def _context_length(self, model: str) -> int | None:
        """The model's longest context; null when its provider does not say now."""
        try:
            return (await self._providers.show_model(model)).context_length
        except MochiError:
            return None


class WholeReply:
    """Folds the events of a turn into one JSON answer."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._calls: list[JSONObject] = []
        self._open: dict[str, JSONObject] = {}
        """By id; a model may use an id again in its next reply."""
        self._final: MessageComplete | None = None

    def add(self, event: Event) -> None:
        """The next event of the turn."""
        match event:
            case ToolCallStarted():
                self._open[event.tool_call_id] = event.payload()
                self._calls.append(self._open[event.tool_call_id])
            case ToolResultReady():
                self._open.pop(event.tool_call_id).update(event.payload())
            case MessageComplete():
                self._final = event
            case _:
                pass

    def as_json(self) -> JSONObject:
        """The answer.

        Raises:
            InternalError: the turn ended without a final message and without an error.
        """
        if self._final is None:
            raise InternalError
        answer: JSONObject = {
            "session_id": self._session_id,
            "message": self._final.message,
            "tool_calls_executed": list(self._calls),
            "context_window": self._final.context_window,
            "finish_reason": self._final.finish_reason,
        }
        if self._final.tool_rounds_exhausted:
            answer["tool_rounds_exhausted"] = True
        return answer


def check_thinking(model: str, info: ModelInfo, think: Think) -> None:
    """Refuse what the model cannot do, while it can still be said plainly.

    Raises:
        ThinkingNotSupported: thinking is asked for, and the model is known not to have it.
    """
    if think and info.capabilities and "thinking" not in info.capabilities:
        raise ThinkingNotSupported(model=model)


def check_length(model: str, info: ModelInfo, session: ChatSession, message: str | None) -> None:
    """Refuse a message that cannot fit the model by any count.

    Raises:
        ContextOverflow: it is too long.
    """
    if message is None or not info.context_length:
        return
    tokens = estimate({"content": message}, DENSEST_TEXT)
    if (system := system_of(session)) is not None:
        tokens += estimate(system, DENSEST_TEXT)
    if tokens > info.context_length:
        raise ContextOverflow(
            model=model, estimated_tokens=tokens, context_length=info.context_length
        )


def prepare(session: ChatSession, message: str | None) -> None:
    """Bring the session to where the model has something to answer.

    Raises:
        EmptyHistory: there is no user message to answer again.
    """
    if message is None:
        session.truncate_after_last_user()
        return
    session.append(*unanswered(objects(session.tail())), UserMessage(content=message))
