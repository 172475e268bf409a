"""Requests to models and the pieces of their replies, shared by all providers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal, TypeAlias

from pydantic import JsonValue

from ..errors import JSONObject
from .events import ContentDelta, ThinkingDelta
from .files import FILES
from .messages import ToolCall
from .options import NO_OPTIONS, ModelOptions
from .response_format import ResponseFormat

__all__ = [
    "Chunk",
    "ContentDelta",
    "Finish",
    "ModelInfo",
    "ModelKind",
    "ModelRequest",
    "Think",
    "ThinkingDelta",
    "ToolCall",
]

Think: TypeAlias = bool | Literal["low", "medium", "high", "max"]

_ENDED: Final = frozenset(
    {"stop", "tool_calls", "end_turn", "stop_sequence", "eos", "eos_token", "complete"}
)
"""Words of providers and servers for a reply that the model itself has ended."""

ModelKind: TypeAlias = Literal["model", "preset", "agent"]
"""What a name in the list of models stands for."""


def is_in_full(reason: str | None) -> bool:
    """Return whether a reply that ended for this reason was not cut off; None: it gave none."""
    return reason is None or reason in _ENDED


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """The end of a reply; always the last chunk."""

    reason: str
    """``stop``, ``length``, ``tool_calls``, … from the provider; ``stop`` if it says none."""
    eval_count: int | None = None
    """Tokens generated, thinking included."""
    prompt_eval_count: int | None = None
    """Tokens of the prompt."""
    load_seconds: float = 0.0
    """Seconds in which the provider loaded the model for this request."""
    provider_data: JSONObject | None = None
    """Data that the provider wants back with the message."""
    stop_sequence: str | None = None
    """Which text of the option ``stop`` has ended the reply, if the provider says so."""


Chunk: TypeAlias = ContentDelta | ThinkingDelta | ToolCall | Finish
"""A piece of a reply. The deltas are events of the turn as well: one object for each token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """One model, as ``GET /models`` shows it (docs/reference/http-api.md)."""

    name: str
    """The name to use in requests; with the provider's alias where that is not the default."""
    size_mb: float | None = None
    """Size of the weights in megabytes (10**6 bytes)."""
    format: str | None = None
    family: str | None = None
    parameter_size: str | None = None
    quantization_level: str | None = None
    capabilities: list[str] = field(default_factory=list)
    """``completion``, ``tools``, ``thinking``, ``vision``, …"""
    context_length: int | None = None
    """Longest context in tokens that the model was made for; null when unknown."""
    provider: str = "ollama"
    """Alias of the provider."""
    remote_host: str | None = None
    """Where the text goes when the model runs elsewhere."""
    modified_at: datetime | None = None
    """When the model was made or fetched; null when unknown. Only the wires show it."""
    kind: ModelKind = "model"
    description: str = ""
    """What a preset or an agent is for."""
    parent_model: str | None = None
    """The model that a preset or an agent uses."""

    @property
    def can_call_tools(self) -> bool:
        """Whether it is not known to be unable to call tools."""
        return not self.capabilities or "tools" in self.capabilities


LONG_REQUEST = 200
"""Messages; building the body of a longer request takes milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """A request for one reply."""

    model: str
    """The provider's own name of the model (without alias)."""
    messages: Sequence[JSONObject]
    """Stored messages (docs/reference/session-file.md), already fitted to the window.

    Those of the user may have files (``protocol.files.with_files``) in the place of attachments.
    """
    tools: Sequence[JSONObject] = ()
    """``{"type": "function", "function": {"name", "description", "parameters"}}`` each."""
    must_call: bool = False
    """Whether the reply must call one of the tools; providers whose service cannot demand it say so
    (``Capabilities.forced_calls``)."""
    think: Think | None = None
    """None: nobody has said. It is as False, but for services whose models think unless they are
    told not to, and refuse that: those are told on demand only."""
    num_ctx: int | None = None
    """Context window in tokens; None leaves it to the provider."""
    max_tokens: int | None = None
    """Most tokens to generate, not more than ``options`` say; None leaves it to the provider."""
    options: ModelOptions = NO_OPTIONS
    response_format: ResponseFormat | None = None
    """The form that the reply must have; only one that the provider takes (``takes_format``)."""

    @property
    def schema(self) -> dict[str, JsonValue] | None:
        """The JSON schema that the reply must fit."""
        return None if self.response_format is None else self.response_format.schema_of_reply

    @property
    def is_long(self) -> bool:
        """Whether building the vendor's request body would block the event loop for too long."""
        return len(self.messages) > LONG_REQUEST or any(FILES in each for each in self.messages)
