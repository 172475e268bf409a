"""Summaries in the background: when they come, what they are made from, and to whom they yield."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from mochi_server.errors import (
    EmptyHistory,
    ModelNotFound,
    SessionBusy,
    ShuttingDown,
    SummaryModelRequired,
)
from mochi_server.messages import AssistantMessage, ToolCall, UserMessage
from mochi_server.services.summarization import Outcome
from mochi_server.sessions.marks import FileMarks
from mochi_server.sessions.types import ToolSettings
from tests.support.fake_ollama import FakeOllama, Reply
from tests.support.turns import MODEL, Bench, bench

OTHER = "gemma3:4b"
WRITTEN = {"summary": "They greeted each other.", "topics": ["greeting"]}


@pytest.fixture
async def ollama() -> AsyncIterator[FakeOllama]:
    async with FakeOllama() as fake:
        fake.add_model("gpt-oss:20b")
        yield fake


@asynccontextmanager
async def summarising(folder: Path, ollama: FakeOllama, **settings: Any) -> AsyncIterator[Bench]:
    settings = {"summarization_interval_seconds": 0, "summarization_enabled": True} | settings
    async with bench(folder, ollama, **settings) as found:
        yield found


@pytest.fixture
async def engine(tmp_path: Path, ollama: FakeOllama) -> AsyncIterator[Bench]:
    async with summarising(tmp_path, ollama) as found:
        yield found


@pytest.fixture
async def quiet(tmp_path: Path, ollama: FakeOllama) -> AsyncIterator[Bench]:
    """Nothing happens by itself."""
    async with bench(tmp_path, ollama) as found:
        yield found


def exchange(question: str, answer: str) -> tuple[UserMessage, AssistantMessage]:
    return UserMessage(content=question), AssistantMessage(content=answer, model=MODEL)


async def until(condition: Callable[[], object]) -> None:
    with anyio.fail_after(5):
        while not condition():  # noqa: ASYNC110 - a file is no event
            await anyio.sleep(0.005)


def summaries(ollama: FakeOllama) -> list[dict[str, Any]]:
    """The requests that were for summaries."""
    return [body for body in ollama.chats if body.get("format")]


def reply(ollama: FakeOllama, **written: Any) -> None:
    ollama.reply([json.dumps(WRITTEN | written)], match="Summarise")


def summary_of(engine: Bench, session_id: str) -> dict[str, Any] | None:
    found: dict[str, Any] | None = engine.document(session_id)["metadata"]["summary"]
    return found


async def summarised(engine: Bench, session_id: str, text: str = WRITTEN["summary"]) -> None:
    await until(lambda: (summary_of(engine, session_id) or {}).get("summary") == text)
    await idle(engine)


async def idle(engine: Bench) -> None:
    """Wait until no summary is to be written."""
    await until(lambda: not engine.runtime.summaries.pending)


async def said(engine: Bench, *texts: str, model: str = MODEL, **fields: Any) -> str:
    session_id = await engine.session(model, **fields)
    for text in texts:
        await engine.turn(session_id, text)
    return session_id


# When


async def test_a_turn_that_ended_well_is_summarised_and_the_list_shows_it(engine, ollama):
    reply(ollama)
    session_id = await said(engine, "Hello")
    await summarised(engine, session_id)
    stored = summary_of(engine, session_id)
    assert {key: stored[key] for key in WRITTEN} == WRITTEN
    assert stored["through_message_id"] == engine.stored(session_id)[-1]["message_id"]
    assert stored["model"] == MODEL
    [line] = (await engine.sessions.list()).entries
    assert line["summary"] == stored
    assert line["title"] == WRITTEN["summary"].rstrip(".")
    assert (await engine.chat.status(session_id))["summary"] == stored


async def test_a_summary_is_no_change_of_the_conversation(tmp_path, ollama):
    async with summarising(tmp_path, ollama, summarization_interval_seconds=0.2) as engine:
        reply(ollama)
        session_id = await said(engine, "Hello")
        before = engine.document(session_id)
        assert before["metadata"]["summary"] is None
        await summarised(engine, session_id)
        after = engine.document(session_id)
    assert after["messages"] == before["messages"]
    after["metadata"]["summary"] = None
    assert after == before


async def test_the_quiet_time_begins_anew_with_each_turn(tmp_path, ollama):
    async with summarising(tmp_path, ollama, summarization_interval_seconds=0.3) as engine:
        session_id = await engine.session()
        for number in range(3):
            await engine.turn(session_id, f"Message {number}")
            await anyio.sleep(0.15)
            assert summaries(ollama) == []
        ended = time.monotonic()
        await until(lambda: summaries(ollama))
        assert time.monotonic() - ended > 0.1
        await idle(engine)
    assert len(summaries(ollama)) == 1


async def test_nothing_is_written_where_it_is_switched_off(tmp_path, ollama):
    settings = {"summarization_enabled": False}
    async with summarising(tmp_path, ollama, **settings) as engine:
        session_id = await said(engine, "Hello")
        assert engine.runtime.summaries.pending == 0
        assert summary_of(engine, session_id) is None
    assert not (tmp_path / ".mochi").exists()


@pytest.mark.parametrize("reason", ["failed", "interrupted", "calls"])
async def test_a_turn_that_did_not_end_well_is_not_summarised(engine, ollama, reason):
    session_id = await engine.session()
    if reason == "failed":
        ollama.reply(["Hel"], error="out of memory")
        await engine.turn(session_id)
        assert engine.stored(session_id)[-1]["interrupted"]
    elif reason == "interrupted":
        ollama.reply(["Hel", "lo"], gate=asyncio.Event(), pause_after=1)
        log = await engine.start(session_id)
        reader = log.reader()
        await reader.next()
        reader.leave()
        await engine.ended()
    else:
        async with engine.sessions.edit(session_id) as session:
            call = ToolCall(id="call_1", name="add", arguments={}).as_stored()
            asking = AssistantMessage(content="", model=MODEL, tool_calls=[call])
            session.append(UserMessage(content="Add"), asking)
        engine.runtime.summaries.schedule(session_id)
    await idle(engine)
    assert summaries(ollama) == []


async def test_what_was_summarised_is_not_summarised_again(engine, ollama):
    reply(ollama)
    session_id = await said(engine, "Hello")
    await summarised(engine, session_id)
    engine.runtime.summaries.schedule(session_id)
    await idle(engine)
    assert len(summaries(ollama)) == 1


# How it is asked for


async def test_the_model_is_asked_in_its_one_window_without_thinking(engine, ollama):
    session_id = await said(engine, "Hello")
    await idle(engine)
    chat, body = ollama.chats
    assert body["options"]["num_ctx"] == chat["options"]["num_ctx"]
    assert body["think"] is False
    assert body["truncate"] is False
    assert body["format"]["properties"].keys() == {"summary", "topics"}
    assert ollama.reloads == 0
    assert summary_of(engine, session_id) is not None


async def test_a_conversation_that_the_model_has_just_read_is_sent_as_it_was(engine, ollama):
    """So that its cache serves the summary, and the next turn after it."""
    await said(engine, "Hello", system_prompt="Be brief.")
    await idle(engine)
    chat, body = ollama.chats
    assert body["messages"][:2] == chat["messages"]
    assert [message["role"] for message in body["messages"][2:]] == ["assistant", "user"]
    assert "Summarise" in body["messages"][-1]["content"]


async def test_a_long_conversation_is_summarised_from_its_summary_and_what_is_new(tmp_path, ollama):
    async with bench(tmp_path, ollama, max_history_tokens=600) as engine:
        session_id = await said(engine, "apples " * 100, "apples again " * 100)
        ollama.default_reply = Reply([json.dumps(WRITTEN | {"summary": "They spoke of apples."})])
        await engine.runtime.summaries.bring_up_to_date(session_id)
        ollama.reply(["Fine."])
        reply(ollama, summary="They spoke of apples, then of pears.")
        await engine.turn(session_id, "pears")
        await engine.runtime.summaries.bring_up_to_date(session_id)
        assert summary_of(engine, session_id)["summary"] == "They spoke of apples, then of pears."
    system, question = summaries(ollama)[-1]["messages"]
    assert system["role"] == "system"
    assert "Summary so far:\n\nThey spoke of apples." in question["content"]
    assert "[user] pears" in question["content"]
    assert "apples again" not in question["content"]


async def test_a_conversation_that_fits_nowhere_is_read_in_parts_each_stored(tmp_path, ollama):
    async with bench(tmp_path, ollama, max_history_tokens=600) as engine:
        session_id = await engine.session()
        async with engine.sessions.edit(session_id) as session:
            for number in range(6):
                session.append(*exchange(f"question {number} " * 40, f"answer {number} " * 40))
        for number in range(20):
            reply(ollama, summary=f"Part {number}.")
        summary = await engine.runtime.summaries.summarize(session_id)
        parts = [body["messages"][-1]["content"] for body in summaries(ollama)]
        assert len(parts) > 2
        assert summary.summary == f"Part {len(parts) - 1}."
        for number, part in enumerate(parts[1:]):
            assert f"Summary so far:\n\nPart {number}.\n" in part
        text = "\n".join(parts)
        assert all(f"answer {number}" in text for number in range(6))
        last = engine.stored(session_id)[-1]["message_id"]
        assert summary_of(engine, session_id)["through_message_id"] == last


async def test_an_edited_message_is_summarised_from_the_beginning(engine, ollama):
    session_id = await said(engine, "Hello", tool_settings=ToolSettings(tools=["x"]))
    await idle(engine)
    async with engine.sessions.edit(session_id) as session:
        session.edit_user_message(0, "Good evening")
    reply(ollama, summary="They said good evening.")
    await engine.turn(session_id, None)
    await summarised(engine, session_id, "They said good evening.")
    question = summaries(ollama)[-1]["messages"][-1]["content"]
    assert "[user] Good evening" in question
    assert "Summary so far" not in question


async def test_what_was_edited_while_it_was_summarised_keeps_no_summary(quiet, ollama):
    session_id = await said(quiet, "Hello")
    gate = asyncio.Event()
    ollama.reply([json.dumps(WRITTEN)], gate=gate, match="Summarise")
    work = asyncio.ensure_future(quiet.runtime.summaries.summarize(session_id))
    await ollama.requested(2)
    async with quiet.sessions.edit(session_id) as session:
        session.edit_user_message(0, "Something else")
    gate.set()
    await work
    assert summary_of(quiet, session_id) is None


async def test_a_summary_loses_nothing_of_a_turn_that_runs_meanwhile(quiet, ollama):
    session_id = await said(quiet, "Hello")
    gate = asyncio.Event()
    ollama.one_at_a_time = False
    ollama.reply([json.dumps(WRITTEN)], gate=gate, match="Summarise")
    work = asyncio.ensure_future(quiet.runtime.summaries.summarize(session_id))
    await ollama.requested(2)
    await quiet.turn(session_id, "And then?")
    async with quiet.sessions.edit(session_id) as session:
        session.metadata.label(title="Mine")
    gate.set()
    await work
    assert [message["content"] for message in quiet.stored(session_id)] == [
        "Hello", "You said: Hello", "And then?", "You said: And then?",
    ]  # fmt: skip
    stored = summary_of(quiet, session_id)
    assert stored["through_message_id"] == quiet.stored(session_id)[1]["message_id"]
    assert quiet.document(session_id)["metadata"]["title"] == "Mine"


async def test_a_part_that_is_too_long_after_all_is_halved(quiet, ollama):
    session_id = await said(quiet, "Hello " * 400, "there " * 400)
    overflow = {"code": 400, "message": "request (9000 tokens) exceeds the available context size"}
    overflow |= {"type": "exceed_context_size_error", "n_prompt_tokens": 9000, "n_ctx": 4096}
    answer = json.dumps({"error": overflow}).encode()
    ollama.play_body(answer, status=400, content_type="application/json")
    reply(ollama)
    await quiet.runtime.summaries.summarize(session_id)
    assert summary_of(quiet, session_id)["summary"] == WRITTEN["summary"]


async def test_more_than_was_asked_for_is_cut_and_no_failure(quiet, ollama):
    session_id = await said(quiet, "Hello")
    reply(ollama, summary="word " * 1000, topics=["Asyncio", "asyncio ", "", *map(str, range(20))])
    found = await quiet.runtime.summaries.summarize(session_id)
    assert len(found.summary) <= 1000
    assert found.summary.endswith("word...")
    assert found.topics == ["Asyncio", *map(str, range(7))]


# Failures


@pytest.mark.parametrize("answer", ["no JSON", '{"summary": " ", "topics": []}', '{"topics": []}'])
async def test_a_reply_in_another_form_changes_nothing_and_is_logged(
    engine, ollama, caplog, answer
):
    for _ in range(2):  # it is asked twice
        ollama.reply([answer], match="Summarise")
    session_id = await said(engine, "Hello")
    with caplog.at_level(logging.WARNING, "mochi_server.services.summarization"):
        await idle(engine)
    assert summary_of(engine, session_id) is None
    [record] = caplog.records
    assert session_id in record.getMessage()
    assert marked(engine) == []


async def test_a_deleted_session_is_forgotten(tmp_path, ollama, caplog):
    async with summarising(tmp_path, ollama, summarization_interval_seconds=0.1) as engine:
        session_id = await said(engine, "Hello")
        await engine.sessions.delete(session_id)
        await idle(engine)
        assert marked(engine) == []
    assert caplog.records == []


async def test_a_folder_that_cannot_be_written_hinders_no_turn(engine, ollama, tmp_path):
    (tmp_path / ".mochi").write_text("in the way")
    session_id = await said(engine, "Hello", "Again")
    await idle(engine)
    assert len(engine.stored(session_id)) == 4


# To whom it yields


async def begun(engine: Bench, ollama: FakeOllama, session_id: str) -> None:
    """A summary that holds the model until somebody takes it away."""
    ollama.reply([json.dumps(WRITTEN)], gate=asyncio.Event(), match="Summarise")
    await engine.turn(session_id, "Hello")
    await until(lambda: len(summaries(ollama)) == 1)


async def test_a_new_message_of_the_session_cancels_a_summary_which_comes_later(engine, ollama):
    session_id = await engine.session()
    await begun(engine, ollama, session_id)
    reply(ollama)
    events = await engine.turn(session_id, "Next")
    assert ollama.disconnects == 1
    assert events[-1].type == "done"
    assert [message["content"] for message in engine.stored(session_id)][2:] == [
        "Next",
        "You said: Next",
    ]
    await summarised(engine, session_id)


async def test_a_chat_of_another_session_takes_the_model_away(engine, ollama):
    first, second = await engine.session(), await engine.session()
    await begun(engine, ollama, first)
    with anyio.fail_after(2):
        await engine.turn(second, "Me first")
    assert ollama.disconnects == 1
    for session_id in (first, second):
        await until(lambda session_id=session_id: summary_of(engine, session_id))


async def test_a_chat_with_another_model_lets_a_summary_run(engine, ollama):
    session_id = await engine.session()
    await begun(engine, ollama, session_id)
    other = await engine.session(OTHER)
    await engine.turn(other, "Hello")
    assert ollama.disconnects == 0


async def test_no_summary_begins_while_a_turn_has_the_model(engine, ollama):
    gate = asyncio.Event()
    ollama.one_at_a_time = False
    busy = await engine.session()
    ollama.reply(["Hel", "lo"], gate=gate, pause_after=1, match="busy")
    reader = (await engine.start(busy, "busy")).reader()
    await reader.next()
    done = await said(engine, "Hello")
    await anyio.sleep(0.1)
    assert summaries(ollama) == []
    gate.set()
    await until(lambda: summary_of(engine, done))


async def test_summaries_of_one_model_come_one_after_the_other(tmp_path, ollama):
    ollama.one_at_a_time = False
    async with summarising(tmp_path, ollama, summarization_interval_seconds=0.2) as engine:
        ids = [await said(engine, "Hello") for _ in range(3)]
        gates = [asyncio.Event() for _ in ids]
        for gate in gates:
            ollama.reply([json.dumps(WRITTEN)], gate=gate, match="Summarise")
        for number, gate in enumerate(gates, start=1):
            await until(lambda number=number: len(summaries(ollama)) == number)
            await anyio.sleep(0.1)  # time enough for another one to begin
            assert len(summaries(ollama)) == number
            gate.set()
        for session_id in ids:
            await summarised(engine, session_id)


async def test_another_process_is_made_way_for(tmp_path, ollama):
    async with summarising(tmp_path, ollama) as engine, bench(tmp_path, ollama) as other:
        first, second = await engine.session(), await other.session()
        await begun(engine, ollama, first)
        with anyio.fail_after(2):
            await other.turn(second, "Me first")
        assert ollama.disconnects == 1
        await until(lambda: summary_of(engine, first))


async def test_two_processes_do_not_summarise_one_session(tmp_path, ollama):
    ollama.one_at_a_time = False
    async with summarising(tmp_path, ollama) as one, summarising(tmp_path, ollama) as two:
        session_id = await one.session()
        gate = asyncio.Event()
        ollama.reply([json.dumps(WRITTEN)], gate=gate, match="Summarise")
        await one.turn(session_id)
        await until(lambda: summaries(ollama))
        work = asyncio.ensure_future(two.runtime.summaries.bring_up_to_date(session_id))
        await anyio.sleep(0.1)
        assert len(summaries(ollama)) == 1
        gate.set()
        assert await work is Outcome.NOT_NEEDED
    assert len(summaries(ollama)) == 1


# By which model


@pytest.mark.parametrize(
    ("model", "summary_model", "writes"),
    [
        (MODEL, None, MODEL),
        (MODEL, OTHER, MODEL),
        ("gpt-oss:20b", OTHER, OTHER),
        ("gpt-oss:20b", None, None),
        ("gpt-oss:20b", "gpt-oss:120b", None),
        ("gpt-oss:20b", "gone:1b", None),
        ("gone:1b", OTHER, OTHER),
    ],
)
async def test_the_chats_model_writes_or_else_the_sessions_summary_model(
    quiet, model, summary_model, writes
):
    session_id = await quiet.session(model)
    async with quiet.sessions.edit(session_id) as session:
        session.append(*exchange("Hello", "Hi"))
        session.metadata.summary_model = summary_model
    outcome = await quiet.runtime.summaries.bring_up_to_date(session_id)
    assert outcome is (Outcome.WRITTEN if writes else Outcome.NO_MODEL)
    assert (summary_of(quiet, session_id) or {}).get("model") == writes


async def test_somebody_who_asks_may_name_a_model(quiet):
    session_id = await said(quiet, "Hello", model=MODEL)
    summarize = quiet.runtime.summaries.summarize
    assert (await summarize(session_id, OTHER)).model_extra["model"] == OTHER
    with pytest.raises(SummaryModelRequired):
        await summarize(session_id, "gpt-oss:latest")
    with pytest.raises(ModelNotFound):
        await summarize(session_id, "gone:1b")


async def test_somebody_who_asks_gets_it_anew_where_nothing_is_new(quiet, ollama):
    session_id = await said(quiet, "Hello")
    reply(ollama, summary="First.")
    reply(ollama, summary="Second.")
    summarize = quiet.runtime.summaries.summarize
    assert (await summarize(session_id)).summary == "First."
    assert (await summarize(session_id)).summary == "Second."


async def test_nothing_said_is_nothing_to_summarise(quiet):
    session_id = await quiet.session(system_prompt="Be brief.")
    with pytest.raises(EmptyHistory):
        await quiet.runtime.summaries.summarize(session_id)


async def test_who_asks_second_is_told_that_somebody_has(quiet, ollama, monkeypatch):
    monkeypatch.setattr("mochi_server.services.summarization.WAIT_SECONDS", 0.05)
    session_id = await said(quiet, "Hello")
    gate = asyncio.Event()
    ollama.reply([json.dumps(WRITTEN)], gate=gate, match="Summarise")
    first = asyncio.ensure_future(quiet.runtime.summaries.summarize(session_id))
    await until(lambda: summaries(ollama))
    with pytest.raises(SessionBusy, match="being summarised"):
        await quiet.runtime.summaries.summarize(session_id)
    gate.set()
    assert (await first).summary == WRITTEN["summary"]


async def test_who_asks_takes_the_place_of_what_runs_in_the_background(engine, ollama):
    session_id = await engine.session()
    await begun(engine, ollama, session_id)
    reply(ollama, summary="Asked for.")
    assert (await engine.runtime.summaries.summarize(session_id)).summary == "Asked for."
    assert ollama.disconnects == 1
    await idle(engine)
    assert len(summaries(ollama)) == 2


# Beginning and end


def marked(engine: Bench) -> list[str]:
    return FileMarks(engine.settings.state_path / "summaries" / "sessions").names()


async def test_a_stop_cancels_a_summary_and_the_next_start_catches_it_up(tmp_path, ollama):
    async with summarising(tmp_path, ollama) as engine:
        session_id = await engine.session()
        await begun(engine, ollama, session_id)
        before = time.monotonic()
        await engine.runtime.aclose()
        assert time.monotonic() - before < 2
        assert marked(engine) == [session_id]
        with pytest.raises(ShuttingDown):
            await engine.runtime.summaries.summarize(session_id)
    await ollama.disconnected()
    reply(ollama)
    async with summarising(tmp_path, ollama) as engine:
        engine.runtime.start()
        await summarised(engine, session_id)
        assert marked(engine) == []


async def test_a_stop_ends_what_somebody_has_asked_for(quiet, ollama):
    session_id = await said(quiet, "Hello")
    ollama.reply([json.dumps(WRITTEN)], gate=asyncio.Event(), match="Summarise")
    asked = asyncio.ensure_future(quiet.runtime.summaries.summarize(session_id))
    await until(lambda: summaries(ollama))
    quiet.runtime.stop()
    with pytest.raises(ShuttingDown):
        await asked


async def test_what_the_model_could_not_be_reached_for_is_caught_up(tmp_path, ollama, caplog):
    async with summarising(tmp_path, ollama) as engine:
        session_id = await engine.session()
        async with engine.sessions.edit(session_id) as session:
            session.append(*exchange("Hello", "Hi"))
        await ollama.__aexit__()
        engine.runtime.summaries.schedule(session_id)
        await idle(engine)
        assert marked(engine) == [session_id]
        assert session_id in caplog.text


async def test_a_start_catches_up_one_after_the_other_and_only_what_was_interrupted(
    tmp_path, ollama
):
    async with bench(tmp_path, ollama) as engine:
        ids = [await said(engine, f"Hello {number}") for number in range(3)]
        old = await said(engine, "Never marked")
    marks = FileMarks(tmp_path / ".mochi" / "summaries" / "sessions")
    for name in (*ids, "gone"):
        marks.set(name)
    async with summarising(tmp_path, ollama) as engine:
        engine.runtime.start()
        await until(lambda: marked(engine) == [])
        await idle(engine)
        assert all(summary_of(engine, session_id) for session_id in ids)
        assert summary_of(engine, old) is None


async def test_sessions_in_memory_are_summarised_and_leave_nothing_behind(tmp_path, ollama):
    settings = {"session_storage": "memory"}
    async with summarising(tmp_path, ollama, **settings) as engine:
        session_id = await said(engine, "Hello")
        await idle(engine)
        assert (await engine.sessions.get(session_id)).metadata.summary is not None
    assert list(tmp_path.iterdir()) == []
