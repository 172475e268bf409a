"""The MCP server of a runtime: what it answers to each request of a client."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

import mcp_types as types
from mcp.server.caching import CacheableMethod, CacheHint
from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel.server import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from ..config import MochiServerSettings
from ..core.aio import BackgroundTasks, in_thread, run_to_completion
from ..core.caller import RESERVED_NAMES, current_caller, require, serving
from ..core.files import read_plain, replace_file
from ..core.problems import first_problem
from ..errors import InvalidRequest, JSONObject, MochiError, ToolNotFound
from ..protocol.events import AgentDelta, Event, ToolCallStarted, ToolResultReady
from ..protocol.turn_request import TurnRequest
from ..runtime import Runtime
from ..tools.execution import EMPTY
from .ask import (
    ASK,
    AskArguments,
    AskReading,
    check_continued,
    create_session,
    default_model,
    drop_session,
)
from .client_runs import HELD_SECONDS, ClientRun, ClientRuns, Context, can_ask
from .conversations import TEMPLATES, list_conversations, read_resource
from .direct_call import start_call
from .files import take_files
from .http import CALLER
from .offer import ToolOffer
from .prompts import list_prompts, read_prompt

logger = logging.getLogger(__name__)

T = TypeVar("T")

NAME = "mochi-server"

INSTRUCTIONS = (
    "A server for conversations with language models. Its tools run on the machine of the server. "
    "ask talks to one of its models, agent_… to one of its agents. Its resources are the stored "
    "conversations."
)

KEY_FILE = "mcp-state.key"
"""Name of the file of the key that seals what clients bring back, in the folder of the state."""

KEY_BYTES = 32

NEVER_FRESH = CacheHint(ttl_ms=0, scope="private")
"""Files change at any time, and what is listed is a person's."""

CACHE_HINTS: Mapping[CacheableMethod, CacheHint] = {
    "tools/list": NEVER_FRESH,
    "prompts/list": NEVER_FRESH,
    "resources/list": NEVER_FRESH,
    "resources/templates/list": NEVER_FRESH,
    "resources/read": NEVER_FRESH,
}


class ToolReading:
    """The result of a direct call."""

    caller = "This client"

    def __init__(self) -> None:
        self._result: ToolResultReady | None = None

    def add(self, event: Event) -> str | None:
        match event:
            case ToolResultReady() if event.agent_call_id is None:
                self._result = event
            case AgentDelta():
                return event.content
            case ToolCallStarted() if event.agent_call_id is not None:
                return f"\n[{event.agent_name} calls {event.tool_name}]\n"
            case _:
                pass
        return None

    @property
    def attachments(self) -> Sequence[JSONObject]:
        return () if self._result is None else self._result.attachments

    def result(self) -> types.CallToolResult:
        result = self._result
        if result is None:
            return failure("The call was stopped.")
        if not result.success:
            return failure(result.error_message or "The call failed.")
        text = result.result if result.result and result.result.strip() else EMPTY
        return types.CallToolResult(content=[types.TextContent(text=text)])


class McpHandlers:
    """Answers the requests of clients."""

    def __init__(self, runtime: Runtime, tasks: BackgroundTasks) -> None:
        self._runtime = runtime
        self._runs = ClientRuns(runtime, tasks)
        self._offer = ToolOffer(runtime)

    async def list_tools(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=await self._offer.list())

    async def call_tool(
        self, context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        """Run a tool, an agent or a turn; what fails there is a result, for the client's model."""
        try:
            if params.name == ASK and self._offer.has(ASK):
                require("chat")
                return await self._ask(context, params)
            return await self._call(context, params)
        except MochiError as error:
            return failure(error.message, code=error.code)

    async def _call(
        self, context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        call = await self._offer.find(params.name, params.arguments or {})
        if call is None:
            message = ToolNotFound(tool=params.name).message
            raise MCPError(code=types.INVALID_PARAMS, message=message)
        if params.request_state is None:
            model = call.model or (await default_model(self._runtime) if call.is_agent else "")
            run_id, reader = start_call(
                self._runtime, call.tool, call.arguments, model=model, can_ask=can_ask(context)
            )
            run = ClientRun(run_id=run_id, reader=reader)
        else:
            run = await self._runs.resume(params.request_state, params.input_responses or {})
        reading = ToolReading()
        try:
            if (asked := await self._runs.read(context, run, reading)) is not None:
                return asked
        except MochiError:
            await take_files(self._runtime, run.run_id, ())
            raise
        result = reading.result()
        result.content += await take_files(self._runtime, run.run_id, reading.attachments)
        return result

    async def _ask(
        self, context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        if params.request_state is None:
            run = await self._start_turn(context, _ask_arguments(params.arguments or {}))
        else:
            run = await self._runs.resume(params.request_state, params.input_responses or {})
        reading = AskReading()
        return await self._runs.read(context, run, reading) or reading.result(run.run_id)

    async def _start_turn(self, context: Context, arguments: AskArguments) -> ClientRun:
        for name in arguments.tools or ():
            if not self._offer.has(name):
                raise ToolNotFound(tool=name)
        session_id = arguments.session_id
        if session_id is None:
            session_id = await create_session(self._runtime, arguments)
        else:
            check_continued(arguments)
        try:
            metadata = (await self._runtime.sessions.get(session_id)).metadata
            selected: Sequence[str] | None = arguments.tools
            if selected is None:
                setup = await self._runtime.models.resolve(arguments.model or metadata.model)
                selected = await self._offer.of_session(setup.within(metadata))
            started = await self._runtime.run_control.start(
                session_id,
                TurnRequest(
                    message=arguments.message,
                    model=arguments.model,
                    selected=selected,
                    wait=can_ask(context),
                ),
            )
        except BaseException:
            if arguments.session_id is None:
                await run_to_completion(drop_session(self._runtime, session_id))
            raise
        return ClientRun(run_id=started.run_id, reader=started.reader)

    async def list_prompts(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=await _or_error(list_prompts(self._runtime)))

    async def get_prompt(
        self, context: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        return await _or_error(read_prompt(self._runtime, params.name))

    async def list_resources(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        cursor = None if params is None else params.cursor
        return await _or_error(list_conversations(self._runtime, cursor))

    async def list_resource_templates(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(resource_templates=TEMPLATES)

    async def read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        uri = str(params.uri)
        return await _or_error(read_resource(self._runtime, uri), uri=uri)


async def build_server(runtime: Runtime, tasks: BackgroundTasks, *, version: str) -> Server[Any]:
    """Return the MCP server of a runtime.

    Args:
        runtime: The parts of the server.
        tasks: Gets what outlives a request; the caller ends it before the runtime.
        version: Of this program.

    Raises:
        OSError: its key cannot be read or written.
    """
    handlers = McpHandlers(runtime, tasks)
    server: Server[Any] = Server(
        NAME,
        version=version,
        title="Mochi",
        instructions=INSTRUCTIONS,
        cache_hints=CACHE_HINTS,
        get_tool_input_schema=_no_headers,
        on_list_tools=handlers.list_tools,
        on_call_tool=handlers.call_tool,
        on_list_prompts=handlers.list_prompts,
        on_get_prompt=handlers.get_prompt,
        on_list_resources=handlers.list_resources,
        on_list_resource_templates=handlers.list_resource_templates,
        on_read_resource=handlers.read_resource,
    )
    key = await in_thread(_state_key, runtime.settings)
    security = RequestStateSecurity(keys=[key], ttl=HELD_SECONDS)
    server.middleware.append(serve_caller)
    server.middleware.append(RequestStateBoundary(security, default_audience=NAME))
    return server


async def serve_caller(ctx: Context, call_next: CallNext) -> HandlerResult:
    """Serve who has sent the HTTP request; at standard input whoever has started this program.

    Those without a token of their own are called ``mcp``.
    """
    caller = current_caller() if ctx.request is None else ctx.request.scope[CALLER]
    if caller.name in RESERVED_NAMES:
        caller = replace(caller, name="mcp")
    with serving(caller):
        return await call_next(ctx)


def failure(text: str, *, code: str | None = None) -> types.CallToolResult:
    """Return a result that says why there is none."""
    return types.CallToolResult(
        content=[types.TextContent(text=text)],
        structured_content=None if code is None else {"error": {"code": code, "message": text}},
        is_error=True,
    )


def _no_headers(_: str) -> None:
    """Return no schema of a tool: none of ours names a header for an argument."""


def _ask_arguments(arguments: JSONObject) -> AskArguments:
    try:
        return AskArguments.model_validate(arguments)
    except ValidationError as error:
        raise InvalidRequest(f"invalid arguments: {first_problem(error)}") from error


async def _or_error(answer: Awaitable[T], **data: str) -> T:
    """Return the answer; what is not there, or cannot be read, is an error of the protocol.

    Its data are the code of the error, and ``data``.
    """
    try:
        return await answer
    except MochiError as error:
        is_request = error.status < 500  # noqa: PLR2004 - as in HTTP
        code = types.INVALID_PARAMS if is_request else types.INTERNAL_ERROR
        raise MCPError(
            code=code, message=error.message, data={"code": error.code, **data}
        ) from error


def _state_key(settings: MochiServerSettings) -> bytes:
    """Return the key that all processes of the data folder share; of one in memory, a new one."""
    if settings.session_storage == "memory":
        return secrets.token_bytes(KEY_BYTES)
    path = settings.state_path / KEY_FILE
    with suppress(FileExistsError):
        replace_file(path, [secrets.token_bytes(KEY_BYTES)], new=True, private=True)
    return read_plain(path)[0]
