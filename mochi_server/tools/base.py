"""What a tool is, and where tools come from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ..errors import JSONObject
from ..protocol.payload import FieldPayload

if TYPE_CHECKING:
    import asyncio

    from ..protocol.events import Event  # a process of tools need not import them


class InvalidArguments(ValueError):
    """The arguments do not fit the tool; the text tells the model what is wrong."""


class ToolFailed(Exception):
    """A call ended without a result; the text tells the model why."""

    def __init__(self, reason: str, *, traceback: str = "") -> None:
        super().__init__(reason)
        self.traceback = traceback
        """For the log, where the tool's own code raised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Why something in a folder of tools cannot be used, or is left out."""

    file: str
    line: int | None
    """From 1; None when the whole file is meant."""
    reason: str
    tool: str | None = None
    severity: Literal["warning", "hint"] = "warning"

    @property
    def is_hint(self) -> bool:
        return self.severity == "hint"

    def __str__(self) -> str:
        """``/tools/__init__.py:3: …``, as compilers have it."""
        return f"{self.file}:{self.line or 1}: {self.reason}"

    def as_json(self) -> JSONObject:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDescription:
    """Everything about a function but the function: what travels between processes."""

    name: str
    description: str
    parameters: JSONObject
    """JSON Schema of the arguments: ``{"type": "object", "properties", "required", "$defs"?}``."""
    short_parameters: JSONObject
    """``{"a": {"type": "float", "description": "…"}}``, as ``GET /tools`` lists them."""
    file: str
    line: int
    source: str
    is_async: bool = False
    destructive: bool | None = None
    """None: the package does not say."""
    sequential: bool = False
    timeout: float | None = None
    """Seconds; None: the server's default."""
    unchecked: list[str] = field(default_factory=list)
    """Names of parameters that only the function's own code can check."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Elicitation(FieldPayload):
    """What a tool asks a person while it runs.

    The word and its forms are those of the Model Context Protocol.
    """

    message: str
    requested_schema: JSONObject | None = None
    """JSON Schema of the answer, an object; None where the person is only to open the ``url``."""
    url: str | None = None


@dataclass(frozen=True, slots=True)
class ElicitationAnswer:
    """What the person says."""

    action: Literal["accept", "decline", "cancel"]
    """``cancel``: nobody could be asked, or nobody answered in time."""
    content: JSONObject | None = None
    """What fits the schema, with ``accept``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingRequest:
    """What a tool wants a model to continue while it runs; the word is MCP's."""

    messages: Sequence[JSONObject]
    """``{"role", "content"}`` each."""
    max_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingAnswer:
    """What the model says."""

    text: str
    model: str
    is_cut: bool
    """Whether it has reached ``max_tokens``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """The caller; the chat hands its tools more (``chat.tool_calls.context.CallContext``)."""

    session_id: str
    tool_call_id: str

    @property
    def conversation_id(self) -> str:
        """Session of the person, also where an agent calls, which has a session of its own."""
        return self.session_id

    @property
    def agent_name(self) -> str | None:
        """Name of the agent that calls; None if the conversation's model does."""
        return None

    @property
    def agent_call_id(self) -> str | None:
        """Id of the call that started the agent."""
        return None

    async def check_held(self) -> None:
        """Refuse to go on with the call if another process has taken its run meanwhile.

        Raises:
            RunInterrupted: it has.
        """

    async def elicit(
        self,
        tool: Tool,  # noqa: ARG002 - here is nobody to ask
        elicitation: Elicitation,  # noqa: ARG002
        withdrawn: asyncio.Future[Any] | None = None,  # noqa: ARG002
    ) -> AsyncGenerator[Event | ElicitationAnswer, None]:
        """Ask a person: yield events, which the tool passes on, and exactly one answer.

        ``withdrawn`` is done as soon as the tool does not wait for an answer any more.
        """
        yield ElicitationAnswer("cancel")

    async def sample(
        self,
        tool: Tool,  # noqa: ARG002 - here is no model
        request: SamplingRequest,  # noqa: ARG002
        withdrawn: asyncio.Future[Any] | None = None,  # noqa: ARG002
    ) -> AsyncGenerator[Event | SamplingAnswer | str, None]:
        """Ask the model of the conversation: yield events, and one answer, or why there is none.

        ``withdrawn`` is that of ``elicit``.
        """
        yield "There is no model here."


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFile:
    """A file in the result of a call."""

    content: bytes
    media_type: str
    """As the tool says."""
    name: str | None = None


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """The result of a call, as text for the model."""

    content: str
    files: Sequence[ToolFile] = ()
    """What else it returned; the text says that there are such files."""


@dataclass(frozen=True, slots=True)
class ToolBegun:
    """The call has its slot and runs from now on: its time counts from here."""


@dataclass(frozen=True, slots=True)
class ToolPaused:
    """The call waits for a person: its time counts again from the next :class:`ToolBegun`."""


ToolStep: TypeAlias = "Event | ToolBegun | ToolPaused | ToolOutput"
"""What a tool yields while it runs."""


class Tool(ABC):
    """Something that a model can call."""

    name: str
    description: str
    parameters: JSONObject
    source: str
    """Name of its :class:`ToolSource`: ``directory``, ``agents``, ``mcp:{server}``, …"""
    destructive: bool | None
    """None: not known, which counts as destructive."""
    sequential: bool
    """Whether it runs alone: beside no other call of the reply, and not twice at a time."""
    timeout: float | None
    """Seconds; None: no limit."""
    is_resumable: bool = False
    """Whether a call that a dead process has begun can go on, as the work of an agent can."""
    only_tells: bool = False
    """Whether it only tells the model of its tools: no policy asks a person about that."""
    details: ToolDescription | None = None

    @property
    def needs_approval(self) -> str | None:
        """Why a person is asked about the next call, whatever policies and rules allow."""
        return None

    @property
    def fingerprint(self) -> str | None:
        """A hash of what the tool says of itself now; None: it is not kept."""
        return None

    async def approve(self, fingerprint: str) -> None:  # noqa: B027 - most tools keep nothing
        """Take note that a person has allowed a call of the tool as it was with this hash."""

    def prepare(self) -> None:  # noqa: B027 - most tools need no preparation
        """Get ready for a call, which may come soon; return at once."""

    def schema(self) -> JSONObject:
        """Return what the model reads: ``{"type": "function", "function": {…}}``."""
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": self.parameters,
            },
        }

    @abstractmethod
    async def validate(self, arguments: JSONObject) -> JSONObject:
        """Return the arguments in the form that ``run`` takes; the tool does nothing yet.

        Raises:
            InvalidArguments: they do not fit.
        """

    async def complete(self, arguments: JSONObject) -> JSONObject:
        """Return what a call is shown, recorded and run with: it has the defaults of the schema.

        Raises:
            InvalidArguments: they do not fit.
        """
        fitted = await self.validate(arguments)
        try:
            return await self.validate({**self.defaults, **fitted})
        except InvalidArguments:  # a default of somebody else's does not fit their own schema
            return fitted

    @property
    def defaults(self) -> JSONObject:
        """The defaults that the schema names."""
        properties = self.parameters.get("properties")
        return {
            name: schema["default"]
            for name, schema in (properties if isinstance(properties, dict) else {}).items()
            if isinstance(schema, dict) and "default" in schema
        }

    @abstractmethod
    def run(self, arguments: JSONObject, context: ToolContext) -> AsyncGenerator[ToolStep, None]:
        """Yield events while it works, if it has any, and exactly one output, last.

        Raises (while it is iterated):
            InvalidArguments, ToolFailed.
        """


class ToolSource(ABC):
    """Where tools come from."""

    name: str

    @abstractmethod
    async def tools(self) -> Sequence[Tool]:
        """Return all tools as they are now; notices changes by itself."""

    def groups(self) -> Mapping[str, Sequence[str]]:
        return {}

    def problems(self) -> Sequence[Problem]:
        """Return what could not be used at the last ``tools()``."""
        return ()

    def missing(self, name: str) -> Problem | None:  # noqa: ARG002 - most sources know nothing
        """Say why there is no tool of this name, or none that fits this pattern.

        None: it is not known that the source should have one.
        """
        return None

    async def wait_for(self, names: Collection[str], group: str | None) -> bool:  # noqa: ARG002
        """Wait a while for tools that are not there yet but may be soon; return whether some came.

        Args:
            names: Names, or patterns, of tools that are selected and no source has.
            group: A group that is selected and no source has.
        """
        return False

    @abstractmethod
    async def reload(self) -> None:
        """Load everything again, changed or not; running calls go on with what they have."""

    @abstractmethod
    async def aclose(self) -> None:
        """Give everything back; may be called again."""
