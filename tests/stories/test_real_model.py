"""A call and a summary by the real built-in model, which a grammar keeps in form."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from mochi_server.config import load_settings
from mochi_server.errors import JSONObject
from mochi_server.protocol.events import MessageComplete
from mochi_server.protocol.turn_request import TurnRequest
from mochi_server.providers.builtin.provider import LocalProvider
from mochi_server.runtime import Runtime
from tests.support.local_model import MODEL, folder_with_model
from tests.support.turns import read_all


async def test_a_call_that_is_demanded_of_the_real_model_has_the_form_of_one(
    tmp_path: Path,
) -> None:
    """Its template knows no tools; which numbers it chooses is its own matter."""
    number = {"type": "integer", "minimum": -1000, "maximum": 1000}
    schema = {
        "type": "object",
        "properties": {"a": number, "b": number},
        "required": ["a", "b"],
    }
    function = {"name": "add", "description": "Add two numbers.", "parameters": schema}
    add: JSONObject = {"type": "function", "function": function}
    other: JSONObject = {"type": "function", "function": {**function, "name": "subtract"}}
    models = folder_with_model(tmp_path)
    settings = load_settings(data_dir=tmp_path, models_dir=models, summarization_enabled=False)
    runtime = Runtime(settings)
    try:
        with anyio.fail_after(50):
            for tools in ([add], [add, other]):
                session = await runtime.sessions.create(f"local/{MODEL}")
                turn = await runtime.chat.open_turn(
                    session.session_id,
                    TurnRequest(message="What is 2 and 3?", client_tools=tools, must_call=True),
                )
                *_, complete, _ = await read_all(runtime.chat.start(turn))
                assert isinstance(complete, MessageComplete)
                [call] = complete.client_calls
                assert call["name"] in ("add", "subtract")
                assert {type(value) for value in call["arguments"].values()} == {int}
    finally:
        await runtime.aclose()


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
                turn = await runtime.chat.open_turn(
                    session.session_id, TurnRequest(message=question)
                )
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
