"""The routes of runs."""

from __future__ import annotations

import asyncio

import pytest

from mochi_project.runtime import get_runtime
from tests.support.api import error_of, events_of
from tests.support.waiting import until


def text_of(received):
    return "".join(event.data["content"] for event in received if event.event == "content_delta")


@pytest.fixture
def gate(ollama):
    """Let the model say a word, and the rest when this is set."""
    opened = asyncio.Event()
    ollama.reply(["So", " on"], pause_after=1, gate=opened)
    return opened


async def test_a_stream_names_its_run_and_can_be_read_again(api, ollama):
    ollama.reply(["Pa", "ris."])
    session_id = await api.new_session()
    response = await api.post(f"/chat/{session_id}/stream", {"message": "Capital of France?"})
    run_id = response["X-Run-Id"]
    first = await events_of(response)
    assert first[0].event == "run_start"
    assert set(first[0].data) == {"run_id", "session_id", "model", "started_at"}
    assert first[0].data["run_id"] == run_id
    for path in (f"/runs/{run_id}/events", f"/chat/{session_id}/stream"):
        response = await api.get(path)
        assert response["X-Run-Id"] == run_id
        again = await events_of(response)
        assert text_of(again) == "Paris."
        assert again[-1] == first[-1]
        rest = await events_of(await api.get(f"{path}?after={first[1].id}"))
        assert text_of(rest) == "ris."
        header = {"Last-Event-ID": first[2].id}
        rest = await events_of(await api.get(f"{path}?after=1", headers=header))
        assert [event.event for event in rest] == ["message_complete", "done"]
        assert (await api.get(f"{path}?after={first[-1].id}")).status_code == 204
        header = {"Last-Event-ID": first[-1].id}
        assert (await api.get(path, headers=header)).status_code == 204


@pytest.mark.parametrize("last", ["", "x", "-1", "9" * 30])
async def test_a_last_event_id_that_is_none_of_ours_is_not_used(api, last):
    session_id = await api.new_session()
    await events_of(await api.post(f"/chat/{session_id}/stream", {"message": "Hi"}))
    response = await api.get(f"/chat/{session_id}/stream", headers={"Last-Event-ID": last})
    assert (await events_of(response))[-1].event == "done"


async def test_head_of_a_stream_has_no_body(api):
    session_id = await api.new_session()
    await events_of(await api.post(f"/chat/{session_id}/stream", {"message": "Hi"}))
    response = await api("HEAD", f"/chat/{session_id}/stream")
    assert response.status_code == 200
    assert response["Content-Type"].startswith("text/event-stream")
    assert response.content == b""


async def test_a_reply_in_one_piece_names_its_run(api):
    session_id = await api.new_session()
    response = await api.post(f"/chat/{session_id}", {"message": "Hi"})
    run = (await api.get(f"/runs/{response['X-Run-Id']}")).json()
    message = response.json()["message"]
    assert run.pop("started_at") < message["timestamp"]
    assert run.pop("position") > 2
    assert run.pop("tokens") > 1
    assert run == {
        "run_id": response["X-Run-Id"],
        "session_id": session_id,
        "model": "qwen3:14b",
        "state": "done",
        "code": None,
        "message_id": message["message_id"],
        "confirmations": [],
    }


async def test_unknown_runs_are_not_found(api):
    for method, path in (
        ("GET", "/runs/run_0123456789abcdef"),
        ("GET", "/runs/run_0123456789abcdef/events"),
        ("POST", "/runs/run_0123456789abcdef/stop"),
    ):
        assert error_of(await api(method, path)) == (404, "RUN_NOT_FOUND")
    session_id = await api.new_session()
    assert (await api.get(f"/chat/{session_id}/stream")).status_code == 204
    assert error_of(await api.post(f"/chat/{session_id}/stop")) == (404, "RUN_NOT_FOUND")
    for method, path in (("GET", "stream"), ("POST", "stop"), ("POST", "runs")):
        response = await api(method, f"/chat/0123456789/{path}")
        assert error_of(response) == (404, "SESSION_NOT_FOUND")
    assert error_of(await api.get("/runs?state=lost")) == (422, "VALIDATION_ERROR")


async def test_a_run_without_a_reader_is_accepted_listed_and_stopped(api, gate, ollama):
    session_id = await api.new_session()
    response = await api.post(f"/chat/{session_id}/runs", {"message": "Hi"})
    assert response.status_code == 202
    run_id = response.json()["run_id"]
    assert response.json() == {"run_id": run_id, "session_id": session_id, "state": "running"}
    assert response["X-Run-Id"] == run_id
    for query in ("", f"?session_id={session_id}", "?state=running"):
        [listed] = (await api.get(f"/runs{query}")).json()["runs"]
        assert (listed["run_id"], listed["state"]) == (run_id, "running")
    assert (await api.get("/runs?state=done")).json() == {"runs": []}
    assert (await api.get("/runs?session_id=other")).json() == {"runs": []}
    await until(lambda: api.get(f"/runs/{run_id}"), lambda answer: answer.json()["tokens"])
    answers = [
        (await api.post(f"/{path}/stop")).json()
        for path in (f"runs/{run_id}", f"chat/{session_id}", f"runs/{run_id}")
    ]
    assert answers[0]["state"] == "stopped"
    assert answers[0]["message"]["content"] == "So"
    assert answers[0]["message"]["interrupted"] is True
    assert answers.count(answers[0]) == 3
    await ollama.disconnected()


@pytest.mark.parametrize("route", ["/chat/stream", "/chat/{id}/stream"])
@pytest.mark.parametrize("by", ["body", "setting"])
async def test_a_run_that_shall_continue_does_without_its_reader(api, gate, route, by, monkeypatch):
    session_id = await api.new_session()
    body = {"message": "Hi"}
    if route == "/chat/stream":
        body["session_id"] = session_id
    if by == "body":
        body["on_disconnect"] = "continue"
    else:
        monkeypatch.setattr(get_runtime().settings, "on_disconnect", "continue")
    response = await api.post(route.format(id=session_id), body)
    response.close()
    gate.set()
    received = await events_of(await api.get(f"/chat/{session_id}/stream"))
    assert (text_of(received), received[-1].event) == ("So on", "done")


async def test_a_simple_stream_ends_with_an_error_when_its_run_is_stopped(api, gate):
    session_id = await api.new_session()
    response = await api.post("/chat/stream", {"message": "Hi", "session_id": session_id})
    stopping = asyncio.ensure_future(api.post(f"/runs/{response['X-Run-Id']}/stop"))
    received = await events_of(response)
    assert (await stopping).json()["state"] == "stopped"
    assert received[-1].event == "error"
    assert received[-1].data["code"] == "RUN_STOPPED"


async def test_a_message_can_wait_for_the_run_before_it(api, gate, ollama):
    ollama.reply(["Next."])
    session_id = await api.new_session()
    first = await api.post(f"/chat/{session_id}/stream", {"message": "1"})
    body = {"message": "2", "when_busy": "queue"}
    accepted = (await api.post(f"/chat/{session_id}/runs", body)).json()
    assert accepted["state"] == "queued"
    [listed] = (await api.get("/runs?state=queued")).json()["runs"]
    assert listed["run_id"] == accepted["run_id"]
    assert (await api.get(f"/runs/{accepted['run_id']}")).json()["state"] == "queued"
    second = await api.get(f"/runs/{accepted['run_id']}/events")
    gate.set()
    assert text_of(await events_of(first)) == "So on"
    assert text_of(await events_of(second)) == "Next."


async def test_a_message_can_interrupt_the_run_before_it(api, gate, ollama):
    ollama.reply(["Better."])
    session_id = await api.new_session()
    first = await api.post(f"/chat/{session_id}/stream", {"message": "1"})
    body = {"message": "2", "when_busy": "interrupt"}
    response = await api.post(f"/chat/{session_id}", body)
    assert response.json()["message"]["content"] == "Better."
    assert [event.event for event in await events_of(first)][-1] == "done"
