"""``/sessions/{session_id}/variants``: several answers to one message."""

from __future__ import annotations

import json

import pytest

from mochi_project.runtime import get_runtime
from mochi_server.sessions.imports.session_file import import_session_file

PLAIN_FILE = {
    "metadata": {"session_id": "old", "model": "qwen3:14b", "format_version": "1.0"},
    "messages": [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "First"},
        {"role": "odd"},
    ],
    "more": [1],
}


async def ask(api, ollama, session_id, answer, **body):
    ollama.reply([answer])
    response = await api.post(f"/chat/{session_id}", body)
    assert response.status_code == 200, response.content
    return response.json()["message"]["message_id"]


async def texts(api, session_id):
    answer = (await api.get(f"/sessions/{session_id}/messages")).json()
    return [message.get("content") for message in answer["messages"]]


async def variants(api, session_id):
    response = await api.get(f"/sessions/{session_id}/variants")
    assert response.status_code == 200, response.content
    return [
        [(each["content"], each["shown"]) for each in message["variants"]]
        for message in response.json()["messages"]
    ]


async def select(api, session_id, message_id, status=200):
    response = await api.post(f"/sessions/{session_id}/variants/{message_id}/select")
    assert response.status_code == status, response.content
    return response.json()


async def found(api, query):
    return (await api.get(f"/sessions?query={query}")).json()["sessions"]


async def test_an_answer_is_kept_and_shown_again(api, ollama):
    session_id = await api.new_session()
    first = await ask(api, ollama, session_id, "Apple", message="A fruit?")
    assert await variants(api, session_id) == []
    await ask(api, ollama, session_id, "Banana", keep=True)
    third = await ask(api, ollama, session_id, "Cherry", keep=True)
    assert await texts(api, session_id) == ["A fruit?", "Cherry"]
    listed = (await api.get(f"/sessions/{session_id}/variants")).json()["messages"]
    [user, cherry] = (await api.get(f"/sessions/{session_id}/messages")).json()["messages"]
    assert [message["message_id"] for message in listed] == [user["message_id"]]
    assert listed[0]["variants"][-1] == {
        **{key: cherry[key] for key in ("message_id", "content", "model")},
        "created_at": cherry["timestamp"],
        "shown": True,
    }
    shown = await select(api, session_id, first)
    assert [message["content"] for message in shown["messages"]] == ["A fruit?", "Apple"]
    assert shown["message_count"] == 2
    one = [("Apple", True), ("Banana", False), ("Cherry", False)]
    assert await variants(api, session_id) == [one]
    await select(api, session_id, first)
    assert await variants(api, session_id) == [one]
    assert [len(await found(api, word)) for word in ("Apple", "Cherry")] == [1, 0]
    await ask(api, ollama, session_id, "Green", message="Its colour?")
    sent = [message["content"] for message in ollama.chats[-1]["messages"]]
    assert sent == ["A fruit?", "Apple", "Its colour?"]
    await select(api, session_id, third)
    assert await texts(api, session_id) == ["A fruit?", "Cherry"]
    await select(api, session_id, first)
    assert await texts(api, session_id) == ["A fruit?", "Apple", "Its colour?", "Green"]
    assert "variants" not in (await api.get(f"/sessions/{session_id}")).json()


async def test_variants_within_what_is_not_shown_come_back_with_it(api, ollama):
    session_id = await api.new_session()
    apple = await ask(api, ollama, session_id, "Apple", message="A fruit?")
    green = await ask(api, ollama, session_id, "Green", message="Its colour?")
    await ask(api, ollama, session_id, "Red", keep=True)
    user = (await api.get(f"/sessions/{session_id}/messages")).json()["messages"][0]
    other = {"role": "assistant", "content": "Plum", "message_id": "plum"}
    path = get_runtime().settings.sessions_path / f"{session_id}.json"
    document = json.loads(path.read_bytes())
    document["variants"][user["message_id"]] = [[other], "odd", [], [{"role": "tool"}]]
    path.write_text(json.dumps(document))
    await select(api, session_id, "plum")
    assert await texts(api, session_id) == ["A fruit?", "Plum"]
    await select(api, session_id, green, status=404)
    await select(api, session_id, apple)
    await select(api, session_id, green)
    assert (await texts(api, session_id))[-1] == "Green"
    await api.put(f"/sessions/{session_id}/messages/2", {"content": "Its taste?"})
    assert await variants(api, session_id) == [[("Plum", False), ("Apple", True)]]
    await api.put(f"/sessions/{session_id}/messages/0", {"content": "A tree?"})
    assert "variants" not in json.loads(path.read_bytes())


async def test_a_failed_turn_loses_no_answer(api, ollama):
    """Nothing is shown then; and what follows a message without an answer is kept as well."""
    session_id = await api.new_session()
    apple = await ask(api, ollama, session_id, "Apple", message="A fruit?")
    ollama.reply(error="no more memory")
    assert (await api.post(f"/chat/{session_id}", {"keep": True})).status_code == 502
    assert await variants(api, session_id) == [[("Apple", False)]]
    await ask(api, ollama, session_id, "Bread", message="Then anything.")
    await select(api, session_id, apple)
    assert await texts(api, session_id) == ["A fruit?", "Apple"]
    [[shown, hidden]] = await variants(api, session_id)
    assert (shown, hidden) == (("Apple", True), ("", False))
    listed = (await api.get(f"/sessions/{session_id}/variants")).json()["messages"]
    await select(api, session_id, listed[0]["variants"][1]["message_id"])
    assert await texts(api, session_id) == ["A fruit?", "Then anything.", "Bread"]


async def test_they_go_with_the_file_and_into_no_fork(api, ollama):
    runtime = get_runtime()
    session_id = await api.new_session()
    apple = await ask(api, ollama, session_id, "Apple", message="A fruit?")
    await ask(api, ollama, session_id, "Banana", keep=True)
    content, _ = await runtime.sessions.storage.read(session_id)
    copy = (await import_session_file(runtime.sessions, content, new_id=True)).session_id
    await select(api, copy, apple)
    assert await texts(api, copy) == ["A fruit?", "Apple"]
    fork = (await api.post(f"/sessions/{session_id}/fork")).json()["session_id"]
    assert await variants(api, fork) == []


async def test_messages_of_old_files_get_ids_when_they_are_kept(api, ollama):
    path = get_runtime().settings.sessions_path / "old.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(PLAIN_FILE))
    await ask(api, ollama, "old", "Second", keep=True)
    assert await variants(api, "old") == [[("First", False), ("Second", True)]]
    listed = (await api.get("/sessions/old/variants")).json()["messages"]
    await select(api, "old", listed[0]["variants"][0]["message_id"])
    assert await texts(api, "old") == ["Hello", "First", None]
    assert json.loads(path.read_bytes())["more"] == [1]


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("POST", "/chat/{}", {"message": "Hi", "keep": True}, "VALIDATION_ERROR"),
        ("POST", "/chat/{}", {"keep": True}, "EMPTY_HISTORY"),
        ("POST", "/sessions/{}/variants/nope/select", None, "MESSAGE_NOT_FOUND"),
        ("POST", "/sessions/nope/variants/nope/select", None, "SESSION_NOT_FOUND"),
        ("GET", "/sessions/nope/variants", None, "SESSION_NOT_FOUND"),
    ],
)
async def test_what_is_refused(api, method, path, body, code):
    response = await api(method, path.format(await api.new_session()), body)
    assert response.json()["error"]["code"] == code


async def test_a_session_is_not_changed_during_its_turn(api, ollama):
    session_id = await api.new_session()
    apple = await ask(api, ollama, session_id, "Apple", message="A fruit?")
    await ask(api, ollama, session_id, "Banana", keep=True)
    async with get_runtime().sessions.claim(session_id):
        error = (await select(api, session_id, apple, status=409))["error"]
    assert error["code"] == "SESSION_BUSY"
