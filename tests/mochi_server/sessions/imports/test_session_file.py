"""Session files, made sessions of another server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mochi_server.errors import CannotImport, SessionExists
from mochi_server.sessions.imports.session_file import import_session_file
from tests.support.session_files import file_of

ALWAYS = "always_confirm"
OLD = sorted(Path("tests/data/sessions").rglob("*.json"))


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


@pytest.mark.parametrize("new_id", [False, True])
@pytest.mark.parametrize("path", OLD, ids=lambda path: "/".join(path.parts[-3:]))
async def test_a_session_file_is_stored_as_it_is_but_for_id_and_policies(imports, path, new_id):
    content = path.read_bytes()
    done = await import_session_file(imports.sessions, content, new_id=new_id)
    expected = asking(content)
    assert done.policies_changed is (expected != json.loads(content))
    assert (done.session_id != expected["metadata"]["session_id"]) is new_id
    expected["metadata"]["session_id"] = done.session_id
    assert imports.stored(done.session_id) == expected
    if not done.policies_changed and not new_id:
        assert (imports.sessions.storage.folder / f"{done.session_id}.json").read_bytes() == content
    assert len((await imports.sessions.get(done.session_id)).messages) == done.message_count
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
async def test_an_imported_session_asks_about_every_call(imports, version, settings, new_id):
    head = {"session_id": "one", "model": "m", "format_version": version, "later": 1}
    content = json.dumps({"metadata": {**head, "tool_settings": settings}, "more": [2]}).encode()
    done = await import_session_file(imports.sessions, content, new_id=new_id)
    assert done.policies_changed
    found = (await imports.sessions.get(done.session_id)).metadata.tool_settings
    assert {*found.policies_of("work"), *found.policies_of("play")} == {ALWAYS}
    written = imports.stored(done.session_id)
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
async def test_a_session_that_asks_anyway_is_stored_byte_for_byte(imports, settings):
    content = json.dumps({"metadata": {"session_id": "a", "tool_settings": settings}}).encode()
    assert not (await import_session_file(imports.sessions, content)).policies_changed
    assert (imports.sessions.storage.folder / "a.json").read_bytes() == content


@pytest.mark.parametrize(
    ("rules", "kept"),
    [
        ([{"tool": "a", "action": "allow"}], []),
        (
            [{"tool": "a", "action": "allow"}, {"tool": "b", "action": "deny", "session_id": "a"}],
            [{"tool": "b", "action": "deny", "session_id": "a"}],
        ),
        ([{"tool": "b", "action": "Deny"}, 5], [{"tool": "b", "action": "Deny"}, 5]),
        ({"action": "allow"}, {"action": "allow"}),
    ],
    ids=["allows", "some", "no rules", "no list"],
)
async def test_an_imported_session_has_no_rules_that_allow_calls(imports, rules, kept):
    """What cannot be understood stays: with it every call is asked about."""
    content = json.dumps({"metadata": {"session_id": "a", "policies": rules}}).encode()
    done = await import_session_file(imports.sessions, content)
    assert done.policies_changed is (kept != rules)
    assert imports.stored("a")["metadata"]["policies"] == kept


@pytest.mark.parametrize("new_id", [False, True])
async def test_a_server_lists_an_imported_session_at_once(imports, new_id):
    imports.sessions.catalogue.watch()
    assert (await imports.sessions.list()).entries == []
    content = json.dumps({"metadata": {"session_id": "one", "model": "m"}}).encode()
    done = await import_session_file(imports.sessions, content, new_id=new_id)
    listed = (await imports.sessions.list()).entries
    assert [entry["session_id"] for entry in listed] == [done.session_id]


async def test_a_session_that_is_there_is_never_overwritten(imports):
    content = file_of(await imports.sessions.create("mine", session_id="one"))
    other = content.replace(b'"mine"', b'"theirs"')
    with pytest.raises(SessionExists):
        await import_session_file(imports.sessions, other)
    assert imports.stored("one")["metadata"]["model"] == "mine"
    done = await import_session_file(imports.sessions, other, new_id=True)
    assert done.session_id != "one"
    assert imports.stored("one")["metadata"]["model"] == "mine"
    assert imports.stored(done.session_id)["metadata"]["model"] == "theirs"
    assert {line["session_id"] for line in (await imports.sessions.list()).entries} == {
        "one", done.session_id
    }  # fmt: skip


@pytest.mark.parametrize("session_id", [None, "", "../../etc/passwd", "x" * 65, 7.5])
async def test_an_id_that_is_none_is_replaced(imports, session_id):
    head = {"model": "m", "created_at": "", "updated_at": ""}
    if session_id is not None:
        head["session_id"] = session_id
    done = await import_session_file(imports.sessions, json.dumps({"metadata": head}).encode())
    assert len(done.session_id) == 10
    assert [path.name for path in imports.sessions.storage.folder.glob("*.json")] == [
        f"{done.session_id}.json"
    ]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"metadata": 5}', "not an object with 'metadata'"),
        (b'{"metadata": {}, "messages": 5}', "'messages' is not a list"),
        (b'{"metadata": {"tool_settings": 5}}', "metadata.tool_settings"),
    ],
)
async def test_what_is_no_session_leaves_nothing(imports, content, words):
    with pytest.raises(CannotImport, match=words):
        await import_session_file(imports.sessions, content)
    report = await imports.run(content)
    assert [words in problem.message for problem in report.problems] == [True]
    assert not imports.files
