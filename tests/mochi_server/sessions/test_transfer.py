"""Sessions as files for others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mochi_server.errors import SessionNotFound, SessionUnreadable
from mochi_server.protocol.messages import AssistantMessage, SystemMessage, ToolMessage, UserMessage
from mochi_server.sessions import ConversationSummary, SessionManager
from mochi_server.sessions.transfer import ExportFormat, closed, export_session, fenced

CALL = {"function": {"name": "add", "arguments": {"a": 1}}, "id": "c1"}
OLD = sorted(Path("tests/data/sessions").rglob("*.json"))


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
