"""``/sessions/{id}/compact``, and ``compaction`` of a session."""

from __future__ import annotations

import pytest

NOTES = "- The project is called Marmalade."


async def said(api, *texts, **fields):
    session_id = await api.new_session(**fields)
    for text in texts:
        assert (await api.post(f"/chat/{session_id}", {"message": text})).status_code == 200
    return session_id


async def test_a_history_is_compacted_at_once_and_sent_so(api, ollama):
    session_id = await said(api, "One.", "Two.")
    ollama.reply([NOTES])
    written = await api.post(f"/sessions/{session_id}/compact")
    assert written.status_code == 200
    summary = written.json()
    assert {key: summary[key] for key in ("text", "model")} == {"text": NOTES, "model": "qwen3:14b"}
    detail = (await api.get(f"/sessions/{session_id}")).json()
    assert detail["history_summary"] == {**summary, "requested": True}
    assert summary["through_message_id"] == detail["messages"][1]["message_id"]
    assert len(detail["messages"]) == 4
    answer = (await api.post(f"/chat/{session_id}", {"message": "Three."})).json()
    assert answer["context_window"]["summarised_messages"] == 2
    note, *rest = ollama.chats[-1]["messages"]
    assert NOTES in note["content"]
    assert [each["content"] for each in rest] == ["Two.", "You said: Two.", "Three."]


async def test_there_must_be_something_before_the_last_turn(api):
    for texts in ((), ("One.",)):
        response = await api.post(f"/sessions/{await said(api, *texts)}/compact")
        assert response.status_code == 400
        assert response.json()["error"]["code"] == "EMPTY_HISTORY"


@pytest.mark.parametrize("value", [True, False])
async def test_a_session_says_whether_it_is_compacted(api, value):
    created = await api.post("/sessions", {"model": "qwen3:14b", "compaction": value})
    assert created.json()["compaction"] is value
    path = f"/sessions/{created.json()['session_id']}"
    assert (await api.get(path)).json()["compaction"] is value
    assert (await api.patch(path, {"compaction": not value})).json()["compaction"] is not value
    assert "compaction" not in (await api.patch(path, {"compaction": None})).json()
    refused = await api.patch(path, {"compaction": "yes"})
    assert refused.status_code == 422


async def test_switched_off_a_compacted_history_is_sent_whole_again(api, ollama):
    session_id = await said(api, "One.", "Two.")
    ollama.reply([NOTES])
    await api.post(f"/sessions/{session_id}/compact")
    await api.patch(f"/sessions/{session_id}", {"compaction": False})
    await api.post(f"/chat/{session_id}", {"message": "Three."})
    assert len(ollama.chats[-1]["messages"]) == 5
