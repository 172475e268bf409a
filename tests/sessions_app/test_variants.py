"""``/sessions/{session_id}/variants``: several answers to one message."""

from __future__ import annotations

import asyncio
import json

import pytest

from mochi_project.runtime import get_runtime
from mochi_server.sessions.imports.session_file import import_session_file
from tests.support.waiting import until

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
        "question": None,
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
    edited = [("Green", False), ("Red", False)]
    assert await variants(api, session_id) == [[("Plum", False), ("Apple", True)], edited]
    await ask(api, ollama, session_id, "Sweet")
    assert await variants(api, session_id) == [[("Plum", False), ("Apple", True)]]
    await api.put(f"/sessions/{session_id}/messages/0", {"content": "A tree?"})
    await ask(api, ollama, session_id, "Oak")
    assert "variants" not in json.loads(path.read_bytes())


class Client:
    """Answers the last question of a session again, and can be left in the lurch."""

    def __init__(self, api, ollama, session_id, **body):
        self.api, self.ollama, self.session_id, self.body = api, ollama, session_id, body

    async def fail(self, how):
        """Answer again without success; the model says nothing, or what ``how`` says first."""
        path = f"/chat/{self.session_id}"
        match how:
            case "unreachable":
                self.ollama.play_raw([], end="reset")
            case "refused":
                self.ollama.reply(error="no more memory")
            case "left":
                gate = asyncio.Event()
                self.ollama.reply(["Banana"], gate=gate)
                response = await self.api.post(f"{path}/stream", self.body)
                await self.ollama.requested(len(self.ollama.chats) + 1)
                response.close()
                await wait_until_free(self.api, self.session_id)
                gate.set()
                return
            case "cut":
                self.ollama.reply(["Ban"], error="no more memory")
            case "tools":
                self.ollama.reply(["Let me see."], tool_calls=[{"name": "nope"}])
                self.ollama.reply(error="no more memory")
        response = await self.api.post(path, self.body)
        assert response.status_code == 502, response.content


async def wait_until_free(api, session_id):
    path = f"/runs?session_id={session_id}&state=running"
    await until(lambda: api.get(path), lambda answer: not answer.json()["runs"])


@pytest.mark.parametrize("body", [{}, {"keep": True}])
@pytest.mark.parametrize("how", ["unreachable", "refused", "left"])
async def test_an_answer_stays_until_another_one_comes(api, ollama, body, how):
    session_id = await api.new_session()
    await ask(api, ollama, session_id, "Apple", message="A fruit?")
    before = (await api.get(f"/sessions/{session_id}/messages")).json()
    await Client(api, ollama, session_id, **body).fail(how)
    assert (await api.get(f"/sessions/{session_id}/messages")).json() == before
    assert await variants(api, session_id) == []
    await ask(api, ollama, session_id, "Cherry", **body)
    assert [message["content"] for message in ollama.chats[-1]["messages"]] == ["A fruit?"]
    assert await texts(api, session_id) == ["A fruit?", "Cherry"]
    kept = [[("Apple", False), ("Cherry", True)]]
    assert await variants(api, session_id) == (kept if body else [])


@pytest.mark.parametrize("body", [{}, {"keep": True}])
@pytest.mark.parametrize(
    ("how", "shown"), [("cut", ["Ban"]), ("tools", ["Let me see.", "Error: Unknown tool 'nope'."])]
)
async def test_an_answer_is_a_variant_until_another_one_is_complete(api, ollama, body, how, shown):
    session_id = await api.new_session()
    apple = await ask(api, ollama, session_id, "Apple", message="A fruit?")
    await Client(api, ollama, session_id, **body).fail(how)
    assert (await texts(api, session_id))[:2] == ["A fruit?", shown[0]]
    assert await variants(api, session_id) == [[("Apple", False), (shown[0], True)]]
    await select(api, session_id, apple)
    assert await texts(api, session_id) == ["A fruit?", "Apple"]
    await Client(api, ollama, session_id, **body).fail(how)
    await ask(api, ollama, session_id, "Cherry", **body)
    assert await texts(api, session_id) == ["A fruit?", "Cherry"]
    [answers] = await variants(api, session_id)
    assert [text for text, _ in answers].count("Apple") == bool(body)
    assert answers[-1] == ("Cherry", True)


@pytest.mark.parametrize("index", [0, 2])
async def test_an_edited_question_comes_back_with_its_answer(api, ollama, index):
    """Until the edited one has an answer."""
    session_id = await api.new_session()
    await ask(api, ollama, session_id, "Apple", message="A fruit?")
    await ask(api, ollama, session_id, "Green", message="Its colour?")
    before = (await api.get(f"/sessions/{session_id}/messages")).json()
    await api.put(f"/sessions/{session_id}/messages/{index}", {"content": "A tree?"})
    edited = [*(message["content"] for message in before["messages"][:index]), "A tree?"]
    assert await texts(api, session_id) == edited
    for how in ("refused", "cut"):
        await Client(api, ollama, session_id).fail(how)
    [listed] = (await api.get(f"/sessions/{session_id}/variants")).json()["messages"]
    old, cut = listed["variants"]
    assert old["question"] == before["messages"][index]["content"]
    assert (cut["content"], cut["shown"], cut["question"]) == ("Ban", True, None)
    await select(api, session_id, old["message_id"])
    assert (await api.get(f"/sessions/{session_id}/messages")).json() == before
    await select(api, session_id, cut["message_id"])
    assert await texts(api, session_id) == [*edited, "Ban"]
    await select(api, session_id, old["message_id"])
    await api.put(f"/sessions/{session_id}/messages/{index}", {"content": "A tree?"})
    await ask(api, ollama, session_id, "Oak")
    assert await texts(api, session_id) == [*edited, "Oak"]
    assert await variants(api, session_id) == []


async def test_what_follows_a_message_without_an_answer_is_kept_as_well(api, ollama):
    session_id = await api.new_session()
    ollama.reply(error="no more memory")
    assert (await api.post(f"/chat/{session_id}", {"message": "A fruit?"})).status_code == 502
    await ask(api, ollama, session_id, "Bread", message="Then anything.")
    user = (await api.get(f"/sessions/{session_id}/messages")).json()["messages"][0]
    apple = {"role": "assistant", "content": "Apple", "message_id": "apple"}
    await keep_beside(session_id, user["message_id"], apple)
    await select(api, session_id, "apple")
    assert await texts(api, session_id) == ["A fruit?", "Apple"]
    [[hidden, shown]] = sorted(await variants(api, session_id))
    assert {hidden, shown} == {("Apple", True), ("", False)}
    listed = (await api.get(f"/sessions/{session_id}/variants")).json()["messages"]
    other = next(each for each in listed[0]["variants"] if not each["shown"])
    await select(api, session_id, other["message_id"])
    assert await texts(api, session_id) == ["A fruit?", "Then anything.", "Bread"]


async def keep_beside(session_id, user_id, *branch):
    """Write a branch into the file, as another program might."""
    path = get_runtime().settings.sessions_path / f"{session_id}.json"
    document = json.loads(path.read_bytes())
    document.setdefault("variants", {}).setdefault(user_id, []).append([*branch])
    path.write_text(json.dumps(document))


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
