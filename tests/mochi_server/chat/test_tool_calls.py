"""Turns in which the model calls the user's own functions, and a person decides."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import anyio
import pytest

from mochi_server.chat.reply import Reply
from mochi_server.chat.tool_calls.results import INTERRUPTED, unanswered
from mochi_server.errors import ConfirmationNotFound, ToolsNotSupported
from mochi_server.protocol.messages import ToolCall
from mochi_server.sessions.types import AgentSettings, ToolExecutionPolicy, ToolSettings
from tests.support.tool_folders import children
from tests.support.turns import (
    Bench,
    bench,
    call,
    kinds,
    masked,
    of_kind,
    plain,
    read_all,
    read_until,
    roles,
    text_of,
)
from tests.support.waiting import until

INIT = """
from .functions import add, blink, erase, fail, greet, hang, kind, meet, nap, note, shout, silent

__all__ = ["add", "blink", "erase", "fail", "greet", "hang", "kind", "meet", "nap", "note"]
__all__ += ["shout", "silent"]
__math__ = ["add"]
__destructive__ = ["erase"]
__sequential__ = ["note"]
__timeouts__ = {"hang": 0.3, "blink": 2.5}
"""
FUNCTIONS = '''
import asyncio
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def add(a: int, b: int = 3) -> str:
    """Add two numbers.

    Args:
        a: The first one.
        b: The second one.
    """
    return str(a + b)


def blink() -> str:
    """Return at once."""
    return "seen"


def erase(path: str) -> str:
    """Erase a file."""
    return f"erased {path}"


def fail(text: str) -> str:
    """Fail."""
    raise ValueError(text)


def greet(name: str = "all") -> str:
    """Say hello."""
    return f"Hello {name}"


def hang() -> str:
    """Take very long."""
    while True:
        time.sleep(0.01)


def kind(value: Any = ()) -> str:
    """Name the type."""
    return type(value).__name__


def meet(name: str, other: str) -> str:
    """Wait until the other one is there too."""
    (HERE / f"{name}.here").touch()
    end = time.monotonic() + 10
    while time.monotonic() < end:
        if (HERE / f"{other}.here").exists():
            return f"{name} met {other}"
        time.sleep(0.005)
    return f"{name} saw nobody"


def nap(seconds: float) -> str:
    """Take some time."""
    time.sleep(seconds)
    return "rested"


def note(text: str) -> str:
    """Write a line, alone."""
    lock = HERE / "writing"
    lock.mkdir()
    time.sleep(0.02)
    lock.rmdir()
    return text


async def shout(text: str) -> str:
    """Say it loud."""
    await asyncio.sleep(0)
    return text.upper()


def silent() -> str:
    """Say nothing."""
    return ""
'''
ALL = ["add", "blink", "erase", "fail", "greet", "hang", "meet", "nap", "note", "shout", "silent"]


def write_tools(folder: Path) -> None:
    (folder / "tools").mkdir()
    (folder / "tools" / "__init__.py").write_text(INIT)
    (folder / "tools" / "functions.py").write_text(FUNCTIONS)


@pytest.fixture
async def engine(tmp_path, ollama):
    write_tools(tmp_path)
    async with bench(tmp_path, ollama) as found:
        yield found


def offer(policy: str = "never_confirm", *names: str, group: str | None = None) -> dict[str, Any]:
    """The fields of a session that has these tools; all of them when none are named."""
    tools = list(names) or ([] if group else ALL)
    return {
        "tool_settings": ToolSettings(
            tools=tools, tool_group=group, execution_policy=ToolExecutionPolicy(policy)
        )
    }


async def question(engine: Bench, session: str) -> str:
    """The id of the one open question of a session."""
    with anyio.fail_after(30):
        while True:
            found = await engine.chat.confirmations(session)
            if found:
                return str(found[0]["confirmation_id"])
            await anyio.lowlevel.checkpoint()


async def test_a_call_runs_and_its_result_goes_back_to_the_model(engine, ollama):
    ollama.reply(["Let me add."], tool_calls=[call("add", a="2")])
    ollama.reply(["It is 5."])
    session = await engine.session(**offer())
    events = await engine.turn(session, "What is 2+3?")
    told = [pair for pair in plain(events) if pair[0] not in {"message_complete", "content_delta"}]
    assert told == [
        ("tool_call", {"tool_name": "add", "arguments": {"a": "2"}, "call_index": 0}),
        (
            "tool_result",
            {
                "tool_name": "add",
                "success": True,
                "result": "5",
                "error_message": None,
                "call_index": 0,
            },
        ),
        ("tool_continuation_start", {"message": "Processing tool results..."}),
        ("done", {"session_id": session}),
    ]
    assert text_of(events) == "Let me add.It is 5."
    stored = engine.stored(session)
    assert roles(stored) == ["user", "assistant", "tool", "assistant"]
    assert masked(stored[2]) == {"role": "tool", "content": "5", "tool_name": "add"}
    first, second = ollama.chats
    assert [tool["function"]["name"] for tool in first["tools"]] == ALL
    added = first["tools"][0]["function"]
    assert added["description"] == "Add two numbers."
    assert added["parameters"]["required"] == ["a"]
    assert added["parameters"]["properties"]["b"]["default"] == 3
    assert second["messages"][-1]["content"] == "5"
    assert second["tools"] == first["tools"]


async def test_calls_of_one_reply_run_side_by_side_and_are_recorded_in_call_order(engine, ollama):
    """Each waits for the other, so neither could end alone."""
    ollama.reply(
        tool_calls=[
            call("meet", name="a", other="b"),
            call("meet", name="b", other="a"),
            call("shout", text="hey"),
        ]
    )
    ollama.reply(["Good."])
    session = await engine.session(**offer())
    events = await engine.turn(session)
    results = of_kind(events, "tool_result")
    assert sorted(result["call_index"] for result in results) == [0, 1, 2]
    assert [message["content"] for message in engine.stored(session)[2:5]] == [
        "a met b",
        "b met a",
        "HEY",
    ]


async def test_a_sequential_tool_runs_alone_also_beside_other_sessions(engine, ollama):
    """The function fails when it finds itself running already."""
    sessions = [await engine.session(**offer()) for _ in range(3)]
    for _ in sessions:
        ollama.reply(tool_calls=[call("note", text=str(number)) for number in range(3)])
    logs = [await engine.start(session) for session in sessions]
    for _ in sessions:
        ollama.reply(["Done."])
    for log in logs:
        results = of_kind(await read_all(log), "tool_result")
        assert [result["result"] for result in results] == ["0", "1", "2"]


async def test_waiting_for_a_free_process_is_not_time_of_the_call(tmp_path, ollama):
    """The second call waits for longer than it may take."""
    write_tools(tmp_path)
    async with bench(tmp_path, ollama, tool_workers=1) as engine:
        ollama.reply(tool_calls=[call("nap", seconds=2.6), call("blink")])
        ollama.reply(["Rested."])
        session = await engine.session(**offer())
        events = await engine.turn(session)
    assert [result["result"] for result in of_kind(events, "tool_result")] == ["rested", "seen"]


async def test_a_failing_call_tells_the_model_why_and_stops_no_other(engine, ollama):
    calls = [
        call("fail", text="no such thing"),
        call("add", a="many"),
        call("hang"),
        call("silent"),
        call("add", a=1),
        call("launch"),
    ]
    ollama.reply(tool_calls=calls)
    ollama.reply(["I see."])
    session = await engine.session(**offer())
    events = await engine.turn(session)
    results = {result["call_index"]: result for result in of_kind(events, "tool_result")}
    assert [results[index]["success"] for index in range(6)] == [
        False, False, False, True, True, False,
    ]  # fmt: skip
    assert [results[index].get("code") for index in range(6)] == [
        "TOOL_EXECUTION_FAILED",
        "VALIDATION_ERROR",
        "TOOL_EXECUTION_FAILED",
        None,
        None,
        "TOOL_NOT_FOUND",
    ]
    contents = [message["content"] for message in engine.stored(session)[2:8]]
    assert "no such thing" in contents[0]
    assert "a" in contents[1]
    assert "0.3 seconds" in contents[2]
    assert all(text.startswith("Error: ") for text in (*contents[:3], contents[5]))
    assert contents[3].strip()
    assert contents[4] == "4"
    assert kinds(events)[-3:] == ["content_delta", "message_complete", "done"]


async def test_only_what_the_session_enables_is_offered_and_runs(engine, ollama):
    ollama.reply(tool_calls=[call("erase", path="x")])
    ollama.reply(["No."])
    session = await engine.session(**offer("never_confirm", group="math"))
    events = await engine.turn(session)
    assert [tool["function"]["name"] for tool in ollama.chats[0]["tools"]] == ["add"]
    assert of_kind(events, "tool_result")[0]["code"] == "TOOL_NOT_FOUND"


async def test_a_tool_whose_own_policy_is_stricter_waits_for_a_person(engine, ollama):
    ollama.reply(tool_calls=[call("add", a=1), call("greet")])
    ollama.reply(["Hello."])
    settings = ToolSettings(
        tools=ALL, execution_policy="never_confirm", tool_policies={"greet": "always_confirm"}
    )
    session = await engine.session(tool_settings=settings)
    events = await engine.turn(session, wait=False)
    results = {result["tool_name"]: result for result in of_kind(events, "tool_result")}
    assert results["add"]["result"] == "4"
    assert results["greet"]["code"] == "TOOL_EXECUTION_DENIED"


async def test_a_session_with_a_policy_of_another_program_asks_about_every_call(engine, ollama):
    ollama.reply(tool_calls=[call("add", a=1)])
    ollama.reply(["No."])
    session = await engine.session(**offer("never_confirm", "add"))
    file = engine.settings.sessions_path / f"{session}.json"
    file.write_text(file.read_text().replace("never_confirm", "confirm_by_vote"))
    events = await engine.turn(session, wait=False)
    assert of_kind(events, "tool_result")[0]["code"] == "TOOL_EXECUTION_DENIED"
    assert "confirm_by_vote" in file.read_text()


async def test_a_model_that_cannot_call_tools_is_named_before_anything_is_stored(engine, ollama):
    model = ollama.models["qwen3:14b"]
    model.capabilities = ["completion"]
    session = await engine.session(**offer())
    with pytest.raises(ToolsNotSupported):
        await engine.turn(session)
    assert engine.stored(session) == []


async def test_a_confirmed_call_is_asked_first_and_runs_when_approved(engine, ollama):
    """Required, decided, result: and the assistant's message was on disk before the question.

    What is shown is what runs: numbers for texts, and the default of what was left out.
    """
    ollama.reply(tool_calls=[call("add", a="2")])
    ollama.reply(["5."])
    session = await engine.session(**offer("always_confirm"))
    reader = (await engine.start(session)).reader()
    asked = await read_until(reader, "tool_call_confirmation_required")
    required = of_kind(asked, "tool_call_confirmation_required")[0]
    assert (required["queue_position"], required["queue_total"]) == (1, 1)
    assert required["arguments"] == {"a": 2, "b": 3}
    assert roles(engine.stored(session)) == ["user", "assistant"]
    [listed] = await engine.chat.confirmations(session)
    assert listed["confirmation_id"] == required["confirmation_id"]
    assert (listed["tool_name"], listed["arguments"]) == ("add", {"a": 2, "b": 3})
    await engine.chat.confirm(session, required["confirmation_id"], approved=True)
    events = await read_all(reader)
    assert kinds(events) == [
        "tool_call_confirmation_decided",
        "tool_result",
        "tool_continuation_start",
        "content_delta",
        "message_complete",
        "done",
    ]
    assert of_kind(events, "tool_result")[0]["result"] == "5"
    assert await engine.chat.confirmations(session) == []


@pytest.mark.usefixtures("fresh_tools")  # they are found as children
async def test_the_second_call_of_a_reply_has_a_process_when_the_model_is_asked(engine, ollama):
    ollama.reply(["Hello."])
    session = await engine.session(**offer())
    before = children()
    await engine.turn(session, "Hello")
    await until(lambda: len(children() - before) == 2)
    ollama.reply(tool_calls=[call("meet", name="a", other="b"), call("meet", name="b", other="a")])
    ollama.reply(["Both."])
    ready = children()
    events = await engine.turn(session, "Meet.")
    assert [each["success"] for each in of_kind(events, "tool_result")] == [True, True]
    assert children() >= ready


async def test_a_denied_call_tells_the_model_so_with_the_reason_and_the_next_one_is_asked(
    engine, ollama
):
    ollama.reply(tool_calls=[call("add", a=1), call("shout", text="x"), call("add", a=2)])
    ollama.reply(["Fine."])
    session = await engine.session(**offer("always_confirm"))
    log = await engine.start(session)
    answers = [
        {"approved": True},
        {"approved": False, "reason": "too loud"},
        {"approved": True, "arguments": {"a": 10, "b": 1}},
    ]
    for answer in answers:
        await engine.chat.confirm(session, await question(engine, session), **answer)
    events = await read_all(log)
    required = of_kind(events, "tool_call_confirmation_required")
    assert [(r["queue_position"], r["queue_total"]) for r in required] == [(1, 3), (2, 3), (3, 3)]
    decided = of_kind(events, "tool_call_confirmation_decided")
    assert [(d["approved"], d["edited"]) for d in decided] == [
        (True, False),
        (False, False),
        (True, True),
    ]
    assert decided[2]["arguments"] == {"a": 10, "b": 1}
    assert required[2]["arguments"] == {"a": 2, "b": 3}
    results = {result["call_index"]: result for result in of_kind(events, "tool_result")}
    assert [results[index]["result"] for index in range(3)] == ["4", None, "11"]
    assert results[1]["code"] == "TOOL_EXECUTION_DENIED"
    contents = [message["content"] for message in engine.stored(session)[2:5]]
    assert contents[0] == "4"
    assert "too loud" in contents[1]
    assert contents[2].endswith("\n11")
    assert '{"a":10,"b":1}' in contents[2]


async def test_confirm_destructive_asks_only_about_what_may_do_harm(engine, ollama):
    ollama.reply(tool_calls=[call("add", a=1), call("erase", path="x")])
    ollama.reply(["Fine."])
    session = await engine.session(**offer("confirm_destructive"))
    log = await engine.start(session)
    await engine.chat.confirm(session, await question(engine, session), approved=False)
    events = await read_all(log)
    required = of_kind(events, "tool_call_confirmation_required")
    assert [(r["tool_name"], r["queue_total"]) for r in required] == [("erase", 1)]
    assert {r["tool_name"]: r["success"] for r in of_kind(events, "tool_result")} == {
        "erase": False,
        "add": True,
    }


async def test_arguments_that_a_person_takes_away_are_told_as_they_are(engine, ollama):
    ollama.reply(tool_calls=[call("greet", name="you")])
    ollama.reply(["Good."])
    session = await engine.session(**offer("always_confirm"))
    log = await engine.start(session)
    asked = await question(engine, session)
    await engine.chat.confirm(session, asked, approved=True, arguments={})
    events = await read_all(log)
    decided = of_kind(events, "tool_call_confirmation_decided")[0]
    assert (decided["arguments"], decided["edited"]) == ({"name": "all"}, True)
    assert of_kind(events, "tool_result")[0]["result"] == "Hello all"


async def test_changed_arguments_are_shown_and_recorded_as_they_run(engine, ollama):
    ollama.reply(tool_calls=[call("add", a=1)])
    ollama.reply(["Good."])
    session = await engine.session(**offer("always_confirm"))
    log = await engine.start(session)
    asked = await question(engine, session)
    await engine.chat.confirm(session, asked, approved=True, arguments={"a": "7"})
    events = await read_all(log)
    ran = {"a": 7, "b": 3}
    [decided] = of_kind(events, "tool_call_confirmation_decided")
    assert (decided["arguments"], decided["edited"]) == (ran, True)
    assert of_kind(events, "tool_result")[0]["result"] == "10"
    assert '{"a":7,"b":3}' in engine.stored(session)[2]["content"]
    [record] = await engine.runtime.inbox.history()
    assert (record.decision.arguments, record.ran) == (ran, ran)


async def test_a_function_gets_its_own_default_which_json_cannot_say(engine, ollama):
    ollama.reply(tool_calls=[call("kind")])
    ollama.reply(["Good."])
    session = await engine.session(**offer("always_confirm", "kind"))
    log = await engine.start(session)
    await question(engine, session)
    [listed] = await engine.chat.confirmations(session)
    assert listed["arguments"] == {"value": []}
    await engine.chat.confirm(session, listed["confirmation_id"], approved=True)
    assert of_kind(await read_all(log), "tool_result")[0]["result"] == "tuple"


async def test_a_client_that_leaves_while_it_is_asked_takes_the_question_with_it(engine, ollama):
    ollama.reply(tool_calls=[call("add", a=1)])
    session = await engine.session(**offer("always_confirm"))
    reader = (await engine.start(session)).reader()
    await read_until(reader, "tool_call_confirmation_required")
    asked = await question(engine, session)
    reader.leave()
    await engine.ended()
    with pytest.raises(ConfirmationNotFound):
        await engine.chat.confirm(session, asked, approved=True)
    stored = engine.stored(session)
    assert roles(stored) == ["user", "assistant", "tool"]
    assert "interrupted" in stored[2]["content"]
    ollama.reply(["Hello again."])
    assert text_of(await engine.turn(session, "Still there?")) == "Hello again."


async def test_a_client_that_leaves_while_tools_run_keeps_the_results_that_are_there(
    engine, ollama
):
    ollama.reply(tool_calls=[call("meet", name="a", other="nobody"), call("add", a=1)])
    session = await engine.session(**offer())
    reader = (await engine.start(session)).reader()
    await read_until(reader, "tool_result")
    reader.leave()
    await engine.ended()
    contents = [message["content"] for message in engine.stored(session)[2:]]
    assert len(contents) == 2
    assert "interrupted" in contents[0]
    assert contents[1] == "4"


def test_a_call_that_a_provider_repeats_is_one_call():
    reply = Reply()
    first = ToolCall(id="call_0", name="add", arguments={"a": 1})
    reply.add([first, first.model_copy(), ToolCall(id="call_0", name="add", arguments={"a": 2})])
    assert [made.arguments for made in reply.calls] == [{"a": 1}, {"a": 2}]
    assert reply.calls[0].id == "call_0" != reply.calls[1].id


async def test_calls_beyond_the_limit_are_refused_and_say_so(tmp_path, ollama):
    write_tools(tmp_path)
    ollama.reply(tool_calls=[call("add", a=number) for number in range(4)])
    ollama.reply(["Done."])
    async with bench(tmp_path, ollama) as engine:
        engine.runtime.tool_execution.max_calls_per_reply = 2
        session = await engine.session(**offer())
        events = await engine.turn(session)
        results = sorted(of_kind(events, "tool_result"), key=lambda result: result["call_index"])
        assert [(result["success"], result.get("code")) for result in results] == [
            (True, None),
            (True, None),
            (False, "TOOL_EXECUTION_DENIED"),
            (False, "TOOL_EXECUTION_DENIED"),
        ]
        told = [message["content"] for message in ollama.chats[1]["messages"][-4:]]
    assert told[:2] == ["3", "4"]
    assert set(told[2:]) == {
        "Error: a reply may have 2 calls at most, and this one had 4. Call again for what is left."
    }


async def test_a_reply_of_thousands_of_calls_leaves_time_for_others(engine, ollama):
    """The model's side runs in this loop as well, so the limit is wider than the server's own."""
    ollama.reply(tool_calls=[call("add", a=number) for number in range(3000)])
    ollama.reply(["Done."])
    session = await engine.session(**offer())
    await engine.runtime.tools.inventory()
    holds: list[float] = []
    began = time.thread_time()

    def tick() -> None:
        nonlocal began, timer
        now = time.thread_time()
        holds.append(now - began)
        began, timer = now, asyncio.get_running_loop().call_later(0.001, tick)

    timer = asyncio.get_running_loop().call_later(0.001, tick)
    events = await engine.turn(session)
    timer.cancel()
    assert len(of_kind(events, "tool_result")) == 3000
    assert max(holds) < 1


async def test_a_long_result_is_cut_and_says_so(tmp_path, ollama):
    write_tools(tmp_path)
    async with bench(tmp_path, ollama) as engine:
        engine.runtime.tool_execution.result_characters = 100
        ollama.reply(tool_calls=[call("shout", text="x" * 500)])
        ollama.reply(["Long."])
        session = await engine.session(**offer())
        await engine.turn(session)
        content = engine.stored(session)[2]["content"]
        assert content.startswith("X" * 100)
        assert "400 more characters" in content


async def test_a_reload_while_a_question_is_open_does_not_disturb_the_turn(
    engine, ollama, tmp_path
):
    session = await engine.session(**offer("always_confirm"))
    for answer in ("Old.", "New."):
        ollama.reply(tool_calls=[call("add", a=1)])
        ollama.reply([answer])
    log = await engine.start(session)
    asked = await question(engine, session)
    changed = FUNCTIONS.replace("return str(a + b)", 'return f"sum {a + b}"')
    (tmp_path / "tools" / "functions.py").write_text(changed)
    await engine.runtime.tools.reload()
    await engine.chat.confirm(session, asked, approved=True)
    assert of_kind(await read_all(log), "tool_result")[0]["result"] == "4"
    log = await engine.start(session, "Again.")
    await engine.chat.confirm(session, await question(engine, session), approved=True)
    assert of_kind(await read_all(log), "tool_result")[0]["result"] == "sum 4"


async def test_names_that_nothing_has_enable_neither_tools_nor_agents(engine):
    agents = AgentSettings(enabled_agents=["nobody"])
    session = await engine.session(**offer("never_confirm", "launch"), agent_settings=agents)
    status = await engine.runtime.status.of(session)
    assert (status["tools_enabled"], status["unknown_tools"]) == (False, ["launch"])
    assert (status["agents_enabled"], status["unknown_agents"]) == (False, ["nobody"])


async def test_what_was_executed_is_counted(engine, ollama):
    ollama.reply(tool_calls=[call("add", a=1), call("add", a=2), call("fail", text="x")])
    ollama.reply(["Done."])
    session = await engine.session(**offer())
    await engine.turn(session)
    history = engine.runtime.tool_execution.history()
    assert sorted(str(entry["tool_name"]) for entry in history) == ["add", "add", "fail"]
    assert all(entry["session_id"] == session for entry in history)
    statistics: Any = engine.runtime.tool_execution.statistics()
    assert (statistics["add"]["count"], statistics["add"]["failures"]) == (2, 0)
    assert (statistics["fail"]["count"], statistics["fail"]["failures"]) == (1, 1)
    assert 0 < statistics["add"]["mean_seconds"] <= statistics["add"]["p95_seconds"] < 10


@pytest.mark.parametrize(
    "call", ["add", None, {"function": "add"}, {"function": {"name": 3}, "id": 4}, {"id": None}]
)
def test_calls_of_odd_writers_get_a_result_as_well(call):
    """A session whose last calls a crash or an editor has left so can still be talked to."""
    [result] = unanswered([{"role": "assistant", "tool_calls": [call]}])
    assert result.content == INTERRUPTED
    assert (result.tool_name, result.tool_call_id) == (None, None)
