"""Builds the parts and puts them together: the one place that knows all of them."""

from __future__ import annotations

from collections.abc import Mapping

from .aio import BackgroundTasks
from .chat import ChatService, TurnRegistry
from .config import MochiServerSettings, load_settings
from .providers.base import Provider
from .providers.local import LocalProvider
from .providers.ollama import OllamaProvider
from .providers.registry import ProviderRegistry
from .services.context_window import DynamicContextWindowService
from .services.system_prompts import SystemPromptService
from .sessions import SessionManager
from .sessions.storage.base import SessionStorage
from .sessions.storage.json_files import JSONFileStorage
from .sessions.storage.memory import MemoryStorage

DRAIN_SECONDS = 5.0
"""Longest wait for background work at the end."""


def default_providers(settings: MochiServerSettings) -> dict[str, Provider]:
    """Ollama, and the built-in model beside it."""
    return {
        "ollama": OllamaProvider(
            "ollama",
            host=settings.ollama_host,
            connect_timeout=settings.ollama_connect_timeout_seconds,
            first_byte_timeout=settings.ollama_first_byte_timeout_seconds,
            idle_timeout=settings.ollama_idle_timeout_seconds,
            keep_alive=settings.ollama_keep_alive,
        ),
        "local": LocalProvider(
            "local",
            models_path=settings.models_path,
            idle_seconds=settings.local_idle_seconds,
            threads=settings.local_threads,
        ),
    }


def default_storages(settings: MochiServerSettings) -> dict[str, SessionStorage]:
    """``default`` for the sessions of people, ``agent_chats`` for those of agents."""
    if settings.session_storage == "memory":
        return {"default": MemoryStorage(), "agent_chats": MemoryStorage()}
    return {
        "default": JSONFileStorage(settings.sessions_path),
        "agent_chats": JSONFileStorage(settings.agent_chats_path),
    }


class Runtime:
    """Everything that a server or a library user needs, built from the settings.

    Building it does no input or output; connections and child processes come at first use.
    """

    def __init__(
        self,
        settings: MochiServerSettings | None = None,
        *,
        providers: Mapping[str, Provider] | None = None,
        storages: Mapping[str, SessionStorage] | None = None,
    ) -> None:
        self.settings = settings = settings if settings is not None else load_settings()
        self.providers = ProviderRegistry(
            providers if providers is not None else default_providers(settings)
        )
        self._storages = dict(storages if storages is not None else default_storages(settings))
        self.sessions = SessionManager(self._storages["default"])
        self.agent_sessions = SessionManager(self._storages["agent_chats"])
        self.prompts = SystemPromptService(settings.system_prompts_path)
        self.context_window = DynamicContextWindowService(
            enabled=settings.dynamic_context_window_enabled
        )
        self.background = BackgroundTasks()
        self.turns = TurnRegistry()
        self.chat = ChatService(
            settings=settings,
            sessions=self.sessions,
            providers=self.providers,
            windows=self.context_window,
            turns=self.turns,
        )

    async def aclose(self) -> None:
        """End the turns, keep what they have so far, finish background work, close everything."""
        self.turns.stop_all()
        await self.turns.wait_closed(self.settings.shutdown_seconds)
        await self.background.drain(DRAIN_SECONDS)
        await self.providers.aclose()
        for storage in self._storages.values():
            await storage.aclose()
