"""Conversations by packages for Python that talk to OpenAI's API, against a real server."""

from __future__ import annotations

import asyncio
import json
import sys
from base64 import b64encode
from pathlib import Path
from typing import Any

import anyio
import pytest
from openai import AsyncOpenAI, DefaultAsyncHttpxClient, DefaultHttpxClient
from pydantic import BaseModel

from tests.support.decisions import decide_next
from tests.support.images import png
from tests.support.scripts import calls, says, scripted, thinks
from tests.support.server import Server
from tests.wires.test_openai_chat import SERVER_ADD

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # theirs
]

SAID = scripted([thinks("Hm.", "Hello there.")])
CALLED = scripted([calls("weather", city="Rome")], [says("Sunny.")])
SUM = scripted([calls("add", a=2, b=3)], [says("Done.")])


class Town(BaseModel):
    """A town."""

    name: str
    people: int


def weather(city: str) -> str:
    """Tell the weather of a city."""
    return f"22 degrees in {city}"


@pytest.mark.parametrize("responses", [False, True])
async def test_langchain(server: Server, responses: bool) -> None:
    from langchain_openai import ChatOpenAI  # noqa: PLC0415 - takes seconds

    web, async_web = DefaultHttpxClient(), DefaultAsyncHttpxClient()
    options: Any = {"base_url": f"{server.url}/v1", "api_key": "none", "max_retries": 0}
    options |= {"http_client": web, "http_async_client": async_web}
    model = ChatOpenAI(model="lorem", use_responses_api=responses, **options)
    answer = await model.ainvoke([("system", "Be brief."), ("human", SAID)])
    assert answer.text == "Hello there."
    assert answer.usage_metadata["output_tokens"] > 0
    assert "".join([part.text async for part in model.astream(SAID)]) == "Hello there."

    history: list[Any] = [("human", CALLED)]
    asked = await model.bind_tools([weather]).ainvoke(history)
    [call] = asked.tool_calls
    assert (call["name"], call["args"]) == ("weather", {"city": "Rome"})
    history += [asked, {"role": "tool", "tool_call_id": call["id"], "content": weather("Rome")}]
    assert (await model.bind_tools([weather]).ainvoke(history)).text == "Sunny."

    parts = [{"type": "text", "text": "What?"}, {"type": "image", "mime_type": "image/png"}]
    parts[1]["base64"] = b64encode(png()).decode()
    assert "[files: 1]" in (await model.ainvoke([("human", parts)])).text
    town = await model.with_structured_output(Town, method="json_schema").ainvoke("Which town?")
    assert isinstance(town, Town)

    if responses:  # the question ends the answer, and the client decides
        asked = await model.bind(tools=[SERVER_ADD]).ainvoke(SUM)
        approval = {"type": "mcp_approval_response", "approve": True}
        approval["approval_request_id"] = asked.content[-1]["id"]
        decided = {"role": "user", "content": [approval]}
        previous = asked.response_metadata["id"]
        assert (await model.ainvoke([decided], previous_response_id=previous)).text == "Done."
    else:
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: decide_next(server, approved=True))
            assert (await model.bind(tools=[SERVER_ADD]).ainvoke(SUM)).text == "Done."
    web.close()
    await async_web.aclose()


@pytest.mark.parametrize("kind", ["OpenAIChatModel", "OpenAIResponsesModel"])
async def test_pydantic_ai(server: Server, kind: str) -> None:
    from pydantic_ai import Agent, BinaryContent, NativeOutput  # noqa: PLC0415 - takes seconds
    from pydantic_ai.models import openai  # noqa: PLC0415
    from pydantic_ai.providers.openai import OpenAIProvider  # noqa: PLC0415

    client = AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none")
    provider = OpenAIProvider(openai_client=client)
    profile = {"may_tokenize_special_tokens_in_content": False}  # else it changes scripts
    model = getattr(openai, kind)("lorem", provider=provider, profile=profile)
    agent = Agent(model, instructions="Be brief.", tools=[weather])
    first = await agent.run(SAID)
    assert first.output == "Hello there."
    again = await agent.run(CALLED, message_history=first.all_messages())
    assert again.output == "Sunny."
    async with agent.run_stream(CALLED) as streamed:
        assert await streamed.get_output() == "Sunny."
    seen = await agent.run(["What?", BinaryContent(png(), media_type="image/png")])
    assert "[files: 1]" in seen.output
    town = await Agent(model, output_type=NativeOutput(Town)).run("Which town?")
    assert isinstance(town.output, Town)

    if kind == "OpenAIChatModel":  # the other has no place for the question
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: decide_next(server, approved=True))
            settings: Any = {"extra_body": {"tools": [SERVER_ADD]}}
            assert (await Agent(model, model_settings=settings).run(SUM)).output == "Done."
    await client.close()


async def test_llm(server: Server, tmp_path: Path) -> None:
    settings = {"model_id": "mochi", "model_name": "lorem", "api_base": f"{server.url}/v1"}
    abilities = {"supports_tools": True, "supports_schema": True, "vision": True}
    (tmp_path / "extra-openai-models.yaml").write_text(json.dumps([settings | abilities]))
    (tmp_path / "cat.png").write_bytes(png())
    (tmp_path / "weather.py").write_text('def weather(city: str) -> str:\n    return "22"\n')

    async def say(*arguments: str) -> str:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-W", "ignore", "-m", "llm", "-m", "mochi", *arguments),
            cwd=tmp_path,
            env={"LLM_USER_PATH": str(tmp_path), "OPENAI_API_KEY": "none"},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            with anyio.fail_after(100):
                said, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode == 0
        return said.decode().strip()

    assert await say("--no-stream", SAID) == "Hello there."
    assert await say("--continue", "--functions", "weather.py", CALLED) == "Sunny."
    town = json.loads(await say("-a", "cat.png", "--schema", "name,people int", "Which town?"))
    assert list(town) == ["name", "people"]
