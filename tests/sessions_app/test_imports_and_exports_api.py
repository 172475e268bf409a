"""``POST /sessions/import``, and ``/export`` of one session and of several."""

from __future__ import annotations

import base64
import json
from io import BytesIO
from zipfile import ZipFile

import pytest

from mochi_server.core.clock import utc_now

EXPORT = [
    {
        "uuid": "c1", "name": "Greetings", "created_at": "2025-01-01T00:00:00Z",
        "chat_messages": [
            {"uuid": "m1", "sender": "human", "text": "Hi", "files": [{"file_name": "a.png"}]},
            {"uuid": "m2", "sender": "assistant", "content": [{"type": "text", "text": "Hello"}]},
        ],
    },
    {"uuid": "c2", "chat_messages": [{"sender": "critic"}]},
]  # fmt: skip


async def imported(api, content, query=""):
    return await api.client.post(
        f"/api/v1/sessions/import{query}", data=content, content_type="application/octet-stream"
    )


async def test_an_export_becomes_sessions_once(api, ollama):
    response = await imported(api, json.dumps(EXPORT).encode(), "?model=qwen3:14b")
    assert response.status_code == 200
    result = response.json()
    [session] = result.pop("imported")
    session_id = session["session_id"]
    assert session == {
        "session_id": session_id, "outcome": "created", "message_count": 2, "forked_from": None,
        "format_version": None, "policies_changed": False,
    }  # fmt: skip
    assert result == {
        "program": "claude",
        "left_out": {"file that is not in the export": 1},
        "problems": [
            {
                "program": "claude",
                "place": "/1",
                "reason": "no message of it can be taken (1 \u00d7 message of the role critic)",
            }
        ],
    }
    again = (await imported(api, json.dumps(EXPORT).encode())).json()
    assert [each["outcome"] for each in again["imported"]] == ["unchanged"]
    listed = (await api.get("/sessions")).json()["sessions"]
    assert [(each["session_id"], each["title"]) for each in listed] == [(session_id, "Greetings")]
    ollama.reply(["And more"])
    await api.post(f"/chat/{session_id}", {"message": "Go on"})
    sent = [message["content"] for message in ollama.chats[-1]["messages"]]
    assert sent == ["Hi", "Hello", "Go on"]


async def test_what_cannot_be_imported_is_an_error_that_names_the_place(api):
    response = await imported(api, json.dumps(EXPORT[1:]).encode())
    reason = "no message of it can be taken (1 \u00d7 message of the role critic)"
    assert response.status_code == 400
    assert response.json()["error"] == {
        "code": "CANNOT_IMPORT",
        "message": f"claude: /0: {reason}",
        "details": {"program": "claude", "place": "/0", "reason": reason},
    }
    assert (await imported(api, b"")).json()["error"]["message"] == "it is empty"


async def test_a_session_file_keeps_its_id_or_gets_another_one(api):
    content = json.dumps({"metadata": {"session_id": "one", "model": "m"}}).encode()
    for query, is_same in (("", True), ("?new_id=true", False)):
        [session] = (await imported(api, content, query)).json()["imported"]
        assert (session["session_id"] == "one") is is_same


async def test_a_file_may_be_larger_than_other_bodies(server_of):
    """It is written to the disk as it arrives; each of its conversations is limited."""
    text = "word " * 20_000
    lines = [
        json.dumps({"messages": [{"role": "user", "content": f"{number} {text}"}]}).encode()
        for number in range(4)
    ]
    async with server_of(max_body_mb=0.02) as server:
        path = f"{server.api}/sessions/import?model=qwen3:14b"
        async with server.http.post(path, data=b"\n".join(lines)) as response:
            assert response.status == 200, await response.text()
            assert len((await response.json())["imported"]) == 4


# Exports


@pytest.mark.parametrize(
    ("to", "kind", "start"),
    [
        ("json", "application/json", '{\n  "metadata": {'),
        ("markdown", "text/markdown; charset=utf-8", "# Sums\n"),
        ("jsonl", "application/jsonl", '{"messages":[{"role":"system","content":"Be brief."}]}\n'),
        ("html", "text/html; charset=utf-8", "<!doctype html>"),
        ("zip", "application/zip", "PK"),
    ],
)
async def test_a_session_is_downloaded_as_a_file_that_no_browser_runs(api, to, kind, start):
    session_id = await api.new_session(title="Sums", system_prompt="Be brief.")
    response = await api.get(f"/sessions/{session_id}/export?format={to}")
    assert response.status_code == 200
    assert response["Content-Type"] == kind
    suffix = "md" if to == "markdown" else to
    assert response["Content-Disposition"] == f'attachment; filename="{session_id}.{suffix}"'
    assert response["Content-Security-Policy"] == "sandbox; default-src 'none'"
    assert response.content.startswith(start.encode())


async def test_the_session_file_is_the_default_and_other_formats_are_refused(api):
    session_id = await api.new_session()
    response = await api.get(f"/sessions/{session_id}/export")
    assert response.json()["metadata"]["session_id"] == session_id
    response = await api.get(f"/sessions/{session_id}/export?format=pdf")
    assert (response.status_code, response.json()["error"]["code"]) == (422, "VALIDATION_ERROR")
    assert (await api.get("/sessions/nobody/export")).status_code == 404


async def archive_of(api, **wanted):
    """The members of an archive of sessions, by name, and the archive."""
    response = await api.post("/sessions/export", wanted)
    assert response.status_code == 200
    assert response["Content-Type"] == "application/octet-stream"
    content = b"".join([part async for part in response])
    assert response["Content-Length"] == str(len(content))
    with ZipFile(BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}, content


async def test_all_sessions_are_one_archive_that_can_be_imported(api, mochi):
    sums = await api.new_session(title="Sums: 1/2")
    await api.client.patch(
        f"/api/v1/sessions/{sums}", {"archived": True}, content_type="application/json"
    )
    note = {"data": base64.b64encode(b"Buy milk.").decode(), "name": "note.txt"}
    for _ in range(2):  # the same file
        tea = await api.new_session(title="Tea")
        answer = await api.post(f"/chat/{tea}", {"message": "Look", "attachments": [note]})
        assert answer.status_code == 200
    (mochi.sessions_path / "broken.json").write_text("{")
    members, content = await archive_of(api)
    day = f"{utc_now():%Y-%m-%d}"
    names = [name for name in members if name.startswith(day)]
    assert f"{day} Sums 1 2.json" in names
    assert f"{day} Tea {tea}.json" in names
    assert members[f"{day} Sums 1 2.json"] == (mochi.sessions_path / f"{sums}.json").read_bytes()
    [file] = [data for name, data in members.items() if name.startswith("attachments/")]
    assert file == b"Buy milk."
    assert members["problems.txt"].startswith(b"broken: ")
    assert len(names) == 3
    for session_id in (sums, tea):
        assert (await api.client.delete(f"/api/v1/sessions/{session_id}")).status_code == 204
    outcomes = [each["outcome"] for each in (await imported(api, content)).json()["imported"]]
    assert sorted(outcomes) == ["created", "created", "unchanged"]
    stored = (await api.get(f"/sessions/{tea}")).json()["messages"][0]["attachments"][0]
    again = await api.get(f"/sessions/{tea}/attachments/{stored['attachment_id']}")
    assert b"".join([part async for part in again]) == b"Buy milk."


async def test_some_sessions_are_one_archive_in_any_format(api):
    one, two, _ = [await api.new_session(title=title) for title in ("One", "Two", "Three")]
    members, _ = await archive_of(api, session_ids=[one, two], format="markdown")
    assert sorted(members) == [f"{utc_now():%Y-%m-%d} {name}.md" for name in ("One", "Two")]
    assert {content.splitlines()[0] for content in members.values()} == {b"# One", b"# Two"}
    response = await api.post("/sessions/export", {"session_ids": [one, "nobody"]})
    assert (response.status_code, response.json()["error"]["code"]) == (404, "SESSION_NOT_FOUND")


async def test_an_archive_that_is_not_read_keeps_its_slot_until_it_is_closed(api):
    await api.new_session()
    held = [await api.post("/sessions/export", {}) for _ in range(4)]
    refused = await api.post("/sessions/export", {})
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "SERVER_BUSY")
    for response in held:
        response.close()
    last = await api.post("/sessions/export", {})
    assert last.status_code == 200
    last.close()
