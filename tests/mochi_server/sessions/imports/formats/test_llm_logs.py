"""The database of the command ``llm``."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing

import pytest

from tests.support.images import png

RESPONSES = """
CREATE TABLE conversations (id TEXT PRIMARY KEY, name TEXT, model TEXT);
CREATE TABLE responses (id TEXT PRIMARY KEY, model TEXT, prompt TEXT, system TEXT, response TEXT,
    conversation_id TEXT, datetime_utc TEXT, resolved_model TEXT, reasoning TEXT);
CREATE TABLE tool_calls (id INTEGER PRIMARY KEY, response_id TEXT, name TEXT, arguments TEXT,
    tool_call_id TEXT);
CREATE TABLE tool_results (id INTEGER PRIMARY KEY, response_id TEXT, name TEXT, output TEXT,
    tool_call_id TEXT, exception TEXT);
CREATE TABLE attachments (id TEXT PRIMARY KEY, type TEXT, path TEXT, url TEXT, content BLOB);
CREATE TABLE prompt_attachments (response_id TEXT, attachment_id TEXT, "order" INTEGER);
CREATE TABLE fragments (id INTEGER PRIMARY KEY, content TEXT);
CREATE TABLE prompt_fragments (response_id TEXT, fragment_id INTEGER, "order" INTEGER);
INSERT INTO conversations VALUES ('k1', 'Sums', 'gpt-4o'), ('k2', NULL, 'gpt-4o');
INSERT INTO responses VALUES
    ('r2', 'gpt-4o', '', 'Be kind.', 'Three', 'k1', '2025-01-01T00:00:02', NULL, NULL),
    ('r1', 'gpt-4o', '1 + 2?', 'Be kind.', '', 'k1', '2025-01-01T00:00:01', 'gpt-4o-0513', 'Hm.'),
    ('r3', 'gpt-4o', 'Sum it up', NULL, 'Short', 'k2', '2025-01-02T00:00:00', NULL, NULL),
    ('r4', 'gpt-4o', 'Alone', NULL, 'No conversation', NULL, '2025-01-02T00:00:00', NULL, NULL);
INSERT INTO tool_calls VALUES (1, 'r1', 'add', '{"a": 1}', 'c1');
INSERT INTO tool_results VALUES (1, 'r2', 'add', '3', 'c1', NULL);
INSERT INTO fragments VALUES (7, 'A long report.');
INSERT INTO prompt_fragments VALUES ('r3', 7, 0);
INSERT INTO attachments VALUES ('x', 'image/png', NULL, 'https://example.com/cat.png', NULL);
INSERT INTO prompt_attachments VALUES ('r3', 'x', 0);
"""

MESSAGES = """
CREATE TABLE threads (id TEXT PRIMARY KEY, name TEXT, tip_message_hash TEXT, datetime_utc TEXT);
CREATE TABLE turns (id TEXT PRIMARY KEY, thread_id TEXT, tip_message_hash TEXT, model TEXT,
    resolved_model TEXT, datetime_utc TEXT);
CREATE TABLE messages (hash TEXT PRIMARY KEY, parent_hash TEXT, role TEXT);
CREATE TABLE parts (id INTEGER PRIMARY KEY, message_hash TEXT, position INTEGER, type TEXT,
    tool_name TEXT, text TEXT, payload TEXT);
CREATE TABLE attachments (id TEXT PRIMARY KEY, type TEXT, path TEXT, url TEXT, content BLOB);
CREATE TABLE fragments (id INTEGER PRIMARY KEY, content TEXT);
INSERT INTO threads VALUES ('t1', 'Sums', 'm5', '2026-11-24 00:00:00+00:00');
INSERT INTO turns VALUES ('n1', 't1', 'm3', 'fake', NULL, '2026-11-24T00:00:01+00:00'),
    ('n2', 't1', 'm5', 'fake', 'fake-2', '2026-11-24T00:00:02+00:00');
INSERT INTO messages VALUES ('m1', NULL, 'system'), ('m2', 'm1', 'user'),
    ('m3', 'm2', 'assistant'), ('m4', 'm3', 'tool'), ('m5', 'm4', 'assistant');
INSERT INTO fragments VALUES (7, 'A long report.');
INSERT INTO parts VALUES (1, 'm1', 0, 'text', NULL, 'Be kind.', NULL),
    (2, 'm2', 0, 'text', NULL, NULL, '{"text_ref": [{"fragment": 7}, {"literal": " 1 + 2?"}]}'),
    (3, 'm2', 1, 'attachment', NULL, NULL, '{"attachment": {"id": "x"}}'),
    (4, 'm3', 0, 'reasoning', NULL, 'Hm.', NULL),
    (5, 'm3', 1, 'tool_call', 'add', NULL,
        '{"name": "add", "arguments": {"a": 1}, "tool_call_id": "c1"}'),
    (6, 'm4', 0, 'tool_result', 'add', NULL,
        '{"name": "add", "output": "3", "tool_call_id": "c1"}'),
    (7, 'm5', 0, 'text', NULL, 'Three', NULL);
"""
CALL = {"function": {"name": "add", "arguments": {"a": 1}}, "id": "c1"}
RESULT = ("tool", "3", {"tool_name": "add", "tool_call_id": "c1"})


@pytest.fixture
def database(tmp_path):
    def make(script):
        path = tmp_path / "logs.db"
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript(script)
            if "INTO parts" in script:
                row = ("x", "image/png", "/home/ann/cat.png", None, png())
                connection.execute("INSERT INTO attachments VALUES (?, ?, ?, ?, ?)", row)
            connection.commit()
        return path

    return make


async def test_responses_become_sessions_with_results_behind_their_calls(imports, database):
    path = database(RESPONSES)
    before = path.read_bytes()
    report = await imports.run(path)
    sums, short = report.sessions
    assert (report.program, report.problems) == ("llm", [])
    assert report.left_out == {
        "file that is not in the database": 1,
        "response without a conversation": 1,
    }
    thinking = {"thinking": "Hm.", "tool_calls": [CALL], "model": "gpt-4o-0513"}
    assert await imports.said(sums.session_id) == [
        ("system", "Be kind."),
        ("user", "1 + 2?"),
        ("assistant", "", thinking),
        RESULT,
        ("assistant", "Three", {"model": "gpt-4o"}),
    ]
    assert (await imports.said(short.session_id))[0] == ("user", "A long report.\n\nSum it up")
    assert (await imports.metadata(sums.session_id))["created_at"] == "2025-01-01T00:00:01.000000Z"
    assert {each.outcome for each in (await imports.run(path)).sessions} == {"unchanged"}
    assert path.read_bytes() == before


async def test_threads_become_sessions(imports, database):
    report = await imports.run(database(MESSAGES))
    [session] = report.sessions
    assert (report.problems, report.left_out) == ([], {})
    assert await imports.said(session.session_id) == [
        ("system", "Be kind."),
        ("user", "A long report. 1 + 2?"),
        ("assistant", "", {"thinking": "Hm.", "tool_calls": [CALL], "model": "fake"}),
        RESULT,
        ("assistant", "Three", {"model": "fake-2"}),
    ]
    [image] = (await imports.messages(session.session_id))[1]["attachments"]
    assert (image["media_type"], image["name"]) == ("image/png", "cat.png")


async def test_a_thread_that_forks_another_knows_who_said_what_before(imports, database):
    fork = """
        INSERT INTO threads VALUES ('t2', 'Fork', 'm3', '2026-11-25 00:00:00+00:00'),
            ('t3', 'Longer', 'm6', '2026-11-25 00:00:00+00:00');
        INSERT INTO messages VALUES ('m6', 'm3', 'assistant');
        INSERT INTO parts VALUES (8, 'm6', 0, 'text', NULL, 'Four?', NULL);
        INSERT INTO turns VALUES ('n3', 't3', 'm6', 'other', NULL, '2026-11-25T00:00:01+00:00');
    """
    report = await imports.run(database(MESSAGES + fork))
    assert report.problems == []
    for session, models in zip(report.sessions[1:], (["fake"], ["fake", "other"]), strict=True):
        replies = [each for each in await imports.messages(session.session_id) if "model" in each]
        assert [each["model"] for each in replies] == models
        assert replies[0]["timestamp"] == "2026-11-24T00:00:01.000000Z"
        metadata = await imports.metadata(session.session_id)
        assert metadata["model"] == models[-1]


@pytest.mark.parametrize("script", [RESPONSES, MESSAGES])
@pytest.mark.parametrize("odd", [7, "odd", b"\xff", '["odd"]'])
async def test_an_odd_value_costs_no_other_and_is_counted(imports_in_memory, database, script, odd):
    path = database(script)
    known, report = await words_of(imports_in_memory, path)
    usual = report.left_out
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master "
                                                       "WHERE type = 'table'")]  # fmt: skip
        cells = [
            (table, column, rowid, before)
            for table in tables
            for _, column, kind, *_ in connection.execute(f"PRAGMA table_info({table})").fetchall()
            for rowid, before in connection.execute(
                f'SELECT rowid, "{column}" FROM {table}'
            ).fetchall()
            if "KEY" not in kind and column not in LINKS
        ]
        for table, column, rowid, before in cells:
            change = f'UPDATE {table} SET "{column}" = ? WHERE rowid = ?'
            connection.execute(change, [odd, rowid])
            words, report = await words_of(imports_in_memory, path)
            lost = {word for word in known - words if word not in str(before)}
            is_counted = report.left_out - usual or report.problems
            where = f"{odd!r} in {table}.{column}: {known - words}, {report.left_out}"
            assert not lost or (is_counted and column in {"role", "type", "payload"}), where
            is_taken = bool({"odd", "7"} & words) and odd != b"\xff"
            assert is_counted or is_taken or words == known, where
            connection.execute(change, [before, rowid])


LINKS = {"id", "hash", "parent_hash", "tip_message_hash", "thread_id", "message_hash"} | {
    "conversation_id", "response_id", "attachment_id", "fragment_id", "order", "position"
}  # fmt: skip


async def words_of(imports, path):
    """The words of all sessions that the database has become, and the report."""
    report = await imports.run(path)
    words = set()
    for session in report.sessions:
        for message in await imports.messages(session.session_id):
            said = (message["content"], message.get("thinking"), message.get("tool_calls"))
            words |= {*re.findall(r"\w+", json.dumps(said).replace("\\n", " "))}
        await imports.sessions.delete(session.session_id)
    return words, report


async def test_rubbish_is_refused(imports, database):
    path = database("CREATE TABLE notes (id)")
    report = await imports.run(path)
    assert [problem.message for problem in report.problems] == [
        "llm's logs.db: it has neither a table 'responses' nor 'threads'"
    ]
    content = database(RESPONSES).read_bytes()
    for torn in (content[:5000], content[:100] + b"\xff" * 8000):
        report = await imports.run(torn)
        assert [problem.message[:40] for problem in report.problems] == [
            "llm's logs.db: not a readable database ("
        ]
    assert not imports.files


async def test_columns_that_the_database_computes_are_not_read(imports, database):
    report = await imports.run(
        database("""
            CREATE TABLE responses (id TEXT, conversation_id TEXT, prompt TEXT,
                response TEXT AS (replace(hex(zeroblob(9)), '0', 'no')) VIRTUAL);
            INSERT INTO responses VALUES ('r1', 'k1', 'Hi');
        """)
    )
    assert report.problems == []
    assert await imports.said(report.sessions[0].session_id) == [("user", "Hi")]
