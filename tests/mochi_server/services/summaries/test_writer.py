"""A summary in the background never takes the memory that a model of a chat needs."""

from __future__ import annotations

import asyncio
import json

import pytest

from mochi_server.core.leases import FileLeases
from tests.support.summaries import (
    HELLO,
    WRITTEN,
    begun,
    exchange,
    idle,
    marked,
    said,
    summaries,
    summarising,
    summary_of,
)
from tests.support.turns import MODEL, bench, read_all, read_until
from tests.support.waiting import until

OTHER = "gemma3:4b"


@pytest.fixture(autouse=True)
def _one_fits(ollama, monkeypatch):
    monkeypatch.setattr(ollama, "one_fits", True)
    ollama.unload()


async def test_a_summary_does_not_unload_the_model_of_a_chat(engine, ollama):
    first = await engine.session()
    await begun(engine, ollama, first)
    chat = await engine.session(OTHER)
    for _ in range(5):
        await engine.turn(chat, HELLO)
        await idle(engine)
    assert ollama.loads == 2
    assert {body["model"] for body in summaries(ollama)[1:]} == {OTHER}
    assert marked(engine) == [first]


async def test_a_summary_comes_when_a_chat_has_loaded_its_model_again(engine, ollama):
    first = await engine.session()
    await begun(engine, ollama, first)
    await said(engine, HELLO, model=OTHER)
    await idle(engine)
    assert summary_of(engine, first) is None
    await said(engine, HELLO)
    await until(lambda: summary_of(engine, first))
    assert ollama.loads == 3


async def test_a_model_that_keep_alive_let_go_is_not_loaded_again(tmp_path, ollama):
    async with summarising(tmp_path, ollama) as engine:
        gate = asyncio.Event()
        ollama.reply(["I am ", "fine."], gate=gate, pause_after=1)
        session_id = await engine.session()
        reader = (await engine.start(session_id, HELLO)).reader()
        await read_until(reader, "content_delta")
        ollama.unload()
        gate.set()
        await read_all(reader)
        await idle(engine)
        assert summaries(ollama) == []
        assert marked(engine) == [session_id]
    assert ollama.loads == 1


async def test_a_model_in_the_cloud_is_always_there(engine, ollama, monkeypatch):
    monkeypatch.setattr(ollama.add_model("kimi:cloud"), "remote_host", "https://ollama.com:443")
    session_id = await said(engine, HELLO, model="kimi:cloud")
    ollama.unload()
    await until(lambda: summary_of(engine, session_id))


# After a start


async def interrupted(folder, ollama, *models):
    """Sessions whose summaries the next start is to catch up, in this order."""
    async with bench(folder, ollama) as engine:
        ids = []
        for model in models:
            ids.append(await engine.session(model))
            async with engine.sessions.edit(ids[-1]) as session:
                session.append(*exchange(HELLO, "I am fine."))
        leases = FileLeases(engine.settings.sessions_state_path / "summaries")
        for session_id in reversed(ids):
            leases.add(session_id)
            leases.request(session_id)  # its time is finer than the file system's own
    return ids


async def test_a_start_loads_a_model_while_none_is_loaded_and_no_second_one(tmp_path, ollama):
    first, other, last = await interrupted(tmp_path, ollama, MODEL, OTHER, MODEL)
    async with summarising(tmp_path, ollama) as engine:
        engine.runtime.start()
        for session_id in (first, last):
            await until(lambda session_id=session_id: summary_of(engine, session_id))
        await idle(engine)
        assert summary_of(engine, other) is None
        assert marked(engine) == [other]
    assert ollama.loads == 1


async def test_a_start_loads_none_while_another_one_is_loaded(tmp_path, ollama, monkeypatch):
    first, other = await interrupted(tmp_path, ollama, MODEL, OTHER)
    monkeypatch.setattr(ollama.models[OTHER], "loaded", 8192)
    async with summarising(tmp_path, ollama) as engine:
        engine.runtime.start()
        await until(lambda: summary_of(engine, other))
        await idle(engine)
        assert marked(engine) == [first]
    assert ollama.loads == 0


async def test_a_start_does_not_load_twice_what_is_let_go_at_once(tmp_path, ollama):
    first, second, other = await interrupted(tmp_path, ollama, MODEL, MODEL, OTHER)
    gate = asyncio.Event()
    ollama.reply([json.dumps(WRITTEN)], gate=gate, match="Summarise")
    async with summarising(tmp_path, ollama) as engine:
        engine.runtime.start()
        await until(lambda: summaries(ollama))
        ollama.unload()
        gate.set()
        for session_id in (first, other):
            await until(lambda session_id=session_id: summary_of(engine, session_id))
        await idle(engine)
        assert marked(engine) == [second]
    assert ollama.loads == 2


async def test_a_summary_that_somebody_asks_for_loads_its_model(quiet, ollama):
    session_id = await said(quiet, HELLO)
    await said(quiet, HELLO, model=OTHER)
    summary = await quiet.runtime.summaries.summarize(session_id)
    assert summary.summary
    assert ollama.loads == 3
