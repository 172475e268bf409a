"""Whose the sessions are that a turn makes and uses, and with which rights work goes on later."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from mochi_server.config import load_settings
from mochi_server.core.caller import SERVER, Caller, Right, rights_of, serving
from mochi_server.errors import Forbidden, MochiError, RunNotFound, SessionNotFound, SpaceUsedUp
from mochi_server.protocol.turn_request import TurnRequest
from mochi_server.runtime import Runtime
from mochi_server.sessions.types import AgentSettings, ToolExecutionPolicy, ToolSettings
from tests.support.fake_ollama import FakeOllama
from tests.support.server import environment, run_command
from tests.support.tools import write_tools
from tests.support.turns import Bench, bench, kinds, read_all, text_of

TOOLS = '''
def write(path: str) -> str:
    """Write a file."""
    return f"wrote {path}"


__all__ = ["write"]
'''


def owner(name: str, *rights: Right) -> Caller:
    return Caller(name=name, owner=name, rights=rights_of(*(rights or ("chat", "tools"))))


ALICE, BOB = owner("alice"), owner("bob")


@pytest.fixture
async def engine(tmp_path: Path, ollama: FakeOllama) -> AsyncIterator[Bench]:
    write_tools(tmp_path / "tools", init=TOOLS)
    place = tmp_path / "agents" / "coder"
    place.mkdir(parents=True)
    (place / "SKILL.md").write_text("---\ndescription: The coder.\n---\n\nYou are the coder.\n")
    async with bench(tmp_path, ollama) as found:
        yield found


def order_agent(ollama: FakeOllama, **arguments: str) -> None:
    call = {"agent": "coder", "instruction": "Work.", **arguments}
    ollama.reply(tool_calls=[{"name": "agent", "arguments": call}])


async def session_with_agent(engine: Bench) -> str:
    return await engine.session(
        agent_settings=AgentSettings(enabled_agents=["coder"]),
        tool_settings=ToolSettings(execution_policy=ToolExecutionPolicy.NEVER_CONFIRM),
    )


async def chats_seen(engine: Bench) -> list[str]:
    page = await engine.runtime.agent_sessions.list()
    return [str(entry["session_id"]) for entry in page.entries]


async def test_a_conversation_of_an_agent_belongs_to_whom_its_session_belongs(
    engine: Bench, ollama: FakeOllama
) -> None:
    with serving(ALICE):
        session = await session_with_agent(engine)
    order_agent(ollama)
    for text in ("I plan.", "I work.", "It is done.", "Done."):
        ollama.reply([text])
    events = await engine.turn(session)  # of one who sees all
    assert "agent_complete" in kinds(events)
    with serving(ALICE):
        (chat,) = await chats_seen(engine)
    with serving(BOB):
        assert await chats_seen(engine) == []
        own = await session_with_agent(engine)
        order_agent(ollama, session_id=chat)
        ollama.reply(["There is none."])
        events = await engine.turn(own)
    (result,) = [event.payload() for event in events if event.type == "tool_result"]
    assert chat in str(result)
    assert result["success"] is False


async def test_each_owner_has_room_of_its_own(tmp_path: Path) -> None:
    settings = load_settings(data_dir=tmp_path, environment="test", max_owner_mb=0.03)
    async with Runtime(settings) as runtime:
        for caller in (ALICE, BOB, SERVER):
            with serving(caller):
                first = await runtime.sessions.create("m", system_prompt="x" * 9_000)
                await runtime.attachments.put(first.session_id, bytes(9_000), "text/plain")
                with pytest.raises(SpaceUsedUp):
                    await runtime.attachments.put(first.session_id, bytes(3_000), "text/plain")
                with pytest.raises(SpaceUsedUp):
                    await runtime.sessions.create("m", system_prompt="x" * 3_000)
                await runtime.sessions.delete(first.session_id)
                await runtime.sessions.create("m", system_prompt="x" * 9_000)


async def test_a_message_in_the_queue_has_the_rights_of_who_sent_it(
    engine: Bench, ollama: FakeOllama
) -> None:
    control = engine.runtime.run_control
    gate = anyio.Event()
    tools = ToolSettings(tools=["write"], execution_policy=ToolExecutionPolicy.NEVER_CONFIRM)
    with serving(ALICE):
        session = await engine.session()
    ollama.reply(["First."], gate=gate)
    with serving(ALICE):
        first = await control.start(session, TurnRequest(message="one"))
    with serving(owner("alice", "chat")):
        second = await control.start(session, TurnRequest(message="two"), when_busy="queue")
    with serving(BOB):
        with pytest.raises(SessionNotFound):
            await control.start(session, TurnRequest(message="three"), when_busy="queue")
        for run in (first, second):
            with pytest.raises(RunNotFound):
                await control.stop(run.run_id)
        assert await control.list() == []
    async with engine.runtime.sessions.edit(session) as changed:
        changed.metadata.tool_settings = tools
    gate.set()
    assert text_of(await read_all(first.reader)) == "First."
    (error,) = [e.payload() for e in await read_all(second.reader) if e.type == "error"]
    assert error["code"] == Forbidden.code


async def test_what_is_begun_in_the_same_way_by_two_people_is_kept_apart(
    engine: Bench, ollama: FakeOllama
) -> None:
    made: dict[str, str] = {}
    for caller in (ALICE, BOB):
        with serving(caller):
            made[caller.name] = (
                await engine.runtime.sessions.create("m", session_id=None)
            ).session_id
            with pytest.raises(SessionNotFound if caller is BOB else MochiError):
                await engine.runtime.sessions.create("m", session_id=made["alice"])
    with serving(BOB):
        (entry,) = (await engine.runtime.sessions.list()).entries
        found = await engine.runtime.search.search("-nothing")
    assert entry["session_id"] == made["bob"]
    assert [each["session_id"] for each in found.sessions] in ([], [made["bob"]])


async def test_a_search_does_not_tell_how_many_sessions_of_others_have_a_word(
    engine: Bench,
) -> None:
    create, search = engine.runtime.sessions.create, engine.runtime.search.search

    async def answers() -> list[list[Any]]:
        with serving(BOB):
            found = [await search(text) for text in ("oak", "elm", "oak elm")]
        return [[(e["title"], e["score"]) for e in each.sessions] for each in found]

    with serving(BOB):
        for title in ("elm elm elm oak", "oak oak oak elm", "birch", "beech", "pine"):
            await create("m", labels={"title": title})
    before = await answers()
    assert [len(each) for each in before] == [2, 2, 2]
    with serving(ALICE):
        for number in range(5):
            await create("m", labels={"title": f"elm {number}"})
            await create("m", labels={"title": f"fir {number}"})
    assert await answers() == before


async def test_a_feed_has_what_its_reader_sees(engine: Bench, ollama: FakeOllama) -> None:
    tools = ToolSettings(tools=["write"], execution_policy=ToolExecutionPolicy.ALWAYS_CONFIRM)
    readers: dict[str, Any] = {}
    for caller in (ALICE, BOB):
        with serving(caller):
            readers[caller.name] = await engine.runtime.confirmation_feed.reader()
    gone = Caller(name="carol", is_valid=lambda: False)
    with serving(gone):
        readers["carol"] = await engine.runtime.confirmation_feed.reader()
    ollama.reply(tool_calls=[{"name": "write", "arguments": {"path": "a"}}])
    with serving(ALICE):
        log = await engine.start(await engine.session(tool_settings=tools))
    with anyio.fail_after(30):
        (number, change), *_ = await readers["alice"].next()
        assert await readers["carol"].next() is None, "its token was revoked"
    assert (number, change.confirmation.tool_name) == (1, "write")
    assert change.confirmation.owner == "alice"
    assert "owner" not in change.confirmation.payload()
    ollama.reply(["Denied."])
    with serving(ALICE):
        await engine.runtime.inbox.decide(change.confirmation.confirmation_id, approved=False)
    await read_all(log)
    readers["bob"].poke()
    with anyio.fail_after(30):
        assert await readers["bob"].next() == []
    for reader in readers.values():
        reader.leave()


async def test_a_command_that_starts_a_server_may_use_it(tmp_path: Path) -> None:
    env = environment(data_dir=tmp_path, environment="test", test_words_per_second=0)
    (tmp_path / "tokens.json").write_text(json.dumps({"tokens": []}))
    (tmp_path / "tokens.json").chmod(0o600)
    ended = await run_command("ask", "Hi", cwd=tmp_path, env=env)
    assert (ended.code, bool(ended.out.strip())) == (0, True), ended.err
