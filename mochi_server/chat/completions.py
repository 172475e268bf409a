"""Requests that carry their whole history, as the APIs of vendors have them.

Without a session such a request gets one in memory, which lasts as long as its run. With one, the
history of the session counts, and only what the client adds is stored.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from itertools import takewhile

from ..core.aio import in_thread_if
from ..core.caller import current_caller
from ..errors import JSONObject, SessionBusy, SessionExists, SessionNotFound
from ..protocol.messages import AssistantMessage, Message, SystemMessage, ToolMessage, UserMessage
from ..protocol.turn_request import TurnRequest
from ..services.chat_model import ChatModel
from ..services.compaction.text import end_without_open_calls
from ..services.history import objects, system_of
from ..services.requests import RequestExtras
from ..sessions import ChatSession, SessionManager
from ..sessions.messages import MANY_MESSAGES, encode_messages
from ..sessions.types import HistorySummary, SessionMetadata
from .control import RunControl, StartedRun
from .recognition import recognise
from .service import ChatService
from .tool_calls.results import unanswered
from .turn import Turn

BETWEEN_PROMPTS = "\n\n"
"""What stands between the system messages of a request, which become one."""

NEW_SESSION = "new"
"""In the place of a session's id: a new session is to keep the conversation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionRequest:
    """A conversation that a client sends whole, and what it asks of the next turn."""

    messages: Sequence[Message]
    """The whole conversation; system messages at the beginning are the system prompt."""
    turn: TurnRequest
    """What is asked, without messages: they are what comes after the last reply. Its model is full
    name of a model, or what stands for one in sessions. Its attachments are the files that messages
    name."""
    think_if_able: bool = False
    """Whether a model that cannot think answers without."""
    tells_all_calls: bool = False
    """Whether the messages have the calls of the server's tools, with their results, as well."""
    session_id: str | None = None
    """The session that is continued; ``NEW_SESSION``: one that is made; None: nothing is kept."""
    is_private: bool = False
    """Whether it is never kept without a session."""
    run_id: str | None = None
    """The id of its run, which is new; None: any."""

    @property
    def model(self) -> str:
        return self.turn.model or ""

    @property
    def functions(self) -> Collection[str] | None:
        """Names of the functions whose calls are the client's own; None: all are."""
        if not self.tells_all_calls:
            return None
        return self.turn.client_functions().keys()

    def split(self) -> tuple[str | None, list[Message], list[Message]]:
        """Return the system prompt, what was said up to the last reply, and what came after it."""
        prompts = [*takewhile(lambda each: isinstance(each, SystemMessage), self.messages)]
        system = BETWEEN_PROMPTS.join(each.text for each in prompts) if prompts else None
        rest = [*self.messages[len(prompts) :]]
        end = len(rest)
        while end and not isinstance(rest[end - 1], AssistantMessage):
            end -= 1
        return system, rest[:end], rest[end:]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionService:
    """Starts the runs of such requests."""

    chat: ChatService
    temporary: ChatService
    """The same for sessions in memory."""
    run_control: RunControl
    keeps_all: bool = False
    """Whether a conversation without a session gets one that is kept, and found again."""

    async def start(self, request: CompletionRequest) -> StartedRun:
        """Start a run; the caller must let its reader ``leave``.

        Raises:
            MochiError: what ``ChatService.open_turn`` raises.
        """
        self.chat.runs.check_open()
        if request.turn.think and request.think_if_able:
            model = await self._find_model(request.model)
            if not model.may_think:
                request = replace(request, turn=replace(request.turn, think=None))
        if request.session_id is not None:
            return await self._start_kept(request)
        if self.keeps_all and not request.is_private:
            return await self._start_recognised(request)
        return await self.run_control.begin(await self._open_temporary(request), is_kept=False)

    async def _start_recognised(self, request: CompletionRequest) -> StartedRun:
        """Start a run in the session that is recognised; in another one if that is in use."""
        in_use: set[str] = set()
        while True:
            found = await recognise(
                self.chat.sessions, *request.split(), functions=request.functions, in_use=in_use
            )
            session_id = found.session_id if found.exists else NEW_SESSION
            kept = replace(request, session_id=session_id)
            try:
                return await self._start_kept(kept, found.session_id)
            except (SessionBusy, SessionExists):  # of a request that came at the same time
                if found.session_id is None:
                    raise
                in_use.add(found.session_id)

    async def _start_kept(
        self, request: CompletionRequest, new_id: str | None = None
    ) -> StartedRun:
        if request.session_id == NEW_SESSION:
            return await self.run_control.begin(await self._open_new(request, new_id))
        session_id, (_, _, new) = str(request.session_id), request.split()
        new = [each for each in new if isinstance(each, UserMessage | ToolMessage)]
        functions = request.functions
        if functions is not None and any(isinstance(each, ToolMessage) for each in new):
            session = await self.chat.sessions.get(session_id)
            waiting = {each.tool_call_id for each in unanswered(objects(session.tail()))}
            new = [
                each
                for each in new
                if not isinstance(each, ToolMessage)
                or each.tool_name in functions
                or each.tool_call_id in waiting  # nobody offered it, so the client answers
            ]
        turn = replace(request.turn, new_messages=new)
        return await self.run_control.start(session_id, turn, run_id=request.run_id)

    async def load(self, name: str, keep_alive: str | float | None) -> None:
        """Load a model with the window that a new conversation gets.

        Args:
            name: Full name of a model, or what stands for one in sessions.
            keep_alive: How long it stays loaded, as in the options of a model.

        Raises:
            ModelNotFound, ProviderNotConfigured, ProviderUnreachable, ProviderError, and what
            ``ModelResolver.resolve`` raises.
        """
        model = await self._find_model(name)
        window = self.chat.conversations.windows.decide(
            model.full_name,
            model.info,
            None,
            usage=0,
            ours=model.provider.capabilities.context_size,
        )
        await model.provider.load(model.name, num_ctx=window.num_ctx, keep_alive=keep_alive)

    async def unload(self, name: str) -> None:
        """Unload a model where its provider can; raises what ``load`` does."""
        model = await self._find_model(name)
        await model.provider.unload(model.name)

    async def _find_model(self, name: str) -> ChatModel:
        setup = await self.chat.checks.models.resolve(name)
        return await self.chat.conversations.find_model(setup.model)

    async def count_tokens(
        self, request: CompletionRequest, session: ChatSession | None = None
    ) -> int:
        """Estimate the tokens of a request: its messages and tools, after those of a session.

        Raises:
            ModelNotFound, ProviderNotConfigured, ProviderUnreachable, ProviderError, and what
            ``ModelResolver.resolve`` raises.
            ToolNotFound: ``selected`` names one that the model cannot have.
        """
        conversations = self.chat.conversations
        setup = await self.chat.checks.models.resolve(request.model)
        if session is not None:
            setup = setup.within(session.metadata)
        model = await conversations.find_model(setup.model)
        ratio = conversations.windows.ratio(model.full_name)
        offered = await self.chat.checks.offered(setup, request.turn)
        functions = request.turn.client_functions().values()
        tools = [*functions, *(tool.schema() for tool in offered.values())]
        system, history, new = request.split()
        own = None if system is None else SystemMessage(content=system).as_stored()

        def count() -> int:
            before = [each.as_stored() for each in history]
            prompt = own
            if session is not None:
                before, prompt = [*objects(session.stored_messages())], system_of(session)
                before = before[int(prompt is not None) :]
            messages = [*before, *(each.as_stored() for each in new)]
            if (whole := setup.system_message(prompt)) is not None:
                messages.insert(0, whole)
            return RequestExtras(tools=tools, messages=messages).estimate(ratio)

        stored = 0 if session is None else len(session.messages)
        return await in_thread_if(len(request.messages) + stored > MANY_MESSAGES, count)

    async def compact(
        self, request: CompletionRequest, session: ChatSession | None = None
    ) -> tuple[HistorySummary, list[JSONObject]]:
        """Return a summary of the messages of a request, after those of a session.

        Behind it are the messages that it leaves out: a last reply whose calls wait for results.

        Raises:
            EmptyHistory: there is no other message.
            MochiError: the model cannot be used, or gave no summary.
        """
        setup = await self.chat.checks.models.resolve(request.model)
        _, *parts = request.split()
        sent = [each for part in parts for each in part]
        lines = await in_thread_if(len(sent) > MANY_MESSAGES, encode_messages, sent)
        if session is not None:
            lines = [*session.document().lines, *lines]
        history = _history_of(lines, setup.model)
        summary = await self.chat.conversations.compaction.compact_sent(history, setup.model)
        whole = [*objects(history.stored_messages())]
        return summary, whole[end_without_open_calls(whole) :]

    async def _open_temporary(self, request: CompletionRequest) -> Turn:
        """Open a turn of a session that is deleted when the turn has ended."""
        chat = self.temporary
        async with AsyncExitStack() as stack:
            turn = await _open(chat, request, stack, _delete)
            ended = stack.pop_all()
        ended.push_async_exit(turn.claim)
        turn.claim = ended
        turn.run.can_park = False
        return turn

    async def _open_new(self, request: CompletionRequest, session_id: str | None) -> Turn:
        (await self.chat.checks.models.resolve(request.model)).require_right_to_tools()
        async with AsyncExitStack() as stack:
            turn = await _open(self.chat, request, stack, _delete_unused, session_id)
            stack.pop_all()
        return turn


async def _open(
    chat: ChatService,
    request: CompletionRequest,
    stack: AsyncExitStack,
    delete: Callable[[SessionManager, str], Awaitable[None]],
    session_id: str | None = None,
) -> Turn:
    """Create a session of the request's history and open its turn.

    The stack deletes the session, unless its callbacks are taken away.
    """
    system, history, new = request.split()
    is_long = len(history) > MANY_MESSAGES
    lines = await in_thread_if(is_long, encode_messages, history)
    find_summary = chat.conversations.compaction.summary_of_sent
    summary = await in_thread_if(is_long, find_summary, _history_of(lines, request.model))

    def prepare(session: ChatSession) -> None:
        session.extend(lines)
        session.metadata.history_summary = summary

    session = await chat.sessions.create(
        request.model,
        system_prompt=system,
        session_id=session_id,
        options=request.turn.options,
        prepare=prepare,
    )
    stack.push_async_callback(delete, chat.sessions, session.session_id)
    turn = replace(request.turn, new_messages=new)
    return await chat.open_turn(session.session_id, turn, run_id=request.run_id)


def _history_of(lines: Iterable[bytes], model: str) -> ChatSession:
    """Return a session of the caller, which nobody keeps, with encoded messages."""
    metadata = SessionMetadata(session_id="", model=model, created_at="", updated_at="")
    metadata.owner = current_caller().owner
    history = ChatSession(metadata)
    history.extend(lines)
    return history


async def _delete(sessions: SessionManager, session_id: str) -> None:
    try:
        await sessions.delete(session_id)
    except SessionNotFound:  # deleted by its owner
        return


async def _delete_unused(sessions: SessionManager, session_id: str) -> None:
    """Delete a session that has had no run, also none of a request that came meanwhile."""
    with suppress(SessionNotFound, SessionBusy):
        await sessions.delete(
            session_id, only_if=lambda session: session.metadata.last_run_id is None
        )
