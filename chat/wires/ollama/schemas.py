"""Requests of Ollama's API, as far as they are understood; other fields are ignored."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from mochi_server.errors import InvalidRequest, JSONObject
from sessions_app.schemas import ModelName

from ..common.schemas import MAX_DIMENSIONS, AnyTool, History, RequestPart, Several, TextOr

OPTIONS = {
    **{name: name for name in ("temperature", "top_k", "top_p", "min_p", "seed", "stop")},
    **{name: name for name in ("repeat_penalty", "presence_penalty", "frequency_penalty")},
    "num_predict": "max_tokens",
}
"""Our names of the options that Ollama's requests have."""

Think = bool | Literal["low", "medium", "high", "max"]


class ModelCallFunction(RequestPart):
    """The function of a call."""

    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)


class ModelCall(RequestPart):
    """A call by the model."""

    id: str | None = None
    function: ModelCallFunction


def _lower(role: object) -> object:
    return role.lower() if isinstance(role, str) else role


class OllamaMessage(RequestPart):
    """A message."""

    role: Annotated[Literal["system", "user", "assistant", "tool"], BeforeValidator(_lower)]
    content: str = ""
    thinking: str | None = None
    images: Several[str] | None = None
    tool_calls: Several[ModelCall] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None


class FunctionOfClient(RequestPart):
    """The schema of a function."""

    name: str = Field(min_length=1, max_length=128)
    description: str = ""
    parameters: dict[str, Any] = Field(default_factory=lambda: {"type": "object", "properties": {}})


class ToolOfClient(RequestPart):
    """A function that the client runs."""

    type: Literal["function"] = "function"
    function: FunctionOfClient

    def schema_for_model(self) -> JSONObject:
        return {"type": "function", "function": self.function.model_dump(mode="json")}


def _check_unit(keep_alive: object) -> object:
    """Refuse, as Ollama does, a text that is a number without a unit."""
    if isinstance(keep_alive, str) and keep_alive.lstrip("-").isdecimal() and int(keep_alive):
        raise ValueError(f'time: missing unit in duration "{keep_alive}"')
    return keep_alive


KeepAlive = Annotated[str | float, BeforeValidator(_check_unit)]


class ModelQuestion(RequestPart):
    """What ``chat`` and ``generate`` have in common."""

    model: ModelName
    stream: bool = True
    think: Think | None = None
    format: TextOr[dict[str, Any]] | None = None
    options: dict[str, Any] | None = None
    keep_alive: KeepAlive | None = None
    logprobs: Literal[False] | None = None

    @property
    def ignored_options(self) -> list[str]:
        """Names of the options that the server does not take."""
        return [name for name in self.options or {} if name not in OPTIONS]

    @property
    def model_options(self) -> JSONObject:
        """The options of the model that the server takes."""
        given = self.options or {}
        options: JSONObject = {ours: given[name] for name, ours in OPTIONS.items() if name in given}
        if isinstance(limit := options.get("max_tokens"), int) and limit < 0:  # no limit
            del options["max_tokens"]
        if self.keep_alive is not None:
            options["keep_alive"] = self.keep_alive
        return {name: value for name, value in options.items() if value is not None}

    @property
    def response_format(self) -> JSONObject | None:
        """The form of the answer as chat completions have it."""
        if not self.format:
            return None
        if isinstance(self.format, str):
            return {"type": "json_object"} if self.format == "json" else {"type": self.format}
        return {"type": "json_schema", "json_schema": {"schema": self.format}}


class OllamaChatRequest(ModelQuestion):
    """The body of ``POST /api/chat``."""

    messages: History[OllamaMessage] = Field(default=[])
    tools: Several[AnyTool[ToolOfClient]] | None = None


class GenerateRequest(ModelQuestion):
    """The body of ``POST /api/generate``."""

    prompt: str = ""
    system: str | None = None
    images: Several[str] | None = None
    raw: Literal[False] | None = None
    suffix: Literal[""] | None = None
    template: Literal[""] | None = None
    context: list[int] | None = Field(default=None, max_length=0)


class ModelToEmbed(RequestPart):
    """What ``embed`` and ``embeddings`` have in common."""

    model: ModelName
    options: dict[str, Any] | None = None
    keep_alive: KeepAlive | None = None


class EmbedRequest(ModelToEmbed):
    """The body of ``POST /api/embed``."""

    input: TextOr[Several[str]] | None = None
    truncate: bool = False
    dimensions: int | None = Field(default=None, ge=0, le=MAX_DIMENSIONS)

    @property
    def texts(self) -> list[str]:
        return [self.input] if isinstance(self.input, str) and self.input else [*(self.input or ())]


class EmbedPromptRequest(ModelToEmbed):
    """The body of ``POST /api/embeddings``."""

    prompt: str = ""


class ShowRequest(RequestPart):
    """The body of ``POST /api/show``."""

    model: ModelName | None = None
    name: str | None = None

    @property
    def named(self) -> str:
        """The model.

        Raises:
            InvalidRequest: there is none.
        """
        if not (name := self.model or self.name):
            raise InvalidRequest("model is required")
        return name


class PullRequest(ShowRequest):
    """The body of ``POST /api/pull``."""

    stream: bool = True
