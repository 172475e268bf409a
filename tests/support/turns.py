"""Turns without a web server: a library runtime on a temporary folder, and what it did."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from mochi_server.chat import LogReader, RunLog
from mochi_server.config import load_settings
from mochi_server.protocol.events import Event
from mochi_server.protocol.turn_request import TurnRequest
from mochi_server.providers.ollama.provider import OllamaProvider
from mochi_server.runtime import Runtime
from mochi_server.sessions.storage.base import SessionStorage
from mochi_server.state import State

from .fake_ollama import FakeOllama

MODEL = "qwen3:14b"
VOLATILE = frozenset({"message_id", "tool_call_id", "timestamp"})


class Bench:
    """A runtime that talks to a fake Ollama, with one place to look at everything."""

    def __init__(
        self,
        folder: Path,
        ollama: FakeOllama,
        *,
        state: State | None = None,
        storages: Mapping[str, SessionStorage] | None = None,
        **settings: Any,
    ) -> None:
        self.ollama = ollama
        # no chats but those of the test
        settings = {"summarization_enabled": False, "compaction": False} | settings
        self.settings = load_settings(data_dir=folder, ollama_host=ollama.url, **settings)
        provider = OllamaProvider(
            "ollama",
            host=ollama.url,
            idle_timeout=self.settings.ollama_idle_timeout_seconds,
            first_byte_timeout=self.settings.ollama_first_byte_timeout_seconds,
        )
        self.runtime = Runtime(
            self.settings, providers={"ollama": provider}, state=state, storages=storages
        )
        self.chat = self.runtime.chat
        self.runs = self.runtime.runs
        self.sessions = self.runtime.sessions

    async def session(self, model: str = MODEL, **fields: Any) -> str:
        """A new session's id."""
        return (await self.sessions.create(model, **fields)).session_id

    async def start(self, session_id: str, message: str | None = "Hello", **fields: Any) -> RunLog:
        """A running turn's log."""
        return self.chat.start(
            await self.chat.open_turn(session_id, TurnRequest(message=message, **fields))
        )

    async def turn(
        self, session_id: str, message: str | None = "Hello", **fields: Any
    ) -> list[Event]:
        """All events of a whole turn."""
        return await read_all(await self.start(session_id, message, **fields))

    async def ended(self) -> None:
        """Wait until no turn runs."""
        with anyio.fail_after(30):
            while len(self.runs):
                await self.runs.wait_closed(5)
                await anyio.lowlevel.checkpoint()

    def path(self, session_id: str) -> Path:
        """The session's file."""
        return self.settings.sessions_path / f"{session_id}.json"

    def stored(self, session_id: str) -> list[dict[str, Any]]:
        """The messages in the file, now."""
        messages: list[dict[str, Any]] = self.document(session_id)["messages"]
        return messages

    def document(self, session_id: str) -> dict[str, Any]:
        """The whole file, now."""
        found: dict[str, Any] = json.loads(self.path(session_id).read_bytes())
        return found


@asynccontextmanager
async def bench(folder: Path, ollama: FakeOllama, **settings: Any) -> AsyncIterator[Bench]:
    """A runtime that is closed at the end."""
    found = Bench(folder, ollama, **settings)
    try:
        yield found
    finally:
        with anyio.fail_after(30):
            await found.runtime.aclose()


async def read_all(source: RunLog | LogReader) -> list[Event]:
    """Every event up to the end of the turn, without ``run_start``."""
    reader = source.reader() if isinstance(source, RunLog) else source
    found: list[Event] = []
    with anyio.fail_after(60):
        while (batch := await reader.next()) is not None:
            found.extend(event for _, event in batch if event.type != "run_start")
    reader.leave()
    return found


async def read_until(reader: LogReader, kind: str) -> list[Event]:
    """Events up to the first batch that has one of this kind, without ``run_start``."""
    found: list[Event] = []
    with anyio.fail_after(30):
        while (batch := await reader.next()) is not None:
            found.extend(event for _, event in batch if event.type != "run_start")
            if any(event.type == kind for event in found):
                return found
    raise AssertionError(f"no {kind} in {found}")


def plain(events: list[Event]) -> list[tuple[str, dict[str, Any]]]:
    """Names and data, without what differs in each run."""
    return [(event.type, masked(event.payload())) for event in events]


def masked(value: Any) -> Any:
    """Without ids and times."""
    if isinstance(value, dict):
        return {k: masked(v) for k, v in value.items() if k not in VOLATILE}
    return [masked(item) for item in value] if isinstance(value, list) else value


def kinds(events: list[Event]) -> list[str]:
    """Names, neighbours of one kind once."""
    found: list[str] = []
    for event in events:
        if not found or found[-1] != event.type:
            found.append(event.type)
    return found


def text_of(events: list[Event], kind: str = "content_delta") -> str:
    """The text that the deltas carry together."""
    return "".join(str(event.payload()["content"]) for event in events if event.type == kind)


def roles(messages: list[dict[str, Any]]) -> list[str]:
    """Who said something, in order."""
    return [message["role"] for message in messages]


def call(tool: str, /, **arguments: Any) -> dict[str, Any]:
    """A call that a model makes."""
    return {"name": tool, "arguments": arguments}


def of_kind(events: list[Event], kind: str) -> list[dict[str, Any]]:
    """The data of the events of this name."""
    return [dict(event.payload()) for event in events if event.type == kind]
