"""By which model a summary is written, and summaries that somebody asks for."""

from __future__ import annotations

import asyncio
import json

import pytest

from mochi_server.errors import EmptyHistory, ModelNotFound, SessionBusy, SummaryModelRequired
from mochi_server.services.summarization import SummaryOutcome
from tests.support.summaries import (
    HELLO,
    WRITTEN,
    begun,
    exchange,
    idle,
    reply,
    said,
    summaries,
    summary_of,
)
from tests.support.turns import MODEL
from tests.support.waiting import until

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
