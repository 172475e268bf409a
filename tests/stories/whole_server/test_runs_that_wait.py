"""Runs that wait for a person outlive the processes that executed them.

``MOCHI_KILL_ROUNDS=50`` kills a server fifty times while it follows a decision.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest

from mochi_server.chat.confirmations.confirmation import dump
from mochi_server.core.clock import moment_of, timestamp
from tests.support.agents import write_skill
from tests.support.chance import moments
from tests.support.confirmations import open_state, stored_confirmations
from tests.support.fake_ollama import FakeOllama
from tests.support.postgresql import needs_postgresql, running_postgresql
from tests.support.run_readers import RunReader
from tests.support.server import Server, running_server
from tests.support.tools import write_tools
from tests.support.turns import call
from tests.support.waiting import until

TOOLS = '''
import os

__all__ = ["note", "keep"]
__destructive__ = ["keep"]


def count(line: str) -> None:
    handle = os.open({counted!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(handle, f"{{line}}\\n".encode())
    os.close(handle)


def note(what: str) -> str:
    """Note something.

    Args:
        what: What is noted.
    """
    count(f"note {{what}}")
    return f"noted {{what}}"


def keep(what: str) -> str:
    """Keep something.

    Args:
        what: What is kept.
    """
    count(f"keep {{what}}")
    return f"kept {{what}}"
'''

RESULTS = {"tool_result", "agent_tool_result"}
LEVELS = ("main", "manager", "clerk")
HOUR = timedelta(hours=1)
SECONDS = 60

KILLS = int(os.environ.get("MOCHI_KILL_ROUNDS", "6"))
LONGEST = 0.6
"""Seconds between a decision and a kill at most."""
SEED = 20261123

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400 + KILLS * 20)]


def by(name: str) -> str:
    """How the system prompt of an agent begins."""
    return f"You are the {name}."


class House:
    """A data folder with tools that count their runs, two agents, and the model of all."""

    def __init__(self, folder: Path, ollama: FakeOllama) -> None:
        self.folder = folder
        self.ollama = ollama
        self.session_id = ""
        self.run_id = ""
        code = TOOLS.format(counted=str(folder / "counted"))
        write_tools(folder / "tools", init=code)
        for name, lines in {"manager": ["agents: [clerk]"], "clerk": []}.items():
            place = folder / "agents" / name
            write_skill(place, f"description: The {name}.", *lines, body=by(name))
            write_tools(place / "tools", init=code)

    def server(self, **settings: Any) -> Any:
        return running_server(data_dir=self.folder, ollama=self.ollama, **settings)

    async def begin(
        self, server: Server, *, agents: Sequence[str] = ("manager",), **settings: Any
    ) -> None:
        """Start a run that nobody reads, of a conversation with tools and agents."""
        settings = {
            "tools": ["note", "keep"],
            "execution_policy": "confirm_destructive",
            "confirmation_timeout": 0,
            **settings,
        }
        self.session_id = await server.new_session(
            tool_settings=settings, agent_settings={"enabled_agents": [*agents]}
        )
        path = f"/chat/{self.session_id}/runs"
        status, run = await server.post(path, {"message": "Have it kept."})
        assert status == 202, run
        self.run_id = run["run_id"]

    async def open(self, server: Server) -> list[dict[str, Any]]:
        """The questions as the inbox has them."""
        status, body = await server.get("/confirmations")
        assert status == 200, body
        return body["confirmations"]

    async def asked(self, server: Server, *, ended: int = 0) -> dict[str, Any]:
        """Wait for a question, and until readers know the results of so many calls."""
        with anyio.fail_after(SECONDS):
            questions = await until(lambda: self.open(server))
            stream = server.events(f"/runs/{self.run_id}/events")
            while ended:
                ended -= (await anext(stream)).event in RESULTS
            await stream.aclose()
        (question,) = questions
        return question

    async def state(self, server: Server) -> str:
        status, run = await server.get(f"/runs/{self.run_id}")
        assert status == 200, run
        return run["state"]

    async def waits(self, server: Server, *questions: dict[str, Any]) -> None:
        """The run waits for these questions and nothing else, and holds its session."""
        assert [each["confirmation_id"] for each in await self.open(server)] == [
            each["confirmation_id"] for each in questions
        ]
        assert await self.state(server) == "waiting"
        _, body = await server.get("/runs", params={"state": "waiting"})
        assert [run["run_id"] for run in body["runs"]] == [self.run_id]
        status, body = await server.post(f"/chat/{self.session_id}", {"message": "And now?"})
        assert (status, body["error"]["code"]) == (409, "SESSION_BUSY")

    async def decide(self, server: Server, question: dict[str, Any], **fields: Any) -> None:
        path = f"/confirmations/{question['confirmation_id']}"
        status, body = await server.post(path, {"approved": True, **fields})
        assert status == 200, body
        status, body = await server.post(path, {"approved": False})
        assert (status, body["error"]["code"]) == (404, "CONFIRMATION_NOT_FOUND")

    async def read(self, server: Server) -> RunReader:
        """Read the run from its beginning to its end."""
        reader = RunReader(self.session_id, self.run_id)
        with anyio.fail_after(SECONDS):
            assert await reader.go_on(server) == 200
        reader.check_whole()
        return reader

    def counted(self) -> Counter[str]:
        path = self.folder / "counted"
        return Counter(path.read_text().splitlines()) if path.exists() else Counter()

    def messages(self) -> list[dict[str, Any]]:
        path = self.folder / "chat_sessions" / f"{self.session_id}.json"
        return json.loads(path.read_bytes())["messages"]

    async def ran(self, server: Server) -> dict[str, Any]:
        """What ran of what was asked, by the id of the question."""
        status, body = await server.get("/confirmations/history")
        assert status == 200, body
        return {each["confirmation"]["confirmation_id"]: each["ran"] for each in body["history"]}

    def age(self, by: timedelta) -> None:
        """Let time go by while no server runs: all that is stored becomes older."""
        for path in self.folder.rglob("*"):
            if path.is_file():
                moment = path.stat().st_mtime - by.total_seconds()
                os.utime(path, (moment, moment))
        with open_state(self.folder) as state:
            for name, value in stored_confirmations(state):
                asked, *decided = map(json.loads, value.splitlines())
                for fields in (asked, *decided):
                    for key in ("asked_at", "expires_at", "decided_at"):
                        if fields.get(key) is not None:
                            fields[key] = timestamp(moment_of(fields[key]) - by)
                content = b"\n".join(map(dump, (asked, *decided)))
                state.execute("UPDATE state_rows SET value = ? WHERE id = ?", (content, name))

    def move_confirmations_to_files(self) -> None:
        """Keep them as servers did before they had a state."""
        folder = self.folder / ".mochi"
        (folder / "confirmations").mkdir(mode=0o700)
        with open_state(self.folder) as state:
            for name, value in stored_confirmations(state):
                (folder / "confirmations" / f"{name}.json").write_bytes(value)
        for path in folder.glob("state.*"):
            path.unlink()


@pytest.fixture
def house(tmp_path: Path, ollama: FakeOllama) -> House:
    ollama.one_at_a_time = False
    return House(tmp_path, ollama)


def script(ollama: FakeOllama, *levels: str, calls: Sequence[dict[str, Any]]) -> None:
    """Each level notes its name and calls the next one; the last makes the calls; all report."""
    called = [call("agent", agent=name, instruction="Have it kept.") for name in levels[1:]]
    for level, next_call in zip(levels, [[each] for each in called] + [[*calls]], strict=True):
        match = None if level == "main" else by(level)
        if match is not None:
            ollama.reply([f"{level} plans."], match=match)
        ollama.reply(
            [f"{level} begins. "], match=match, tool_calls=[call("note", what=level), *next_call]
        )
    for level in reversed(levels):
        ollama.reply([f"{level} ends."], match=None if level == "main" else by(level))


def results(reader: RunReader) -> dict[str, list[dict[str, Any]]]:
    """The results of calls by the name of the tool."""
    found: dict[str, list[dict[str, Any]]] = {}
    for event in reader.events:
        if event.event in RESULTS:
            found.setdefault(event.data["tool_name"], []).append(event.data)
    return found


def check_roles(house: House, *roles: str) -> None:
    """The session has exactly these messages, and each call has one result."""
    messages = house.messages()
    assert [message["role"] for message in messages] == list(roles)
    calls = [each["id"] for m in messages for each in m.get("tool_calls") or ()]
    assert sorted(calls) == sorted(m["tool_call_id"] for m in messages if m["role"] == "tool")
    assert not any(message.get("interrupted") for message in messages)


async def test_a_question_three_levels_deep_outlives_two_restarts_and_an_hour(
    house: House,
) -> None:
    """It is decided at another process, and each tool has run once."""
    script(house.ollama, *LEVELS, calls=[call("keep", what="it")])
    async with house.server() as server:
        await house.begin(server)
        question = await house.asked(server, ended=2)
        assert question["agent_name"] == "clerk"
        assert question["expires_at"] is None
        await house.waits(server, question)
        assert await server.stop() == 0
        assert "Traceback" not in server.log, server.log
    house.move_confirmations_to_files()
    async with house.server() as server:
        await house.waits(server, question)
        await server.stop(signal.SIGKILL)
    house.age(HOUR)
    async with house.server() as one, house.server() as other:
        await house.waits(one, question)
        await house.waits(other, question)
        await house.decide(other, question)
        reader = await house.read(one)
        assert (await house.read(other)).kinds[-2:] == ["message_complete", "done"]
        assert await house.state(one) == await house.state(other) == "done"
        assert await house.ran(one) == {question["confirmation_id"]: {"what": "it"}}
        assert await house.open(other) == []
        status, answer = await other.post(f"/chat/{house.session_id}", {"message": "And?"})
        assert (status, answer["message"]["content"]) == (200, "You said: And?")
        for server in (one, other):
            assert "Traceback" not in server.log, server.log
    kinds = Counter(reader.kinds)
    for kind in ("tool_call_confirmation_required", "tool_call_confirmation_decided"):
        assert kinds[kind] == 1
    assert kinds["agent_start"] == kinds["agent_complete"] == 2
    assert all(e.data["success"] for e in reader.events if e.event == "agent_complete")
    found = results(reader)
    assert [each["result"] for each in found["keep"]] == ["kept it"]
    assert sorted(each["result"] for each in found["note"]) == [
        *("noted clerk", "noted main", "noted manager")
    ]
    assert len(found["agent"]) == 2
    assert reader.text == "main begins. main ends."
    assert house.counted() == Counter(["keep it", "note clerk", "note main", "note manager"])
    messages = house.messages()
    assert [m["role"] for m in messages[:5]] == ["user", "assistant", "tool", "tool", "assistant"]
    assert messages[4]["content"] == "main ends."
    assert len(house.ollama.chats) == 9


@pytest.mark.parametrize("shared", [False, pytest.param(True, marks=needs_postgresql)])
async def test_a_question_of_a_conversation_that_is_not_kept_ends_with_its_process(
    house: House, shared: bool
) -> None:
    async with AsyncExitStack() as stack:
        settings = {}
        if shared:
            settings["database_url"] = (await stack.enter_async_context(running_postgresql())).url
        await ends_with_its_process(house, settings)


async def ends_with_its_process(house: House, settings: dict[str, Any]) -> None:
    script(house.ollama, "main", calls=[call("keep", what="it")])
    body = {
        "model": "qwen3:14b",
        "messages": [{"role": "user", "content": "Have it kept."}],
        "tools": [{"type": "mochi", "names": ["note", "keep"]}],
    }

    async def ask(server: Server) -> None:
        with contextlib.suppress(aiohttp.ClientError):  # it is cut off
            await server.http.post(f"{server.url}/v1/chat/completions", json=body)

    async with house.server(**settings) as server, anyio.create_task_group() as tasks:
        tasks.start_soon(ask, server)
        await until(lambda: house.open(server))
        await server.stop(signal.SIGKILL)
    async with house.server(**settings) as server:

        async def state() -> str:
            [run] = (await server.get("/runs"))[1]["runs"]
            return str(run["state"])

        ended = await until(state, lambda state: state in {"interrupted", "failed"})
        assert (ended, await house.open(server)) == ("interrupted", [])


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
async def test_a_question_whose_reader_is_cut_off_with_the_server_waits_still(
    house: House, how: signal.Signals
) -> None:
    """The run would be cancelled by a reader that leaves; a server that ends is none."""
    script(house.ollama, "main", calls=[call("keep", what="it")])
    async with house.server() as other:
        async with house.server() as server:
            settings = {"tools": ["note", "keep"], "execution_policy": "confirm_destructive"}
            house.session_id = await server.new_session(tool_settings=settings)
            reader = RunReader(house.session_id)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(reader.send, server, "Have it kept.")
                await reader.has("tool_call_confirmation_required")
                house.run_id = reader.run_id
                question = await house.asked(server)
                await server.stop(how)
        await house.waits(other, question)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(reader.go_on, other)
            await house.decide(other, question)
        assert "Traceback" not in other.log, other.log
    reader.check_whole()
    assert reader.text == "main begins. main ends."
    assert house.counted() == Counter(["keep it", "note main"])
    check_roles(house, "user", "assistant", "tool", "tool", "assistant")


async def test_of_two_calls_the_one_that_was_decided_is_not_asked_again(
    house: House,
) -> None:
    """Both run once, after the second one is decided."""
    script(house.ollama, *LEVELS, calls=[call("keep", what="a"), call("keep", what="b")])
    async with house.server() as other:
        async with house.server() as server:
            await house.begin(server)
            first = await house.asked(server, ended=2)
            await house.decide(server, first)
            second = await house.asked(server)
            await server.stop(signal.SIGKILL)
        await house.waits(other, second)
        await house.decide(other, second)
        reader = await house.read(other)
        assert await house.ran(other) == {
            first["confirmation_id"]: {"what": "a"},
            second["confirmation_id"]: {"what": "b"},
        }
        assert "Traceback" not in other.log, other.log
    kinds = Counter(reader.kinds)
    assert kinds["tool_call_confirmation_required"] == 2
    assert kinds["tool_call_confirmation_decided"] == 2
    assert {each["result"] for each in results(reader)["keep"]} == {"kept a", "kept b"}
    assert len(results(reader)["keep"]) == 2
    notes = [f"note {level}" for level in LEVELS]
    assert house.counted() == Counter(["keep a", "keep b", *notes])
    assert reader.text == "main begins. main ends."


async def test_of_two_agents_the_one_that_has_ended_does_not_run_again(
    house: House,
) -> None:
    """The call of one was decided and has run; the other one waits still."""
    both = [call("agent", agent=name, instruction=f"Keep {name}.") for name in ("manager", "clerk")]
    house.ollama.reply(["main begins. "], tool_calls=both)
    for name in ("manager", "clerk"):
        house.ollama.reply([f"{name} plans."], match=by(name))
        house.ollama.reply(["Now."], match=by(name), tool_calls=[call("keep", what=name)])
        house.ollama.reply([f"{name} ends."], match=by(name))
    house.ollama.reply(["main ends."])
    async with house.server() as other:
        async with house.server() as server:
            await house.begin(server, agents=["manager", "clerk"])
            asked = await until(lambda: house.open(server), lambda asked: len(asked) >= 2)
            early, late = sorted(asked, key=lambda each: str(each["agent_name"]))
            await house.decide(server, early)
            assert await house.asked(server, ended=2) == late
            assert house.counted() == Counter(["keep clerk"])
            await server.stop(signal.SIGKILL)
        await house.waits(other, late)
        await house.decide(other, late)
        reader = await house.read(other)
        assert "Traceback" not in other.log, other.log
    assert [each["result"] for each in results(reader)["keep"]] == ["kept clerk", "kept manager"]
    assert all(each["success"] for each in results(reader)["agent"])
    assert len(results(reader)["agent"]) == Counter(reader.kinds)["agent_complete"] == 2
    assert house.counted() == Counter(["keep clerk", "keep manager"])
    assert reader.text == "main begins. main ends."
    check_roles(house, "user", "assistant", "tool", "tool", "assistant")


async def test_a_question_that_has_expired_meanwhile_lets_the_run_go_on(
    house: House,
) -> None:
    script(house.ollama, *LEVELS, calls=[call("keep", what="it")])
    async with house.server() as server:
        await house.begin(server, confirmation_timeout=1800)
        question = await house.asked(server, ended=2)
        await server.stop(signal.SIGKILL)
    house.age(HOUR)
    async with house.server() as server:
        reader = await house.read(server)
        path = f"/confirmations/{question['confirmation_id']}"
        status, body = await server.post(path, {"approved": True})
        assert (status, body["error"]["code"]) == (408, "TOOL_CONFIRMATION_TIMEOUT")
        assert "Traceback" not in server.log, server.log
    (result,) = results(reader)["keep"]
    assert (result["success"], result["code"]) == (False, "TOOL_CONFIRMATION_TIMEOUT")
    assert reader.text == "main begins. main ends."
    assert house.counted() == Counter(f"note {level}" for level in LEVELS)


async def test_a_run_that_waits_is_stopped_after_a_restart(
    house: House,
) -> None:
    script(house.ollama, *LEVELS, calls=[call("keep", what="it")])
    async with house.server() as server:
        await house.begin(server)
        question = await house.asked(server, ended=2)
        await server.stop(signal.SIGKILL)
    async with house.server() as server:
        await house.waits(server, question)
        path = f"/runs/{house.run_id}/stop"
        status, answer = await server.post(path)
        assert (status, answer["state"]) == (200, "stopped")
        assert await server.post(path) == (200, answer)
        assert await house.open(server) == []
        path = f"/confirmations/{question['confirmation_id']}"
        status, body = await server.post(path, {"approved": True})
        assert (status, body["error"]["code"]) == (404, "CONFIRMATION_NOT_FOUND")
        reader = await house.read(server)
        stored = house.messages()
        assert answer["message"] == next(m for m in stored[::-1] if m["role"] == "assistant")
        calls = [each["id"] for each in stored[1]["tool_calls"]]
        assert calls == [m["tool_call_id"] for m in stored if m["role"] == "tool"]
        house.ollama.forget()
        status, answer = await server.post(f"/chat/{house.session_id}", {"message": "And?"})
        assert (status, answer["message"]["content"]) == (200, "You said: And?")
        assert "Traceback" not in server.log, server.log
    assert reader.text == "main begins. "
    assert house.counted() == Counter(f"note {level}" for level in LEVELS[:-1])


async def test_a_server_killed_while_it_follows_a_decision_runs_nothing_twice(
    house: House,
) -> None:
    """Another one brings the run to an end: done, or interrupted if its model had been asked."""
    rng = random.Random(SEED)
    states: Counter[str] = Counter()
    async with house.server() as other:
        for number, life in enumerate(moments(rng, KILLS, LONGEST)):
            levels = LEVELS if number % 2 else ("main",)
            what = f"it {number}"
            script(house.ollama, *LEVELS, calls=[call("keep", what=what)])
            async with house.server() as server:
                await house.begin(server)
                question = await house.asked(server, ended=len(levels) - 1)
                await house.decide(server, question)
                await anyio.sleep(life)
                await server.stop(signal.SIGKILL)
            reader = await house.read(other)
            state = await house.state(other)
            states[state] += 1
            (result,) = results(reader).get("keep", [{"success": False}])
            assert house.counted()[f"keep {what}"] <= 1
            if result["success"]:
                assert house.counted()[f"keep {what}"] == 1
            if state == "done":
                assert reader.text == "main begins. main ends."
            else:
                assert state == "interrupted"
                assert reader.events[-2].data["code"] == "RUN_INTERRUPTED"
            assert await house.open(other) == []
            messages = house.messages()
            calls = [each["id"] for m in messages for each in m.get("tool_calls") or ()]
            assert calls == [m["tool_call_id"] for m in messages if m["role"] == "tool"]
            house.ollama.forget()
        assert "Traceback" not in other.log, other.log
    sys.stdout.write(f"{states}\n")
