"""Whatever goes wrong in a turn: it ends, it says so, and keeps what it has."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import anyio
import pytest

from mochi_server.errors import MochiError, SessionBusy, ShuttingDown
from mochi_server.protocol.messages import AssistantMessage, UserMessage
from mochi_server.protocol.turn_request import TurnRequest
from tests.support.fake_ollama import FakeOllama, Reply
from tests.support.session_files import check_calls
from tests.support.turns import Bench, bench, kinds, read_all, read_until, roles, text_of

MID_STREAM = {
    "mid_error": "OLLAMA_ERROR",
    "mid_error_tool_parse": "OLLAMA_ERROR",
    "drop_mid_line": "OLLAMA_ERROR",
    "drop_between_lines": "OLLAMA_ERROR",
    "invalid_json_line": "OLLAMA_ERROR",
    "non_object_line": "OLLAMA_ERROR",
}
BEFORE_ANY_BYTE = {
    "err_busy": "PROVIDER_BUSY",
    "err_load_failed": "OLLAMA_ERROR",
    "err_runner_gone": "OLLAMA_ERROR",
    "err_tool_parse": "OLLAMA_ERROR",
    "err_cloud_unauthorized": "OLLAMA_ERROR",
    "err_cloud_rate": "PROVIDER_BUSY",
    "err_model_missing": "MODEL_NOT_FOUND",
    "err_forbidden_host": "OLLAMA_UNREACHABLE",
    "err_no_route": "OLLAMA_ERROR",
}


def endless(ollama: FakeOllama) -> Reply:
    """A reply that pauses in the middle until its gate opens."""
    return ollama.reply(["Once", " upon", " a time"], gate=asyncio.Event(), pause_after=2)


class Snapshots(list[Any]):
    """A list of requests that looks at a file whenever one comes."""

    def __init__(self, engine: Bench, session: str) -> None:
        super().__init__()
        self._engine, self._session = engine, session
        self.files: list[list[dict[str, Any]]] = []

    def append(self, request: Any) -> None:
        """Called by the fake the moment it has the request."""
        if request.path == "/api/chat":
            self.files.append(self._engine.stored(self._session))
        super().append(request)


async def test_what_is_said_is_on_disk_before_anything_follows_from_it(
    engine: Bench, ollama: FakeOllama
) -> None:
    """The question before the model sees it; a reply and its results before the next request."""
    session = await engine.session()
    ollama.requests = snapshots = Snapshots(engine, session)
    ollama.reply(["Let me look."], tool_calls=[{"name": "a"}, {"name": "b"}])
    ollama.reply(["Nothing there."])
    reader = (await engine.start(session, "Look!")).reader()
    seen: dict[str, list[dict[str, Any]]] = {}
    with anyio.fail_after(30):
        while (batch := await reader.next()) is not None:
            for _, event in batch:
                seen.setdefault(event.type, engine.stored(session))
    reader.leave()
    assert [roles(file) for file in snapshots.files] == [
        ["user"],
        ["user", "assistant", "tool", "tool"],
    ]
    assert len(seen["tool_call"][1]["tool_calls"]) == 2
    assert roles(seen["tool_continuation_start"]) == ["user", "assistant", "tool", "tool"]
    assert seen["message_complete"][-1]["content"] == "Nothing there."


@pytest.mark.parametrize("fixture", MID_STREAM)
async def test_an_upstream_error_in_mid_stream_keeps_what_came(
    engine: Bench, ollama: FakeOllama, fixture: str
) -> None:
    """The partial reply is stored and marked; error and done follow; the next turn works."""
    ollama.play(fixture)
    session = await engine.session()
    events = await engine.turn(session)
    assert [event.type for event in events][-2:] == ["error", "done"]
    error = events[-2].payload()
    assert error["code"] == MID_STREAM[fixture]
    assert error["message"]
    stored = engine.stored(session)
    assert stored[0]["content"] == "Hello"
    assert stored[-1]["content"] == text_of(events)
    assert stored[-1].get("thinking", "") == text_of(events, "thinking_delta")
    assert stored[-1]["interrupted"] is True
    await engine.turn(session, "Again.")
    sent = ollama.chats[-1]["messages"]
    assert [m["content"] for m in sent if m["role"] == "user"] == ["Hello", "Again."]


@pytest.mark.parametrize("fixture", BEFORE_ANY_BYTE)
async def test_an_upstream_error_before_any_byte_keeps_the_question(
    engine: Bench, ollama: FakeOllama, fixture: str
) -> None:
    """The user's message was accepted, so it stays; nothing else is made up."""
    ollama.play(fixture)
    session = await engine.session()
    events = await engine.turn(session)
    assert kinds(events) == ["error", "done"]
    assert events[0].payload()["code"] == BEFORE_ANY_BYTE[fixture]
    assert roles(engine.stored(session)) == ["user"]
    assert text_of(await engine.turn(session, None)) == "You said: Hello"


async def test_a_silent_upstream_ends_the_turn_after_the_idle_limit(
    tmp_path: Path, ollama: FakeOllama
) -> None:
    """No turn hangs for ever."""
    async with bench(tmp_path, ollama, ollama_idle_timeout_seconds=0.5) as engine:
        ollama.play("stall_for_ever")
        session = await engine.session()
        events = await engine.turn(session)
        assert kinds(events)[-2:] == ["error", "done"]
        assert engine.stored(session)[-1]["interrupted"] is True
        await ollama.disconnected()


async def test_a_model_that_never_starts_ends_the_turn_after_the_first_byte_limit(
    tmp_path: Path, ollama: FakeOllama
) -> None:
    """Loading has a limit of its own."""
    async with bench(tmp_path, ollama, ollama_first_byte_timeout_seconds=0.2) as engine:
        ollama.reply(["Never."], gate=asyncio.Event())
        events = await engine.turn(await engine.session())
        assert kinds(events) == ["error", "done"]
        assert events[0].payload()["code"] == "OLLAMA_UNREACHABLE"
        await ollama.disconnected()


async def test_a_reader_that_leaves_stops_the_model_at_once(
    engine: Bench, ollama: FakeOllama
) -> None:
    """The upstream closes, the partial is kept, the claim is free, and the next turn works."""
    endless(ollama)
    session = await engine.session()
    reader = (await engine.start(session)).reader()
    first = await read_until(reader, "content_delta")
    reader.leave()
    await ollama.disconnected()
    await engine.ended()
    stored = engine.stored(session)
    assert stored[-1]["interrupted"] is True
    assert stored[-1]["content"].startswith(text_of(first))
    assert "Once upon".startswith(stored[-1]["content"])
    assert stored[-1]["eval_count"] is None
    ollama.reply(["Fine."])
    assert text_of(await engine.turn(session, "Again.")) == "Fine."
    assert [m["role"] for m in ollama.chats[-1]["messages"]] == ["user", "assistant", "user"]


async def test_a_reader_that_leaves_while_the_model_loads_stops_it(
    engine: Bench, ollama: FakeOllama
) -> None:
    """Nothing was said, so nothing but the question is kept."""
    ollama.reply(["Late."], gate=asyncio.Event())
    session = await engine.session()
    reader = (await engine.start(session)).reader()
    await ollama.requested(path="/api/chat")
    reader.leave()
    await ollama.disconnected()
    await engine.ended()
    assert roles(engine.stored(session)) == ["user"]
    await engine.turn(session, "Again.")


async def test_a_reader_that_leaves_before_the_turn_began_gives_the_session_back(
    engine: Bench, ollama: FakeOllama
) -> None:
    """Closing a stream closes everything it opened, also one that never started."""
    session = await engine.session()
    log = await engine.start(session)
    log.reader().leave()
    await engine.ended()
    assert log.closed
    events = await read_all(log)
    assert events[-1].type == "done"
    assert text_of(await engine.turn(session, None)) == "You said: Hello"


async def test_a_turn_that_is_stopped_before_it_began_says_so(engine: Bench) -> None:
    """Every reader of a started turn sees its end."""
    session = await engine.session()
    log = await engine.start(session)
    reader = log.reader()
    assert engine.runs.interrupt(session, ShuttingDown())
    events = await read_all(reader)
    assert kinds(events) == ["error", "done"]
    await engine.turn(session, None)


async def test_a_turn_that_was_opened_but_never_started_can_be_released(engine: Bench) -> None:
    """Whoever gets a turn may also give it back."""
    session = await engine.session()
    turn = await engine.chat.open_turn(session, TurnRequest(message="Hello"))
    await turn.release()
    await turn.release()
    await engine.turn(session, None)


async def test_a_call_in_a_reply_that_was_cut_off_gets_its_result(
    engine: Bench, ollama: FakeOllama
) -> None:
    """Every call gets exactly one result, also one that never ran."""
    gate = asyncio.Event()
    calls = [{"name": "look", "arguments": {}}, {"name": "listen", "arguments": {}}]
    ollama.reply(["Hm."], tool_calls=calls, gate=gate, pause_after=2)
    session = await engine.session()
    reader = (await engine.start(session)).reader()
    await read_until(reader, "content_delta")
    assert engine.runs.interrupt(session, ShuttingDown())
    await read_all(reader)
    stored = engine.stored(session)
    asked = [call["id"] for call in stored[1].get("tool_calls") or []]
    assert [m["tool_call_id"] for m in stored[2:]] == asked
    assert all("interrupted" in m["content"] for m in stored[2:])


async def test_a_stopped_turn_tells_its_readers_why(engine: Bench, ollama: FakeOllama) -> None:
    """Anyone with the session's id can stop it; the partial reply is kept."""
    endless(ollama)
    session = await engine.session()
    reader = (await engine.start(session)).reader()
    said = await read_until(reader, "content_delta")
    assert engine.runs.interrupt(session, ShuttingDown("Enough."))
    assert engine.runs.interrupt(
        session, ShuttingDown("Enough, I said.")
    )  # the first reason counts
    events = said + await read_all(reader)
    assert kinds(events) == ["content_delta", "error", "done"]
    assert events[-2].payload()["message"] == "Enough."
    assert engine.stored(session)[-1]["content"] == text_of(events)
    await ollama.disconnected()
    assert not engine.runs.interrupt(session, ShuttingDown())
    await engine.turn(session, "Again.")


async def test_shutdown_ends_every_turn_and_takes_no_new_one(
    engine: Bench, ollama: FakeOllama
) -> None:
    """Partials are kept, every reader sees error and done, and the door is shut."""
    ollama.one_at_a_time = False
    readers, sessions = [], []
    for _ in range(3):
        endless(ollama)
        sessions.append(await engine.session())
        readers.append((await engine.start(sessions[-1])).reader())
    for reader in readers:
        await read_until(reader, "content_delta")
    opened = await engine.session()
    late = await engine.chat.open_turn(opened, TurnRequest(message="Just in time."))
    engine.runs.stop_all()
    for reader in readers:
        events = await read_all(reader)
        assert kinds(events)[-2:] == ["error", "done"]
        assert events[-2].payload()["code"] == "SHUTTING_DOWN"
    for session in sessions:
        assert engine.stored(session)[-1]["interrupted"] is True
    with pytest.raises(ShuttingDown):
        await engine.chat.open_turn(sessions[0], TurnRequest(message="Too late."))
    events = await read_all(engine.chat.start(late))
    assert kinds(events) == ["error", "done"]
    assert not len(engine.runs)


async def test_one_of_two_readers_may_leave(engine: Bench, ollama: FakeOllama) -> None:
    """The turn runs as long as somebody reads it."""
    reply = endless(ollama)
    session = await engine.session()
    log = await engine.start(session)
    one, two = log.reader(), log.reader()
    said = await read_until(two, "content_delta")
    one.leave()
    one.leave()
    assert await one.next() is None
    assert reply.gate is not None
    reply.gate.set()
    events = said + await read_all(two)
    assert kinds(events) == ["content_delta", "message_complete", "done"]
    assert ollama.disconnects == 0


async def test_a_late_reader_gets_the_same_text(engine: Bench, ollama: FakeOllama) -> None:
    """What was folded away meanwhile reads the same."""
    words = [f"w{number} " for number in range(500)]
    reply = ollama.reply(words, thinking=["a", "b", "c"], gate=asyncio.Event(), pause_after=400)
    session = await engine.session()
    log = await engine.start(session, think=True)
    early = log.reader()
    got: list[Any] = []
    with anyio.fail_after(30):
        while text_of(got) != "".join(words[:397]):
            got += [event for _, event in await early.next() or []]
    assert kinds(got)[0] == "run_start"
    late = log.reader()
    assert reply.gate is not None
    reply.gate.set()
    first, second = await asyncio.gather(read_all(early), read_all(late))
    first = got[1:] + first
    assert text_of(first) == text_of(second) == "".join(words)
    assert text_of(first, "thinking_delta") == text_of(second, "thinking_delta") == "abc"
    assert kinds(first) == kinds(second)
    assert len(second) < len(first)


async def test_a_reader_that_does_not_read_holds_up_nobody(
    engine: Bench, ollama: FakeOllama
) -> None:
    """The upstream is read at full speed, whatever the speed of the client."""
    words = ["word " * 200] * 5_000  # 5 MB: more than any socket buffer
    ollama.reply(words)
    session = await engine.session()
    log = await engine.start(session)
    idle = log.reader()
    await engine.ended()
    assert log.closed
    assert engine.stored(session)[-1]["content"] == "".join(words)
    assert text_of(await read_all(idle)) == "".join(words)


async def test_cancelling_the_reply_in_one_piece_stops_the_model(
    engine: Bench, ollama: FakeOllama
) -> None:
    """A client of the plain route that leaves is a client that leaves."""
    endless(ollama)
    session = await engine.session()
    task = asyncio.ensure_future(engine.chat.complete(session, TurnRequest(message="Go.")))
    await ollama.requested(path="/api/chat")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await ollama.disconnected()
    await engine.ended()
    await engine.turn(session, "Again.")


async def test_a_session_that_vanishes_in_mid_turn_is_an_error_that_the_user_sees(
    engine: Bench, ollama: FakeOllama
) -> None:
    """What cannot be stored is never reported as complete."""
    reply = endless(ollama)
    session = await engine.session()
    reader = (await engine.start(session)).reader()
    await read_until(reader, "content_delta")
    engine.path(session).unlink()
    assert reply.gate is not None
    reply.gate.set()
    events = await read_all(reader)
    assert [event.type for event in events][-2:] == ["error", "done"]
    assert "message_complete" not in kinds(events)
    assert not engine.path(session).exists()


@pytest.mark.parametrize("is_valid", [True, False])
async def test_what_a_person_changes_in_the_file_in_mid_turn_is_kept(
    engine: Bench, ollama: FakeOllama, is_valid: bool
) -> None:
    reply = endless(ollama)
    session = await engine.session()
    reader = (await engine.start(session)).reader()
    await read_until(reader, "content_delta")
    changed = engine.path(session).read_bytes().replace(b"Hello", b"Good morning")
    engine.path(session).write_bytes(changed if is_valid else changed[:-20])
    assert reply.gate is not None
    reply.gate.set()
    events = await read_all(reader)
    assert events[-1].type == "done"
    if is_valid:
        assert "message_complete" in kinds(events)
        contents = [message["content"] for message in engine.stored(session)]
        assert contents == ["Good morning", "Once upon a time"]
    else:
        assert "message_complete" not in kinds(events)
        assert engine.path(session).read_bytes() == changed[:-20]


@pytest.mark.parametrize("has_question", [False, True])
async def test_an_earlier_state_that_is_put_back_in_mid_turn_gets_no_answer_that_does_not_fit(
    engine: Bench, ollama: FakeOllama, has_question: bool
) -> None:
    """An answer has its question and the results that it is from, or is not stored."""
    first = ollama.reply(
        ["Let", " me", " look."], tool_calls=[{"name": "a"}], gate=asyncio.Event(), pause_after=2
    )
    last = endless(ollama)
    session = await engine.session()
    states = [engine.path(session).read_bytes()]
    reader = (await engine.start(session)).reader()
    await read_until(reader, "content_delta")
    states.append(engine.path(session).read_bytes())
    assert first.gate is not None
    first.gate.set()
    await read_until(reader, "tool_continuation_start")
    await read_until(reader, "content_delta")
    engine.path(session).write_bytes(states[has_question])
    assert last.gate is not None
    last.gate.set()
    events = await read_all(reader)
    assert kinds(events)[-2:] == ["error", "done"]
    assert events[-2].payload()["code"] == "STORAGE_UNAVAILABLE"
    assert engine.path(session).read_bytes() == states[has_question]
    ollama.reply(["Yes."])
    assert text_of(await engine.turn(session)) == "Yes."


@pytest.mark.parametrize("keep", [False, True])
async def test_an_earlier_answer_that_is_put_back_in_mid_turn_gets_no_second_one(
    engine: Bench, ollama: FakeOllama, keep: bool
) -> None:
    session = await engine.session()
    ollama.reply(["Yes."])
    await engine.turn(session)
    before = engine.path(session).read_bytes()
    reply = endless(ollama)
    reader = (await engine.start(session, message=None, keep=keep)).reader()
    await read_until(reader, "content_delta")
    engine.path(session).write_bytes(before)
    assert reply.gate is not None
    reply.gate.set()
    events = await read_all(reader)
    assert kinds(events)[-2:] == ["error", "done"]
    assert events[-2].payload()["code"] == "STORAGE_UNAVAILABLE"
    assert engine.path(session).read_bytes() == before


async def test_a_folder_that_refuses_the_question_leaves_the_model_alone(
    engine: Bench, ollama: FakeOllama
) -> None:
    """A message that cannot be kept is not accepted; with room again, the session goes on."""
    session = await engine.session()
    content = engine.path(session).read_bytes()
    engine.path(session).unlink()
    engine.path(session).mkdir()
    with pytest.raises(MochiError):
        await engine.chat.open_turn(session, TurnRequest(message="Hello"))
    assert not ollama.chats
    engine.path(session).rmdir()
    engine.path(session).write_bytes(content)
    await engine.turn(session)


async def test_a_client_that_leaves_while_the_checks_run_gives_the_session_back(
    engine: Bench, ollama: FakeOllama
) -> None:
    """An Ollama that hangs at its first question must not lock the session."""
    ollama.play_raw([b"{}"], path="/api/tags", first_byte_ms=60_000)
    session = await engine.session()
    opening = asyncio.ensure_future(engine.chat.open_turn(session, TurnRequest(message="Hello")))
    await ollama.requested(path="/api/tags")
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    await ollama.disconnected()
    assert engine.stored(session) == []
    await engine.turn(session)


@pytest.mark.parametrize("steps", range(0, 60, 4))
async def test_opening_can_be_cancelled_at_any_step(engine: Bench, steps: int) -> None:
    """Either nothing happened, or the question is kept; the claim is free in both cases."""
    session = await engine.session()
    opening = asyncio.ensure_future(engine.chat.open_turn(session, TurnRequest(message="Hello")))
    for _ in range(steps):
        await asyncio.sleep(0.0002)
    opening.cancel()
    outcome = (await asyncio.gather(opening, return_exceptions=True))[0]
    if not isinstance(outcome, BaseException):
        await outcome.release()
    else:
        assert isinstance(outcome, asyncio.CancelledError)
    assert [m["content"] for m in engine.stored(session)] in ([], ["Hello"])
    assert kinds(await engine.turn(session, "Again."))[-1] == "done"


async def test_calls_that_a_crash_left_open_are_answered_at_the_next_turn(
    engine: Bench, ollama: FakeOllama
) -> None:
    """Models refuse a history with open calls; the file gets what is missing."""
    session = await engine.session()
    calls = [
        {"function": {"name": name, "arguments": {}}, "id": f"call_{name}"} for name in ("a", "b")
    ]
    async with engine.sessions.edit(session) as edited:
        edited.append(UserMessage(content="Do it."))
        edited.append(AssistantMessage(content="", model="qwen3:14b", tool_calls=calls))
    await engine.turn(session, "Well?")
    stored = engine.stored(session)
    assert roles(stored) == ["user", "assistant", "tool", "tool", "user", "assistant"]
    assert [m["tool_call_id"] for m in stored[2:4]] == ["call_a", "call_b"]
    assert all(m["content"].startswith("Error: ") for m in stored[2:4])
    assert [(m["role"], m["content"]) for m in ollama.chats[-1]["messages"]] == [
        (m["role"], m["content"]) for m in stored[:-1]
    ]


async def test_opening_turns_at_once_lets_exactly_one_pass(
    engine: Bench, ollama: FakeOllama
) -> None:
    """The claim decides, not luck."""
    ollama.reply(["Slow."], delay=0.01)
    session = await engine.session()
    outcomes = await asyncio.gather(
        *(engine.chat.open_turn(session, TurnRequest(message=f"{n}")) for n in range(10)),
        return_exceptions=True,
    )
    turns = [found for found in outcomes if not isinstance(found, BaseException)]
    assert len(turns) == 1
    assert sum(isinstance(found, SessionBusy) for found in outcomes) == 9
    assert len(engine.stored(session)) == 1
    await read_all(engine.chat.start(turns[0]))


@pytest.mark.parametrize("patience", range(0, 40, 2))
async def test_a_client_that_leaves_at_any_moment_leaves_a_sound_session(
    engine: Bench, ollama: FakeOllama, patience: int
) -> None:
    """However far it came: calls have results, the claim is free, the next turn is accepted."""
    ollama.reply(["Let me", " look."], tool_calls=[{"name": "a"}, {"name": "b"}])
    ollama.reply(["Nothing", " there."])
    session = await engine.session()

    async def whole() -> None:
        await engine.chat.complete(session, TurnRequest(message="Look!"))

    task = asyncio.ensure_future(whole())
    for _ in range(patience * 3):
        await asyncio.sleep(0)
        if patience % 4:
            await asyncio.sleep(0.0005)
    task.cancel()
    with anyio.fail_after(30):
        await asyncio.gather(task, return_exceptions=True)
    await engine.ended()
    check_calls(engine.stored(session))
    ollama._scripts["/api/chat"].clear()
    events = await engine.turn(session, "Next.")
    assert text_of(events) == "You said: Next."
    check_calls(engine.stored(session))
