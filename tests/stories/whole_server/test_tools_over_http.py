"""Tools and confirmations at a real server process, over real sockets."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
import pytest_asyncio

from mochi_server.chat.tool_calls.handling import EDITED
from mochi_server.chat.tool_calls.results import INTERRUPTED
from tests.support.fake_ollama import FakeOllama
from tests.support.server import ROOT, Server, environment, running_server
from tests.support.site import Site, running_site
from tests.support.tool_folders import is_gone
from tests.support.tools import function, write_tools
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

SECONDS = 60
MAX_ROUNDS = 3
PARIS = {"city": "Paris"}
LONDON = {"city": "London", "unit": "C"}
CONTINUE = ("tool_continuation_start", {"message": "Processing tool results..."})
DENY_TEXT = "the user denied this call."

WEATHER = '''
import time
from pathlib import Path
from typing import Literal

__all__ = ["get_weather", "get_current_time", "fail", "silent"]
RAN = Path(__file__).parent.parent / "ran"


def get_weather(city: str, unit: Literal["C", "F"] = "C") -> str:
    """Tell the weather of a city.

    Args:
        city: Name of the city.
        unit: Of the temperature.
    """
    with RAN.open("a") as file:
        file.write(f"{city}\\n")
    return f"21 {unit} in {city}"


def get_current_time() -> str:
    """Tell the time."""
    return "noon"


def fail(why: str) -> str:
    """Fail.

    Args:
        why: For what reason.
    """
    raise ValueError(why)


def silent() -> str:
    return ""


__sky__ = ["get_weather", "get_current_time"]
'''

ENABLED = ["get_weather", "get_current_time", "fail"]


SLOW = '''
import os
import signal
import time
from pathlib import Path

__all__ = ["stay"]
HERE = Path(__file__).parent.parent


def stay(number: int) -> str:
    """Say that it runs, and go on for ever.

    Args:
        number: Which one.
    """
    (HERE / f"pid{number}.part").write_text(str(os.getpid()))
    (HERE / f"pid{number}.part").rename(HERE / f"pid{number}")
    while True:
        time.sleep(60)
'''


def settings(*tools: str, policy: str = "never_confirm", **more: Any) -> dict[str, Any]:
    return {"tool_settings": {"tools": [*tools], "execution_policy": policy, **more}}


def call(
    name: str, arguments: dict[str, Any] | None = None, call_id: str = "call_0"
) -> dict[str, Any]:
    return {"name": name, "arguments": arguments or {}, "id": call_id}


def started(name: str, arguments: dict[str, Any], index: int, call_id: str) -> tuple[str, Any]:
    data = {"tool_name": name, "arguments": arguments, "call_index": index, "tool_call_id": call_id}
    return "tool_call", data


def result(name: str, text: str, index: int, call_id: str) -> tuple[str, Any]:
    return "tool_result", {
        "tool_name": name,
        "success": True,
        "result": text,
        "error_message": None,
        "call_index": index,
        "tool_call_id": call_id,
    }


def failure(name: str, reason: str, index: int, call_id: str, code: str) -> tuple[str, Any]:
    event, data = result(name, "", index, call_id)
    return event, {**data, "success": False, "result": None, "error_message": reason, "code": code}


def text(content: str) -> tuple[str, Any]:
    return "content_delta", {"content": content, "role": "assistant"}


def joined(events: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Neighbouring deltas as one: how they are cut is nobody's business here."""
    found: list[tuple[str, Any]] = []
    for name, data in events:
        if found and name == found[-1][0] == "content_delta":
            found[-1] = text(found[-1][1]["content"] + data["content"])
        else:
            found.append((name, data))
    return found


async def streamed(server: Server, session: str, **body: Any) -> list[tuple[str, Any]]:
    """All events of a turn; their ids must grow."""
    found, last = [], 0
    async for event in server.stream(f"/chat/{session}/stream", {"message": "Go.", **body}):
        assert event.id is not None
        assert int(event.id) > last
        last = int(event.id)
        found.append((event.event, event.data))
    return joined(found)


def without_its_ends(events: list[tuple[str, Any]], session: str) -> list[tuple[str, Any]]:
    """What comes between ``run_start`` and ``message_complete``, ``done``: each of them once."""
    (start, head), *rest, (complete, data), done = events
    assert (start, head["session_id"]) == ("run_start", session)
    assert complete == "message_complete"
    assert data["finish_reason"] == "stop"
    assert done == ("done", {"session_id": session})
    others = {"run_start", "message_complete", "done", "error"}
    assert others.isdisjoint(name for name, _ in rest)
    return rest


def stored(server_folder: Path, session: str) -> list[dict[str, Any]]:
    """The messages in the file."""
    content = (server_folder / "chat_sessions" / f"{session}.json").read_text("utf-8")
    messages: list[dict[str, Any]] = json.loads(content)["messages"]
    return messages


def shape(messages: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Role, text, and whose result it is, or what is called."""
    return [
        (
            m["role"],
            m["content"],
            m.get("tool_call_id") or [c["id"] for c in m.get("tool_calls", [])],
        )
        if m["role"] != "user"
        else (m["role"], m["content"])
        for m in messages
    ]


def sent(body: dict[str, Any]) -> list[tuple[Any, ...]]:
    """The same of a request that the model got."""
    return shape(body["messages"])


@pytest_asyncio.fixture(loop_scope="module")
async def ollama() -> AsyncIterator[FakeOllama]:
    """The usual one, in the loop of these tests."""
    async with FakeOllama() as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    """One server for the tests that change no files."""
    folder = tmp_path_factory.mktemp("site")
    write_tools(folder / "tools", init=WEATHER)
    async with running_site(folder, max_tool_rounds=MAX_ROUNDS) as site:
        yield site


@pytest_asyncio.fixture(loop_scope="module")
async def site(shared_site: Site) -> AsyncIterator[Site]:
    """For one test; nothing ran yet."""
    (shared_site.folder / "ran").unlink(missing_ok=True)
    async with shared_site.lent():
        yield shared_site


# -- the loop

Called = tuple[str, dict[str, Any], str]
P: Called = ("get_weather", PARIS, "21 C in Paris")
L: Called = ("get_weather", LONDON, "21 C in London")
N: Called = ("get_current_time", {}, "noon")
RECORDED: dict[str, tuple[str, list[Called]]] = {
    "tool_one": ("", [P]),
    "tool_one_in_final": ("", [P]),
    "tool_two": ("", [P, L]),
    "tool_two_in_one_chunk": ("", [P, L]),
    "tool_two_in_final": ("", [P, L]),
    "tool_legacy_no_id": ("", [P]),
    "tool_no_args": ("", [N]),
    "content_then_tool": ("I'll check the weather.", [P]),
    "tool_then_content": ("Let me also say", [P]),
}


async def test_calls_on_any_chunk_run_and_go_back_in_order(site: Site) -> None:
    server, ollama = site.server, site.ollama
    for name, (said, calls) in RECORDED.items():
        session = await server.new_session(**settings(*ENABLED))
        ollama.play(name, speed=100)
        ollama.reply(["It is ", "fine."])
        events = without_its_ends(await streamed(server, session), session)
        ids = [data["tool_call_id"] for event, data in events if event == "tool_call"]
        assert len({*ids} - {None, ""}) == len(calls), name
        begun = [started(*c[:2], at, ids[at]) for at, c in enumerate(calls)]
        done = [result(c[0], c[2], at, ids[at]) for at, c in enumerate(calls)]
        head = [text(said)] if said else []
        middle = events[len(head) + len(begun) : -2]
        assert events[: len(head) + len(begun)] == [*head, *begun], name
        assert sorted(middle, key=lambda e: e[1]["call_index"]) == done, name
        assert events[-2:] == [CONTINUE, text("It is fine.")], name
        told = [
            ("user", "Go."),
            ("assistant", said, ids),
            *(("tool", c[2], ids[at]) for at, c in enumerate(calls)),
        ]
        assert sent(ollama.chats[-1]) == told, name
        assert shape(stored(site.folder, session)) == [*told, ("assistant", "It is fine.", [])]


async def test_one_reply_has_every_call_of_the_turn_with_its_fields(site: Site) -> None:
    server, ollama = site.server, site.ollama
    session = await server.new_session(**settings(*ENABLED))
    ollama.play("tool_two")
    ollama.reply(["Again."], tool_calls=[call("fail", {"why": "no"}, "call_a1b2c3d4")])
    ollama.reply(["Fine."])
    status, body = await server.post(f"/chat/{session}", {"message": "Go."})
    assert status == 200
    assert body["message"]["content"] == "Fine."
    failed = failure("fail", "ValueError: no", 0, "call_a1b2c3d4", "TOOL_EXECUTION_FAILED")[1]
    assert body["tool_calls_executed"] == [
        {"arguments": PARIS, **result("get_weather", P[2], 0, "call_a1b2c3d4")[1]},
        {"arguments": LONDON, **result("get_weather", L[2], 1, "call_e5f6g7h8")[1]},
        {"arguments": {"why": "no"}, **failed},
    ]
    assert shape(stored(site.folder, session)) == [
        ("user", "Go."),
        ("assistant", "", ["call_a1b2c3d4", "call_e5f6g7h8"]),
        ("tool", P[2], "call_a1b2c3d4"),
        ("tool", L[2], "call_e5f6g7h8"),
        ("assistant", "Again.", ["call_a1b2c3d4"]),
        ("tool", "Error: ValueError: no", "call_a1b2c3d4"),
        ("assistant", "Fine.", []),
    ]
    names = [m["tool_name"] for m in stored(site.folder, session) if m["role"] == "tool"]
    assert names == ["get_weather", "get_weather", "fail"]
    server.output.clear()  # the traceback of the tool, which belongs there


async def test_the_last_round_is_told_in_one_reply(site: Site) -> None:
    server, ollama = site.server, site.ollama
    told = []
    for rounds in (MAX_ROUNDS, MAX_ROUNDS - 1):
        session = await server.new_session(**settings(*ENABLED))
        for number in range(rounds):
            ollama.reply(tool_calls=[call("get_current_time", {}, f"c{number}")])
        ollama.reply(["That is all."])
        status, body = await server.post(f"/chat/{session}", {"message": "Go."})
        assert (status, body["message"]["content"]) == (200, "That is all.")
        assert len(body["tool_calls_executed"]) == rounds
        told.append(body.get("tool_rounds_exhausted"))
    assert told == [True, None]


# -- files that change while the server runs


async def command(*arguments: str, cwd: Path, **values: Any) -> tuple[int, str]:
    """Exit code and output of ``python ARGUMENTS``."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        cwd=cwd,
        env=environment(**values),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    with anyio.fail_after(100):
        output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()


async def test_changed_broken_and_removed_files_are_noticed_at_the_next_use(
    tmp_path: Path, ollama: FakeOllama
) -> None:
    folder = tmp_path / "tools"
    async with running_server(data_dir=tmp_path, ollama=ollama) as server:
        status, body = await server.get("/tools")
        assert (status, body) == (200, {"tools": {}, "groups": {}, "problems": []})
        session = await server.new_session(**settings("say", "more"))

        async def said() -> list[tuple[bool, str]]:
            ollama.reply(tool_calls=[call("say", {}, "c0"), call("more", {}, "c1")])
            events = await streamed(server, session)
            found = {d["call_index"]: d for name, d in events if name == "tool_result"}
            return [(d["success"], d["result"] or d["code"]) for _, d in sorted(found.items())]

        gone = (False, "TOOL_NOT_FOUND")
        assert await said() == [gone, gone]
        write_tools(folder, init=function("say", 'return "one"') + "__all__ = ['say']\n")
        assert await said() == [(True, "one"), gone]
        # The same size and perhaps the same second.
        write_tools(folder, init=function("say", 'return "two"') + "__all__ = ['say']\n")
        assert await said() == [(True, "two"), gone]
        (folder / "sub").mkdir()
        write_tools(folder / "sub", init=function("more", "return 'sub'") + "__all__ = ['more']\n")
        assert await said() == [(True, "two"), (True, "sub")]
        write_tools(folder, init="def broken(:\n")
        assert await said() == [gone, (True, "sub")]
        status, body = await server.get("/tools")
        assert list(body["tools"]) == ["more"]
        [problem] = body["problems"]
        assert (problem["file"], problem["line"]) == (str(folder / "__init__.py"), 1)
        assert "SyntaxError" in problem["reason"]
        status, state = await server.get(f"/sessions/{session}/status")
        assert (state["active_tools"], state["unknown_tools"]) == (["more"], ["say"])
        shutil.rmtree(folder)
        assert await said() == [gone, gone]
        assert "tools" not in ollama.chats[-1]
        write_tools(folder, init=function("say", 'return "back"') + "__all__ = ['say']\n")
        assert await said() == [(True, "back"), gone]


@pytest.mark.slow
async def test_reload_and_the_command_load_what_looks_unchanged(
    tmp_path: Path, ollama: FakeOllama
) -> None:
    (tmp_path / "word.txt").write_text("one")
    say = function("say", "return WORD")
    read = f"WORD = open({str(tmp_path / 'word.txt')!r}).read()\n__all__ = ['say']\n"
    write_tools(tmp_path / "tools", init=read + say)
    manage = str(ROOT / "manage.py")
    async with running_server(data_dir=tmp_path, ollama=ollama) as server:
        session = await server.new_session(**settings("say"))

        async def said() -> str:
            ollama.reply(tool_calls=[call("say")])
            events = await streamed(server, session)
            [found] = [d["result"] for name, d in events if name == "tool_result"]
            return str(found)

        assert await said() == "one"
        (tmp_path / "word.txt").write_text("two")
        assert await said() == "one"
        assert (await server.post("/tools/reload"))[0] == 200
        assert await said() == "two"
        (tmp_path / "word.txt").write_text("three")
        code, output = await command(manage, "reload_tools", "--check", cwd=ROOT, data_dir=tmp_path)
        assert (code, await said()) == (0, "two"), output
        code, output = await command(manage, "reload_tools", cwd=ROOT, data_dir=tmp_path)
        assert (code, await said()) == (0, "three"), output
        assert "say" in output
        (tmp_path / "tools" / "sub").mkdir()
        write_tools(tmp_path / "tools" / "sub", init="import sys\nsys.exit(0)\n")
        code, output = await command(manage, "reload_tools", "--check", cwd=ROOT, data_dir=tmp_path)
        assert code == 1
        assert f"{tmp_path / 'tools' / 'sub' / '__init__.py'}:2: " in output
        assert await said() == "three"


async def test_changed_settings_count_from_the_next_turn_and_status_tells_what_is_missing(
    site: Site,
) -> None:
    server, ollama = site.server, site.ollama
    session = await server.new_session()

    async def status() -> dict[str, Any]:
        code, body = await server.get(f"/sessions/{session}/status")
        assert code == 200
        keys = ("tools_enabled", "active_tools", "unknown_tools", "unknown_tool_group")
        return {key: body[key] for key in (*keys, "missing_tools", "execution_policy")}

    assert await status() == {
        "tools_enabled": False,
        "active_tools": [],
        "unknown_tools": [],
        "unknown_tool_group": None,
        "missing_tools": {},
        "execution_policy": "always_confirm",
    }
    await streamed(server, session)
    assert "tools" not in ollama.chats[-1]
    patch = settings("fail", "nobody", "silent", tool_group="sky")
    code, body = await server.request("PATCH", f"/sessions/{session}", patch)
    assert (code, body["tool_settings"]) == (200, patch["tool_settings"])
    found = await status()
    assert sorted(found.pop("active_tools")) == sorted(ENABLED)
    assert found == {
        "tools_enabled": True,
        "unknown_tools": ["nobody"],
        "unknown_tool_group": None,
        "missing_tools": {"silent": found["missing_tools"]["silent"]},
        "execution_policy": "never_confirm",
    }
    assert "docstring" in found["missing_tools"]["silent"]
    await streamed(server, session)
    names = [tool["function"]["name"] for tool in ollama.chats[-1]["tools"]]
    assert sorted(names) == sorted(ENABLED)
    patch = {"tool_settings": {"tool_group": "nowhere"}}
    code, body = await server.request("PATCH", f"/sessions/{session}", patch)
    assert (await status())["unknown_tool_group"] == "nowhere"
    assert (await status())["execution_policy"] == "always_confirm"
    wrong: dict[str, Any]
    for wrong in ({"execution_policy": "perhaps"}, {"tools": "fail"}, {"tool": []}):
        code, body = await server.request("PATCH", f"/sessions/{session}", {"tool_settings": wrong})
        assert (code, body["error"]["code"]) == (422, "VALIDATION_ERROR")
    code, body = await server.request("PATCH", f"/sessions/{session}", {"tool_settings": None})
    assert (code, body["tool_settings"]) == (200, None)
    assert (await status())["tools_enabled"] is False


# -- confirmations


async def pending(server: Server, session: str) -> list[dict[str, Any]]:
    status, body = await server.get(f"/chat/{session}/confirmations")
    assert status == 200, body
    found: list[dict[str, Any]] = body["confirmations"]
    return found


async def questions(
    server: Server, session: str, *, other_than: dict[str, Any] | None = None
) -> list[dict[str, Any]]:
    """What another client finds, once there is something."""
    return await until(
        lambda: pending(server, session), lambda found: found not in ([], [other_than])
    )


async def decide(server: Server, session: str, question: Any, **body: Any) -> int:
    body = {"confirmation_id": question["confirmation_id"], **body}
    status, _ = await server.post(f"/chat/{session}/confirm-tool", body)
    return status


def confirmation(
    question: dict[str, Any], timeout: float, **decided: Any
) -> list[tuple[str, dict[str, Any]]]:
    """The two events of a question that another client found in the list."""
    ours = ("tool_name", "call_index", "tool_call_id", "confirmation_id")
    both = {key: question[key] for key in ours}
    shown = ("arguments", "shown", "suggestions", "queue_position", "queue_total")
    asked = {key: question[key] for key in shown}
    given = {"arguments": question["arguments"], "edited": False, "reason": None}
    return [
        ("tool_call_confirmation_required", {**both, **asked, "timeout_seconds": timeout}),
        ("tool_call_confirmation_decided", {**both, **given, **decided}),
    ]


async def test_a_second_client_allows_changes_and_denies(site: Site) -> None:
    server, ollama = site.server, site.ollama
    session = await server.new_session(**settings(*ENABLED, policy="always_confirm"))
    other = await server.new_session(**settings(*ENABLED))
    names = ["Paris", "Rome", "Oslo", "Bern"]
    calls = [call("get_weather", {"city": n}, f"c{at}") for at, n in enumerate(names)]
    ollama.reply(tool_calls=[*calls, call("nothing", {}, "c4")])
    ollama.reply(["Good."])
    running = asyncio.ensure_future(streamed(server, session))

    [one] = await questions(server, session)
    assert await decide(server, other, one, approved=True) == 404
    assert await questions(server, session) == [one]
    assert await decide(server, session, one, approved=True, reason="Why not?") == 200
    assert await decide(server, session, one, approved=False) == 404

    [two] = await questions(server, session, other_than=one)
    edited = {"city": "Venice", "unit": "F"}
    wrong = {"city": "Venice", "unit": "K"}
    assert await decide(server, session, two, approved=True, arguments=wrong) == 422
    assert await questions(server, session) == [two]
    assert await decide(server, session, two, approved=True, arguments=edited) == 200

    [three] = await questions(server, session, other_than=two)
    assert await decide(server, session, three, approved=False, reason="Too cold.") == 200
    [four] = await questions(server, session, other_than=three)
    assert await decide(server, session, four, approved=False) == 200
    events = without_its_ends(await running, session)
    assert await decide(server, session, four, approved=True) == 404

    places = [(q["queue_position"], q["queue_total"]) for q in (one, two, three, four)]
    assert places == [(1, 4), (2, 4), (3, 4), (4, 4)]
    denied = "TOOL_EXECUTION_DENIED"
    why = f"{DENY_TEXT} Reason: Too cold."
    missing = "there is no tool named 'nothing'."
    assert events[:10] == [
        started("nothing", {}, 4, "c4"),
        failure("nothing", missing, 4, "c4", "TOOL_NOT_FOUND"),
        *confirmation(one, 300.0, approved=True, reason="Why not?"),
        *confirmation(two, 300.0, approved=True, arguments=edited, edited=True),
        *confirmation(three, 300.0, approved=False, reason="Too cold."),
        failure("get_weather", why, 2, "c2", denied),
        confirmation(four, 300.0, approved=False)[0],
    ]
    assert events[10:12] == [
        confirmation(four, 300.0, approved=False)[1],
        failure("get_weather", DENY_TEXT, 3, "c3", denied),
    ]
    ran = sorted(events[12:14], key=lambda event: event[1]["call_index"])
    assert ran == [
        result("get_weather", P[2], 0, "c0"),
        result("get_weather", "21 F in Venice", 1, "c1"),
    ]
    assert events[14:] == [CONTINUE, text("Good.")]
    told = [
        ("user", "Go."),
        ("assistant", "", ["c0", "c1", "c2", "c3", "c4"]),
        ("tool", P[2], "c0"),
        ("tool", EDITED.format('{"city":"Venice","unit":"F"}', "21 F in Venice"), "c1"),
        ("tool", f"Error: {why}", "c2"),
        ("tool", f"Error: {DENY_TEXT}", "c3"),
        ("tool", f"Error: {missing}", "c4"),
    ]
    assert sent(ollama.chats[-1]) == told
    assert shape(stored(site.folder, session)) == [*told, ("assistant", "Good.", [])]
    assert sorted((site.folder / "ran").read_text().split()) == ["Paris", "Venice"]


async def test_a_reply_in_one_piece_denies_unless_it_is_told_to_wait(site: Site) -> None:
    server, ollama = site.server, site.ollama
    session = await server.new_session(**settings(*ENABLED, policy="always_confirm"))
    for body in ({}, {"confirmations": "deny"}):
        ollama.reply(tool_calls=[call("get_weather", PARIS, "c0")])
        status, answer = await server.post(f"/chat/{session}", {"message": "Go.", **body})
        assert status == 200
        [entry] = answer["tool_calls_executed"]
        assert (entry["success"], entry["code"]) == (False, "TOOL_EXECUTION_DENIED")
        assert '"confirmations": "wait"' in entry["error_message"]
        assert "confirmation_id" not in entry
    ollama.reply(tool_calls=[call("get_weather", PARIS, "c0")])
    events = await streamed(server, session, confirmations="deny")
    assert [name for name, _ in events[:3]] == ["run_start", "tool_call", "tool_result"]
    assert events[2][1]["code"] == "TOOL_EXECUTION_DENIED"
    assert not (site.folder / "ran").exists()

    ollama.reply(tool_calls=[call("get_weather", PARIS, "c0"), call("get_weather", LONDON, "c1")])
    body = {"message": "Go.", "confirmations": "wait"}
    running = asyncio.ensure_future(server.post(f"/chat/{session}", body))
    [one] = await questions(server, session)
    assert await decide(server, session, one, approved=True, arguments={"city": "Rome"}) == 200
    [two] = await questions(server, session, other_than=one)
    assert await decide(server, session, two, approved=False, reason="No.") == 200
    status, answer = await running
    assert status == 200
    first, second = answer["tool_calls_executed"]
    assert first == {
        "arguments": {"city": "Rome", "unit": "C"},
        "confirmation_id": one["confirmation_id"],
        "approved": True,
        "edited": True,
        **result("get_weather", "21 C in Rome", 0, "c0")[1],
    }
    denied = failure("get_weather", f"{DENY_TEXT} Reason: No.", 1, "c1", second["code"])[1]
    assert second.items() >= {**denied, "approved": False, "edited": False}.items()
    assert second["code"] == "TOOL_EXECUTION_DENIED"
    assert (site.folder / "ran").read_text() == "Rome\n"
    status, body = await server.post(f"/chat/{session}", {"confirmations": "ask"})
    assert (status, body["error"]["code"]) == (422, "VALIDATION_ERROR")


# -- the end of the server


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_a_server_that_ends_while_tools_run_leaves_a_sound_file_and_no_process(
    tmp_path: Path, ollama: FakeOllama, number: signal.Signals
) -> None:
    write_tools(tmp_path / "tools", init=SLOW)
    async with running_server(data_dir=tmp_path, ollama=ollama, shutdown_seconds=10) as server:
        session = await server.new_session(**settings("stay"))
        ollama.reply(tool_calls=[call("stay", {"number": n}, f"c{n}") for n in range(3)])
        path = f"{server.api}/chat/{session}/stream"

        async def read() -> str:
            async with server.http.post(path, json={"message": "Go."}) as response:
                return await response.text()

        running = asyncio.ensure_future(read())
        files = [tmp_path / f"pid{n}" for n in range(3)]
        await until(lambda: all(file.exists() for file in files))
        pids = [int(file.read_text()) for file in files]
        assert len(set(pids)) == 3
        assert not any(map(is_gone, pids))
        await server.stop(number)
        [seen] = await asyncio.gather(running, return_exceptions=True)
        if number == signal.SIGTERM:
            assert re.findall("event: (.*)", str(seen))[-2:] == ["error", "done"]
        await until(lambda: all(map(is_gone, pids)))
    for file in files:
        file.unlink()
    cut = [("user", "Go."), ("assistant", "", ["c0", "c1", "c2"])]
    lost = [("tool", INTERRUPTED, f"c{n}") for n in range(3)]
    written = cut if number == signal.SIGKILL else [*cut, *lost]
    assert shape(stored(tmp_path, session)) == written
    async with running_server(data_dir=tmp_path, ollama=ollama) as server:
        ollama.reply(["Hello."])
        assert without_its_ends(await streamed(server, session), session) == [text("Hello.")]
        assert sent(ollama.chats[-1]) == [*cut, *lost, ("user", "Go.")]
        assert shape(stored(tmp_path, session))[:5] == [*cut, *lost]
    assert not list(tmp_path.rglob("*.tmp"))
