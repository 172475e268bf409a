"""``/sessions/{id}/summarize``, ``/sessions/{id}/summary``, and ``summary_model``."""

from __future__ import annotations

import json
import shutil

import anyio
import pytest

from tests.support.summaries import HELLO

WRITTEN = {"summary": "They greeted each other.", "topics": ["greeting"]}
NONE = {"summary": None, "topics": None, "model_used": None}


@pytest.fixture(autouse=True)
def _models(ollama):
    ollama.add_model("gpt-oss:20b")


async def said(api, model="qwen3:14b"):
    session_id = await api.new_session(model=model)
    assert (await api.post(f"/chat/{session_id}", {"message": HELLO})).status_code == 200
    return session_id


async def test_there_is_no_summary_before_somebody_asks(api):
    session_id = await said(api)
    response = await api.get(f"/sessions/{session_id}/summary")
    assert (response.status_code, response.json()) == (200, NONE)


@pytest.mark.parametrize("body", [None, {}, {"model": None}])
async def test_a_summary_is_written_at_once(api, ollama, body):
    session_id = await said(api)
    ollama.reply([json.dumps(WRITTEN)])
    response = await api.post(f"/sessions/{session_id}/summarize", body)
    expected = {**WRITTEN, "model_used": "qwen3:14b"}
    assert (response.status_code, response.json()) == (200, expected)
    assert (await api.get(f"/sessions/{session_id}/summary")).json() == expected
    [line] = (await api.get("/sessions")).json()["sessions"]
    assert {key: line["summary"][key] for key in WRITTEN} == WRITTEN
    status = (await api.get(f"/sessions/{session_id}/status")).json()
    assert status["summary"] == line["summary"]


async def test_a_named_model_writes(api, ollama):
    session_id = await said(api)
    response = await api.post(f"/sessions/{session_id}/summarize", {"model": "gemma3:4b"})
    assert response.json()["model_used"] == "gemma3:4b"
    assert ollama.chats[-1]["model"] == "gemma3:4b"


async def test_a_model_that_cannot_is_refused_and_another_one_can_be_set(api, ollama):
    session_id = await said(api, "gpt-oss:20b")
    refused = await api.post(f"/sessions/{session_id}/summarize")
    assert refused.status_code == 422
    assert refused.json()["error"]["code"] == "SUMMARY_MODEL_REQUIRED"
    assert refused.json()["error"]["details"] == {"model": "gpt-oss:20b"}
    patched = await api.patch(f"/sessions/{session_id}", {"summary_model": "qwen3:14b"})
    assert patched.status_code == 200
    assert (await api.get(f"/sessions/{session_id}")).json()["summary_model"] == "qwen3:14b"
    assert (await api.get(f"/sessions/{session_id}/status")).json()["summary_model"] == "qwen3:14b"
    written = await api.post(f"/sessions/{session_id}/summarize")
    assert written.json()["model_used"] == "qwen3:14b"
    await api.patch(f"/sessions/{session_id}", {"summary_model": None})
    assert (await api.get(f"/sessions/{session_id}")).json()["summary_model"] is None


@pytest.mark.parametrize(
    ("model", "status", "code"),
    [
        ("gone:1b", 404, "MODEL_NOT_FOUND"),
        ("gpt-oss:20b", 422, "SUMMARY_MODEL_REQUIRED"),
        ("", 422, "VALIDATION_ERROR"),
    ],
)
async def test_no_summary_model_is_set_that_could_not_write(api, model, status, code):
    session_id = await api.new_session()
    for method, path in (("PATCH", ""), ("POST", "/summarize")):
        key = "summary_model" if method == "PATCH" else "model"
        response = await api(method, f"/sessions/{session_id}{path}", {key: model})
        assert (response.status_code, response.json()["error"]["code"]) == (status, code)
    assert (await api.get(f"/sessions/{session_id}")).json()["summary_model"] is None


async def test_an_empty_session_has_nothing_to_summarise(api):
    session_id = await api.new_session()
    response = await api.post(f"/sessions/{session_id}/summarize")
    assert (response.status_code, response.json()["error"]["code"]) == (400, "EMPTY_HISTORY")


async def test_an_unknown_session_has_no_summary(api):
    for response in (
        await api.get("/sessions/0123456789/summary"),
        await api.post("/sessions/0123456789/summarize"),
    ):
        assert (response.status_code, response.json()["error"]["code"]) == (
            404,
            "SESSION_NOT_FOUND",
        )


async def test_a_failure_of_the_model_is_told_and_changes_nothing(api, ollama):
    session_id = await said(api)
    for _ in range(2):
        ollama.reply(["nothing like JSON"])
    response = await api.post(f"/sessions/{session_id}/summarize")
    assert (response.status_code, response.json()["error"]["code"]) == (502, "OLLAMA_ERROR")
    assert (await api.get(f"/sessions/{session_id}/summary")).json() == NONE


async def test_a_summary_of_an_old_file_is_shown(api, mochi):
    session_id = await said(api)
    path = mochi.sessions_path / f"{session_id}.json"
    content = json.loads(path.read_bytes())
    content["metadata"]["summary"] = {"summary": "Old.", "topics": []}
    path.write_text(json.dumps(content))
    shown = (await api.get(f"/sessions/{session_id}/summary")).json()
    assert shown == {"summary": "Old.", "topics": [], "model_used": None}


async def test_a_server_summarises_by_itself_and_catches_up_after_a_kill(server_of, ollama):
    settings = {"summarization_enabled": True, "summarization_interval_seconds": 0.1}
    ollama.reply(["I am fine."])
    ollama.reply([json.dumps(WRITTEN)], delay=60)
    async with server_of(ollama=ollama, **settings) as server:
        session_id = await server.new_session()
        await server.post(f"/chat/{session_id}", {"message": HELLO})
        await ollama.requested(2)
        server.process.kill()
        await server.process.wait()
    ollama.reply([json.dumps(WRITTEN)])
    async with server_of(ollama=ollama, **settings) as server:
        with anyio.fail_after(60):
            while (  # noqa: ASYNC110 - of another process
                shown := (await server.get(f"/sessions/{session_id}/summary"))[1]
            ) == NONE:
                await anyio.sleep(0.02)
    assert shown == {**WRITTEN, "model_used": "qwen3:14b"}


async def test_sigterm_does_not_wait_for_a_summary(server_of, ollama):
    ollama.reply(["I am fine."])
    ollama.reply([json.dumps(WRITTEN)], delay=60)
    async with server_of(ollama=ollama) as server:
        session_id = await server.new_session()
        await server.post(f"/chat/{session_id}", {"message": HELLO})
        async with anyio.create_task_group() as group:
            answers = []

            async def ask() -> None:
                answers.append(await server.post(f"/sessions/{session_id}/summarize"))

            group.start_soon(ask)
            await ollama.requested(2)
            with anyio.fail_after(30):
                assert await server.stop() == 0
    [(status, body)] = answers
    assert (status, body["error"]["code"]) == (503, "SHUTTING_DOWN")


async def test_a_data_folder_that_cannot_be_written_is_told(api, mochi):
    session_id = await said(api)
    shutil.rmtree(mochi.state_path)
    mochi.state_path.write_text("in the way")
    response = await api.post(f"/sessions/{session_id}/summarize")
    assert (response.status_code, response.json()["error"]["code"]) == (507, "STORAGE_ERROR")
