"""Runs of processes that have died: each is ended once, and the next message waits for that."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import timedelta

import anyio
import pytest
import pytest_asyncio

from mochi_server.chat.confirmations.announcing import announcement_of
from mochi_server.chat.confirmations.state import StateConfirmationStore
from mochi_server.chat.journal.base import RunWriter
from mochi_server.chat.journal.journal import RunJournal
from mochi_server.chat.recovery import RunRecovery
from mochi_server.chat.runs.registry import RunRegistry
from mochi_server.core.clock import timestamp
from mochi_server.errors import SessionBusy, StorageError
from mochi_server.protocol.events import (
    ConfirmationRequired,
    ContentDelta,
    MessageComplete,
    ReplyRetry,
)
from mochi_server.protocol.messages import AssistantMessage, ToolMessage, UserMessage
from mochi_server.protocol.turn_request import TurnRequest
from mochi_server.sessions import ChatSession, SessionManager
from mochi_server.sessions.storage.memory import MemoryStorage
from mochi_server.state import SQLiteState
from tests.support.confirmations import START, make_confirmation
from tests.support.runs import deltas, events_of, finish, head, journal_in, lines_of, notes_of


@dataclass
class Survivor:
    """A process beside one that has died in the middle of a run."""

    journal: RunJournal
    sessions: SessionManager
    agents: SessionManager
    session_id: str
    agent_id: str

    @property
    def recovery(self) -> RunRecovery:
        return RunRecovery(self.journal, self.sessions, self.agents, StateConfirmationStore())

    async def stored(self, manager: SessionManager, session_id: str) -> list[tuple[str, object]]:
        messages = (await manager.get(session_id)).stored_messages()
        return [(message["content"], message.get("interrupted")) for message in messages]


def begin_run(session: ChatSession) -> None:
    session.metadata.begin_run("run_1")


@pytest_asyncio.fixture
async def survivor(tmp_path):
    sessions, agents = SessionManager(MemoryStorage()), SessionManager(MemoryStorage())
    session_id = (await sessions.create("model", prepare=begin_run)).session_id
    agent_id = (await agents.create("model", prepare=begin_run)).session_id
    died = journal_in(tmp_path)
    writer = died.begin(head(session_id=session_id))
    writer.note("agent", call="call_1", session_id=agent_id, begin=0)
    writer.add(1, deltas(1, 2))
    await died.aclose()
    journal = journal_in(tmp_path)
    yield Survivor(journal, sessions, agents, session_id, agent_id)
    await journal.aclose()


async def test_what_was_said_is_stored_once_although_an_agent_was_busy(survivor):
    """Whoever uses the agent's session changes nothing in it before the run has ended."""
    async with survivor.agents.claim(survivor.agent_id):
        assert await survivor.recovery.recover("run_1")
    assert await survivor.stored(survivor.sessions, survivor.session_id) == [("1 2 ", True)]
    assert notes_of(await lines_of(survivor.journal))[-1] == "end"
    assert not await survivor.recovery.recover("run_1")


class LeasedState(SQLiteState):
    """One whose runs can be taken from processes that live."""

    lease_seconds = 10.0


@pytest_asyncio.fixture
async def with_leases(survivor, tmp_path):
    """The process beside, where runs have leases: that of the run is over."""
    journal = RunJournal(LeasedState(tmp_path, "runs", is_durable=False))
    yield replace(survivor, journal=journal)
    await journal.aclose()


async def test_a_run_is_left_alone_while_its_process_has_an_agents_session(with_leases):
    """It stands still just before it stores a message there."""
    async with with_leases.agents.claim(with_leases.agent_id):
        with pytest.raises(SessionBusy):
            await with_leases.recovery.recover("run_1")
        assert await with_leases.stored(with_leases.sessions, with_leases.session_id) == []
    assert await with_leases.recovery.recover("run_1")
    assert await with_leases.stored(with_leases.sessions, with_leases.session_id) == [
        ("1 2 ", True)
    ]


async def test_who_uses_an_agents_session_ends_the_run_that_has_used_it(with_leases):
    runs = RunRegistry(with_leases.journal, with_leases.recovery)
    async with with_leases.agents.claim(with_leases.agent_id):
        await runs.others.settle(with_leases.agent_id, "run_1")
    assert (await runs.status("run_1")).state == "interrupted"


async def test_a_claim_that_was_not_given_back_is_left_to_a_run_that_goes_on(survivor, tmp_path):
    """Its process was too slow to renew the claim."""
    runs = RunRegistry(survivor.journal, survivor.recovery)
    await runs.others.check_left(survivor.session_id, "run_1")  # its process has died
    await survivor.recovery.recover("run_1")
    await runs.others.check_left(survivor.session_id, "run_1")
    slow = journal_in(tmp_path)
    writer = slow.begin(head("run_2", session_id=survivor.session_id))
    writer.note("agent", call="call_1", session_id=survivor.agent_id, begin=0)
    await slow.flush()
    for session_id in (survivor.session_id, survivor.agent_id):
        with pytest.raises(SessionBusy):
            await runs.others.check_left(session_id, "run_2")
    await runs.others.check_left("another", "run_2")  # an imported file names the run
    await slow.aclose()


async def test_an_agents_session_in_which_another_run_goes_on_keeps_no_run_from_its_end(
    with_leases,
):
    def begin(session: ChatSession) -> None:
        session.metadata.begin_run("run_2")

    await with_leases.agents.update(with_leases.agent_id, begin)
    async with with_leases.agents.claim(with_leases.agent_id):
        assert await with_leases.recovery.recover("run_1")


@pytest.mark.parametrize("has_ended", [False, True])
async def test_the_session_of_an_agent_that_has_ended_is_free_while_the_run_waits(
    tmp_path, has_ended
):
    """A person is asked about a call beside it, and may take as long as they want."""
    sessions, agents = SessionManager(MemoryStorage()), SessionManager(MemoryStorage())
    session_id = (await sessions.create("model", prepare=begin_run)).session_id
    agent_id = (await agents.create("model", prepare=begin_run)).session_id
    store = StateConfirmationStore()
    await store.put(make_confirmation(session_id))
    journal = journal_in(tmp_path)
    writer = journal.begin(head(session_id=session_id))
    writer.note("agent", call="call_1", session_id=agent_id, begin=0)
    if has_ended:
        result = ToolMessage(content="Dug.", tool_call_id="call_1", tool_name="agent")
        writer.note("result", session_id=session_id, message=result.as_stored())
    writer.note("waiting")
    await journal.close(writer)
    runs = RunRegistry(journal, RunRecovery(journal, sessions, agents, store))
    if has_ended:
        await runs.others.settle(agent_id, "run_1")
    else:
        with pytest.raises(SessionBusy):
            await runs.others.settle(agent_id, "run_1")
    with pytest.raises(SessionBusy):
        await runs.others.settle(session_id, "run_1")
    assert (await runs.status("run_1")).state == "waiting"
    await journal.aclose()


@pytest.mark.parametrize("has_begun", [False, True])
async def test_a_run_that_left_the_queue_has_the_number_that_its_session_knows(tmp_path, has_begun):
    """The process has died after it had stored the message, and before the journal knew."""

    def prepare(session: ChatSession) -> None:
        session.metadata.begin_run("run_0")
        if has_begun:
            session.metadata.begin_run("run_1")
            session.append(UserMessage(content="Two."))

    sessions, agents = SessionManager(MemoryStorage()), SessionManager(MemoryStorage())
    session_id = (await sessions.create("model", prepare=prepare)).session_id
    died, journal = journal_in(tmp_path), journal_in(tmp_path)
    died.begin(head(number=0, session_id=session_id))
    await died.aclose()
    runs = RunRegistry(journal, RunRecovery(journal, sessions, agents, StateConfirmationStore()))
    [run] = await runs.all_runs()
    assert run.state == "interrupted"
    events = events_of(await lines_of(journal))
    assert [event.type for _, event in events] == ["run_start", "error", "done"]
    assert events[0][0] == head(number=2 if has_begun else 0).first_event
    await journal.aclose()


async def test_two_who_list_runs_at_once_both_see_that_one_has_died(survivor):
    runs = RunRegistry(survivor.journal, survivor.recovery)
    lists = await asyncio.gather(*(runs.all_runs() for _ in range(5)))
    assert [[run.state for run in each] for each in lists] == [["interrupted"]] * 5


async def test_what_was_void_is_not_stored(survivor, tmp_path):
    """The process has died while the model repaired its reply."""
    writer = await survivor.journal.take("run_1")
    writer.add(3, [ReplyRetry(problem="it is not JSON"), ContentDelta("{")])
    await survivor.journal.close(writer)
    assert await survivor.recovery.recover("run_1")
    assert await survivor.stored(survivor.sessions, survivor.session_id) == [("{", True)]


async def test_a_session_that_does_not_know_the_run_gets_nothing_of_it(survivor):
    """It was restored from a backup, or is another one with the same id."""
    await survivor.sessions.delete(survivor.session_id)
    await survivor.sessions.create("model", session_id=survivor.session_id)
    assert await survivor.recovery.recover("run_1")
    assert await survivor.stored(survivor.sessions, survivor.session_id) == []


async def test_the_end_of_a_run_that_had_only_begun_follows_its_start(tmp_path):
    """A reader that has nothing of it yet gets it whole."""
    sessions = SessionManager(MemoryStorage())
    session_id = (await sessions.create("model")).session_id
    died, journal = journal_in(tmp_path), journal_in(tmp_path)
    died.begin(head(number=2, session_id=session_id))
    await died.aclose()
    agents = SessionManager(MemoryStorage())
    recovery = RunRecovery(journal, sessions, agents, StateConfirmationStore())
    assert await recovery.recover("run_1")
    events = events_of(await lines_of(journal))
    assert [event.type for _, event in events] == ["run_start", "error", "done"]
    assert events[0][0] == head(number=2).first_event
    await journal.aclose()


@pytest.mark.parametrize("announced", [True, False])
async def test_what_was_asked_is_announced_once(tmp_path, announced):
    """The process has died between storing a confirmation and telling of it, or just after."""
    sessions, agents = SessionManager(MemoryStorage()), SessionManager(MemoryStorage())
    session_id = (await sessions.create("model")).session_id
    store = StateConfirmationStore()
    asked = make_confirmation(session_id, expires_at=timestamp(START + timedelta(minutes=5)))
    await store.put(asked)
    died, journal = journal_in(tmp_path), journal_in(tmp_path)
    writer = died.begin(head(session_id=session_id))
    if announced:
        writer.add(1, [head(session_id=session_id).start(), announcement_of(asked)])
    await died.aclose()

    recovery = RunRecovery(journal, sessions, agents, store)
    assert not await recovery.recover("run_1")
    assert not await recovery.recover("run_1")
    start, announcement = [event for _, event in events_of(await lines_of(journal))]
    assert start.type == "run_start"
    assert isinstance(announcement, ConfirmationRequired)
    assert announcement.confirmation_id == asked.confirmation_id
    assert announcement.timeout_seconds == 300
    assert notes_of(await lines_of(journal)) == ["waiting"]
    await journal.aclose()


async def test_the_next_message_waits_while_somebody_ends_the_run(survivor, tmp_path):
    other = journal_in(tmp_path)
    taken = await other.take("run_1")
    assert isinstance(taken, RunWriter)
    runs = RunRegistry(survivor.journal, survivor.recovery)
    settling = asyncio.ensure_future(runs.others.settle(survivor.session_id, "run_1"))
    with anyio.fail_after(30):
        await asyncio.wait({settling}, timeout=0.3)
        assert not settling.done()
        await finish(other, taken, "interrupted")
        await settling
    await other.aclose()


async def test_a_run_can_be_ended_while_a_message_waits_for_that(survivor):
    """Whoever opens the next turn has the session, and ends the run itself if nobody else does."""
    runs = RunRegistry(survivor.journal, survivor.recovery)
    async with survivor.sessions.claim(survivor.session_id):
        await asyncio.gather(
            runs.others.settle(survivor.session_id, "run_1"), survivor.recovery.recover("run_1")
        )
    assert await survivor.stored(survivor.sessions, survivor.session_id) == [("1 2 ", True)]


async def test_what_the_session_has_and_the_journal_has_not_is_not_stored_twice(survivor):
    """The journal could not be written when the process stored it."""
    stored = AssistantMessage(content="1 2 3 ", model="model")
    await survivor.sessions.update(survivor.session_id, lambda session: session.append(stored))
    assert await survivor.recovery.recover("run_1")
    assert await survivor.stored(survivor.sessions, survivor.session_id) == [("1 2 3 ", None)]


@pytest.mark.parametrize("is_told", [False, True])
async def test_a_run_whose_answer_was_stored_is_done(survivor, is_told):
    """The process has died between storing it and noting the end, or telling of it and that."""
    answer = AssistantMessage(content="1 2 ", model="model")
    complete = MessageComplete(
        message_id=answer.message_id,
        model="model",
        eval_count=2,
        prompt_eval_count=None,
        context_window={},
        finish_reason="length",
        timestamp=answer.timestamp,
    )
    writer = await survivor.journal.take("run_1")
    messages = {"session_id": survivor.session_id, "messages": [answer.message_id], "until": 2}
    writer.note("storing", **messages, complete=complete.payload())
    if is_told:
        writer.add(3, [complete])
    await survivor.journal.close(writer)
    await survivor.sessions.update(survivor.session_id, lambda session: session.append(answer))
    runs = RunRegistry(survivor.journal, survivor.recovery)
    await runs.others.recover_dead()
    status = await runs.status("run_1")
    assert (status.state, status.code, status.message_id) == ("done", None, answer.message_id)
    told, done = [event for _, event in events_of(await lines_of(survivor.journal))][-2:]
    assert done.type == "done"
    assert told == (complete if is_told else replace(complete, message=answer.as_stored()))
    assert await survivor.stored(survivor.sessions, survivor.session_id) == [("1 2 ", None)]


async def test_a_run_whose_answer_was_about_to_be_stored_is_interrupted(survivor):
    answer = AssistantMessage(content="1 2 ", model="model")
    complete = {"message_id": answer.message_id, "model": "model", "context_window": {}}
    rest = dict.fromkeys(("eval_count", "prompt_eval_count", "finish_reason", "timestamp"))
    writer = await survivor.journal.take("run_1")
    messages = {"session_id": survivor.session_id, "messages": [answer.message_id], "until": 2}
    writer.note("storing", **messages, complete={**complete, **rest})
    await survivor.journal.close(writer)
    assert await survivor.recovery.recover("run_1")
    assert await survivor.stored(survivor.sessions, survivor.session_id) == [("1 2 ", True)]
    assert [event.type for _, event in events_of(await lines_of(survivor.journal))][-2:] == [
        *("error", "done")
    ]


@pytest.mark.parametrize("how", ["the next message", "a look"])
async def test_a_run_that_waits_is_ended_when_nobody_is_asked(survivor, how):
    """The server died while it stopped the run, or the confirmations were lost with their file."""
    writer = await survivor.journal.take("run_1")
    writer.note("waiting")
    await survivor.journal.close(writer)
    runs = RunRegistry(survivor.journal, survivor.recovery)
    if how == "a look":
        await runs.others.recover_forgotten({"run_1"})
        assert (await runs.status("run_1")).state == "waiting"
        await runs.others.recover_forgotten(set())
    else:
        async with survivor.sessions.claim(survivor.session_id):
            await runs.others.settle(survivor.session_id, "run_1")
    assert (await runs.status("run_1")).state == "interrupted"
    assert await survivor.stored(survivor.sessions, survivor.session_id) == [("1 2 ", True)]


class FullStorage(MemoryStorage):
    """Has no room for one of its sessions."""

    full = ""

    async def write(self, session_id, parts):
        if session_id == self.full:
            raise StorageError(session_id=session_id, reason="there is no room")
        return await super().write(session_id, parts)


async def test_a_run_that_cannot_be_ended_now_keeps_no_other_from_it(tmp_path, caplog):
    storage = FullStorage()
    sessions, journal = SessionManager(storage), journal_in(tmp_path)
    for number in (0, 1):
        run = f"run_{number}"

        def prepare(session: ChatSession, run: str = run) -> None:
            session.metadata.begin_run(run)

        session_id = (await sessions.create("model", prepare=prepare)).session_id
        writer = journal.begin(head(run_id=run, session_id=session_id))
        writer.add(1, deltas(1, 2))
        writer.note("waiting")
        await journal.close(writer)
        storage.full = storage.full or session_id
    agents = SessionManager(MemoryStorage())
    recovery = RunRecovery(journal, sessions, agents, StateConfirmationStore())
    runs = RunRegistry(journal, recovery)
    await runs.others.recover_forgotten(set())
    assert {run.run_id: run.state for run in await runs.all_runs()} == {
        "run_0": "waiting",
        "run_1": "interrupted",
    }
    assert "The run run_0 cannot be recovered now" in caplog.text
    await journal.aclose()


async def test_what_follows_a_result_of_the_client_is_kept(tmp_path):
    """The run began behind a tool's message, not a question."""
    sessions, agents = SessionManager(MemoryStorage()), SessionManager(MemoryStorage())
    call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": {}}}
    before = AssistantMessage(content="Let me see.", model="model", tool_calls=[call])
    result = ToolMessage(content="25 degrees", tool_call_id="call_1", tool_name="weather")

    def prepare(session: ChatSession) -> None:
        session.append(UserMessage(content="Weather?"), before, result)
        session.metadata.begin_run("run_1")

    session_id = (await sessions.create("model", prepare=prepare)).session_id
    died, journal = journal_in(tmp_path), journal_in(tmp_path)
    died.begin(replace(head(session_id=session_id), follows=result.message_id)).add(1, deltas(1, 2))
    await died.aclose()
    assert await RunRecovery(journal, sessions, agents, StateConfirmationStore()).recover("run_1")
    last = (await sessions.get(session_id)).stored_messages()[-1]
    assert (last["content"], last.get("interrupted")) == ("1 2 ", True)
    await journal.aclose()


async def test_what_was_about_to_be_stored_twice_is_kept_when_it_never_was(survivor):
    """Whoever recovered the run was killed as well, just before it had stored anything."""
    for _ in range(2):
        writer = await survivor.journal.take("run_1")
        lost = AssistantMessage(content="1 2 ", model="model").message_id
        writer.note("storing", session_id=survivor.session_id, messages=[lost], until=2)
        await survivor.journal.close(writer)
    assert await survivor.recovery.recover("run_1")
    assert await survivor.stored(survivor.sessions, survivor.session_id) == [("1 2 ", True)]


async def test_a_call_of_the_client_beside_one_of_the_server_can_still_be_answered(tmp_path):
    sessions, agents = SessionManager(MemoryStorage()), SessionManager(MemoryStorage())
    calls = [
        {"id": f"call_{name}", "type": "function", "function": {"name": name, "arguments": {}}}
        for name in ("ours", "theirs")
    ]
    reply = AssistantMessage(content="", model="model", tool_calls=calls)

    def prepare(session: ChatSession) -> None:
        session.append(UserMessage(content="Go"), reply)
        session.metadata.begin_run("run_1")

    session_id = (await sessions.create("model", prepare=prepare)).session_id
    died, journal = journal_in(tmp_path), journal_in(tmp_path)
    theirs = {"type": "function", "function": {"name": "theirs", "parameters": {}}}
    writer = died.begin(
        replace(head(session_id=session_id), request=TurnRequest(client_tools=(theirs,)))
    )
    writer.note("storing", session_id=session_id, messages=[reply.message_id], until=0)
    await died.aclose()
    assert await RunRecovery(journal, sessions, agents, StateConfirmationStore()).recover("run_1")
    stored = (await sessions.get(session_id)).stored_messages()
    assert [message.get("tool_call_id") for message in stored[2:]] == ["call_ours"]
    await journal.aclose()


async def test_nothing_is_stored_behind_the_messages_of_a_later_run(survivor):
    def begin(session: ChatSession) -> None:
        session.metadata.begin_run("run_2")
        session.append(UserMessage(content="Next"))

    await survivor.sessions.update(survivor.session_id, begin)
    assert await survivor.recovery.recover("run_1")
    assert await survivor.stored(survivor.sessions, survivor.session_id) == [("Next", None)]
    assert notes_of(await lines_of(survivor.journal))[-1] == "end"


@dataclass
class Replacing:
    """A process that has died while it answered a question again."""

    keep: bool
    said: bool = False
    """Whether readers had heard a part."""
    noted: bool = False
    """Whether a message was about to be stored."""
    stored: bool = False
    """Whether it was."""


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize(
    "stage",
    [{}, {"said": True}, {"said": True, "noted": True}, {"noted": True, "stored": True},
     {"stored": True}],
)  # fmt: skip
async def test_an_answer_that_was_being_replaced_is_shown_or_a_variant(tmp_path, keep, stage):
    dead = Replacing(keep=keep, **stage)
    old = AssistantMessage(content="Old.", model="model")
    new = AssistantMessage(content="1 2 ", model="model")

    def prepare(session: ChatSession) -> None:
        session.append(UserMessage(content="Why?"), old)
        session.metadata.begin_run("run_1")

    def store(session: ChatSession) -> None:
        session.set_aside_answer(keep=keep)
        session.append(new)

    sessions, agents = SessionManager(MemoryStorage()), SessionManager(MemoryStorage())
    session_id = (await sessions.create("model", prepare=prepare)).session_id
    died, journal = journal_in(tmp_path), journal_in(tmp_path)
    begun = replace(
        head(session_id=session_id),
        replaces=old.message_id,
        request=TurnRequest(keep=keep),
    )
    writer = died.begin(begun)
    if dead.said:
        writer.add(1, deltas(1, 2))
    if dead.noted:
        writer.note("storing", session_id=session_id, messages=[new.message_id], until=2)
    if dead.stored:
        await sessions.update(session_id, store)
    await died.aclose()

    recovery = RunRecovery(journal, sessions, agents, StateConfirmationStore())
    assert await recovery.recover("run_1")
    session = await sessions.get(session_id)
    said = [message["content"] for message in session.stored_messages()]
    variants = [[each.content for each in answers] for _, answers in session.variants()]
    has_new = dead.said or dead.stored
    assert said == ["Why?", "1 2 " if has_new else "Old."]
    assert variants == ([["Old.", "1 2 "]] if has_new else [])
    await journal.aclose()
