"""Requests that carry their whole history, as the APIs of vendors have them.

Without a session such a request gets one in memory, which lasts as long as its run. With one, the
history of the session counts, and only what the client adds is stored.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from itertools import takewhile

from ..core.aio import in_thread_if
from ..errors import JSONObject, SessionBusy, SessionExists, SessionNotFound
from ..protocol.messages import AssistantMessage, Message, SystemMessage, ToolMessage, UserMessage
from ..protocol.options import NO_OPTIONS, ModelOptions
from ..protocol.response_format import ResponseFormat
from ..providers.base import Think
from ..services.requests import ChatModel, RequestExtras
from ..sessions import ChatSession, SessionManager
from ..sessions.attachments import NewAttachment
from ..sessions.session import encode_messages
from .conversation import MANY_MESSAGES
from .recognition import recognise
from .runs.control import RunControl, StartedRun
from .service import ChatService, TurnOptions, function_name
from .turn import Turn

NEW_SESSION = "new"
"""In the place of a session's id: a new session is to keep the conversation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionRequest:
    """What a client asks of a model."""

    model: str
    """Full name of a model, or what stands for one in sessions."""
    messages: Sequence[Message]
    """The whole conversation; system messages at the beginning are the system prompt."""
    attachments: Sequence[NewAttachment] = ()
    """The files that messages name."""
    options: ModelOptions = NO_OPTIONS
    think: Think | None = False
    """None: as the model does where a request does not say."""
    think_if_able: bool = False
    """Whether a model that cannot think answers without."""
    response_format: ResponseFormat | None = None
    client_tools: Sequence[JSONObject] = ()
    """Schemas of the functions that the client runs, see ``ChatService.open_turn``."""
    tells_all_calls: bool = False
    """Whether the messages have the calls of the server's tools, with their results, as well."""
    must_call: bool = False
    """Whether the first reply must call a tool."""
    tools: Sequence[str] | None = None
    """Names of the server's tools that are offered. None: those of the session, or of what
    stands for the model; else none."""
    session_id: str | None = None
    """The session that is continued; ``NEW_SESSION``: one that is made; None: nothing is kept."""
    is_private: bool = False
    """Whether it is never kept without a session."""
    continues: bool = False
    """Whether the run goes on when nobody reads it."""
    run_id: str | None = None
    """The id of its run, which is new; None: any."""
    after_run: str | None = None
    """The run that must be the last one of its session until now; None: any."""

    @property
    def functions(self) -> Collection[str] | None:
        """Names of the functions whose calls are the client's own; None: all are."""
        if not self.tells_all_calls:
            return None
        return {function_name(tool) for tool in self.client_tools}

    def split(self) -> tuple[str | None, list[Message], list[Message]]:
        """Return the system prompt, what was said up to the last reply, and what came after it."""
        prompts = [*takewhile(lambda each: isinstance(each, SystemMessage), self.messages)]
        system = "\n\n".join(each.text for each in prompts) if prompts else None
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
        if request.think is None or (request.think and request.think_if_able):
            model = await self._find_model(request.model)
            if request.think is None:
                request = replace(request, think=model.thinks_unasked)
            elif not model.may_think:
                request = replace(request, think=False)
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
        functions = request.functions
        new = [
            each
            for each in request.split()[2]
            if isinstance(each, UserMessage)
            or (isinstance(each, ToolMessage) and _is_own(each, functions))
        ]
        return await self.run_control.start(str(request.session_id), **_options(request, new))

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
        setup = await self.chat.models.resolve(name)
        return await self.chat.conversations.find_model(setup.model)

    async def count_tokens(self, request: CompletionRequest) -> int:
        """Estimate the tokens of a request: its messages and tools, without those of its session.

        Raises:
            ModelNotFound, ProviderNotConfigured, ProviderUnreachable, ProviderError, and what
            ``ModelResolver.resolve`` raises.
            ToolNotFound: ``tools`` names one that the model cannot have.
        """
        conversations = self.chat.conversations
        setup = await self.chat.models.resolve(request.model)
        model = await conversations.find_model(setup.model)
        ratio = conversations.windows.ratio(model.full_name)
        offered = await self.chat.offered(setup, request.tools)
        tools = [*request.client_tools, *(tool.schema() for tool in offered.values())]
        system, history, new = request.split()
        own = None if system is None else SystemMessage(content=system).as_stored()
        prompt = setup.system_message(own)

        def count() -> int:
            messages = [each.as_stored() for each in (*history, *new)]
            if prompt is not None:
                messages.insert(0, prompt)
            return RequestExtras(tools=tools, messages=messages).estimate(ratio)

        return await in_thread_if(len(request.messages) > MANY_MESSAGES, count)

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
        (await self.chat.models.resolve(request.model)).require_right_to_tools()
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
    lines = await in_thread_if(len(history) > MANY_MESSAGES, encode_messages, history)

    def prepare(session: ChatSession) -> None:
        session.extend(lines)

    session = await chat.sessions.create(
        request.model,
        system_prompt=system,
        session_id=session_id,
        options=request.options,
        prepare=prepare,
    )
    stack.push_async_callback(delete, chat.sessions, session.session_id)
    return await chat.open_turn(session.session_id, **_options(request, new))


def _is_own(result: ToolMessage, functions: Collection[str] | None) -> bool:
    """Return whether it is of a call of the client's; the session has the others already."""
    return functions is None or result.tool_name in functions


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


def _options(request: CompletionRequest, new: Sequence[Message]) -> TurnOptions:
    return {
        "model": request.model,
        "new_messages": new,
        "attachments": request.attachments,
        "client_tools": request.client_tools,
        "must_call": request.must_call,
        "think": request.think or False,
        "response_format": request.response_format,
        "options": request.options,
        "selected": request.tools,
        "continues": request.continues,
        "run_id": request.run_id,
        "after_run": request.after_run,
    }
