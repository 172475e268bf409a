"""The files of a session's workspace over HTTP."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import quote

import anyio
import pytest

from mochi_project.runtime import get_runtime
from mochi_server.workspace import session_folders
from tests.support.api import error_of
from tests.support.server import Server

SIZE = 12_000_000
"""Bytes of a file that is larger than all buffers."""

pytestmark = pytest.mark.usefixtures("with_workspaces")


@pytest.fixture
def with_workspaces(mochi, settings):
    settings.MOCHI = mochi.model_copy(update={"workspace_enabled": True})


async def body_of(response):
    return b"".join([part async for part in response])


async def put(api, session_id, path, content, **options):
    return await api.put(
        f"/sessions/{session_id}/files/{quote(path)}",
        data=content,
        content_type="application/octet-stream",
        **options,
    )


async def test_a_file_is_uploaded_listed_downloaded_and_deleted(api):
    session_id = await api.new_session()
    files = f"/sessions/{session_id}/files"
    assert (await api.get(files)).json() == {
        "session_id": session_id, "path": "", "files": [], "truncated": False,
    }  # fmt: skip
    response = await put(api, session_id, "src/main.py", b"print(1)\n")
    assert response.status_code == 201
    assert {**response.json(), "modified_at": ""} == {
        "path": "src/main.py", "kind": "file", "size": 9, "modified_at": "",
    }  # fmt: skip
    assert (await put(api, session_id, "src/main.py", b"print(2)\n")).status_code == 200
    listed = (await api.get(f"{files}?recursive=true")).json()["files"]
    assert [(each["path"], each["kind"]) for each in listed] == [
        ("src", "folder"), ("src/main.py", "file"),
    ]  # fmt: skip
    assert [each["path"] for each in (await api.get(files)).json()["files"]] == ["src"]
    assert (await api.get(f"{files}?path=src")).json()["files"][0]["path"] == "src/main.py"
    response = await api.get(f"{files}/src/main.py")
    assert response["Content-Type"] == "text/plain; charset=utf-8"
    assert response["Content-Length"] == "9"
    assert await body_of(response) == b"print(2)\n"
    assert error_of(await api.delete(f"{files}/src")) == (403, "FILE_REFUSED")
    assert (await api.delete(f"{files}/src?recursive=true")).status_code == 204
    assert error_of(await api.get(f"{files}/src/main.py")) == (404, "FILE_NOT_FOUND")


@pytest.mark.parametrize(
    ("limits", "limit_mb"),
    [({"FOLDER_MB": 0.1}, 20_000), ({"FOLDER_FILES": 1}, 20_000), ({}, 0.1)],
    ids=["size of one", "files of one", "size of all together"],
)
async def test_clients_fill_workspaces_no_more_than_they_may(
    api, settings, monkeypatch, limits, limit_mb
):
    for name, value in limits.items():
        monkeypatch.setattr(session_folders, name, value)
    settings.MOCHI = settings.MOCHI.model_copy(update={"max_workspaces_mb": limit_mb})
    first, second = await api.new_session(), await api.new_session()
    assert (await put(api, first, "a", bytes(60_000))).status_code == 201
    full = second if not limits else first
    refused = await put(api, full, "b", bytes(60_000))
    assert error_of(refused) == (413, "SPACE_USED_UP")
    assert "There is no room for this" in refused.json()["error"]["message"]
    assert not (await api.get(f"/sessions/{full}/files?path=b")).json().get("files")
    assert (await api.delete(f"/sessions/{first}/files/a")).status_code == 204
    assert (await put(api, full, "b", bytes(60_000))).status_code == 201
    if not limits:
        assert error_of(await put(api, first, "a", bytes(60_000))) == (413, "SPACE_USED_UP")
        assert (await api.delete(f"/sessions/{second}")).status_code == 204
        assert (await put(api, first, "a", bytes(60_000))).status_code == 201


async def test_empty_files_and_their_folders_take_what_they_take_on_a_disk(api, settings):
    settings.MOCHI = settings.MOCHI.model_copy(update={"max_workspaces_mb": 0.1})
    session_id = await api.new_session()
    answers = [await put(api, session_id, f"{n}/b/c", b"") for n in range(20)]
    assert (answers[0].status_code, error_of(answers[-1])) == (201, (413, "SPACE_USED_UP"))


async def test_what_a_model_wrote_is_no_page_of_this_server(api):
    session_id = await api.new_session()
    for name, content, kind in [
        ("page.html", b"<script>alert(1)</script>", "text/plain; charset=utf-8"),
        ("image.svg", b"<svg onload='alert(1)'/>", "text/plain; charset=utf-8"),
        ("a.pdf", b"%PDF-1.7\xff\0", "application/octet-stream"),
        ("fake.png", b"<html>", "text/plain; charset=utf-8"),
        ("image", b"\x89PNG\r\n\x1a\n", "image/png"),
        ("empty", b"", "text/plain; charset=utf-8"),
        ("umlauts", "ü".encode() * 5_000 + b"x", "text/plain; charset=utf-8"),
        ('we"ird\r\n.txt', b"x", "text/plain; charset=utf-8"),
    ]:
        await put(api, session_id, name, content)
        response = await api.get(f"/sessions/{session_id}/files/{quote(name)}")
        if "\n" in name:
            assert response.status_code == 404
            continue
        assert response["Content-Type"] == kind
        assert response["X-Content-Type-Options"] == "nosniff"
        assert response["Content-Security-Policy"] == "sandbox; default-src 'none'"
        assert response["Content-Disposition"] == f"attachment; filename*=UTF-8''{quote(name, '')}"
        assert await body_of(response) == content


async def test_a_download_goes_on_where_it_was_interrupted(api):
    session_id = await api.new_session()
    content = os.urandom(1_000_000)
    await put(api, session_id, "big", content)
    url = f"/sessions/{session_id}/files/big"
    whole = await api.get(url)
    etag = whole["ETag"]
    assert await body_of(whole) == content
    for header, expected, said in [
        ("bytes=0-9", content[:10], "bytes 0-9/1000000"),
        ("bytes=999990-", content[-10:], "bytes 999990-999999/1000000"),
        ("bytes=-10", content[-10:], "bytes 999990-999999/1000000"),
        ("bytes=500000-9999999", content[500_000:], "bytes 500000-999999/1000000"),
        ("bytes=0-", content, "bytes 0-999999/1000000"),
    ]:
        part = await api.get(url, headers={"Range": header, "If-Range": etag})
        assert (part.status_code, part["Content-Range"]) == (206, said)
        assert part["Content-Length"] == str(len(expected))
        assert await body_of(part) == expected
    for header in ("bytes=2000000-", "bytes=9-0", "bytes=0-1,5-6", "lines=0-1", "bytes=-"):
        response = await api.get(url, headers={"Range": header})
        assert response.status_code == 200
        assert await body_of(response) == content
    changed = await api.get(url, headers={"Range": "bytes=0-9", "If-Range": '"other"'})
    assert (changed.status_code, len(await body_of(changed))) == (200, 1_000_000)


async def test_a_file_that_has_not_changed_is_not_sent_again(api):
    session_id = await api.new_session()
    await put(api, session_id, "a", b"one")
    url = f"/sessions/{session_id}/files/a"
    response = await api.get(url)
    etag = response["ETag"]
    response.close()
    response = await api.get(url, headers={"If-None-Match": f'"x", {etag}'})
    assert (response.status_code, response.content) == (304, b"")
    await put(api, session_id, "a", b"two")
    response = await api.get(url, headers={"If-None-Match": etag})
    assert await body_of(response) == b"two"


async def test_head_tells_what_get_would(api):
    session_id = await api.new_session()
    await put(api, session_id, "a", b"one")
    response = await api("HEAD", f"/sessions/{session_id}/files/a")
    assert response.status_code == 200
    assert response["Content-Length"] == "3"
    assert response.content == b""


@pytest.mark.parametrize(
    "path",
    [
        "%2e%2e/other",
        "..%2fother",
        "a/%2e%2e/%2e%2e/other",
        "%2fetc/passwd",
        "link",
        "pipe",
        "hard",
    ],
)
async def test_no_path_leads_out(api, mochi, path):
    session_id = await api.new_session()
    await put(api, session_id, "a/b", b"")
    folder = mochi.workspace_path / session_id
    (mochi.workspace_path / "other").write_bytes(b"secret")
    (folder / "link").symlink_to("../other")
    (folder / "hard").hardlink_to(mochi.workspace_path / "other")
    os.mkfifo(folder / "pipe")
    url = f"/sessions/{session_id}/files/{path}"
    assert error_of(await api.get(url)) == (403, "FILE_REFUSED")
    if path != "hard":
        response = await api.put(url, data=b"x", content_type="text/plain")
        assert error_of(response) == (403, "FILE_REFUSED")
    assert (mochi.workspace_path / "other").read_bytes() == b"secret"


async def test_a_session_that_is_not_there_gets_no_folder(api, mochi):
    assert error_of(await put(api, "nope", "a", b"")) == (404, "SESSION_NOT_FOUND")
    assert error_of(await api.get("/sessions/nope/files")) == (404, "SESSION_NOT_FOUND")
    assert not mochi.workspace_path.exists()


async def test_the_folder_is_deleted_with_its_session(api, mochi):
    kept, deleted = await api.new_session(), await api.new_session()
    for session_id in (kept, deleted):
        await put(api, session_id, "a/b/c", b"x")
    assert (await api.delete(f"/sessions/{deleted}")).status_code == 204
    assert os.listdir(mochi.workspace_path) == [kept]  # noqa: PTH208


async def test_without_the_setting_there_are_no_workspaces(api, mochi, settings):
    settings.MOCHI = mochi.model_copy(update={"workspace_enabled": False})
    session_id = await api.new_session()
    assert error_of(await put(api, session_id, "a", b"")) == (424, "WORKSPACE_DISABLED")
    assert error_of(await api.get(f"/sessions/{session_id}/files")) == (424, "WORKSPACE_DISABLED")


async def test_an_endless_file_is_refused(api, mochi):
    session_id = await api.new_session()
    await put(api, session_id, "a", b"")
    with (mochi.workspace_path / session_id / "a").open("wb") as file:
        file.truncate(1 << 40)
    assert error_of(await api.get(f"/sessions/{session_id}/files/a")) == (403, "FILE_REFUSED")


async def test_unused_folders_are_deleted_after_a_time(api, mochi, settings):
    settings.MOCHI = settings.MOCHI.model_copy(update={"workspace_retention_days": 2})
    old, new, busy = [await api.new_session() for _ in range(3)]
    for session_id in (old, new, busy):
        await put(api, session_id, "a", b"")
    place = mochi.workspace_path
    (place / ".removed-0123456789abcdef").mkdir()  # of a process that was killed
    (place / "notes.txt").touch()
    for session_id in (old, busy):
        os.utime(place / session_id, (1, 1))
    runtime = get_runtime()
    async with runtime.sessions.claim(busy):
        assert await runtime.session_folders.clean() == [old]
    assert sorted(os.listdir(place)) == sorted([new, busy, "notes.txt"])  # noqa: PTH208
    assert (await api.get(f"/sessions/{old}/files")).json()["files"] == []


@asynccontextmanager
async def download(
    server_of, tmp_path, ollama_url, *, heartbeat_seconds: float
) -> AsyncIterator[tuple[Server, socket.socket]]:
    """The connection on which a server sends a file of ``SIZE`` bytes."""
    limits = {"heartbeat_seconds": heartbeat_seconds, "workspace_enabled": True}
    async with server_of(ollama=ollama_url, **limits) as server:
        session_id = await server.new_session()
        folder = tmp_path / "workspaces" / session_id
        folder.mkdir(parents=True)
        with (folder / "big").open("wb") as file:
            file.truncate(SIZE)
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        host, _, port = server.url.removeprefix("http://").partition(":")
        client.connect((host, int(port)))
        with client:
            path = f"/api/v1/sessions/{session_id}/files/big"
            client.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
            client.settimeout(30)
            yield server, client


async def test_a_client_that_does_not_read_is_dropped(server_of, tmp_path, ollama_url):
    waiting = download(server_of, tmp_path, ollama_url, heartbeat_seconds=0.125)
    async with waiting as (server, client):
        await server.saw("A client has not read its download")
        received = 0
        with suppress(ConnectionError):
            while part := client.recv(65_536):
                received += len(part)
    assert received < SIZE


@pytest.mark.slow
async def test_a_client_that_reads_slowly_gets_the_whole_file(server_of, tmp_path, ollama_url):
    slow = download(server_of, tmp_path, ollama_url, heartbeat_seconds=0.75)
    async with slow as (_, client):
        received = 0
        for _ in range(80):
            received += len(client.recv(8_192))
            await anyio.sleep(0.1)
        while received < SIZE:
            part = client.recv(65_536)
            assert part
            received += len(part)
