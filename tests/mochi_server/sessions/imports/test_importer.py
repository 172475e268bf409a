"""Imports of files: each conversation once, however often, in little memory."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterable, Iterator
from io import BytesIO
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mochi_server.core.aio import in_thread
from mochi_server.protocol.attachments import id_of
from mochi_server.sessions import SessionManager
from mochi_server.sessions.attachments import AttachmentStore
from mochi_server.sessions.fork import fork_session
from mochi_server.sessions.imports.conversation import (
    MAX_MESSAGES,
    Node,
    SourceConversation,
    SourceMessage,
)
from mochi_server.sessions.imports.json_values import JSONValues
from mochi_server.sessions.storage.memory import MemoryStorage
from tests.support.imports import Imports


def chat(*texts, key="c1", tree=None, shown=""):
    """A conversation of ChatGPT; ``tree`` has the parent of each text, by default the one before.

    Texts that begin with a question mark are the user's.
    """
    mapping = {}
    for number, text in enumerate(texts):
        parent = number - 1 if tree is None else tree[number]
        role = "user" if text.startswith("?") else "assistant"
        message = {"author": {"role": role}, "content": {"content_type": "text", "parts": [text]}}
        mapping[str(number)] = {"parent": str(parent), "message": message}
    return {"mapping": mapping, "conversation_id": key, "current_node": shown}


async def texts(imports, report):
    sessions = [await imports.messages(each.session_id) for each in report.sessions]
    return [[message["content"] for message in messages] for messages in sessions]


def outcomes(report):
    return [each.outcome for each in report.sessions]


async def test_importing_twice_makes_nothing_twice(imports):
    export = [chat("?a", "b", "c", tree=[-1, 0, 0]), chat("?d", key="c2"), chat("?e", key="")]
    assert outcomes(await imports.run(export)) == ["created"] * 4
    before = imports.files
    assert outcomes(await imports.run(export)) == ["unchanged"] * 4
    assert imports.files == before


async def test_two_imports_at_once_make_each_session_once(imports):
    branches = [f"b{number}" for number in range(12)]
    export = [chat("?a", *branches, key=str(key), tree=[-1, *[0] * 12]) for key in range(3)]
    path = imports.folder / "export.json"
    path.write_text(json.dumps(export))
    other = Imports(imports.folder)
    reports = await asyncio.gather(*(each.run(path) for each in (imports, other)))
    await other.sessions.aclose()
    assert [report.problems for report in reports] == [[], []]
    assert len(imports.files) == 36
    said = {tuple(text) for report in reports for text in await texts(imports, report)}
    assert len(said) == 12


async def test_a_conversation_that_has_grown_is_continued(imports):
    first = await imports.run([chat("?a", "b")])
    grown = await imports.run([chat("?a", "b", "?c", "d")])
    assert outcomes(grown) == ["continued"]
    assert grown.sessions[0].session_id == first.sessions[0].session_id
    assert await texts(imports, grown) == [["?a", "b", "?c", "d"]]
    assert outcomes(await imports.run([chat("?a", "b", "?c", "d")])) == ["unchanged"]


async def test_a_branch_that_is_shown_later_is_the_one_that_grows(imports):
    tree = [-1, 0, 0]
    before = await imports.run([chat("?a", "b", "c", tree=tree, shown="1")])
    assert await texts(imports, before) == [["?a", "b"], ["?a", "c"]]
    after = await imports.run([chat("?a", "b", "c", "?d", tree=[*tree, 2], shown="3")])
    assert outcomes(after) == ["continued", "unchanged"]
    assert await texts(imports, after) == [["?a", "c", "?d"], ["?a", "b"]]
    assert len(imports.files) == 2


async def test_a_session_that_was_changed_here_stays_and_the_grown_one_is_beside_it(imports):
    [mine] = (await imports.run([chat("?a", "b")])).sessions
    async with imports.sessions.edit(mine.session_id) as session:
        session.edit_user_message(0, "?mine")
    assert outcomes(await imports.run([chat("?a", "b")])) == ["unchanged"]
    grown = await imports.run([chat("?a", "b", "?c")])
    assert outcomes(grown) == ["created"]
    assert await texts(imports, grown) == [["?a", "b", "?c"]]
    assert [message["content"] for message in await imports.messages(mine.session_id)] == ["?mine"]
    assert outcomes(await imports.run([chat("?a", "b", "?c")])) == ["unchanged"]
    assert len(imports.files) == 2


async def test_a_session_that_was_continued_here_is_not_touched(imports):
    [mine] = (await imports.run([chat("?a", "b")])).sessions
    async with imports.sessions.edit(mine.session_id) as session:
        session.append(*session.messages[:1])
    before = imports.files
    assert outcomes(await imports.run([chat("?a", "b")])) == ["unchanged"]
    assert imports.files == before


async def test_a_deleted_session_comes_back_alone(imports):
    export = [chat("?a", "b", "c", tree=[-1, 0, 0])]
    shown, _ = (await imports.run(export)).sessions
    await imports.sessions.delete(shown.session_id)
    assert outcomes(await imports.run(export)) == ["created", "unchanged"]


async def test_a_session_that_has_the_id_by_chance_is_left_alone(imports):
    [first] = (await imports.run([chat("?a")])).sessions
    await imports.sessions.delete(first.session_id)
    await imports.sessions.create("m", session_id=first.session_id)
    before = imports.files
    [second] = (await imports.run([chat("?a")])).sessions
    assert second.session_id != first.session_id
    assert imports.files.items() > before.items()


async def test_a_fork_of_an_imported_session_is_not_taken_for_it(imports):
    [first] = (await imports.run([chat("?a")])).sessions
    fork = await fork_session(imports.sessions, imports.attachments, first.session_id)
    assert "imported_from" not in await imports.metadata(fork.session_id)


async def test_a_session_that_is_in_use_is_not_continued(imports):
    [first] = (await imports.run([chat("?a")])).sessions
    async with imports.sessions.claim(first.session_id):
        report = await imports.run([chat("?a", "b"), chat("?other", key="c2")])
    assert outcomes(report) == ["created"]
    assert "is being used" in report.problems[0].message
    assert outcomes(await imports.run([chat("?a", "b")])) == ["continued"]


async def test_no_more_than_a_hundred_branches_become_forks(imports):
    many = chat("?a", *(f"b{number}" for number in range(150)), tree=[-1, *[0] * 150])
    report = await imports.run([many])
    assert len(report.sessions) == 101
    assert report.left_out == {"branch beyond the first hundred": 49}


async def test_what_comes_before_the_damage_stays(imports):
    content = json.dumps([chat("?a"), chat("?b", key="c2")]).encode()
    report = await imports.run(content[:-20])
    assert outcomes(report) == ["created"]
    assert report.problems[0].message.startswith("ChatGPT: /1: not valid JSON (the list")
    assert outcomes(await imports.run(content)) == ["unchanged", "created"]


async def test_a_conversation_beyond_the_limit_is_refused_and_a_long_list_of_them_is_not(imports):
    small = [chat("?" + "a" * 50_000, key=str(number)) for number in range(12)]
    assert len((await imports.run(small, limit=200_000)).sessions) == 12
    large = chat("?" + "a" * 500_000, key="large")
    words = "it is larger than 0.2 MB; MOCHI_MAX_BODY_MB allows more"
    for content in ([chat("?first"), large], large):
        report = await imports.run(content, limit=200_000)
        assert words in report.problems[-1].message
    lines = b"\n".join(json.dumps(each).encode() for each in [*small, large])
    report = await imports.run(lines, limit=200_000)
    assert (len(report.sessions), report.problems[-1].reason) == (12, words)


def archive(members, **options):
    file = BytesIO()
    with ZipFile(file, "w", ZIP_DEFLATED, **options) as writer:
        for name, content in members.items():
            writer.writestr(name, content)
    return file.getvalue()


async def test_all_conversations_of_an_archive_are_read(imports):
    members = {
        "export/conversations-000.json": json.dumps([chat("?a")]),
        "export/conversations-001.json": json.dumps([chat("?b", key="c2"), {"mapping": 5}]),
        "export/users.json": "[]",
    }
    report = await imports.run(archive(members))
    assert len(report.sessions) == 2
    assert report.left_out == {"other file of the archive": 1}
    assert [problem.message for problem in report.problems] == [
        (
            "chatgpt: export/conversations-001.json#/1: no message of it can be taken "
            "(1 \u00d7 mapping in an unknown form)"
        )
    ]


async def test_an_archive_of_other_files_with_conversations_is_read_too(imports):
    report = await imports.run(archive({"a.json": json.dumps(chat("?a")), "b.txt": "B"}))
    assert len(report.sessions) == 1


def too_many_files(content):
    """The archive with a directory that claims to be large."""
    at = content.rindex(b"PK\x05\x06") + 12
    return content[:at] + b"\xff\xff\xff\x7f" + content[at + 4 :]


def damaged(content):
    at = content.index(b"conversations.json") + 30
    return content[:at] + b"\0\0\0" + content[at + 3 :]


ARCHIVE = archive({"conversations.json": json.dumps([chat("?" + "ab" * 900)])})


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (archive({"conversations.json": b" " * 5_000_000 + b"[]"}), "to less than 1/200 of its"),
        (archive({"cat.png": b"x"}), "the archive has no conversations.json"),
        (ARCHIVE[:-30], "not a readable zip archive"),
        (too_many_files(ARCHIVE), "the archive has too many files"),
        (damaged(ARCHIVE), "conversations.json: it cannot be read from the archive"),
        (b"", "it is empty"),
        (b"\0\0\0", "it is neither JSON, nor a zip archive, nor a database"),
        (b"[]", "it is of no known format (sessions of mochi-server, ChatGPT, Claude, Open WebUI"),
        (b'[5, {"title": "x"}]', "it is of no known format"),
        (b"[1, 2", "/1: not valid JSON (the list has no end)"),
        (b'{"metadata": {"model"', "line 1: not valid JSON"),
        (b'\n{\n"messages": [\n  oops]}', "line 4: not valid JSON (unexpected character"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[" + b'{"a":' * 900 + b"1" + b"}" * 900 + b"]", "nested too deeply"),
        (b'[{"mapping": ' + b"9" * 5000 + b"}]", "line 1: not valid JSON"),
        (b'{"mapping": ' + b"9" * 500 + b"}", "line 1: not valid JSON"),
        (b'[\n{"a": 1},\n{"b": "x}]', "/1: not valid JSON (the list has no end)"),
        (b'[\n{"a": 1},\n\n{"b": x}]', "line 4: not valid JSON (unexpected character"),
        (b"[{}, ]", "line 1: not valid JSON"),
        (b"[,{}]", "line 1: not valid JSON"),
        (b"[{}] {}", "/1: not valid JSON (there is more behind the list)"),
        (b"[{]", "/0: not valid JSON (the list has no end)"),
        (b"\xff\xfe[\x00", "it is neither JSON"),
        (b"\xef\xbb{}", "it is neither JSON"),
    ],
)
async def test_what_cannot_be_read_is_refused_with_the_reason(imports, content, words):
    report = await imports.run(content)
    assert [words in problem.message for problem in report.problems] == [True], report.problems
    assert not imports.files


async def test_halves_of_surrogate_pairs_are_replaced(imports):
    for content in (b'[{"messages": [{"role": "user", "content": "a\\ud83d!"}]}]',
                    b'{"messages": [{"role": "user", "content": "b\\ud83d!"}]}'):  # fmt: skip
        [session] = (await imports.run(content)).sessions
        [message] = await imports.messages(session.session_id)
        assert message["content"][0] in "ab"
        assert message["content"].endswith("!")


async def test_an_import_that_is_cancelled_ends_after_what_it_is_reading(imports):
    is_reading, may_go_on = threading.Event(), threading.Event()

    def wait(done, total):
        is_reading.set()
        may_go_on.wait(30)

    task = asyncio.create_task(imports.run([chat("?a")], advance=wait))
    await in_thread(is_reading.wait, 30)
    task.cancel()
    await asyncio.sleep(0)
    may_go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not imports.files


async def test_progress_comes_to_its_end(imports):
    steps = []
    content = json.dumps([chat("?" + "a" * 9000, key=str(number)) for number in range(50)])
    await imports.run(content.encode(), advance=lambda *step: steps.append(step))
    assert len({done for done, _ in steps}) > 2
    assert steps[-1] == (len(content), len(content))
    await imports.run(archive({"conversations.json": content}), advance=lambda *s: steps.append(s))
    assert steps[-1] == (len(content), len(content))


async def test_a_session_file_and_one_in_an_archive_are_sessions(imports):
    file = json.dumps({"metadata": {"session_id": "one", "model": "m"}, "messages": []}, indent=2)
    report = await imports.run(file.encode())
    assert (report.program, outcomes(report)) == ("mochi", ["created"])
    assert outcomes(await imports.run(archive({"one.json": file}))) == ["unchanged"]
    other = file.replace('"m"', '"n"').encode()
    [problem] = (await imports.run(other)).problems
    assert "already" in problem.reason
    assert outcomes(await imports.run(other, new_id=True)) == ["created"]


async def test_a_session_file_whose_import_was_killed_gets_its_files_the_next_time(imports):
    content = b"# Notes"
    entry = {"attachment_id": id_of(content), "media_type": "text/markdown", "size": len(content)}
    asked = {"role": "user", "content": "Read it.", "attachments": [entry]}
    head = {"session_id": "one", "model": "m"}
    file = json.dumps({"metadata": head, "messages": [asked]}, indent=2)
    export = archive({"one.json": file, f"attachments/{entry['attachment_id']}": content})
    await imports.run(export)
    await imports.attachments.remove("one")  # it had not come to them
    assert outcomes(await imports.run(export)) == ["unchanged"]
    assert await imports.attachments.read("one", id_of(content)) == content


class Watching(MemoryStorage):
    """Sees what is there of a session's files when it is made."""

    def __init__(self, attachments: AttachmentStore) -> None:
        super().__init__()
        self.attachments = attachments
        self.sizes: list[int] = []

    async def create(self, session_id: str, parts: Iterable[bytes]) -> tuple[int, ...]:
        self.sizes += (await self.attachments.sizes(session_id)).values()
        return await super().create(session_id, parts)


async def test_a_conversation_is_never_there_without_its_files(imports):
    """It would not be imported again, after a kill in between."""
    imports.sessions = SessionManager(storage := Watching(imports.attachments))
    attachment = {"file_name": "notes.md", "file_type": "txt", "extracted_content": "# Notes"}
    asked = {"uuid": "m1", "sender": "human", "text": "Read it.", "attachments": [attachment]}
    asked |= {"content": [], "files": []}
    await imports.run([{"uuid": "11111111", "name": "Notes", "chat_messages": [asked]}])
    assert storage.sizes == [len("# Notes")]


# Branches


def tree(stem: int, leaves: int, *, is_empty: bool = False) -> dict[str, Node]:
    """Return a row of nodes, and leaves that all follow its last one."""

    def said() -> list[SourceMessage]:
        return [] if is_empty else [SourceMessage("user", "Hi")]

    nodes = {f"s{n}": Node(f"s{n - 1}" if n else None, said()) for n in range(stem)}
    return nodes | {f"l{n}": Node(f"s{stem - 1}", said()) for n in range(leaves)}


class Watched(dict[str, Node]):
    """Nodes that count how often one is looked up."""

    count = 0

    def __getitem__(self, key: str) -> Node:
        self.count += 1
        return super().__getitem__(key)


def branches(nodes: dict[str, Node]) -> tuple[SourceConversation, Iterator[int]]:
    conversation = SourceConversation(program="test", source_id="1", place="", nodes=nodes)
    return conversation, (len(branch) for branch in conversation.branches())


def test_nodes_without_messages_are_passed_once():
    nodes = Watched(tree(1_000, 1_000, is_empty=True))
    _, lengths = branches(nodes)
    assert [*lengths] == []
    assert nodes.count < 10 * len(nodes)


def test_circles_are_cut_and_all_messages_taken():
    links = {"a": "c", "b": "a", "c": "b", "d": "d", "e": "d"}
    nodes = {key: Node(above, [SourceMessage("user", key)]) for key, above in links.items()}
    conversation, _ = branches(nodes)
    taken = [[message.text for _, message in branch] for branch in conversation.branches()]
    assert taken == [["d", "e"], ["a", "b", "c"]]
    assert conversation.left_out == {"link of a message to one that follows it": 2}


def test_branches_that_repeat_very_many_messages_are_left_out():
    conversation, lengths = branches(tree(MAX_MESSAGES // 10, 15))
    assert len([*lengths]) == 9
    assert conversation.left_out == {"branch of a very long conversation": 6}


def test_the_branch_that_is_shown_has_any_length():
    _, lengths = branches(tree(MAX_MESSAGES, 1))
    assert [*lengths] == [MAX_MESSAGES + 1]


# JSON values, one after the other


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text('"\\{}[], \n\u00e9a', max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text('"\\]{,', max_size=3), inner)
    ),
    max_leaves=12,
)


class Dripping(BytesIO):
    """A stream that gives a few bytes at a time."""

    def __init__(self, content, size):
        super().__init__(content)
        self._size = size

    def read(self, size=-1):
        return super().read(self._size if size < 0 else min(size, self._size))


@given(
    values=st.lists(VALUES, max_size=6),
    size=st.integers(1, 9),
    indent=st.sampled_from([None, 2]),
    as_ascii=st.booleans(),
)
def test_the_elements_of_a_list_are_those_of_the_whole(values, size, indent, as_ascii):
    content = json.dumps(values, indent=indent, ensure_ascii=as_ascii).encode()
    for start in (b"", b"\xef\xbb\xbf", b" \n"):
        items = [*JSONValues(Dripping(start + content, size), 10_000, lambda done: None)]
        assert [item.value for item in items] == values
        assert [item.place for item in items] == [f"/{number}" for number in range(len(values))]
