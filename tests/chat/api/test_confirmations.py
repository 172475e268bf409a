"""``/chat/{session_id}/confirm-tool`` and ``/confirmations``."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest
import pytest_asyncio

from mochi_project.runtime import get_runtime
from mochi_server.errors import ConfirmationUnavailable, JSONObject
from mochi_server.protocol.events import Event
from tests.support.tools import write_tools

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
        reader = service.start(await service.open_turn(self.session_id, message="Go")).reader()
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


async def code(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


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
    assert await code(answer) == (422, "VALIDATION_ERROR")
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
    assert await code(answer) == (404, "CONFIRMATION_NOT_FOUND")
    await finished(asking)


async def test_another_session_cannot_decide(api, asking):
    other = await api.new_session()
    answer = await api.post(f"/chat/{other}/confirm-tool", decision(asking))
    assert await code(answer) == (404, "CONFIRMATION_NOT_FOUND")
    assert (await api.get(f"/chat/{other}/confirmations")).json() == {"confirmations": []}


@pytest.fixture
def hasty(mochi, settings):
    """Nobody is waited for long."""
    settings.MOCHI = mochi.model_copy(update={"tool_confirmation_timeout_seconds": 0.3})


async def test_a_late_decision_is_told_so_and_the_call_was_denied(api, hasty, asking):
    await finished(asking)
    assert asking.result()["code"] == "TOOL_CONFIRMATION_TIMEOUT"
    answer = await api.post(path(asking), decision(asking))
    assert await code(answer) == (408, "TOOL_CONFIRMATION_TIMEOUT")


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
    assert await code(answer) == (422, "VALIDATION_ERROR")


@pytest.mark.parametrize("name", ["conf_1", "", "../x", "a b", "é", "x" * 5000, "\x00"])
async def test_an_unknown_confirmation_is_not_found(api, name):
    session_id = await api.new_session()
    body = {"confirmation_id": name, "approved": True}
    answer = await api.post(f"/chat/{session_id}/confirm-tool", body)
    assert await code(answer) == (404, "CONFIRMATION_NOT_FOUND")
    answer = await api.post("/chat/nowhere/confirm-tool", body)
    assert await code(answer) == (404, "CONFIRMATION_NOT_FOUND")


async def test_the_list_of_an_unknown_session_is_not_found(api):
    for name in ("nowhere", "a b", ".."):
        answer = await api.get(f"/chat/{name}/confirmations")
        assert answer.status_code == 404


async def test_a_broker_that_fails_is_said_with_503(api, mochi):
    session_id = await api.new_session()
    mochi.state_path.parent.mkdir(parents=True, exist_ok=True)
    mochi.state_path.write_text("no folder")
    answer = await api.get(f"/chat/{session_id}/confirmations")
    assert await code(answer) == (503, ConfirmationUnavailable.code)
    body = {"confirmation_id": "conf_1", "approved": True}
    answer = await api.post(f"/chat/{session_id}/confirm-tool", body)
    assert await code(answer) == (503, ConfirmationUnavailable.code)
