"""Searching sessions of a real folder, with the index in a real file."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import stat
import sys

import anyio
import orjson
import pytest

from mochi_server.core.leases import FileLock
from mochi_server.errors import InvalidRequest, StorageError
from mochi_server.protocol.messages import AssistantMessage, SystemMessage, ToolMessage, UserMessage
from mochi_server.sessions import MemoryStorage, SessionFilter, SessionManager
from mochi_server.sessions.catalogue.answers import MOST, Indexing, find
from mochi_server.sessions.catalogue.database import CatalogueDatabase
from mochi_server.sessions.catalogue.listing import ALL
from mochi_server.sessions.catalogue.rows import Row, put_row
from mochi_server.sessions.catalogue.search import SessionSearch, put_text
from mochi_server.sessions.catalogue.search_query import parse
from mochi_server.sessions.catalogue.search_text import SearchDocument
from mochi_server.sessions.codec import encode
from mochi_server.sessions.types import ConversationSummary
from tests.support.turns import bench


class Shelf:
    """Sessions in a folder, and a search over them."""

    def __init__(self, folder):
        self.folder = folder / "sessions"
        self.path = folder / "state" / "search.sqlite3"
        self.sessions = SessionManager(
            sessions_dir=self.folder, catalogue_path=self.path, sweep_seconds=0
        )
        self.search = SessionSearch(self.sessions.catalogue)

    async def close(self):
        await self.search.aclose()
        await self.sessions.aclose()

    def file(self, session_id):
        return self.folder / f"{session_id}.json"

    async def add(self, session_id, *messages, summary=None, **labels):
        await self.sessions.create("qwen3:14b", session_id=session_id, labels=labels)
        async with self.sessions.edit(session_id) as session:
            session.append(*(UserMessage(content=m) if isinstance(m, str) else m for m in messages))
            session.metadata.summary = summary

    async def found(self, text, **options):
        """Ids, the best first."""
        return [each["session_id"] for each in (await self.search.search(text, **options)).sessions]


@pytest.fixture
async def shelf(tmp_path):
    shelf = Shelf(tmp_path)
    yield shelf
    await shelf.close()


async def test_every_text_of_a_session_is_searched_but_its_instructions(shelf):
    summary = ConversationSummary(summary="About gardens.", topics=["roses"])
    await shelf.add(
        "one",
        SystemMessage(content="instructions"),
        "question",
        AssistantMessage(content="answer", thinking="thought"),
        ToolMessage(content="printed"),
        summary=summary,
        title="My title",
        tags=["green"],
    )
    for word in ("question", "answer", "printed", "gardens", "roses", "title", "green"):
        assert await shelf.found(word) == ["one"], word
    assert await shelf.found("instructions") == await shelf.found("thought") == []


async def test_an_entry_is_that_of_the_list_with_score_place_and_snippet(shelf):
    await shelf.add("one", "How do I use asyncio?")
    (entry,) = (await shelf.search.search("asyncio")).sessions
    (line,) = (await shelf.sessions.list()).entries
    assert entry.items() >= line.items()
    assert entry["found_in"] == "user"
    assert {"text": "asyncio", "match": True} in entry["snippet"]


async def test_titles_count_most_and_tool_results_least(shelf):
    filler = "many other words stand here " * 3
    await shelf.add("tool", ToolMessage(content=f"asyncio {filler}"))
    await shelf.add("said", f"asyncio {filler}")
    await shelf.add("title", filler, title="asyncio")
    for number in range(5):
        await shelf.add(f"none{number}", filler)
    found = await shelf.search.search("asyncio")
    assert [each["session_id"] for each in found.sessions] == ["title", "said", "tool"]
    scores = [each["score"] for each in found.sessions]
    assert scores == sorted(scores, reverse=True)


async def test_a_file_that_is_changed_in_place_is_found_at_the_next_query(shelf):
    await shelf.add("one", "before")
    assert await shelf.found("before") == ["one"]
    for number in range(3):
        path = shelf.file("one")
        content = json.loads(path.read_bytes())
        content["messages"][0]["content"] = f"number{number}"
        path.write_text(json.dumps(content))
        assert await shelf.found(f"number{number}") == ["one"]
        assert await shelf.found("before") == []


async def test_own_changes_and_deletions_are_seen_at_the_next_query(shelf):
    await shelf.add("one", "before")
    assert await shelf.found("before") == ["one"]
    async with shelf.sessions.edit("one") as session:
        session.append(UserMessage(content="after"))
    assert await shelf.found("before after") == ["one"]
    await shelf.sessions.delete("one")
    assert await shelf.found("before") == []


async def test_a_deleted_session_leaves_no_text_in_the_table(shelf):
    await shelf.add("one", "secret")
    await shelf.found("secret")
    shelf.file("one").unlink()
    assert await shelf.found("-nothing") == []
    with sqlite3.connect(shelf.path) as other:
        rows = other.execute("SELECT * FROM texts").fetchall()
    other.close()
    assert rows == []


async def test_a_deleted_text_is_overwritten_at_the_next_search_while_the_server_runs(shelf):
    await shelf.add("one", "an own secret " * 20)
    await shelf.found("secret")
    await shelf.sessions.delete("one")
    assert await shelf.found("secret") == []
    content = b"".join(path.read_bytes() for path in shelf.path.parent.iterdir())
    assert b"an own secret" not in content


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
async def test_an_index_that_root_makes_belongs_to_the_owner_of_the_data(tmp_path):
    os.chown(tmp_path, 65534, 65534)
    shelf = Shelf(tmp_path)
    await shelf.add("one", "hello")
    assert await shelf.found("hello") == ["one"]
    await shelf.close()
    assert {(p.stat().st_uid, p.stat().st_gid) for p in tmp_path.rglob("*")} == {(65534, 65534)}


async def test_unreadable_files_are_problems_and_hide_no_other(shelf):
    await shelf.add("good", "needle")
    shelf.file("torn").write_text('{"metadata": {')
    shelf.file("links").symlink_to(shelf.file("good"))
    found = await shelf.search.search("needle")
    assert [each["session_id"] for each in found.sessions] == ["good"]
    assert {each["session_id"] for each in found.problems} == {"torn", "links"}
    shelf.file("torn").write_bytes(shelf.file("good").read_bytes())
    assert len((await shelf.search.search("needle")).sessions) == 2


async def test_a_file_that_is_torn_behind_its_first_message_is_skipped(shelf):
    await shelf.add("long", "needle", "x" * 40_000)
    await shelf.add("good", "needle")
    shelf.file("long").write_bytes(shelf.file("long").read_bytes()[:30_000])
    assert await shelf.found("needle") == ["good"]


def spoil_nothing(path):
    """As it is."""


def delete(path):
    path.unlink()


def garbage(path):
    path.write_bytes(b"no database" * 1000)


def truncate(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def holes(path):
    content = bytearray(path.read_bytes())
    content[8192:] = bytes(len(content) - 8192)
    path.write_bytes(content)


def another_version(path):
    other = sqlite3.connect(path)
    other.execute("PRAGMA user_version = 99")
    other.close()


def foreign(path):
    path.unlink()
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE sessions (a)")
    other.close()


@pytest.mark.parametrize(
    "spoil", [spoil_nothing, delete, garbage, truncate, holes, another_version, foreign]
)
async def test_an_index_that_is_lost_broken_or_of_another_version_is_made_anew(tmp_path, spoil):
    shelf = Shelf(tmp_path)
    for number in range(20):
        await shelf.add(f"s{number}", f"needle number{number}")
    assert len(await shelf.found("needle")) == 20
    await shelf.close()
    spoil(shelf.path)
    again = Shelf(tmp_path)
    assert len(await again.found("needle")) == 20
    assert await again.found("number7") == ["s7"]
    await again.close()


@pytest.mark.parametrize("spoil", [delete, foreign])
async def test_an_index_that_is_deleted_or_replaced_under_a_running_server_is_made_anew(
    shelf, spoil
):
    await shelf.add("one", "needle")
    assert await shelf.found("needle") == ["one"]
    spoil(shelf.path)
    assert await shelf.found("needle") == ["one"]
    assert shelf.path.exists()


async def test_an_index_that_breaks_while_it_is_open_is_made_anew(shelf):
    for number in range(50):
        await shelf.add(f"s{number}", f"needle {'words ' * 300}")
    assert len(await shelf.found("needle", limit=100)) == 50
    other = sqlite3.connect(shelf.path)
    other.execute("DROP TABLE texts_data")
    other.commit()
    other.close()
    assert len(await shelf.found("needle", limit=100)) == 50


async def test_only_the_owner_may_read_the_index(shelf):
    old = os.umask(0)
    try:
        await shelf.add("one", "needle")
        await shelf.found("needle")
        modes = {
            each.name: stat.S_IMODE(each.stat().st_mode) for each in shelf.path.parent.iterdir()
        }
    finally:
        os.umask(old)
    assert "search.sqlite3" in modes
    assert set(modes.values()) == {0o600}


@pytest.mark.parametrize("cursor", ["", "x", "LTE3", "c2VhcmNoOg", "é", "\0"])
async def test_a_foreign_cursor_is_refused(shelf, cursor):
    with pytest.raises(InvalidRequest):
        await shelf.search.search("needle", cursor=cursor)


COUNT = 2_400


@pytest.fixture(scope="module")
def many():
    """An index of many sessions: all have some words, fewer than half have another."""
    database = CatalogueDatabase(None)
    database.prepare()
    with database.transaction("IMMEDIATE") as connection:
        for number in range(COUNT):
            name, labels = f"s{number:04}", {"archived": number % 3 == 0}
            labels["tags"] = ("green", "blue")[: number % 4]
            labels["owner"] = "anna" if number % 5 else None
            # The order of changes is not that of the numbers.
            changed_at = number * 7 % COUNT
            put_row(connection, Row(name, "1", changed_at, encode({"id": name}), **labels))
            text = f"{'hay ' * (number % 11)} hay needle {'often ' * (number % 20 < 9)}"
            title = "often" if name == OLDEST else ""
            put_text(connection, name, "1", SearchDocument(title=title, user=text))
    yield database
    database.close()


OLDEST = "s0000"


def all_pages(index, text, session_filter, limit=70):
    """All pages of a search: the numbers of the sessions."""
    numbers, has_more = [], True
    most = MOST if session_filter == ALL else -1
    with index.transaction() as connection:
        while has_more:
            hits, has_more = find(
                connection, parse(text), session_filter, most=most, start=len(numbers), limit=limit
            )
            numbers += [int(orjson.loads(hit.line)["id"][1:]) for hit in hits]
    return numbers


@pytest.mark.parametrize(
    "text", ["needle", "need", "hay needle", '"hay needle"', "-nothing", "needle -nothing"]
)
@pytest.mark.parametrize(
    ("session_filter", "is_listed"),
    [
        (ALL, lambda _: True),
        (SessionFilter(archived=True), lambda number: number % 3 == 0),
        (SessionFilter(owner="anna"), lambda number: number % 5),
        (SessionFilter(tags=("blue", "green")), lambda number: number % 4 >= 2),
        (
            SessionFilter(archived=False, tags=("green",), owner="anna"),
            lambda number: number % 3 and number % 4 and number % 5,
        ),
    ],
)
def test_where_all_sessions_match_the_one_changed_last_comes_first(
    many, text, session_filter, is_listed
):
    latest = sorted(filter(is_listed, range(COUNT)), key=lambda number: -(number * 7 % COUNT))
    expected = latest[:MOST] if session_filter == ALL else latest
    assert all_pages(many, text, session_filter) == expected


def test_a_frequent_word_of_fewer_than_half_of_all_sessions_is_ranked(many):
    matching = [number for number in range(COUNT) if number % 20 < 9]
    assert len(matching) > MOST
    found = all_pages(many, "often", SessionFilter(archived=True))
    assert sorted(found) == [number for number in matching if number % 3 == 0]
    assert found[0] == 0  # the oldest one, which has it in its title
    assert found == all_pages(many, "needle often", SessionFilter(archived=True))
    assert all_pages(many, "often", ALL)[0] == 0


async def test_sessions_in_memory_are_searched_without_a_file(tmp_path):
    sessions = SessionManager(MemoryStorage(), catalogue_path=tmp_path / "search.sqlite3")
    search = SessionSearch(sessions.catalogue)
    session = await sessions.create("qwen3:14b")
    async with sessions.edit(session.session_id) as edited:
        edited.append(UserMessage(content="needle"))
    assert len((await search.search("needle")).sessions) == 1
    await search.aclose()
    assert list(tmp_path.iterdir()) == []


async def test_an_empty_folder_has_nothing_to_find(shelf):
    found = await shelf.search.search("needle")
    assert (found.sessions, found.problems, found.indexing) == ([], [], None)


async def test_while_another_process_indexes_what_is_there_is_used(shelf):
    await shelf.add("one", "needle")
    assert await shelf.found("needle") == ["one"]
    await shelf.add("two", "needle")
    lock = FileLock(shelf.path.with_name("search.sqlite3.lock"))
    assert lock.acquire()
    found = await shelf.search.search("needle", wait_seconds=0.05)
    assert [each["session_id"] for each in found.sessions] == ["one"]
    assert found.indexing == Indexing(1, 2)
    assert await shelf.found("-nothing", wait_seconds=0.05) == ["one"]
    lock.release()
    found = await shelf.search.search("needle", wait_seconds=None)
    assert {each["session_id"] for each in found.sessions} == {"one", "two"}
    assert found.indexing is None


async def test_many_searches_at_once_agree(shelf):
    for number in range(30):
        await shelf.add(f"s{number}", "needle")
    with anyio.fail_after(30):
        found = await asyncio.gather(*(shelf.found("needle", limit=99) for _ in range(20)))
    assert {len(ids) for ids in found} == {30}


async def test_a_search_works_on_one_event_loop_after_another(tmp_path):
    shelf = Shelf(tmp_path)
    await shelf.add("one", "needle")

    def on_a_loop_of_its_own():
        return asyncio.run(shelf.found("needle"))

    assert await anyio.to_thread.run_sync(on_a_loop_of_its_own) == ["one"]
    assert await shelf.found("needle") == ["one"]
    await shelf.close()


async def test_an_update_tells_how_far_it_is(shelf):
    told = []

    class Ear:
        interactive = False

        def say(self, text):
            """Nothing is said."""

        def advance(self, done, total):
            told.append((done, total))

    for number in range(100):
        await shelf.add(f"s{number}", "needle " * 50)
    await shelf.search.search("", wait_seconds=None, progress=Ear())
    assert told[-1] == (100, 100)
    assert told == sorted(told)
    told.clear()
    await shelf.search.search("", wait_seconds=None, progress=Ear())
    assert told == []


async def test_an_index_that_cannot_be_made_is_an_error_with_a_reason(tmp_path):
    shelf = Shelf(tmp_path)
    (tmp_path / "state").write_text("a file where the folder should be")
    await shelf.add("one", "needle")
    with pytest.raises(StorageError, match=r"search index cannot be used: .*(exists|directory)"):
        await shelf.found("needle")
    await shelf.close()


SEARCHER = """
import asyncio, sys
from pathlib import Path
from mochi_server.sessions.catalogue.search import SessionSearch
from mochi_server.sessions import SessionManager

async def main(folder):
    path = folder / "state/s.db"
    sessions = SessionManager(sessions_dir=folder / "sessions", catalogue_path=path)
    search = SessionSearch(sessions.catalogue)
    found = await search.search("needle", limit=1000, wait_seconds=None)
    print(len(found.sessions))
    await search.aclose()
    await sessions.aclose()

asyncio.run(main(Path(sys.argv[1])))
"""


@pytest.mark.slow
async def test_processes_that_index_at_once_all_find_everything(tmp_path):
    shelf = Shelf(tmp_path)
    await shelf.add("pattern", "needle " + "hay " * 500)
    content = shelf.file("pattern").read_bytes()
    for number in range(300):
        shelf.file(f"s{number}").write_bytes(content)
    command = [sys.executable, "-c", SEARCHER, str(tmp_path)]
    with anyio.fail_after(100):
        processes = [await anyio.open_process(command) for _ in range(4)]
        said = []
        for process in processes:
            async with process:
                text = b"".join([part async for part in process.stdout])
                said.append((int(text), await process.wait()))
    assert said == [(301, 0)] * 4


async def test_servers_with_folders_of_sessions_of_their_own_have_an_index_each(tmp_path, ollama):
    async with (
        bench(tmp_path, ollama, sessions_dir="mine") as mine,
        bench(tmp_path, ollama, sessions_dir="yours") as yours,
    ):
        first, second = [
            await engine.session(labels={"title": "needle"}) for engine in (mine, yours)
        ]
        for engine in (mine, yours):
            await engine.runtime.search.search("", wait_seconds=None)
        for engine, session_id in ((mine, first), (yours, second)):
            found = await engine.runtime.search.search("needle", wait_seconds=0)
            assert [each["session_id"] for each in found.sessions] == [session_id]
            assert found.indexing is None
