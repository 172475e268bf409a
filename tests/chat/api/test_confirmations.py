"""``/chat/{session_id}/confirm-tool``, ``/confirmations`` and ``/policies``."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import anyio
import pytest
import pytest_asyncio

from chat.api.confirmations import DecisionOnRecord, OpenConfirmation, Rule
from mochi_project.runtime import get_runtime
from mochi_server.chat.confirmations.confirmation import Confirmation, ConfirmationDecision
from mochi_server.chat.rules.rule import CallRule
from mochi_server.core.clock import timestamp, utc_now
from mochi_server.errors import JSONObject
from mochi_server.protocol.events import Event
from mochi_server.protocol.turn_request import TurnRequest
from tests.support.api import error_of
from tests.support.confirmations import NO, YES, make_confirmation
from tests.support.tools import write_tools
from tests.support.waiting import until

ADD = '''
def add(a: int, b: int) -> str:
    """Add two numbers.

    Args:
        a: One.
        b: Another.
    """
    return str(a + b)


__all__ = ["add"]
'''


class Asking:
    """A turn that waits for a decision about ``add(1, 2)``."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.events: list[Event] = []
        self.announced = asyncio.Event()
        self.confirmation: JSONObject = {}

    async def run(self) -> None:
        service = get_runtime().chat
        reader = service.start(
            await service.open_turn(self.session_id, TurnRequest(message="Go"))
        ).reader()
        while (batch := await reader.next()) is not None:
            for _, event in batch:
                self.events.append(event)
                if event.type == "tool_call_confirmation_required":
                    self.confirmation = event.payload()
                    self.announced.set()
        reader.leave()

    def result(self) -> JSONObject:
        (result,) = [each.payload() for each in self.events if each.type == "tool_result"]
        return result


@pytest_asyncio.fixture
async def asking(api: Any, mochi: Any, ollama: Any) -> Any:
    write_tools(mochi.tools_path, init=ADD)
    ollama.reply(tool_calls=[{"name": "add", "arguments": {"a": 1, "b": 2}}])
    ollama.reply(["Done."])
    turn = Asking(await api.new_session(tool_settings={"tools": ["add"]}))
    running = asyncio.ensure_future(turn.run())
    with anyio.fail_after(30):
        await turn.announced.wait()
    turn.running = running
    yield turn
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def finished(turn: Any) -> None:
    with anyio.fail_after(30):
        await turn.running


def path(turn: Asking) -> str:
    return f"/chat/{turn.session_id}/confirm-tool"


def decision(turn: Asking, **fields: Any) -> Any:
    confirmation_id = turn.confirmation["confirmation_id"]
    return {"confirmation_id": confirmation_id, "approved": True, **fields}


async def test_an_allowed_call_runs(api, asking):
    answer = await api.post(path(asking), decision(asking))
    assert (answer.status_code, answer.json()) == (200, decision(asking))
    await finished(asking)
    assert asking.result()["result"] == "3"


async def test_a_denied_call_does_not_run_and_the_model_hears_why(api, asking, ollama):
    answer = await api.post(path(asking), decision(asking, approved=False, reason="Not now."))
    assert answer.json()["approved"] is False
    await finished(asking)
    assert asking.result()["success"] is False
    assert "Not now." in ollama.chats[-1]["messages"][-1]["content"]


async def test_changed_arguments_replace_the_models(api, asking):
    answer = await api.post(path(asking), decision(asking, arguments={"a": 40, "b": 2}))
    assert answer.status_code == 200
    await finished(asking)
    assert asking.result()["result"] == "42"


async def test_arguments_that_do_not_fit_leave_the_question_open(api, asking):
    answer = await api.post(path(asking), decision(asking, arguments={"a": "many"}))
    assert error_of(answer) == (422, "VALIDATION_ERROR")
    listed = await api.get(f"/chat/{asking.session_id}/confirmations")
    assert len(listed.json()["confirmations"]) == 1
    assert (await api.post(path(asking), decision(asking))).status_code == 200
    await finished(asking)


async def test_the_list_has_what_the_event_said(api, asking):
    answer = await api.get(f"/chat/{asking.session_id}/confirmations")
    (listed,) = answer.json()["confirmations"]
    common = set(listed) & set(asking.confirmation)
    assert {"confirmation_id", "tool_name", "arguments", "tool_call_id"} <= common
    assert {key: listed[key] for key in common} == {key: asking.confirmation[key] for key in common}
    assert listed["session_id"] == asking.session_id
    await api.post(path(asking), decision(asking))
    answer = await api.get(f"/chat/{asking.session_id}/confirmations")
    assert answer.json() == {"confirmations": []}
    await finished(asking)


async def test_the_second_decision_is_not_found(api, asking):
    await api.post(path(asking), decision(asking))
    answer = await api.post(path(asking), decision(asking, approved=False))
    assert error_of(answer) == (404, "CONFIRMATION_NOT_FOUND")
    await finished(asking)


async def test_another_session_cannot_decide(api, asking):
    other = await api.new_session()
    answer = await api.post(f"/chat/{other}/confirm-tool", decision(asking))
    assert error_of(answer) == (404, "CONFIRMATION_NOT_FOUND")
    assert (await api.get(f"/chat/{other}/confirmations")).json() == {"confirmations": []}


@pytest.fixture
def hasty(mochi, settings):
    """Nobody is waited for long."""
    settings.MOCHI = mochi.model_copy(update={"tool_confirmation_timeout_seconds": 0.3})


async def test_a_late_decision_is_told_so_and_the_call_was_denied(api, hasty, asking):
    await finished(asking)
    assert asking.result()["code"] == "TOOL_CONFIRMATION_TIMEOUT"
    answer = await api.post(path(asking), decision(asking))
    assert error_of(answer) == (408, "TOOL_CONFIRMATION_TIMEOUT")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"approved": True},
        {"confirmation_id": "conf_1"},
        {"confirmation_id": 1, "approved": True},
        {"confirmation_id": "conf_1", "approved": "yes"},
        {"confirmation_id": "conf_1", "approved": 1},
        {"confirmation_id": "conf_1", "approved": True, "arguments": [1]},
        {"confirmation_id": "conf_1", "approved": True, "reason": 1},
        {"confirmation_id": "conf_1", "approved": True, "reason": "x" * 10_001},
        {"confirmation_id": "conf_1", "approved": True, "argument": {}},
    ],
)
async def test_a_body_of_another_shape_is_refused(api, body):
    answer = await api.post("/chat/0123456789/confirm-tool", body)
    assert error_of(answer) == (422, "VALIDATION_ERROR")


@pytest.mark.parametrize("name", ["conf_1", "", "../x", "a b", "é", "x" * 5000, "\x00"])
async def test_an_unknown_confirmation_is_not_found(api, name):
    session_id = await api.new_session()
    body = {"confirmation_id": name, "approved": True}
    answer = await api.post(f"/chat/{session_id}/confirm-tool", body)
    assert error_of(answer) == (404, "CONFIRMATION_NOT_FOUND")
    answer = await api.post("/chat/nowhere/confirm-tool", body)
    assert error_of(answer) == (404, "CONFIRMATION_NOT_FOUND")


async def test_the_list_of_an_unknown_session_is_not_found(api):
    for name in ("nowhere", "a b", ".."):
        answer = await api.get(f"/chat/{name}/confirmations")
        assert answer.status_code == 404


# ---- the inbox, and what it remembers ---------------------------------------------------------


async def put(*, minutes: float = 0, **fields: Any) -> str:
    """Store a confirmation that was asked so many minutes after the first one."""
    confirmation = make_confirmation(fields.pop("session_id", "one"), minutes=minutes, **fields)
    await get_runtime().confirmations.put(confirmation)
    return confirmation.confirmation_id


async def listed(api: Any, query: str = "") -> list[str]:
    response = await api.get(f"/confirmations{query}")
    assert response.status_code == 200, response.content
    return [each["confirmation_id"] for each in response.json()["confirmations"]]


async def test_all_sessions_are_listed_and_can_be_filtered(api):
    one = await put(session_id="one", tool_name="read")
    two = await put(session_id="two", minutes=1, agent_name="coder", agent_call_id="call_7")
    now = timestamp(utc_now())
    new = await put(session_id="two", asked_at=now)
    assert await listed(api) == [one, two, new]
    assert await listed(api, "?session_id=two") == [two, new]
    assert await listed(api, "?agent=coder") == [two]
    assert await listed(api, "?tool=read") == [one]
    assert await listed(api, "?older_than=3600") == [one, two]
    assert await listed(api, "?tool=read&session_id=two") == []
    for wrong in ("?older_than=-1", "?older_than=x", "?limit=0", "?limit=1001", "?cursor=x"):
        assert error_of(await api.get(f"/confirmations{wrong}")) == (422, "VALIDATION_ERROR")


async def test_an_entry_shows_what_is_hidden(api):
    await put(arguments={"path": "a\u202eb"}, tool_call_id="call_9")
    (entry,) = (await api.get("/confirmations")).json()["confirmations"]
    assert entry["arguments"] == {"path": "a\u202eb"}
    assert entry["shown"] == '{\n  "path": "a\\u202eb"\n}'
    assert (entry["expires_at"], entry["run_id"]) == (None, "run_1")
    assert "agent_name" not in entry


async def test_pages_have_each_entry_once_also_while_some_are_decided(api):
    names = [await put(minutes=number) for number in range(7)]
    seen: list[str] = []
    cursor = ""
    while True:
        page = (await api.get(f"/confirmations?limit=2{cursor}")).json()
        seen += [each["confirmation_id"] for each in page["confirmations"]]
        await get_runtime().confirmations.decide(seen[-1], NO)
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert seen == names


async def test_a_decision_needs_only_the_id(api):
    name = await put()
    assert error_of(await api.post("/confirmations/conf_0", {"approved": True})) == (
        404,
        "CONFIRMATION_NOT_FOUND",
    )
    for wrong in ({}, {"approved": True, "confirmation_id": "conf_0"}, {"approved": 1}):
        answer = await api.post(f"/confirmations/{name}", wrong)
        assert error_of(answer) == (422, "VALIDATION_ERROR")
    body = {"approved": False, "reason": "No.", "confirmation_id": name}
    answer = await api.post(f"/confirmations/{name}", body)
    assert (answer.status_code, answer.json()) == (
        200,
        {"confirmation_id": name, "approved": False},
    )
    assert await listed(api) == []
    answer = await api.post(f"/confirmations/{name}", {"approved": True})
    assert error_of(answer) == (404, "CONFIRMATION_NOT_FOUND")


async def test_a_late_decision_is_told_so(api):
    name = await put(expires_at=timestamp(utc_now()))
    answer = await api.post(f"/confirmations/{name}", {"approved": True})
    assert error_of(answer) == (408, "TOOL_CONFIRMATION_TIMEOUT")


async def test_an_approval_becomes_a_rule_that_can_be_removed(api, mochi):
    session = await api.new_session()
    made = {}
    for remember in ("session", "tool"):
        name = await put(session_id=session, arguments={"path": "notes/a"})
        body = {"approved": True, "remember": remember, "patterns": {"path": "notes/*"}}
        answer = await api.post(f"/confirmations/{name}", body)
        assert answer.status_code == 200, answer.content
        made[remember] = answer.json()["rule_id"]
    answer = (await api.get("/policies")).json()
    assert [each["id"] for each in answer["policies"]] == [made["tool"]]
    assert answer["problems"] == []
    answer = (await api.get(f"/policies?session_id={session}")).json()
    shared, own = answer["policies"]
    assert own == {
        **shared,
        "id": made["session"],
        "created_at": own["created_at"],
        "session_id": session,
    }
    assert (own["action"], own["arguments"], own["created_by"]) == (
        "allow",
        {"path": "notes/*"},
        "loopback",
    )
    assert json.loads(mochi.rules_path.read_text())[0]["id"] == made["tool"]
    assert error_of(await api.delete(f"/policies/{made['session']}")) == (404, "POLICY_NOT_FOUND")
    answer = await api.delete(f"/policies/{made['session']}?session_id={session}")
    assert answer.status_code == 204
    assert (await api.delete(f"/policies/{made['tool']}")).status_code == 204
    answer = (await api.get(f"/policies?session_id={session}")).json()
    assert answer == {"policies": [], "problems": []}
    assert error_of(await api.get("/policies?session_id=nowhere")) == (404, "SESSION_NOT_FOUND")


@pytest.mark.parametrize(
    ("answer", "sent"),
    [
        (Rule, {*CallRule.__slots__} - {"waits_for"}),  # those are in no list
        (OpenConfirmation, {*Confirmation.__slots__, "shown"} - {"owner"}),
        (DecisionOnRecord, {*ConfirmationDecision.__slots__}),
    ],
)
def test_an_answer_has_all_that_is_kept(answer, sent):
    """A rule without one of its limits would look like one that allows more."""
    assert set(answer.model_fields) == sent


async def test_rules_that_cannot_be_read_are_said(api, mochi):
    mochi.rules_path.parent.mkdir(parents=True, exist_ok=True)
    mochi.rules_path.write_text("[]]")
    (problem,) = (await api.get("/policies")).json()["problems"]
    assert "policies.json" in problem
    assert error_of(await api.delete("/policies/rule_1")) == (500, "POLICIES_INVALID")


async def test_the_history_says_who_when_what_and_what_ran(api):
    names = [await put(minutes=number) for number in range(3)]
    store = get_runtime().confirmations
    for name, decision in zip(names, (YES, NO, replace(NO, code="X")), strict=True):
        await store.decide(name, decision)
        await store.consume(name, ran={"a": 7} if decision.approved else None)
    entries = (await api.get("/confirmations/history")).json()["history"]
    assert [each["confirmation"]["confirmation_id"] for each in entries] == names[::-1]
    assert (entries[2]["ran"], entries[1]["ran"]) == ({"a": 7}, None)
    assert entries[2]["decision"]["decided_by"] == "loopback"
    assert "decided_at" in entries[2]["decision"]
    assert "code" not in entries[1]["decision"]
    page = (await api.get(f"/confirmations/history?limit=1&before={names[2]}")).json()["history"]
    assert [each["confirmation"]["confirmation_id"] for each in page] == [names[1]]


def frames(text: str) -> list[tuple[str, Any]]:
    """Name and data of each event in the text."""
    found = []
    for part in text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in part.split("\n") if ": " in line)
        if "event" in lines:
            found.append((lines["event"], json.loads(lines["data"])))
    return found


async def read(response: Any, count: int) -> list[tuple[str, Any]]:
    text = ""
    with anyio.fail_after(30):
        async for part in response.streaming_content:
            text += part.decode()
            if len(frames(text)) >= count:
                return frames(text)
    return frames(text)


async def test_events_tell_what_is_asked_decided_and_expires(api):
    before = await put()
    response = await api.get("/confirmations/events")
    name = await put(minutes=1)
    late = await put(minutes=2, expires_at=timestamp(utc_now()))
    store = get_runtime().confirmations
    await store.decide(name, NO)
    found = await read(response, 4)
    told = [(kind, data["confirmation"]["confirmation_id"]) for kind, data in found]
    assert {("asked", name), ("decided", name), ("asked", late), ("expired", late)} == set(told)
    assert before not in {each for _, each in told}
    assert told.index(("asked", name)) < told.index(("decided", name))
    for kind, data in found:
        assert (data["decision"] is None) == (kind == "asked")
        assert "shown" in data["confirmation"]
    response.close()


async def test_events_of_one_session_and_the_end_of_the_server(api):
    response = await api.get("/confirmations/events?session_id=two")
    await put(session_id="one")
    name = await put(session_id="two")
    (found,) = await read(response, 1)
    assert (found[0], found[1]["confirmation"]["confirmation_id"]) == ("asked", name)
    get_runtime().stop()
    assert await read(response, 1) == []


async def test_a_reader_that_does_not_keep_up_is_ended(api, monkeypatch):
    monkeypatch.setattr("mochi_server.core.feed.MOST_UNREAD", 3)
    runtime = get_runtime()
    reader = await runtime.confirmation_feed.reader()
    other = await runtime.confirmation_feed.reader("nowhere")
    for number in range(5):
        await put(minutes=number)
    with anyio.fail_after(30):
        await until(lambda: reader._ended)
        assert [number for number, _ in await reader.next() or []] == [1, 2, 3]
        assert await reader.next() is None
        other.poke()
        assert await other.next() == []
    for each in (reader, other):
        each.leave()
        each.leave()
    assert await other.next() is None


async def test_a_store_that_fails_is_said(api, mochi):
    session_id = await api.new_session()
    mochi.state_path.parent.mkdir(parents=True, exist_ok=True)
    mochi.state_path.write_text("no folder")
    decided = {"confirmation_id": "conf_1", "approved": True}
    for method, path, body in (
        ("GET", "/confirmations", None),
        ("GET", "/confirmations/events", None),
        ("GET", "/confirmations/history", None),
        ("GET", f"/chat/{session_id}/confirmations", None),
        ("POST", f"/chat/{session_id}/confirm-tool", decided),
    ):
        assert error_of(await api(method, path, body)) == (507, "CONFIRMATION_NOT_STORED"), path
