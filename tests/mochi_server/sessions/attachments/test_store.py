"""Files that belong to messages."""

from __future__ import annotations

import base64
import hashlib
import os
import signal
import stat
import time
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from mochi_server.config import load_settings
from mochi_server.errors import AttachmentNotFound, StorageError
from mochi_server.protocol.messages import AssistantMessage, ToolMessage, UserMessage
from mochi_server.runtime import Runtime
from mochi_server.sessions import ChatSession
from mochi_server.sessions.attachments import AttachmentStore, MemoryAttachmentStore
from mochi_server.sessions.attachments.sweeping import KEEP_SECONDS
from tests.support.images import png
from tests.support.server import Server, running_server


async def test_a_file_is_kept_once_and_private(tmp_path):
    store = AttachmentStore(tmp_path / "attachments")
    one = await store.put("a1", b"picture", "image/png", "cat.png")
    again = await store.put("a1", b"picture", "image/png")
    digest = hashlib.sha256(b"picture").hexdigest()
    assert one.payload() == {
        "attachment_id": digest,
        "media_type": "image/png",
        "size": 7,
        "name": "cat.png",
    }
    assert again.attachment_id == digest
    for file in (tmp_path / "attachments" / "a1").iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    handle, status = await store.open("a1", digest)
    with os.fdopen(handle, "rb") as opened:
        assert (opened.read(), status.st_size) == (b"picture", 7)
    assert store.delete_old("a1", [digest], before=float("inf")) == 1
    assert not (tmp_path / "attachments" / "a1").exists()


@pytest.mark.parametrize("kind", [AttachmentStore, MemoryAttachmentStore])
async def test_a_file_has_the_name_of_its_last_upload_also_in_a_fork(tmp_path, kind):
    store = kind() if kind is MemoryAttachmentStore else kind(tmp_path)
    kept = await store.put("a1", b"text", "text/plain", "a.txt")
    await store.put("a1", b"text", "text/markdown", "b.md")
    await store.put("a1", b"text", "text/plain")
    await store.copy("a1", "b2", [kept.attachment_id])
    for session_id in ("a1", "b2"):
        label = await store.label(session_id, kept.attachment_id)
        assert (label.name, label.media_type) == ("b.md", "text/markdown")
    assert (await store.label("a1", "../a1")).name is None
    await store.remove("a1")
    assert (await store.label("a1", kept.attachment_id)).name is None


async def test_a_file_in_memory_is_read_as_one_on_disk():
    store = MemoryAttachmentStore()
    kept = await store.put("a1", b"picture", "image/png", "cat.png")
    handle, status = await store.open("a1", kept.attachment_id)
    with os.fdopen(handle, "rb") as opened:
        assert (opened.read(), status.st_size) == (b"picture", 7)
    await store.copy("a1", "b2", [kept.attachment_id, "0" * 64])
    await store.remove("a1")
    await store.remove("a1")
    with pytest.raises(AttachmentNotFound):
        await store.open("a1", kept.attachment_id)
    assert await store.read("b2", kept.attachment_id) == b"picture"


@pytest.mark.parametrize("name", ["", "..", "../secret", "A" * 64, "0" * 63, "0" * 64, "x" * 64])
async def test_only_what_was_kept_can_be_opened(tmp_path, name):
    (tmp_path / "secret").write_text("s")
    store = AttachmentStore(tmp_path)
    with pytest.raises(AttachmentNotFound):
        await store.open("a1", name)


async def test_a_place_that_cannot_be_written_is_a_named_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be written"):
        await AttachmentStore(tmp_path / "file").put("a1", b"one", "text/plain")


# Files that nobody has any more


OLD = time.time() - KEEP_SECONDS - 60


@pytest_asyncio.fixture
async def runtime(tmp_path):
    async with Runtime(load_settings(_env_file=None, data_dir=tmp_path)) as made:
        yield made


def files(runtime: Runtime) -> set[str]:
    """What is in the folder of attachments: session/content."""
    folder = runtime.settings.attachments_path
    return {f"{each.parent.name}/{each.read_text()}" for each in folder.glob("*/*")}


def age(folder: Path) -> None:
    """Let all files seem to have been put there long ago."""
    for each in folder.glob("*/*"):
        os.utime(each, (OLD, OLD))


async def put(runtime: Runtime, session_id: str, text: str) -> list[dict[str, Any]]:
    """Keep a file; what its message says."""
    kept = await runtime.attachments.put(session_id, text.encode(), "text/plain")
    return [kept.payload()]


async def test_files_stay_while_messages_variants_or_agents_have_them(runtime):
    session = await runtime.sessions.create("m")
    one = session.session_id
    question = UserMessage(content="Look.")
    question.attachments = await put(runtime, one, "of a user")
    answer = ToolMessage(content="See.", tool_name="camera")
    answer.attachments = await put(runtime, one, "of a variant")
    of_agent = ToolMessage(content="See.", tool_name="camera")
    of_agent.attachments = await put(runtime, one, "of an agent")
    await put(runtime, one, "of nobody")
    async with runtime.sessions.edit(one) as session:
        session.append(question, answer, AssistantMessage(content="I see."))
        session.set_aside_answer(keep=True)

    def prepare(chat: ChatSession) -> None:
        chat.append(of_agent)

    await runtime.agent_sessions.create("m", prepare=prepare)
    sweeper = runtime.attachment_sweeper()
    assert await sweeper.sweep() == 0
    age(runtime.settings.attachments_path)
    assert await sweeper.sweep() == 1
    kept = {f"{one}/of a user", f"{one}/of a variant", f"{one}/of an agent"}
    assert files(runtime) == kept

    async with runtime.sessions.edit(one) as session:
        session.edit_user_message(0, "Look again.", [])
    assert await sweeper.sweep() == 0
    async with runtime.sessions.edit(one) as session:
        session.append(AssistantMessage(content="I look."))
        session.settle_variants(keep=False)
    assert await sweeper.sweep() == 2
    assert files(runtime) == {f"{one}/of an agent"}


async def test_what_is_put_again_counts_as_new(runtime):
    session = await runtime.sessions.create("m")
    await put(runtime, session.session_id, "twice")
    age(runtime.settings.attachments_path)
    await put(runtime, session.session_id, "twice")
    assert await runtime.attachment_sweeper().sweep() == 0


async def test_files_of_a_session_in_use_stay(runtime):
    session = await runtime.sessions.create("m")
    await put(runtime, session.session_id, "soon of a message")
    age(runtime.settings.attachments_path)
    sweeper = runtime.attachment_sweeper()
    async with runtime.sessions.claim(session.session_id):
        assert await sweeper.sweep() == 0
    assert await sweeper.sweep() == 1


async def test_files_of_a_session_that_comes_back_stay(tmp_path):
    """A server that has another storage for some time, as before a move or a restore."""
    async with Runtime(load_settings(_env_file=None, data_dir=tmp_path)) as runtime:
        session = await runtime.sessions.create("m")
        question = UserMessage(content="Look.")
        question.attachments = await put(runtime, session.session_id, "of a user")
        async with runtime.sessions.edit(session.session_id) as session:
            session.append(question)
        age(runtime.settings.attachments_path)
    empty = load_settings(_env_file=None, data_dir=tmp_path, sessions_dir="others")
    async with Runtime(empty) as other:
        assert await other.attachment_sweeper().sweep() == 0
        assert await other.attachment_sweeper().sweep() == 0
    async with Runtime(load_settings(_env_file=None, data_dir=tmp_path)) as runtime:
        assert await runtime.attachment_sweeper().sweep() == 0
    folder = runtime.settings.attachments_path / session.session_id
    assert [each.read_text() for each in folder.iterdir()] == ["of a user"]


async def test_files_are_deleted_a_day_after_their_session_was_missed(runtime):
    await put(runtime, "a-session-that-is-gone", "of nobody")
    folder = runtime.settings.attachments_path
    age(folder)
    sweeper = runtime.attachment_sweeper()
    assert await sweeper.sweep() == 0
    age(folder)
    assert await sweeper.sweep() == 1
    assert [*folder.iterdir()] == []


async def test_what_killed_processes_left_is_deleted(tmp_path, ollama):
    """An upload, and the file of a conversation that is not kept; that of a message stays."""
    ollama.add_model("llava:7b", capabilities=["completion", "vision"])
    ollama.reply(["I see."])
    ollama.reply(["A", " long", " answer."] * 1000, delay=0.1)
    folder = tmp_path / "attachments"
    async with running_server(data_dir=tmp_path, ollama=ollama) as server:
        session_id = await server.new_session("llava:7b")
        await upload(server, session_id, png(5, 5))
        used = await upload(server, session_id, png())
        message = {"message": "Look.", "attachments": [used]}
        assert (await server.post(f"/chat/{session_id}", message))[0] == 200
        picture = {"type": "image_url", "image_url": {"url": url_of(png(7, 7))}}
        messages = [{"role": "user", "content": [picture]}]
        asked = {"model": "llava:7b", "stream": True, "messages": messages}
        async with server.http.post(server.url + "/v1/chat/completions", json=asked) as stream:
            assert stream.status == 200
            await server.stop(signal.SIGKILL)
    assert len([*folder.glob("*/*")]) == 3
    age(folder)
    async with running_server(data_dir=tmp_path, ollama=ollama) as server:
        await server.saw("Deleted 1 attachments")
    age(folder)
    async with running_server(data_dir=tmp_path, ollama=ollama) as server:
        await server.saw("Deleted 1 attachments")
    assert [*folder.glob("*/*")] == [folder / session_id / used["attachment_id"]]
    assert [each.name for each in folder.iterdir()] == [session_id]


def url_of(content: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(content).decode()}"


async def upload(server: Server, session_id: str, content: bytes) -> dict[str, Any]:
    """Upload a picture; what a message says of it."""
    path, body = f"/sessions/{session_id}/attachments", {"data": url_of(content)}
    status, answer = await server.post(path, body)
    assert status == 201, answer
    return {"attachment_id": answer["attachment_id"]}
