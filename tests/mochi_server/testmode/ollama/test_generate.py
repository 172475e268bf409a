"""What clients of Ollama ask for besides a chat: plain generation, vectors, a pull."""

from __future__ import annotations

import contextlib
import json
import math
import socket
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import aiohttp
import ollama
import pytest

from mochi_server.testing import (
    call,
    cut,
    error,
    finish_reason,
    instructions,
    malformed_call,
    running_fake_ollama,
    stall,
    text,
)
from tests.support.own_services import standing_in
from tests.support.server import environment, run_command


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with standing_in() as found:
        yield found


@pytest.fixture
async def http(url: str) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(url) as session:
        yield session


@pytest.fixture
async def library(url: str) -> AsyncIterator[ollama.AsyncClient]:
    async with ollama.AsyncClient(url, trust_env=False) as found:
        yield found


async def asked(http: aiohttp.ClientSession, path: str, body: Any) -> tuple[int, str, list[Any]]:
    """Status, content type, and the lines of the answer, their keys in order."""
    async with http.post(path, json=body) as response:
        kind = response.headers["Content-Type"]
        return response.status, kind, [json.loads(line) async for line in response.content]


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/api/chat", "/api/generate"])
@pytest.mark.parametrize("stream", [True, False])
def test_it_has_no_word_for_a_client_that_leaves(path, stream):
    with running_fake_ollama(test_words_per_second=200) as server:
        order = instructions(text(300) if stream else stall(1), text(5))
        body = {"model": "any", "prompt": order, "messages": [{"role": "user", "content": order}]}
        request = Request(f"{server.url}{path}", json.dumps({**body, "stream": stream}).encode())
        address = urlsplit(server.url)
        with socket.create_connection((address.hostname, address.port)) as connection:
            head = f"POST {path} HTTP/1.1\r\nHost: {address.netloc}\r\n"
            head += f"Content-Length: {len(request.data)}\r\n\r\n"
            connection.sendall(head.encode() + request.data)
            if stream:
                assert b"200 OK" in connection.recv(1000)
        with urlopen(request, timeout=60) as later:
            assert b'"done":true' in later.read()
        assert server.log.count("\n") == 1, server.log


async def test_a_prompt_is_answered_as_a_message_is(library):
    order = instructions(text(12, reasoning=4))
    said = [part async for part in await library.generate("any", order, stream=True)]
    chat = await library.chat("any", [{"role": "user", "content": order}])
    assert "".join(part.response for part in said) == chat.message.content
    assert "".join(part.thinking or "" for part in said) == chat.message.thinking
    assert [part.done for part in said] == [False] * (len(said) - 1) + [True]
    assert said[-1].done_reason == "stop"
    whole = await library.generate("any", order)
    assert (whole.response, whole.thinking) == (chat.message.content, chat.message.thinking)
    assert (whole.eval_count, whole.prompt_eval_count) == (
        chat.eval_count,
        chat.prompt_eval_count,
    )


async def test_lines_of_a_generation_have_their_keys_in_order(http):
    order = instructions(text(2, reasoning=1))
    status, kind, lines = await asked(http, "/api/generate", {"model": "any", "prompt": order})
    assert (status, kind) == (200, "application/x-ndjson")
    head = ["model", "created_at", "response"]
    counts = ["total_duration", "load_duration", "prompt_eval_count", "prompt_eval_duration"]
    assert [list(line) for line in lines] == [
        [*head, "thinking", "done"],
        [*head, "done"],
        [*head, "done", "done_reason", *counts, "eval_count", "eval_duration"],
    ]


async def test_a_generation_has_the_system_prompt_the_format_and_the_limit(library):
    plain = await library.generate("any", "Hi")
    longer = await library.generate("any", "Hi", system="four" * 100)
    assert longer.prompt_eval_count - plain.prompt_eval_count == 104
    assert longer.response == plain.response
    assert (await library.generate("any", "Hi", format="json")).response == "{}"
    cut_short = await library.generate("any", "Hi", options={"num_predict": 3})
    assert (cut_short.done_reason, cut_short.eval_count) == ("length", 3)
    quiet = await library.generate("any", "Hi\nReason: so", think=False)
    assert quiet.thinking is None


async def test_a_generation_obeys_the_other_items(library):
    with pytest.raises(ollama.ResponseError, match="busy") as caught:
        await library.generate("any", instructions(error(503, message="busy")))
    assert caught.value.status_code == 503
    late = instructions(text(9), error(500, message="late", after_words=3))
    with pytest.raises(ollama.ResponseError, match="late"):
        [part async for part in await library.generate("any", late, stream=True)]
    short = instructions(text(9), stall(0.01), cut("cancel", after_words=3))
    said = [part async for part in await library.generate("any", short, stream=True)]
    assert len("".join(part.response for part in said).split()) == 3
    assert not said[-1].done
    ended = await library.generate("any", instructions(text(2), finish_reason("length")))
    assert ended.done_reason == "length"


@pytest.mark.parametrize("stream", [True, False])
async def test_calls_come_with_the_end_of_a_generation_behind_its_counts(http, stream):
    order = instructions(call("add", a=1), text(2))
    _, _, lines = await asked(
        http, "/api/generate", {"model": "any", "prompt": order, "stream": stream}
    )
    assert [line["done"] for line in lines] == ([False, True] if stream else [True])
    assert list(lines[-1])[-2:] == ["eval_duration", "tool_calls"]
    assert lines[-1]["tool_calls"][0]["function"]["arguments"] == {"a": 1}


async def test_without_a_prompt_a_model_is_loaded_or_unloaded(http, library):
    _, kind, (loaded,) = await asked(http, "/api/generate", {"model": "any"})
    assert kind == "application/json; charset=utf-8"
    assert (loaded["response"], loaded["done"], loaded["done_reason"]) == ("", True, "load")
    assert [model.model for model in (await library.ps()).models] == ["any:latest"]
    gone = await library.generate("any", keep_alive=0)
    assert gone.done_reason == "unload"
    assert (await library.ps()).models == []


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        ({}, 404, "model '' not found"),
        ({"model": "no name"}, 404, "model 'no name' not found"),
        (
            {"model": "a", "raw": 5},
            400,
            "json: cannot unmarshal number into Go struct field GenerateRequest.raw of type bool",
        ),
        (
            [],
            400,
            "json: cannot unmarshal array into Go value of type api.GenerateRequest",
        ),
        (
            {"model": "a", "prompt": "x", "raw": True, "system": "y"},
            400,
            "raw mode does not support template, system, or context",
        ),
        (
            {"model": "a", "prompt": "x", "suffix": "y"},
            400,
            "registry.ollama.ai/library/a:latest does not support insert",
        ),
        (
            {"model": "lorem-embed", "prompt": "x"},
            400,
            '"lorem-embed" does not support generate',
        ),
        (
            {"model": "lorem-plain", "prompt": "x", "think": True},
            400,
            '"lorem-plain" does not support thinking',
        ),
        (
            {"model": "a", "prompt": "x", "options": {"seed": "1"}},
            500,
            'option "seed" must be of type integer',
        ),
    ],
)
async def test_a_generation_is_refused_in_the_words_of_ollama(http, body, status, told):
    found = await asked(http, "/api/generate", body)
    assert (found[0], found[2]) == (status, [{"error": told}])


async def test_texts_have_vectors_of_length_one_that_are_always_the_same(library):
    found = await library.embed("lorem-embed", ["one", "two", "one"])
    one, two, again = found.embeddings
    assert len(one) == 64
    assert math.isclose(sum(x * x for x in one), 1, rel_tol=1e-6)
    assert one == again != two
    assert found.prompt_eval_count == 3
    (alone,) = (await library.embed("lorem-embed", "one")).embeddings
    assert alone == one
    assert (await library.embeddings("lorem-embed", "one")).embedding == one
    (short,) = (await library.embed("lorem-embed", "one", dimensions=8)).embeddings
    assert len(short) == 8
    assert math.isclose(sum(x * x for x in short), 1, rel_tol=1e-6)


async def test_nothing_has_no_vector(http):
    for body in ({"input": []}, {"input": ""}, {}):
        _, _, (found,) = await asked(http, "/api/embed", {"model": "lorem-embed", **body})
        assert found == {"model": "lorem-embed", "embeddings": []}
    _, _, found = await asked(http, "/api/embeddings", {"model": "lorem-embed"})
    assert found == [{"embedding": []}]


@pytest.mark.parametrize(
    ("path", "body", "status", "told"),
    [
        ("embed", {"model": "a", "input": 5}, 400, "invalid input type"),
        ("embed", {"model": "a", "input": ["a", 5]}, 400, "invalid input type"),
        ("embed", {"model": "no name", "input": "x"}, 404, "model 'no name' not found"),
        (
            "embed",
            {"model": "lorem-small", "input": "four" * 5000, "truncate": False},
            400,
            "the input length exceeds the context length",
        ),
        ("embeddings", {"prompt": "x"}, 400, "model is required"),
        ("pull", {}, 400, "invalid model name"),
    ],
)
async def test_other_requests_are_refused_in_the_words_of_ollama(http, path, body, status, told):
    found = await asked(http, f"/api/{path}", body)
    assert (found[0], found[2]) == (status, [{"error": told}])


async def test_a_pull_ends_with_success(library):
    assert (await library.pull("any")).status == "success"
    told = [part async for part in await library.pull("any", stream=True)]
    assert told[0].status == "pulling manifest"
    assert told[-1].status == "success"
    assert any(part.total and part.completed == part.total for part in told)


@pytest.mark.parametrize("path", ["generate", "embed", "embeddings", "pull"])
async def test_these_are_asked_for_by_post_only(http, path):
    async with http.get(f"/api/{path}") as response:
        assert (response.status, await response.text()) == (405, "405 method not allowed")


@pytest.mark.parametrize(
    ("items", "status", "told"),
    [
        ([malformed_call("add", '{"a": ')], 500, "error parsing tool call: raw='{\"a\": ', err="),
        ([call("say", text="a long word or two"), error(503, after_words=2)], 503, "The test"),
    ],
)
@pytest.mark.parametrize("path", ["chat", "generate"])
async def test_an_error_before_the_first_line_has_its_status(http, path, items, status, told):
    order = instructions(*items)
    said = {"prompt": order, "messages": [{"role": "user", "content": order}]}
    found = await asked(http, f"/api/{path}", {"model": "any", **said})
    assert found[:2] == (status, "application/json")
    assert found[2][0]["error"].startswith(told)


async def test_where_tests_are_run_it_still_listens_on_the_port_of_ollama(tmp_path):
    """And not on the one of test mode, which may run beside it."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # whoever has the port: it is in use
            stack.enter_context(socket.create_server(("127.0.0.1", 11434)))
        ended = await run_command("fake-ollama", cwd=tmp_path, env=environment(environment="test"))
    assert ended.code == 1
    assert "Port 11434 of 127.0.0.1 is in use" in ended.err


async def test_without_a_stream_an_error_has_its_status_however_late_it_comes(http):
    order = instructions(text(9), error(503, message="late", after_words=3))
    body = {"model": "any", "prompt": order, "stream": False}
    found = await asked(http, "/api/generate", body)
    assert (found[0], found[2]) == (503, [{"error": "late"}])
