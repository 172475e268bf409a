"""Files that belong to messages."""

from __future__ import annotations

import hashlib
import os
import stat

import pytest

from mochi_server.errors import AttachmentNotFound, StorageError
from mochi_server.sessions.attachments import AttachmentStore, MemoryAttachmentStore


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
