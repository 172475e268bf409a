"""Sessions as files for others, and files of others as sessions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mochi_server.errors import SessionExists, SessionNotFound, SessionUnreadable
from mochi_server.protocol.messages import AssistantMessage, SystemMessage, ToolMessage, UserMessage
from mochi_server.sessions import ConversationSummary, SessionManager
from mochi_server.sessions.transfer import (
    CannotImport,
    ExportFormat,
    closed,
    export_session,
    fenced,
    import_session,
)
from tests.support.session_files import file_of

ALWAYS = "always_confirm"
CALL = {"function": {"name": "add", "arguments": {"a": 1}}, "id": "c1"}
OLD = sorted(Path("tests/data/sessions").rglob("*.json"))


@pytest.fixture
def sessions(tmp_path):
    return SessionManager(sessions_dir=tmp_path / "sessions")


def stored(sessions, session_id):
    return json.loads((sessions.storage.folder / f"{session_id}.json").read_bytes())


def asking(content):
    """The session of a file, with policies that ask about every call."""
    session = json.loads(content)
    settings = session["metadata"].get("tool_settings") or {}
    for key, asks in (("execution_policy", ALWAYS), ("confirmation_necessary", True)):
        if key in settings:
            settings[key] = asks
    if "tool_policies" in settings:
        settings["tool_policies"] = dict.fromkeys(settings["tool_policies"], ALWAYS)
    return session


@pytest.mark.parametrize("path", OLD, ids=lambda path: "/".join(path.parts[-3:]))
async def test_a_session_file_is_stored_as_it_is_but_for_its_policies(sessions, path):
    content = path.read_bytes()
    done = await import_session(sessions, content)
    assert done.session_id == json.loads(content)["metadata"]["session_id"]
    assert stored(sessions, done.session_id) == asking(content)
    assert done.policies_changed is (asking(content) != json.loads(content))
    if not done.policies_changed:
        assert (sessions.storage.folder / f"{done.session_id}.json").read_bytes() == content
    assert len((await sessions.get(done.session_id)).messages) == done.message_count
    assert done.version == json.loads(content)["metadata"].get("format_version", "1.0")


@pytest.mark.parametrize("new_id", [False, True])
@pytest.mark.parametrize(
    ("version", "settings"),
    [
        ("1.1", {"tools": ["work"], "confirmation_necessary": False}),
        ("1.2", {"tools": ["work"], "execution_policy": "never_confirm"}),
        ("1.3", {"tools": ["work"], "execution_policy": "confirm_destructive"}),
        ("1.3", {"tools": ["work"], "execution_policy": "a policy of tomorrow"}),
        ("1.4", {"execution_policy": "never_confirm", "tool_policies": {"work": "never_confirm"}}),
        ("1.4", {"tool_policies": {"work": "confirm_destructive", "play": ALWAYS}}),
    ],
)
async def test_an_imported_session_asks_about_every_call(sessions, version, settings, new_id):
    head = {"session_id": "one", "model": "m", "format_version": version, "later": 1}
    content = json.dumps({"metadata": {**head, "tool_settings": settings}, "more": [2]}).encode()
    done = await import_session(sessions, content, new_id=new_id)
    assert done.policies_changed
    found = (await sessions.get(done.session_id)).metadata.tool_settings
    assert {*found.policies_of("work"), *found.policies_of("play")} == {ALWAYS}
    written = stored(sessions, done.session_id)
    assert written == asking(content) | {"messages": []} | {
        "metadata": asking(content)["metadata"] | {"session_id": done.session_id}
    }


@pytest.mark.parametrize(
    "settings",
    [
        None,
        {"tools": ["work"]},
        {"tools": [], "execution_policy": ALWAYS, "tool_policies": {"work": ALWAYS}},
        {"execution_policy": None, "confirmation_necessary": None, "tool_policies": ["odd"]},
    ],
)
async def test_a_session_that_asks_anyway_is_stored_byte_for_byte(sessions, settings):
    content = json.dumps({"metadata": {"session_id": "a", "tool_settings": settings}}).encode()
    assert not (await import_session(sessions, content)).policies_changed
    assert (sessions.storage.folder / "a.json").read_bytes() == content


async def test_a_session_that_is_there_is_never_overwritten(sessions):
    content = file_of(await sessions.create("mine", session_id="one"))
    other = content.replace(b'"mine"', b'"theirs"')
    with pytest.raises(SessionExists):
        await import_session(sessions, other)
    assert stored(sessions, "one")["metadata"]["model"] == "mine"
    done = await import_session(sessions, other, new_id=True)
    assert done.session_id != "one"
    assert stored(sessions, "one")["metadata"]["model"] == "mine"
    assert stored(sessions, done.session_id)["metadata"]["model"] == "theirs"
    assert {line["session_id"] for line in (await sessions.list()).entries} == {
        "one", done.session_id
    }  # fmt: skip


@pytest.mark.parametrize("path", OLD, ids=lambda path: "/".join(path.parts[-3:]))
async def test_another_id_is_all_else_that_changes(sessions, path):
    before = asking(path.read_bytes())
    done = await import_session(sessions, path.read_bytes(), new_id=True)
    before["metadata"]["session_id"] = done.session_id
    assert stored(sessions, done.session_id) == before


@pytest.mark.parametrize("session_id", [None, "", "../../etc/passwd", "x" * 65, 7.5])
async def test_an_id_that_is_none_is_replaced(sessions, session_id):
    head = {"model": "m", "created_at": "", "updated_at": ""}
    if session_id is not None:
        head["session_id"] = session_id
    done = await import_session(sessions, json.dumps({"metadata": head}).encode())
    assert len(done.session_id) == 10
    assert [path.name for path in sessions.storage.folder.glob("*.json")] == [
        f"{done.session_id}.json"
    ]


LINES = b"""{"role": "system", "content": "Be kind."}

{"role": "user", "content": "Hi", "message_id": "0a1b2c3d4e", "zone": 1}\r
{"role": "assistant", "content": "Hello", "model": "theirs"}
"""


async def test_lines_of_messages_become_a_session(sessions):
    done = await import_session(sessions, LINES, model="mine")
    assert (done.version, done.message_count) == (None, 3)
    session = await sessions.get(done.session_id)
    assert session.metadata.model == "mine"
    assert [message.text for message in session.messages] == ["Be kind.", "Hi", "Hello"]
    assert all(message.message_id and message.timestamp for message in session.messages)
    assert session.stored(1)["message_id"] == "0a1b2c3d4e"
    assert session.stored(1)["zone"] == 1


async def test_the_model_of_a_reply_is_that_of_the_session(sessions):
    done = await import_session(sessions, LINES)
    assert (await sessions.get(done.session_id)).metadata.model == "theirs"


async def test_one_line_alone_is_a_session_too(sessions):
    done = await import_session(sessions, b'{"role":"user","content":"Hi"}', model="m")
    assert done.message_count == 1


async def test_lines_that_were_exported_come_back(sessions):
    await sessions.create("m", session_id="one", system_prompt="Be kind.")
    async with sessions.edit("one") as session:
        session.append(UserMessage(content="Hi\n\u2028"), AssistantMessage(content="Hello"))
    content = await export_session(sessions, "one", ExportFormat.JSONL)
    done = await import_session(sessions, content, model="m")
    assert await export_session(sessions, done.session_id, ExportFormat.JSONL) == content


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "no message"),
        (b"[]", "not an object with 'metadata'"),
        (b"7", "not an object with 'metadata'"),
        (b'{"metadata": 5}', "not an object with 'metadata'"),
        (b'{"metadata": {}, "messages": 5}', "'messages' is not a list"),
        (b'{"metadata": {"tool_settings": 5}}', "metadata.tool_settings"),
        (b'{"metadata": {"model"', "line 1: not valid JSON"),
        (b'{"role":"user","content":"a"}\n{"role":', "line 2: not valid JSON"),
        (b'{"role":"user","content":"a"}\n5', "line 2: message: Input should be a valid dict"),
        (b'{"role":"critic","content":"a"}', "line 1: no message with a known role"),
        (b'{"role":"user"}', "line 1: no message with a known role and content"),
        (b'{"role":"user","content":["a"]}', "line 1: content: Input should be a valid string"),
        (b'{"role":"user","content":"a"}\n{"role":"system","content":"b"}', "line 2: a system"),
        (b'{"role":"user","content":"a"}', "names no model"),
        (b'{"role":"user","content":"a","x":' + b"[" * 900 + b"]" * 900 + b"}", "nested"),
    ],
)
async def test_what_cannot_be_imported_leaves_nothing(sessions, content, words):
    with pytest.raises(CannotImport, match=words):
        await import_session(sessions, content)
    assert not list(sessions.storage.folder.glob("*.json"))


# Export


@pytest.fixture
async def filled(tmp_path):
    manager = SessionManager(sessions_dir=tmp_path)
    await manager.create("m", session_id="one", labels={"title": "Sums\nand more", "tags": ["x"]})
    async with manager.edit("one") as session:
        session.append(
            SystemMessage(content="Be kind."),
            UserMessage(content="1 + 1?"),
            AssistantMessage(content="", model="m", thinking="Hm.\nTwo?", tool_calls=[CALL]),
            ToolMessage(content="``` 2", tool_name="add", tool_call_id="c1"),
            AssistantMessage(content="```python\nprint(2)", model="m", interrupted=True),
        )
        session.metadata.summary = ConversationSummary(summary="About sums.")
    return manager


@pytest.mark.parametrize("path", OLD, ids=lambda path: "/".join(path.parts[-3:]))
async def test_the_session_file_is_exported_byte_for_byte(tmp_path, path):
    content = path.read_bytes()
    (tmp_path / path.name).write_bytes(content)
    assert await export_session(SessionManager(sessions_dir=tmp_path), path.stem) == content


async def test_lines_are_what_a_model_would_get(filled):
    content = await export_session(filled, "one", ExportFormat.JSONL)
    assert content.endswith(b"\n")
    assert [json.loads(line) for line in content.splitlines()] == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "1 + 1?"},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "content": "``` 2", "tool_name": "add", "tool_call_id": "c1"},
        {"role": "assistant", "content": "```python\nprint(2)"},
    ]


async def test_messages_of_unknown_roles_are_no_lines(tmp_path):
    manager = SessionManager(sessions_dir=tmp_path)
    await manager.create("m", session_id="one")
    stored = json.loads((tmp_path / "one.json").read_bytes())
    stored["messages"] = [{"role": "critic", "content": "No."}, {"role": "user", "content": None}]
    (tmp_path / "one.json").write_text(json.dumps(stored))
    content = await export_session(manager, "one", ExportFormat.JSONL)
    assert content == b'{"role":"user","content":""}\n'
    assert "## Critic" in (await export_session(manager, "one", ExportFormat.MARKDOWN)).decode()


async def test_markdown_has_everything_that_was_said(filled):
    text = (await export_session(filled, "one", ExportFormat.MARKDOWN)).decode()
    assert text.startswith("# Sums and more\n\n- Session: `one`\n- Model: m\n")
    assert "- Messages: 5\n- Tags: x\n\nAbout sums.\n\n## System\n\nBe kind.\n" in text
    assert "## User\n\n1 + 1?\n\n## Assistant (m)\n\n> Hm.\n> Two?\n\nCalls `add`:\n" in text
    assert "## Tool `add`\n\n````\n``` 2\n````\n" in text
    assert text.endswith("```python\nprint(2)\n```\n\n*The reply was cut off.*\n")


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("plain", ""),
        ("```\na\n```", ""),
        ("```\na", "\n```"),
        ("~~~~\n```\n~~~", "\n~~~~"),
        ("```\n```` \n", ""),
        ("``` a ` b\nx", ""),
        ("    ```\nx", ""),
    ],
)
def test_a_fence_that_a_reply_left_open_is_closed(text, end):
    assert closed(text) == text + end


def test_a_fence_is_longer_than_those_within():
    assert fenced("a ```` b", "text") == "`````text\na ```` b\n`````"


async def test_what_is_no_session_is_not_exported(tmp_path):
    (tmp_path / "torn.json").write_text("{")
    manager = SessionManager(sessions_dir=tmp_path)
    for name, error in (("torn", SessionUnreadable), ("nobody", SessionNotFound)):
        for to in ExportFormat:
            with pytest.raises(error):
                await export_session(manager, name, to)
