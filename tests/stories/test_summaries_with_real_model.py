"""A summary by the built-in model, which a grammar keeps in form."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from mochi_server.config import load_settings
from mochi_server.providers.builtin.provider import LocalProvider
from mochi_server.runtime import Runtime
from tests.support.local_model import MODEL, folder_with_model
from tests.support.turns import read_all

QUESTIONS = (
    "Hello, who are you?",
    "What is a lighthouse?",
    "Name a famous lighthouse.",
    "Why does it flash?",
    "Who kept the lamp in former times?",
    "What did they burn?",
    "How far can it be seen?",
    "What is a foghorn?",
    "Are there still keepers today?",
    "Thank you. Say goodbye.",
)


@pytest.mark.slow
async def test_after_ten_turns_a_summary_with_topics_arrives_by_itself(tmp_path: Path) -> None:
    settings = load_settings(
        data_dir=tmp_path, summarization_interval_seconds=0.2, max_output_tokens=40
    )
    models = folder_with_model(tmp_path)
    provider = LocalProvider("local", models_path=models, idle_seconds=300)
    runtime = Runtime(settings, providers={"local": provider})
    try:
        session = await runtime.sessions.create(MODEL)
        with anyio.fail_after(150):
            for question in QUESTIONS:
                turn = await runtime.chat.open_turn(session.session_id, message=question)
                await read_all(runtime.chat.start(turn))
            messages = (await runtime.sessions.get(session.session_id)).messages
            line = await arrived(runtime, messages[-1].message_id)
    finally:
        await runtime.aclose()
    assert len(messages) == 20
    assert 0 < len(line["summary"]["summary"]) <= 1000
    assert 1 <= len(line["summary"]["topics"]) <= 8
    assert line["title"]


async def arrived(runtime: Runtime, message_id: str | None) -> dict:
    """The line of the list, once it shows a summary up to this message."""
    while True:
        [line] = (await runtime.sessions.list()).entries
        if line["summary"] and line["summary"]["through_message_id"] == message_id:
            return line
        await anyio.sleep(0.05)
