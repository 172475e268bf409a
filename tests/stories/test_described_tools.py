"""Tools for models that have none: described in the system prompt, called by text."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mochi_server.errors import ToolsNotSupported
from mochi_server.protocol.response_format import JsonObjectFormat
from mochi_server.sessions.types import AgentSettings, ToolSettings
from tests.stories.test_text_calls import TOOLS, call, decided, of_type
from tests.stories.test_turns_with_agents import write_agent
from tests.support.fake_ollama import FakeOllama
from tests.support.tools import write_tools
from tests.support.turns import Bench, bench, roles, text_of

UNABLE = "gemma2:2b"


@pytest.fixture
async def engine(tmp_path: Path, ollama: FakeOllama) -> AsyncIterator[Bench]:
    ollama.add_model(UNABLE, capabilities=["completion"])
    write_tools(tmp_path / "tools", init=TOOLS)
    async with bench(tmp_path, ollama) as found:
        yield found


async def prompted(engine: Bench, model: str = UNABLE, **more: Any) -> str:
    settings = {"execution_policy": "never_confirm", "tool_mode": "prompted", **more}
    return await engine.session(
        model,
        system_prompt="Be brief.",
        tool_settings=ToolSettings(tools=["look", "wipe"], **settings),
    )


def marked(text: str) -> str:
    return f"<tool_call>{text}</tool_call>"


@pytest.mark.parametrize("model", [UNABLE, "qwen3:14b"])
async def test_a_call_and_its_result_are_texts_in_the_requests(
    engine: Bench, ollama: FakeOllama, model: str
) -> None:
    session = await prompted(engine, model)
    ollama.reply([*f"I look. {marked(call('look'))}"])
    ollama.reply(["Seen."])
    events = await engine.turn(session)
    assert [each["result"] for each in of_type(events, "tool_result")] == ["saw here"]
    assert text_of(events) == "I look. Seen."
    for chat in ollama.chats:
        assert "tools" not in chat
        prompt = chat["messages"][0]["content"]
        assert prompt.startswith("Be brief.\n\n")
        assert "- look(place: string): Look there.\n" in prompt
    first, second = (chat["messages"] for chat in ollama.chats)
    assert roles(first) == ["system", "user"]
    assert roles(second) == ["system", "user", "assistant", "user"]
    assert second[2] == {"role": "assistant", "content": f"I look. \n{marked(call('look'))}"}
    assert second[3] == {"role": "user", "content": "Result of look:\nsaw here"}
    assert roles(engine.stored(session))[-3:] == ["assistant", "tool", "assistant"]


async def test_a_question_after_a_result_without_an_answer_is_one_message_with_it(
    engine: Bench, ollama: FakeOllama
) -> None:
    session = await prompted(engine)
    ollama.reply([call("look")])
    ollama.reply(["Se"], error="out of memory")
    ollama.reply(["Seen."])
    await engine.turn(session)
    document = engine.document(session)
    assert document["messages"].pop()["interrupted"]
    engine.path(session).write_text(json.dumps(document))
    await engine.turn(session, "And now?")
    assert ollama.chats[2]["messages"][-1]["content"] == "Result of look:\nsaw here\n\nAnd now?"


async def test_a_model_without_tools_is_refused_in_words_that_name_the_way(engine: Bench) -> None:
    with pytest.raises(ToolsNotSupported, match='"tool_mode": "prompted"'):
        await engine.turn(await prompted(engine, tool_mode="native"))


@pytest.mark.parametrize("mode", ["on", "off"])
async def test_a_person_is_asked_about_what_may_destroy_or_about_all(
    engine: Bench, ollama: FakeOllama, mode: str
) -> None:
    session = await prompted(engine, text_calls=mode)
    ollama.reply([marked(call("wipe" if mode == "on" else "look"))])
    ollama.reply(["Done."])
    events = await decided(engine, session, approved=True)
    assert [each["success"] for each in of_type(events, "tool_result")] == [True]


async def test_a_form_of_the_answer_leaves_the_calls_alone(
    engine: Bench, ollama: FakeOllama
) -> None:
    session = await prompted(engine)
    ollama.reply([marked(call("look"))])
    ollama.reply(['{"seen": true}'])
    events = await engine.turn(session, response_format=JsonObjectFormat(type="json_object"))
    assert text_of(events) == '{"seen": true}'
    assert [each["tool_name"] for each in of_type(events, "tool_result")] == ["look"]


async def test_the_tools_of_its_agents_are_described_as_well(
    engine: Bench, ollama: FakeOllama, tmp_path: Path
) -> None:
    write_agent(tmp_path, "coder")
    agents = AgentSettings(enabled_agents=["coder"])
    session = await engine.session(
        UNABLE,
        agent_settings=agents,
        tool_settings=ToolSettings(execution_policy="never_confirm", tool_mode="prompted"),
    )
    asks = {"name": "agent", "arguments": {"agent": "coder", "instruction": "Read a.txt."}}
    ollama.reply([marked(json.dumps(asks))])
    ollama.reply(["I read it."])
    ollama.reply([marked('{"name": "read", "arguments": {"path": "a.txt"}}')])
    for text in ("It says hi.", "Done."):
        ollama.reply([text])
    events = await engine.turn(session)
    assert of_type(events, "agent_complete")[0]["success"]
    assert not any("tools" in chat for chat in ollama.chats)
    assert "- read(path: string)" in ollama.chats[2]["messages"][0]["content"]
