"""Conversations of ChatGPT."""

from __future__ import annotations

import json
from io import BytesIO
from zipfile import ZIP_DEFLATED, ZipFile

from tests.support.images import png

PNG = png()


def node(key, parent, role=None, content=None, **message):
    """A node of the tree; without a role one without a message."""
    if isinstance(content, str):
        content = {"content_type": "text", "parts": [content]}
    metadata = message.pop("metadata", {})
    body = None
    if role is not None:
        author = {"role": role, "name": message.pop("name", None), "metadata": {}}
        body = {"id": key, "author": author, "create_time": 1700000000.5, "content": content,
                "metadata": metadata, "recipient": "all", **message}  # fmt: skip
    return key, {"id": key, "parent": parent, "children": [], "message": body}


def conversation(*nodes, shown, **more):
    return {
        "title": "Deploys", "create_time": 1700000000.25, "update_time": 1700000400.0,
        "mapping": dict(nodes), "current_node": shown, "conversation_id": "6b0f",
        "default_model_slug": "gpt-5", "is_archived": False, **more,
    }  # fmt: skip


HIDDEN = {"is_visually_hidden_from_conversation": True}
START = [
    node("root", None),
    node("sys", "root", "system", "", metadata=HIDDEN),
    node("context", "sys", "user", {"content_type": "user_editable_context"}, create_time=None),
    node("u1", "context", "user", "How do I roll back?"),
]


async def test_the_way_to_the_current_node_is_the_session_and_others_are_forks(imports):
    report = await imports.run([
        conversation(
            *START,
            node("a1", "u1", "assistant", "Like so.", metadata={"model_slug": "o4-mini"}),
            node("u2", "a1", "user", "And then?"),
            node("a2", "u1", "assistant", "Better so."),
            shown="a2",
        )
    ])  # fmt: skip
    assert (report.program, report.problems) == ("chatgpt", [])
    assert report.left_out == {"custom instructions": 1}
    shown, fork = report.sessions
    assert await imports.said(shown.session_id) == [
        ("user", "How do I roll back?"),
        ("assistant", "Better so."),
    ]
    assert await imports.said(fork.session_id) == [
        ("user", "How do I roll back?"),
        ("assistant", "Like so.", {"model": "o4-mini"}),
        ("user", "And then?"),
    ]
    first = (await imports.messages(shown.session_id))[0]
    assert first["timestamp"] == "2023-11-14T22:13:20.500000Z"
    metadata = await imports.metadata(shown.session_id)
    assert (metadata["title"], metadata["model"]) == ("Deploys", "gpt-5")
    assert metadata["created_at"] == "2023-11-14T22:13:20.250000Z"
    assert metadata["updated_at"] == "2023-11-14T22:20:00.000000Z"
    assert metadata["imported_from"].items() >= {"program": "chatgpt", "id": "6b0f"}.items()
    assert fork.forked_from == shown.session_id
    assert (await imports.metadata(fork.session_id))["forked_from"] == {
        "session_id": shown.session_id,
        "message_id": first["message_id"],
    }


async def test_thinking_and_calls_become_those_of_replies(imports):
    thoughts = {"content_type": "thoughts", "thoughts": [{"summary": "s", "content": "Hm."}]}
    code = {"content_type": "code", "language": "unknown", "text": 'search("helm")'}
    report = await imports.run([
        conversation(
            *START,
            node("t", "u1", "assistant", thoughts),
            node("r", "t", "assistant", {"content_type": "reasoning_recap", "content": "4 s"}),
            node("c", "r", "assistant", code, recipient="browser"),
            node("d", "c", "tool", {"content_type": "tether_quote", "text": "Found."},
                 name="browser"),
            node("a", "d", "assistant", "Use `helm rollback`."),
            shown="a",
        )
    ])  # fmt: skip
    assert report.left_out == {"custom instructions": 1, "recap of thinking": 1}
    call = {"function": {"name": "browser", "arguments": {"input": 'search("helm")'}}, "id": "c"}
    assert (await imports.said(report.sessions[0].session_id))[1:] == [
        ("assistant", "", {"thinking": "Hm.", "tool_calls": [call]}),
        ("tool", "Found.", {"tool_name": "browser", "tool_call_id": "c"}),
        ("assistant", "Use `helm rollback`."),
    ]


def archive(**members):
    file = BytesIO()
    with ZipFile(file, "w", ZIP_DEFLATED) as writer:
        for name, content in members.items():
            writer.writestr(name, content)
    return file.getvalue()


async def test_images_come_from_the_archive(imports):
    def image(pointer):
        return {"content_type": "image_asset_pointer", "asset_pointer": pointer}

    parts = [image("sediment://file_0a1"), image("file-service://file-Gone"), "What is it?"]
    chat = conversation(
        *START,
        node("u2", "u1", "user", {"content_type": "multimodal_text", "parts": parts},
             metadata={"attachments": [{"id": "file_0a1", "mime_type": "image/png"}]}),
        node("i", "u2", "tool", {"content_type": "multimodal_text",
                                 "parts": [image("file-service://file-Zz9")]}, name="dalle"),
        shown="i",
    )  # fmt: skip
    content = archive(**{
        "conversations-000.json": json.dumps([chat]),
        "file_0a1-cat.png": PNG,
        "dalle/file-Zz9-1.webp": PNG,
        "user.json": "{}",
        "chat.html": "<html>",
    })  # fmt: skip
    report = await imports.run(content)
    assert report.left_out == {
        "custom instructions": 1,
        "image that is not in the export": 1,
        "other file of the archive": 2,
    }
    [session] = report.sessions
    _, question, drawn = await imports.messages(session.session_id)
    for message, name in ((question, "file_0a1-cat.png"), (drawn, "file-Zz9-1.webp")):
        [entry] = message["attachments"]
        assert (entry["media_type"], entry["name"]) == ("image/png", name)
        kept = await imports.attachments.read(session.session_id, entry["attachment_id"])
        assert kept == PNG


async def test_what_is_no_conversation_does_not_hide_the_others(imports):
    good = conversation(*START, shown="u1")
    report = await imports.run([
        {"title": "Corrupted entry", "conversation_id": "2"},
        good,
        conversation(*START, shown="u1", mapping=[], conversation_id="3"),
        conversation(node("root", None), shown="root", conversation_id="5"),
    ])  # fmt: skip
    assert report.left_out == {
        "custom instructions": 1,
        "conversation without messages": 1,
        "entry that is no conversation": 1,
    }
    assert len(report.sessions) == 1
    assert [problem.message for problem in report.problems] == [
        "chatgpt: /2: no message of it can be taken (1 \u00d7 mapping in an unknown form)"
    ]


async def test_a_message_that_is_only_a_file_keeps_it_with_its_name(imports):
    upload = {"id": "file-abc123", "name": "report.txt", "mime_type": "text/plain", "size": 11}
    chat = conversation(
        node("u", None, "user", "", metadata={"attachments": [upload]}),
        node("a", "u", "assistant", "Summary of your file."),
        shown="a",
    )
    content = archive(**{
        "conversations.json": json.dumps([chat]), "file-abc123-report.txt": "the content"
    })  # fmt: skip
    report = await imports.run(content)
    [session] = report.sessions
    asked, answered = await imports.messages(session.session_id)
    [entry] = asked["attachments"]
    assert (asked["content"], entry["name"]) == ("", "report.txt")
    assert answered["content"] == "Summary of your file."
    assert not report.left_out


async def test_a_message_of_an_unknown_role_is_counted_and_the_others_taken(imports):
    report = await imports.run([
        conversation(
            node("u", None, "user", "x"), node("k", "u", "critic", "hmm"),
            node("a", "k", "assistant", "y"), shown="a",
        )
    ])  # fmt: skip
    assert await imports.said(report.sessions[0].session_id) == [("user", "x"), ("assistant", "y")]
    assert report.left_out == {"message of the role critic": 1}


async def test_citations_are_what_the_program_shows(imports):
    cite = "\ue200cite\ue202turn0search1\ue202turn0search3\ue201"
    entity = '\ue200entity\ue202["place","Eiffel Tower","Paris"]\ue201'
    file, lost = "\u30104:0\u2020report.pdf\u3011", "\ue200cite\ue202turn9\ue201"
    references = [
        {"matched_text": cite, "alt": "([Site](https://example.org/a))"},
        {"matched_text": entity, "alt": "Eiffel Tower"},
        {"matched_text": file, "alt": "(report)"},
        {"matched_text": " ", "alt": ""},
    ]
    words = f"It opened in 1889 {cite}. See \ue203{entity}\ue204 and {file}{lost}. \u3010Hi\u3011"
    report = await imports.run([
        conversation(
            node("u", None, "user", "When?"),
            node("a", "u", "assistant", words, metadata={"content_references": references}),
            shown="a",
        )
    ])  # fmt: skip
    assert (await imports.said(report.sessions[0].session_id))[1] == (
        "assistant",
        (
            "It opened in 1889 ([Site](https://example.org/a)). See Eiffel Tower and (report). "
            "\u3010Hi\u3011"
        ),
    )
    assert report.left_out == {"citation without a text": 1}
