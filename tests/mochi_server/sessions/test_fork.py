"""Forks of sessions."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable

import anyio
import pytest

from mochi_server.core import ids
from mochi_server.errors import StorageError
from mochi_server.protocol.messages import UserMessage
from mochi_server.sessions import SessionManager
from mochi_server.sessions.attachments import Attachment, AttachmentStore
from mochi_server.sessions.fork import fork_session
from mochi_server.sessions.storage.memory import MemoryStorage


class SlowStorage(MemoryStorage):
    """Waits after a new session was stored."""

    def __init__(self) -> None:
        super().__init__()
        self.created, self.go_on = asyncio.Event(), asyncio.Event()

    async def create(self, session_id: str, parts: Iterable[bytes]) -> tuple[int, ...]:
        version = await super().create(session_id, parts)
        self.created.set()
        await self.go_on.wait()
        return version


async def with_attachment(
    sessions: SessionManager, store: AttachmentStore, session_id: str
) -> Attachment:
    kept = await store.put(session_id, b"kept", "text/plain", "a.txt")
    async with sessions.edit(session_id) as session:
        session.append(UserMessage(content="Read.", attachments=[kept.payload()]))
    return kept


async def test_a_fork_whose_client_leaves_has_its_attachments(tmp_path):
    storage, store = SlowStorage(), AttachmentStore(tmp_path)
    sessions = SessionManager(storage)
    storage.go_on.set()
    source = await sessions.create("m", session_id="source")
    kept = await with_attachment(sessions, store, source.session_id)
    storage.created.clear()
    storage.go_on = asyncio.Event()
    forking = asyncio.create_task(fork_session(sessions, store, source.session_id))
    with anyio.fail_after(30):
        await storage.created.wait()
        forking.cancel()
        storage.go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await forking
    [fork_id] = {entry.session_id for entry in await storage.entries()} - {source.session_id}
    assert await store.read(fork_id, kept.attachment_id) == b"kept"


@pytest.mark.parametrize(
    ("rules", "copied"),
    [
        ([{"tool": "a", "action": "allow"}], None),
        (
            [
                {"tool": "a", "action": "allow", "session_id": "source"},
                {"tool": "b", "action": "deny", "session_id": "source"},
                {"tool": "c", "action": "ask"},
            ],
            [
                {"tool": "b", "action": "deny", "session_id": "source"},
                {"tool": "c", "action": "ask"},
            ],
        ),
        ([{"tool": "a", "action": "Allow"}, 5], [{"tool": "a", "action": "Allow"}, 5]),
        ({"action": "allow"}, {"action": "allow"}),
        ({}, {}),
    ],
    ids=["allows", "some", "no rules", "no list", "no list, empty"],
)
async def test_a_fork_has_no_rules_that_allow_calls(tmp_path, rules, copied):
    """What cannot be understood stays: with it every call is asked about."""
    sessions = SessionManager(MemoryStorage())
    await sessions.create("m", session_id="source")
    async with sessions.edit("source") as source:
        source.metadata.set_optional("policies", rules)
    fork = await fork_session(sessions, AttachmentStore(tmp_path), "source")
    assert fork.metadata.optional("policies") == copied
    assert (await sessions.get("source")).metadata.optional("policies") == rules


async def test_a_fork_leaves_another_session_that_has_its_first_id_alone(tmp_path, monkeypatch):
    """Ids are the same after each start in test mode."""
    sessions, store = SessionManager(MemoryStorage()), AttachmentStore(tmp_path)
    source = await sessions.create("m", session_id="source")
    kept = await with_attachment(sessions, store, source.session_id)
    monkeypatch.setattr(ids, "_numbers", random.Random(0))
    taken = (await sessions.create("m")).session_id
    other = await store.put(taken, b"other", "text/plain")
    monkeypatch.setattr(ids, "_numbers", random.Random(0))
    fork = await fork_session(sessions, store, source.session_id)
    assert fork.session_id != taken
    assert await store.read(fork.session_id, kept.attachment_id) == b"kept"
    assert await store.read(taken, other.attachment_id) == b"other"


async def test_a_fork_whose_attachments_cannot_be_written_is_not_there(tmp_path, monkeypatch):
    storage, store = MemoryStorage(), AttachmentStore(tmp_path)
    sessions = SessionManager(storage)
    sessions.on_deleted.append(store.remove)
    source = await sessions.create("m", session_id="source")
    await with_attachment(sessions, store, source.session_id)
    monkeypatch.setattr(ids, "_numbers", random.Random(0))
    (tmp_path / ids.new_session_id()).touch()  # where its folder would be
    monkeypatch.setattr(ids, "_numbers", random.Random(0))
    with pytest.raises(StorageError):
        await fork_session(sessions, store, source.session_id)
    assert [entry.session_id for entry in await storage.entries()] == [source.session_id]
