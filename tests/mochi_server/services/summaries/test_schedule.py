"""Chats go before summaries; and what a stop or a crash interrupted is made later."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from pathlib import Path

import anyio
import pytest

from mochi_server.core.leases import FileLeases
from mochi_server.errors import ShuttingDown
from mochi_server.services.summaries import background
from mochi_server.services.summaries.schedule import LastReadConversations
from mochi_server.sessions.types import AgentSettings, ToolSettings
from tests.support.agents import write_skill
from tests.support.fake_ollama import FakeOllama
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
from tests.support.turns import bench
from tests.support.waiting import until

OTHER = "gemma3:4b"

# To whom it yields


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
    with anyio.fail_after(30):
        await engine.turn(second, f"Me first. {HELLO}")
    assert ollama.disconnects == 1
    for session_id in (first, second):
        await until(lambda session_id=session_id: summary_of(engine, session_id))


async def test_a_chat_with_another_model_of_the_server_takes_it_away(engine, ollama):
    session_id = await engine.session()
    await begun(engine, ollama, session_id)
    other = await engine.session(OTHER)
    await engine.turn(other, "Hello")
    assert ollama.disconnects == 1
    await until(lambda: summary_of(engine, session_id))


async def test_a_chat_on_another_server_lets_a_summary_run(engine, ollama):
    session_id = await engine.session()
    await begun(engine, ollama, session_id)
    async with FakeOllama() as elsewhere, bench(engine.settings.data_dir, elsewhere) as other:
        await other.turn(await other.session(), HELLO)
    assert ollama.disconnects == 0


async def occupied(engine, ollama):
    """A turn that has the model until its gate is opened: session, gate, and who reads it."""
    gate = asyncio.Event()
    ollama.one_at_a_time = False
    session_id = await engine.session()
    ollama.reply(["Hel", "lo"], gate=gate, pause_after=1, match="busy")
    reader = (await engine.start(session_id, "busy")).reader()
    await reader.next()
    return session_id, gate, reader


async def test_no_summary_begins_while_a_turn_has_the_model(engine, ollama):
    _, gate, _reader = await occupied(engine, ollama)
    done = await said(engine, HELLO)
    await anyio.sleep(0.1)
    assert summaries(ollama) == []
    gate.set()
    await until(lambda: summary_of(engine, done))


async def test_on_a_model_that_always_has_a_turn_a_summary_comes_beside_it(
    engine, ollama, monkeypatch
):
    monkeypatch.setattr(background, "PATIENCE_PAUSES", 1)
    busy, gate, _reader = await occupied(engine, ollama)
    session_id = await engine.session()
    await begun(engine, ollama, session_id)
    with anyio.fail_after(30):
        await engine.turn(await engine.session(), "Me first")
    assert ollama.disconnects == 1
    await until(lambda: summary_of(engine, session_id))
    assert len(engine.runs) == 1
    gate.set()
    await engine.ended()
    assert engine.stored(busy)[-1]["content"] == "Hello"


async def test_summaries_of_one_model_come_one_after_the_other(tmp_path, ollama):
    ollama.one_at_a_time = False
    async with bench(tmp_path, ollama) as engine:
        ids = [await said(engine, HELLO) for _ in range(3)]
    async with summarising(tmp_path, ollama) as engine:
        gates = [asyncio.Event() for _ in ids]
        for gate, session_id in zip(gates, ids, strict=True):
            ollama.reply([json.dumps(WRITTEN)], gate=gate, match="Summarise")
            engine.runtime.summaries.schedule(session_id)
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
        with anyio.fail_after(30):
            await other.turn(second, "Me first")
        assert ollama.disconnects == 1
        await until(lambda: summary_of(engine, first))


async def test_two_processes_do_not_summarise_one_session(tmp_path, ollama):
    ollama.one_at_a_time = False
    async with summarising(tmp_path, ollama) as one, summarising(tmp_path, ollama) as two:
        session_id = await one.session()
        gate = asyncio.Event()
        ollama.reply([json.dumps(WRITTEN)], gate=gate, match="Summarise")
        await one.turn(session_id, HELLO)
        await until(lambda: summaries(ollama))
        work = asyncio.ensure_future(two.runtime.summaries.bring_up_to_date(session_id))
        await anyio.sleep(0.1)
        assert len(summaries(ollama)) == 1
        gate.set()
        await work
    assert len(summaries(ollama)) == 1


# Beginning and end


async def test_a_stop_cancels_a_summary_and_the_next_start_catches_it_up(tmp_path, ollama):
    async with summarising(tmp_path, ollama) as engine:
        session_id = await engine.session()
        await begun(engine, ollama, session_id)
        with anyio.fail_after(30):
            await engine.runtime.aclose()
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
    session_id = await said(quiet, HELLO)
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
            session.append(*exchange(HELLO, "I am fine."))
        await ollama.__aexit__()
        engine.runtime.summaries.schedule(session_id)
        await idle(engine)
        assert marked(engine) == [session_id]
        assert session_id in caplog.text


async def test_a_start_catches_up_one_after_the_other_and_only_what_was_interrupted(
    tmp_path, ollama
):
    async with bench(tmp_path, ollama) as engine:
        ids = [await said(engine, f"{HELLO} {number}") for number in range(3)]
        old = await said(engine, "Never marked")
    leases = FileLeases(engine.settings.sessions_state_path / "summaries")
    for name in (*ids, "gone"):
        leases.add(name)
    async with summarising(tmp_path, ollama) as engine:
        engine.runtime.start()
        await until(lambda: marked(engine) == [])
        await idle(engine)
        assert all(summary_of(engine, session_id) for session_id in ids)
        assert summary_of(engine, old) is None


async def test_a_start_leaves_alone_what_a_server_with_other_sessions_was_interrupted_in(
    tmp_path, ollama
):
    interrupted = {}
    for count, name in enumerate(("yours", "mine"), start=1):
        ollama.requests.clear()
        async with summarising(tmp_path, ollama, sessions_dir=name) as engine:
            interrupted[name] = await engine.session()
            await begun(engine, ollama, interrupted[name])
        await ollama.disconnected(count)
    for name in ("yours", "mine"):
        async with summarising(tmp_path, ollama, sessions_dir=name) as engine:
            reply(ollama)
            engine.runtime.start()
            await summarised(engine, interrupted[name])


async def test_sessions_in_memory_are_summarised_and_leave_nothing_behind(tmp_path, ollama):
    settings = {"session_storage": "memory"}
    async with summarising(tmp_path, ollama, **settings) as engine:
        session_id = await said(engine, HELLO)
        await idle(engine)
        assert (await engine.sessions.get(session_id)).metadata.summary is not None
    assert list(tmp_path.iterdir()) == []


async def test_the_work_of_an_agent_is_not_summarised_only_what_the_person_reads(
    engine, ollama, tmp_path
):
    write_skill(tmp_path / "agents" / "helper")
    call = {"name": "agent", "arguments": {"agent": "helper", "instruction": "Help me."}}
    ollama.reply(tool_calls=[call])
    ollama.reply(["A plan."])
    ollama.reply(["Done."])
    ollama.reply(["It is done."])
    settings = AgentSettings(enabled_agents=["helper"])
    tools = ToolSettings(execution_policy="never_confirm")
    session_id = await said(
        engine, f"Please. {HELLO}", agent_settings=settings, tool_settings=tools
    )
    await idle(engine)
    [chat] = (await engine.runtime.agent_sessions.list()).entries
    assert chat["message_count"] > 2
    assert chat["summary"] is None
    assert summary_of(engine, session_id) is not None
    assert len(summaries(ollama)) == 1


async def test_a_summary_makes_way_for_an_agent_of_its_model(engine, ollama, tmp_path):
    ollama.add_model("qwen3:8b")
    write_skill(tmp_path / "agents" / "helper", "description: Helps.", "model: qwen3:8b")
    summarised_first = await engine.session("qwen3:8b")
    await begun(engine, ollama, summarised_first)
    call = {"name": "agent", "arguments": {"agent": "helper", "instruction": "Help me."}}
    ollama.reply(tool_calls=[call])
    settings = AgentSettings(enabled_agents=["helper"])
    tools = ToolSettings(execution_policy="never_confirm")
    with anyio.fail_after(30):
        await said(engine, HELLO, agent_settings=settings, tool_settings=tools)
    assert ollama.disconnects == 1
    await until(lambda: summary_of(engine, summarised_first))


# Which conversation a model has read last, between processes


def test_processes_of_one_folder_know_what_the_others_have_read(tmp_path: Path):
    folder = tmp_path / "summaries"
    one, other = LastReadConversations(folder), LastReadConversations(folder)
    one.note("weights", "a1b2c3d4e5")
    assert other.session_of("weights") == "a1b2c3d4e5"
    other.forget("weights")
    assert one.session_of("weights") is None


def test_only_the_owner_can_read_the_folders_that_are_made_for_it(tmp_path: Path):
    folder = tmp_path / ".mochi" / "summaries"
    before = os.umask(0)
    try:
        LastReadConversations(folder).note("weights", "a1b2c3d4e5")
    finally:
        os.umask(before)
    made = (folder.parent, folder, *folder.iterdir())
    modes = [stat.filemode(path.stat().st_mode) for path in made]
    assert modes == ["drwx------", "drwx------", "-rw-------"]
