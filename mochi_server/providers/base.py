"""The interface of a provider, which runs models.

A provider turns a :class:`ModelRequest` into a stream of chunks. It hands on whole tool calls
(it puts fragments together itself), and ends every good stream with exactly one :class:`Finish`.
A stream without one is an error, which the provider raises.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from enum import Enum
from typing import ClassVar, TypeVar

from pydantic import BaseModel, ValidationError

from ..core.limits import MAX_RESPONSE, complete_json, too_large
from ..core.progress import ProgressReporter
from ..errors import EmbeddingsNotSupported, ModelNotFound, ProviderError
from ..protocol.completions import (
    Chunk,
    ContentDelta,
    Finish,
    ModelInfo,
    ModelRequest,
    Think,
    ThinkingDelta,
)
from ..protocol.embeddings import EmbeddingRequest, Embeddings
from ..protocol.options import ModelOptions
from ..protocol.response_format import JsonSchemaFormat, ResponseFormat
from .text_thinking import TextThinking

__all__ = [
    "Capabilities",
    "Chunk",
    "ContentDelta",
    "EmbeddingRequest",
    "Embeddings",
    "Finish",
    "LoadState",
    "LoadedModel",
    "ModelInfo",
    "ModelRequest",
    "Provider",
    "PullableModel",
    "Think",
    "ThinkingDelta",
    "Weights",
]

T = TypeVar("T", bound=BaseModel)

LIMIT_REACHED = "max_tokens or model output limit was reached"
"""What OpenAI says, with status 400, of a model that has only begun to think within the limit."""

ALWAYS_TAKEN = frozenset({"max_tokens", "extra"})
"""Options that every provider takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a provider can do at all."""

    tools: bool = True
    forced_calls: bool = True
    """Whether a request may demand that the reply calls a tool (``ModelRequest.must_call``)."""
    thinking: bool = True
    structured_output: bool = True
    """Whether a reply has ``ModelRequest.response_format``; summaries need it."""
    documents: bool = False
    """Whether a message may have PDF files."""
    thinks_unasked: bool = False
    """Whether models that can think do so where a request does not say."""
    context_size: bool = False
    """Whether a request may choose the size of the context window (``num_ctx``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """What a provider loads for a model."""

    key: str
    """The same for all models of the same weights: what is loaded for one serves the others."""
    window: int | None = None
    """Tokens of the context window that the maker of the model has set, if any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model in memory."""

    model: ModelInfo
    size: int
    """Bytes of memory that it takes."""
    vram: int = 0
    """Bytes of them that are a graphics card's."""
    window: int | None = None
    """Tokens of the context window that it is loaded with."""
    expires_at: str | None = None
    """When it is unloaded if nobody uses it, in ISO 8601."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PullableModel:
    """A model that a provider can fetch from elsewhere."""

    name: str
    size: int
    """Bytes of its weights."""
    capabilities: tuple[str, ...]
    """As of ``ModelInfo``."""
    is_present: bool
    is_being_pulled: bool
    """Whether a process fetches it now."""


class LoadState(Enum):
    """Whether a request must load its model, and so may unload another one."""

    LOADED = "loaded"
    """The model is in memory, or needs no memory of a server that it shares with other models."""
    NONE_LOADED = "none_loaded"
    OTHERS_LOADED = "others_loaded"
    """Other models are in memory; loading this one may unload them."""


class Provider(ABC):
    """One source of models. Built once per alias; used from one event loop at a time.

    All but ``check`` and ``describe`` may raise ``ProviderUnreachable`` and ``ProviderError``, and
    those that name a model ``ModelNotFound``.
    """

    capabilities: Capabilities = Capabilities()
    check_costs_request: bool = False
    """Whether ``check`` lists the models of a service that counts requests: it is asked seldom."""
    options: ClassVar[frozenset[str]] = frozenset()
    """Names of the options (``ModelOptions``) that its requests carry, beside ``max_tokens`` and
    ``extra``."""

    def __init__(self, alias: str) -> None:
        self.alias = alias

    @property
    def configured(self) -> bool:
        """Whether it has what it needs (a key); it is not shown without."""
        return True

    async def prepare(self) -> None:  # noqa: B027 - not every provider has something to do
        """Do what takes time before the first request, such as importing a package.

        Raises:
            ProviderNotConfigured: it lacks what it needs.
        """

    @abstractmethod
    async def list_models(self) -> list[ModelInfo]:
        """Return every model that can chat, with plain names (no alias)."""

    def may_have(self, name: str) -> bool:  # noqa: ARG002 - for those that can tell
        """Return whether a model may be there, as far as one can tell without an answer."""
        return True

    @abstractmethod
    async def show_model(self, name: str) -> ModelInfo:
        """Return one model, from a short-lived cache where that is cheaper."""

    def ignored_options(
        self,
        name: str,  # noqa: ARG002 - for those whose models differ
        options: ModelOptions,
        think: Think,  # noqa: ARG002 - the same
    ) -> Sequence[str]:
        """Return the names of the options that a request to this model does not carry."""
        return [option for option in options.names() if option not in self.options | ALWAYS_TAKEN]

    def takes_format(
        self,
        name: str,  # noqa: ARG002 - for those whose models differ
        response_format: ResponseFormat,  # noqa: ARG002 - the same
        *,
        tools: bool,
    ) -> bool:
        """Return whether a request to this model may carry the format; ``tools``: beside tools.

        Many services that hold a model to a form let it call no tools meanwhile.
        """
        return self.capabilities.structured_output and not tools

    @abstractmethod
    def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        """Yield the reply, as it is generated. Closing the generator stops the generation at once.

        Raises:
            ThinkingNotSupported, ContextOverflow, ProviderBusy: before the first chunk or in
                mid-stream, as all others.
        """

    async def batches(self, request: ModelRequest) -> AsyncGenerator[Sequence[Chunk], None]:
        """Yield the reply in batches of the chunks that came together; a turn reads this.

        For providers whose chunks come several at a time: a step through a generator for each
        token is what streaming costs most.
        """
        async with aclosing(self.stream(request)) as chunks:
            async for chunk in chunks:
                yield (chunk,)

    async def embed(self, request: EmbeddingRequest) -> Embeddings:
        """Return a vector for each text.

        Raises:
            EmbeddingsNotSupported: the provider makes none.
            ContextOverflow, ProviderBusy: as of a stream.
        """
        raise EmbeddingsNotSupported(provider=self.alias, model=request.model)

    @abstractmethod
    async def check(self) -> bool:
        """Return whether the provider answers now; never raise for one that does not."""

    async def probe(self, name: str) -> bool:
        """Ask a model for one token, to know whether it can be used.

        Returns:
            Whether it was asked: a provider may look a model up instead that a reply would load.
        """
        request = ModelRequest(
            model=name,
            messages=[{"role": "user", "content": "Hi"}],
            num_ctx=await self.loaded_window(name),  # another one would load it again
            max_tokens=1,
        )
        try:
            async with aclosing(self.stream(request)) as chunks:
                async for _ in chunks:
                    break
        except ProviderError as error:
            if LIMIT_REACHED not in error.message:
                raise
        return True

    async def problem(self) -> str | None:
        """Say in one line why there is no model, and what to do about it; None if there is one."""
        return None

    async def structured(self, request: ModelRequest, shape: type[T]) -> T:
        """Return a reply that validates as ``shape``; the beginning of one is enough if it does."""
        request = replace(request, response_format=format_of(shape))
        pieces: list[str] = []
        size, reason = 0, None
        thinking = TextThinking()
        async with aclosing(self.stream(request)) as chunks:
            async for chunk in chunks:
                for known in thinking.add([chunk]):
                    if isinstance(known, ContentDelta):
                        pieces.append(known.content)
                        size += len(known.content)
                        if size > MAX_RESPONSE:
                            raise too_large(MAX_RESPONSE)
                    elif isinstance(known, Finish):
                        reason = known.reason
        text = "".join(pieces)
        try:
            return shape.model_validate_json(complete_json(text))
        except ValidationError as error:
            raise ProviderError(
                f"Model {request.model!r} did not answer in the shape of {shape.__name__}.",
                details={
                    "reply": text[:1000],
                    "problems": error.error_count(),
                    "finish_reason": reason,
                },
            ) from error

    async def weights_of(self, name: str) -> Weights:
        """Return what is loaded for a model."""
        return Weights(key=name)

    async def load(  # noqa: B027 - not every provider loads models
        self, name: str, *, num_ctx: int | None = None, keep_alive: str | float | None = None
    ) -> None:
        """Load a model before it is used.

        Args:
            name: The provider's own name.
            num_ctx: Tokens of its context window; None leaves it to the provider.
            keep_alive: How long it stays loaded, as in the options of a model.
        """

    async def unload(self, name: str) -> None:  # noqa: B027 - the same
        """Unload a model that nobody uses any more, where that can be asked for."""

    async def pullable_models(self) -> list[PullableModel]:
        """Return the models that ``pull`` can fetch, also those that are present."""
        return []

    def pull(self, name: str, progress: ProgressReporter) -> None:  # noqa: ARG002 - for those who pull
        """Fetch the weights of a model; blocks for minutes.

        Raises:
            ModelNotFound: it is not one of ``pullable_models``.
            ProviderNotConfigured: the model could not run here.
        """
        raise ModelNotFound(model=name)

    async def loaded_models(self) -> list[LoadedModel]:
        """Return the models that are loaded, with plain names; none where that is not known."""
        return []

    async def loaded_window(self, name: str) -> int | None:  # noqa: ARG002 - for those who know
        """Return the window in tokens that the model is loaded with now; None when unknown."""
        return None

    @property
    def shared_server(self) -> str | None:
        """Address of the server whose memory all of its models share; None where none do so.

        A request for one of these models may unload another one.
        """
        return None

    async def load_state(self, name: str) -> LoadState:  # noqa: ARG002 - for those who load models
        """Return whether a request for the model would have to load it."""
        return LoadState.LOADED

    async def reads_cancelled_prompts(self) -> bool:
        """Return whether a cancelled request occupies its model until its prompt is read."""
        return False

    def describe(self) -> str:
        """Say where the provider is, for the line at start-up and for ``/health``."""
        return self.alias

    async def aclose(self) -> None:  # noqa: B027 - not every provider has something to close
        """Close connections and child processes."""


def format_of(shape: type[BaseModel]) -> JsonSchemaFormat:
    """Return the format of replies that validate as ``shape``."""
    return JsonSchemaFormat.of(shape.model_json_schema())
