"""Turns whose model is ``preset/NAME`` or ``agent/NAME``."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mochi_server.errors import (
    AgentNotFound,
    ContextOverflow,
    ModelNotFound,
    PresetInvalid,
    PresetNotFound,
    ThinkingNotSupported,
    ToolNotFound,
    ToolsNotSupported,
)
from mochi_server.protocol.options import ModelOptions
from mochi_server.sessions.types import ToolSettings
from tests.support.agents import write_agent, write_skill
from tests.support.fake_ollama import FakeOllama
from tests.support.tools import function, write_tools
from tests.support.turns import MODEL, Bench, bench, kinds, read_until

BRIEF = """---
model: qwen3:14b
options:
  temperature: 0.2
  seed: 7
tools: [add]
policy: never_confirm
---

Be brief.
"""


@pytest.fixture
async def engine(tmp_path: Path, ollama: FakeOllama) -> AsyncIterator[Bench]:
    init = function("add") + function("subtract") + '\n__all__ = ["add", "subtract"]\n'
    write_tools(tmp_path / "tools", init=init)
    write_agent(tmp_path / "agents" / "coder", "description: Writes code.", "agents: [helper]")
    write_skill(tmp_path / "agents" / "helper")
    async with bench(tmp_path, ollama, max_tool_rounds=2) as found:
        write_preset(found, "brief", BRIEF)
        yield found


def write_preset(engine: Bench, name: str, text: str) -> None:
    folder = engine.settings.presets_path
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.md").write_text(text)


def prompts(request: dict[str, Any]) -> list[str]:
    return [each["content"] for each in request["messages"] if each["role"] == "system"]


def tools_of(request: dict[str, Any]) -> list[str]:
    return [tool["function"]["name"] for tool in request.get("tools", [])]


def call(tool: str) -> dict[str, Any]:
    return {"name": tool, "arguments": {}}


async def test_a_session_has_what_its_preset_has(engine: Bench, ollama: FakeOllama) -> None:
    session = await engine.session("preset/brief")
    ollama.reply(tool_calls=[call("add")])
    ollama.reply(["Done."])
    events = await engine.turn(session)
    assert "tool_call_confirmation_required" not in kinds(events)
    assert kinds(events)[-2:] == ["message_complete", "done"]
    first = ollama.chats[0]
    assert first["model"] == MODEL
    assert {"temperature": 0.2, "seed": 7}.items() <= first["options"].items()
    assert (prompts(first), tools_of(first)) == (["Be brief."], ["add"])
    document = engine.document(session)
    assert document["metadata"]["model"] == "preset/brief"
    assert [each["role"] for each in document["messages"]] == [
        *("user", "assistant", "tool", "assistant")
    ]
    assert document["messages"][-1]["model"] == MODEL
    status = await engine.runtime.status.of(session)
    assert (status["provider_model"], status["active_tools"]) == (MODEL, ["add"])
    assert status["execution_policy"] == "never_confirm"


async def test_a_preset_says_whether_its_model_thinks(engine: Bench, ollama: FakeOllama) -> None:
    for written, sent in (("true", True), ("high", "high"), ("false", False), ("~", False)):
        write_preset(engine, "thinker", f"---\nmodel: qwen3:14b\nthink: {written}\n---\n")
        session = await engine.session("preset/thinker")
        await engine.turn(session)
        assert ollama.chats[-1]["think"] == sent
        await engine.turn(session, think="low")  # what the message says wins
        assert ollama.chats[-1]["think"] == "low"
        await engine.turn(session, think=False)
        assert ollama.chats[-1]["think"] is False
    write_preset(engine, "thinker", "---\nmodel: gemma3:4b\nthink: true\n---\n")
    with pytest.raises(ThinkingNotSupported):
        await engine.turn(session)


async def test_a_session_follows_its_preset(engine: Bench, ollama: FakeOllama) -> None:
    session = await engine.session("preset/brief")
    await engine.turn(session)
    write_preset(engine, "brief", "---\nmodel: gemma3:4b\n---\nBe loud.\n")
    await engine.turn(session)
    request = ollama.chats[-1]
    assert (request["model"], prompts(request), tools_of(request)) == (
        "gemma3:4b",
        ["Be loud."],
        [],
    )
    (engine.settings.presets_path / "brief.md").unlink()
    with pytest.raises(PresetNotFound):
        await engine.turn(session)
    status = await engine.runtime.status.of(session)
    assert (status["model"], status["provider_model"]) == ("preset/brief", None)


async def test_what_the_session_and_the_message_set_wins(engine: Bench, ollama: FakeOllama) -> None:
    session = await engine.session(
        "preset/brief",
        system_prompt="Be kind.",
        tool_settings=ToolSettings(tools=["subtract"]),
        options=ModelOptions(temperature=0.9),
    )
    await engine.turn(session, options=ModelOptions(seed=None, top_k=3))
    request = ollama.chats[-1]
    assert (prompts(request), tools_of(request)) == (["Be kind."], ["subtract"])
    assert (request["options"]["temperature"], request["options"]["top_k"]) == (0.9, 3)
    assert "seed" not in request["options"]
    await engine.turn(await engine.session(), model="preset/brief", selected=["subtract"])
    assert (prompts(ollama.chats[-1]), tools_of(ollama.chats[-1])) == (["Be brief."], ["subtract"])


async def test_an_agent_is_talked_to_directly(engine: Bench, ollama: FakeOllama) -> None:
    """Its own tools, the agents that it may call, its limit of rounds; no phases."""
    session = await engine.session(
        "agent/coder", tool_settings=ToolSettings(tools=["add"], execution_policy="never_confirm")
    )
    for _ in range(2):
        ollama.reply(tool_calls=[call("work")])
    ollama.reply(["Done."])
    events = await engine.turn(session, "Do it.")
    complete = next(event for event in events if event.type == "message_complete")
    assert complete.payload()["tool_rounds_exhausted"] is True
    assert len(ollama.chats) == 3  # two rounds, and the answer
    first = ollama.chats[0]
    assert (first["model"], prompts(first)) == (MODEL, ["You work."])
    assert tools_of(first) == ["work", "add", "agent"]
    assert tools_of(ollama.chats[-1]) == []
    await engine.turn(session, "Do it again.")
    assert [each["content"] for each in ollama.chats[-1]["messages"]][:2] == ["You work.", "Do it."]


async def test_instructions_of_an_agent_stay_before_the_prompt_of_a_session(
    engine: Bench, ollama: FakeOllama
) -> None:
    session = await engine.session("agent/helper", system_prompt="Speak French.")
    await engine.turn(session)
    assert prompts(ollama.chats[-1]) == ["You work.\n\nSpeak French."]
    assert engine.stored(session)[0]["content"] == "Speak French."
    await engine.turn(session, selected=[])
    assert tools_of(ollama.chats[-1]) == []
    with pytest.raises(ToolNotFound):
        await engine.turn(session, selected=["work"])


async def test_a_name_that_stands_for_nothing_is_an_error(
    engine: Bench, ollama: FakeOllama
) -> None:
    write_preset(engine, "broken", "---\nmodell: x\n---\n")
    write_preset(engine, "gone", "---\nmodel: nothing:1b\n---\n")
    write_preset(engine, "weak", "---\nmodel: gemma3:4b\ntools: add\n---\n")
    session = await engine.session()
    for name, error in {
        "preset/nobody": PresetNotFound,
        "preset/": PresetNotFound,
        "preset/../tools": PresetNotFound,
        "preset/broken": PresetInvalid,
        "preset/gone": ModelNotFound,
        "preset/weak": ToolsNotSupported,
        "agent/nobody": AgentNotFound,
        "elsewhere/brief": ModelNotFound,
    }.items():
        with pytest.raises(error):
            await engine.turn(session, model=name)
    assert engine.stored(session) == []
    assert ollama.chats == []


async def test_a_long_system_prompt_counts_for_the_window(
    engine: Bench, ollama: FakeOllama
) -> None:
    ollama.add_model("small:1b", context_length=2_048)
    write_preset(engine, "long", f"---\nmodel: qwen3:14b\n---\n{'word ' * 1_900}\n")
    write_preset(engine, "short", "---\nmodel: qwen3:14b\n---\nBe brief.\n")
    write_preset(engine, "large", f"---\nmodel: small:1b\n---\n{'word ' * 1_900}\n")
    question = "word " * 3_500
    for name in ("short", "long"):
        await engine.turn(await engine.session(f"preset/{name}"), question)
    short, long = (each["options"]["num_ctx"] for each in ollama.chats)
    assert short < long
    with pytest.raises(ContextOverflow):
        await engine.turn(await engine.session("preset/large"), question)


async def test_a_run_that_waits_is_taken_up_with_its_preset(
    tmp_path: Path, ollama: FakeOllama
) -> None:
    init = function("add") + '\n__all__ = ["add"]\n'
    write_tools(tmp_path / "tools", init=init)
    async with bench(tmp_path, ollama) as engine:
        text = BRIEF.replace("never_confirm", "always_confirm")
        write_preset(engine, "brief", text)
        session = await engine.session()
        ollama.reply(tool_calls=[call("add")])
        log = await engine.start(session, model="preset/brief", continues=True)
        await read_until(log.reader(), "tool_call_confirmation_required")
    async with bench(tmp_path, ollama) as engine:
        [waiting] = await engine.chat.confirmations(session)
        turn = await engine.chat.reopen_turn(str(waiting["run_id"]))
        assert turn is not None
        reader = engine.chat.start(turn).reader()  # else it may wait without a process again
        await engine.chat.confirm(session, str(waiting["confirmation_id"]), approved=True)
        await read_until(reader, "message_complete")
        assert (prompts(ollama.chats[-1]), tools_of(ollama.chats[-1])) == (["Be brief."], ["add"])
        await engine.ended()


async def test_presets_and_agents_are_listed_with_the_models(
    engine: Bench, ollama: FakeOllama
) -> None:
    write_preset(engine, "broken", "nothing")
    write_preset(engine, "gone", "---\nmodel: nothing:1b\n---\n")
    models = {each.name: each for each in (await engine.runtime.models.list_models()).models}
    assert list(models)[-4:] == ["preset/brief", "preset/gone", "agent/coder", "agent/helper"]
    preset, agent = models["preset/brief"], models["agent/coder"]
    assert (preset.kind, preset.parent_model, preset.context_length) == ("preset", MODEL, 40_960)
    assert (agent.kind, agent.description, agent.parent_model) == ("agent", "Writes code.", MODEL)
    assert models["preset/gone"].context_length is None
    assert models[MODEL].kind == "model"
    shown = await engine.runtime.models.show_model("agent/coder")
    assert shown == agent


async def test_a_summary_is_written_by_the_model_of_the_preset(
    engine: Bench, ollama: FakeOllama
) -> None:
    session = await engine.session("preset/brief")
    ollama.reply(["Asyncio is a library. " * 20])
    await engine.turn(session, "What is asyncio? " * 20)
    ollama.reply(['{"summary": "About asyncio.", "topics": []}'])
    summary = await engine.runtime.summaries.summarize(session)
    assert summary.summary == "About asyncio."
    assert ollama.chats[-1]["model"] == MODEL
