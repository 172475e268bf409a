"""What a model's name stands for: a model of a provider, ``preset/NAME`` or ``agent/NAME``.

Presets and agents are looked up at each turn, so a session follows what is changed in them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from ...core.caller import require
from ...errors import JSONObject, MochiError
from ...protocol.completions import ModelInfo, ModelKind, Think
from ...protocol.embeddings import EmbeddingRequest, Embeddings
from ...protocol.options import NO_OPTIONS, ModelOptions
from ...providers.registry import ModelList, ProviderRegistry
from ...sessions.types import AgentSettings, SessionMetadata, ToolSettings
from ...tools.base import Tool


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSetup:
    """A model, and what its turns use where their session says nothing else."""

    model: str
    """Full name of a provider's model; empty for the first one that fits."""
    kind: ModelKind = "model"
    name: str = ""
    """Of the preset or agent; requests name it with the kind before it, ``preset/NAME``."""
    description: str = ""
    system_prompt: str = ""
    """One of the session replaces that of a preset, and follows that of an agent."""
    options: ModelOptions = NO_OPTIONS
    think: Think | None = None
    """Whether the model thinks where a request does not say; None: as if it stood for itself."""
    tool_settings: ToolSettings | None = None
    agent_settings: AgentSettings | None = None
    tools: Mapping[str, Tool] = field(default_factory=dict)
    """Tools of an agent by name, which it has beside those of the session."""
    max_tool_rounds: int | None = None
    """None for the server's limit."""
    compaction: bool | None = None
    """Whether a long history is compacted; None: as the server's setting says."""

    def within(self, metadata: SessionMetadata) -> ModelSetup:
        """Return the setup of a session's turn: what the session itself sets wins."""
        setup = self.with_calls(metadata.tool_settings, metadata.agent_settings)
        compaction = self.compaction if metadata.compaction is None else metadata.compaction
        options = self.options.with_changes(metadata.options)
        return replace(setup, options=options, compaction=compaction)

    def with_calls(self, tools: ToolSettings | None, agents: AgentSettings | None) -> ModelSetup:
        """Return the setup with other settings of tools and of agents; None: those that it has."""
        return replace(
            self,
            tool_settings=self.tool_settings if tools is None else tools,
            agent_settings=self.agent_settings if agents is None else agents,
        )

    def has_same_calls_as(self, other: ModelSetup) -> bool:
        """Return whether the model may call the same tools and agents, with the same policy."""
        return self._calls() == other._calls()

    def _calls(self) -> tuple[ToolSettings, AgentSettings, set[str]]:
        tools, agents = self.tool_settings, self.agent_settings
        return tools or ToolSettings(), agents or AgentSettings(), {*self.tools}

    def require_right_to_tools(self) -> None:
        """Make sure that the caller may give a session these tools and agents.

        Raises:
            Forbidden: there are some, and it lacks the right ``tools``.
        """
        if not self.has_same_calls_as(ModelSetup(model=self.model)):
            require("tools")

    def system_message(self, own: JSONObject | None) -> JSONObject | None:
        """Return the system message of a session that has this one, or none, of its own."""
        if not self.system_prompt or (own is not None and self.kind != "agent"):
            return own
        if own is None:
            return {"role": "system", "content": self.system_prompt}
        return {**own, "content": f"{self.system_prompt}\n\n{own.get('content')}"}


class ModelSource(Protocol):
    """Models beside those of the providers."""

    async def setup(self, name: str, *, wait: bool) -> ModelSetup:
        """Return what a name, without its prefix, stands for.

        Args:
            name: The name behind the slash.
            wait: Whether to wait a while for tools of servers that are being started.

        Raises:
            MochiError: there is none of this name, or it cannot be used.
        """

    async def setups(self) -> Sequence[ModelSetup]:
        """Return all that can be used."""


class ModelResolver:
    """Finds out what names of models stand for."""

    def __init__(self, providers: ProviderRegistry, sources: Mapping[str, ModelSource]) -> None:
        """Keep the parts; ``sources`` are by what stands before the slash of their names."""
        self._providers = providers
        self._sources = sources

    async def resolve(self, name: str, *, wait: bool = False) -> ModelSetup:
        """Return what a name stands for; a model of a provider need not exist.

        ``wait``: a while, for tools of servers that are being started.

        Raises:
            PresetNotFound, PresetInvalid, AgentNotFound, AgentInvalid, StorageError.
            ModelNotFound, ProviderError, ProviderNotConfigured: the name says nothing of the
                model, and there is none that fits.
        """
        prefix, slash, rest = name.partition("/")
        if not slash or prefix not in self._sources:
            return ModelSetup(model=name)
        setup = await self._sources[prefix].setup(rest, wait=wait)
        if not setup.model:
            model = await self._providers.first_model(tools=bool(setup.tools))
            setup = replace(setup, model=model)
        return setup

    async def require_right_to_tools(self, name: str) -> None:
        """Make sure that the caller may make a session that has this model.

        Raises:
            Forbidden: it lacks the right ``tools``, and a preset or an agent has some, or cannot be
                looked at now.
        """
        try:
            setup = await self.resolve(name)
        except MochiError:  # nobody knows what it will have
            require("tools")
        else:
            setup.require_right_to_tools()

    async def show_model(self, name: str) -> ModelInfo:
        """Return a model, a preset or an agent under the name that was asked for.

        Raises:
            MochiError: what ``resolve`` raises, and the provider of the model.
        """
        setup = await self.resolve(name)
        return _info(setup, await self._providers.show_model(setup.model))

    async def embed(self, request: EmbeddingRequest) -> Embeddings:
        """Return a vector for each text, by the model that the name stands for.

        Raises:
            MochiError: what ``resolve`` raises, and ``Provider.embed``.
        """
        setup = await self.resolve(request.model)
        return await self._providers.embed(replace(request, model=setup.model))

    async def list_models(self) -> ModelList:
        """Return every model of every provider that answers, then presets and agents.

        Raises:
            MochiError: what ``ProviderRegistry.list_models`` raises.
        """
        listed = await self._providers.list_models()
        by_name = {info.name: info for info in listed.models}
        models = [*listed.models]
        for source in self._sources.values():
            for setup in await source.setups():
                if setup.model:
                    provider = self._providers.resolve(setup.model)[0].alias
                    info = by_name.get(setup.model)
                    models.append(_info(setup, info or ModelInfo(name="", provider=provider)))
                elif fits := [m for m in listed.models if m.can_call_tools or not setup.tools]:
                    models.append(_info(setup, fits[0]))
        return replace(listed, models=models)


def _info(setup: ModelSetup, info: ModelInfo) -> ModelInfo:
    """Return what a provider says of the model of a setup, as the setup is listed."""
    if setup.kind == "model":
        return info
    return replace(
        info,
        name=f"{setup.kind}/{setup.name}",
        kind=setup.kind,
        description=setup.description,
        parent_model=setup.model or info.name,
    )
