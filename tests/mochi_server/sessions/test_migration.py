"""Session files of every version and writer, as docs/reference/session-file.md has them."""

import json
import os
import shutil
from pathlib import Path

import pytest

from mochi_server.errors import SessionUnreadable
from mochi_server.protocol.messages import UserMessage
from mochi_server.sessions import ChatSession, JSONFileStorage, SessionManager
from mochi_server.sessions.migration import MigrationOutcome, migrate_files
from tests.support.session_files import file_of, session_of

DATA = Path(__file__).parents[2] / "data" / "sessions"
FILES = sorted(DATA.rglob("*.json"))


def covers(new: object, old: object) -> bool:
    """Whether the new value holds everything of the old one."""
    if isinstance(old, dict) and isinstance(new, dict):
        return all(key in new and covers(new[key], value) for key, value in old.items())
    return new == old


def test_there_are_files_of_all_versions():
    assert len(FILES) == 20


@pytest.mark.parametrize("source", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
async def test_an_old_file_loads_lists_and_keeps_everything(source, tmp_path):
    path = Path(shutil.copy(source, tmp_path))
    before, old = path.read_bytes(), json.loads(path.read_bytes())
    manager = SessionManager(sessions_dir=tmp_path)

    session = await manager.get(path.stem)
    assert session.stored_messages() == old["messages"]
    assert [message.role for message in session.messages] == [m["role"] for m in old["messages"]]
    assert [message.content for message in session.messages] == [
        m["content"] for m in old["messages"]
    ]
    async with manager.edit(path.stem) as unchanged:
        assert not unchanged.changed
    listed = await manager.list()
    assert listed.problems == []
    assert listed.entries[0]["message_count"] == len(old["messages"])
    assert listed.entries[0]["updated_at"] == old["metadata"]["updated_at"]
    assert path.read_bytes() == before

    async with manager.edit(path.stem) as session:
        session.append(UserMessage(content="one more"))
    new = json.loads(path.read_bytes())
    assert new["messages"][:-1] == old["messages"]
    assert new["messages"][-1]["content"] == "one more"
    changing = {"updated_at", "message_count", "format_version", "summary"}
    kept = {key: value for key, value in old["metadata"].items() if key not in changing}
    assert covers(new["metadata"], kept)
    assert new["metadata"]["format_version"] == "1.3"
    assert new["metadata"]["message_count"] == len(old["messages"]) + 1
    if not isinstance(old["metadata"].get("summary"), str):
        assert new["metadata"]["summary"] == old["metadata"].get("summary")
    assert (await manager.get(path.stem)).stored_messages() == new["messages"]


def load(**metadata: object) -> ChatSession:
    base = {"session_id": "a", "model": "m", "created_at": "2026-01-01T00:00:00"}
    return session_of(json.dumps({"metadata": {**base, **metadata}}).encode(), "a")


def test_a_summary_that_is_a_text_becomes_a_summary_without_topics():
    summary = load(summary="They met.").metadata.summary
    assert summary.model_dump() == {"summary": "They met.", "topics": []}
    assert load(summary="").metadata.summary is None
    assert load(summary={"summary": None, "topics": None, "mood": "x"}).metadata.summary is not None


@pytest.mark.parametrize(
    ("necessary", "policy"), [(True, "always_confirm"), (False, "never_confirm")]
)
def test_the_legacy_confirmation_flag_becomes_a_policy(necessary, policy):
    session = load(format_version="1.1", tool_settings={"confirmation_necessary": necessary})
    settings = session.metadata.tool_settings
    assert settings.model_dump(mode="json") == {
        "tools": [],
        "tool_group": None,
        "execution_policy": policy,
    }


def test_a_policy_counts_more_than_the_legacy_flag():
    both = {"confirmation_necessary": False, "execution_policy": "always_confirm"}
    settings = load(tool_settings=both).metadata.tool_settings
    assert settings.execution_policy.value == "always_confirm"


def test_a_stray_context_window_and_unknown_keys_stay():
    session = load(context_window=8192, colour={"name": "red"})
    metadata = json.loads(file_of(session))["metadata"]
    assert metadata["context_window"] == 8192
    assert metadata["colour"] == {"name": "red"}
    assert list(metadata)[:3] == ["session_id", "model", "created_at"]


def test_nulls_and_wrong_counts_are_tolerated():
    session = load(
        message_count="many",
        tool_settings={"tools": None, "tool_group": None, "execution_policy": None},
        agent_settings={"enabled_agents": None},
        context_window_config={"adjustment_history": None, "current_window": None},
    )
    assert session.metadata.message_count == 0
    assert load(message_count=77).metadata.message_count == 0


def test_top_level_keys_of_others_stay():
    data = {"metadata": {"model": "m"}, "messages": [], "plugin": {"a": [1]}, "z": "ü"}
    session = session_of(json.dumps(data).encode(), "a")
    written = file_of(session)
    assert json.loads(written)["plugin"] == {"a": [1]}
    assert file_of(session_of(written, "a")) == written


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not valid JSON"),
        (b'{"metadata": {"model": "m"}, "messages": [', "not valid JSON"),
        (b'{"metadata": {}, "messages": ["\xff"]}', "not valid JSON"),
        (b'{"metadata": {}, "messages": ["\\ud83d"]}', "not valid JSON"),
        (b"[]", "not an object"),
        (b"null", "not an object"),
        (b'{"messages": []}', "not an object with 'metadata'"),
        (b'{"metadata": [], "messages": []}', "not an object with 'metadata'"),
        (b'{"metadata": {}, "messages": {}}', "'messages' is not a list"),
        (b'{"metadata": {"tool_settings": "all"}, "messages": []}', "metadata.tool_settings"),
        (b"[" * 5000, "not valid JSON"),
    ],
)
async def test_what_is_no_session_is_reported_never_touched_and_hides_no_other(
    content, reason, tmp_path
):
    manager = SessionManager(sessions_dir=tmp_path)
    await manager.create("m", session_id="good")
    path = tmp_path / "bad.json"
    path.write_bytes(content)

    listed = await manager.list()
    assert [entry["session_id"] for entry in listed.entries] == ["good"]
    assert [problem["session_id"] for problem in listed.problems] == ["bad"]
    assert reason in str(listed.problems[0]["reason"])
    with pytest.raises(SessionUnreadable, match="bad"):
        await manager.get("bad")
    with pytest.raises(SessionUnreadable):
        async with manager.edit("bad"):
            pytest.fail("an unreadable session was handed out")
    assert path.read_bytes() == content


def test_a_byte_order_mark_is_no_obstacle():
    session = session_of(b'\xef\xbb\xbf{"metadata": {"model": "m"}}', "a")
    assert session.metadata.model == "m"


@pytest.mark.parametrize("tamper", ["pretty", "tail", "duplicate", "blank"])
def test_our_layout_with_changes_of_a_text_editor_still_loads(tamper):
    session = load()
    session.append(UserMessage(content="a"), UserMessage(content="b"))
    data = file_of(session)
    if tamper == "pretty":
        data = data.replace(b'{"role":"user","content":"b"', b'{"role":"user",\n    "content":"b"')
    elif tamper == "tail":
        data = data.rstrip().removesuffix(b"}") + b',\n  "extra": 1\n}'
    elif tamper == "duplicate":
        data = data.rstrip().removesuffix(b"}") + b',\n  "messages": [{"role": "user"}]\n}'
    else:
        data = data.replace(b'  "messages": [\n', b'  "messages": [\n\n')
    assert session_of(data, "a").stored_messages() == json.loads(data)["messages"]


END = b'"}\n  ]\n}\n'


@pytest.mark.parametrize(
    "end",
    [b"", b'"}\n  ]\n', b'"}\n  ', b'"}\n  ] "x": 1}', b'"}\n  ]}}', b'"}\n  ]', b'"}\n  ],}'],
)
def test_our_layout_with_its_end_torn_off_or_wrong_is_unreadable(end):
    session = load()
    session.append(UserMessage(content="a"))
    data = file_of(session)
    assert data.endswith(END)
    with pytest.raises(SessionUnreadable):
        session_of(data.removesuffix(END) + end, "a")


# Brought into the present shape


def version_of(path):
    return json.loads(path.read_bytes())["metadata"].get("format_version", "1.0")


@pytest.fixture
def folder(tmp_path):
    """Every real file there is, with a session of today and a torn one."""
    for path in FILES:
        shutil.copy2(path, tmp_path / path.name)
    (tmp_path / "torn.json").write_text("{")
    return tmp_path


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


async def test_a_look_names_the_old_ones_and_changes_nothing(folder):
    before, told = contents(folder), []
    found = await migrate_files(JSONFileStorage(folder), advance=lambda *each: told.append(each))
    assert contents(folder) == before
    old = {path.stem: version_of(path) for path in FILES if version_of(path) < "1.3"}
    assert len(old) >= 10
    assert {"1.0", "1.1", "1.2"} == {*old.values()}
    outcomes = {each.session_id: (each.version, each.outcome) for each in found}
    assert outcomes.pop("torn") == (None, MigrationOutcome.FAILED)
    assert outcomes == {name: (version, MigrationOutcome.OLD) for name, version in old.items()}
    assert told[-1] == (len(before), len(before))


async def test_migrated_files_say_the_same_as_before(folder):
    manager = SessionManager(sessions_dir=folder)
    before = contents(folder)
    listed = await manager.list()
    messages = {path.stem: (await manager.get(path.stem)).messages for path in FILES}
    found = await migrate_files(JSONFileStorage(folder), write=True)
    migrated = [each for each in found if each.outcome is MigrationOutcome.MIGRATED]
    assert len(migrated) == len(found) - 1
    again = SessionManager(sessions_dir=folder)
    assert await again.list() == listed
    for path in FILES:
        assert (await again.get(path.stem)).messages == messages[path.stem]
    for each in migrated:
        name = f"{each.session_id}.json"
        assert (folder / each.backup).read_bytes() == before[name]
        assert each.backup == f"{name}.{each.version}.bak"
        assert json.loads((folder / name).read_bytes())["metadata"]["format_version"] == "1.3"
    untouched = before.keys() - {f"{each.session_id}.json" for each in migrated}
    assert {name: contents(folder)[name] for name in untouched} == {
        name: before[name] for name in untouched
    }
    rest = await migrate_files(JSONFileStorage(folder), write=True)
    assert [each.session_id for each in rest] == ["torn"]


@pytest.fixture
def source(tmp_path):
    """A file of version 1.1, of which the folder has a copy."""
    source = next(path for path in FILES if version_of(path) == "1.1")
    shutil.copy(source, tmp_path)
    return source


async def test_the_backup_keeps_mode_and_time(tmp_path, source):
    path = tmp_path / source.name
    path.chmod(0o600)
    os.utime(path, (1_600_000_000, 1_600_000_000))
    [done] = await migrate_files(JSONFileStorage(tmp_path), write=True)
    backup = tmp_path / done.backup
    assert (backup.stat().st_mode & 0o777, backup.stat().st_mtime) == (0o600, 1_600_000_000)
    assert path.stat().st_mode & 0o777 == 0o600


async def test_an_older_backup_is_never_overwritten(tmp_path, source):
    first = tmp_path / f"{source.name}.1.1.bak"
    first.write_text("precious")
    [done] = await migrate_files(JSONFileStorage(tmp_path), write=True)
    assert first.read_text() == "precious"
    assert done.backup == f"{source.name}.1.1.2.bak"
    assert (tmp_path / done.backup).read_bytes() == source.read_bytes()


async def test_a_session_in_use_is_skipped_and_migrated_later(tmp_path, source):
    async with SessionManager(sessions_dir=tmp_path).claim(source.stem):
        [skipped] = await migrate_files(JSONFileStorage(tmp_path), write=True)
        assert (skipped.outcome, skipped.backup) == (MigrationOutcome.BUSY, None)
        assert contents(tmp_path) == {source.name: source.read_bytes()}
    [done] = await migrate_files(JSONFileStorage(tmp_path), write=True)
    assert done.outcome is MigrationOutcome.MIGRATED


async def test_a_newer_version_is_left_alone(tmp_path):
    manager = SessionManager(sessions_dir=tmp_path)
    await manager.create("m", session_id="one")
    path = tmp_path / "one.json"
    path.write_bytes(path.read_bytes().replace(b'"1.3"', b'"1.4"'))
    assert await migrate_files(JSONFileStorage(tmp_path), write=True) == []
    assert version_of(path) == "1.4"
