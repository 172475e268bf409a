"""The simple routes at a real server: every documented format, and the file they leave."""

from __future__ import annotations

import asyncio
import json
import uuid

import pytest
import pytest_asyncio

from tests.support.site import running_site
from tests.support.tools import write_tools
from tests.support.turns import masked

pytestmark = pytest.mark.asyncio(loop_scope="module")
own_loop = pytest.mark.asyncio(loop_scope="function")

TOOLS = '''
__all__ = ["add", "subtract"]


def add(a: int, b: int) -> str:
    """Add."""
    return str(a + b)


def subtract(a: int, b: int) -> str:
    """Subtract."""
    return str(a - b)
'''
CALLS = [
    {"name": "add", "arguments": {"a": 2, "b": 3}, "id": "call_a"},
    {"name": "subtract", "arguments": {"a": 9, "b": 2}, "id": "call_b"},
]
NOTE = "Client should simulate word-by-word display"
BATCH = {"batch_mode": True, "fake_streaming_note": NOTE}
MODEL = "qwen3:14b"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("simple")
    write_tools(folder / "tools", init=TOOLS)
    async with running_site(folder, heartbeat_seconds=1) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def site(shared):
    async with shared.lent():
        yield shared


@pytest.fixture
def server(site):
    return site.server


@pytest.fixture
def fake(site):
    """The Ollama behind that server."""
    return site.ollama


@pytest.fixture
def session_id():
    return str(uuid.uuid4())


async def stream(server, body):
    return [event async for event in server.stream("/chat/stream", body)]


async def free_session(server, session_id, **settings):
    """A session that asks nobody about calls, under this id."""
    status, _ = await server.post(
        "/chat", {"message": "Hello", "session_id": session_id, "model": MODEL}
    )
    assert status == 200
    patch = {"tool_settings": {"execution_policy": "never_confirm", **settings}}
    status, body = await server.request("PATCH", f"/sessions/{session_id}", patch)
    assert status == 200, body


async def stored(server, session_id):
    status, body = await server.get(f"/sessions/{session_id}/messages")
    assert status == 200, body
    return body["messages"]


async def names(server):
    """Of all sessions, those of other tests too."""
    return sorted(one["session_id"] for one in (await server.get("/sessions"))[1]["sessions"])


async def test_the_batch_route_makes_the_session_and_answers_in_one_piece(server, fake, session_id):
    fake.reply(["Pa", "ris."])
    body = {"message": "Capital?", "session_id": session_id, "model": MODEL}
    status, answer = await server.post("/chat", {**body, "selected_tools": None})
    assert status == 200
    assert answer == {
        "response": "Paris.",
        "session_id": session_id,
        "model": MODEL,
        "metadata": BATCH,
    }
    assert [m["content"] for m in await stored(server, session_id)] == ["Capital?", "Paris."]


async def test_the_batch_route_offers_no_tools_not_even_those_of_the_session(
    server, fake, session_id
):
    await free_session(server, session_id, tools=["add"])
    body = {"message": "Add", "session_id": session_id, "selected_tools": ["add"]}
    status, _ = await server.post("/chat", body)
    assert status == 200
    assert not fake.chats[-1].get("tools")


async def test_without_an_id_a_session_gets_one(server, fake):
    before = await names(server)
    fake.reply(["Hi."])
    _, answer = await server.post("/chat", {"message": "Hello", "model": MODEL})
    assert str(uuid.UUID(answer["session_id"])) == answer["session_id"]
    assert await names(server) == sorted([answer["session_id"], *before])


@pytest.mark.parametrize("tools", [None, []])
async def test_without_tools_the_text_comes_in_chunks_and_the_last_is_finished(
    server, fake, session_id, tools
):
    fake.reply(["Pa", "ris."], thinking=["Hm"])
    body = {"message": "Capital?", "session_id": session_id, "model": MODEL}
    received = await stream(server, {**body, "selected_tools": tools})
    assert {event.event for event in received} == {"chunk"}
    assert all(set(event.data) == {"content", "session_id", "finished"} for event in received)
    assert {event.data["session_id"] for event in received} == {session_id}
    assert "".join(event.data["content"] for event in received) == "Paris."
    assert [event.data["finished"] for event in received] == [False] * (len(received) - 1) + [True]
    ids = [int(event.id) for event in received]
    assert ids == sorted(set(ids))


async def test_a_null_selection_offers_nothing_though_the_session_has_tools(
    server, fake, session_id
):
    await free_session(server, session_id, tools=["add"])
    await stream(server, {"message": "Add", "session_id": session_id})
    assert not fake.chats[-1].get("tools")


async def test_parallel_calls_come_as_whole_messages_in_the_generic_format(
    server, fake, session_id
):
    await free_session(server, session_id)
    fake.reply(["Let me see."], tool_calls=CALLS, eval_count=20, prompt_eval_count=120)
    fake.reply(["5 and ", "7."], eval_count=9, prompt_eval_count=160)
    body = {"message": "2+3, 9-2?", "session_id": session_id, "model": MODEL}
    received = await stream(server, {**body, "selected_tools": ["add", "subtract"]})
    of = {"session_id": session_id, "model": MODEL, "metadata": BATCH}
    assert [event.event for event in received] == ["message"] * 4
    assert [event.id for event in received] == ["1", "2", "3", "4"]
    calling, first, second, final = (event.data for event in received)
    generic = [
        {
            "id": "call_a",
            "type": "function",
            "function": {"name": "add", "arguments": '{"a":2,"b":3}'},
        },
        {
            "id": "call_b",
            "type": "function",
            "function": {"name": "subtract", "arguments": '{"a":9,"b":2}'},
        },
    ]
    assert calling == {
        "role": "assistant",
        "content": "Let me see.",
        "tool_calls": generic,
        "finish_reason": "tool_calls",
        "usage": {"prompt_tokens": 120, "completion_tokens": 20, "total_tokens": 140},
        "status": "Using tools: add, subtract...",
        "response": "Using tools: add, subtract...",
        **of,
        "finished": False,
    }
    assert first == {
        "role": "tool",
        "content": "5",
        "tool_call_id": "call_a",
        "name": "add",
        "response": "5",
        **of,
        "finished": False,
    }
    assert (second["content"], second["tool_call_id"]) == ("7", "call_b")
    assert final == {
        "role": "assistant",
        "content": "5 and 7.",
        "tool_calls": None,
        "finish_reason": "stop",
        "usage": {"prompt_tokens": 160, "completion_tokens": 9, "total_tokens": 169},
        "response": "5 and 7.",
        **of,
        "finished": True,
    }


async def test_the_model_gets_the_selected_tools_and_their_results(server, fake, session_id):
    await free_session(server, session_id, tools=["subtract"])
    fake.reply(tool_calls=CALLS[:1])
    fake.reply(["5."])
    body = {"message": "2+3?", "session_id": session_id, "selected_tools": ["add"]}
    await stream(server, body)
    request, follow_up = fake.chats[-2:]
    (tool,) = request["tools"]
    assert tool["type"] == "function"
    assert tool["function"]["name"] == "add"
    assert tool["function"]["parameters"]["required"] == ["a", "b"]
    calling, result = follow_up["messages"][-2:]
    assert calling["tool_calls"][0]["function"]["name"] == "add"
    assert (result["role"], result["content"]) == ("tool", "5")
    _, session = await server.get(f"/sessions/{session_id}")
    assert session["tool_settings"]["tools"] == ["subtract"]


async def test_the_stored_file_is_the_same_as_by_the_other_routes(server, fake, session_id, site):
    await free_session(server, session_id, tools=["add", "subtract"])
    usual = str(uuid.uuid4())
    await free_session(server, usual, tools=["add", "subtract"])
    for _ in range(2):
        fake.reply(tool_calls=CALLS)
        fake.reply(["5 and 7."])
    body = {"message": "Both?", "session_id": session_id}
    await stream(server, {**body, "selected_tools": ["add", "subtract"]})
    async for _ in server.stream(f"/chat/{usual}/stream", {"message": "Both?"}):
        pass
    ours, theirs = (
        json.loads((site.folder / "chat_sessions" / f"{one}.json").read_bytes())
        for one in (session_id, usual)
    )
    assert masked(ours["messages"]) == masked(theirs["messages"])
    assert [m["role"] for m in ours["messages"][2:]] == [
        *("user", "assistant", "tool", "tool", "assistant"),
    ]
    for key in ("session_id", "created_at", "updated_at"):
        ours["metadata"].pop(key), theirs["metadata"].pop(key)
    for one in (ours, theirs):
        one["metadata"]["context_window_config"].pop("adjustment_history", None)
        assert one["metadata"]["run"].pop("id").startswith("run_")
    assert ours["metadata"] == theirs["metadata"]


async def test_a_confirmation_passes_through_behind_the_message_that_needs_it(
    server, fake, session_id
):
    fake.reply(tool_calls=CALLS[:1])
    fake.reply(["Done."])
    body = {"message": "2+3?", "session_id": session_id, "model": MODEL, "selected_tools": ["add"]}
    kinds = []
    async for event in server.stream("/chat/stream", body):
        kinds.append((event.event, event.data.get("role")))
        if event.event == "tool_call_confirmation_required":
            decision = {"confirmation_id": event.data["confirmation_id"], "approved": True}
            status, _ = await server.post(f"/chat/{session_id}/confirm-tool", decision)
            assert status == 200
    assert kinds == [
        ("message", "assistant"),
        ("tool_call_confirmation_required", None),
        ("tool_call_confirmation_decided", None),
        ("message", "tool"),
        ("message", "assistant"),
    ]


async def test_an_error_after_the_first_byte_is_an_event_and_the_last_one(server, fake, session_id):
    body = {"message": "Go", "session_id": session_id, "model": MODEL}
    fake.reply(["Half"], error="out of memory")
    received = await stream(server, body)
    assert [event.event for event in received] == ["chunk", "error"]
    assert received[-1].data["code"] == "OLLAMA_ERROR"
    fake.reply(["Half"], error="out of memory")
    received = await stream(server, {**body, "selected_tools": ["add"]})
    assert [event.event for event in received] == ["message", "error"]
    assert (received[0].data["response"], received[0].data["interrupted"]) == ("Half", True)
    assert int(received[1].id) > int(received[0].id)


async def test_an_unknown_tool_is_refused_and_leaves_no_session(server, session_id):
    before = await names(server)
    body = {"message": "x", "session_id": session_id, "model": MODEL, "selected_tools": ["nobody"]}
    status, answer = await server.post("/chat/stream", body)
    assert (status, answer["error"]["code"]) == (404, "TOOL_NOT_FOUND")
    assert await names(server) == before


@own_loop
@pytest.mark.parametrize("route", ["/chat", "/chat/stream"])
@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"message": "x"}, 404, "SESSION_NOT_FOUND"),
        ({"message": " ", "model": MODEL}, 422, "VALIDATION_ERROR"),
        ({"message": "x", "model": MODEL, "session_id": "../x"}, 404, "SESSION_NOT_FOUND"),
        ({"message": "x", "model": MODEL, "tools": []}, 422, "VALIDATION_ERROR"),
        ({"message": "x", "model": "nobody:1b"}, 404, "MODEL_NOT_FOUND"),
    ],
)
async def test_what_is_refused_leaves_no_session(api, route, body, status, code):
    response = await api.post(route, body)
    assert (response.status_code, response.json()["error"]["code"]) == (status, code)
    assert (await api.get("/sessions")).json()["sessions"] == []


async def test_a_model_without_tools_is_refused_only_where_tools_are_selected(
    server, fake, session_id
):
    before = await names(server)
    body = {"message": "x", "session_id": session_id, "model": "gemma3:4b"}
    status, answer = await server.post("/chat/stream", {**body, "selected_tools": ["add"]})
    assert (status, answer["error"]["code"]) == (400, "TOOLS_NOT_SUPPORTED")
    assert await names(server) == before
    fake.reply(["Hi."])
    assert (await stream(server, body))[-1].data["finished"]


async def test_another_model_answers_this_message_and_the_session_keeps_its_own(
    server, fake, session_id
):
    body = {"message": "Hello", "session_id": session_id}
    await server.post("/chat", {**body, "model": MODEL})
    _, answer = await server.post("/chat", {**body, "model": "gemma3:4b"})
    assert answer["model"] == fake.chats[-1]["model"] == "gemma3:4b"
    _, session = await server.get(f"/sessions/{session_id}")
    assert session["model"] == MODEL
    assert session["messages"][-1]["model"] == "gemma3:4b"
    await server.post("/chat", body)
    assert fake.chats[-1]["model"] == MODEL


async def test_two_first_messages_at_once_make_one_session(server, session_id):
    before = await names(server)
    body = {"message": "Hello", "session_id": session_id, "model": MODEL}
    answers = await asyncio.gather(*(server.post("/chat", body) for _ in range(4)))
    statuses = sorted(status for status, _ in answers)
    assert statuses[0] == 200
    assert set(statuses) <= {200, 409}
    assert await names(server) == sorted([session_id, *before])
    assert len(await stored(server, session_id)) == 2 * statuses.count(200)


@pytest.mark.parametrize("tools", [None, ["add"]])
async def test_who_sees_the_finished_event_may_send_the_next_message(
    server, fake, session_id, tools
):
    body = {"message": "Hi", "session_id": session_id, "model": MODEL, "selected_tools": tools}
    for _ in range(10):
        async for event in server.stream("/chat/stream", body):
            if event.data["finished"]:
                status, answer = await server.post("/chat", body)
                assert status == 200, answer


@own_loop
async def test_an_answer_that_was_forced_by_the_limit_of_rounds_says_so(
    server_of, ollama, session_id, tmp_path
):
    write_tools(tmp_path / "tools", init=TOOLS)
    async with server_of(ollama=ollama, max_tool_rounds=1) as server:
        await free_session(server, session_id)
        ollama.reply(tool_calls=CALLS[:1])
        ollama.reply(["Enough."])
        body = {"message": "Add", "session_id": session_id, "selected_tools": ["add"]}
        *others, final = await stream(server, body)
    assert final.data["tool_rounds_exhausted"] is True
    assert not any("tool_rounds_exhausted" in event.data for event in others)


async def test_a_silent_stream_of_messages_sends_signs_of_life(server, fake, session_id):
    gate = asyncio.Event()
    fake.reply(["Hi."], thinking=["Hm"], gate=gate, pause_after=1)
    body = {"message": "x", "session_id": session_id, "model": MODEL}
    text = ""
    async with server.http.post(f"{server.api}/chat/stream", json=body) as response:
        async for part in response.content.iter_any():
            text += part.decode()
            if ": ping\n\n" in text:
                gate.set()
    assert text.startswith("retry: 3000\n\n: ping\n\n")
    assert '"content":"Hi."' in text
