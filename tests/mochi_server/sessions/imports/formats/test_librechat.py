"""Conversations of LibreChat."""

from __future__ import annotations

ZERO = "00000000-0000-0000-0000-000000000000"


def message(key, parent, text="", *, mine=False, **more):
    return {
        "messageId": key, "parentMessageId": parent, "text": text, "isCreatedByUser": mine,
        "sender": "User" if mine else "GPT", "model": None if mine else "gpt-4o",
        "createdAt": "2024-05-28T18:08:55.014Z", "error": False, **more,
    }  # fmt: skip


def export(*messages, **more):
    return {
        "conversationId": "27b593be", "endpoint": "openAI", "title": "Stories",
        "exportAt": "08:12:16 GMT-0400", "branches": True, "recursive": False,
        "options": {"model": "gpt-4o", "promptPrefix": "Tell stories."},
        "messages": list(messages), **more,
    }  # fmt: skip


STORY = ("user", "A story")
PROMPT = ("system", "Tell stories.")


def answered(text):
    return ("assistant", text, {"model": "gpt-4o"})


async def test_a_flat_export_has_branches(imports):
    report = await imports.run(
        export(
            message("u1", ZERO, "A story", mine=True),
            message("a1", "u1", "Once"),
            message("a2", "u1", "Twice", unfinished=True),
            message("u2", ZERO, "A long story", mine=True),
            message("a3", "u2", "Long ago"),
        )
    )
    assert (report.program, report.problems) == ("librechat", [])
    shown, *forks = [await imports.said(each.session_id) for each in report.sessions]
    assert shown == [PROMPT, ("user", "A long story"), answered("Long ago")]
    partial = ("assistant", "Twice", {"model": "gpt-4o", "interrupted": True})
    assert forks == [[PROMPT, STORY, partial], [PROMPT, STORY, answered("Once")]]
    metadata = await imports.metadata(report.sessions[0].session_id)
    assert (metadata["title"], metadata["model"]) == ("Stories", "gpt-4o")
    assert metadata["created_at"] == "2024-05-28T18:08:55.014000Z"


async def test_a_recursive_export_is_the_same(imports):
    leaves = [message("a1", "u1", "Once", children=[]), message("a2", "u1", "Twice")]
    tree = export(message("u1", ZERO, "A story", mine=True, children=leaves), recursive=True)
    report = await imports.run(tree)
    shown, fork = [await imports.said(each.session_id) for each in report.sessions]
    assert shown == [PROMPT, STORY, answered("Twice")]
    assert fork == [PROMPT, STORY, answered("Once")]
    flat = export(message("u1", ZERO, "A story", mine=True), *leaves)
    again = await imports.run(flat)
    assert {each.outcome for each in again.sessions} == {"unchanged"}


async def test_thinking_and_calls_are_parts_of_the_content(imports):
    call = {"id": "c1", "name": "add", "args": '{"a": 1}', "output": "3"}
    content = [
        {"type": "think", "think": "Hm."},
        {"type": "tool_call", "tool_call": call},
        {"type": "text", "text": {"value": "Three"}},
        {"type": "image_file"},
    ]
    files = [{"file_id": "f", "filename": "cat.png", "type": "image/png"}]
    report = await imports.run(
        export(
            message("u1", None, "A story", mine=True, files=files),
            message("a1", None, content=content),
            message("e", None, "Quota exceeded", error=True),
        )
    )
    [session] = report.sessions
    stored = {"function": {"name": "add", "arguments": {"a": 1}}, "id": "c1"}
    assert (await imports.said(session.session_id))[2:] == [
        ("assistant", "", {"thinking": "Hm.", "tool_calls": [stored], "model": "gpt-4o"}),
        ("tool", "3", {"tool_name": "add", "tool_call_id": "c1"}),
        answered("Three"),
    ]
    assert report.left_out == {
        "content of the type image_file": 1,
        "error that was shown as a reply": 1,
        "image that is not in the export": 1,
    }
