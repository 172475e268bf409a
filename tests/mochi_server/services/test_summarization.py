"""Summaries in the background: when they come, from what they are made, and how they fail."""

from __future__ import annotations

import asyncio
import json
import logging
import time

import anyio
import pytest

from mochi_server.errors import (
    EmptyHistory,
    MochiError,
    ModelNotFound,
    SessionBusy,
    SummaryModelRequired,
)
from mochi_server.protocol.messages import AssistantMessage, ToolCall, UserMessage
from mochi_server.services.summarization import SummaryOutcome
from mochi_server.sessions.types import ToolSettings
from tests.support.fake_ollama import Reply
from tests.support.summaries import (
    HELLO,
    WRITTEN,
    begun,
    exchange,
    idle,
    marked,
    reply,
    said,
    summaries,
    summarised,
    summarising,
    summary_of,
)
from tests.support.turns import MODEL, bench
from tests.support.waiting import until

# When


async def test_a_turn_that_ended_well_is_summarised_and_the_list_shows_it(engine, ollama):
    reply(ollama)
    session_id = await said(engine, HELLO)
    await summarised(engine, session_id)
    stored = summary_of(engine, session_id)
    assert {key: stored[key] for key in WRITTEN} == WRITTEN
    assert stored["through_message_id"] == engine.stored(session_id)[-1]["message_id"]
    assert stored["model"] == MODEL
    [line] = (await engine.sessions.list()).entries
    assert line["summary"] == stored
    assert line["title"] == WRITTEN["summary"].rstrip(".")
    assert (await engine.runtime.status.of(session_id))["summary"] == stored


async def test_a_summary_is_no_change_of_the_conversation(tmp_path, ollama):
    async with summarising(tmp_path, ollama) as engine:
        gate = asyncio.Event()
        ollama.reply([json.dumps(WRITTEN)], gate=gate, match="Summarise")
        session_id = await said(engine, HELLO)
        before = engine.document(session_id)
        assert before["metadata"]["summary"] is None
        gate.set()
        await summarised(engine, session_id)
        after = engine.document(session_id)
    assert after["messages"] == before["messages"]
    after["metadata"]["summary"] = None
    assert after == before


async def test_the_quiet_time_begins_anew_with_each_turn(tmp_path, ollama):
    async with summarising(tmp_path, ollama, summarization_interval_seconds=6) as engine:
        session_id = await said(engine, HELLO)
        await anyio.sleep(0.5)
        began = time.monotonic()
        await engine.turn(session_id, "Hello again")
        await until(lambda: summaries(ollama))
        assert time.monotonic() - began >= 6
        await idle(engine)
    assert len(summaries(ollama)) == 1


async def test_nothing_is_written_where_it_is_switched_off(tmp_path, ollama):
    settings = {"summarization_enabled": False}
    async with summarising(tmp_path, ollama, **settings) as engine:
        session_id = await said(engine, HELLO)
        assert engine.runtime.summaries.pending == 0
        assert summary_of(engine, session_id) is None
    assert {path.name.partition(".")[0] for path in (tmp_path / ".mochi").iterdir()} == {"runs"}


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
    session_id = await said(engine, HELLO)
    await summarised(engine, session_id)
    engine.runtime.summaries.schedule(session_id)
    await idle(engine)
    assert len(summaries(ollama)) == 1


# How it is asked for


async def test_the_model_is_asked_in_its_one_window_without_thinking(engine, ollama):
    session_id = await said(engine, HELLO)
    await idle(engine)
    chat, body = ollama.chats
    assert body["options"]["num_ctx"] == chat["options"]["num_ctx"]
    assert body["think"] is False
    assert body["truncate"] is False
    assert [*body["format"]["properties"]] == body["format"]["required"] == ["topics", "summary"]
    assert ollama.reloads == 0
    assert summary_of(engine, session_id) is not None


async def test_a_conversation_that_the_model_has_just_read_is_sent_as_it_was(engine, ollama):
    """So that its cache serves the summary, and the next turn after it."""
    await said(engine, HELLO, system_prompt="Be brief.")
    await idle(engine)
    chat, body = ollama.chats
    assert body["messages"][:2] == chat["messages"]
    assert [message["role"] for message in body["messages"][2:]] == ["assistant", "user"]
    assert "Summarise" in body["messages"][-1]["content"]


def is_whole(body):
    """Whether the request is the conversation as the chat sends it."""
    return len(body["messages"]) > 2


async def test_a_conversation_that_the_model_has_read_before_another_one_is_not_sent_whole(
    quiet, ollama
):
    first, second = await said(quiet, HELLO), await said(quiet, HELLO)
    for session_id in (second, first):
        await quiet.runtime.summaries.bring_up_to_date(session_id)
    assert [is_whole(body) for body in summaries(ollama)] == [True, False]
    await quiet.turn(second, HELLO)
    await quiet.turn(first, HELLO)
    await quiet.runtime.summaries.bring_up_to_date(second)
    await quiet.runtime.summaries.bring_up_to_date(first)  # a summary is another conversation, too
    assert [is_whole(body) for body in summaries(ollama)[2:]] == [False, False]


async def test_what_a_model_reads_for_another_process_is_known(tmp_path, ollama):
    settings = {"summarization_interval_seconds": 60}
    async with (
        summarising(tmp_path, ollama, **settings) as one,
        summarising(tmp_path, ollama, **settings) as two,
    ):
        first = await said(one, HELLO)
        second = await said(two, HELLO)
        await one.runtime.summaries.bring_up_to_date(second)
        await two.runtime.summaries.bring_up_to_date(first)
    assert [is_whole(body) for body in summaries(ollama)] == [True, False]


async def test_a_conversation_is_not_sent_whole_to_a_model_that_was_let_go_since(quiet, ollama):
    session_id = await said(quiet, HELLO)
    ollama.unload()
    await quiet.runtime.summaries.summarize(session_id)
    assert [is_whole(body) for body in summaries(ollama)] == [False]


async def test_a_conversation_of_a_few_characters_is_not_summarised(engine, ollama):
    session_id = await said(engine, "Hello")  # 20 characters with the answer
    await idle(engine)
    assert (summaries(ollama), marked(engine)) == ([], [])
    with pytest.raises(EmptyHistory, match="Too little"):
        await engine.runtime.summaries.summarize(session_id)
    await engine.turn(session_id, "Hello!")
    await until(lambda: summary_of(engine, session_id))


# On a server that reads a cancelled prompt to its end


async def test_prompts_stay_short_where_a_cancelled_one_is_read_to_its_end(
    quiet, ollama, monkeypatch
):
    session_id = await quiet.session()
    async with quiet.sessions.edit(session_id) as session:
        for number in range(20):
            session.append(*exchange(f"question {number} " * 40, f"answer {number} " * 40))
    await quiet.runtime.summaries.bring_up_to_date(session_id, anew=True)
    [whole] = summaries(ollama)
    assert ollama.count(whole["messages"], ()) > 3000
    for version in ("0.24.0", "0.0.0"):
        monkeypatch.setattr(ollama, "version", version)
        before = len(summaries(ollama))
        await quiet.runtime.summaries.bring_up_to_date(session_id, anew=True)
        parts = summaries(ollama)[before:]
        assert len(parts) > 2
        assert all(ollama.count(body["messages"], ()) < 1200 for body in parts)


async def test_the_quiet_time_is_longer_where_a_cancelled_prompt_is_read_to_its_end(
    tmp_path, ollama, monkeypatch
):
    monkeypatch.setattr(ollama, "version", "0.24.0")
    async with summarising(tmp_path, ollama, summarization_interval_seconds=0.3) as engine:
        session_id = await said(engine, HELLO)
        await anyio.sleep(0.9)
        began = time.monotonic()
        await said(engine, "Hello")  # of another session, which has nothing to summarise
        await until(lambda: summaries(ollama))
        assert time.monotonic() - began > 5.9
        await summarised(engine, session_id, "Lorem ipsum")


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


async def test_a_summary_stays_until_one_that_begins_anew_is_complete(tmp_path, ollama):
    async with bench(tmp_path, ollama, max_history_tokens=600) as engine:
        session_id = await engine.session()
        async with engine.sessions.edit(session_id) as session:
            for number in range(6):
                session.append(*exchange(f"question {number} " * 40, f"answer {number} " * 40))
        for number in range(20):
            reply(ollama, summary=f"Part {number}.")
        await engine.runtime.summaries.summarize(session_id)
        before = engine.document(session_id)["metadata"]
        ollama.forget()
        reply(ollama, summary="Anew 0.")
        ollama.reply(error="out of memory", match="Summarise")
        with pytest.raises(MochiError):
            await engine.runtime.summaries.summarize(session_id)
        after = engine.document(session_id)["metadata"]
        assert after.pop("summary_draft")["summary"] == "Anew 0."
        assert after == before
        ollama.forget()
        asked = len(summaries(ollama))
        for number in range(1, 20):
            reply(ollama, summary=f"Anew {number}.")
        await engine.turn(session_id, "And then?")
        await engine.runtime.summaries.bring_up_to_date(session_id)
        assert "Summary so far:\n\nAnew 0.\n" in summaries(ollama)[asked]["messages"][-1]["content"]
        written = engine.document(session_id)["metadata"]
        assert written["summary"]["summary"].startswith("Anew ")
        assert "summary_draft" not in written


async def test_a_title_is_made_once_and_a_persons_own_wins(quiet, ollama):
    session_id = await said(quiet, HELLO)
    for text in ("They said hello. It was nice.", "They went on.", "They met again."):
        reply(ollama, summary=text)
        await quiet.runtime.summaries.summarize(session_id)
        await quiet.turn(session_id, "And then?")
        assert summary_of(quiet, session_id)["summary"] == text
        assert (await quiet.sessions.get(session_id)).metadata.title == "They said hello"
    async with quiet.sessions.edit(session_id) as session:
        session.metadata.label(title="Mine")
    reply(ollama, summary="They said more.")
    await quiet.runtime.summaries.summarize(session_id)
    [listed] = (await quiet.sessions.list()).entries
    assert listed["title"] == "Mine"
    async with quiet.sessions.edit(session_id) as session:
        session.metadata.label(title=None)
    assert (await quiet.sessions.get(session_id)).metadata.title == "They said hello"


async def test_an_edited_message_is_summarised_from_the_beginning(engine, ollama):
    session_id = await said(engine, HELLO, tool_settings=ToolSettings(tools=["x"]))
    await idle(engine)
    async with engine.sessions.edit(session_id) as session:
        session.edit_user_message(0, "Good evening, how are you?")
    reply(ollama, summary="They said good evening.")
    await engine.turn(session_id, None)
    await summarised(engine, session_id, "They said good evening.")
    question = summaries(ollama)[-1]["messages"][-1]["content"]
    assert "[user] Good evening, how are you?" in question
    assert "Summary so far" not in question


async def test_what_was_edited_while_it_was_summarised_keeps_no_summary(quiet, ollama):
    session_id = await said(quiet, HELLO)
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
    session_id = await said(quiet, HELLO)
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
        HELLO, f"You said: {HELLO}", "And then?", "You said: And then?",
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
    session_id = await said(quiet, HELLO)
    reply(ollama, summary="word " * 1000, topics=["Asyncio", "asyncio ", "", *map(str, range(20))])
    found = await quiet.runtime.summaries.summarize(session_id)
    assert len(found.summary) <= 1000
    assert found.summary.endswith("word...")
    assert found.topics == ["Asyncio", *map(str, range(7))]


@pytest.mark.parametrize("end", ["}", '"}'], ids=["whole text", "open text"])
async def test_a_summary_that_is_whole_is_taken_from_a_reply_that_was_cut(quiet, ollama, end):
    """As Ollama does after 30 times white space."""
    session_id = await said(quiet, HELLO)
    topics_first = {"topics": WRITTEN["topics"], "summary": WRITTEN["summary"]}
    content = json.dumps(topics_first).removesuffix(end) + "\n " * 15
    message = {"role": "assistant", "content": content}
    reply = {"model": MODEL, "created_at": "2026-11-21T20:31:05Z", "message": message}
    cut = json.dumps(reply | {"done": False}).encode()
    ollama.play_body(cut, content_type="application/json; charset=utf-8")
    found = await quiet.runtime.summaries.summarize(session_id)
    assert (found.summary, found.topics) == (WRITTEN["summary"], WRITTEN["topics"])
    assert len(summaries(ollama)) == 1


async def test_a_reply_in_another_form_is_asked_for_so_that_it_can_end_differently(quiet, ollama):
    session_id = await said(quiet, HELLO)
    ollama.reply(['{"topics": ["greet'], match="Summarise")
    reply(ollama)
    assert (await quiet.runtime.summaries.summarize(session_id)).summary == WRITTEN["summary"]
    first, second = (body["options"] for body in summaries(ollama))
    assert first.keys().isdisjoint({"seed", "temperature"})
    assert second["seed"] != -1
    assert second["temperature"] != 0.8  # Ollama's own


async def test_a_summary_that_repeats_the_instruction_is_refused(quiet, ollama):
    session_id = await said(quiet, HELLO)
    instruction = "Summarise the conversation in two to five sentences, in the language that it is"
    reply(ollama, summary=f"{instruction} held in. What was asked, and what came of it.")
    reply(ollama)
    assert (await quiet.runtime.summaries.summarize(session_id)).summary == WRITTEN["summary"]
    assert len(summaries(ollama)) == 2


# Failures


@pytest.mark.parametrize("answer", ["no JSON", '{"summary": " ", "topics": []}', '{"topics": []}'])
async def test_a_reply_in_another_form_changes_nothing_and_is_logged(
    engine, ollama, caplog, answer
):
    for _ in range(2):  # it is asked twice
        ollama.reply([answer], match="Summarise")
    session_id = await said(engine, HELLO)
    with caplog.at_level(logging.WARNING, "mochi_server.services.summarization"):
        await idle(engine)
    assert summary_of(engine, session_id) is None
    [record] = caplog.records
    assert session_id in record.getMessage()
    assert marked(engine) == []


async def test_a_deleted_session_is_forgotten(tmp_path, ollama, caplog):
    async with summarising(tmp_path, ollama, summarization_interval_seconds=1) as engine:
        session_id = await said(engine, HELLO)
        await engine.sessions.delete(session_id)
        await idle(engine)
        assert marked(engine) == []
    assert caplog.records == []


async def test_a_folder_that_cannot_be_written_hinders_no_turn(engine, ollama, tmp_path):
    (tmp_path / ".mochi").write_text("in the way")
    session_id = await said(engine, HELLO, "Again")
    await idle(engine)
    assert len(engine.stored(session_id)) == 4


# By which model, and when somebody asks


OTHER = "gemma3:4b"


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
        session.append(*exchange(HELLO, "I am fine."))
        session.metadata.summary_model = summary_model
    outcome = await quiet.runtime.summaries.bring_up_to_date(session_id)
    assert outcome is (SummaryOutcome.WRITTEN if writes else SummaryOutcome.NO_MODEL)
    assert (summary_of(quiet, session_id) or {}).get("model") == writes


async def test_somebody_who_asks_may_name_a_model(quiet):
    session_id = await said(quiet, HELLO, model=MODEL)
    summarize = quiet.runtime.summaries.summarize
    assert (await summarize(session_id, OTHER)).model_extra["model"] == OTHER
    with pytest.raises(SummaryModelRequired):
        await summarize(session_id, "gpt-oss:latest")
    with pytest.raises(ModelNotFound):
        await summarize(session_id, "gone:1b")


async def test_somebody_who_asks_gets_it_anew_where_nothing_is_new(quiet, ollama):
    session_id = await said(quiet, HELLO)
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
    session_id = await said(quiet, HELLO)
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
