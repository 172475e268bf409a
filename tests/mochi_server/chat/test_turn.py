"""The whole of what a turn tells and stores, for each way in which a turn can go well."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mochi_server.errors import (
    EmptyHistory,
    ModelNotFound,
    OllamaUnreachable,
    ProviderError,
    SessionNotFound,
    ThinkingNotSupported,
)
from mochi_server.protocol.turn_request import TurnRequest
from tests.support.fake_ollama import FakeOllama
from tests.support.turns import MODEL, Bench, bench, kinds, masked, plain, roles, text_of


async def test_a_plain_reply_is_told_and_stored_whole(engine, ollama):
    ollama.reply(["Pa", "ris"], eval_count=3, prompt_eval_count=12)
    session = await engine.session()
    events = await engine.turn(session, "Capital of France?")
    window = {
        "current_window": 8192,
        "usage_tokens": 15,
        "reason": "initial_setup",
        "dropped_messages": 0,
        "summarised_messages": 0,
        "shortened_results": 0,
        "tool_tokens": 0,
    }
    assert plain(events) == [
        ("content_delta", {"content": "Pa", "role": "assistant"}),
        ("content_delta", {"content": "ris", "role": "assistant"}),
        (
            "message_complete",
            {
                "model": MODEL,
                "eval_count": 3,
                "prompt_eval_count": 12,
                "context_window": window,
                "finish_reason": "stop",
            },
        ),
        ("done", {"session_id": session}),
    ]
    assert masked(engine.stored(session)) == [
        {"role": "user", "content": "Capital of France?"},
        {
            "role": "assistant",
            "content": "Paris",
            "model": MODEL,
            "eval_count": 3,
            "prompt_eval_count": 12,
        },
    ]
    assert events[-2].payload()["message_id"] == engine.stored(session)[-1]["message_id"]


@pytest.mark.parametrize("fixture", ["tool_two", "tool_legacy_no_id", "content_then_tool"])
async def test_a_call_of_a_tool_that_was_never_offered_is_refused_and_the_turn_goes_on(
    engine, ollama, fixture
):
    ollama.play(fixture, speed=100)
    ollama.reply(["I have ", "no tools."])
    session = await engine.session()
    events = await engine.turn(session, "What is the weather?")
    calls = [event.payload() for event in events if event.type == "tool_call"]
    results = [event.payload() for event in events if event.type == "tool_result"]
    assert calls
    assert [c["call_index"] for c in calls] == list(range(len(calls)))
    assert [c["tool_call_id"] for c in calls] == [r["tool_call_id"] for r in results]
    assert len({c["tool_call_id"] for c in calls}) == len(calls)
    assert [(r["success"], r["result"], r["code"]) for r in results] == [
        (False, None, "TOOL_NOT_FOUND")
    ] * len(calls)
    assert all(r["error_message"] for r in results)
    order = kinds(events)
    assert order[order.index("tool_call") :] == [
        "tool_call",
        "tool_result",
        "tool_continuation_start",
        "content_delta",
        "message_complete",
        "done",
    ]
    _, asked, *answers, final = engine.stored(session)
    assert [call["id"] for call in asked["tool_calls"]] == [c["tool_call_id"] for c in calls]
    assert [(a["role"], a["tool_call_id"], a["tool_name"]) for a in answers] == [
        ("tool", c["tool_call_id"], c["tool_name"]) for c in calls
    ]
    assert all(a["content"].startswith("Error: ") for a in answers)
    assert final["content"] == "I have no tools."
    sent = ollama.chats[1]["messages"]
    assert roles(sent) == ["user", "assistant", *["tool"] * len(calls)]
    assert [m["tool_call_id"] for m in sent[2:]] == [c["id"] for c in sent[1]["tool_calls"]]
    assert len(ollama.chats) == 2


async def test_the_limit_of_tool_rounds_ends_the_turn_with_an_answer(tmp_path, ollama):
    async with bench(tmp_path, ollama, max_tool_rounds=2) as engine:
        for _ in range(2):
            ollama.reply(tool_calls=[{"name": "look", "arguments": {}}])
        ollama.reply(["That is all."], tool_calls=[{"name": "look", "arguments": {}}])
        session = await engine.session()
        events = await engine.turn(session)
        assert [event.type for event in events].count("tool_call") == 2
        complete = events[-2].payload()
        assert complete["tool_rounds_exhausted"] is True
        assert text_of(events) == "That is all."
        assert len(ollama.chats) == 3
        assert "tools" not in ollama.chats[-1]
        assert "tool_calls" not in engine.stored(session)[-1]
        assert roles(engine.stored(session)) == [
            "user", "assistant", "tool", "assistant", "tool", "assistant",
        ]  # fmt: skip


async def test_a_turn_that_needs_exactly_the_allowed_rounds_is_told_apart(tmp_path, ollama):
    async with bench(tmp_path, ollama, max_tool_rounds=2) as engine:
        ollama.reply(tool_calls=[{"name": "look", "arguments": {}}])
        ollama.reply(["Done."])
        events = await engine.turn(await engine.session())
        assert "tool_rounds_exhausted" not in events[-2].payload()


async def test_the_same_call_id_in_two_rounds_is_two_calls(engine, ollama):
    """A model may number its calls anew in each reply; the reply in one piece lists them all."""
    for _ in range(2):
        ollama.reply(tool_calls=[{"name": "look", "arguments": {}, "id": "call_0"}])
    ollama.reply(["Nothing."])
    answer = await engine.chat.complete(await engine.session(), TurnRequest(message="Look twice."))
    calls: Any = answer["tool_calls_executed"]
    assert len(calls) == 2
    assert all(call["success"] is False and call["arguments"] == {} for call in calls)


async def test_regenerating_drops_what_followed_the_last_question(engine, ollama):
    session = await engine.session()
    ollama.reply(["First."])
    await engine.turn(session, "Tell me.")
    question = engine.stored(session)[0]
    ollama.reply(tool_calls=[{"name": "look", "arguments": {}}])
    ollama.reply(["Second."])
    await engine.turn(session, None)
    ollama.reply(["Third."])
    events = await engine.turn(session, None)
    assert text_of(events) == "Third."
    stored = engine.stored(session)
    assert stored[0] == question
    assert [m["content"] for m in stored] == ["Tell me.", "Third."]
    assert ollama.chats[-1]["messages"] == [{"role": "user", "content": "Tell me."}]


@pytest.mark.parametrize("prompt", [None, "Be brief."])
async def test_regenerating_without_any_question_is_refused(engine, ollama, prompt):
    session = await engine.session(system_prompt=prompt)
    before = engine.path(session).read_bytes()
    with pytest.raises(EmptyHistory):
        await engine.chat.open_turn(session, TurnRequest())
    assert engine.path(session).read_bytes() == before
    assert not ollama.chats
    await engine.turn(session, "Now there is.")


async def test_what_cannot_run_leaves_the_session_as_it_was(engine, ollama):
    """Every check comes before the user's message is stored, and the claim is given back."""
    gone, cannot = await engine.session("gone:1b"), await engine.session("gemma3:4b")
    before = {s: engine.path(s).read_bytes() for s in (gone, cannot)}
    for _ in range(2):  # a claim that is kept would show at the second time
        with pytest.raises(ModelNotFound):
            await engine.chat.open_turn(gone, TurnRequest(message="Hello"))
        with pytest.raises(ThinkingNotSupported):
            await engine.chat.open_turn(cannot, TurnRequest(message="Hello", think=True))
    with pytest.raises(SessionNotFound):
        await engine.chat.open_turn("0123456789", TurnRequest(message="Hello"))
    with pytest.raises(SessionNotFound):
        await engine.chat.open_turn("../escape", TurnRequest(message="Hello"))
    assert before == {s: engine.path(s).read_bytes() for s in (gone, cannot)}
    assert not ollama.chats
    assert kinds(await engine.turn(cannot, "Plainly, then."))[-1] == "done"


async def test_without_ollama_the_session_stays_as_it_was(tmp_path):
    async with FakeOllama() as ollama:
        engine = Bench(tmp_path, ollama)
        session = await engine.session()
        before = engine.path(session).read_bytes()
    with pytest.raises(OllamaUnreachable):
        await engine.chat.open_turn(session, TurnRequest(message="Hello"))
    assert engine.path(session).read_bytes() == before
    await engine.runtime.aclose()


@pytest.mark.parametrize("think", [False, True, "low", "high"])
async def test_thinking_is_always_asked_for_or_refused_explicitly(engine, ollama, think):
    """Left out, thinking means *on* to Ollama; and it must never cut the prompt by itself."""
    await engine.turn(await engine.session(), think=think)
    assert ollama.chats[0]["think"] is think or ollama.chats[0]["think"] == think
    assert ollama.chats[0]["truncate"] is False
    assert "shift" not in (ollama.chats[0].get("options") or {})


async def test_metadata_edits_pass_during_a_turn_and_stay(engine, ollama):
    """A turn holds a claim, not the file."""
    reply = ollama.reply(["One", " two."], gate=_gate(), pause_after=1)
    session = await engine.session()
    log = await engine.start(session)
    reader = log.reader()
    assert await reader.next()
    async with engine.sessions.edit(session) as edited:
        edited.metadata.summary_model = "changed:1b"
        config = edited.metadata.context_window_config
        config.manual_override, config.current_window = True, 16384
    reply.gate.set()
    assert [e async for e in _rest(reader)][-1].type == "done"
    metadata = engine.document(session)["metadata"]
    assert metadata["summary_model"] == "changed:1b"
    assert metadata["context_window_config"]["manual_override"] is True
    assert metadata["context_window_config"]["current_window"] == 16384
    assert [m["content"] for m in engine.stored(session)] == ["Hello", "One two."]


@pytest.mark.parametrize("fixture", ["empty", "empty_no_counts"])
async def test_an_empty_reply_is_an_error_that_the_user_sees(engine, ollama, fixture):
    ollama.play(fixture)
    session = await engine.session()
    events = await engine.turn(session)
    assert kinds(events) == ["error", "done"]
    assert events[0].payload()["code"] == ProviderError.code
    assert roles(engine.stored(session)) == ["user"]
    await engine.turn(session, "Again.")


async def test_a_reply_of_thinking_alone_is_an_error_and_the_thinking_is_kept(engine, ollama):
    ollama.reply(thinking=["Round and round"], done_reason="length")
    session = await engine.session()
    events = await engine.turn(session, think=True)
    assert kinds(events) == ["thinking_delta", "error", "done"]
    assert engine.stored(session)[-1]["thinking"] == "Round and round"
    ollama.reply(["Well."])
    assert text_of(await engine.turn(session, "Go on.")) == "Well."


@pytest.mark.parametrize(
    "fixture", ["plain", "unicode", "thinking", "tool_two", "content_then_tool", "done_length"]
)
async def test_streaming_and_the_reply_in_one_piece_store_the_same(engine, ollama, fixture):
    streamed, whole = await engine.session(), await engine.session()
    ollama.play(fixture)
    ollama.reply(["The end."])
    events = await engine.turn(streamed, "Go.", think=True)
    used = len(ollama.chats)
    ollama._scripts["/api/chat"].clear()
    ollama.play(fixture)
    ollama.reply(["The end."])
    answer = await engine.chat.complete(whole, TurnRequest(message="Go.", think=True))
    ollama._scripts["/api/chat"].clear()
    assert len(ollama.chats) == 2 * used
    assert _without_ids(engine.stored(streamed)) == _without_ids(engine.stored(whole))
    assert answer["message"] == engine.stored(whole)[-1]
    complete = events[-2].payload()
    assert answer["context_window"] == {
        **complete["context_window"],
        "reason": answer["context_window"]["reason"],
    }
    assert answer["finish_reason"] == complete["finish_reason"]
    assert len(answer["tool_calls_executed"]) == [e.type for e in events].count("tool_call")


async def test_an_error_of_the_reply_in_one_piece_is_raised_and_the_partial_kept(engine, ollama):
    ollama.reply(["Half"], error="out of memory")
    session = await engine.session()
    with pytest.raises(ProviderError, match="out of memory"):
        await engine.chat.complete(session, TurnRequest(message="Go."))
    assert engine.stored(session)[-1]["interrupted"] is True


async def test_nothing_reaches_the_model_that_is_not_in_the_file(engine, ollama):
    session = await engine.session(system_prompt="Be brief.")
    for text in ("One.", "Two.", "Three."):
        await engine.turn(session, text)
    stored = engine.stored(session)
    sent = [(m["role"], m["content"]) for m in ollama.chats[-1]["messages"]]
    assert sent == [(m["role"], m["content"]) for m in stored[:-1]]
    assert {k for m in ollama.chats[-1]["messages"] for k in m} == {"role", "content"}


def _without_ids(messages: list[dict[str, Any]]) -> Any:
    for message in messages:
        for call in message.get("tool_calls") or []:
            call.pop("id")
    return masked(messages)


def _gate() -> Any:
    return asyncio.Event()


async def _rest(reader: Any) -> Any:
    while (batch := await reader.next()) is not None:
        for _, event in batch:
            yield event
    reader.leave()


# A reply without an end


WORD = "abcdefgh" * 128


@pytest.mark.parametrize("thinking", [False, True])
async def test_a_reply_is_kept_as_far_as_the_limit_lets_it_come(tmp_path, ollama, thinking):
    """A gigabyte of it would be a session that nobody can open any more."""
    many = [WORD] * 20_000
    ollama.reply([] if thinking else many, thinking=many if thinking else [])
    async with bench(tmp_path, ollama, max_body_mb=1) as engine:
        session = await engine.session()
        events = await engine.turn(session, think=thinking)
        assert kinds(events)[-2:] == ["error", "done"]
        error = events[-2].payload()
        assert error["code"] == "PROVIDER_ERROR"
        assert "longer than 1 MB (MOCHI_MAX_BODY_MB)" in str(error["message"])
        kept = engine.stored(session)[-1]
        text = kept["thinking" if thinking else "content"]
        assert kept["interrupted"] is True
        assert 1_000_000 < len(text) < 2_000_000
        assert text == text_of(events, "thinking_delta" if thinking else "content_delta")
        await ollama.disconnected()
        ollama.reply(["Yes."])
        assert text_of(await engine.turn(session)) == "Yes."


async def test_calls_count_as_well(tmp_path, ollama):
    calls = [{"name": "write", "arguments": {"text": f"{n}{WORD}"}} for n in range(1500)]
    ollama.reply(tool_calls=calls)
    async with bench(tmp_path, ollama, max_body_mb=1) as engine:
        session = await engine.session()
        events = await engine.turn(session)
        assert kinds(events)[-2:] == ["error", "done"]
        stored = engine.stored(session)
        assert 900 < len(stored[1]["tool_calls"]) < 1500
        assert len(stored) == 2 + len(stored[1]["tool_calls"]), "each has a result"


@pytest.mark.parametrize("letter", ["\x01", "中", "\U0001f600"])
async def test_a_letter_counts_as_much_as_it_takes_in_the_file(tmp_path, ollama, letter):
    """Ten million control characters are a file of sixty megabytes."""
    ollama.reply([letter * 1000] * 2000)
    async with bench(tmp_path, ollama, max_body_mb=1) as engine:
        session = await engine.session()
        assert kinds(await engine.turn(session))[-2:] == ["error", "done"]
        assert 1_000_000 < engine.path(session).stat().st_size < 1_200_000
