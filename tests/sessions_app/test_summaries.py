"""``/sessions/{id}/summarize``, ``/summary``, ``summary_model``, and ``summarize_sessions``."""

from __future__ import annotations

import io
import json
import shutil
from datetime import datetime, timedelta, timezone
from typing import Any

import anyio
import pytest
from django.core.management import CommandError, call_command

from mochi_server.core.aio import in_thread
from mochi_server.protocol.messages import AssistantMessage, UserMessage
from mochi_server.sessions import ConversationSummary, SessionManager
from tests.support.server import environment, run_command, running_server
from tests.support.summaries import HELLO
from tests.support.waiting import until

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
    ollama.reply([json.dumps(WRITTEN)], delay=600)
    async with server_of(ollama=ollama, **settings) as server:
        session_id = await server.new_session()
        await server.post(f"/chat/{session_id}", {"message": HELLO})
        await ollama.requested(2)
        server.process.kill()
        await server.process.wait()
    ollama.reply([json.dumps(WRITTEN)])
    async with server_of(ollama=ollama, **settings) as server:
        path = f"/sessions/{session_id}/summary"
        _, shown = await until(lambda: server.get(path), lambda answer: answer[1] != NONE)
    assert shown == {**WRITTEN, "model_used": "qwen3:14b"}


async def test_sigterm_does_not_wait_for_a_summary(server_of, ollama):
    ollama.reply(["I am fine."])
    ollama.reply([json.dumps(WRITTEN)], delay=600)
    async with server_of(ollama=ollama) as server:
        session_id = await server.new_session()
        await server.post(f"/chat/{session_id}", {"message": HELLO})
        async with anyio.create_task_group() as group:
            answers = []

            async def ask() -> None:
                answers.append(await server.post(f"/sessions/{session_id}/summarize"))

            group.start_soon(ask)
            await ollama.requested(2)
            with anyio.fail_after(100):
                assert await server.stop() == 0
    [(status, body)] = answers
    assert (status, body["error"]["code"]) == (503, "SHUTTING_DOWN")


async def test_a_data_folder_that_cannot_be_written_is_told(api, mochi):
    session_id = await said(api)
    shutil.rmtree(mochi.state_path)
    mochi.state_path.write_text("in the way")
    response = await api.post(f"/sessions/{session_id}/summarize")
    assert (response.status_code, response.json()["error"]["code"]) == (507, "STORAGE_ERROR")


# manage.py summarize_sessions


MODEL = "qwen3:14b"


def run(*arguments: Any) -> tuple[str, str, int]:
    """What the command says, what it complains about, and its exit code."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    try:
        call_command("summarize_sessions", *arguments, stdout=out, stderr=err)
    except SystemExit as ended:
        code = ended.code
    return out.getvalue(), err.getvalue(), code


async def command(*arguments: Any) -> tuple[str, str, int]:
    return await in_thread(run, *arguments)


async def as_json(*arguments: Any) -> Any:
    return json.loads((await command(*arguments, "--json"))[0])


@pytest.fixture
def manager(mochi):
    return SessionManager(sessions_dir=mochi.sessions_path)


async def make(manager, session_id, *, model=MODEL, days=0, messages=2, summary=None):
    await manager.create(model, session_id=session_id)
    said = [UserMessage(content=HELLO), AssistantMessage(content="I am fine.", model=model)]
    async with manager.edit(session_id) as session:
        session.append(*said[:messages])
        session.metadata.summary = summary
    path = manager.storage.folder / f"{session_id}.json"
    content = json.loads(path.read_bytes())
    time = datetime.now(timezone.utc) - timedelta(days=days)
    content["metadata"]["updated_at"] = time.isoformat()
    path.write_text(json.dumps(content))


@pytest.fixture
async def several(manager):
    """Two that need a summary, one of them old; and three that need none, each for its reason."""
    await make(manager, "new")
    await make(manager, "old", days=40)
    await make(manager, "asking", messages=1, days=50)
    await make(manager, "empty", messages=0, days=60)
    await make(manager, "foreign", summary=ConversationSummary(summary="By others."), days=70)
    return manager


async def test_a_dry_run_shows_what_needs_a_summary_and_writes_none(several, ollama):
    out, err, code = await command("--dry-run")
    head, *lines, last = out.splitlines()
    assert head.split() == ["SESSION", "MODEL", "OUTCOME"]
    assert [line.split() for line in lines] == [
        [name, MODEL, "would", "be", "summarised"] for name in ("new", "old")
    ]
    assert last == "Nothing was written. Leave out --dry-run to do it."
    assert (err, code) == ("", 0)
    assert ollama.chats == []


async def test_what_needs_a_summary_gets_one(several, ollama):
    out, err, code = await command()
    assert [line.split() for line in out.splitlines()[1:]] == [
        [name, MODEL, "summarised"] for name in ("new", "old")
    ]
    assert (err, code) == ("", 0)
    for name in ("new", "old"):
        assert (await several.get(name)).metadata.summary is not None
    assert (await several.get("foreign")).metadata.summary.summary == "By others."
    assert (await command())[0] == "No session needs a summary.\n"
    assert len(ollama.chats) == 2


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["--all"], ["new", "old", "foreign"]),
        (["--older-than", "30d"], ["old"]),
        (["--id", "old", "--id", "foreign"], ["old", "foreign"]),
        (["--id", "asking"], []),
    ],
)
async def test_the_options_choose(several, arguments, names):
    lines = await as_json(*arguments)
    assert lines == [
        {"session_id": name, "model": MODEL, "outcome": "written", "reason": None} for name in names
    ]


async def test_a_failure_of_one_is_told_and_stops_no_other(several, ollama):
    for _ in range(2):
        ollama.reply(["no JSON"])
    out, err, code = await command()
    assert [line.split()[-1] for line in out.splitlines()[1:]] == ["failed", "summarised"]
    assert err.startswith("problem: new: The reply of 'qwen3:14b' does not have the form")
    assert code == 1


async def test_an_unknown_session_is_a_problem(several):
    out, err, code = await command("--id", "nowhere")
    assert out.split()[-3:] == ["nowhere", "-", "failed"]
    assert err == "problem: nowhere: Session with ID 'nowhere' not found.\n"
    assert code == 1


async def test_a_session_without_a_suitable_model_is_skipped(manager, ollama):
    ollama.add_model("gpt-oss:20b")
    await make(manager, "one", model="gpt-oss:20b")
    assert (await command("--dry-run"))[0].splitlines()[1].split()[1:] == [
        "-", "skipped:", "no", "model", "can",
    ]  # fmt: skip
    [line] = await as_json()
    assert line == {"session_id": "one", "model": None, "outcome": "no_model", "reason": None}


def test_two_ways_to_choose_are_refused(mochi):
    with pytest.raises(CommandError, match="not allowed with"):
        run("--all", "--older-than", "1d")


async def test_sessions_in_memory_cannot_be_seen_from_here(mochi, settings):
    settings.MOCHI = mochi.model_copy(update={"session_storage": "memory"})
    with pytest.raises(CommandError, match="only the server itself"):
        await command()


@pytest.mark.slow
async def test_a_chat_of_a_running_server_goes_before_the_command(tmp_path, ollama):
    data = {"data_dir": tmp_path, "models_dir": tmp_path / "models"}
    async with running_server(data_dir=tmp_path, ollama=ollama) as server:
        waiting, chatting = await server.new_session(), await server.new_session()
        await server.post(f"/chat/{waiting}", {"message": HELLO})
        ollama.reply([json.dumps({"summary": "Late.", "topics": []})], delay=60, match="Summarise")
        ollama.reply([json.dumps({"summary": "Done.", "topics": []})], match="Summarise")
        ended = []

        async def summarise() -> None:
            env = environment(ollama_host=ollama.url, summarization_interval_seconds=0.1, **data)
            ended.append(await run_command("summarize_sessions", "--json", cwd=tmp_path, env=env))

        async with anyio.create_task_group() as group:
            group.start_soon(summarise)
            await ollama.requested(2)
            with anyio.fail_after(30):
                status, _ = await server.post(f"/chat/{chatting}", {"message": "Me first"})
            assert status == 200
            assert ollama.disconnects == 1
        assert ended[0].code == 0, ended[0].err
        [line] = json.loads(ended[0].out)
        assert (line["session_id"], line["outcome"]) == (waiting, "written")
        assert (await server.get(f"/sessions/{waiting}/summary"))[1]["summary"] == "Done."


# Histories that are compacted at once


NOTES = "- The project is called Marmalade."


async def with_messages(api, *texts, **fields):
    session_id = await api.new_session(**fields)
    for text in texts:
        assert (await api.post(f"/chat/{session_id}", {"message": text})).status_code == 200
    return session_id


async def test_a_history_is_compacted_at_once_and_sent_so(api, ollama):
    session_id = await with_messages(api, "One.", "Two.")
    ollama.reply([NOTES])
    written = await api.post(f"/sessions/{session_id}/compact")
    assert written.status_code == 200
    summary = written.json()
    assert {key: summary[key] for key in ("text", "model")} == {"text": NOTES, "model": "qwen3:14b"}
    detail = (await api.get(f"/sessions/{session_id}")).json()
    assert detail["history_summary"] == {**summary, "requested": True}
    assert summary["through_message_id"] == detail["messages"][1]["message_id"]
    assert len(detail["messages"]) == 4
    answer = (await api.post(f"/chat/{session_id}", {"message": "Three."})).json()
    assert answer["context_window"]["summarised_messages"] == 2
    note, *rest = ollama.chats[-1]["messages"]
    assert NOTES in note["content"]
    assert [each["content"] for each in rest] == ["Two.", "You said: Two.", "Three."]


async def test_there_must_be_something_before_the_last_turn(api):
    for texts in ((), ("One.",)):
        response = await api.post(f"/sessions/{await with_messages(api, *texts)}/compact")
        assert response.status_code == 400
        assert response.json()["error"]["code"] == "EMPTY_HISTORY"


@pytest.mark.parametrize("value", [True, False])
async def test_a_session_says_whether_it_is_compacted(api, value):
    created = await api.post("/sessions", {"model": "qwen3:14b", "compaction": value})
    assert created.json()["compaction"] is value
    path = f"/sessions/{created.json()['session_id']}"
    assert (await api.get(path)).json()["compaction"] is value
    assert (await api.patch(path, {"compaction": not value})).json()["compaction"] is not value
    assert "compaction" not in (await api.patch(path, {"compaction": None})).json()
    refused = await api.patch(path, {"compaction": "yes"})
    assert refused.status_code == 422


async def test_switched_off_a_compacted_history_is_sent_whole_again(api, ollama):
    session_id = await with_messages(api, "One.", "Two.")
    ollama.reply([NOTES])
    await api.post(f"/sessions/{session_id}/compact")
    await api.patch(f"/sessions/{session_id}", {"compaction": False})
    await api.post(f"/chat/{session_id}", {"message": "Three."})
    assert len(ollama.chats[-1]["messages"]) == 5
