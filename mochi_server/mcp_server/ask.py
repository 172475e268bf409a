"""The tool ``ask``: a whole turn of a session, which may be a new one."""

from __future__ import annotations

from contextlib import suppress

import mcp_types as types
from pydantic import BaseModel, ConfigDict, Field

from ..errors import InvalidRequest, JSONObject, MochiError
from ..protocol.events import ContentDelta, Done, Event, ToolCallStarted
from ..protocol.fold import Fold
from ..protocol.messages import UserMessage
from ..runtime import Runtime
from ..services.system_prompts import check_content
from ..sessions import ChatSession
from ..sessions.types import ToolExecutionPolicy, ToolSettings
from .prompts import file_of

ASK = "ask"


class AskArguments(BaseModel):
    """What ``ask`` takes."""

    model_config = ConfigDict(extra="forbid")

    message: str = Field(pattern=r"\S", description="What is said to the model.")
    session_id: str | None = Field(
        default=None,
        description="Continues this conversation, as an earlier answer names it. Without it a new "
        "one begins.",
    )
    model: str | None = Field(
        default=None,
        description="Name of the model, preset/NAME or agent/NAME: of a new conversation, else for "
        "this message alone.",
    )
    system_prompt: str | None = Field(
        default=None,
        description="System prompt of a new conversation: its text, or the name of one of the "
        "prompts of this server.",
    )
    tools: list[str] | None = Field(
        default=None,
        description="Names of the server's tools that the model may call. Without it: those of "
        "the conversation; of a new one, those of its preset or agent, else none.",
    )


class AskAnswer(BaseModel):
    """What ``ask`` returns as structured content."""

    answer: str
    session_id: str
    run_id: str
    model: str
    message_id: str
    finish_reason: str | None = None


def _input_schema() -> JSONObject:
    """Return the schema of the arguments as models read it best: a missing one is left out."""
    schema = AskArguments.model_json_schema()
    properties = {
        name: {
            "description": prop["description"],
            **{
                key: value
                for key, value in {**prop, **prop.get("anyOf", [{}])[0]}.items()
                if key in {"type", "items", "pattern"}
            },
        }
        for name, prop in schema["properties"].items()
    }
    required = schema["required"]
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


ASK_TOOL = types.Tool(
    name=ASK,
    title="Ask a model of this server",
    description="Say something to a model of this server and return its answer. The conversation "
    "is stored; name its session_id to continue it.",
    input_schema=_input_schema(),
    output_schema=AskAnswer.model_json_schema(),
    annotations=types.ToolAnnotations(destructive_hint=False),
)


class AskReading:
    """The answer of a turn."""

    caller = "The model"

    def __init__(self) -> None:
        self._fold = Fold()
        self._session_id = ""

    def add(self, event: Event) -> str | None:
        self._fold.add(event)
        match event:
            case Done():
                self._session_id = event.session_id
            case ContentDelta():
                return event.content
            case ToolCallStarted():
                return f"\n[{event.agent_name or 'The model'} calls {event.tool_name}]\n"
            case _:
                pass
        return None

    def result(self, run_id: str) -> types.CallToolResult:
        """Return the answer of the turn.

        Raises:
            RunStopped: a person has stopped it.
        """
        complete = self._fold.answer()
        answer = AskAnswer(
            answer=str(complete.message["content"]),
            session_id=self._session_id,
            run_id=run_id,
            model=complete.model,
            message_id=complete.message_id,
            finish_reason=complete.finish_reason,
        )
        return types.CallToolResult(
            content=[types.TextContent(text=answer.answer)],
            structured_content=answer.model_dump(),
        )


async def default_model(runtime: Runtime) -> str:
    """Return the provider's model of the session that was changed last, else the first one.

    Raises:
        ModelNotFound: there is none.
        ProviderError, ProviderNotConfigured: no provider answers.
    """
    for entry in (await runtime.sessions.list(limit=1)).entries:
        if name := entry["model"]:
            with suppress(MochiError):  # a preset or an agent that is gone
                return (await runtime.models.resolve(str(name))).model
    return await runtime.providers.first_model()


async def create_session(runtime: Runtime, arguments: AskArguments) -> str:
    """Store the session that an ``ask`` without a session begins, and return its id.

    Raises:
        ModelNotFound, PresetNotFound, PresetInvalid, AgentNotFound, AgentInvalid, ProviderError,
        PromptNotFound, InvalidRequest, StorageError.
    """
    prompt = arguments.system_prompt
    source = None if prompt is None else await file_of(runtime, prompt)
    if source is not None:
        prompt = await runtime.prompts.text_for_session(source)
    elif prompt is not None:
        check_content(prompt)
    model = arguments.model or await default_model(runtime)
    setup = await runtime.models.resolve(model)
    await runtime.providers.show_model(setup.model)
    tools = None  # those of the preset
    if setup.tool_settings is None or arguments.tools is not None:
        tools = ToolSettings(
            tools=arguments.tools or [],
            execution_policy=ToolExecutionPolicy.CONFIRM_DESTRUCTIVE,
        )
    session = await runtime.sessions.create(
        model, system_prompt=prompt, source_file=source, tool_settings=tools
    )
    return session.session_id


async def drop_session(runtime: Runtime, session_id: str) -> None:
    """Delete a new session in which nothing was said."""
    with suppress(MochiError):  # somebody else uses it already
        await runtime.sessions.delete(session_id, only_if=_is_silent)


def _is_silent(session: ChatSession) -> bool:
    return not any(isinstance(message, UserMessage) for message in session.messages)


def check_continued(arguments: AskArguments) -> None:
    """Check an ``ask`` that continues a session.

    Raises:
        InvalidRequest: it has a system prompt.
    """
    if arguments.system_prompt is not None:
        raise InvalidRequest("Only a new conversation can be given a system prompt.")
