"""A model that takes notes when it is asked for them, and runtimes that compact with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mochi_server import Runtime
from mochi_server.config import load_settings
from mochi_server.errors import MochiError
from mochi_server.protocol.events import Event
from mochi_server.protocol.turn_request import TurnRequest
from mochi_server.providers.base import (
    Capabilities,
    Chunk,
    ContentDelta,
    Finish,
    ModelInfo,
    ModelRequest,
    Provider,
)
from mochi_server.services.compaction.text import INSTRUCTION

from .turns import read_all
from .waiting import until

MODEL = "notes/any"


class NotingProvider(Provider):
    """Answers with a text of the length that is asked for, and keeps all requests."""

    capabilities = Capabilities(thinking=False, structured_output=False)

    def __init__(self, window: int = 2048) -> None:
        super().__init__("notes")
        self.window = window
        self.chats: list[ModelRequest] = []
        self.for_notes: list[ModelRequest] = []
        self.answers: list[str] = []
        """What it says to the next chats, first one first."""
        self.notes: list[str | MochiError] = []
        """What it writes down next, or why it does not."""
        self.gate: asyncio.Event | None = None
        """Nothing is written down before it is set."""

    async def list_models(self) -> list[ModelInfo]:
        return [await self.show_model("any")]

    async def show_model(self, name: str) -> ModelInfo:
        return ModelInfo(name=name, context_length=self.window)

    async def check(self) -> bool:
        return True

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        if request.messages[0].get("content") == INSTRUCTION:
            self.for_notes.append(request)
            if self.gate is not None:
                await self.gate.wait()
            number = len(self.for_notes)
            note = self.notes.pop(0) if self.notes else f"- Fact {number}."
            if isinstance(note, MochiError):
                raise note
            yield ContentDelta(note)
        else:
            self.chats.append(request)
            yield ContentDelta(self.answers.pop(0) if self.answers else "Yes.")
        yield Finish(reason="stop")


class Noting:
    """A runtime with such a model."""

    def __init__(self, runtime: Runtime, provider: NotingProvider) -> None:
        self.runtime = runtime
        self.provider = provider

    async def session(self, **fields: Any) -> str:
        return (await self.runtime.sessions.create(MODEL, **fields)).session_id

    async def turn(
        self, session_id: str, message: str | None = "Next.", answer: str = "Yes.", **fields: Any
    ) -> list[Event]:
        """Run a turn, and wait until no summary is being made any more."""
        self.provider.answers = [answer]
        chat = self.runtime.chat
        turn = await chat.open_turn(session_id, TurnRequest(message=message, **fields))
        events = await read_all(chat.start(turn))
        await self.idle()
        return events

    async def idle(self) -> None:
        await self.runtime.runs.wait_closed(30)
        await until(lambda: not self.runtime.compaction.pending)

    async def filled(self, count: int = 8, **fields: Any) -> str:
        """A session whose first turns have a summary."""
        session_id = await self.session(**fields)
        for number in range(count):
            await self.turn(session_id, f"Question {number}. {'x' * 400}", f"Answer. {'y' * 400}")
        return session_id

    async def stored(self, session_id: str) -> Any:
        return await self.runtime.sessions.get(session_id)


@asynccontextmanager
async def noting(folder: Path, *, window: int = 2048, **settings: Any) -> AsyncIterator[Noting]:
    settings = {"summarization_enabled": False, "summarization_interval_seconds": 0} | settings
    provider = NotingProvider(window)
    async with Runtime(
        load_settings(data_dir=folder, **settings), providers={"notes": provider}
    ) as runtime:
        yield Noting(runtime, provider)


def window_of(events: list[Event]) -> dict[str, Any]:
    """``context_window`` of a turn."""
    [complete] = [event for event in events if event.type == "message_complete"]
    found: dict[str, Any] = complete.payload()["context_window"]  # type: ignore[assignment]
    return found
