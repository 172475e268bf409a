"""Summaries of a :class:`Bench`: engines that write them, and what they wrote."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mochi_server.core.leases import FileLeases
from mochi_server.protocol.messages import AssistantMessage, UserMessage

from .fake_ollama import FakeOllama
from .turns import MODEL, Bench, bench
from .waiting import until

WRITTEN = {"summary": "They greeted each other.", "topics": ["greeting"]}
HELLO = "Hello, how are you this morning?"
"""Long enough to be summarised, with its answer."""


@asynccontextmanager
async def summarising(folder: Path, ollama: FakeOllama, **settings: Any) -> AsyncIterator[Bench]:
    """A bench that summarises by itself, at once unless the settings say otherwise."""
    settings = {"summarization_interval_seconds": 0, "summarization_enabled": True} | settings
    async with bench(folder, ollama, **settings) as found:
        yield found


def exchange(question: str, answer: str) -> tuple[UserMessage, AssistantMessage]:
    """A question and its answer, to be stored."""
    return UserMessage(content=question), AssistantMessage(content=answer, model=MODEL)


def summaries(ollama: FakeOllama) -> list[dict[str, Any]]:
    """The requests that were for summaries."""
    return [body for body in ollama.chats if body.get("format")]


def reply(ollama: FakeOllama, **written: Any) -> None:
    """Queue what the model says to the next request for a summary."""
    ollama.reply([json.dumps(WRITTEN | written)], match="Summarise")


def summary_of(engine: Bench, session_id: str) -> dict[str, Any] | None:
    """The summary in the file, now."""
    found: dict[str, Any] | None = engine.document(session_id)["metadata"]["summary"]
    return found


async def summarised(engine: Bench, session_id: str, text: object = WRITTEN["summary"]) -> None:
    """Wait until this is the summary, and no other one is to be written."""
    await until(lambda: (summary_of(engine, session_id) or {}).get("summary") == text)
    await idle(engine)


async def idle(engine: Bench) -> None:
    """Wait until no summary is to be written."""
    await until(lambda: not engine.runtime.summaries.pending)


async def said(engine: Bench, *texts: str, model: str = MODEL, **fields: Any) -> str:
    """A session with a turn for each of the texts."""
    session_id = await engine.session(model, **fields)
    for text in texts:
        await engine.turn(session_id, text)
    return session_id


def marked(engine: Bench) -> list[str]:
    """The sessions that the next start will summarise."""
    return FileLeases(engine.settings.sessions_state_path / "summaries").pending()


async def begun(engine: Bench, ollama: FakeOllama, session_id: str) -> None:
    """A summary that holds the model until somebody takes it away."""
    ollama.reply([json.dumps(WRITTEN)], gate=asyncio.Event(), match="Summarise")
    await engine.turn(session_id, HELLO)
    await until(lambda: len(summaries(ollama)) == 1)
