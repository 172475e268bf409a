"""Whose summary a history has: by the digest of what it says, kept for an hour if it is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from mochi_server.chat.completions import NEW_SESSION, CompletionRequest
from mochi_server.core.caller import Caller, rights_of, serving
from mochi_server.protocol.events import MessageComplete
from mochi_server.protocol.messages import AssistantMessage, SystemMessage, ToolMessage, UserMessage
from mochi_server.protocol.turn_request import TurnRequest
from mochi_server.services.compaction.covered import (
    KEPT_SECONDS,
    CoveredHistory,
    SentHistories,
    count_covered,
    digests,
    history_of,
)
from mochi_server.services.compaction.fitting import LongHistory, note_of
from mochi_server.services.compaction.text import (
    MESSAGES,
    HistoryRoom,
    end_of_old_turns,
    end_without_open_calls,
    start_of_last_turn,
)
from mochi_server.sessions import ChatSession
from mochi_server.sessions.codec import encode
from mochi_server.sessions.types import HistorySummary, SessionMetadata
from tests.support.compaction import MODEL, noting
from tests.support.histories import BUDGET, CONVERSATION, calls_are_whole
from tests.support.turns import read_all


def history(*messages):
    session = ChatSession(SessionMetadata(session_id="0", model="m", created_at="", updated_at=""))
    session.append(*messages)
    return session


def said(call_id="call_1", value=1):
    call = {"function": {"name": "add", "arguments": {"a": value}}, "id": call_id}
    return [
        UserMessage(content="One."),
        AssistantMessage(content="", tool_calls=[call]),
        ToolMessage(content="2", tool_name="add", tool_call_id=call_id),
        AssistantMessage(content="Two."),
    ]


def test_a_digest_is_of_what_was_said_and_not_of_ids_times_and_the_system_prompt():
    first = history(*said())
    covers = [*digests(history_of(first))][-1][1]
    assert count_covered(first, covers) == 4
    again = history(
        SystemMessage(content="Be brief."), *said("call_2"), UserMessage(content="Three.")
    )
    assert count_covered(again, covers) == 4
    assert count_covered(history(*said(value=2)), covers) == 0
    assert count_covered(history(*said()[:3]), covers) == 0


@pytest.mark.parametrize("index", range(4))
@pytest.mark.parametrize("change", [{"content": "Other."}, {"role": "other"}])
def test_every_message_counts(index, change):
    covers = [*digests(history_of(history(*said())))][-1][1]
    changed = [each.as_stored() for each in said()]
    changed[index] |= change
    session = history()
    session.extend(map(encode, changed))
    assert count_covered(session, covers) == 0


def test_the_summary_of_a_sent_history_is_kept_for_an_hour_after_its_last_use():
    now = [0.0]
    kept = SentHistories(clock=lambda: now[0])
    session = history(*said(), *said(), UserMessage(content="Three."))
    for count, digest in [*digests(history_of(session))][:2]:
        kept.put(HistorySummary(text=f"first {count}", covers=digest), None)
    now[0] = KEPT_SECONDS - 1
    found = kept.covered_part(session)
    assert (found.summary.text, found.count) == ("first 8", 8)
    now[0] += KEPT_SECONDS - 1
    assert kept.covered_part(session).count == 8
    assert kept.covered_part(history(*said()[:2])) is None
    session.metadata.owner = "somebody else"
    assert kept.covered_part(session) is None
    session.metadata.owner = None
    now[0] += KEPT_SECONDS
    assert kept.covered_part(session) is None


async def sent(engine, messages, session_id=None):
    """Answer a client that sends its whole conversation; the window, and the next messages."""
    engine.provider.answers = ["y" * 400]
    request = CompletionRequest(
        messages=messages, turn=TurnRequest(model=MODEL), session_id=session_id
    )
    started = await engine.runtime.completions.start(request)
    events = await read_all(started.reader)
    [complete] = [each for each in events if isinstance(each, MessageComplete)]
    again = [type(each)(content=each.content) for each in messages]  # without ids
    return complete.context_window, [*again, AssistantMessage(content="y" * 400)]


async def test_a_client_that_sends_its_whole_conversation_gets_the_summary(tmp_path):
    async with noting(tmp_path) as engine:
        messages = [SystemMessage(content="Be brief.")]
        for number in range(20):
            messages.append(UserMessage(content=f"Question {number}. {'x' * 400}"))
            window, messages = await sent(engine, messages)
            await engine.idle()
        assert window["summarised_messages"] > 20
        assert window["dropped_messages"] == 0
        system, note, *_ = engine.provider.chats[-1].messages
        assert system["content"] == "Be brief."
        assert "- Fact 1." in note["content"]
        assert await engine.runtime.temporary_sessions.storage.entries() == []


async def test_it_gets_it_as_well_where_each_request_is_kept_in_a_new_session(tmp_path):
    async with noting(tmp_path) as engine:
        messages = []
        for number in range(14):
            messages.append(UserMessage(content=f"Question {number}. {'x' * 400}"))
            window, messages = await sent(engine, messages, NEW_SESSION)
            await engine.idle()
        assert window["dropped_messages"] == 0
        assert window["summarised_messages"] > 10
        notes = [request.messages[1]["content"] for request in engine.provider.for_notes]
        for number in range(4):  # nothing is noted twice
            assert sum(f"Question {number}." in each.split(MESSAGES)[1] for each in notes) == 1
        sessions = engine.runtime.sessions
        kept = [await sessions.get(each.session_id) for each in await sessions.storage.entries()]
        longest = max(kept, key=lambda session: len(session.messages))
        assert longest.has_message(longest.metadata.history_summary.through_message_id)


async def test_a_summary_is_made_longer_from_the_note_that_a_client_sends_back(tmp_path):
    facts = "\n".join(f"- The code of room {number} is {1000 + number}." for number in range(80))
    async with noting(tmp_path, window=16_384) as engine:
        engine.provider.notes = [facts, "- They have windows."]
        compact = engine.runtime.completions.compact
        said_first = [UserMessage(content="Rooms: ..."), AssistantMessage(content="I see.")]
        first, _ = await compact(
            CompletionRequest(messages=said_first, turn=TurnRequest(model=MODEL))
        )
        note = UserMessage(content=note_of(CoveredHistory(first, 0))["content"])
        for more in ([UserMessage(content="Windows."), AssistantMessage(content="Fine.")], []):
            messages = [said_first[0], note, *more]
            longer, _ = await compact(
                CompletionRequest(messages=messages, turn=TurnRequest(model=MODEL))
            )
            assert longer.text == "\n".join([facts, *["- They have windows."][: len(more)]])
        [_, second] = [request.messages[1]["content"] for request in engine.provider.for_notes]
        notes, read = second.split(MESSAGES)
        assert facts in notes
        assert read.strip().startswith("[user] Windows.")


async def test_what_was_answered_before_a_note_is_read_as_well(tmp_path):
    async with noting(tmp_path, window=16_384) as engine:
        engine.provider.notes = ["- The code is 4711.", "- The cat is Zorro."]
        compact = engine.runtime.completions.compact
        said = [UserMessage(content="The code is 4711."), AssistantMessage(content="I see.")]
        first, _ = await compact(CompletionRequest(messages=said, turn=TurnRequest(model=MODEL)))
        note = UserMessage(content=note_of(CoveredHistory(first, 0))["content"])
        said += [UserMessage(content="My cat is Zorro."), AssistantMessage(content="Good."), note]
        said += [UserMessage(content="Next."), AssistantMessage(content="Yes.")]
        await compact(CompletionRequest(messages=said, turn=TurnRequest(model=MODEL)))
        assert "Zorro" in engine.provider.for_notes[1].messages[1]["content"]


async def test_the_summary_of_what_somebody_sends_serves_nobody_else(tmp_path):
    alice, bob = (
        Caller(name=name, owner=name, rights=rights_of("chat")) for name in ("alice", "bob")
    )
    async with noting(tmp_path) as engine:
        messages = []
        with serving(alice):
            for number in range(12):
                messages.append(UserMessage(content=f"Question {number}. {'x' * 400}"))
                _, messages = await sent(engine, messages)
                await engine.idle()
        messages.append(UserMessage(content="Next."))
        for caller, has_summary in ((bob, False), (alice, True)):
            with serving(caller):
                window, _ = await sent(engine, messages)
            assert (window["summarised_messages"] > 0) is has_summary


async def test_one_summary_is_made_of_a_conversation_that_is_sent_longer_and_longer(tmp_path):
    async with noting(tmp_path) as engine:
        engine.provider.gate = asyncio.Event()
        others = [UserMessage(content="z" * 6000)]
        await sent(engine, others)
        messages = []
        for number in range(12):
            messages.append(UserMessage(content=f"Question {number}. {'x' * 400}"))
            _, messages = await sent(engine, messages)
        await engine.runtime.runs.wait_closed(30)
        assert engine.runtime.compaction.pending == 2
        engine.provider.gate.set()
        await engine.idle()


ENDS: list[Callable[[Sequence[JsonValue], HistoryRoom], int]] = [
    end_of_old_turns,
    lambda messages, _: start_of_last_turn(messages),
    lambda messages, _: end_without_open_calls(messages),
]


def is_request(messages: list[dict[str, Any]]) -> bool:
    """Whether a model can be asked about messages, and all calls have their results."""
    return messages[-1]["role"] in {"user", "tool"} and not open_calls(messages)


@given(CONVERSATION, st.sampled_from(ENDS), st.integers(20, 1500), BUDGET, st.data())
def test_a_result_keeps_its_call_and_the_last_question_stays(
    said: list[dict[str, Any]],
    end_of: Callable[[Sequence[JsonValue], HistoryRoom], int],
    room: int,
    budget: int | None,
    data: st.DataObject,
) -> None:
    """Whatever is covered, of a history as it was at any time, and whatever is asked about then.

    Clients that run calls send one long turn again and again, each time with another result; a
    turn may be given up within a call, and gone on with later.
    """
    other = data.draw(st.just([]) | CONVERSATION)
    before = [*said[: data.draw(st.integers(1, len(said)))], *other]
    asked = data.draw(
        st.sampled_from(
            [
                whole[:count]
                for whole in (said, before)
                for count in range(1, len(whole) + 1)
                if is_request(whole[:count])
            ]
        )
    )
    kept = SentHistories()
    covers = before[: end_of(before, HistoryRoom(tokens=room, ratio=1.0))]
    for _, digest in [*digests(covers)][-1:]:
        kept.put(HistorySummary(text="- Fact.", covers=digest, requested=True), None)
    session = history()
    session.extend(map(encode, asked))
    fitted = LongHistory(
        system=None,
        backwards=lambda count: islice(reversed(asked), count),
        total=len(asked),
        budget=budget,
        ratio=1.0,
        max_messages=None,
    ).fit_compacted(kept.covered_part(session))
    sent = fitted.messages[int(fitted.summarised > 0) :]
    assert not open_calls(sent)
    assert last_question(sent) == last_question(asked)


def last_question(messages: list[dict[str, Any]]) -> Any:
    return [each for each in messages if each["role"] == "user"][-1:]


def open_calls(messages: list[dict[str, Any]]) -> bool:
    try:
        calls_are_whole(messages)
    except (AssertionError, IndexError, KeyError):
        return True
    return False
