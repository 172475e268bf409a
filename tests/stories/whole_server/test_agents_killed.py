"""Servers that die while an agent works: both files are sound, nobody is left, and all goes on."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest

from tests.support.agents import write_skill
from tests.support.chance import moments
from tests.support.fake_ollama import FakeOllama, Reply
from tests.support.server import Server, running_server
from tests.support.session_files import check_calls
from tests.support.sse import ServerEvent
from tests.support.tool_folders import is_gone
from tests.support.turns import call, roles
from tests.support.waiting import until

CODE = '''
import os
import time
from pathlib import Path

PLACE = Path(__file__).parent.parent.parent / "digging"

__all__ = ["dig", "look"]
__destructive__ = ["dig"]


def look() -> str:
    """Look."""
    return "a field"


def dig(seconds: float) -> str:
    """Dig.

    Args:
        seconds: for how long
    """
    PLACE.write_text(str(os.getpid()))
    time.sleep(seconds)
    return "a hole"
'''

ROUNDS = int(os.environ.get("MOCHI_KILL_ROUNDS", "4"))
LONGEST = 0.8
"""Seconds of a turn's life at most, which is about what it takes."""
SEED = 20261122

pytestmark = [
    *(pytest.mark.slow, pytest.mark.timeout(400 + ROUNDS * 3)),
    pytest.mark.usefixtures("fresh_tools"),  # they are found below their server
]


def digger(folder: Path) -> None:
    place = folder / "agents" / "digger"
    write_skill(place, "description: Digs.", body="You are the digger.")
    (place / "digger.py").write_text(CODE)
    text = "from .digger import *\nfrom .digger import __all__, __destructive__\n"
    (place / "__init__.py").write_text(text)


async def session_of(server: Server, policy: str) -> str:
    return await server.new_session(
        agent_settings={"enabled_agents": ["digger"]}, tool_settings={"execution_policy": policy}
    )


def descendants(pid: int) -> set[int]:
    """All processes below one."""
    parents: dict[int, int] = {}
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            with suppress(OSError):
                status = (place / "stat").read_text().rpartition(")")[2].split()
                parents[int(place.name)] = int(status[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


async def kill(server: Server) -> None:
    """SIGKILL, and none of the processes that it had started stays."""
    children = descendants(server.pid)
    server.process.send_signal(signal.SIGKILL)
    await server.process.wait()
    await until(lambda: all(is_gone(pid) for pid in children))


# The moments


async def told(stream: AsyncIterator[ServerEvent], name: str) -> list[ServerEvent]:
    """Events up to one of this name."""
    found = []
    async for event in stream:
        found.append(event)
        if event.event == name:
            return found
    raise AssertionError(f"no {name} in {[event.event for event in found]}")


async def in_journal(folder: Path, text: bytes) -> None:
    """Until a kill can no longer take this part of a reply."""

    def is_there() -> bool:
        for path in (folder / ".mochi").glob("runs.sqlite3*"):
            with suppress(FileNotFoundError):  # the log of SQLite comes and goes
                if text in path.read_bytes():
                    return True
        return False

    await until(is_there)


async def in_planning(folder: Path, ollama: FakeOllama, stream: Any) -> list[ServerEvent]:
    """While it says its plan, of which the journal has the beginning."""
    ollama.reply(["I dig ", "a hole."], gate=asyncio.Event(), pause_after=1)
    found = await told(stream, "agent_planning")
    await in_journal(folder, b"I dig ")
    return found


async def before_its_first_word(folder: Path, ollama: FakeOllama, stream: Any) -> list[ServerEvent]:
    """While its model is silent."""
    ollama.reply(["I dig."], gate=asyncio.Event())
    found = await told(stream, "agent_start")
    await ollama.requested(2, "/api/chat")
    return found


async def while_it_speaks(folder: Path, ollama: FakeOllama, stream: Any) -> list[ServerEvent]:
    """In the middle of a reply of its execution, of which the journal has the beginning."""
    ollama.reply(["I dig."])
    ollama.reply(["Now ", "dig."], gate=asyncio.Event(), pause_after=1)
    found = await told(stream, "agent_execution")
    await in_journal(folder, b"Now ")
    return found


async def while_its_tool_runs(folder: Path, ollama: FakeOllama, stream: Any) -> list[ServerEvent]:
    """In a tool that takes long; another call of the same reply has its result."""
    ollama.reply(["I dig."])
    ollama.reply(["So."], tool_calls=[call("look"), call("dig", seconds=300)])
    found = await told(stream, "agent_tool_result")
    place = folder / "digging"
    await until(lambda: place.exists() and place.read_text().isdigit())
    assert not is_gone(int(place.read_text()))
    return found


async def while_it_is_asked(folder: Path, ollama: FakeOllama, stream: Any) -> list[ServerEvent]:
    """A person has not answered yet."""
    ollama.reply(["I dig."])
    ollama.reply(["So."], tool_calls=[call("look"), call("dig", seconds=1)])
    return await told(stream, "tool_call_confirmation_required")


Moment = Callable[..., Awaitable[list[ServerEvent]]]
Left = tuple[list[str], list[str]]
"""Who has said something in the agent's file, and the names of the calls that are open."""

WORKING: Left = (["system", "user", "assistant", "assistant"], ["look", "dig"])
MOMENTS: list[tuple[Moment, str, Left]] = [
    (before_its_first_word, "never_confirm", (["system", "user"], [])),
    (in_planning, "never_confirm", (["system", "user"], [])),
    (while_it_speaks, "never_confirm", (["system", "user", "assistant"], [])),
    (while_its_tool_runs, "never_confirm", WORKING),
    (while_it_is_asked, "confirm_destructive", WORKING),
]

PARTIAL: dict[Moment, str] = {in_planning: "I dig ", while_it_speaks: "Now "}
"""What the killed reply had said."""


@pytest.mark.parametrize(
    ("moment", "policy", "left"),
    MOMENTS,
    ids=[moment.__name__ for moment, _, _ in MOMENTS],
)
async def test_a_killed_server_leaves_an_agent_that_can_be_continued(
    tmp_path: Path,
    ollama: FakeOllama,
    moment: Moment,
    policy: str,
    left: Left,
) -> None:
    """Both files, the processes of its tools, the next turn, and what the model is then told."""
    agent_roles, open_calls = left
    digger(tmp_path)
    async with running_server(data_dir=tmp_path, ollama=ollama) as server:
        session = await session_of(server, policy)
        ollama.reply(tool_calls=[call("agent", agent="digger", instruction="Dig a hole.")])
        path = f"/chat/{session}/stream"
        async with aclosing(server.stream(path, {"message": "A hole, please."})) as stream:
            with anyio.fail_after(60):
                events = await moment(tmp_path, ollama, stream)
            await kill(server)
            with suppress(aiohttp.ClientError, OSError):
                await told(stream, "done")
    [start] = [event.data for event in events if event.event == "agent_start"]
    agent = start["session_id"]
    chat_file = tmp_path / "chat_sessions" / f"{session}.json"
    own_file = agent_file(tmp_path, agent)
    assert roles(check(chat_file)) == ["user", "assistant"]
    messages = check(own_file)
    assert roles(messages) == agent_roles
    calls = messages[-1].get("tool_calls") or []
    assert [each["function"]["name"] for each in calls] == open_calls
    ollama.one_at_a_time = False  # what the dead one asked for may still be generated
    before = len(ollama.chats)
    async with running_server(data_dir=tmp_path, ollama=ollama) as server:
        if moment is while_it_is_asked:  # the run waits still
            status, answer = await server.post(f"/chat/{session}/stop")
            assert (status, answer["state"]) == (200, "stopped")
        answer = await continued(server, session, ollama, agent)
        [entry] = answer["tool_calls_executed"]
        assert entry["success"] is True
        assert entry["result"] == f"Session ID: {agent}\n\nI go on.\n\nGoing on.\n\nA hole."
        assert await server.stop() == 0
        assert "Traceback" not in server.log, server.log
    check_calls(check(chat_file), whole=True)
    messages = check(own_file)
    check_calls(messages, whole=True)
    outer, plan = ollama.chats[before : before + 2]
    assert roles(outer["messages"]) == ["user", "assistant", "tool", "user"]
    assert "interrupted" in outer["messages"][2]["content"]
    kept = ["tool" for _ in open_calls]
    if text := PARTIAL.get(moment):  # its partial reply, from the journal
        kept = ["assistant"]
        partial_reply = messages[len(agent_roles)]
        assert (partial_reply["content"], partial_reply["interrupted"]) == (text, True)
    assert roles(plan["messages"]) == [*agent_roles, *kept, "user", "user"]
    assert [m["content"] for m in messages if m["role"] == "user"] == ["Dig a hole.", "Go on."]


async def test_agents_killed_at_any_moment_leave_every_file_sound(
    tmp_path: Path, ollama: FakeOllama
) -> None:
    """Two agents at a time, again and again on the same sessions."""
    digger(tmp_path)
    ollama.one_at_a_time = False
    rng = random.Random(SEED)
    async with running_server(data_dir=tmp_path, ollama=ollama) as server:
        session = await session_of(server, "never_confirm")
    chat = tmp_path / "chat_sessions" / f"{session}.json"
    died = 0
    for life in moments(rng, ROUNDS, LONGEST):
        script_two(ollama, agent_sessions(tmp_path)[-1:])
        async with running_server(data_dir=tmp_path, ollama=ollama) as server:
            died += await dies(server, session, ollama, life)
        ollama.forget()
        for path in (chat, *map(partial(agent_file, tmp_path), agent_sessions(tmp_path))):
            check_calls(check(path), whole=False)
    assert died  # else nothing was killed in mid-turn
    async with running_server(data_dir=tmp_path, ollama=ollama) as server:
        sessions = agent_sessions(tmp_path)
        assert sessions
        _, chats = await server.get("/agents/chats")
        assert chats["problems"] == []
        assert {row["session_id"] for row in chats["sessions"]} == set(sessions)
        for agent in sessions:
            answer = await continued(server, session, ollama, agent)
            assert answer["tool_calls_executed"][0]["success"] is True
            check_calls(check(agent_file(tmp_path, agent)), whole=True)
        check_calls(check(chat), whole=True)


def script_two(ollama: FakeOllama, known: list[str]) -> None:
    """Two agents that dig for a while, the first one in a session that is there already."""
    ollama.default_reply = Reply(["Well, ", "well."], delay=0.05)
    calls = [call("agent", agent="digger", instruction="Dig.") for _ in range(2)]
    for session_id in known:
        calls[0]["arguments"]["session_id"] = session_id
    ollama.reply(["So."], tool_calls=calls)
    who = "You are the digger."
    for _ in calls:
        ollama.reply(["A ", "plan."], delay=0.05, match=who)
    for _ in calls:
        work = [call("look"), call("dig", seconds=0.3)]
        ollama.reply(["Now ", "then."], delay=0.05, tool_calls=work, match=who)


async def dies(server: Server, session: str, ollama: FakeOllama, after: float) -> bool:
    """Kill it so many seconds into a turn; whether the turn died with it."""
    running = asyncio.ensure_future(server.post(f"/chat/{session}", {"message": "Dig."}))
    await ollama.requested(len(ollama.chats) + 1, "/api/chat")
    await anyio.sleep(after)
    await kill(server)
    try:
        await running
    except (aiohttp.ClientError, OSError):
        return True
    return False


async def continued(server: Server, session: str, ollama: FakeOllama, agent: str) -> Any:
    """The answer of a turn in which the agent goes on with this session."""
    again = call("agent", agent="digger", instruction="Go on.", session_id=agent)
    ollama.reply(tool_calls=[again])
    for text in ("I go on.", "Going on.", "A hole.", "There is a hole."):
        ollama.reply([text])
    status, answer = await server.post(f"/chat/{session}", {"message": "Where is it?"})
    assert (status, answer["message"]["content"]) == (200, "There is a hole.")
    return answer


def agent_file(folder: Path, session_id: str) -> Path:
    return folder / "agents" / "agent_chats" / f"{session_id}.json"


def agent_sessions(folder: Path) -> list[str]:
    return sorted(path.stem for path in (folder / "agents" / "agent_chats").glob("*.json"))


def check(path: Path) -> list[dict[str, Any]]:
    """The messages of a session's file, which is whole."""
    document: dict[str, Any] = json.loads(path.read_bytes())
    assert list(document) == ["metadata", "messages"]
    metadata, messages = document["metadata"], document["messages"]
    assert (metadata["session_id"], metadata["format_version"]) == (path.stem, "1.3")
    assert metadata["message_count"] == len(messages)
    for message in messages:
        assert message["message_id"]
        assert message["timestamp"]
    return messages
