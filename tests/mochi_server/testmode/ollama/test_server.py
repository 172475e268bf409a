"""``mochi-server fake-ollama``: Ollama's wire from the same scripts, for other people's clients."""

from __future__ import annotations

import json
import re
import signal
import socket
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import anyio
import ollama
import pytest

from mochi_server.errors import MochiError, ProviderUnreachable
from mochi_server.protocol.messages import ToolCall
from mochi_server.providers.base import (
    Chunk,
    ContentDelta,
    Finish,
    ModelRequest,
    ThinkingDelta,
)
from mochi_server.providers.ollama.provider import OllamaProvider
from mochi_server.testing import (
    call,
    calls,
    cut,
    error,
    finish_reason,
    instructions,
    malformed_call,
    stall,
    text,
    usage,
)
from tests.support.own_services import standing_in
from tests.support.server import run_command, running_server


@pytest.fixture
async def url() -> AsyncIterator[str]:
    """Where a stand-in without pace listens."""
    async with standing_in() as found:
        yield found


@pytest.fixture
async def http(url: str) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(url) as session:
        yield session


@pytest.fixture
async def library(url: str) -> AsyncIterator[ollama.AsyncClient]:
    """The library that Ollama publishes."""
    async with ollama.AsyncClient(url, trust_env=False) as found:
        yield found


@pytest.fixture
async def provider(url: str) -> AsyncIterator[OllamaProvider]:
    found = OllamaProvider("ollama", host=url)
    yield found
    await found.aclose()


def user(content: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": content}]


async def lines(http: aiohttp.ClientSession, message: str, **fields: Any) -> list[dict[str, Any]]:
    body = {"model": "lorem", "messages": user(message), **fields}
    async with http.post("/api/chat", json=body) as response:
        assert response.status == 200, await response.text()
        assert response.headers["Content-Type"] == "application/x-ndjson"
        return [json.loads(line) async for line in response.content]


async def reply(provider: OllamaProvider, message: str, **fields: Any) -> list[Chunk]:
    asked = ModelRequest(model="lorem", messages=user(message), **fields)
    return [chunk async for chunk in provider.stream(asked)]


async def test_the_library_of_ollama_talks_to_it(library):
    listed = await library.list()
    assert {model.model for model in listed.models} >= {"lorem:latest", "lorem-plain:latest"}
    shown = await library.show("anything")
    assert shown.capabilities == ["completion", "tools", "thinking", "vision"]
    assert shown.modelinfo["lorem.context_length"] == 32768
    parts = [
        part
        async for part in await library.chat(
            "lorem", user("Hello\nReason: why"), stream=True, think=True
        )
    ]
    said = "".join(part.message.content or "" for part in parts)
    assert said.endswith("\n\nHello\nReason: why")
    assert "".join(part.message.thinking or "" for part in parts).startswith("why")
    assert parts[-1].done
    assert parts[-1].done_reason == "stop"
    whole = await library.chat("lorem", user("Hello\nReason: why"), think=True)
    assert whole.message.content == said
    running = await library.ps()
    assert [model.model for model in running.models] == ["lorem:latest"]


async def test_the_library_gets_tool_calls_and_steps(library):
    message = user(instructions(call("add", a=1, b=[2]), then=[[text(exactly="3")]]))
    first = await library.chat("lorem", message)
    (asked,) = first.message.tool_calls
    assert (asked.function.name, asked.function.arguments) == ("add", {"a": 1, "b": [2]})
    history = [*message, first.message, {"role": "tool", "tool_name": "add", "content": "3"}]
    assert (await library.chat("lorem", history)).message.content == "3"


async def test_the_library_gets_errors_with_their_status(library):
    with pytest.raises(ollama.ResponseError, match="gone") as raised:
        await library.chat("lorem", user(instructions(error(404, message="gone"))))
    assert raised.value.status_code == 404


async def test_our_own_provider_talks_to_it(provider):
    assert [model.name for model in await provider.list_models()][:1] == ["lorem:latest"]
    assert (await provider.show_model("anything")).context_length == 32768
    found = await reply(
        provider,
        instructions(
            text(4, reasoning=3), calls(("a", {"x": 1}), ("b", {})), call("c"), usage(5, 6)
        ),
        think=True,
        num_ctx=8192,
    )
    assert sum(isinstance(chunk, ThinkingDelta) for chunk in found) == 1
    asked = [chunk for chunk in found if isinstance(chunk, ToolCall)]
    assert [entry.name for entry in asked] == ["a", "b", "c"]
    assert len({entry.id for entry in asked}) == 3
    finish = found[-1]
    assert isinstance(finish, Finish)
    assert (finish.reason, finish.prompt_eval_count, finish.eval_count) == ("stop", 5, 6)
    assert await provider.loaded_window("lorem") == 8192


async def test_thinking_is_left_out_where_it_was_not_wanted(provider, http):
    found = await reply(provider, instructions(text(4, reasoning=3)), think=False)
    assert not any(isinstance(chunk, ThinkingDelta) for chunk in found)
    absent = await lines(http, instructions(text(4, reasoning=3)))
    assert any("thinking" in line["message"] for line in absent)


async def test_several_streams_become_paragraphs(provider):
    found = await reply(provider, instructions(text(exactly="One."), text(exactly="Two.")))
    said = "".join(chunk.content for chunk in found if isinstance(chunk, ContentDelta))
    assert said == "One.\n\nTwo."


@pytest.mark.parametrize(
    "items",
    [
        [error(500)],
        [text(9), error(500, after_words=3)],
        [cut("disconnect")],
        [text(9), cut("disconnect", after_words=3)],
        [text(9), cut("cancel", after_words=3)],
        [cut("cancel")],
        [malformed_call("add", '{"a": ')],
    ],
)
async def test_our_own_provider_sees_each_failure(provider, items):
    with pytest.raises(MochiError) as raised:
        await reply(provider, instructions(*items))
    if items == [cut("disconnect")]:
        assert isinstance(raised.value, ProviderUnreachable)


async def test_a_cut_comes_at_its_word(http):
    found = await lines(http, instructions(text(30), cut("cancel", after_words=11)))
    assert len("".join(line["message"]["content"] for line in found).split()) == 11
    assert not found[-1]["done"]
    found = await lines(http, instructions(text(30), error(after_words=11)))
    assert found[-1] == {"error": "The test asked for this error."}


async def test_a_disconnect_breaks_the_connection(http):
    for items in ([cut("disconnect")], [text(30), cut("disconnect", after_words=11)]):
        with pytest.raises(aiohttp.ClientError):
            await lines(http, instructions(*items))
    with pytest.raises(aiohttp.ClientError):
        await http.post(
            "/api/chat",
            json={
                "model": "m",
                "stream": False,
                "messages": user(instructions(text(5), cut("cancel"))),
            },
        )


async def test_the_finish_reason_is_told(http):
    found = await lines(http, instructions(text(3), finish_reason("length"), stall(0.01)))
    assert found[-1]["done_reason"] == "length"


async def test_a_schema_gets_a_value_that_it_allows(library):
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 7}}}
    answer = await library.chat("lorem", user("Hello"), format=schema)
    assert json.loads(answer.message.content) == {"n": 7}
    answer = await library.chat("lorem", user("Hello"), format="json")
    assert json.loads(answer.message.content) == {}


async def test_a_model_is_loaded_and_unloaded_without_messages(library):
    answer = await library.chat("lorem", [])
    assert (answer.done, answer.done_reason) == (True, "load")
    assert len((await library.ps()).models) == 1
    assert (await library.chat("lorem", [], keep_alive=0)).done_reason == "unload"
    assert (await library.ps()).models == []


async def test_a_block_that_is_no_script_is_a_bad_request(library):
    with pytest.raises(ollama.ResponseError, match="no script") as raised:
        await library.chat("lorem", user("<|instruction_start|>{}<|instruction_end|>"))
    assert raised.value.status_code == 400


async def test_a_head_has_no_body_and_only_some_may_be_asked_for(http):
    for path, status in (("/", 200), ("/api/version", 200), ("/api/tags", 200), ("/api/ps", 405)):
        async with http.head(path) as response:
            assert (response.status, await response.read()) == (status, b"")
            assert int(response.headers["Content-Length"]) > 0


async def test_a_page_of_this_machine_may_ask_from_a_browser(http):
    page = {"Origin": "http://localhost:3000"}
    asks = {**page, "Access-Control-Request-Method": "POST"}
    async with http.options("/api/chat", headers=asks) as response:
        assert response.status == 204
        assert "POST" in response.headers["Access-Control-Allow-Methods"]
        assert "Content-Type" in response.headers["Access-Control-Allow-Headers"]
        assert response.headers["Access-Control-Allow-Origin"] == page["Origin"]
    body = {"model": "lorem", "messages": user("Hi")}
    async with http.post("/api/chat", json=body, headers=page) as response:
        assert response.headers["Access-Control-Allow-Origin"] == page["Origin"]
        await response.read()
    async with http.post("/api/chat", json=body, headers={"Origin": "http://evil.org"}) as response:
        assert (response.status, await response.read()) == (403, b"")
        assert "Access-Control-Allow-Origin" not in response.headers


@pytest.mark.parametrize("stream", [True, False])
async def test_a_reply_ends_where_num_predict_says(library, stream):
    message = user(instructions(text(exactly="Four and four are eight.", reasoning="Hmm?")))
    for limit, thought, said in ((0, "", ""), (1, "Hmm?", ""), (3, "Hmm?", "Four and")):
        options = {"num_predict": limit}
        found = await library.chat("lorem", message, options=options, think=True, stream=stream)
        parts = [part async for part in found] if stream else [found]
        assert "".join(part.message.thinking or "" for part in parts) == thought
        assert "".join(part.message.content or "" for part in parts) == said
        assert (parts[-1].done_reason, parts[-1].eval_count or 0) == ("length", limit)
    for limit in (-1, 100):
        found = await library.chat("lorem", message, options={"num_predict": limit})
        assert (found.done_reason, found.eval_count) == ("stop", 7)


async def test_a_call_that_is_not_whole_at_the_limit_is_none(library):
    message = user(instructions(text(exactly="Let me see."), call("add", a=1, b=2)))
    options = {"num_predict": 4}
    found = await library.chat("lorem", message, options=options)
    assert (found.message.content, found.message.tool_calls) == ("Let me see.", None)
    assert (found.done_reason, found.eval_count) == ("length", 4)


async def test_a_prompt_that_does_not_fit_is_cut_or_refused(library, http):
    message, options = user("long " * 1000), {"num_ctx": 512}
    found = await library.chat("lorem", message, options=options)
    assert found.prompt_eval_count == 512
    body = {"model": "lorem", "messages": message, "options": options, "truncate": False}
    async with http.post("/api/chat", json=body) as response:
        assert response.status == 400
        told = json.loads((await response.json())["error"])["error"]
    assert (told["type"], told["n_prompt_tokens"], told["n_ctx"]) == (
        "exceed_context_size_error",
        1254,
        512,
    )
    found = await library.chat("lorem", message, options={"num_ctx": 2048})
    assert found.prompt_eval_count == 1254


async def test_thinking_that_is_not_sent_is_not_counted(library):
    message = user(instructions(text(exactly="Yes.", reasoning=100)))
    assert (await library.chat("lorem", message, think=False)).eval_count == 1


@pytest.mark.parametrize("think", [True, "low"])
async def test_who_wants_thinking_gets_some_without_a_word_in_the_message(library, think):
    found = await library.chat("lorem", user("Hi"), think=think)
    unasked = await library.chat("lorem", user("Hi"))
    assert (found.message.thinking or "").endswith("\n\nHi")
    assert found.message.content == unasked.message.content
    assert unasked.message.thinking is None
    thought = found.message.thinking or ""
    assert found.eval_count == -(-(len(thought) + len(found.message.content)) // 4)
    generated = await library.generate("lorem", "Hi", think=think)
    assert generated.thinking == thought
    ordered = await library.chat("lorem", user(instructions(text(exactly="Yes."))), think=think)
    assert ordered.message.thinking is None


async def test_times_are_those_of_the_documentation(library):
    """20 ms for each token and for loading, at one moment."""
    found = await library.chat("lorem", user("Hi"), think=True)
    assert found.created_at == "2025-01-01T00:00:00.123456789Z"
    assert (found.load_duration, found.prompt_eval_count) == (20_000_000, 5)
    assert found.prompt_eval_duration == 5 * 20_000_000
    assert found.eval_duration == found.eval_count * 20_000_000
    assert found.total_duration == (1 + 5 + found.eval_count) * 20_000_000
    assert (await library.list()).models[0].size == 1_000_000


async def test_a_model_that_only_embeds_cannot_chat(library):
    shown = await library.show("lorem-embed")
    assert shown.capabilities == ["embedding"]
    with pytest.raises(ollama.ResponseError, match="does not support chat"):
        await library.chat("lorem-embed", user("Hi"))


async def served(folder: Any, message: str) -> bytes:
    """The bytes of one stream from a process of its own."""
    async with running_server(
        data_dir=folder,
        command=("-m", "mochi_server", "fake-ollama", "--port", "0"),
        test_words_per_second=0,
    ) as server:
        body = {"model": "lorem", "messages": user(message)}
        async with server.http.post(f"{server.url}/api/chat", json=body) as response:
            content = await response.read()
        assert await server.stop(signal.SIGINT) == 0
        return content


@pytest.mark.slow
async def test_two_starts_give_the_same_bytes(tmp_path):
    message = instructions(text(50, reasoning=5), call("add", a=1))
    first = await served(tmp_path, message)
    assert first == await served(tmp_path, message)
    assert first.count(b"\n") > 5


@pytest.mark.slow
async def test_the_command_listens_where_it_is_told_and_the_server_can_use_it(tmp_path):
    stand_in = ("-m", "mochi_server", "fake-ollama", "--port", "0")
    async with running_server(data_dir=tmp_path, command=stand_in, test_words_per_second=0) as fake:
        assert re.search(r"^A stand-in for Ollama listens on http://127\.0\.0\.1:\d+$", fake.log)
        async with running_server(data_dir=tmp_path, ollama=fake.url) as server:
            session = await server.new_session("lorem")
            with anyio.fail_after(30):
                events = [
                    event
                    async for event in server.stream(
                        f"/chat/{session}/stream", {"message": "Hello"}
                    )
                ]
            assert events[-2].event == "message_complete"


async def test_a_port_in_use_is_one_line_and_code_1(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ended = await run_command("fake-ollama", "--port", port, cwd=tmp_path)
    assert (ended.code, ended.out) == (1, "")
    assert f"Port {port} of 127.0.0.1 is in use" in ended.err
