"""What a turn works with, and whether it may begin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ..core.caller import current_caller
from ..errors import Forbidden, InvalidRequest, ProviderError, ToolNotFound
from ..protocol.messages import Message, UserMessage
from ..protocol.turn_request import TurnRequest
from ..services.chat_model import ChatModel
from ..services.history import system_of
from ..services.models.resolver import ModelResolver, ModelSetup
from ..sessions import ChatSession
from ..sessions.types import ToolSettings
from ..tools.base import Tool
from ..tools.catalogue import ToolCatalogue
from .conversations import Conversations
from .runs.registry import log_failure
from .session_agents import SessionAgents


class CheckedTurn(NamedTuple):
    """What a turn works with that may begin."""

    request: TurnRequest
    """What was asked, without the messages; model, options and thinking are settled."""
    setup: ModelSetup
    model: ChatModel
    tools: dict[str, Tool]
    added: Sequence[Message] | None = None
    """The messages that it adds; None: it answers the last one again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnChecks:
    """Finds out what a turn works with, and refuses one that is sure to fail."""

    conversations: Conversations
    models: ModelResolver
    """Finds out what names of models stand for."""
    tools: ToolCatalogue
    agents: SessionAgents

    async def check(
        self, session: ChatSession, request: TurnRequest, run_id: str = ""
    ) -> CheckedTurn:
        """Check a turn of a session, and return what it will work with."""
        named = request.model or session.metadata.model
        try:
            setup = await self.models.resolve(named, wait=True)
            setup = setup.within(session.metadata)
            chosen = await self.conversations.find_model(setup.model)
        except ProviderError as error:
            log_failure(session.session_id, run_id, named, error)
            raise
        think = setup.think if request.think is None else request.think
        think = chosen.decide_thinking(think, unasked=request.thinks_unasked)
        tools = await self.offered(setup, request)
        _check_right(tools)
        if tools or request.client_functions():
            settings = setup.tool_settings
            if not request.must_call and (settings is None or not settings.is_prompted):
                chosen.check_tools()
        elif request.must_call:
            raise InvalidRequest("The tool_choice demands a call of a tool that is not offered.")
        added = request.added()
        _check_questions(chosen, setup, session, added or ())
        if added is None:
            session.set_aside_answer(keep=request.keep)  # in memory: it may be impossible
        options = setup.options.with_changes(request.options)
        settled = replace(request.without_messages(), model=named, think=think, options=options)
        return CheckedTurn(settled, setup, chosen, tools, added)

    async def offered(self, setup: ModelSetup, request: TurnRequest) -> dict[str, Tool]:
        """Return the tools of a turn by name, the one that calls agents among them.

        Raises:
            ToolNotFound: ``request.selected`` names one that the setup does not have.
        """
        selected = request.selected
        if any(names is not None and not names for names in (selected, request.allowed)):
            return {}
        settings = setup.tool_settings if selected is None else ToolSettings(tools=[*selected])
        tools = {**setup.tools, **(await self.tools.select(settings)).tools, **setup.tools}
        if setup.agent_settings is not None and setup.agent_settings.enabled_agents:
            agent = (await self.agents.offer(setup.agent_settings)).tool
            if agent is not None:
                tools[agent.name] = agent
        for name in selected or ():
            if name not in tools:
                raise ToolNotFound(tool=name)
        return {
            name: tools[name]
            for name in (tools if selected is None else selected)
            if request.allows(name)
        }


def _check_questions(
    model: ChatModel, setup: ModelSetup, session: ChatSession, new: Sequence[Message]
) -> None:
    """Refuse what the user asks, in new messages or else in the last one, if it is sure to fail."""
    questions = [each for each in new if isinstance(each, UserMessage)]
    asked = questions[-1].as_stored() if questions else session.last_user_message
    if asked is not None:
        model.check_attachments(asked)
    system = setup.system_message(system_of(session))
    for question in questions:
        model.check_length(system, question)


def _check_right(tools: Mapping[str, Tool]) -> None:
    """Refuse a turn with tools to those who have no right to them: without, it would be another.

    Raises:
        Forbidden: the caller lacks the right ``tools``.
    """
    if tools and "tools" not in current_caller().rights:
        text = "This turn has tools, and the token of this request lacks the right 'tools'."
        raise Forbidden(text, details={"right": "tools"})
