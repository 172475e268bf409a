"""What a tool knows of the call that it runs for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Protocol

from ...core.aio import wait_unless
from ...errors import MochiError, RunInterrupted
from ...protocol.completions import Finish
from ...protocol.events import Event, ToolSampling
from ...protocol.messages import ToolCall
from ...sessions.types import ToolSettings
from ...tools.base import (
    Elicitation,
    ElicitationAnswer,
    SamplingAnswer,
    SamplingRequest,
    Tool,
    ToolContext,
)
from ..confirmations.asking import AskedCall, Confirmations
from ..confirmations.confirmation import ConfirmationDecision
from ..runs.progress import AgentProgress
from ..runs.run import Run


class Sampler(Protocol):
    """Asks models for tools that want it."""

    async def sample(
        self, full_name: str, request: SamplingRequest
    ) -> tuple[SamplingAnswer, Finish]:
        """Return what a model says.

        Raises:
            MochiError: it says nothing.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class CallContext(ToolContext):
    """The caller, for tools that hold conversations of their own."""

    run: Run
    model: str
    """Full name of the model that calls."""
    settings: ToolSettings
    """Settings of the person's conversation, whose policies hold for the tools of agents, too."""
    confirmations: Confirmations
    sampler: Sampler
    call: ToolCall
    index: int
    """Position of the call in the model's reply, from 0."""
    depth: int
    """0 for the person's conversation, one more for each agent within."""
    before: AgentProgress | None = None
    """What an earlier process has done in this call."""

    @property
    def conversation_id(self) -> str:
        return self.confirmations.session_id

    @property
    def agent_name(self) -> str | None:
        return self.confirmations.agent_name

    @property
    def agent_call_id(self) -> str | None:
        return self.confirmations.agent_call_id

    async def check_held(self) -> None:
        if await self.run.is_given_up():
            raise RunInterrupted(run_id=self.run.run_id)

    async def elicit(
        self, tool: Tool, elicitation: Elicitation, withdrawn: asyncio.Future[Any] | None = None
    ) -> AsyncGenerator[Event | ElicitationAnswer, None]:
        asked = AskedCall(self.call, self.index, {}, tool.source)
        steps = self.confirmations.elicit(asked, elicitation, withdrawn)
        async with aclosing(steps):
            async for step in steps:
                if not isinstance(step, ConfirmationDecision):
                    yield step
                elif step.approved:
                    yield ElicitationAnswer("accept", step.arguments)
                else:
                    yield ElicitationAnswer("cancel" if step.code else "decline")

    async def sample(
        self, tool: Tool, request: SamplingRequest, withdrawn: asyncio.Future[Any] | None = None
    ) -> AsyncGenerator[Event | SamplingAnswer | str, None]:
        try:
            sampled = await wait_unless(withdrawn, self.sampler.sample(self.model, request))
        except MochiError as error:
            yield error.message
            return
        if sampled is None:
            return
        answer, finish = sampled
        yield ToolSampling(
            tool_name=tool.name,
            tool_call_id=self.tool_call_id,
            model=answer.model,
            prompt_eval_count=finish.prompt_eval_count,
            eval_count=finish.eval_count,
            agent_name=self.agent_name,
            agent_call_id=self.agent_call_id,
        )
        yield answer
