"""Sessions made, changed, listed and deleted."""

import asyncio
import json
import re
from collections.abc import Iterable
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from mochi_server.errors import (
    EmptyHistory,
    InvalidRequest,
    SessionBusy,
    SessionExists,
    SessionNotFound,
    StorageError,
)
from mochi_server.protocol.messages import AssistantMessage, UserMessage
from mochi_server.sessions import (
    AgentSettings,
    ChatSession,
    ConversationSummary,
    MemoryStorage,
    SessionManager,
    ToolSettings,
)


@pytest.fixture(params=["json files", "memory"])
def manager(request, tmp_path):
    if request.param == "memory":
        return SessionManager(MemoryStorage())
    return SessionManager(sessions_dir=tmp_path / "sessions")


def put(folder: Path, session_id: str, updated_at: object, **more: object) -> None:
    head = {"session_id": session_id, "model": "m", "created_at": "x", "updated_at": updated_at}
    folder.mkdir(exist_ok=True)
    data = {"metadata": {**head, **more}, "messages": []}
    (folder / f"{session_id}.json").write_text(json.dumps(data))


async def ids(manager: SessionManager) -> list[object]:
    listed = (await manager.list()).entries
    assert json.loads(await manager.list_json())["sessions"] == listed
    return [entry["session_id"] for entry in listed]


def test_a_manager_wants_one_place():
    with pytest.raises(ValueError, match="storage or sessions_dir"):
        SessionManager()
    with pytest.raises(ValueError, match="storage or sessions_dir"):
        SessionManager(MemoryStorage(), sessions_dir="x")


async def test_a_new_session_is_stored_with_what_was_given(manager):
    made = await manager.create(
        "qwen3:14b",
        system_prompt="Be kind.",
        source_file="kind.md",
        tool_settings=ToolSettings(tools=["add"]),
        agent_settings=AgentSettings(enabled_agents=["coder"]),
    )
    assert re.fullmatch(r"[0-9a-f]{10}", made.session_id)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", made.metadata.created_at)
    found = await manager.get(made.session_id)
    assert found.metadata == made.metadata
    assert found.stored_messages() == made.stored_messages()
    assert found.metadata.message_count == 1


async def test_an_id_of_the_callers_own_is_taken_once(manager):
    await manager.create("m", session_id="Mine_1")
    with pytest.raises(SessionExists):
        await manager.create("m", session_id="Mine_1")
    with pytest.raises(SessionNotFound):
        await manager.create("m", session_id="../mine")


async def test_an_edit_is_saved_with_a_new_time(manager):
    made = await manager.create("m")
    async with manager.edit(made.session_id) as session:
        session.append(UserMessage(content="Hi"))
        session.metadata.model = "other"
    found = await manager.get(made.session_id)
    assert found.metadata.model == "other"
    assert [message.content for message in found.messages] == ["Hi"]
    assert found.metadata.updated_at > made.metadata.updated_at
    assert found.metadata.created_at == made.metadata.created_at


async def test_an_edit_that_fails_or_changes_nothing_saves_nothing(manager):
    made = await manager.create("m")
    before = await manager.storage.read(made.session_id)

    async def fail() -> None:
        async with manager.edit(made.session_id) as session:
            session.append(UserMessage(content="lost"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    async with manager.edit(made.session_id) as session:
        session.metadata.model = "m"
    assert await manager.storage.read(made.session_id) == before
    assert len((await manager.get(made.session_id)).messages) == 0


async def test_a_session_in_hand_does_not_change_with_what_others_do(manager):
    made = await manager.create("m")
    mine = await manager.get(made.session_id)
    mine.append(UserMessage(content="only in memory"))
    mine.metadata.tool_settings = ToolSettings(tools=["x"])
    assert len((await manager.get(made.session_id)).messages) == 0
    assert (await manager.get(made.session_id)).metadata.tool_settings is None


class SlowStorage(MemoryStorage):
    """Waits in the middle of a write for who tests it."""

    writing: asyncio.Event
    go_on: asyncio.Event

    async def write(self, session_id, parts):
        self.writing.set()
        await self.go_on.wait()
        return await super().write(session_id, parts)

    async def create(self, session_id, parts):
        return await super().write(session_id, parts)


async def test_a_cancellation_during_the_save_takes_effect_after_it():
    storage = SlowStorage()
    storage.writing, storage.go_on = asyncio.Event(), asyncio.Event()
    manager = SessionManager(storage)
    await manager.create("m", session_id="one")

    async def edit() -> None:
        async with manager.edit("one") as session:
            session.append(UserMessage(content="kept"))

    task = asyncio.get_running_loop().create_task(edit())
    with anyio.fail_after(30):
        await storage.writing.wait()
        task.cancel()
        await anyio.sleep(0.01)
        task.cancel()
        assert not task.done()
        storage.go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert [message.content for message in (await manager.get("one")).messages] == ["kept"]
    with anyio.fail_after(30):
        async with manager.edit("one") as session:
            session.append(UserMessage(content="next"))


async def test_metadata_can_change_during_a_turn_and_messages_only_without_one(manager):
    made = await manager.create("m")
    async with manager.claim(made.session_id):
        async with manager.edit(made.session_id) as session:
            session.metadata.summary = ConversationSummary(summary="They met.")
        with pytest.raises(SessionBusy):
            async with manager.edit(made.session_id, exclusive=True):
                pytest.fail("edited during a turn")
        with pytest.raises(SessionBusy):
            await manager.delete(made.session_id)
    async with manager.edit(made.session_id, exclusive=True) as session:
        session.append(UserMessage(content="Hi"))
    found = await manager.get(made.session_id)
    assert found.metadata.summary == ConversationSummary(summary="They met.")
    assert len(found.messages) == 1


async def test_a_deleted_session_is_nowhere(manager):
    made = await manager.create("m")
    assert await ids(manager) == [made.session_id]
    await manager.delete(made.session_id)
    assert await ids(manager) == []
    for work in (manager.get, manager.delete):
        with pytest.raises(SessionNotFound):
            await work(made.session_id)
    for exclusive in (True, False):
        with pytest.raises(SessionNotFound):
            async with manager.edit(made.session_id, exclusive=exclusive):
                pytest.fail("edited what is not there")


async def test_what_belonged_to_a_deleted_session_goes_before_its_id_is_used_again(manager):
    reached, go_on = asyncio.Event(), asyncio.Event()
    removed: list[str] = []

    async def remove_slowly(_: str) -> None:
        reached.set()
        await go_on.wait()

    async def remove(session_id: str) -> None:
        removed.append(session_id)

    manager.on_deleted += [remove_slowly, remove]
    made = await manager.create("m")
    deletion = asyncio.create_task(manager.delete(made.session_id))
    with anyio.fail_after(30):
        await reached.wait()
        await manager.create("m", session_id=made.session_id)
        with pytest.raises(SessionBusy):
            async with manager.claim(made.session_id):
                pytest.fail("a turn could store attachments, which were removed")
        deletion.cancel()  # the client leaves
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await deletion
    assert removed == [made.session_id]
    async with manager.claim(made.session_id):
        pass


async def test_whether_a_session_is_there_is_told_without_reading_it(tmp_path):
    (tmp_path / "odd.json").write_text("no session")
    manager = SessionManager(sessions_dir=tmp_path)
    await manager.check_exists("odd")
    for session_id in ("none", "../odd", "odd/"):
        with pytest.raises(SessionNotFound):
            await manager.check_exists(session_id)


async def test_a_list_shows_the_documented_keys(manager):
    made = await manager.create("qwen3:14b", system_prompt="Be kind.")
    async with manager.edit(made.session_id) as session:
        session.append(UserMessage(content="Hi\u2028there"), AssistantMessage(content="Hello"))
        session.metadata.summary = ConversationSummary(summary="A", topics=["b"])
    entry = (await manager.list()).entries[0]
    assert entry == {
        "session_id": made.session_id,
        "model": "qwen3:14b",
        "created_at": made.metadata.created_at,
        "updated_at": session.metadata.updated_at,
        "message_count": 3,
        "summary": {"summary": "A", "topics": ["b"]},
        "preview": "Hi\u2028there",
        "title": "A",
        "tags": [],
        "pinned": False,
        "archived": False,
    }
    assert json.loads(await manager.list_json()) == {"sessions": [entry], "problems": []}


async def test_lists_are_sorted_by_instant_not_by_text(tmp_path):
    put(tmp_path, "first", "2026-03-01T12:00:00+05:00")
    put(tmp_path, "third", "2026-03-01T09:00:00.000000Z")
    put(tmp_path, "second", "2026-03-01T06:00:00-02:00")
    put(tmp_path, "written-now", "no time at all")
    put(tmp_path, "ancient", "1999-01-01T00:00:00")
    expected = ["written-now", "third", "second", "first", "ancient"]
    assert await ids(SessionManager(sessions_dir=tmp_path)) == expected


async def test_pages_follow_each_other_while_sessions_are_added(manager):
    for number in range(7):
        await manager.create("m", session_id=f"s{number}")
    page = await manager.list(limit=3)
    seen = [entry["session_id"] for entry in page.entries]
    while page.next_cursor:
        await manager.create("m")
        page = await manager.list(limit=3, cursor=page.next_cursor)
        seen += [entry["session_id"] for entry in page.entries]
    assert seen == [f"s{number}" for number in range(6, -1, -1)]
    encoded = json.loads(await manager.list_json(limit=1))
    assert list(encoded) == ["sessions", "problems", "next_cursor"]
    rest = json.loads(await manager.list_json(cursor=encoded["next_cursor"]))
    assert (len(rest["sessions"]), rest["next_cursor"]) == (8, None)


@pytest.mark.parametrize("cursor", ["", "x", "%%%", "é", "bm9wZQ", "=" * 9])
async def test_a_foreign_cursor_is_an_invalid_request(manager, cursor):
    with pytest.raises(InvalidRequest):
        await manager.list(cursor=cursor)


async def test_a_change_of_another_process_is_seen_at_once(tmp_path):
    mine, other = SessionManager(sessions_dir=tmp_path), SessionManager(sessions_dir=tmp_path)
    await mine.create("m", session_id="one")
    assert await ids(mine) == ["one"]
    await anyio.sleep(0.02)  # the clock of a file system ticks every few milliseconds
    await other.create("m", session_id="two")
    async with other.edit("one") as session:
        session.append(UserMessage(content="from elsewhere"))
    assert await ids(mine) == ["one", "two"]
    assert (await mine.get("one")).messages[0].content == "from elsewhere"
    async with mine.edit("one") as session:
        session.append(UserMessage(content="mine"))
    assert len((await other.get("one")).messages) == 2
    await other.delete("two")
    assert await ids(mine) == ["one"]


async def test_what_an_editor_changes_in_place_is_read_anew(tmp_path):
    manager = SessionManager(sessions_dir=tmp_path, sweep_seconds=0)
    await manager.create("m", session_id="one")
    await manager.list()
    path = tmp_path / "one.json"
    path.write_bytes(path.read_bytes().replace(b'"model": "m"', b'"model": "edited"'))
    assert (await manager.list()).entries[0]["model"] == "edited"
    assert (await manager.get("one")).metadata.model == "edited"
    path.write_bytes(b"{")
    listed = await manager.list()
    assert (listed.entries, [each["session_id"] for each in listed.problems]) == ([], ["one"])


async def test_a_long_first_message_and_a_long_head_are_listed(tmp_path):
    manager = SessionManager(sessions_dir=tmp_path)
    await manager.create("m", system_prompt="s" * 40_000, session_id="one")
    await manager.create("m", session_id="two")
    async with manager.edit("one") as session:
        session.append(UserMessage(content="behind the prompt"))
    async with manager.edit("two") as session:
        session.append(*(UserMessage(content="u" * 5000) for _ in range(5)))
    found = {
        each["session_id"]: each
        for each in (await SessionManager(sessions_dir=tmp_path).list()).entries
    }
    assert found["one"]["preview"] == "behind the prompt"
    assert found["two"]["preview"] == "u" * 97 + "..."
    assert found["two"]["message_count"] == 5


async def test_what_the_storage_cannot_read_is_a_problem_until_it_can():
    class Locked(MemoryStorage):
        locked = True

        async def read_heads(self, session_ids, size):
            if self.locked:
                return [StorageError("Permission denied") for _ in session_ids]
            return await super().read_heads(session_ids, size)

    storage = Locked()
    manager = SessionManager(storage, sweep_seconds=0)
    await manager.create("m", session_id="one")
    assert (await manager.list()).problems == [{"session_id": "one", "reason": "Permission denied"}]
    storage.locked = False
    assert await ids(manager) == ["one"]


async def test_lists_during_many_saves_are_whole_and_end_right(tmp_path):
    manager = SessionManager(sessions_dir=tmp_path, sweep_seconds=0)
    names = [f"s{number}" for number in range(8)]
    for name in names:
        await manager.create("m", session_id=name)

    async def save(name: str) -> None:
        for number in range(10):
            async with manager.edit(name) as session:
                session.append(UserMessage(content=str(number)))

    async def look() -> None:
        for _ in range(15):
            listed = await manager.list()
            assert sorted(str(entry["session_id"]) for entry in listed.entries) == names
            assert listed.problems == []

    with anyio.fail_after(30):
        await asyncio.gather(*map(save, names), look(), look())
    assert [entry["message_count"] for entry in (await manager.list()).entries] == [10] * 8


async def test_a_small_cache_only_costs_reading(tmp_path):
    manager = SessionManager(sessions_dir=tmp_path, cache_bytes=900)
    for name in ("a", "b", "c"):
        await manager.create("m", session_id=name)
        async with manager.edit(name) as session:
            session.append(UserMessage(content=name * 300))
    assert [(await manager.get(name)).messages[0].text[:1] for name in "abc"] == ["a", "b", "c"]


def test_a_manager_serves_one_event_loop_after_another(tmp_path):
    manager = SessionManager(sessions_dir=tmp_path)

    async def use() -> int:
        made = await manager.create("m")
        async with manager.claim(made.session_id), manager.edit(made.session_id) as session:
            session.append(UserMessage(content="x"))
        await asyncio.gather(*(manager.list() for _ in range(5)))
        await manager.aclose()
        return len((await manager.list()).entries)

    assert [asyncio.run(use()) for _ in range(3)] == [1, 2, 3]


async def test_sessions_that_vanish_or_break_during_a_sweep_are_no_error():
    class Shifty(MemoryStorage):
        async def read(self, session_id: str):
            if session_id == "gone":
                raise SessionNotFound(session_id=session_id)
            raise StorageError("Input/output error")

        async def read_heads(self, session_ids, size):
            heads = await super().read_heads(session_ids, size)
            return [
                SessionNotFound(session_id=each) if each == "vanished" else head
                for each, head in zip(session_ids, heads, strict=True)
            ]

    storage = Shifty()
    manager = SessionManager(storage)
    for name in ("gone", "broken"):
        await manager.create("m", system_prompt="s" * 20_000, session_id=name)
    await manager.create("m", session_id="vanished")
    await manager.create("m", session_id="good")
    listed = await manager.list()
    assert [entry["session_id"] for entry in listed.entries] == ["good"]
    assert listed.problems == [{"session_id": "broken", "reason": "Input/output error"}]


async def test_a_storage_without_generations_is_looked_through_for_each_list():
    class Plain(MemoryStorage):
        async def generation(self) -> None:
            return None

    storage = Plain()
    manager, other = SessionManager(storage), SessionManager(storage)
    await manager.list()
    await other.create("m", session_id="one")
    assert await ids(manager) == ["one"]
    async with manager.edit("one") as session:
        session.append(UserMessage(content="x"))
    assert (await manager.list()).entries[0]["message_count"] == 1


async def test_long_files_of_any_layout_are_listed_and_read(tmp_path):
    put(tmp_path, "pretty", "2026-01-01T00:00:00Z")
    path = tmp_path / "pretty.json"
    content = json.loads(path.read_bytes())
    content["messages"] = [
        {"role": "user" if number == 700 else "assistant", "content": str(number)}
        for number in range(1200)
    ]
    path.write_text(json.dumps(content, indent=2))
    manager = SessionManager(sessions_dir=tmp_path)
    entry = (await manager.list()).entries[0]
    assert (entry["preview"], entry["message_count"]) == ("700", 1200)
    async with manager.edit("pretty") as session:
        session.append(UserMessage(content="x"))
    again = SessionManager(sessions_dir=tmp_path)
    assert (await again.list()).entries[0]["preview"] == "700"
    assert (await again.get("pretty")).stored_messages()[:-1] == content["messages"]
    assert len(json.loads(await again.list_json(limit=1))["sessions"]) == 1


async def test_a_session_is_created_complete_in_one_write():
    class Counting(MemoryStorage):
        writes = 0

        async def write(self, session_id: str, parts: Iterable[bytes]) -> tuple[int, ...]:
            self.writes += 1
            return await super().write(session_id, parts)

    def prepare(session: ChatSession) -> None:
        session.metadata.model_extra["agent_name"] = "writer"
        session.append(UserMessage(content="Begin"))

    storage = Counting()
    manager = SessionManager(storage)
    made = await manager.create("m", system_prompt="You write.", prepare=prepare)
    assert (storage.writes, made.changed) == (1, False)
    stored = await manager.get(made.session_id)
    assert [message.text for message in stored.messages] == ["You write.", "Begin"]
    assert (stored.metadata.message_count, stored.metadata.model_extra) == (
        2,
        {"agent_name": "writer"},
    )
    assert (await manager.list()).entries[0]["preview"] == "Begin"


async def test_an_update_that_fails_on_an_old_copy_is_judged_by_the_new_one(tmp_path):
    mine, yours = SessionManager(sessions_dir=tmp_path), SessionManager(sessions_dir=tmp_path)
    await mine.create("m", session_id="one")
    async with yours.edit("one") as session:
        session.append(UserMessage(content="Asked elsewhere"), AssistantMessage(content="Yes"))
    saved = await mine.update("one", lambda session: session.truncate_after_last_user())
    assert [message.content for message in saved.messages] == ["Asked elsewhere"]
    await mine.create("m", session_id="two")
    with pytest.raises(EmptyHistory):
        await mine.update("two", lambda session: session.truncate_after_last_user())
