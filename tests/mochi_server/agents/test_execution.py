"""What may go wrong, or otherwise, while agents work."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
from pathlib import Path
from typing import Any

import anyio
import pytest
import pytest_asyncio

from mochi_server.agents import PromptLoader
from mochi_server.agents.prompt_loader import MAX_FILE_BYTES, built_in
from mochi_server.errors import InvalidRequest
from mochi_server.protocol.events import Event
from mochi_server.protocol.messages import UserMessage
from mochi_server.protocol.turn_request import TurnRequest
from mochi_server.sessions import ChatSession, SessionManager
from mochi_server.sessions.types import AgentSettings, ToolExecutionPolicy, ToolSettings
from mochi_server.tools.base import ToolContext, ToolOutput
from tests.support.agents import write_skill
from tests.support.disk import no_more_files
from tests.support.fake_ollama import FakeOllama
from tests.support.tools import PlainTool
from tests.support.turns import (
    Bench,
    bench,
    call,
    kinds,
    of_kind,
    read_all,
    read_until,
    roles,
    text_of,
)
from tests.support.waiting import until

CODE = '''
from pathlib import Path

__all__ = ["look", "write"]
__destructive__ = ["write"]


def look(path: str) -> str:
    """Look into a file."""
    return f"notes of {path}"


def write(path: str, times: int = 1) -> str:
    """Write a file."""
    return f"wrote {path} {times} times"
'''


def write_agent(folder: Path, name: str, *lines: str, code: str = CODE) -> Path:
    place = folder / "agents" / name
    write_skill(place, f"description: The {name}.", *lines, body=f"You are the {name}.")
    (place / f"{name}.py").write_text(code)
    names = "__all__, __destructive__" if "__destructive__" in code else "__all__"
    (place / "__init__.py").write_text(f"from .{name} import *\nfrom .{name} import {names}\n")
    return place


@pytest_asyncio.fixture
async def engine(tmp_path, ollama):
    """A runtime with the agents coder and writer."""
    write_agent(tmp_path, "coder")
    write_agent(tmp_path, "writer")
    async with bench(tmp_path, ollama) as found:
        yield found


async def session_with(
    engine: Bench, *agents: str, policy: str = "never_confirm", model: str = "qwen3:14b"
) -> str:
    return await engine.session(
        model,
        agent_settings=AgentSettings(enabled_agents=list(agents)),
        tool_settings=ToolSettings(execution_policy=ToolExecutionPolicy(policy)),
    )


def ask(agent: str = "coder", instruction: str = "Do it.", **more: Any) -> dict[str, Any]:
    return call("agent", agent=agent, instruction=instruction, **more)


def says(ollama: FakeOllama, *texts: str) -> None:
    for text in texts:
        ollama.reply([text])


def works(ollama: FakeOllama, *agent: str, **call: Any) -> None:
    """Let the model call an agent, which does its work, and then end."""
    ollama.reply(tool_calls=[ask(*agent, **call)])
    says(ollama, "Plan.", "One.", "Two.", "End.")


def only(events: list[Event], kind: str) -> dict[str, Any]:
    [found] = of_kind(events, kind)
    return found


def agent_files(engine: Bench) -> list[Path]:
    return sorted(engine.settings.agent_chats_path.glob("*.json"))


def agent_stored(engine: Bench) -> list[dict[str, Any]]:
    """The messages in the one file of an agent's session."""
    [path] = agent_files(engine)
    messages: list[dict[str, Any]] = json.loads(path.read_bytes())["messages"]
    return messages


def tools_of(body: dict[str, Any]) -> list[str]:
    return [tool["function"]["name"] for tool in body.get("tools", [])]


# Its model


@pytest.mark.parametrize("model", ["nothere:1b", "gemma3:4b", "nobody/some-model"])
async def test_a_model_that_is_not_there_or_calls_no_tools_is_replaced_by_the_callers(
    tmp_path, ollama, model
):
    write_agent(tmp_path, "coder", f"model: {model}")
    async with bench(tmp_path, ollama) as engine:
        works(ollama)
        events = await engine.turn(await session_with(engine, "coder"))
        assert only(events, "agent_start")["model"] == "qwen3:14b"
        assert {body["model"] for body in ollama.chats} == {"qwen3:14b"}
        [path] = agent_files(engine)
        assert json.loads(path.read_bytes())["metadata"]["model"] == "qwen3:14b"


async def test_an_agent_has_its_own_model_where_it_is_there(tmp_path, ollama):
    skill = write_agent(tmp_path, "coder")
    ollama.add_model("small:1b")
    async with bench(tmp_path, ollama) as engine:
        session = await session_with(engine, "coder")
        works(ollama)
        first = only(await engine.turn(session), "agent_start")
        write_skill(skill, "description: x", "model: small:1b", body="You are new.")
        works(ollama, session_id=first["session_id"])
        again = only(await engine.turn(session), "agent_start")
        assert (first["model"], again["model"]) == ("qwen3:14b", "small:1b")
        assert [body["model"] for body in ollama.chats[5:]] == [
            "qwen3:14b",
            *["small:1b"] * 3,
            "qwen3:14b",
        ]
        assert ollama.chats[6]["messages"][0]["content"] == "You are new."
        stored = agent_stored(engine)
        assert stored[0]["content"] == "You are new."
        assert roles(stored).count("system") == 1


async def test_an_agents_own_model_keeps_the_window_that_it_is_loaded_with(tmp_path, ollama):
    """Another size would have Ollama load it again."""
    write_agent(tmp_path, "coder", "model: small:1b")
    ollama.add_model("small:1b", loaded=16384)
    async with bench(tmp_path, ollama) as engine:
        works(ollama)
        await engine.turn(await session_with(engine, "coder"))
        sizes = [b["options"]["num_ctx"] for b in ollama.chats if b["model"] == "small:1b"]
        assert sizes == [16384] * 3
        assert ollama.reloads == 0


async def test_the_window_of_a_model_grows_for_the_chat_and_for_agents(engine, ollama):
    """An agent that needs more room leaves it to the conversation: no reload back."""
    session = await session_with(engine, "coder")
    works(ollama, instruction="word " * 9000)
    await engine.turn(session)
    sizes = [body["options"]["num_ctx"] for body in ollama.chats]
    assert sizes[0] == 8192
    assert sizes[1] > 8192
    assert sizes[1:] == sorted(sizes[1:])
    assert ollama.reloads == len(set(sizes)) - 1


# Its answer


@pytest.mark.parametrize("silence", [{}, {"tokens": ["\n"]}, {"thinking": ["Done."]}])
async def test_an_agent_that_repeats_a_call_and_then_says_nothing_returns_the_result(
    engine: Bench, ollama: FakeOllama, silence: dict[str, Any]
) -> None:
    ollama.reply(tool_calls=[ask()])
    says(ollama, "Plan.")
    for _ in range(3):
        ollama.reply([json.dumps(call("look", path="a.txt"))])
    ollama.reply(**silence)
    says(ollama, "End.")
    events = await engine.turn(await session_with(engine, "coder"))
    complete = only(events, "agent_complete")
    assert complete["success"] is True
    assert "Result of look: notes of a.txt" in complete["output"]
    assert kinds(events)[-1] == "done"
    assert '"arguments"' not in complete["output"]
    said = [each["content"] for each in of_kind(events, "agent_execution")]
    assert not any('"arguments"' in each for each in said)


async def test_an_agent_that_is_silent_behind_a_result_is_asked_once_more_without_tools(
    engine: Bench, ollama: FakeOllama
) -> None:
    ollama.reply(tool_calls=[ask()])
    says(ollama, "Plan.")
    ollama.reply(tool_calls=[call("look", path="a.txt")])
    ollama.reply(thinking=["It is there."])
    says(ollama, "I saw it.", "End.")
    events = await engine.turn(await session_with(engine, "coder"))
    assert only(events, "agent_complete")["output"].endswith("I saw it.")
    assert text_of(events) == "End."
    offered = [tools_of(body) for body in ollama.chats[1:-1]]
    assert offered == [[], ["look", "write"], ["look", "write"], []]


# Its session


async def test_two_calls_of_one_reply_cannot_share_a_session(engine, ollama):
    session = await session_with(engine, "coder")
    works(ollama)
    first = only(await engine.turn(session), "agent_start")["session_id"]
    calls = [
        ask(instruction="Left.", session_id=first),
        ask(instruction="Right.", session_id=first),
        ask(instruction="New."),
    ]
    ollama.reply(tool_calls=calls)
    is_refused = asyncio.Event()
    for _ in range(6):
        ollama.reply(["Well."], gate=is_refused)
    says(ollama, "End.")
    reader = (await engine.start(session)).reader()
    events = await read_until(reader, "tool_result")
    is_refused.set()  # neither of the others could end before
    events += await read_all(reader)
    results = sorted(of_kind(events, "tool_result"), key=lambda told: told["call_index"])
    assert sorted(told["success"] for told in results[:2]) == [False, True]
    assert results[2]["success"] is True
    [failed] = [told for told in results if not told["success"]]
    assert failed["code"] == "TOOL_EXECUTION_FAILED"
    assert "'coder' cannot work now" in failed["error_message"]
    assert first in failed["error_message"]
    starts = of_kind(events, "agent_start")
    assert len(starts) == len(of_kind(events, "agent_complete")) == 2
    assert text_of(events) == "End."
    stored = (await engine.runtime.agent_sessions.get(first)).stored_messages()
    assert roles(stored).count("user") == 2


async def test_a_session_that_somebody_else_holds_is_a_failed_call(engine, ollama):
    session = await session_with(engine, "coder")
    works(ollama)
    first = only(await engine.turn(session), "agent_start")["session_id"]
    [path] = agent_files(engine)
    before = path.read_bytes()
    other = SessionManager(sessions_dir=engine.settings.agent_chats_path)
    async with other.claim(first):
        ollama.reply(tool_calls=[ask(session_id=first)])
        says(ollama, "Later.")
        events = await engine.turn(session)
    assert not of_kind(events, "agent_start")
    assert only(events, "tool_result")["success"] is False
    assert path.read_bytes() == before
    works(ollama, session_id=first)
    assert only(await engine.turn(session), "tool_result")["success"] is True


@pytest.mark.parametrize(
    ("session_id", "code"),
    [
        ("0123456789", "TOOL_EXECUTION_FAILED"),
        ("../../chat_sessions/{chat}", "VALIDATION_ERROR"),
        ("{chat}", "TOOL_EXECUTION_FAILED"),
    ],
)
async def test_a_session_that_is_not_there_is_a_failed_call(engine, ollama, session_id, code):
    """Never a path, never somebody's conversation; no file is made for it."""
    session = await session_with(engine, "coder")
    session_id = session_id.replace("{chat}", session)
    before = {path for path in engine.settings.data_dir.rglob("*") if path.suffix == ".json"}
    ollama.reply(tool_calls=[ask(session_id=session_id)])
    says(ollama, "Well.")
    events = await engine.turn(session)
    told = only(events, "tool_result")
    assert (told["success"], told["code"]) == (False, code)
    assert len(told["error_message"]) < 6000
    assert kinds(events)[-3:] == ["content_delta", "message_complete", "done"]
    after = {path for path in engine.settings.data_dir.rglob("*") if path.suffix == ".json"}
    assert after == before


@pytest.mark.parametrize("instruction", ["Do it.", "Do more."])
async def test_an_instruction_that_is_there_already_is_not_stored_again(
    engine, ollama, instruction
):
    """The process of the run has died between storing it and noting so."""

    def instructed(session: ChatSession) -> None:
        session.metadata.begin_run("run_1")
        session.append(UserMessage(content="Do it."))

    agents = engine.runtime.agent_sessions
    agent_id = (await agents.create("qwen3:14b", prepare=instructed)).session_id
    works(ollama, session_id=agent_id, instruction=instruction)
    session_id = await session_with(engine, "coder")
    request = TurnRequest(message="Hello")
    turn = await engine.chat.open_turn(session_id, request, run_id="run_1")
    events = await read_all(engine.chat.start(turn))
    assert only(events, "agent_complete")["success"] is True
    said = [each["content"] for each in agent_stored(engine) if each["role"] == "user"]
    assert said == [*dict.fromkeys(["Do it.", instruction])]


async def test_an_old_session_with_open_calls_is_migrated_and_continued(engine, ollama):
    """A file of version 1.0 that an earlier program left in the middle of a call."""
    place = engine.settings.agent_chats_path
    place.mkdir(parents=True)
    calls = [{"function": {"name": name, "arguments": {}}} for name in ("look", "write")]
    old = {
        "metadata": {
            "session_id": "b80fa657b0",
            "model": "gone:1b",
            "created_at": "2025-01-01T00:00:00",
            "updated_at": "2025-01-01T00:00:00",
            "message_count": 4,
        },
        "messages": [
            {"role": "system", "content": "You were somebody else."},
            {"role": "user", "content": "Old."},
            {"role": "assistant", "content": "", "tool_calls": calls},
            {"role": "tool", "content": "notes", "tool_name": "look"},
        ],
    }
    (place / "b80fa657b0.json").write_text(json.dumps(old))
    works(ollama, session_id="b80fa657b0", instruction="New.")
    events = await engine.turn(await session_with(engine, "coder"))
    assert only(events, "agent_complete")["success"] is True
    document = json.loads((place / "b80fa657b0.json").read_bytes())
    assert document["metadata"]["format_version"] == "1.3"
    assert document["metadata"]["model"] == "qwen3:14b"
    assert roles(document["messages"]) == [
        "system",
        "user",
        "assistant",
        "tool",
        "tool",
        "user",
        "assistant",
        "assistant",
        "assistant",
    ]
    assert document["messages"][0]["content"] == "You are the coder."
    assert document["messages"][4]["tool_name"] == "write"
    assert "interrupted" in document["messages"][4]["content"]
    output = only(events, "agent_complete")["output"]
    assert output == "Session ID: b80fa657b0\n\nPlan.\n\nOne.\n\nTwo."


async def test_a_broken_session_file_is_a_failed_call_and_stays_as_it_is(engine, ollama):
    place = engine.settings.agent_chats_path
    place.mkdir(parents=True)
    (place / "b80fa657b0.json").write_text('{"metadata": {"sess')
    ollama.reply(tool_calls=[ask(session_id="b80fa657b0")])
    says(ollama, "Well.")
    events = await engine.turn(await session_with(engine, "coder"))
    assert only(events, "tool_result")["success"] is False
    assert (place / "b80fa657b0.json").read_text() == '{"metadata": {"sess'
    assert text_of(events) == "Well."


async def test_an_agent_whose_session_is_deleted_meanwhile_ends_with_a_reason(engine, ollama):
    gate = anyio.Event()
    ollama.reply(tool_calls=[ask()])
    ollama.reply(["Pl", "an."], gate=gate, pause_after=1)
    says(ollama, "End.")
    reader = (await engine.start(await session_with(engine, "coder"))).reader()
    events = await read_until(reader, "agent_planning")
    [path] = agent_files(engine)
    path.unlink()
    gate.set()
    events += await read_all(reader)
    complete = only(events, "agent_complete")
    assert complete["success"] is False
    assert "could not go on" in complete["error_message"]
    assert only(events, "tool_result")["success"] is False
    assert text_of(events) == "End."


# What is asked of it


def remove(place: Path) -> None:
    shutil.rmtree(place)


async def test_an_agent_that_works_keeps_the_tools_that_it_has(engine, ollama):
    """Its folder is removed and reloaded under it; the process that has loaded it stays."""
    look = (await engine.runtime.agents.get("coder")).tools["look"]
    context = ToolContext(session_id="a1b2c3d4e5", tool_call_id="call_1")
    assert [step async for step in look.run({"path": "b"}, context)][-1] == ToolOutput("notes of b")
    del look
    gate = anyio.Event()
    ollama.reply(tool_calls=[ask()])
    ollama.reply(["Pl", "an."], gate=gate, pause_after=1)
    ollama.reply(tool_calls=[call("look", path="a")])
    says(ollama, "Two.", "End.")
    reader = (await engine.start(await session_with(engine, "coder"))).reader()
    events = await read_until(reader, "agent_planning")
    remove(engine.settings.agents_path / "coder")
    await engine.runtime.agents.reload()
    gate.set()
    events += await read_all(reader)
    assert only(events, "agent_tool_result")["result"] == "notes of a"
    assert only(events, "agent_complete")["success"] is True


# Its rounds


@pytest.mark.parametrize("rounds", [1, 3])
async def test_the_last_round_offers_no_tools(tmp_path, ollama, rounds):
    """A model that calls one all the same is not heard; what it said is its answer."""
    write_agent(tmp_path, "coder")
    async with bench(tmp_path, ollama, max_tool_rounds=rounds) as engine:
        ollama.reply(tool_calls=[ask()])
        says(ollama, "Plan.")
        for number in range(rounds):
            ollama.reply([f"Round {number}."], tool_calls=[call("look", path=str(number))])
        says(ollama, "End.")
        events = await engine.turn(await session_with(engine, "coder"))
        assert text_of(events) == "End."
        complete = only(events, "agent_complete")
        assert complete["success"] is True
        assert complete["output"].endswith(f"Round {rounds - 1}.")
        assert len(of_kind(events, "agent_tool_result")) == rounds - 1
        offered = [tools_of(body) for body in ollama.chats[1:-1]]
        assert offered == [[], *[["look", "write"]] * (rounds - 1), []]
        assert "tool_calls" not in agent_stored(engine)[-1]


@pytest.mark.parametrize("as_text", [False, True])
async def test_calls_in_a_plan_are_not_made(engine, ollama, as_text):
    """None were offered; a plan of calls only is no plan, and is not kept."""
    ollama.reply(tool_calls=[ask()])
    written = call("write", path="a")
    ollama.reply([json.dumps(written)] if as_text else [], tool_calls=[] if as_text else [written])
    says(ollama, "One.", "Two.", "End.")
    events = await engine.turn(await session_with(engine, "coder"))
    assert not of_kind(events, "agent_tool_call")
    assert roles(agent_stored(engine)) == ["system", "user", "assistant", "assistant"]
    complete = only(events, "agent_complete")
    assert (complete["success"], complete["output"].split("\n\n")[1:]) == (True, ["One.", "Two."])


async def test_an_agent_that_says_nothing_at_all_ends(engine, ollama):
    ollama.reply(tool_calls=[ask()])
    for _ in range(3):
        ollama.reply([])
    says(ollama, "End.")
    events = await engine.turn(await session_with(engine, "coder"))
    complete = only(events, "agent_complete")
    assert complete["success"] is True
    assert (
        complete["output"] == f"Session ID: {complete['session_id']}\n\n(The agent said nothing.)"
    )
    assert roles(agent_stored(engine)) == ["system", "user"]
    assert text_of(events) == "End."


async def test_thinking_is_stored_and_neither_shown_nor_handed_back(engine, ollama):
    """Some models think whether or not they are asked to."""
    ollama.reply(tool_calls=[ask()])
    ollama.reply(["Plan."], thinking=["Hm, ", "a plan."])
    ollama.reply(["So."], thinking=["Look."], tool_calls=[call("look", path="a")])
    ollama.reply([], thinking=["Nothing to say."])
    says(ollama, "Seen.", "End.")
    events = await engine.turn(await session_with(engine, "coder"))
    assert "thinking_delta" not in kinds(events)
    complete = only(events, "agent_complete")
    assert not {"Hm", "Look.", "Nothing"} & set(complete["output"].split())
    assert [m.get("thinking") for m in agent_stored(engine) if m["role"] == "assistant"] == [
        "Hm, a plan.",
        "Look.",
        None,
    ]
    assert all(body["think"] is False for body in ollama.chats[1:4])


# What breaks


def break_at_once(ollama: FakeOllama) -> None:
    ollama.play_body(b'{"error":"out of memory"}', status=500, content_type="application/json")


def break_in_the_middle(ollama: FakeOllama) -> None:
    ollama.reply(["It be"], error="out of memory")


@pytest.mark.parametrize("broken", [break_at_once, break_in_the_middle])
@pytest.mark.parametrize("phase", [0, 1, 2])
async def test_a_model_that_breaks_ends_the_agent_and_not_the_conversation(
    engine, ollama, broken, phase
):
    ollama.reply(tool_calls=[ask()])
    if phase > 0:
        says(ollama, "Plan.")
    if phase > 1:
        ollama.reply(["So."], tool_calls=[call("look", path="a")])
    broken(ollama)
    says(ollama, "It did not work.")
    session = await session_with(engine, "coder")
    events = await engine.turn(session)
    complete = only(events, "agent_complete")
    assert complete["success"] is False
    assert "out of memory" in complete["error_message"]
    told = only(events, "tool_result")
    assert (told["success"], told["code"]) == (False, "TOOL_EXECUTION_FAILED")
    parts = [["It be"], ["Plan.", "It be"], ["Plan.", "So.", "notes of a", "It be"]][phase]
    for part in parts[:-1] if broken is break_at_once else parts:
        assert part in complete["output"]
        assert part in told["error_message"]
    assert f"Session ID: {complete['session_id']}" in told["error_message"]
    assert text_of(events) == "It did not work."
    assert "error" not in kinds(events)
    last = agent_stored(engine)[-1]
    assert last.get("interrupted", False) is (broken is break_in_the_middle)
    works(ollama, session_id=complete["session_id"])
    events = await engine.turn(session)
    assert only(events, "agent_complete")["success"] is True


async def test_a_tool_that_raises_or_hangs_is_told_to_the_agent(tmp_path, ollama):
    code = (
        "import time\n__all__ = ['fail', 'hang']\n__timeouts__ = {'hang': 0.2}\n\n"
        "def fail() -> str:\n    '''Fail.'''\n    raise SystemExit('no')\n\n"
        "def hang() -> str:\n    '''Hang.'''\n    time.sleep(60)\n    return ''\n"
    )
    place = write_agent(tmp_path, "coder", code=code)
    names = "__all__, __timeouts__"
    (place / "__init__.py").write_text(f"from .coder import *\nfrom .coder import {names}\n")
    async with bench(tmp_path, ollama) as engine:
        ollama.reply(tool_calls=[ask()])
        says(ollama, "Plan.")
        ollama.reply(tool_calls=[call("fail"), call("hang"), call("nothing")])
        says(ollama, "All broken.", "End.")
        events = await engine.turn(await session_with(engine, "coder"))
        results = sorted(of_kind(events, "agent_tool_result"), key=lambda t: t["call_index"])
        assert [told["success"] for told in results] == [False] * 3
        assert results[2]["code"] == "TOOL_NOT_FOUND"
        assert "0.2 seconds" in results[1]["error_message"]
        assert roles(agent_stored(engine))[-4:] == ["tool", "tool", "tool", "assistant"]
        assert only(events, "agent_complete")["success"] is True


# The client leaves


async def leave(engine: Bench, session: str, kind: str) -> list[Event]:
    reader = (await engine.start(session)).reader()
    events = await read_until(reader, kind)
    reader.leave()
    await engine.ended()
    return events


LEAVING = [
    ("agent_start", ["system", "user"]),
    ("agent_planning", ["system", "user", "assistant"]),
    ("agent_execution", ["system", "user", "assistant", "assistant"]),
    ("agent_tool_call", ["system", "user", "assistant", "assistant", "tool", "tool"]),
    (
        "tool_call_confirmation_required",
        ["system", "user", "assistant", "assistant", "tool", "tool"],
    ),
]


@pytest.mark.parametrize(("moment", "left"), LEAVING, ids=[moment for moment, _ in LEAVING])
async def test_a_client_that_leaves_stops_the_agent_wherever_it_is(tmp_path, ollama, moment, left):
    code = (
        "import asyncio\n__all__ = ['look', 'wait']\n__destructive__ = ['wait']\n\n"
        "def look() -> str:\n    '''Look.'''\n    return 'seen'\n\n"
        "async def wait() -> str:\n    '''Wait.'''\n    await asyncio.sleep(60)\n    return ''\n"
    )
    write_agent(tmp_path, "coder", code=code)
    gate = anyio.Event()
    held = {"gate": gate}
    policy = "confirm_destructive" if moment.startswith("tool_call") else "never_confirm"
    async with bench(tmp_path, ollama) as engine:
        session = await session_with(engine, "coder", policy=policy)
        ollama.reply(tool_calls=[ask()])
        if moment == "agent_start":
            ollama.reply(["Plan."], gate=gate)
        elif moment == "agent_planning":
            ollama.reply(["Pl", "an."], pause_after=1, **held)
        else:
            says(ollama, "Plan.")
        if moment == "agent_execution":
            ollama.reply(["S", "o."], pause_after=1, **held)
        elif moment not in ("agent_start", "agent_planning"):
            ollama.reply(tool_calls=[call("look"), call("wait")])
        events = await leave(engine, session, moment)
        if moment in ("agent_planning", "agent_execution"):
            await ollama.disconnected()
        gate.set()
        assert roles(agent_stored(engine)) == left
        if moment in ("agent_planning", "agent_execution"):
            assert agent_stored(engine)[-1]["interrupted"] is True
        assert roles(engine.stored(session)) == ["user", "assistant", "tool"]
        assert "interrupted" in engine.stored(session)[-1]["content"]
        assert await engine.chat.confirmations(session) == []
        agent = only(events, "agent_start")["session_id"]
        assert agent in engine.stored(session)[-1]["content"]  # so that the model can have it go on
        ollama.forget()
        works(ollama, session_id=agent)
        events = await engine.turn(session, "Go on.")
        assert only(events, "agent_complete")["success"] is True
        assert text_of(events) == "End."


async def test_a_client_that_leaves_stops_all_agents_of_the_reply(tmp_path, ollama):
    write_agent(tmp_path, "boss", "agents: [coder]")
    write_agent(tmp_path, "coder")
    write_agent(tmp_path, "writer")
    ollama.one_at_a_time = False
    gate = anyio.Event()
    async with bench(tmp_path, ollama) as engine:
        session = await session_with(engine, "boss", "writer")
        ollama.reply(tool_calls=[ask("boss"), ask("writer")])
        ollama.reply(["Pl", "an."], gate=gate, pause_after=1, match="You are the writer.")
        ollama.reply(["Plan."], match="You are the boss.")
        ollama.reply(tool_calls=[ask("coder")], match="You are the boss.")
        ollama.reply(["Co", "de."], gate=gate, pause_after=1, match="You are the coder.")
        reader = (await engine.start(session)).reader()
        voices: set[str] = set()
        with anyio.fail_after(30):
            while not {"writer", "coder"} <= voices:
                for _, event in await reader.next() or []:
                    if event.type == "agent_planning":
                        voices.add(str(event.payload()["agent_name"]))
        reader.leave()
        await engine.ended()
        await ollama.disconnected(2)
        files = [json.loads(path.read_bytes()) for path in agent_files(engine)]
        last = {file["metadata"]["agent_name"]: file["messages"][-1] for file in files}
        assert (last["coder"]["interrupted"], last["coder"]["content"]) == (True, "Co")
        assert (last["writer"]["interrupted"], last["writer"]["content"]) == (True, "Pl")
        assert (last["boss"]["role"], last["boss"]["tool_name"]) == ("tool", "agent")
        assert roles(engine.stored(session)) == ["user", "assistant", "tool", "tool"]


async def test_a_server_that_stops_ends_agents_with_what_they_have(engine, ollama):
    ollama.reply(tool_calls=[ask()])
    ollama.reply(["Pl", "an."], gate=anyio.Event(), pause_after=1)
    session = await session_with(engine, "coder")
    reader = (await engine.start(session)).reader()
    await read_until(reader, "agent_planning")
    engine.runs.stop_all()
    events = await read_all(reader)
    assert only(events, "error")["code"] == "SHUTTING_DOWN"
    assert agent_stored(engine)[-1]["interrupted"] is True
    assert roles(engine.stored(session)) == ["user", "assistant", "tool"]


# A person is asked


async def answer(
    engine: Bench, session: str, reader: Any, *decisions: dict[str, Any]
) -> list[Event]:
    """All events, with one decision for each question."""
    events: list[Event] = []
    for decision in decisions:
        more = await read_until(reader, "tool_call_confirmation_required")
        question = of_kind(more, "tool_call_confirmation_required")[-1]["confirmation_id"]
        await engine.chat.confirm(session, question, **decision)
        events += more
    return events + await read_all(reader)


async def test_with_always_confirm_the_agent_itself_is_asked_about_first(engine, ollama):
    ollama.reply(tool_calls=[ask()])
    says(ollama, "Plan.")
    ollama.reply(tool_calls=[call("look", path="a"), call("write", path="b")])
    says(ollama, "Well.", "End.")
    session = await session_with(engine, "coder", policy="always_confirm")
    reader = (await engine.start(session)).reader()
    yes, no = {"approved": True}, {"approved": False, "reason": "not that file"}
    events = await answer(engine, session, reader, yes, yes, no)
    questions = of_kind(events, "tool_call_confirmation_required")
    assert [
        (told["tool_name"], told.get("agent_name"), told["queue_position"], told["queue_total"])
        for told in questions
    ] == [("agent", None, 1, 1), ("look", "coder", 1, 2), ("write", "coder", 2, 2)]
    assert "agent_call_id" not in questions[0]
    assert questions[1]["agent_call_id"] == questions[0]["tool_call_id"]
    assert not of_kind(events, "tool_call")
    names = [event.type for event in events]
    assert names.index("agent_start") > names.index("tool_call_confirmation_decided")
    results = {told["tool_name"]: told for told in of_kind(events, "agent_tool_result")}
    assert results["look"]["success"] is True
    assert results["write"]["code"] == "TOOL_EXECUTION_DENIED"
    assert any("not that file" in message["content"] for message in agent_stored(engine))
    assert only(events, "tool_result")["success"] is True


async def test_an_agent_that_is_denied_does_not_start(engine, ollama):
    ollama.reply(tool_calls=[ask()])
    says(ollama, "Then not.")
    session = await session_with(engine, "coder", policy="always_confirm")
    reader = (await engine.start(session)).reader()
    events = await answer(engine, session, reader, {"approved": False, "reason": "Too dear."})
    assert only(events, "tool_result")["code"] == "TOOL_EXECUTION_DENIED"
    assert "Too dear." in only(events, "tool_result")["error_message"]
    assert not of_kind(events, "agent_start")
    assert not agent_files(engine)


async def test_a_person_can_change_whom_the_model_calls(engine, ollama):
    works(ollama, "coder", "Write.")
    session = await session_with(engine, "coder", "writer", policy="always_confirm")
    reader = (await engine.start(session)).reader()
    events = await read_until(reader, "tool_call_confirmation_required")
    question = only(events, "tool_call_confirmation_required")["confirmation_id"]
    for wrong in ({"agent": "nobody", "instruction": "x"}, {"agent": "writer"}):
        with pytest.raises(InvalidRequest):
            await engine.chat.confirm(session, question, approved=True, arguments=wrong)
    changed: Any = {"agent": "writer", "instruction": "Write a song."}
    await engine.chat.confirm(session, question, approved=True, arguments=changed)
    events += await read_all(reader)
    start = only(events, "agent_start")
    assert (start["agent_name"], start["instruction"]) == ("writer", "Write a song.")
    decided = only(events, "tool_call_confirmation_decided")
    assert (decided["edited"], decided["arguments"]) == (True, {**changed, "session_id": None})


async def test_changed_arguments_of_an_agents_call_are_checked(tmp_path, ollama):
    """By the agent's own tool, though the server has another one of the same name."""
    write_agent(tmp_path, "coder")
    (tmp_path / "tools").mkdir()
    text = "def write(number: int) -> str:\n    '''Other.'''\n    return ''\n"
    (tmp_path / "tools" / "__init__.py").write_text(text + "__all__ = ['write']\n")
    async with bench(tmp_path, ollama) as engine:
        ollama.reply(tool_calls=[ask()])
        says(ollama, "Plan.")
        ollama.reply(tool_calls=[call("write", path="a")])
        says(ollama, "Well.", "End.")
        session = await session_with(engine, "coder", policy="confirm_destructive")
        reader = (await engine.start(session)).reader()
        events = await read_until(reader, "tool_call_confirmation_required")
        question = only(events, "tool_call_confirmation_required")["confirmation_id"]
        for wrong in ({"number": 3}, {"path": "a", "times": "many"}, {}):
            with pytest.raises(InvalidRequest):
                await engine.chat.confirm(session, question, approved=True, arguments=wrong)
        [waiting] = await engine.chat.confirmations(session)
        assert (waiting["agent_name"], waiting["tool_source"]) == ("coder", "agent:coder")
        changed: Any = {"path": "b", "times": "3"}
        await engine.chat.confirm(session, question, approved=True, arguments=changed)
        events += await read_all(reader)
        assert only(events, "agent_tool_result")["result"] == "wrote b 3 times"


async def test_calls_of_an_agent_within_an_agent_are_asked_about(tmp_path, ollama):
    write_agent(tmp_path, "boss", "agents: [coder]")
    write_agent(tmp_path, "coder")
    async with bench(tmp_path, ollama) as engine:
        boss, coder = "You are the boss.", "You are the coder."
        ollama.reply(tool_calls=[ask("boss") | {"id": "outer"}])
        ollama.reply(["Boss plans."], match=boss)
        ollama.reply(tool_calls=[ask("coder")], match=boss)
        ollama.reply(["Coder plans."], match=coder)
        ollama.reply(tool_calls=[call("write", path="a")], match=coder)
        ollama.reply(["Coder is sorry."], match=coder)
        ollama.reply(["Boss is sorry."], match=boss)
        says(ollama, "End.")
        session = await session_with(engine, "boss", policy="confirm_destructive")
        reader = (await engine.start(session)).reader()
        events = await answer(engine, session, reader, {"approved": False})
        first, second = of_kind(events, "agent_start")
        assert (first["agent_call_id"], first["parent_call_id"]) == ("outer", None)
        assert second["parent_call_id"] == "outer"
        question = only(events, "tool_call_confirmation_required")
        assert question["agent_name"] == "coder"
        assert question["agent_call_id"] == second["agent_call_id"]
        inner, outer = of_kind(events, "agent_complete")
        assert "Coder is sorry." in inner["output"]
        assert inner["output"] in outer["output"]
        [told] = [each for each in of_kind(events, "agent_tool_result") if not each["success"]]
        assert (told["agent_name"], told["code"]) == ("coder", "TOOL_EXECUTION_DENIED")
        owners = [json.loads(p.read_bytes())["metadata"]["agent_name"] for p in agent_files(engine)]
        assert sorted(owners) == ["boss", "coder"]


async def test_in_one_piece_an_agents_dangerous_calls_are_denied_and_it_goes_on(engine, ollama):
    ollama.reply(tool_calls=[ask()])
    says(ollama, "Plan.")
    ollama.reply(tool_calls=[call("look", path="a"), call("write", path="b")])
    says(ollama, "Well.", "End.")
    session = await session_with(engine, "coder", policy="confirm_destructive")
    with anyio.fail_after(30):
        reply: Any = await engine.chat.complete(session, TurnRequest(message="Go."))
    [entry] = reply["tool_calls_executed"]
    results = [e["data"] for e in entry["agent_events"] if e["event"] == "agent_tool_result"]
    assert {told["tool_name"]: told["success"] for told in results} == {
        "look": True,
        "write": False,
    }
    session = await session_with(engine, "coder", policy="always_confirm")
    ollama.reply(tool_calls=[ask()])
    says(ollama, "Then not.")
    with anyio.fail_after(30):
        reply = await engine.chat.complete(session, TurnRequest(message="Go."))
    [entry] = reply["tool_calls_executed"]
    assert (entry["code"], "agent_events" in entry) == ("TOOL_EXECUTION_DENIED", False)


async def test_nobody_decides_about_an_agents_call(tmp_path, ollama):
    write_agent(tmp_path, "coder")
    options: dict[str, Any] = {"tool_confirmation_timeout_seconds": 0.1}
    async with bench(tmp_path, ollama, **options) as engine:
        ollama.reply(tool_calls=[ask()])
        says(ollama, "Plan.")
        ollama.reply(tool_calls=[call("write", path="b")])
        says(ollama, "Well.", "End.")
        session = await session_with(engine, "coder", policy="confirm_destructive")
        events = await engine.turn(session)
        decided = only(events, "tool_call_confirmation_decided")
        assert (decided["code"], decided["agent_name"]) == ("TOOL_CONFIRMATION_TIMEOUT", "coder")
        assert only(events, "agent_tool_result")["code"] == "TOOL_CONFIRMATION_TIMEOUT"
        assert only(events, "agent_complete")["success"] is True


# Skills, prompts, length


async def test_prompts_of_files_are_sent_and_stored_nowhere(engine, ollama, tmp_path):
    place = tmp_path / "docs" / "agents"
    place.mkdir(parents=True)
    (place / "agent_prompt_planning.md").write_text("PLAN NOW with\n{tools}\n")
    (place / "agent_prompt_execution.md").write_text("WORK NOW")
    session = await session_with(engine, "coder")

    async def prompts() -> list[str]:
        before = len(ollama.chats)
        works(ollama)
        await engine.turn(session)
        return [body["messages"][-1]["content"] for body in ollama.chats[before + 1 : -1]]

    listed = "- look: Look into a file.\n- write: Write a file."
    assert await prompts() == [f"PLAN NOW with\n{listed}", "WORK NOW", "WORK NOW"]
    (place / "agent_prompt_execution.md").write_text("WORK HARDER")
    assert (await prompts())[1:] == ["WORK HARDER"] * 2
    shutil.rmtree(place)
    ours = [built_in("planning.md").replace("{tools}", listed), built_in("execution.md")]
    assert (await prompts())[:2] == ours
    for path in [*agent_files(engine), engine.path(session)]:
        text = path.read_text()
        assert not [word for word in ("PLAN NOW", "WORK", "Make a plan") if word in text]


LONG = (
    "__all__ = ['look']\n\n"
    "def look(size: int) -> str:\n    '''Look.'''\n    return 'word ' * size\n"
)


async def test_an_agents_conversation_that_outgrows_the_model_goes_on(tmp_path, ollama):
    write_agent(tmp_path, "coder", "model: tiny:1b", code=LONG)
    ollama.add_model("tiny:1b", context_length=4096)
    async with bench(tmp_path, ollama) as engine:
        ollama.reply(tool_calls=[ask(instruction="Remember me.")])
        says(ollama, "Plan.")
        for number in range(4):
            ollama.reply([f"Round {number}."], tool_calls=[call("look", size=1000 + number)])
        says(ollama, "Done.", "End.")
        events = await engine.turn(await session_with(engine, "coder"))
        assert only(events, "agent_complete")["success"] is True
        last = [body for body in ollama.chats if body["model"] == "tiny:1b"][-1]
        texts = [message["content"] for message in last["messages"]]
        assert texts[:2] == ["You are the coder.", "Remember me."]
        assert texts[-1] == built_in("execution.md")
        assert "Plan." not in texts
        assert "Round 3." in texts
        assert roles(agent_stored(engine)).count("tool") == 4


async def test_a_step_that_cannot_fit_ends_the_agent_with_a_reason(tmp_path, ollama):
    write_agent(tmp_path, "coder", "model: tiny:1b", code=LONG)
    ollama.add_model("tiny:1b", context_length=4096)
    async with bench(tmp_path, ollama) as engine:
        ollama.reply(tool_calls=[ask()])
        says(ollama, "Plan.")
        ollama.reply(tool_calls=[call("look", size=18_000)])
        ollama.reply(["End."], match="Hello")
        events = await engine.turn(await session_with(engine, "coder"))
        assert only(events, "agent_complete")["success"] is False
        assert only(events, "tool_result")["success"] is False
        assert text_of(events) == "End."


async def test_what_a_long_agent_hands_back_is_cut_and_keeps_its_answer(tmp_path, ollama):
    write_agent(tmp_path, "coder", code=LONG)
    async with bench(tmp_path, ollama) as engine:
        engine.runtime.tool_execution.result_characters = 2000
        ollama.reply(tool_calls=[ask()])
        says(ollama, "Plan.")
        ollama.reply(tool_calls=[call("look", size=1000), call("look", size=1001)])
        ollama.reply(tool_calls=[call("look", size=1002)])
        says(ollama, "The answer is 42.", "End.")
        events = await engine.turn(await session_with(engine, "coder"))
        assert all(len(told["result"]) < 2100 for told in of_kind(events, "agent_tool_result"))
        result = only(events, "tool_result")["result"]
        assert result.startswith(f"Session ID: {only(events, 'agent_start')['session_id']}\n")
        assert "Plan." in result
        assert result.count("Result of look: word") == 3
        assert result.endswith("The answer is 42.")
        assert len(result) < 2100
        assert only(events, "agent_complete")["output"] == result


# Its prompts


@pytest.fixture
def files(tmp_path):
    return tmp_path / "planning.md", tmp_path / "execution.md"


@pytest.fixture
def prompts(files):
    return PromptLoader(*files)


def test_a_file_goes_before_ours_and_is_read_again_when_it_changes(prompts, files):
    planning, execution = files
    planning.write_text("\ufeffPlan! With:\n{tools}\n", "utf-8")
    assert prompts.planning([PlainTool("read")]) == "Plan! With:\n- read: Says read."
    assert prompts.execution().startswith("Work on the task")
    execution.write_text("Work {hard}!")
    assert prompts.execution() == "Work {hard}!"
    planning.write_text("Think!")
    assert prompts.planning() == "Think!"
    planning.unlink()
    assert prompts.planning().startswith("Make a plan")


def test_a_file_is_used_after_a_moment_without_free_files(prompts, files):
    files[0].write_text("Think!")
    built_in("planning.md")
    with no_more_files(files[0]):
        assert prompts.planning().startswith("Make a plan")
    assert prompts.planning() == "Think!"


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda path: path.mkdir(), "cannot be used"),
        (lambda path: path.write_bytes(b"\xff"), "not UTF-8"),
        (lambda path: path.write_text(" \n"), "empty"),
        (lambda path: path.write_text("x" * (MAX_FILE_BYTES + 1)), "larger than"),
        (lambda path: path.symlink_to(path.with_name("nothing")), "cannot be used"),
    ],
)
def test_a_file_that_cannot_be_used_is_told_once(prompts, files, caplog, spoil, reason):
    spoil(files[0])
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert prompts.planning().startswith("Make a plan")
    [record] = caplog.records
    assert str(files[0]) in record.getMessage()
    assert reason in record.getMessage()


async def test_an_agents_session_is_compacted_for_when_it_goes_on(tmp_path, ollama):
    write_agent(tmp_path, "coder")
    ollama.add_model("tiny:1b", context_length=4096)
    settings: dict[str, Any] = {"compaction": True, "summarization_interval_seconds": 0}
    async with bench(tmp_path, ollama, **settings) as engine:
        session = await session_with(engine, "coder", model="tiny:1b")
        more: dict[str, Any] = {}
        for number in range(5):
            works(ollama, "coder", f"Task {number}. {'x' * 3_000}", **more)
            started = only(await engine.turn(session), "agent_start")
            more = {"session_id": started["session_id"]}
            await engine.ended()
            await until(lambda: not engine.runtime.compaction.pending)
        agent = await engine.runtime.agent_sessions.get(started["session_id"])
    assert agent.metadata.history_summary is not None
    assert "Task 4." in str(agent.stored(len(agent.messages) - 4))
    asked = [chat["messages"] for chat in ollama.chats if "You are the coder." in str(chat)]
    assert asked[-1][1]["content"].startswith("[Summary ")
    assert "Task 0." not in str(asked[-1][2:])
