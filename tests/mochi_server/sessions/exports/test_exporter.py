"""Sessions as files for others."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

from mochi_server.errors import SessionNotFound, SessionUnreadable
from mochi_server.protocol.messages import AssistantMessage, SystemMessage, ToolMessage, UserMessage
from mochi_server.sessions import ConversationSummary, SessionManager
from mochi_server.sessions.attachments import MemoryAttachmentStore, NewAttachment, attach
from mochi_server.sessions.exports.exporter import ExportFormat, export_session
from mochi_server.sessions.exports.markdown import closed, fenced
from tests.support.images import png
from tests.support.imports import Imports

NONE = MemoryAttachmentStore()
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
    assert await export_session(SessionManager(sessions_dir=tmp_path), NONE, path.stem) == content


async def test_a_line_for_training_has_what_a_model_would_get(filled):
    content = await export_session(filled, NONE, "one", ExportFormat.JSONL)
    assert content.endswith(b"\n")
    assert content.count(b"\n") == 1
    function = {"name": "add", "arguments": '{"a":1}'}
    assert json.loads(content) == {
        "messages": [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": "1 + 1?"},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": "c1", "type": "function", "function": function}],
            },
            {"role": "tool", "content": "``` 2", "tool_call_id": "c1"},
            {"role": "assistant", "content": "```python\nprint(2)"},
        ]
    }


async def test_calls_of_old_files_get_ids_in_a_line_for_training(tmp_path):
    manager = SessionManager(sessions_dir=tmp_path)
    await manager.create("m", session_id="one")
    async with manager.edit("one") as session:
        calls = [{"function": {"name": "add", "arguments": None}} for _ in range(2)]
        session.append(
            AssistantMessage(content=None, tool_calls=calls),
            ToolMessage(content="1", tool_name="add"),
            ToolMessage(content="2", tool_name="add"),
        )
    line = json.loads(await export_session(manager, NONE, "one", ExportFormat.JSONL))
    reply, *results = line["messages"]
    ids = [call["id"] for call in reply["tool_calls"]]
    assert len({*ids}) == 2
    assert [each["tool_call_id"] for each in results] == ids


async def test_messages_of_unknown_roles_are_shown_and_not_trained(tmp_path):
    manager = SessionManager(sessions_dir=tmp_path)
    await manager.create("m", session_id="one")
    stored = json.loads((tmp_path / "one.json").read_bytes())
    stored["messages"] = [{"role": "critic", "content": "No."}, {"role": "user", "content": None}]
    (tmp_path / "one.json").write_text(json.dumps(stored))
    content = await export_session(manager, NONE, "one", ExportFormat.JSONL)
    assert json.loads(content) == {"messages": [{"role": "user", "content": ""}]}
    for to, heading in ((ExportFormat.MARKDOWN, "## Critic"), (ExportFormat.HTML, "<h2>Critic")):
        assert heading in (await export_session(manager, NONE, "one", to)).decode()


async def test_what_was_exported_for_training_comes_back(imports):
    sessions = imports.sessions
    await sessions.create("m", session_id="one", system_prompt="Be kind.")
    attachments = [
        NewAttachment(content=png(), media_type="image/png", name=None),
        NewAttachment(content=b"Notes", media_type="text/plain", name="notes.md"),
    ]
    question = UserMessage(content="What is it?\n\u2028")
    attach(question, attachments)
    await imports.attachments.keep("one", attachments)
    async with sessions.edit("one") as session:
        session.append(
            question,
            AssistantMessage(content="", tool_calls=[CALL], thinking="Hm."),
            ToolMessage(content="2", tool_name="add", tool_call_id="c1"),
            AssistantMessage(content="Two"),
        )
    content = await export_session(sessions, imports.attachments, "one", ExportFormat.JSONL)
    report = await imports.run(content)
    assert (report.problems, report.left_out) == ([], {})
    [session] = report.sessions
    again = await export_session(
        sessions, imports.attachments, session.session_id, ExportFormat.JSONL
    )
    assert again == content
    entries = (await imports.messages(session.session_id))[1]["attachments"]
    assert [entry["name"] for entry in entries] == [None, "notes.md"]


async def test_markdown_has_everything_that_was_said(filled):
    text = (await export_session(filled, NONE, "one", ExportFormat.MARKDOWN)).decode()
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
                await export_session(manager, NONE, name, to)


async def test_an_archive_brings_the_attachments_along(imports, tmp_path):
    await imports.sessions.create("m", session_id="one")
    image = NewAttachment(content=png(), media_type="image/png", name="a.png")
    gone = NewAttachment(content=b"gone", media_type="text/plain", name="b.txt")
    question = UserMessage(content="Look")
    attach(question, [image, gone])
    await imports.attachments.keep("one", [image])
    async with imports.sessions.edit("one") as session:
        session.append(question)
    content = await export_session(imports.sessions, imports.attachments, "one", ExportFormat.ZIP)
    other = Imports(tmp_path / "other")
    other.folder.mkdir()
    report = await other.run(content)
    assert (report.program, report.problems) == ("mochi", [])
    assert report.left_out == {"file that is not in the export": 1}
    assert other.files == imports.files
    attachment_id = image.described().attachment_id
    assert await other.attachments.read("one", attachment_id) == png()
    assert (await other.run(content)).sessions[0].outcome == "unchanged"
    await other.sessions.aclose()


async def test_a_page_has_everything_and_nothing_that_runs(imports):
    sessions = imports.sessions
    evil = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'&"
    await sessions.create(evil, session_id="one", system_prompt=evil, labels={"title": evil})
    files = [
        NewAttachment(content=png(), media_type="image/png", name=evil),
        NewAttachment(content=evil.encode(), media_type="text/html", name="page.html"),
    ]
    question = UserMessage(content=f"{evil}\n```html\n{evil}\n```\nand `{evil}`")
    attach(question, files)
    await imports.attachments.keep("one", files)
    entry = {"attachment_id": "f" * 64, "media_type": evil, "size": 1, "name": None}
    call = {"function": {"name": evil, "arguments": {evil: evil}}, "id": "c1"}
    async with sessions.edit("one") as session:
        session.append(
            question,
            AssistantMessage(content=evil, model=evil, thinking=evil, tool_calls=[call]),
            ToolMessage(content=evil, tool_name=evil, attachments=[entry]),
        )
    page = (await export_session(sessions, imports.attachments, "one", ExportFormat.HTML)).decode()
    seen = Page(page)
    assert set(seen.tags) <= {
        *("html", "head", "meta", "title", "style", "body", "main", "h1", "dl", "dt", "dd"),
        *("article", "h2", "time", "details", "summary", "p", "pre", "code", "img", "a"),
    }
    assert not [name for name in seen.attributes if name.startswith("on")]
    assert seen.text.count("<script>alert(1)</script>") >= 9
    first, second = seen.links
    assert first.startswith("data:image/png;base64,")
    assert second.startswith("data:application/octet-stream;base64,")
    assert "default-src 'none'" in page.replace("&#x27;", "'")


class Page(HTMLParser):
    """The tags, attributes, links and texts of a page."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes, self.links, self.text = [], [], [], ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]
        self.links += [value for name, value in attrs if name in {"src", "href"}]

    def handle_data(self, data):
        self.text += data
