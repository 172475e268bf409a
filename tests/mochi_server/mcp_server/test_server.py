"""What an MCP client can do with the server, in both eras of the protocol."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.shared.exceptions import MCPError

from mochi_server import Runtime
from mochi_server.chat.confirmations import Confirmation
from mochi_server.config import load_settings
from mochi_server.errors import InvalidRequest, ServerBusy
from mochi_server.mcp_server.client_runs import _question_of
from mochi_server.mcp_server.direct_call import start_call
from mochi_server.protocol.events import ConfirmationRequired
from mochi_server.sessions import ToolSettings
from mochi_server.tools.base import ToolBegun, ToolContext, ToolFile, ToolOutput
from tests.support.agents import write_agent
from tests.support.booking import BookingTool
from tests.support.fake_ollama import FakeOllama
from tests.support.mcp import Wire, is_running, tool, write_config
from tests.support.mcp_clients import ERAS, LEGACY, MODERN, Person, client_of, text_of
from tests.support.tools import PlainSource, PlainTool
from tests.support.waiting import until

MODEL = "qwen3:14b"


@pytest.fixture(params=ERAS)
def era(request):
    return request.param


class Notes:
    """A tool that changes something, and one that does not."""

    def __init__(self) -> None:
        self.written: list[str] = []

    def write(self, text: str = "nothing") -> str:
        """Write a note."""
        self.written.append(text)
        return f"wrote {text}"

    def read(self) -> str:
        """Read the notes."""
        return " ".join(self.written)


@asynccontextmanager
async def library(
    folder: Path, ollama: FakeOllama, notes: Notes, **settings: Any
) -> AsyncIterator[Runtime]:
    loaded = load_settings(
        data_dir=folder, ollama_host=ollama.url, summarization_enabled=False, **settings
    )
    async with Runtime(loaded, tools=[notes.write, notes.read]) as runtime:
        (await runtime.tools.inventory()).tools["read"].destructive = False
        yield runtime


@pytest.fixture
def notes():
    return Notes()


@pytest.fixture
async def runtime(tmp_path, ollama, notes):
    async with library(tmp_path, ollama, notes) as runtime:
        yield runtime


def add_tool(runtime: Runtime, tool: PlainTool) -> None:
    """Let the library have a harmless tool of another source."""
    source = PlainSource(tool.source)
    tool.destructive = False
    source.found = [tool]
    runtime.tools.sources.append(source)


async def records(runtime: Runtime) -> list[tuple[str, bool, str | None, Any]]:
    """The history of confirmations: tool, whether approved, who decided, what ran."""
    return [
        (each.confirmation.tool_name, each.decision.approved, each.decision.decided_by, each.ran)
        for each in await runtime.inbox.history()
    ]


async def test_tools_and_agents_are_listed(tmp_path, runtime, era):
    write_agent(tmp_path / "agents" / "worker", "description: Works.")
    async with client_of(runtime, era) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert list(tools) == ["ask", "agent_worker", "write", "read"]
    assert tools["write"].description == "Write a note."
    assert tools["write"].input_schema["properties"]["text"]["default"] == "nothing"
    assert tools["write"].annotations is None
    assert tools["read"].annotations.destructive_hint is False
    assert tools["agent_worker"].description == "Works."
    assert tools["agent_worker"].input_schema["required"] == ["instruction"]
    assert set(tools["ask"].input_schema["properties"]) == {
        *("message", "session_id", "model", "system_prompt", "tools")
    }
    assert tools["ask"].input_schema["required"] == ["message"]
    assert tools["ask"].input_schema["properties"]["tools"] == {
        "description": "Names of the server's tools that the model may call. Without it: those of "
        "the conversation; of a new one, those of its preset or agent, else none.",
        "type": "array",
        "items": {"type": "string"},
    }


async def test_a_call_counts_as_a_run(tmp_path, ollama, notes):
    async with library(tmp_path, ollama, notes, max_runs=1) as runtime:
        write = (await runtime.tools.inventory()).tools["write"]
        run_id, reader = start_call(runtime, write, {}, model=MODEL, can_ask=True)
        with pytest.raises(ServerBusy):
            start_call(runtime, write, {}, model=MODEL, can_ask=True)
        await runtime.run_control.stop(run_id)
        reader.leave()
        _, reader = start_call(runtime, write, {}, model=MODEL, can_ask=True)
        reader.leave()


async def test_the_offer_can_be_narrowed(tmp_path, ollama, notes, era):
    write_agent(tmp_path / "agents" / "worker")
    offered = {"mcp_offered_tools": ["r*", "agent_*"]}
    async with (
        library(tmp_path, ollama, notes, **offered) as runtime,
        client_of(runtime, era) as client,
    ):
        assert [t.name for t in (await client.list_tools()).tools] == ["agent_worker", "read"]
        for name in ("write", "ask"):
            with pytest.raises(MCPError, match=f"no tool named '{name}'"):
                await client.call_tool(name, {"text": "x", "message": "x"})
    assert notes.written == []


async def test_a_conversation_gives_no_tools_that_are_not_offered(tmp_path, ollama, notes):
    ollama.reply(["Well"])
    async with library(tmp_path, ollama, notes, mcp_offered_tools=["read", "ask"]) as runtime:
        settings = ToolSettings(tools=["write", "read"], execution_policy="never_confirm")
        session = await runtime.sessions.create(MODEL, tool_settings=settings)
        async with client_of(runtime) as client:
            asked = {"message": "Hi", "session_id": session.session_id}
            refused = await client.call_tool("ask", {**asked, "tools": ["write"]})
            assert "no tool named 'write'" in text_of(refused)
            await client.call_tool("ask", asked)
    [request] = ollama.chats
    assert [tool["function"]["name"] for tool in request["tools"]] == ["read"]


async def test_a_harmless_tool_runs_at_once(notes, runtime, era):
    notes.written.append("before")
    async with client_of(runtime, era) as client:
        result = await client.call_tool("read", {})
    assert (text_of(result), result.is_error) == ("before", False)
    assert await records(runtime) == []


class Camera(PlainTool):
    """Returns two files."""

    async def run(self, arguments: Any, context: ToolContext) -> AsyncIterator[Any]:
        yield ToolBegun()
        files = [
            ToolFile(content=b"picture", media_type="image/png"),
            ToolFile(content=b"table", media_type="text/csv"),
        ]
        yield ToolOutput("Two files.", files)


async def test_files_of_a_result_are_its_content(runtime, era):
    add_tool(runtime, Camera("photograph", source="camera"))
    async with client_of(runtime, era) as client:
        result = await client.call_tool("photograph", {})
    text, image, table = result.content
    assert text.text == "Two files."
    assert (image.data, image.mime_type) == ("cGljdHVyZQ==", "image/png")
    assert (table.resource.blob, table.resource.mime_type) == ("dGFibGU=", "text/csv")
    assert not any(runtime.settings.attachments_path.glob("*"))


async def test_files_of_an_agent_that_is_cancelled_are_removed(tmp_path, ollama, runtime, era):
    write_agent(tmp_path / "agents" / "worker", "description: Works.", "tools: photograph")
    ollama.reply(["I plan."])
    ollama.reply(tool_calls=[{"name": "photograph", "arguments": {}}])
    ollama.reply(["So", "on"], pause_after=1, gate=anyio.Event())
    add_tool(runtime, Camera("photograph", source="camera"))
    await runtime.sessions.create(MODEL)
    kept = runtime.settings.attachments_path
    async with client_of(runtime, era) as client, anyio.create_task_group() as group:
        group.start_soon(client.call_tool, "agent_worker", {"instruction": "Work"})
        await until(lambda: len([*kept.glob("*/*")]) == 2)
        group.cancel_scope.cancel()
    with anyio.fail_after(30):
        while len(runtime.runs):
            await runtime.runs.wait_closed(5)
    assert not any(kept.glob("*"))


async def test_a_direct_call_leaves_no_server_and_no_workspace(tmp_path, runtime):
    wire = Wire(tmp_path / "plan", tools=[tool("echo", annotations={"readOnlyHint": True})])
    write_config(tmp_path, files=wire.entry(scope="session", trusted=True))
    add_tool(runtime, Camera("workspace__read", source="mcp:workspace"))
    await runtime.mcp.refresh()
    await runtime.mcp.servers["files"].wait_known()
    async with client_of(runtime, MODERN) as client:
        names = [each.name for each in (await client.list_tools()).tools]
        assert "files__echo" in names
        assert "workspace__read" not in names
        with pytest.raises(MCPError):
            await client.call_tool("workspace__read", {})
        assert not (await client.call_tool("files__echo", {})).is_error
        pid = wire.sent("tools/call")[-1]["pid"]
        assert not is_running(pid)


def test_what_changed_comes_before_the_question():
    event = ConfirmationRequired(
        tool_name="x__read",
        arguments={},
        call_index=0,
        tool_call_id="call_1",
        confirmation_id="1",
        queue_position=1,
        queue_total=1,
        timeout_seconds=1,
        shown="{}",
        notice="It has changed.",
    )
    question = _question_of(event, "This client")
    assert question.text.startswith("It has changed.\n\nThis client wants to call")


async def test_wrong_arguments_are_a_result_for_the_model(runtime, era):
    async with client_of(runtime, era) as client:
        result = await client.call_tool("read", {"what": 1})
        assert result.is_error
        assert "what" in text_of(result)
        result = await client.call_tool("ask", {})
        assert (text_of(result), result.is_error) == (
            "invalid arguments: message: Field required",
            True,
        )


async def test_a_person_is_asked_by_the_client(notes, runtime, era):
    person = Person()
    async with client_of(runtime, era, person=person) as client:
        for person.action in ("accept", "decline", "cancel"):
            result = await client.call_tool("write", {"text": person.action})
            assert result.is_error == (person.action != "accept")
    assert text_of(result) == (
        "the user denied this call. Reason: the person has closed the question without an answer."
    )
    assert notes.written == ["accept"]
    assert person.questions[0] == (
        'This client wants to call the tool write with\n{\n  "text": "accept"\n}\nAllow this call?'
    )
    assert len(person.questions) == 3
    assert await records(runtime) == [
        ("write", False, "mcp", None),
        ("write", False, "mcp", None),
        ("write", True, "mcp", {"text": "accept"}),
    ]
    assert await runtime.confirmations.pending() == []


async def test_a_tool_that_asks_while_it_runs_asks_the_person(runtime, era):
    person = Person(content={"city": "Rome"})
    add_tool(runtime, BookingTool("book", source="travel"))
    async with client_of(runtime, era, person=person) as client:
        booked = await client.call_tool("book", {})
        person.content = {"city": 7}
        wrong = await client.call_tool("book", {})
        person.action = "decline"
        declined = await client.call_tool("book", {})
    async with client_of(runtime, era) as client:
        cancelled = await client.call_tool("book", {})
    assert text_of(booked) == "accept: {'city': 'Rome'}"
    assert [text_of(each) for each in (wrong, declined)] == ["decline: None"] * 2
    assert text_of(cancelled) == "cancel: None"
    assert person.questions[0] == "The tool book asks:\nWhere\\u202e to?"
    assert set(person.forms[0]["properties"]) == {"city", "nights"}


async def test_what_is_filled_in_does_not_become_arguments(notes, runtime, era):
    person = Person(content={"text": "other"})
    async with client_of(runtime, era, person=person) as client:
        await client.call_tool("write", {"text": "shown"})
    assert notes.written == ["shown"]


async def test_a_client_that_cannot_ask_is_denied(notes, runtime, era):
    async with client_of(runtime, era) as client:
        result = await client.call_tool("write", {})
        assert result.is_error
        assert "must be confirmed by a person, and nobody can be asked here" in text_of(result)
        assert "use a client with elicitation" in text_of(result)
    assert notes.written == []


async def test_rules_decide_in_the_place_of_a_person(tmp_path, runtime, era):
    rules = [
        {"tool": "write", "action": "allow", "arguments": {"text": "good*"}},
        {"tool": "read", "action": "deny"},
    ]
    (tmp_path / "policies.json").write_text(json.dumps(rules))
    async with client_of(runtime, era) as client:
        assert not (await client.call_tool("write", {"text": "good"})).is_error
        assert (await client.call_tool("write", {"text": "bad"})).is_error
        denied = await client.call_tool("read", {})
    assert text_of(denied) == "a rule of this server denies this call."
    assert await records(runtime) == [
        ("read", False, "policy", None),
        ("write", True, "policy", {"text": "good"}),
    ]


@asynccontextmanager
async def call_that_waits(runtime: Runtime) -> AsyncIterator[Confirmation]:
    """A call of a tool that waits for somebody else than its client; it runs after the block."""
    person = Person(gate=anyio.Event())
    async with client_of(runtime, LEGACY, person=person) as client:
        results: list[Any] = []

        async def call() -> None:
            results.append(await client.call_tool("write", {}))

        async with anyio.create_task_group() as group:
            group.start_soon(call)
            await person.asked.wait()
            [pending] = await runtime.confirmations.pending()
            yield pending
    assert text_of(results[0]) == "wrote nothing"


async def test_somebody_else_may_decide_first(runtime):
    async with call_that_waits(runtime) as pending:
        await runtime.inbox.decide(pending.confirmation_id, approved=True)
    assert [record[2] for record in await records(runtime)] == ["library"]


async def test_a_call_without_a_session_is_not_remembered_for_one(runtime):
    async with call_that_waits(runtime) as pending:
        assert not pending.session_kept
        name = pending.confirmation_id
        with pytest.raises(InvalidRequest, match="not kept"):
            await runtime.inbox.decide(name, approved=True, remember="session")
        assert await runtime.confirmations.pending() == [pending]
        await runtime.inbox.decide(name, approved=True, remember="tool")
    assert [each.session_id for each in (await runtime.inbox.rules())[0].rules] == [None]


async def test_a_turn_is_a_tool(ollama, runtime, era):
    ollama.reply(["Pa", "ris"], eval_count=2)
    ollama.reply(["So."])
    progress: list[tuple[float, str | None]] = []

    async def note(value: float, total: float | None, message: str | None) -> None:
        progress.append((value, message))

    async with client_of(runtime, era) as client:
        asked = {"message": "Capital?", "model": MODEL, "system_prompt": "Be brief."}
        result = await client.call_tool("ask", asked, progress_callback=note)
        answer = result.structured_content
        again = await client.call_tool(
            "ask", {"message": "Why?", "session_id": answer["session_id"]}
        )
    assert (text_of(result), answer["answer"], answer["model"]) == ("Paris", "Paris", MODEL)
    assert "".join(message or "" for _, message in progress) == "Paris"
    assert [value for value, _ in progress] == sorted({value for value, _ in progress})
    assert text_of(again) == "So."
    session = await runtime.sessions.get(answer["session_id"])
    texts = [message.text for message in session.messages]
    assert texts == ["Be brief.", "Capital?", "Paris", "Why?", "So."]
    assert (await runtime.run_control.status(answer["run_id"]))["state"] == "done"


async def test_questions_of_a_turn_are_put_to_the_person(ollama, notes, runtime, era):
    calls = [{"name": "write", "arguments": {"text": text}} for text in ("one", "two")]
    ollama.reply(tool_calls=calls)
    ollama.reply(["Done."])
    person = Person()
    async with client_of(runtime, era, person=person) as client:
        asked = {"message": "Write", "model": MODEL, "tools": ["write"]}
        result = await client.call_tool("ask", asked)
    assert text_of(result) == "Done."
    assert sorted(notes.written) == ["one", "two"]
    assert [question.splitlines()[0] for question in person.questions] == [
        "The model wants to call the tool write with"
    ] * 2
    assert [record[2] for record in await records(runtime)] == ["mcp", "mcp"]


async def test_a_turn_without_a_person_goes_on_with_a_denial(ollama, notes, runtime, era):
    ollama.reply(tool_calls=[{"name": "write", "arguments": {}}])
    ollama.reply(["I may not."])
    async with client_of(runtime, era) as client:
        asked = {"message": "Write", "model": MODEL, "tools": ["write"]}
        assert text_of(await client.call_tool("ask", asked)) == "I may not."
    assert notes.written == []


async def test_the_model_of_the_last_conversation_is_the_default(ollama, runtime):
    ollama.reply(["One."])
    async with client_of(runtime) as client:
        await runtime.sessions.create("qwen3:14b")
        result = await client.call_tool("ask", {"message": "Hi"})
        assert result.structured_content["model"] == "qwen3:14b"


async def test_a_refused_turn_leaves_no_conversation(runtime, era):
    async with client_of(runtime, era) as client:
        for asked in (
            {"model": "nowhere"},
            {"model": MODEL, "tools": ["nothing"]},
            {"session_id": "nowhere"},
            {"session_id": "nowhere", "system_prompt": "Be brief."},
        ):
            result = await client.call_tool("ask", {"message": "Hi", **asked})
            assert result.is_error, asked
            assert result.structured_content["error"]["code"]
        assert (await runtime.sessions.list()).entries == []


async def test_a_cancelled_request_stops_its_run(ollama, runtime, era):
    never = anyio.Event()
    ollama.reply(["So", "on"], pause_after=1, gate=never)
    said = anyio.Event()

    async def note(value: float, total: float | None, message: str | None) -> None:
        said.set()

    async with client_of(runtime, era) as client, anyio.create_task_group() as group:
        asked = {"message": "Hi", "model": MODEL}

        async def ask() -> None:
            await client.call_tool("ask", asked, progress_callback=note)

        group.start_soon(ask)
        await said.wait()
        [run] = await runtime.run_control.list()
        group.cancel_scope.cancel()
    with anyio.fail_after(30):
        while len(runtime.runs):
            await runtime.runs.wait_closed(5)
    status = await runtime.runs.status(str(run["run_id"]))
    assert status.state == "stopped"
    [entry] = (await runtime.sessions.list()).entries
    session = await runtime.sessions.get(str(entry["session_id"]))
    assert session.stored_messages()[-1]["interrupted"] is True


async def test_an_agent_is_a_tool(tmp_path, ollama, runtime, era):
    write_agent(tmp_path / "agents" / "worker", "description: Works.")
    for text in ("I plan.", "I begin.", "I am done."):
        ollama.reply([text])
    await runtime.sessions.create(MODEL)
    async with client_of(runtime, era) as client:
        result = await client.call_tool("agent_worker", {"instruction": "Work"})
        text = text_of(result)
        assert text.startswith("Session ID: ")
        assert text.endswith("I am done.")
        wrong = await client.call_tool("agent_worker", {})
        assert (wrong.is_error, "instruction" in text_of(wrong)) == (True, True)
        with pytest.raises(MCPError, match="no tool named"):
            await client.call_tool("agent_nobody", {"instruction": "Work"})


async def test_prompts_are_those_of_the_folder(tmp_path, ollama, runtime, era):
    folder = tmp_path / "system_prompts"
    folder.mkdir()
    for name in ("brief.md", "two.md", "two.txt"):
        (folder / name).write_text(f"This is {name}.")
    ollama.reply(["Yes."])
    async with client_of(runtime, era) as client:
        prompts = (await client.list_prompts()).prompts
        assert [(each.name, each.description) for each in prompts] == [
            ("brief", "This is brief.md."),
            ("two.md", "This is two.md."),
            ("two.txt", "This is two.txt."),
        ]
        [message] = (await client.get_prompt("brief")).messages
        assert (message.role, message.content.text) == ("user", "This is brief.md.")
        for name in ("two", "../brief", "brief.md"):
            with pytest.raises(MCPError, match="not found"):
                await client.get_prompt(name)
        asked = {"message": "Hi", "model": MODEL, "system_prompt": "brief"}
        session_id = (await client.call_tool("ask", asked)).structured_content["session_id"]
        assert (await runtime.sessions.get(session_id)).messages[0].text == "This is brief.md."


async def test_conversations_are_resources(runtime, era):
    async with client_of(runtime, era) as client:
        ids = [
            (await runtime.sessions.create(MODEL, labels={"title": f"Number {number}"})).session_id
            for number in range(101)
        ]
        first = await client.list_resources()
        rest = await client.list_resources(cursor=first.next_cursor)
        assert len(first.resources) == 100
        assert rest.next_cursor is None
        uris = [each.uri for each in (*first.resources, *rest.resources)]
        assert sorted(uris) == sorted(f"mochi://sessions/{each}" for each in ids)
        with pytest.raises(MCPError, match="cursor"):
            await client.list_resources(cursor="x")

        [text] = (await client.read_resource(f"mochi://sessions/{ids[7]}")).contents
        assert (text.mime_type, "Number 7" in text.text) == ("text/markdown", True)
        [text] = (await client.read_resource(f"mochi://sessions/{ids[7]}/json")).contents
        assert json.loads(text.text)["metadata"]["session_id"] == ids[7]
        [text] = (await client.read_resource("mochi://search/number%2042")).contents
        assert [each["uri"] for each in json.loads(text.text)["sessions"]] == [
            f"mochi://sessions/{ids[42]}"
        ]
        templates = (await client.list_resource_templates()).resource_templates
        assert [each.uri_template for each in templates] == [
            "mochi://sessions/{session_id}",
            "mochi://sessions/{session_id}/json",
            "mochi://search/{query}",
        ]


@pytest.mark.parametrize(
    "uri",
    [
        "mochi://sessions/nowhere",
        "mochi://sessions/../policies",
        "mochi://sessions/%2e%2e%2fpolicies",
        "mochi://sessions/",
        "mochi://nothing",
        "file:///etc/passwd",
    ],
)
async def test_nothing_else_can_be_read(runtime, uri):
    async with client_of(runtime) as client:
        with pytest.raises(MCPError) as refused:
            await client.read_resource(uri)
        assert refused.value.error.code == -32602
        assert refused.value.error.data["uri"] == uri


async def test_a_request_cannot_bring_the_state_of_another(notes, runtime):
    async with client_of(runtime, MODERN, person=Person()) as client:
        call = client.session.call_tool
        asked = await call("write", {"text": "one"}, allow_input_required=True)
        [question] = asked.input_requests
        answers = {question: {"action": "accept"}}
        for arguments, state in (
            ({"text": "two"}, asked.request_state),
            ({"text": "one"}, f"{asked.request_state}x"),
            ({"text": "one"}, "{}"),
        ):
            with pytest.raises(MCPError, match="requestState"):
                await call("write", arguments, input_responses=answers, request_state=state)
        assert notes.written == []
        [pending] = await runtime.confirmations.pending()
        again = await call(
            "write",
            {"text": "one"},
            input_responses={"another": {"action": "accept"}},
            request_state=asked.request_state,
            allow_input_required=True,
        )
        assert list(again.input_requests) == [question] == [pending.confirmation_id]
        done = await call(
            "write", {"text": "one"}, input_responses=answers, request_state=again.request_state
        )
    assert text_of(done) == "wrote one"
    assert notes.written == ["one"]
