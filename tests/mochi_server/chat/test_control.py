"""Runs as clients use them, with two runtimes on one data folder in the place of processes."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

import anyio
import pytest
import pytest_asyncio

from mochi_server.chat.runs.log import LogReader
from mochi_server.chat.service import events_of
from mochi_server.errors import MochiError, OllamaError, RunNotFound, RunStopped, SessionBusy
from mochi_server.protocol.events import Event
from mochi_server.protocol.turn_request import TurnRequest
from mochi_server.sessions.storage.memory import MemoryStorage
from tests.support.fake_ollama import FakeOllama
from tests.support.turns import bench, kinds, read_all, read_until, text_of
from tests.support.waiting import until


@pytest_asyncio.fixture
async def engine(tmp_path, ollama):
    ollama.one_at_a_time = False
    async with bench(tmp_path, ollama) as one:
        yield one


@pytest_asyncio.fixture
async def other(engine, tmp_path, ollama):
    """A runtime on the same folder."""
    async with bench(tmp_path, ollama) as one:
        yield one


def endless(ollama: FakeOllama) -> asyncio.Event:
    """Let the model say a word, and the rest when the gate is opened."""
    gate = asyncio.Event()
    ollama.reply(["So", " on"], pause_after=1, gate=gate)
    return gate


async def numbered(reader: LogReader) -> list[tuple[int, Event]]:
    found = []
    with anyio.fail_after(30):
        while (batch := await reader.next()) is not None:
            found += batch
    reader.leave()
    return found


async def test_a_run_is_read_in_another_process_while_it_goes_on(engine, other, ollama):
    gate = endless(ollama)
    control = other.runtime.run_control
    session = await engine.session()
    started = await engine.runtime.run_control.start(session, TurnRequest(message="Hi"))
    along = await control.join(started.run_id)
    said = await read_until(along, "content_delta")
    status = await control.status(started.run_id)
    assert (status["state"], status["session_id"]) == ("running", session)
    assert [run["state"] for run in await control.list(session_id=session)] == ["running"]
    gate.set()
    assert text_of(said + await read_all(along)) == "So on"
    here = await numbered(started.reader)
    again = await control.join(started.run_id)
    there = await numbered(again)
    assert there[-1] == here[-1]
    assert text_of([event for _, event in there]) == "So on"
    half = here[1][0]
    rest = await control.join(started.run_id, half)
    assert text_of([event for _, event in await numbered(rest)]) == " on"
    assert await control.join(started.run_id, here[-1][0]) is None
    assert (await control.status(started.run_id))["state"] == "done"
    joined = await control.join_session(session)
    assert joined[0] == started.run_id
    joined[1].leave()


async def test_numbers_grow_over_all_runs_of_a_session(engine):
    session = await engine.session()
    numbers: list[int] = []
    for _ in range(3):
        started = await engine.runtime.run_control.start(session, TurnRequest(message="Hi"))
        numbers += [number for number, _ in await numbered(started.reader)]
    assert numbers == sorted(set(numbers))


@pytest.mark.parametrize("here", [True, False])
async def test_a_stop_keeps_the_partial_reply_and_answers_with_it(engine, other, ollama, *, here):
    endless(ollama)
    session = await engine.session()
    started = await engine.runtime.run_control.start(session, TurnRequest(message="Hi"))
    await read_until(started.reader, "content_delta")
    control = (engine if here else other).runtime.run_control
    answer = await control.stop(started.run_id)
    assert answer["state"] == "stopped"
    assert answer["message"] == engine.stored(session)[-1]
    assert (answer["message"]["content"], answer["message"]["interrupted"]) == ("So", True)
    assert kinds(await read_all(started.reader)) == ["done"]
    await ollama.disconnected()
    assert await control.stop(started.run_id) == answer
    assert await other.runtime.run_control.stop_session(session) == answer
    await engine.turn(session, "Again.")


class SlowStorage(MemoryStorage):
    """Writes whatever has the words " on" only when it is let."""

    def __init__(self):
        super().__init__()
        self.writing, self.go_on = asyncio.Event(), asyncio.Event()

    async def write(self, session_id, parts):
        content = b"".join(parts)
        if b"So on" in content:
            self.writing.set()
            await self.go_on.wait()
        return await super().write(session_id, [content])


@pytest.mark.parametrize("how", ["a person", "the server's end"])
async def test_what_stops_a_run_while_its_whole_answer_is_being_stored_is_too_late(
    tmp_path, ollama, how
):
    gate = endless(ollama)
    storage = SlowStorage()
    storages = {"default": storage, "agent_chats": MemoryStorage()}
    async with bench(tmp_path, ollama, storages=storages) as engine:
        session = await engine.session()
        started = await engine.runtime.run_control.start(session, TurnRequest(message="Hi"))
        gate.set()
        with anyio.fail_after(30):
            await storage.writing.wait()
        ending = (
            engine.runtime.run_control.stop(started.run_id)
            if how == "a person"
            else engine.runtime.aclose()
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: ending)
            await anyio.wait_all_tasks_blocked()
            storage.go_on.set()
            events = await read_all(started.reader)
        assert kinds(events)[-2:] == ["message_complete", "done"]
        [_, answer] = (await engine.sessions.get(session)).stored_messages()
        assert (answer["content"], answer.get("interrupted")) == ("So on", None)
        assert events[-2].message_id == answer["message_id"]


async def test_a_reply_in_one_piece_says_that_it_was_stopped(engine, ollama):
    endless(ollama)
    session = await engine.session()
    replying = asyncio.ensure_future(engine.chat.complete(session, TurnRequest(message="Hi")))
    await until(lambda: engine.runs.running_of(session))
    run_id = engine.runs.running_of(session)
    await engine.runtime.run_control.stop(run_id)
    with pytest.raises(RunStopped):
        await replying


async def test_who_reads_a_run_in_another_process_hears_why_it_failed(engine, other, ollama):
    gate = asyncio.Event()
    ollama.reply(["So", " on"], pause_after=1, gate=gate, error="out of memory")
    session = await engine.session()
    started = await engine.runtime.run_control.start(session, TurnRequest(message="Hi"))
    reader = await other.runtime.run_control.join(started.run_id)
    gate.set()
    assert kinds(await read_all(started.reader))[-2:] == ["error", "done"]
    with pytest.raises(OllamaError, match="out of memory") as raised:
        async for _ in events_of(reader):
            pass
    assert raised.value.as_json() == started.reader.failure.as_json()
    assert raised.value.status == 502


async def test_a_run_goes_on_while_another_process_reads_it(engine, other, ollama):
    endless(ollama)
    session = await engine.session()
    started = await engine.runtime.run_control.start(session, TurnRequest(message="Hi"))
    await read_until(started.reader, "content_delta")
    along = await other.runtime.run_control.join(started.run_id)
    started.reader.leave()
    await asyncio.sleep(0.3)
    assert engine.runs.is_running(session)
    along.leave()
    await engine.ended()
    assert engine.stored(session)[-1]["interrupted"] is True
    assert (await other.runtime.run_control.status(started.run_id))["state"] == "stopped"


@pytest.mark.parametrize("here", [True, False])
async def test_an_interrupting_message_keeps_what_was_said(engine, other, ollama, *, here):
    endless(ollama)
    ollama.reply(["Better."])
    session = await engine.session()
    first = await engine.runtime.run_control.start(session, TurnRequest(message="Hi"))
    await read_until(first.reader, "content_delta")
    control = (engine if here else other).runtime.run_control
    second = await control.start(session, TurnRequest(message="No, this"), when_busy="interrupt")
    assert text_of(await read_all(second.reader)) == "Better."
    assert kinds(await read_all(first.reader)) == ["done"]
    said = [message["content"] for message in engine.stored(session)]
    assert said == ["Hi", "So", "No, this", "Better."]


@pytest.mark.parametrize("refused", [{"model": "nope:1b"}, {"think": True}, {"selected": ["no"]}])
async def test_a_message_that_is_refused_interrupts_nothing(engine, ollama, refused):
    gate = endless(ollama)
    session = await engine.session("gemma3:4b")
    first = await engine.runtime.run_control.start(session, TurnRequest(message="Hi"))
    await read_until(first.reader, "content_delta")
    with pytest.raises(MochiError):
        await engine.runtime.run_control.start(
            session, TurnRequest(**{"message": "No!", **refused}), when_busy="interrupt"
        )
    gate.set()
    assert text_of(await read_all(first.reader)) == " on"
    assert [message["content"] for message in engine.stored(session)] == ["Hi", "So on"]


async def test_queued_messages_run_in_their_order(engine, ollama):
    gate = endless(ollama)
    for word in ("one", "two"):
        ollama.reply([word])
    control = engine.runtime.run_control
    session = await engine.session()
    first = await control.start(session, TurnRequest(message="0"), when_busy="queue")
    waiting = [
        await control.start(session, TurnRequest(message=text), when_busy="queue")
        for text in ("1", "x", "2")
    ]
    assert [run.state for run in (first, *waiting)] == ["running", *["queued"] * 3]
    queued = [run["run_id"] for run in await control.list(state="queued")]
    assert queued == [run.run_id for run in waiting]
    with pytest.raises(SessionBusy):
        await control.start(session, TurnRequest(message="Me first"))
    answer = await control.stop(waiting[1].run_id)
    assert (answer["state"], answer["message"]) == ("stopped", None)
    assert await control.stop(waiting[1].run_id) == answer
    assert kinds(await read_all(waiting[1].reader)) == ["done"]
    gate.set()
    assert text_of(await read_all(first.reader)) == "So on"
    assert text_of(await read_all(waiting[0].reader)) == "one"
    assert text_of(await read_all(waiting[2].reader)) == "two"
    asked = [m["content"] for m in engine.stored(session) if m["role"] == "user"]
    assert asked == ["0", "1", "2"]


async def answered_in_order(engine, ollama, starts):
    """Let a run go on at the first runtime, queue messages, and return what was answered."""
    gate = endless(ollama)
    session = await engine.session()
    first = await engine.runtime.run_control.start(session, TurnRequest(message="m0"))
    await read_until(first.reader, "content_delta")
    readers = [first.reader]
    for number, one in enumerate(starts, start=1):
        control = one.runtime.run_control
        started = await control.start(session, TurnRequest(message=f"m{number}"), when_busy="queue")
        assert started.state == "queued"
        readers.append(started.reader)
    gate.set()
    for reader in readers:
        await read_all(reader)
    return questions(engine, session)


def questions(engine, session):
    return [each["content"] for each in engine.stored(session) if each["role"] == "user"]


@pytest.mark.parametrize("pattern", ["other engine", "engine other", "other other engine"])
async def test_queued_messages_of_several_processes_run_in_their_order(
    engine, other, ollama, pattern
):
    starts = [{"engine": engine, "other": other}[name] for name in pattern.split()] * 2
    order = [f"m{number}" for number in range(len(starts) + 1)]
    assert await answered_in_order(engine, ollama, starts) == order


async def test_a_clock_that_is_set_back_keeps_the_order_of_a_process(
    engine, other, ollama, monkeypatch
):
    hours = iter([3, 2, 1, 4])

    class Clock(datetime):
        @classmethod
        def now(cls, tz=None):
            return super().now(tz) + timedelta(hours=next(hours))

    monkeypatch.setattr("mochi_server.chat.runs.queue.datetime", Clock)
    answered = await answered_in_order(engine, ollama, [engine, other, engine, other])
    assert sorted(answered) == ["m0", "m1", "m2", "m3", "m4"]
    assert answered.index("m1") < answered.index("m3")
    assert answered.index("m2") < answered.index("m4")


async def test_a_message_does_not_overtake_one_that_waits_in_another_process(engine, other, ollama):
    gate = endless(ollama)
    session = await engine.session()
    first = await engine.runtime.run_control.start(session, TurnRequest(message="m0"))
    await read_until(first.reader, "content_delta")
    control = other.runtime.run_control
    waiting = await control.start(session, TurnRequest(message="m1"), when_busy="queue")
    gate.set()
    await read_all(first.reader)  # the other process has not noticed yet
    last = await engine.runtime.run_control.start(
        session, TurnRequest(message="m2"), when_busy="queue"
    )
    for reader in (waiting.reader, last.reader):
        await read_all(reader)
    assert questions(engine, session) == ["m0", "m1", "m2"]


async def test_who_leaves_the_queue_is_taken_out_of_it(engine, ollama):
    gate = endless(ollama)
    control = engine.runtime.run_control
    session = await engine.session()
    first = await control.start(session, TurnRequest(message="0"))
    waiting = await control.start(session, TurnRequest(message="1"), when_busy="queue")
    waiting.reader.leave()
    await until(lambda: control.list(state="queued"), lambda runs: not runs)
    gate.set()
    await read_all(first.reader)
    assert [m["content"] for m in engine.stored(session)] == ["0", "So on"]


async def test_old_runs_are_forgotten(tmp_path, ollama):
    async with bench(tmp_path, ollama) as engine:
        engine.runs.retention_seconds = 0
        session = await engine.session()
        started = await engine.runtime.run_control.start(session, TurnRequest(message="Hi"))
        await read_all(started.reader)
        await engine.runs.wait_closed(0)  # the file is closed
        await asyncio.sleep(0.01)
        control = engine.runtime.run_control
        engine.runtime.unattended_runs.tend()
        await until(control.list, lambda runs: not runs)
        with pytest.raises(RunNotFound):
            await control.join(started.run_id)
        assert await control.join_session(session) is None
