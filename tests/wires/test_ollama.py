"""Ollama's API, by Ollama's own package against a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import anyio
import ollama
import pytest
import pytest_asyncio

from tests.support.decisions import decide_next
from tests.support.fake_ollama import FakeOllama
from tests.support.images import png
from tests.support.scripts import calls, fails, says, scripted, thinks
from tests.support.server import Server, running_server
from tests.wires.test_openai_chat import SERVER_ADD, WEATHER

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def of() -> AsyncIterator[Callable[..., ollama.AsyncClient]]:
    """Makes clients, and closes them at the end."""
    made: list[ollama.AsyncClient] = []

    def client_of(server: Server, path: str = "/ollama", **headers: str) -> ollama.AsyncClient:
        made.append(ollama.AsyncClient(host=f"{server.url}{path}", headers=headers))
        return made[-1]

    yield client_of
    for client in made:
        await client.close()


def user(*replies: list[dict[str, Any]]) -> dict[str, str]:
    return {"role": "user", "content": scripted(*replies)}


async def test_an_answer_in_one_piece_and_as_a_stream(server, of):
    client = of(server)
    answer = await client.chat("lorem", [user([thinks("Hm.", "Hello.")])], think=True)
    assert (answer.message.content, answer.message.thinking) == ("Hello.", "Hm.")
    assert (answer.done, answer.done_reason, answer.model) == (True, "stop", "lorem")
    assert answer.eval_count > 0
    stream = await client.chat("lorem", [user([says("Hello there.")])], stream=True)
    parts = [part async for part in stream]
    assert "".join(part.message.content for part in parts) == "Hello there."
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    assert parts[-1].prompt_eval_count > 0


async def test_generate(server, of):
    prompt = scripted([says("Hello there.")])
    client = of(server)
    assert (await client.generate("lorem", prompt)).response == "Hello there."
    stream = await client.generate("lorem", prompt, stream=True, system="Hi")
    assert "".join([part.response async for part in stream]) == "Hello there."


@pytest.mark.parametrize("stream", [False, True])
async def test_a_function_of_the_client(server, of, stream):
    client, question = of(server), user([calls("weather", city="Rome")], [says("Sunny.")])
    answer = await client.chat("lorem", [question], tools=[WEATHER], stream=stream)
    parts = [part async for part in answer] if stream else [answer]
    [call] = [call for part in parts for call in part.message.tool_calls or ()]
    assert (call.function.name, call.function.arguments) == ("weather", {"city": "Rome"})
    reply = {"role": "assistant", "content": "", "tool_calls": [call.model_dump()]}
    result = {"role": "tool", "tool_name": "weather", "content": "22 degrees"}
    history = [question, reply, result]
    assert (await client.chat("lorem", history, tools=[WEATHER])).message.content == "Sunny."


async def test_a_result_of_a_reply_that_names_no_call(server, of):
    """LiteLLM sends no calls of a reply, and no names of the tools whose results it sends."""
    said = [user([says("Hm.")]), {"role": "assistant", "content": ""}]
    for client in (of(server), of(server, **{"X-Mochi-Session": "new"})):
        for name in (None, "weather"):
            result = {"role": "tool", "content": "22 degrees", "tool_name": name}
            answer = await client.chat("lorem", [*said, result], tools=[WEATHER])
            assert answer.message.content.endswith("22 degrees")


async def test_one_conversation_over_two_wires_and_the_servers_own_api(server, of):
    script = [calls("weather", city="Rome"), calls("add", a=2, b=3)], [says("Both.")]
    body = {"model": "lorem", "messages": [user(*script)], "tools": [WEATHER, SERVER_ADD]}
    headers = {"X-Mochi-Session": "new"}
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: decide_next(server, approved=True))
        url = f"{server.url}/v1/chat/completions"
        async with server.http.post(url, json=body, headers=headers) as response:
            session_id = response.headers["X-Mochi-Session"]
    client = of(server, **{"X-Mochi-Session": session_id})
    result = {"role": "tool", "tool_name": "weather", "content": "22 degrees"}
    answer = await client.chat("lorem", [result], tools=[WEATHER])
    assert answer.message.content == "Both."
    _, session = await server.get(f"/sessions/{session_id}")
    roles = [message["role"] for message in session["messages"]]
    assert roles == ["user", "assistant", "tool", "tool", "assistant"]


async def test_images_and_formats(server, of):
    client = of(server)
    question = {**user([says("A pixel.")]), "images": [png()]}
    assert "A pixel." in (await client.chat("lorem", [question])).message.content
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    told = await client.chat("lorem", [{"role": "user", "content": "Hi"}], format=schema)
    assert told.message.content == '{"city":"Lorem ipsum"}'
    told = await client.chat("lorem", [{"role": "user", "content": "Hi"}], format="json")
    assert told.message.content == "{}"


async def test_text_with_characters_that_end_lines_in_python(server, of):
    text = "one\x85two\u2028three\u2029four"
    stream = await of(server).chat("lorem", [user([says(text)])], stream=True)
    assert "".join([part.message.content async for part in stream]) == text


async def test_what_is_not_taken_is_said(server):
    options = {"num_ctx": 100, "temperature": 0.5}
    body = {"model": "lorem", "prompt": scripted([says("Hi.")]), "stream": False}
    url = f"{server.url}/ollama/api/generate"
    async with server.http.post(url, json={**body, "options": options}) as response:
        assert (await response.json())["mochi"]["ignored_options"] == ["num_ctx"]
    for more in ({"raw": True}, {"suffix": "x"}, {"context": [1]}, {"logprobs": True}):
        async with server.http.post(url, json={**body, **more}) as response:
            assert response.status == 400


async def test_models(server, of):
    client = of(server)
    assert "lorem" in [model.model for model in (await client.list()).models]
    shown = await client.show("lorem")
    assert "tools" in shown.capabilities
    assert (await client.ps()).models == []
    assert (await client.chat("lorem", [])).done_reason == "load"
    assert (await client.generate("lorem", keep_alive=0)).done_reason == "unload"


async def test_embeddings(server, of):
    client = of(server)
    made = await client.embed("lorem", ["one", "two"])
    assert [len(vector) for vector in made.embeddings] == [64, 64]
    assert (made.model, made.prompt_eval_count) == ("lorem", 2)
    assert list((await client.embeddings("lorem", "two")).embedding) == list(made.embeddings[1])
    assert len((await client.embed("lorem", "one", dimensions=8)).embeddings[0]) == 8
    assert (await client.embed("lorem")).embeddings == []
    assert (await client.embeddings("lorem")).embedding == []
    with pytest.raises(ollama.ResponseError, match="missing unit in duration") as caught:
        await client.embed("lorem", "one", keep_alive="300")
    assert caught.value.status_code == 400


async def test_failures(server, of):
    client = of(server)
    with pytest.raises(ollama.ResponseError, match="Gone") as caught:
        await client.chat("lorem", [user([fails(500, "Gone.")])])
    assert caught.value.status_code >= 500
    for change in (client.push, client.delete, partial(client.copy, "copied")):
        with pytest.raises(ollama.ResponseError, match="does not change models") as caught:
            await change("lorem")
        assert caught.value.status_code == 501
    with pytest.raises(ollama.ResponseError) as caught:
        await client.create_blob(__file__)
    assert caught.value.status_code == 501

    async def read():
        script = [says("One two three four."), fails(500, "Later.", after_words=2)]
        async for part in await client.chat("lorem", [user(script)], stream=True):
            received.append(part.message.content)  # noqa: PERF401 - what came before counts

    received: list[str] = []
    with pytest.raises(ollama.ResponseError, match="Later"):
        await read()
    assert "".join(received).strip()


async def test_models_of_ollama_at_the_root(server, of, tmp_path):
    async with server.http.get(f"{server.url}/api/tags") as response:
        assert response.status == 404
    async with (
        FakeOllama() as fake,
        running_server(data_dir=tmp_path, ollama=fake, ollama_at_root="true") as other,
    ):
        client, name = of(other, ""), "qwen3:14b"
        async with other.http.get(other.url) as response:
            assert await response.text() == "Ollama is running"
        status, _ = await other.get("/sessions")
        assert status == 200
        async with other.http.get(f"{other.url}/api/tags") as response:
            [listed, _] = (await response.json())["models"]
        assert (listed["name"], listed["capabilities"]) == (
            name,
            ["completion", "tools", "thinking"],
        )

        loaded = await client.chat(name, [], keep_alive="10m")
        assert (loaded.done, loaded.done_reason, loaded.message.content) == (True, "load", "")
        assert fake.chats[-1]["keep_alive"] == "10m"
        [running] = (await client.ps()).models
        assert (running.model, running.context_length) == (name, 8192)
        assert running.size == running.size_vram > 0

        question = [{"role": "user", "content": "Hi"}]
        asked = {None: True, False: False, "low": "low"}
        for think, sent in asked.items():
            await client.chat(name, question, think=think)
            assert fake.chats[-1]["think"] == sent
        await client.chat("gemma3:4b", question)  # cannot think
        assert fake.chats[-1]["think"] is False
        assert (fake.loads, fake.reloads) == (2, 0)

        told = [each async for each in await client.generate(name, keep_alive=0, stream=True)]
        assert [each.done_reason for each in told] == ["unload"]
        assert [each.model for each in (await client.ps()).models] == ["gemma3:4b"]
        made = await client.embed("nomic-embed-text", ["one", "two"])
        assert len(made.embeddings) == 2
        for ask in (client.generate, client.show):
            with pytest.raises(ollama.ResponseError) as caught:
                await ask("missing")
            assert caught.value.status_code == 404

        assert (await client.pull(name)).status == "success"  # it is there
        told = [each async for each in await client.pull(name, stream=True)]
        assert [each.status for each in told] == ["success"]
        with pytest.raises(ollama.ResponseError, match="does not change models") as caught:
            await client.pull("missing")
        assert caught.value.status_code == 501
