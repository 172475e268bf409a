"""Conversations with a server in test mode; most of them with the same one."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator

import anyio
import pytest
import pytest_asyncio

from mochi_server.server.initialise import run_init
from mochi_server.testing import call, calls, cut, error, instructions, stall, text
from tests.support.conversations import named, said, turn, words_of
from tests.support.server import Server, running_server

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

RUN = re.compile(
    r'(?<="run_id":")run_[0-9a-f]{16}|(?<=_at":")[0-9T:.Z-]+|(?<="timestamp":")[0-9T:.Z-]+'
)
TEST = ("-m", "mochi_server", "--test", "--port", "0")
FREE = {"execution_policy": "never_confirm"}
CALCULATES = {**FREE, "tools": ["calculate"]}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    folder = tmp_path_factory.mktemp("conversations")
    run_init(folder, lambda _: None)
    async with running_server(
        data_dir=folder, environment="test", test_words_per_second=0, summarization_enabled=True
    ) as found:
        yield found


@pytest.fixture
def server(shared: Server) -> Iterator[Server]:
    """A server in test mode without pace, with the examples."""
    yield shared
    assert "Traceback" not in shared.log, shared.log


async def test_the_models_are_some_names_and_any_other_works(server):
    _, listed = await server.get("/models")
    assert {model["name"] for model in listed["models"]} >= {"lorem", "lorem-small"}
    first = listed["models"][0]
    assert first["capabilities"] == ["completion", "tools", "thinking", "vision"]
    assert first["context_length"] == 32768
    assert (await server.get("/models/never-heard-of"))[0] == 200
    assert (await server.get("/health"))[1]["providers"] == {"test": {"reachable": True}}


async def test_by_default_what_is_stored_is_what_was_streamed(server):
    events, messages = await said(server, "Tell me\nReason: think first")
    assert messages[-1]["content"] == words_of(events)
    assert messages[-1]["thinking"] == words_of(events, "thinking_delta")
    assert "interrupted" not in messages[-1]
    assert named(events, "message_complete")[0]["finish_reason"] == "stop"


async def test_a_cancel_in_the_script_stores_the_part_as_interrupted(server):
    outcomes = [
        await said(server, instructions(text(30), cut("cancel", after_words=7))) for _ in "12"
    ]
    for events, messages in outcomes:
        assert [event.event for event in events][-2:] == ["error", "done"]
        assert named(events, "error")[0]["code"] == "PROVIDER_ERROR"
        assert messages[-1]["interrupted"] is True
        assert messages[-1]["content"] == words_of(events)
        assert len(words_of(events).split()) == 7
    assert outcomes[0][1][-1]["content"] == outcomes[1][1][-1]["content"]


async def test_a_message_after_a_failure_is_answered_as_in_a_new_session(server):
    session = await server.new_session("any")
    for message in (instructions(error(503)), instructions(cut("disconnect"))):
        assert named(await turn(server, session, message), "error")
    message = "Once  more,\r\n please.\nReason: the last one failed"
    events = await turn(server, session, message)
    alone, _ = await said(server, message)
    for kind in ("thinking_delta", "content_delta"):
        assert words_of(events, kind) == words_of(alone, kind) != ""


async def test_a_client_that_leaves_at_a_stall_stores_the_part(server):
    session = await server.new_session("any")
    script = instructions(text(30), stall(30, after_words=10))
    async for event in server.stream(f"/chat/{session}/stream", {"message": script}):
        if event.event == "content_delta":
            heard = event.data["content"]
            break
    with anyio.fail_after(30):
        while True:
            _, found = await server.get(f"/sessions/{session}")
            if found["messages"][-1]["role"] == "assistant":
                break
            await anyio.sleep(0.02)
    stored = found["messages"][-1]
    assert stored["interrupted"] is True
    assert stored["content"].startswith(heard)
    assert len(stored["content"].split()) <= 10


async def test_several_streams_become_paragraphs_and_calls_of_one_reply(server):
    script = instructions(
        text(exactly="One."),
        call("calculate", expression="1+1"),
        text(exactly="Two."),
        call("calculate", expression="2+2"),
        reasoning=2,
    )
    _, messages = await said(server, script, tool_settings=CALCULATES)
    reply = messages[1]
    assert reply["content"] == "One.\n\nTwo."
    assert len(reply["thinking"].split("\n\n")) == 2
    asked = [entry["function"]["arguments"]["expression"] for entry in reply["tool_calls"]]
    assert asked == ["1+1", "2+2"]


async def test_a_whole_conversation_with_tools_and_a_confirmation_in_one_message(server):
    script = instructions(
        text(exactly="I write it."),
        calls(
            ("calculate", {"expression": "6*7"}),
            ("write_file", {"path": "answer.txt", "content": "42"}),
        ),
        then=[[call("read_file", path="answer.txt")], [text(exactly="The file says 42.")]],
    )
    session = await server.new_session(
        "any",
        tool_settings={
            "tools": ["calculate", "write_file", "read_file"],
            "execution_policy": "confirm_destructive",
        },
    )
    events = []
    with anyio.fail_after(30):
        async for event in server.stream(f"/chat/{session}/stream", {"message": script}):
            events.append(event)
            if event.event == "tool_call_confirmation_required":
                assert event.data["tool_name"] == "write_file"
                body = {"confirmation_id": event.data["confirmation_id"], "approved": True}
                assert (await server.post(f"/chat/{session}/confirm-tool", body))[0] == 200
    results = {data["tool_name"]: data for data in named(events, "tool_result")}
    assert all(data["success"] for data in results.values()), results
    assert results["calculate"]["result"].endswith("42")
    assert "42" in results["read_file"]["result"]
    assert words_of(events) == "I write it.The file says 42."
    assert len(named(events, "tool_continuation_start")) == 2
    assert [event.event for event in events][-2:] == ["message_complete", "done"]


async def test_an_agent_can_be_scripted_from_the_outer_message(server):
    inner = instructions(
        text(exactly="I look first."),
        then=[[call("list_files")], [text(exactly="The folder is empty.")]],
        lasting=True,
    )
    script = instructions(
        call("agent", agent="coder", instruction=inner), then=[[text(exactly="So it is.")]]
    )
    events, _ = await said(
        server, script, agent_settings={"enabled_agents": ["coder"]}, tool_settings=FREE
    )
    assert words_of(events, "agent_planning") == "I look first."
    assert [data["tool_name"] for data in named(events, "agent_tool_call")] == ["list_files"]
    assert words_of(events, "agent_execution") == "The folder is empty."
    assert words_of(events) == "So it is."


FAILURES = [
    (error(500), "PROVIDER_ERROR"),
    (error(429, retry_after=1), "PROVIDER_BUSY"),
    (error(404), "MODEL_NOT_FOUND"),
    (error(400, code="context_length_exceeded"), "CONTEXT_OVERFLOW"),
    (cut("disconnect"), "PROVIDER_UNREACHABLE"),
    ({"text_message": {"length": -1}}, "PROVIDER_ERROR"),
]


async def test_each_failure_reaches_the_client_as_its_code(server):
    for item, code in FAILURES:
        block = f'<|instruction_start|>{{"messages": [{json.dumps(item)}]}}<|instruction_end|>'
        events, _ = await said(server, block)
        assert [event.event for event in events] == ["run_start", "error", "done"]
        assert named(events, "error")[0]["code"] == code, item


async def test_when_to_try_again_is_told_by_a_stream_too(server):
    busy = instructions(error(429, retry_after=20))
    events, _ = await said(server, busy)
    assert named(events, "error")[0]["details"]["retry_after"] == 20
    session = await server.new_session("any")
    async with server.http.post(f"{server.api}/chat/{session}", json={"message": busy}) as answer:
        body = await answer.json()
        assert (answer.status, answer.headers["Retry-After"]) == (503, "20")
    assert body["error"]["details"]["retry_after"] == 20


async def test_the_words_of_a_failure_reach_the_client_as_they_were_ordered(server):
    message = "The test of the no-key latest proxy failed."
    events, _ = await said(server, instructions(error(500, message=message)))
    assert named(events, "error")[0]["message"].endswith(f": {message}")


async def transcript(server: Server) -> list[str]:
    """Every byte of some streams, without the ids and times of their runs."""
    found = []
    for message in (
        "Hello\nReason: why not",
        instructions(text(40), call("calculate", expression="1+1"), then=[[text(3)]]),
        instructions(calls(*(("calculate", {"expression": f"1+{n}"}) for n in range(4)))),
        instructions(text(40), error(500, after_words=20)),
    ):
        session = await server.new_session("any", tool_settings=CALCULATES)
        url = f"{server.api}/chat/{session}/stream"
        async with server.http.post(url, json={"message": message}) as response:
            found.append(RUN.sub("", await response.text()))
        _, stored = await server.get(f"/sessions/{session}")
        found.append(str([entry["message_id"] for entry in stored["messages"]]))
    new = {"model": "any", "message": "Hi"}
    async with server.http.post(f"{server.api}/chat/stream", json=new) as response:
        assert response.status == 200
        found.append(await response.text())
    return found


async def test_two_starts_give_the_same_bytes(tmp_path):
    run_init(tmp_path, lambda _: None)
    transcripts = []
    for _ in range(2):
        options = {"command": TEST, "test_words_per_second": 0}
        async with running_server(data_dir=tmp_path, **options) as fresh:
            transcripts.append(await transcript(fresh))
    assert transcripts[0] == transcripts[1]
    assert transcripts[0][0].count("content_delta") > 1


async def test_summaries_are_written_too(server):
    session_id = await server.new_session(model="lorem")
    await server.post(f"/chat/{session_id}", {"message": "Hello"})
    status, written = await server.post(f"/sessions/{session_id}/summarize")
    assert (status, written["model_used"]) == (200, "lorem")
    assert written["summary"]
    assert written["topics"]
