"""``POST /sessions/{session_id}/fork``."""

from __future__ import annotations

import json

import pytest

from mochi_project.runtime import get_runtime
from mochi_server.protocol.messages import AssistantMessage, ToolMessage, UserMessage

SETTINGS = {
    "tool_settings": {
        "tools": ["add"],
        "tool_group": None,
        "execution_policy": "never_confirm",
        "tool_policies": {"add": "always_confirm"},
    },
    "agent_settings": {"enabled_agents": ["coder"]},
    "options": {"seed": 7},
    "title": "Sums",
    "tags": ["maths"],
}


async def messages_of(api, session_id):
    return (await api.get(f"/sessions/{session_id}/messages")).json()["messages"]


async def fork_of(api, session_id, body=None):
    response = await api.post(f"/sessions/{session_id}/fork", body)
    assert response.status_code == 201
    return response.json()


async def with_messages(session_id, *messages):
    async with get_runtime().sessions.edit(session_id) as session:
        session.append(*messages)


async def test_both_go_on_from_the_same_beginning(api, ollama):
    session_id = await api.new_session(system_prompt="Be brief.", pinned=True, **SETTINGS)
    for number in range(3):
        ollama.reply([f"Answer {number}"])
        await api.post(f"/chat/{session_id}", {"message": f"Question {number}"})
    before = await messages_of(api, session_id)
    fork = await fork_of(api, session_id, {"message_id": before[2]["message_id"]})
    fork_id = fork["session_id"]
    assert fork_id != session_id
    assert await messages_of(api, fork_id) == before[:3]
    detail = (await api.get(f"/sessions/{fork_id}")).json()
    assert SETTINGS["tool_settings"] == detail["tool_settings"]
    assert detail["agent_settings"]["enabled_agents"] == ["coder"]
    assert (detail["options"], detail["title"], detail["tags"]) == ({"seed": 7}, "Sums", ["maths"])
    assert (detail["pinned"], detail["summary"]) == (False, None)
    assert "run" not in detail
    source = {"session_id": session_id, "message_id": before[2]["message_id"]}
    assert detail["forked_from"] == source
    ollama.reply(["Otherwise"])
    await api.post(f"/chat/{fork_id}", {"message": "And else?"})
    assert [each["content"] for each in await messages_of(api, fork_id)] == [
        "Be brief.", "Question 0", "Answer 0", "And else?", "Otherwise"
    ]  # fmt: skip
    assert await messages_of(api, session_id) == before
    listed = (await api.get("/sessions")).json()["sessions"]
    assert [each["session_id"] for each in listed] == [fork_id, session_id]


@pytest.mark.parametrize("body", [None, {}, {"message_id": None}])
async def test_without_a_message_all_are_copied(api, ollama, body):
    session_id = await api.new_session()
    assert (await fork_of(api, session_id, body))["message_count"] == 0
    await api.post(f"/chat/{session_id}", {"message": "Hello"})
    fork = await fork_of(api, session_id, body)
    assert fork["message_count"] == 2
    assert await messages_of(api, fork["session_id"]) == await messages_of(api, session_id)


async def test_a_question_can_be_answered_anew_in_a_fork(api, ollama):
    ollama.reply(["first"])
    ollama.reply(["second"])
    session_id = await api.new_session()
    await api.post(f"/chat/{session_id}", {"message": "Hello"})
    question, _ = await messages_of(api, session_id)
    fork_id = (await fork_of(api, session_id, {"message_id": question["message_id"]}))["session_id"]
    await api.post(f"/chat/{fork_id}", {})
    assert [each["content"] for each in await messages_of(api, fork_id)] == ["Hello", "second"]
    assert [each["content"] for each in await messages_of(api, session_id)] == ["Hello", "first"]


async def test_the_results_of_calls_stay_with_them(api):
    session_id = await api.new_session()
    call = {"id": "c", "function": {"name": "add", "arguments": {}}}
    reply = AssistantMessage(content="", model="m", tool_calls=[call, {**call, "id": "d"}])
    results = [ToolMessage(content="5", tool_name="add", tool_call_id=each) for each in ("c", "d")]
    await with_messages(session_id, UserMessage(content="?"), reply, *results)
    await with_messages(session_id, AssistantMessage(content="5", model="m"))
    for message in (reply, results[0]):
        fork = await fork_of(api, session_id, {"message_id": message.message_id})
        assert fork["message_count"] == 4


async def test_attachments_belong_to_both(api):
    runtime = get_runtime()
    session_id = await api.new_session()
    kept = await runtime.attachments.put(session_id, b"kept", "text/plain", "a.txt")
    late = await runtime.attachments.put(session_id, b"late", "text/plain", "b.txt")
    first = UserMessage(content="Read.", attachments=[kept.payload()])
    await with_messages(session_id, first, UserMessage(content="!", attachments=[late.payload()]))
    fork_id = (await fork_of(api, session_id, {"message_id": first.message_id}))["session_id"]
    await api.delete(f"/sessions/{session_id}")
    response = await api.get(f"/sessions/{fork_id}/attachments/{kept.attachment_id}")
    assert b"".join([part async for part in response]) == b"kept"
    places = {path.stem for path in runtime.settings.attachments_path.rglob("*") if path.is_file()}
    assert places == {kept.attachment_id}
    await api.delete(f"/sessions/{fork_id}")
    assert not list(runtime.settings.attachments_path.iterdir())


async def test_what_other_programs_have_written_is_kept(api):
    session_id = await api.new_session()
    path = get_runtime().settings.sessions_path / f"{session_id}.json"
    content = json.loads(path.read_bytes())
    content["metadata"]["of_another"] = {"x": 1}
    content["messages"] = [{"role": "user", "content": "a", "of_another": 2}, 7, {"role": "odd"}]
    path.write_text(json.dumps(content))
    fork = await fork_of(api, session_id)
    assert await messages_of(api, fork["session_id"]) == content["messages"]
    detail = (await api.get(f"/sessions/{fork['session_id']}")).json()
    assert detail["of_another"] == {"x": 1}
    assert detail["forked_from"] == {"session_id": session_id, "message_id": None}


async def test_what_is_not_there_makes_no_fork(api):
    session_id = await api.new_session()
    for path, body, error in (
        (session_id, {"message_id": "nothing"}, (404, "MESSAGE_NOT_FOUND")),
        ("nobody", {}, (404, "SESSION_NOT_FOUND")),
        (session_id, {"message": "x"}, (422, "VALIDATION_ERROR")),
        (session_id, {"message_id": 7}, (422, "VALIDATION_ERROR")),
    ):
        response = await api.post(f"/sessions/{path}/fork", body)
        assert (response.status_code, response.json()["error"]["code"]) == error
    listed = (await api.get("/sessions")).json()["sessions"]
    assert [each["session_id"] for each in listed] == [session_id]
