"""The one tool that calls agents: what the model is told, and what a call comes to."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import anyio
import pytest
import pytest_asyncio

from mochi_server.agents import AgentDefinition, AgentDiscoveryService, AgentSource
from mochi_server.chat.session_agents import SessionAgents
from mochi_server.chat.tool_calls.context import CallContext
from mochi_server.protocol.events import AgentPlanning, Event
from mochi_server.protocol.messages import ToolCall
from mochi_server.sessions.types import AgentSettings, ToolExecutionPolicy, ToolSettings
from mochi_server.tools.base import InvalidArguments, Tool, ToolContext, ToolFailed, ToolOutput
from mochi_server.tools.config import needs_confirmation
from mochi_server.tools.process.loader import ProcessLoader
from tests.support.agents import write_agent, write_skill
from tests.support.confirmations import asking_in_memory
from tests.support.runs import NoModels, run_in_memory

DESCRIPTION = """\
Delegate a task to a specialised agent.

Available agents:
  - writer: Writes prose.
  - coder: Writes code, and runs it.

Args:
    agent (str): The name of the agent to invoke.
    instruction (str): A clear, detailed instruction.
    session_id (str): Optional session ID to continue a previous agent conversation.

Returns:
    str: The agent's response including its Session ID."""


class Runner:
    """Says what it was asked for; the double of the seam that it stands for."""

    def __init__(self) -> None:
        self.asked: list[tuple[AgentDefinition, list[Tool], str, str | None, CallContext]] = []
        self.closed = 0

    async def run(
        self,
        definition: AgentDefinition,
        tools: Sequence[Tool],
        instruction: str,
        session_id: str | None,
        context: CallContext,
    ) -> AsyncGenerator[Event | ToolOutput, None]:
        self.asked.append((definition, list(tools), instruction, session_id, context))
        try:
            yield AgentPlanning("A plan.", definition.name, context.tool_call_id)
            yield ToolOutput(f"Session ID: 0123456789\n\n{definition.name} did it.")
        finally:
            self.closed += 1


class Bench:
    def __init__(self, folder) -> None:
        self.folder = folder
        self.loader = ProcessLoader()
        self.discovery = AgentDiscoveryService(folder, loader=self.loader, default_timeout=60)
        self.runner = Runner()
        self.source = AgentSource(self.discovery, self.runner)

    async def tool(self, *names: str) -> Tool:
        return (await self.source.offer(AgentSettings(enabled_agents=list(names)))).tool


@pytest_asyncio.fixture
async def bench(tmp_path):
    write_agent(tmp_path / "coder", "description: >\n  Writes code,\n  and runs it.")
    write_agent(tmp_path / "writer", "description: Writes prose.")
    write_skill(tmp_path / "broken", "name: other")
    found = Bench(tmp_path)
    yield found
    await found.discovery.aclose()
    await found.loader.aclose()


def context(depth: int = 0) -> CallContext:
    return CallContext(
        run=run_in_memory(),
        session_id="a1b2c3d4e5",
        tool_call_id="call_1",
        model="qwen3:14b",
        settings=ToolSettings(execution_policy=ToolExecutionPolicy.NEVER_CONFIRM),
        confirmations=asking_in_memory(),
        sampler=NoModels(),
        call=ToolCall(id="call_1", name="agent", arguments={}),
        index=0,
        depth=depth,
    )


async def steps_of(tool: Tool, arguments, who: ToolContext | None = None):
    with anyio.fail_after(30):
        arguments = await tool.validate(arguments)
        return [step async for step in tool.run(arguments, who or context())]


# What is offered


async def test_the_model_is_told_of_the_enabled_agents_in_their_order(bench):
    tool = await bench.tool("writer", "coder", "writer")
    assert tool.name == "agent"
    assert tool.description == DESCRIPTION
    assert tool.parameters == {
        "type": "object",
        "properties": {
            "agent": {
                "type": "string",
                "description": "The name of the agent to invoke.",
                "enum": ["writer", "coder"],
            },
            "instruction": {"type": "string", "description": "A clear, detailed instruction."},
            "session_id": {
                "type": "string",
                "description": "Optional session ID to continue a previous agent conversation.",
            },
        },
        "required": ["agent", "instruction"],
    }
    assert (tool.source, tool.destructive, tool.sequential, tool.timeout) == (
        "agents",
        False,
        False,
        None,
    )
    assert not needs_confirmation(ToolExecutionPolicy.CONFIRM_DESTRUCTIVE, tool)


async def test_only_valid_agents_are_offered_and_the_others_are_named(bench):
    names = ["broken", "coder", "nobody"]
    offer = await bench.source.offer(AgentSettings(enabled_agents=names))
    assert offer.tool.parameters["properties"]["agent"]["enum"] == ["coder"]
    assert (list(offer.enabled), list(offer.unknown)) == (["coder"], ["nobody"])
    assert list(offer.invalid) == ["broken"]
    assert "description is missing" in offer.invalid["broken"]


@pytest.mark.parametrize("settings", [None, AgentSettings(enabled_agents=[])])
async def test_without_enabled_agents_there_is_no_tool(bench, settings):
    offer = await bench.source.offer(settings)
    assert (offer.tool, offer.enabled, offer.unknown, offer.invalid) == (None, (), (), {})


async def test_a_changed_description_is_in_the_next_offer(bench):
    before = await bench.tool("coder")
    write_agent(bench.folder / "coder", "description: Does something else.")
    after = await bench.tool("coder")
    assert "  - coder: Does something else." in after.description
    assert "  - coder: Writes code" in before.description


async def test_tools_are_found_by_where_they_come_from(bench):
    source: SessionAgents = bench.source
    work = await source.tool_of("agent:coder", "work")
    assert work.source == "agent:coder"
    agent = await source.tool_of("agents", "agent")
    assert agent.parameters["properties"]["agent"]["enum"] == ["coder", "writer"]
    nowhere = [("agent:coder", "x"), ("agent:x", "work"), ("agents", "x"), ("directory", "agent")]
    assert [await source.tool_of(*each) for each in nowhere] == [None] * 4


# Arguments


async def test_arguments_are_made_complete(bench):
    tool = await bench.tool("coder")
    given = await tool.validate({"agent": " coder ", "instruction": " Do it. "})
    assert given == {"agent": "coder", "instruction": " Do it. ", "session_id": None}
    assert await tool.validate(given) == given
    given["session_id"] = " 0123456789 "
    assert (await tool.validate(given))["session_id"] == "0123456789"


@pytest.mark.parametrize("nothing", [None, "", "  ", "None", "null"])
async def test_what_models_write_for_no_session_is_none(bench, nothing):
    tool = await bench.tool("coder")
    given = await tool.validate({"agent": "coder", "instruction": "x", "session_id": nothing})
    assert given["session_id"] is None


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({}, "there is no agent None; choose one of coder, writer."),
        ({"agent": "nobody", "instruction": "x"}, "there is no agent 'nobody'"),
        ({"agent": "broken", "instruction": "x"}, "there is no agent 'broken'"),
        ({"agent": ["coder"], "instruction": "x"}, "there is no agent"),
        ({"agent": "coder"}, "'instruction' must be a text"),
        ({"agent": "coder", "instruction": " \n"}, "'instruction' must be a text"),
        ({"agent": "coder", "instruction": {"a": 1}}, "'instruction' must be a text"),
        ({"agent": "coder", "instruction": "x", "session_id": "../x"}, "'../x' is no session ID"),
        ({"agent": "coder", "instruction": "x", "session_id": "x" * 65}, "is no session ID"),
        ({"agent": "coder", "instruction": "x", "session_id": 7}, "7 is no session ID"),
        ({"agent": "coder", "instruction": "x", "model": "y"}, "there is no argument 'model'"),
    ],
)
async def test_arguments_that_do_not_fit_are_explained_to_the_model(bench, arguments, reason):
    tool = await bench.tool("coder", "writer")
    with pytest.raises(InvalidArguments) as caught:
        await tool.validate(arguments)
    assert reason in str(caught.value)
    with pytest.raises(InvalidArguments):
        await steps_of(tool, arguments)
    assert bench.runner.asked == []


# Calls


async def test_a_call_hands_on_what_the_runner_says(bench):
    tool = await bench.tool("coder", "writer")
    who = context()
    given = {"agent": "coder", "instruction": "Do it.", "session_id": "0123456789"}
    steps = await steps_of(tool, given, who)
    assert steps == [
        AgentPlanning("A plan.", "coder", "call_1"),
        ToolOutput("Session ID: 0123456789\n\ncoder did it."),
    ]
    [(definition, tools, instruction, session_id, caller)] = bench.runner.asked
    assert (definition.name, instruction, session_id) == ("coder", "Do it.", "0123456789")
    assert [each.name for each in tools] == ["work"]
    assert caller is who


@pytest.mark.parametrize("left_out", [{}, {"agent": None}, {"agent": " "}])
async def test_the_only_agent_is_meant_where_the_model_leaves_its_name_out(bench, left_out):
    tool = await bench.tool("coder")
    found = await tool.validate({**left_out, "instruction": "Write."})
    assert found == {"agent": "coder", "instruction": "Write.", "session_id": None}
    with pytest.raises(InvalidArguments, match="there is no agent 'writer'"):
        await tool.validate({"agent": "writer", "instruction": "Write."})


async def test_an_agent_that_is_left_is_closed(bench):
    tool = await bench.tool("coder")
    arguments = await tool.validate({"agent": "coder", "instruction": "x"})
    async with aclosing(tool.run(arguments, context())) as steps:
        await steps.__anext__()
        assert bench.runner.closed == 0
    assert bench.runner.closed == 1


async def test_each_call_sees_the_agent_as_it_is_then(bench):
    tool = await bench.tool("coder")
    write_skill(bench.folder / "coder", "description: x", "model: qwen3:8b", body="Do it well.")
    await steps_of(tool, {"agent": "coder", "instruction": "x"})
    definition = bench.runner.asked[0][0]
    assert (definition.system_prompt, definition.model) == ("Do it well.", "qwen3:8b")


@pytest.mark.parametrize("spoiled", ["SKILL.md", "__init__.py"])
async def test_an_agent_that_has_become_invalid_is_a_failed_call(bench, spoiled):
    tool = await bench.tool("coder")
    (bench.folder / "coder" / spoiled).unlink()
    with pytest.raises(ToolFailed, match=rf"'coder' cannot be used: coder: {spoiled} is missing"):
        await steps_of(tool, {"agent": "coder", "instruction": "x"})
    assert bench.runner.asked == []


async def test_outside_of_a_conversation_nobody_is_called(bench):
    tool = await bench.tool("coder")
    who = ToolContext(session_id="a1b2c3d4e5", tool_call_id="call_1")
    with pytest.raises(ToolFailed, match="within a conversation"):
        await steps_of(tool, {"agent": "coder", "instruction": "x"}, who)


# SessionAgents that call agents


@pytest.mark.parametrize(("depth", "may_call"), [(0, True), (1, True), (2, False)])
async def test_an_agent_may_call_those_that_its_file_names(bench, depth, may_call):
    lines = ("description: x", "agents: [writer, broken, nobody, lead]")
    write_agent(bench.folder / "lead", *lines)
    tool = await bench.tool("lead")
    await steps_of(tool, {"agent": "lead", "instruction": "x"}, context(depth))
    tools = {each.name: each for each in bench.runner.asked[0][1]}
    assert list(tools) == (["work", "agent"] if may_call else ["work"])
    if may_call:
        assert tools["agent"].parameters["properties"]["agent"]["enum"] == ["writer", "lead"]
        await steps_of(tools["agent"], {"agent": "writer", "instruction": "y"}, context(depth + 1))
        assert bench.runner.asked[1][0].name == "writer"


async def test_agents_within_each_other_end_somewhere(bench):
    tool = await bench.tool("coder")
    with pytest.raises(ToolFailed, match="no more than 3 agents"):
        await steps_of(tool, {"agent": "coder", "instruction": "x"}, context(3))
    assert bench.runner.asked == []


async def test_an_agent_whose_agents_cannot_be_used_calls_none(bench):
    write_agent(bench.folder / "lead", "description: x", "agents: broken")
    await steps_of(await bench.tool("lead"), {"agent": "lead", "instruction": "x"})
    assert [each.name for each in bench.runner.asked[0][1]] == ["work"]
