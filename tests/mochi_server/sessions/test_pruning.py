"""Removing sessions that nobody needs any more."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone

import pytest

from mochi_server.protocol.messages import UserMessage
from mochi_server.sessions import SessionManager
from mochi_server.sessions.catalogue.refresh import PREFIX_BYTES
from mochi_server.sessions.codec import Document, assemble, encode
from mochi_server.sessions.pruning import PruneRule, find_prunable, prune

NOW = datetime.now(timezone.utc)
MONTH = PruneRule(before=NOW - timedelta(days=30))
EMPTY = PruneRule(empty=True)


@pytest.fixture
def sessions(tmp_path):
    return SessionManager(sessions_dir=tmp_path, sweep_seconds=0)


def put_back(sessions, session_id, time):
    path = sessions.storage.folder / f"{session_id}.json"
    content = json.loads(path.read_bytes())
    content["metadata"]["updated_at"] = time
    path.write_text(json.dumps(content))


async def make(sessions, session_id, *, days=0, said=True, prompt=None, **labels):
    await sessions.create("m", session_id=session_id, system_prompt=prompt, labels=labels)
    if said:
        async with sessions.edit(session_id) as session:
            session.append(UserMessage(content="Hi"))
    put_back(sessions, session_id, (NOW - timedelta(days=days)).isoformat())


async def found(sessions, rule):
    return {line["session_id"] for line in await find_prunable(sessions, rule)}


async def test_old_ones_are_found_and_pinned_ones_are_not(sessions):
    await make(sessions, "new", days=29)
    await make(sessions, "old", days=31)
    await make(sessions, "pinned", days=31, pinned=True)
    assert await found(sessions, MONTH) == {"old"}


@pytest.mark.parametrize("time", ["", "yesterday", None])
async def test_a_session_without_a_time_is_not_old(sessions, time):
    await make(sessions, "odd")
    path = sessions.storage.folder / "odd.json"
    content = json.loads(path.read_bytes())
    content["metadata"] |= {"updated_at": time, "created_at": time}
    path.write_text(json.dumps(content))
    assert await found(sessions, MONTH) == set()
    assert await found(sessions, PruneRule(before=NOW, empty=True)) == set()


async def test_empty_means_that_nobody_said_anything(sessions):
    await make(sessions, "nothing", said=False)
    await make(sessions, "prompt", said=False, prompt="Be kind.")
    await make(sessions, "said")
    await make(sessions, "both", prompt="Be kind.")
    await make(sessions, "pinned", said=False, pinned=True)
    await make(sessions, "blank", said=False)
    async with sessions.edit("blank") as session:
        session.append(UserMessage(content=""))
    assert await found(sessions, EMPTY) == {"nothing", "prompt"}


async def test_what_is_pruned_is_gone_and_the_rest_is_there(sessions):
    await make(sessions, "old", days=31)
    await make(sessions, "new")
    told = []
    done = await prune(sessions, MONTH, ["old"], lambda *numbers: told.append(numbers))
    assert (done.deleted, done.kept, told) == (["old"], {}, [(1, 1)])
    assert [path.name for path in sessions.storage.folder.glob("*.json")] == ["new.json"]
    assert [line["session_id"] for line in (await sessions.list()).entries] == ["new"]


async def test_what_happened_since_the_look_counts(sessions, tmp_path):
    for name in ("used", "pinned", "gone", "torn"):
        await make(sessions, name, days=31)
    ids = sorted(await found(sessions, MONTH))
    other = SessionManager(sessions_dir=tmp_path)
    async with other.edit("used") as session:
        session.append(UserMessage(content="Still here"))
    async with other.edit("pinned") as session:
        session.metadata.label(pinned=True)
    put_back(other, "pinned", "2020-01-01T00:00:00Z")
    await other.delete("gone")
    (tmp_path / "torn.json").write_text("{")
    done = await prune(sessions, MONTH, ids)
    assert done.deleted == []
    assert sorted(done.kept) == ids
    assert {path.stem for path in tmp_path.glob("*.json")} == {"used", "pinned", "torn"}


async def test_a_wrong_count_of_messages_makes_no_session_empty(sessions):
    await sessions.create("m", session_id="said")
    path = sessions.storage.folder / "said.json"
    head = {**json.loads(path.read_bytes())["metadata"], "message_count": 0}
    said = encode({"role": "user", "content": "Hi"})
    more = encode({"role": "assistant", "content": "x" * PREFIX_BYTES})  # behind what a list reads
    path.write_bytes(b"".join(assemble(Document(encode(head), [said, more]))))
    assert await found(sessions, EMPTY) == set()
