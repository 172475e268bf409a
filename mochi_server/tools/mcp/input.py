"""What servers request while a call of theirs runs: answers of people, and replies of models.

https://modelcontextprotocol.io/specification/2026-07-28/client/elicitation
https://modelcontextprotocol.io/specification/2026-07-28/client/sampling
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from ...core.logs import one_line
from ...errors import JSONObject
from ..base import (
    Elicitation,
    ElicitationAnswer,
    SamplingAnswer,
    SamplingRequest,
    Tool,
    ToolBegun,
    ToolContext,
    ToolPaused,
    ToolStep,
)
from ..dialects import modern_schema
from ..functions.results import clean

if TYPE_CHECKING:
    from mcp.client.session import ClientRequestContext
    from mcp_types import (
        CreateMessageRequestParams,
        CreateMessageResult,
        ElicitRequestParams,
        ElicitResult,
        ErrorData,
    )

MAX_REQUESTS = 20
"""Of one call."""
MAX_CHARACTERS = 65_536
"""Of one elicitation, as JSON."""

Answer = ElicitationAnswer | SamplingAnswer | str
"""A text says why there is none."""


@dataclass(slots=True)
class _Request:
    wanted: Elicitation | SamplingRequest
    answer: asyncio.Future[Answer]


class RunningCall:
    """A call that runs, and what its server requests meanwhile."""

    def __init__(self, context: ToolContext) -> None:
        self.context = context
        self._requests: asyncio.Queue[_Request | None] = asyncio.Queue()
        self._all: list[_Request] = []

    async def request(self, wanted: Elicitation | SamplingRequest) -> Answer:
        """Let whoever runs the call get an answer."""
        if len(self._all) == MAX_REQUESTS:
            return f"A call may make {MAX_REQUESTS} requests at most."
        request = _Request(wanted, asyncio.get_running_loop().create_future())
        self._all.append(request)
        self._requests.put_nowait(request)
        return await request.answer

    def close(self) -> None:
        """End ``steps``: the call has its result, or has failed."""
        self._requests.put_nowait(None)
        for request in self._all:
            if not request.answer.done():
                request.answer.set_result("The call has ended.")

    async def steps(self, tool: Tool) -> AsyncGenerator[ToolStep, None]:
        """Answer what is requested, one after the other, until the call is closed."""
        while (request := await self._requests.get()) is not None:
            if request.answer.done():  # the server has taken it back before it was asked
                continue
            yield ToolPaused()
            wanted = request.wanted
            steps = (
                self.context.elicit(tool, wanted, request.answer)
                if isinstance(wanted, Elicitation)
                else self.context.sample(tool, wanted, request.answer)
            )
            async with aclosing(steps):
                async for step in steps:
                    if not isinstance(step, ElicitationAnswer | SamplingAnswer | str):
                        yield step
                    elif not request.answer.done():
                        request.answer.set_result(step)
            yield ToolBegun()


class ServerInput:
    """Answers what one server requests, for the call for which it does."""

    def __init__(self, *, is_trusted: bool) -> None:
        self._is_trusted = is_trusted
        self._calls: list[RunningCall] = []

    def options(self) -> Mapping[str, Any]:
        """Return arguments of the SDK's ``Client``; only a trusted server may use models."""
        sampling = {"sampling_callback": self._sample} if self._is_trusted else {}
        return {"elicitation_callback": self._elicit, **sampling}

    @contextmanager
    def running(self, call: RunningCall) -> Iterator[None]:
        """Let a call be the one for which this task, or a server of 2025, requests something."""
        self._calls.append(call)
        token = _CURRENT.set(call)
        try:
            yield
        finally:
            _CURRENT.reset(token)
            self._calls.remove(call)

    def _call(self) -> RunningCall | None:
        """Return the call that a request belongs to.

        Servers before 2026 do not say it: there must be calls of one conversation only.
        """
        if (call := _CURRENT.get()) is not None:
            return call
        conversations = {call.context.conversation_id for call in self._calls}
        return self._calls[-1] if len(conversations) == 1 else None

    async def _elicit(
        self,
        _: ClientRequestContext,
        params: ElicitRequestParams,
    ) -> ElicitResult | ErrorData:
        from mcp_types import ElicitResult  # noqa: PLC0415 - an extra

        call, elicitation = self._call(), _elicitation(params)
        if call is None or elicitation is None:
            return ElicitResult(action="cancel")
        answer = await call.request(elicitation)
        if not isinstance(answer, ElicitationAnswer):
            return ElicitResult(action="cancel")
        content = answer.content if elicitation.url is None else None
        return ElicitResult(action=answer.action, content=content)

    async def _sample(
        self, _: ClientRequestContext, params: CreateMessageRequestParams
    ) -> CreateMessageResult | ErrorData:
        from mcp_types import (  # noqa: PLC0415 - an extra
            INVALID_REQUEST,
            CreateMessageResult,
            ErrorData,
            TextContent,
        )

        call, request = self._call(), _sampling(params)
        if call is None:
            answer: Answer = "It is not known for which call this is."
        elif request is None:
            answer = "Only texts can be sampled from."
        else:
            answer = await call.request(request)
        if not isinstance(answer, SamplingAnswer):
            return ErrorData(code=INVALID_REQUEST, message=str(answer))
        return CreateMessageResult(
            role="assistant",
            content=TextContent(type="text", text=answer.text),
            model=answer.model,
            stop_reason="maxTokens" if answer.is_cut else "endTurn",
        )


_CURRENT: ContextVar[RunningCall | None] = ContextVar("running call of an MCP tool", default=None)


def _elicitation(params: ElicitRequestParams) -> Elicitation | None:
    """Return what a person can be asked; None if it is too long or no web address."""
    message = clean(params.message)
    if params.mode == "url":
        if not params.url.startswith(("https://", "http://")):
            return None
        elicitation = Elicitation(message=message, url=one_line(params.url))
    else:
        schema = params.requested_schema
        elicitation = Elicitation(message=message, requested_schema=modern_schema(schema))
    is_long = len(orjson.dumps(elicitation.payload())) > MAX_CHARACTERS
    return None if is_long else elicitation


def _sampling(params: CreateMessageRequestParams) -> SamplingRequest | None:
    """Return what a model can be asked; None if there is more than text."""
    messages: list[JSONObject] = []
    for message in params.messages:
        texts = [clean(block.text) for block in message.content_as_list if block.type == "text"]
        if len(texts) < len(message.content_as_list):
            return None
        messages.append({"role": message.role, "content": "\n".join(texts)})
    if params.system_prompt:
        messages.insert(0, {"role": "system", "content": clean(params.system_prompt)})
    return SamplingRequest(messages=messages, max_tokens=params.max_tokens)
