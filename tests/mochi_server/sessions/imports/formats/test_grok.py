"""Conversations of Grok."""

from __future__ import annotations


def response(key, sender, text, parent=None, **more):
    body = {
        "_id": key, "sender": sender, "message": text, "parent_response_id": parent,
        "create_time": "2025-06-21T19:28:21.194663Z", **more,
    }  # fmt: skip
    return {"response": body, "share_link": None}


async def test_an_export_has_all_conversations_in_one_object(imports):
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


async def test_rubbish_is_refused_with_its_place(imports):
    report = await imports.run(
        {"conversations": [{"conversation": {}, "responses": [{"response": 1}]}]}
    )
    assert [problem.message for problem in report.problems] == [
        (
            "grok: /conversations/0: no message of it can be taken "
            "(1 \u00d7 response in an unknown form, 1 \u00d7 message of the role unknown)"
        )
    ]
