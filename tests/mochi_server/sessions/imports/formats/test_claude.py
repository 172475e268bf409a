"""Conversations of Claude, and of Grok."""

from __future__ import annotations


def message(key, sender, *content, text="", **more):
    return {
        "uuid": key, "sender": sender, "text": text, "content": list(content),
        "created_at": "2025-01-01T00:00:01Z", "attachments": [], "files": [], **more,
    }  # fmt: skip


def text(words):
    return {"type": "text", "text": words, "citations": []}


def conversation(*messages, **more):
    return {
        "uuid": "11111111", "name": "Greetings", "created_at": "2025-01-01T00:00:00Z",
        "updated_at": "2025-01-01T00:00:10Z", "chat_messages": list(messages), **more,
    }  # fmt: skip


async def test_thinking_calls_and_results_of_a_reply_become_messages(imports):
    report = await imports.run([
        conversation(
            message("m1", "human", text="What is the weather?"),
            message(
                "m2",
                "assistant",
                {"type": "thinking", "thinking": "I look.", "summaries": []},
                text("One moment."),
                {"type": "tool_use", "name": "weather", "input": {"city": "Kyoto"}},
                {"type": "tool_result", "name": "weather", "is_error": False,
                 "content": [{"type": "text", "text": "Rain"}, {"type": "image"}]},
                text("It rains."),
            ),
        )
    ])  # fmt: skip
    [session] = report.sessions
    call = {"function": {"name": "weather", "arguments": {"city": "Kyoto"}}, "id": "m2-1"}
    assert await imports.said(session.session_id) == [
        ("user", "What is the weather?"),
        ("assistant", "One moment.", {"thinking": "I look.", "tool_calls": [call]}),
        ("tool", "Rain", {"tool_name": "weather", "tool_call_id": "m2-1"}),
        ("assistant", "It rains."),
    ]
    assert report.left_out == {"part of a result that is no text": 1}
    metadata = await imports.metadata(session.session_id)
    assert (metadata["title"], metadata["model"]) == ("Greetings", "unknown")


async def test_the_model_can_be_named_as_the_export_names_none(imports):
    report = await imports.run([conversation(message("m1", "human", text="Hi"))], model="qwen3")
    assert (await imports.metadata(report.sessions[0].session_id))["model"] == "qwen3"


async def test_texts_of_attached_files_are_taken_and_others_counted(imports):
    attachment = {"file_name": "notes.md", "file_type": "txt", "extracted_content": "# Notes"}
    asked = message(
        "m1", "human", text("Read it."), text="Read it.", attachments=[attachment],
        files=[{"file_name": "cat.png", "file_uuid": "0"}],
    )  # fmt: skip
    report = await imports.run([conversation(asked)])
    [session] = report.sessions
    [stored] = await imports.messages(session.session_id)
    [entry] = stored["attachments"]
    assert (stored["content"], entry["name"], entry["size"]) == ("Read it.", "notes.md", 7)
    assert await imports.attachments.read(session.session_id, entry["attachment_id"]) == b"# Notes"
    assert report.left_out == {"file that is not in the export": 1}


async def test_parents_make_branches(imports):
    root = "00000000-0000-4000-8000-000000000000"
    report = await imports.run([
        conversation(
            message("m1", "human", text="Hi", parent_message_uuid=root),
            message("m2", "assistant", text("Hello"), parent_message_uuid="m1"),
            message("m3", "assistant", text("Good day"), parent_message_uuid="m1"),
            current_leaf_message_uuid="m2",
        )
    ])  # fmt: skip
    shown, fork = [await imports.said(each.session_id) for each in report.sessions]
    assert shown == [("user", "Hi"), ("assistant", "Hello")]
    assert fork == [("user", "Hi"), ("assistant", "Good day")]


async def test_rubbish_is_refused_with_its_place(imports):
    report = await imports.run([
        conversation(message("m1", "nobody", text="Hi")),
        conversation(uuid="2", chat_messages={}),
        conversation(message("m1", "assistant", "text"), uuid="3"),
    ])  # fmt: skip
    assert not report.sessions
    assert [problem.message for problem in report.problems] == [
        "claude: /0: no message of it can be taken (1 \u00d7 message of the role nobody)",
        "claude: /1: no message of it can be taken (1 \u00d7 chat_messages in an unknown form)",
        "claude: /2: no message of it can be taken (1 \u00d7 content in an unknown form)",
    ]


# Grok


def response(key, sender, text, parent=None, **more):
    body = {
        "_id": key, "sender": sender, "message": text, "parent_response_id": parent,
        "create_time": "2025-06-21T19:28:21.194663Z", **more,
    }  # fmt: skip
    return {"response": body, "share_link": None}


async def test_an_export_of_grok_has_all_conversations_in_one_object(imports):
    head = {"id": "9592", "title": "Plants", "create_time": "2025-06-21T19:28:21.177720Z"}
    responses = [
        response("r1", "human", "Photosynthesis?", image_attachments=["x"]),
        response("r2", "ASSISTANT", "Light.", "r1", model="grok-3", thinking_trace="Hm."),
        response("r3", "assistant", "Sugar.", "r1",
                 metadata={"requestModelDetails": {"modelId": "grok-4"}}),
    ]  # fmt: skip
    report = await imports.run({
        "conversations": [{"conversation": head, "responses": responses}, 5], "projects": []
    })  # fmt: skip
    shown, fork = [await imports.said(each.session_id) for each in report.sessions]
    asked = ("user", "Photosynthesis?")
    assert shown == [asked, ("assistant", "Sugar.", {"model": "grok-4"})]
    assert fork == [asked, ("assistant", "Light.", {"thinking": "Hm.", "model": "grok-3"})]
    assert report.left_out == {
        "file that is not in the export": 1,
        "entry that is no conversation": 1,
    }


async def test_rubbish_in_an_export_of_grok_is_refused_with_its_place(imports):
    report = await imports.run(
        {"conversations": [{"conversation": {}, "responses": [{"response": 1}]}]}
    )
    assert [problem.message for problem in report.problems] == [
        (
            "grok: /conversations/0: no message of it can be taken "
            "(1 \u00d7 response in an unknown form, 1 \u00d7 message of the role unknown)"
        )
    ]
