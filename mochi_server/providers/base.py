"""The seam to whatever runs the models.

A provider turns a :class:`ModelRequest` into a stream of chunks. It hands on whole tool calls
(it puts fragments together itself), and ends every good stream with exactly one :class:`Finish`.
A stream without one is an error, which the provider raises.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, TypeVar

from pydantic import BaseModel, JsonValue

from ..errors import JSONObject
from ..messages import ToolCall

Think: TypeAlias = bool | Literal["low", "medium", "high", "max"]
T = TypeVar("T", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ThoughtDelta:
    """A piece of the model's thinking."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """The end of a reply; always the last chunk."""

    reason: str
    """``stop``, ``length``, ``tool_calls``, … as the provider says it; ``stop`` if it does not."""
    eval_count: int | None = None
    """Tokens generated, thinking included."""
    prompt_eval_count: int | None = None
    """Tokens of the prompt."""
    load_seconds: float = 0.0
    """Time the provider spent on loading the model for this request."""
    provider_data: JSONObject | None = None
    """What must be echoed back with the message."""


Chunk: TypeAlias = TextDelta | ThoughtDelta | ToolCall | Finish


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """What a provider needs for one reply."""

    model: str
    """The provider's own name of the model (without alias)."""
    messages: Sequence[JSONObject]
    """Stored messages (docs/reference/session-file.md), already fitted to the window."""
    tools: Sequence[JSONObject] = ()
    """``{"type": "function", "function": {"name", "description", "parameters"}}`` each."""
    think: Think = False
    num_ctx: int | None = None
    """Context window in tokens; None leaves it to the provider."""
    max_tokens: int | None = None
    """Most tokens to generate; None leaves it to the provider."""
    temperature: float | None = None
    schema: dict[str, JsonValue] | None = None
    """JSON schema that the reply must obey."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a provider can do at all; read before use."""

    tools: bool = True
    thinking: bool = True
    structured_output: bool = True
    context_size: bool = False
    """Whether the size of the context window is ours to choose (``num_ctx``)."""


class Provider(ABC):
    """One source of models. Built once per alias; used from one event loop at a time."""

    capabilities: Capabilities = Capabilities()

    def __init__(self, alias: str) -> None:
        self.alias = alias

    @abstractmethod
    async def list_models(self) -> list[ModelInfo]:
        """Every model that can chat, with plain names (no alias).

        Raises:
            ProviderUnreachable, ProviderError.
        """

    @abstractmethod
    async def show_model(self, name: str) -> ModelInfo:
        """One model, from a short-lived cache where that is cheaper.

        Raises:
            ModelNotFound: the provider does not have it.
            ProviderUnreachable, ProviderError.
        """

    @abstractmethod
    def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        """The reply, as it is generated. Closing the generator stops the generation at once.

        Raises:
            ModelNotFound, ThinkingNotSupported, ContextOverflow, ProviderBusy,
            ProviderUnreachable, ProviderError: before the first chunk or in mid-stream.
        """

    @abstractmethod
    async def check(self) -> bool:
        """Whether the provider answers now; never raises for one that does not."""

    async def structured(self, request: ModelRequest, shape: type[T]) -> T:
        """A reply that validates as ``shape``.

        Raises:
            ProviderError: the reply does not validate.
        """
        raise NotImplementedError(f"{type(self).__name__}.structured()")

    async def loaded_window(self, name: str) -> int | None:  # noqa: ARG002 - for those who know
        """The window in tokens that the model is loaded with now; None when that is unknown."""
        return None

    def describe(self) -> str:
        """Where the provider is, for the line at start-up and for ``/health``."""
        return self.alias

    async def aclose(self) -> None:  # noqa: B027 - not every provider has something to close
        """Close connections and child processes."""
