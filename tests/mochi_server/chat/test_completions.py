"""Requests that carry their whole history: what the model gets, and what is kept."""

from __future__ import annotations

import json
from dataclasses import fields

import anyio
import pytest

from mochi_server import Runtime
from mochi_server.chat.completions import NEW_SESSION, CompletionRequest
from mochi_server.chat.service import events_of
from mochi_server.config import load_settings
from mochi_server.errors import InvalidRequest, SessionNotFound
from mochi_server.protocol.events import (
    ConfirmationRequired,
    Event,
    HistoryShortened,
    MessageComplete,
    ToolResultReady,
)
from mochi_server.protocol.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from mochi_server.protocol.turn_request import TurnRequest

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def scripted(*steps: list[dict[str, object]]) -> str:
    first, *others = steps
    script = json.dumps({"messages": first, "steps": others})
    return f"<|instruction_start|>{script}<|instruction_end|>"


def text(words: str) -> dict[str, object]:
    return {"text_message": {"text": words}}


def call(name: str, **args: object) -> dict[str, object]:
    return {"tool_call": [{"name": name, "args": args, "id": f"call_{name}"}]}


@pytest.fixture
async def runtime(tmp_path):
    settings = load_settings(environment="test", data_dir=tmp_path, test_words_per_second=0)
    async with Runtime(settings, tools=[add]) as made:
        yield made


CONVERSATION = {each.name for each in fields(CompletionRequest)}


async def run(runtime: Runtime, *messages: Message, **options: object) -> list[Event]:
    """Run a request to its end; whoever is asked about a call allows it."""
    of_conversation = {name: options.pop(name) for name in CONVERSATION & options.keys()}
    turn = TurnRequest(**{"model": "lorem", "think": False, **options})
    request = CompletionRequest(messages=messages, turn=turn, **of_conversation)
    with anyio.fail_after(30):
        started = await runtime.completions.start(request)
        events = []
        async for event in events_of(started.reader):
            events.append(event)
            if isinstance(event, ConfirmationRequired):
                await runtime.inbox.decide(event.confirmation_id, approved=True)
        return events


def last(events: list[Event]) -> MessageComplete:
    return next(event for event in events if isinstance(event, MessageComplete))


async def kept(runtime: Runtime) -> list[str]:
    return [str(entry["session_id"]) for entry in (await runtime.sessions.list()).entries]


async def test_without_a_session_nothing_is_kept(runtime):
    prompt = SystemMessage(content="Be brief.")
    events = await run(runtime, prompt, UserMessage(content=scripted([text("Hello.")])))
    assert last(events).message["content"] == "Hello."
    assert await runtime.temporary_sessions.storage.entries() == []
    assert await kept(runtime) == []


async def test_a_session_gets_only_what_is_new(runtime):
    question = UserMessage(content=scripted([call("weather", city="Rome")], [text("Sunny.")]))
    asked = last(await run(runtime, question, client_tools=[WEATHER], session_id=NEW_SESSION))
    [session_id] = await kept(runtime)
    call_id = asked.client_calls[0]["id"]
    forgotten = AssistantMessage(content="What the client makes of it.")
    result = ToolMessage(content="22 degrees", tool_name="weather", tool_call_id=call_id)
    options = {"client_tools": [WEATHER], "session_id": session_id}
    answered = last(await run(runtime, question, forgotten, result, **options))
    assert answered.message["content"] == "Sunny."
    session = await runtime.sessions.get(session_id)
    assert [each.role for each in session.messages] == ["user", "assistant", "tool", "assistant"]
    with pytest.raises(InvalidRequest, match="No call"):
        await run(runtime, question, forgotten, result, **options)
    with pytest.raises(SessionNotFound):
        await run(runtime, question, session_id="0123456789")
    assert await kept(runtime) == [session_id]


async def test_calls_of_both_in_one_reply(runtime):
    script = [call("weather", city="Rome"), call("add", a=2, b=3)]
    question = UserMessage(content=scripted(script, [text("Sunny, and 5.")]))
    options = {"client_tools": [WEATHER], "selected": ["add"], "session_id": NEW_SESSION}
    events = await run(runtime, question, **options)
    assert [event.result for event in events if isinstance(event, ToolResultReady)] == ["5"]
    [wanted] = last(events).client_calls
    assert wanted["name"] == "weather"
    [session_id] = await kept(runtime)
    result = ToolMessage(content="22", tool_name="weather", tool_call_id=wanted["id"])
    answered = last(await run(runtime, result, **{**options, "session_id": session_id}))
    assert answered.message["content"] == "Sunny, and 5."


async def test_a_history_that_does_not_fit_is_said_to_be_shortened(runtime):
    history = [
        kind(content=f"{number} {'word ' * 2_000}")
        for number in range(10)
        for kind in (UserMessage, AssistantMessage)
    ]
    question = UserMessage(content=scripted([text("Short.")]))
    events = await run(runtime, *history, question, model="lorem-small")
    [told] = [event for event in events if isinstance(event, HistoryShortened)]
    assert told.dropped_messages > 0
    assert last(events).context_window["dropped_messages"] == told.dropped_messages


async def test_a_failed_request_leaves_no_session(runtime):
    result = ToolMessage(content="22", tool_name="weather", tool_call_id="call_other")
    for session_id in (None, NEW_SESSION):
        with pytest.raises(InvalidRequest, match="call_other"):
            await run(runtime, UserMessage(content="Hi"), result, session_id=session_id)
    assert await runtime.temporary_sessions.storage.entries() == []
    assert await kept(runtime) == []


async def test_equal_requests_at_once_get_a_session_each(tmp_path):
    settings = load_settings(
        environment="test", data_dir=tmp_path, test_words_per_second=0, keep_wire_sessions=True
    )
    answers: list[str] = []
    async with Runtime(settings) as runtime:

        async def ask() -> None:
            events = await run(runtime, UserMessage(content=scripted([text("Hi.")])))
            answers.append(str((last(events).message or {})["content"]))

        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(ask)
        sessions = [await runtime.sessions.get(each) for each in await kept(runtime)]
    assert answers == ["Hi."] * 5
    assert [len(each.messages) for each in sessions] == [2] * 5
