"""Turns in which the model delegates to agents."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import anyio
import pytest

from mochi_server.config import load_settings
from mochi_server.protocol.events import AgentStart
from mochi_server.protocol.turn_request import TurnRequest
from mochi_server.runtime import Runtime
from mochi_server.sessions.storage.memory import MemoryStorage
from mochi_server.sessions.types import AgentSettings, ToolExecutionPolicy, ToolSettings
from tests.support.fake_ollama import FakeOllama
from tests.support.turns import MODEL, Bench, bench, call, kinds, of_kind, roles, text_of

CODER = '''
__all__ = ["read", "write"]
__destructive__ = ["write"]


def read(path: str) -> str:
    """Read a file."""
    return f"text of {path}"


def write(path: str, text: str) -> str:
    """Write a file."""
    return f"wrote {len(text)} characters to {path}"
'''


def write_agent(folder: Path, name: str, *lines: str, code: str = CODER) -> None:
    place = folder / "agents" / name
    place.mkdir(parents=True)
    head = "\n".join(["---", f"description: The {name} of the house.", *lines, "---"])
    (place / "SKILL.md").write_text(f"{head}\n\nYou are the {name}.\n")
    (place / f"{name}.py").write_text(code)
    (place / "__init__.py").write_text(
        f"from .{name} import *\nfrom .{name} import __all__, __destructive__\n"
    )


@pytest.fixture
async def engine(tmp_path: Path, ollama: FakeOllama) -> AsyncIterator[Bench]:
    write_agent(tmp_path, "coder")
    async with bench(tmp_path, ollama) as found:
        yield found


async def session_with(engine: Bench, *agents: str, policy: str = "never_confirm") -> str:
    return await engine.session(
        agent_settings=AgentSettings(enabled_agents=list(agents)),
        tool_settings=ToolSettings(execution_policy=ToolExecutionPolicy(policy)),
    )


async def test_an_agent_plans_works_and_its_output_goes_back(
    engine: Bench, ollama: FakeOllama
) -> None:
    """Events, requests and both files."""
    ollama.reply(tool_calls=[call("agent", agent="coder", instruction="Read a.txt.")])
    ollama.reply(["I will ", "read it."])
    ollama.reply(["First I read."], tool_calls=[call("read", path="a.txt")])
    ollama.reply(["It says: text of a.txt."])
    ollama.reply(["The file says something."])
    session = await session_with(engine, "coder")
    events = await engine.turn(session, "What is in a.txt?")
    assert kinds(events) == [
        "tool_call",
        "agent_start",
        "agent_planning",
        "agent_execution",
        "agent_tool_call",
        "agent_tool_result",
        "agent_execution",
        "agent_complete",
        "tool_result",
        "tool_continuation_start",
        "content_delta",
        "message_complete",
        "done",
    ]
    start = of_kind(events, "agent_start")[0]
    complete = of_kind(events, "agent_complete")[0]
    assert complete["success"] is True
    assert complete["output"].startswith(f"Session ID: {start['session_id']}\n")
    assert of_kind(events, "tool_result")[0]["result"] == complete["output"]
    for part in ("I will read it.", "First I read.", "read", "text of a.txt", "It says"):
        assert part in complete["output"]
    outer, planning, working, after, final = ollama.chats
    assert [tool["function"]["name"] for tool in outer["tools"]] == ["agent"]
    assert "tools" not in planning
    assert [tool["function"]["name"] for tool in working["tools"]] == ["read", "write"]
    assert roles(planning["messages"]) == ["system", "user", "user"]
    assert planning["messages"][0]["content"] == "You are the coder."
    assert roles(working["messages"]) == ["system", "user", "assistant", "user"]
    assert roles(after["messages"]) == [
        "system", "user", "assistant", "assistant", "tool", "user",
    ]  # fmt: skip
    assert "tools" in final
    stored = (await engine.runtime.agent_sessions.get(start["session_id"])).stored_messages()
    assert roles(stored) == ["system", "user", "assistant", "assistant", "tool", "assistant"]
    ephemeral = {planning["messages"][-1]["content"], working["messages"][-1]["content"]}
    assert not ephemeral & {message["content"] for message in stored}
    assert roles(engine.stored(session)) == ["user", "assistant", "tool", "assistant"]


async def test_an_agent_that_announces_first_is_asked_again(
    engine: Bench, ollama: FakeOllama
) -> None:
    """A first reply without calls does not end its work; the second one does."""
    ollama.reply(tool_calls=[call("agent", agent="coder", instruction="Say hi.")])
    for text in ("Plan.", "I am going to say it.", "Hi."):
        ollama.reply([text])
    ollama.reply(["It said hi."])
    session = await session_with(engine, "coder")
    events = await engine.turn(session)
    assert text_of(events, "agent_execution") == "I am going to say it.Hi."
    assert len(ollama.chats) == 5


async def test_two_agents_of_one_reply_work_side_by_side_and_a_session_is_continued(
    engine: Bench, ollama: FakeOllama, tmp_path: Path
) -> None:
    """Each event names its run; the second turn goes on where the first agent stopped."""
    write_agent(tmp_path, "writer")
    ollama.reply(
        tool_calls=[
            call("agent", agent="coder", instruction="One."),
            call("agent", agent="writer", instruction="Two."),
        ]
    )
    for _ in range(2 * 3):
        ollama.reply(["Done."])
    ollama.reply(["Both."])
    session = await session_with(engine, "coder", "writer")
    events = await engine.turn(session)
    starts = {start["agent_name"]: start for start in of_kind(events, "agent_start")}
    assert set(starts) == {"coder", "writer"}
    for kind in ("agent_planning", "agent_execution", "agent_complete"):
        runs = {(told["agent_name"], told["agent_call_id"]) for told in of_kind(events, kind)}
        assert runs == {(name, start["agent_call_id"]) for name, start in starts.items()}
    first = starts["coder"]["session_id"]
    ollama.reply(tool_calls=[call("agent", agent="coder", instruction="More.", session_id=first)])
    for text in ("Plan.", "A.", "B.", "Good."):
        ollama.reply([text])
    events = await engine.turn(session, "Go on.")
    assert of_kind(events, "agent_start")[0]["session_id"] == first
    stored = (await engine.runtime.agent_sessions.get(first)).stored_messages()
    assert roles(stored).count("user") == 2
    assert roles(stored).count("system") == 1
    output = of_kind(events, "agent_complete")[0]["output"]
    assert "Done." not in output
    ollama.reply(tool_calls=[call("agent", agent="writer", instruction="Mine.", session_id=first)])
    ollama.reply(["No."])
    events = await engine.turn(session, "Swap.")
    assert "coder" in of_kind(events, "tool_result")[0]["error_message"]


async def test_a_reply_in_one_piece_carries_what_the_agent_did(
    engine: Bench, ollama: FakeOllama
) -> None:
    """Its events, pieces of text joined."""
    ollama.reply(tool_calls=[call("agent", agent="coder", instruction="Read.")])
    ollama.reply(["Pl", "an."])
    ollama.reply(tool_calls=[call("read", path="a")])
    ollama.reply(["Read."])
    ollama.reply(["Good."])
    session = await session_with(engine, "coder")
    with anyio.fail_after(30):
        answer = await engine.chat.complete(session, TurnRequest(message="Read."))
    [entry] = answer["tool_calls_executed"]
    assert entry["tool_name"] == "agent"
    told = [(event["event"], event["data"].get("content")) for event in entry["agent_events"]]
    assert told == [
        ("agent_start", None),
        ("agent_planning", "Plan."),
        ("agent_tool_call", None),
        ("agent_tool_result", None),
        ("agent_execution", "Read."),
        ("agent_complete", None),
    ]


async def test_agents_call_agents_only_with_permission_and_not_for_ever(
    tmp_path: Path, ollama: FakeOllama
) -> None:
    """The permitted one is offered, three deep at most."""
    write_agent(tmp_path, "boss", "agents: [boss]")
    async with bench(tmp_path, ollama) as engine:
        for depth in range(3):
            ollama.reply(tool_calls=[call("agent", agent="boss", instruction=f"Level {depth}.")])
            ollama.reply(["Plan."])
        ollama.reply(tool_calls=[call("agent", agent="boss", instruction="Too deep.")])
        for text in ("I do it.", "Second.", "First.", "End."):
            ollama.reply([text])
        session = await session_with(engine, "boss")
        events = await engine.turn(session)
        starts = of_kind(events, "agent_start")
        assert [start["parent_call_id"] for start in starts] == [
            None,
            starts[0]["agent_call_id"],
            starts[1]["agent_call_id"],
        ]
        refused = [told for told in of_kind(events, "agent_tool_result") if not told["success"]]
        assert [told["code"] for told in refused] == ["TOOL_NOT_FOUND"]
        assert text_of(events) == "End."


async def test_models_that_count_their_calls_mix_up_no_agents_that_work_side_by_side(
    tmp_path: Path, ollama: FakeOllama
) -> None:
    """Each run has an id of its own in the whole turn, so each reads only what it has said."""
    write_agent(tmp_path, "boss", "agents: [coder]")
    write_agent(tmp_path, "coder")
    tasks = ("first", "second")
    calls = [call("agent", agent="boss", instruction=f"Boss {task}.") for task in tasks]
    ollama.one_at_a_time = False
    ollama.reply(tool_calls=[{**each, "id": f"call:{at}"} for at, each in enumerate(calls)])
    for task in tasks:
        inner = call("agent", agent="coder", instruction=f"Coder {task}.")
        ollama.reply(["Plan."], match=f"Boss {task}")
        ollama.reply(tool_calls=[{**inner, "id": "call:0"}], match=f"Boss {task}")
        for text in (f"plans {task}", f"works {task}", f"ends {task}"):
            ollama.reply([text], match=f"Coder {task}")
        ollama.reply(["Done."], match=f"Boss {task}")
    ollama.reply(["Both are done."])
    async with bench(tmp_path, ollama) as engine:
        session = await session_with(engine, "boss")
        with anyio.fail_after(30):
            answer = await engine.chat.complete(session, TurnRequest(message="Go."))
    for task, other, entry in zip(
        tasks, reversed(tasks), answer["tool_calls_executed"], strict=True
    ):
        runs = [event["data"] for event in entry["agent_events"]]
        starts = [told for told in runs if "instruction" in told]
        assert [start["instruction"] for start in starts] == [f"Boss {task}.", f"Coder {task}."]
        assert starts[1]["parent_call_id"] == starts[0]["agent_call_id"] == entry["tool_call_id"]
        assert starts[1]["agent_call_id"] != "call:0"
        said = " ".join(str(told.get("content")) for told in runs)
        assert f"plans {task}" in said
        assert other not in said


SAVER = '''
from pathlib import Path

__all__ = ["save"]
__destructive__ = ["save"]


def save(path: str, text: str) -> str:
    """Write a file."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)
    return str(Path(path).absolute())
'''


@pytest.mark.parametrize(("setting", "place"), [({}, "."), ({"tool_working_dir": "work"}, "work")])
async def test_tools_and_agents_work_in_one_folder_which_is_that_of_the_data(
    tmp_path: Path, ollama: FakeOllama, setting: dict[str, Any], place: str
) -> None:
    """What an agent writes to a relative path does not replace its own code."""
    write_agent(tmp_path, "coder", code=SAVER)
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "__init__.py").write_text(SAVER)
    ollama.reply(tool_calls=[call("save", path="notes/tool.txt", text="from the tool")])
    ollama.reply(tool_calls=[call("agent", agent="coder", instruction="Write.")])
    ollama.reply(["A plan."])
    ollama.reply(tool_calls=[call("save", path="coder.py", text="from the agent")])
    for text in ("Written.", "It is done."):
        ollama.reply([text])
    async with bench(tmp_path, ollama, **setting) as engine:
        session = await engine.session(
            agent_settings=AgentSettings(enabled_agents=["coder"]),
            tool_settings=ToolSettings(tools=["save"], execution_policy="never_confirm"),
        )
        await engine.turn(session)
    assert (tmp_path / place / "notes" / "tool.txt").read_text() == "from the tool"
    assert (tmp_path / place / "coder.py").read_text() == "from the agent"
    assert (tmp_path / "agents" / "coder" / "coder.py").read_text() == SAVER


class CountingStorage(MemoryStorage):
    """Notes the roles of the messages in each write."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[list[str]] = []

    async def write(self, session_id: str, parts: Iterable[bytes]) -> tuple[int, ...]:
        content = b"".join(parts)
        self.writes.append(roles(json.loads(content)["messages"]))
        return await super().write(session_id, [content])


async def test_a_session_of_an_agent_is_complete_after_one_write(
    tmp_path: Path, ollama: FakeOllama
) -> None:
    """The second write has the model's first words already."""
    write_agent(tmp_path, "coder")
    ollama.reply(tool_calls=[call("agent", agent="coder", instruction="Read a.txt.")])
    ollama.reply(["I will."])
    ollama.reply(["Announced."])
    ollama.reply(["Done."])
    ollama.reply(["The coder is done."])
    storage = CountingStorage()
    settings = load_settings(data_dir=tmp_path, ollama_host=ollama.url, summarization_enabled=False)
    storages = {"default": MemoryStorage(), "agent_chats": storage}
    async with Runtime(settings, storages=storages) as runtime:
        session = await runtime.sessions.create(
            MODEL,
            agent_settings=AgentSettings(enabled_agents=["coder"]),
            tool_settings=ToolSettings(execution_policy=ToolExecutionPolicy.NEVER_CONFIRM),
        )
        stream = runtime.chat.stream(session.session_id, TurnRequest(message="Read a.txt."))
        (start,) = [event async for event in stream if isinstance(event, AgentStart)]
        agent_session = await runtime.agent_sessions.get(start.session_id)
    assert storage.writes[:2] == [["system", "user"], ["system", "user", "assistant"]]
    assert (agent_session.metadata.model_extra or {})["agent_name"] == "coder"
