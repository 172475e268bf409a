"""One conversation with two agents, against a real server: every event, request and file of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import anyio
import pytest

from mochi_server.agents.prompt_loader import built_in
from tests.support.agents import write_skill
from tests.support.fake_ollama import FakeOllama
from tests.support.server import Server, running_server
from tests.support.sse import ServerEvent
from tests.support.tool_folders import until

MODEL = "qwen3:14b"
PLAN = "I look first, then I write."
ASKED = "Make a page of the notes, and a song of it."
OFTEN = {"prompt_eval_count": 300, "eval_count": 20}

CODE = '''
from pathlib import Path

PLACE = Path(__file__).parent.parent.parent / "made"

__all__ = ["look", "write"]
__destructive__ = ["write"]


def look(path: str) -> str:
    """Look into a file.

    Args:
        path: Which one.
    """
    return f"notes of {path}"


def write(path: str, text: str) -> str:
    """Write a file.

    Args:
        path: Which one.
        text: What it is to say.
    """
    PLACE.mkdir(exist_ok=True)
    (PLACE / path).write_text(text)
    return f"wrote {len(text)} characters to {path}"
'''

LOOK = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Look into a file.",
        "parameters": {
            "type": "object",
            "properties": {"path": {"type": "string", "description": "Which one."}},
            "required": ["path"],
        },
    },
}
WRITE = {
    "type": "function",
    "function": {
        "name": "write",
        "description": "Write a file.",
        "parameters": {
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "Which one."},
                "text": {"type": "string", "description": "What it is to say."},
            },
            "required": ["path", "text"],
        },
    },
}
AGENT = {
    "type": "function",
    "function": {
        "name": "agent",
        "description": (
            "Delegate a task to a specialised agent.\n\nAvailable agents:\n"
            "  - coder: Makes pages.\n  - singer: Makes songs.\n\nArgs:\n"
            "    agent (str): The name of the agent to invoke.\n"
            "    instruction (str): A clear, detailed instruction.\n"
            "    session_id (str): Optional session ID to continue a previous agent conversation."
            "\n\nReturns:\n    str: The agent's response including its Session ID."
        ),
        "parameters": {
            "type": "object",
            "properties": {
                "agent": {
                    "type": "string",
                    "description": "The name of the agent to invoke.",
                    "enum": ["coder", "singer"],
                },
                "instruction": {
                    "type": "string",
                    "description": "A clear, detailed instruction.",
                },
                "session_id": {
                    "type": "string",
                    "description": "Optional session ID to continue a previous agent conversation.",
                },
            },
            "required": ["agent", "instruction"],
        },
    },
}

pytestmark = pytest.mark.slow


# The script


def call(name: str, call_id: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments, "id": call_id}


def as_stored(call: dict[str, Any]) -> dict[str, Any]:
    function = {"name": call["name"], "arguments": call["arguments"]}
    return {"function": function, "id": call["id"]}


TO_CODER = call("agent", "call_coder", agent="coder", instruction="Make a page of the notes.")
TO_SINGER = call("agent", "call_singer", agent="singer", instruction="Make a song of the notes.")
CODER_CALLS = [
    call("look", "call_c1", path="notes"),
    call("write", "call_c2", path="page", text="A page."),
]
SINGER_CALLS = [
    call("look", "call_s1", path="notes"),
    call("write", "call_s2", path="song", text="A song."),
]
DENIED = "the user denied this call. Reason: No songs."


def script_first(ollama: FakeOllama) -> None:
    """What the models say in the first turn; each agent is known by its system prompt."""
    ollama.reply(["I ask ", "both."], tool_calls=[TO_CODER, TO_SINGER], **OFTEN)
    for name, calls, end in (
        ("coder", CODER_CALLS, "The page is there."),
        ("singer", SINGER_CALLS, "There is no song."),
    ):
        who = f"You are the {name}."
        ollama.reply([PLAN[:7], PLAN[7:]], match=who, **OFTEN)
        ollama.reply(["Now I ", "do it."], match=who, tool_calls=calls, **OFTEN)
        ollama.reply([end], match=who, **OFTEN)
    ollama.reply(["A page, ", "no song."], **OFTEN)


def page_of(session_id: str) -> str:
    """What the first agent hands back."""
    return "\n\n".join(
        [
            f"Session ID: {session_id}",
            PLAN,
            "Now I do it.",
            'Call of look: {"path":"notes"}',
            'Call of write: {"path":"page","text":"A page."}',
            "Result of look: notes of notes",
            "Result of write: wrote 7 characters to page",
            "The page is there.",
        ]
    )


def song_of(session_id: str) -> str:
    """What the second one hands back."""
    return "\n\n".join(
        [
            f"Session ID: {session_id}",
            PLAN,
            "Now I do it.",
            'Call of look: {"path":"notes"}',
            'Call of write: {"path":"song","text":"A song."}',
            "Result of look: notes of notes",
            f"Result of write: Error: {DENIED}",
            "There is no song.",
        ]
    )


def coder_story(session_id: str, question: str) -> list[tuple[str, dict[str, Any]]]:
    """Every event of the agent whose call is confirmed; deltas joined."""
    return [
        *beginning("coder", TO_CODER, session_id),
        required("coder", CODER_CALLS[1], TO_CODER, question),
        decided("coder", CODER_CALLS[1], TO_CODER, question, approved=True),
        ran("coder", CODER_CALLS[0], 0, TO_CODER),
        result("coder", CODER_CALLS[0], 0, TO_CODER, "notes of notes"),
        result("coder", CODER_CALLS[1], 1, TO_CODER, "wrote 7 characters to page"),
        *ending("coder", TO_CODER, session_id, "The page is there.", page_of(session_id)),
    ]


def singer_story(session_id: str, question: str) -> list[tuple[str, dict[str, Any]]]:
    """Every event of the agent whose call is denied."""
    return [
        *beginning("singer", TO_SINGER, session_id),
        required("singer", SINGER_CALLS[1], TO_SINGER, question),
        decided("singer", SINGER_CALLS[1], TO_SINGER, question, approved=False),
        result("singer", SINGER_CALLS[1], 1, TO_SINGER, None),
        ran("singer", SINGER_CALLS[0], 0, TO_SINGER),
        result("singer", SINGER_CALLS[0], 0, TO_SINGER, "notes of notes"),
        *ending("singer", TO_SINGER, session_id, "There is no song.", song_of(session_id)),
    ]


def beginning(
    name: str, outer: dict[str, Any], session_id: str
) -> list[tuple[str, dict[str, Any]]]:
    voice = {"agent_name": name, "agent_call_id": outer["id"]}
    instruction = outer["arguments"]["instruction"]
    start = {"instruction": instruction, "session_id": session_id, "model": MODEL}
    return [
        ("agent_start", {**voice, **start, "parent_call_id": None}),
        ("agent_planning", {**voice, "content": PLAN}),
        ("agent_execution", {**voice, "content": "Now I do it."}),
    ]


def required(
    name: str, call: dict[str, Any], outer: dict[str, Any], question: str
) -> tuple[str, dict[str, Any]]:
    return (
        "tool_call_confirmation_required",
        {
            "tool_name": call["name"],
            "arguments": call["arguments"],
            "call_index": 1,
            "tool_call_id": call["id"],
            "confirmation_id": question,
            "queue_position": 1,
            "queue_total": 1,
            "timeout_seconds": 300.0,
            "shown": json.dumps(call["arguments"], indent=2),
            "agent_name": name,
            "agent_call_id": outer["id"],
        },
    )


def decided(
    name: str, call: dict[str, Any], outer: dict[str, Any], question: str, *, approved: bool
) -> tuple[str, dict[str, Any]]:
    return (
        "tool_call_confirmation_decided",
        {
            "confirmation_id": question,
            "tool_name": call["name"],
            "call_index": 1,
            "tool_call_id": call["id"],
            "approved": approved,
            "arguments": call["arguments"],
            "edited": False,
            "reason": None if approved else "No songs.",
            "agent_name": name,
            "agent_call_id": outer["id"],
        },
    )


def ran(
    name: str, call: dict[str, Any], index: int, outer: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
    return (
        "agent_tool_call",
        {
            "agent_name": name,
            "tool_name": call["name"],
            "arguments": call["arguments"],
            "call_index": index,
            "tool_call_id": call["id"],
            "agent_call_id": outer["id"],
        },
    )


def result(
    name: str, call: dict[str, Any], index: int, outer: dict[str, Any], text: str | None
) -> tuple[str, dict[str, Any]]:
    data = {
        "agent_name": name,
        "tool_name": call["name"],
        "success": text is not None,
        "result": text,
        "error_message": None if text is not None else DENIED,
        "call_index": index,
        "tool_call_id": call["id"],
        "agent_call_id": outer["id"],
    }
    return "agent_tool_result", data | ({} if text else {"code": "TOOL_EXECUTION_DENIED"})


def ending(
    name: str, outer: dict[str, Any], session_id: str, text: str, output: str
) -> list[tuple[str, dict[str, Any]]]:
    voice = {"agent_name": name, "agent_call_id": outer["id"]}
    end = {"session_id": session_id, "output": output, "success": True, "error_message": None}
    return [
        ("agent_execution", {**voice, "content": text}),
        ("agent_complete", {**voice, **end}),
    ]


# What the server and its files say


class Stage:
    """A server with two agents, and the fake model that it asks."""

    def __init__(self, folder: Path, server: Server, ollama: FakeOllama, session: str) -> None:
        self.folder = folder
        self.server = server
        self.ollama = ollama
        self.session = session
        self.questions: dict[str, str] = {}
        """Ids of questions by the agent that they are about."""

    async def decide(self, question: dict[str, Any]) -> None:
        """What the person says: pages yes, songs no."""
        self.questions[question["agent_name"]] = question["confirmation_id"]
        body = {"confirmation_id": question["confirmation_id"], "approved": True}
        if question["agent_name"] == "singer":
            body |= {"approved": False, "reason": "No songs."}
        status, answer = await self.server.post(f"/chat/{self.session}/confirm-tool", body)
        assert status == 200, answer

    async def turn(self, message: str) -> list[tuple[str, dict[str, Any]]]:
        """All events of a turn, questions answered as they come, neighbouring deltas joined."""
        events: list[ServerEvent] = []
        path = f"/chat/{self.session}/stream"
        with anyio.fail_after(30):
            async for event in self.server.stream(path, {"message": message}):
                events.append(event)
                if event.event == "tool_call_confirmation_required":
                    await self.decide(event.data)
        return [(event.event, event.data) for event in events]

    def stored(self, session_id: str, folder: str = "chat_sessions") -> dict[str, Any]:
        """A session's file without what differs in each run."""
        path = self.folder / folder / f"{session_id}.json"
        found: dict[str, Any] = json.loads(path.read_bytes())
        for message in found["messages"]:
            assert message.pop("message_id")
            assert message.pop("timestamp")
        assert found["metadata"]["message_count"] == len(found["messages"])
        assert found["metadata"]["format_version"] == "1.3"
        return found

    def agent_file(self, session_id: str) -> dict[str, Any]:
        return self.stored(session_id, "agents/agent_chats")

    def agent_sessions(self) -> dict[str, str]:
        """Ids of the agents' sessions by agent."""
        place = self.folder / "agents" / "agent_chats"
        found = [json.loads(path.read_bytes())["metadata"] for path in place.glob("*.json")]
        return {metadata["agent_name"]: metadata["session_id"] for metadata in found}

    def requests_of(self, who: str) -> list[dict[str, Any]]:
        """What the fake model was asked by an agent, or by the conversation."""
        return [body for body in self.ollama.chats if voice_of(body) == who]


def voice_of(body: dict[str, Any]) -> str:
    first = body["messages"][0]
    if first["role"] != "system":
        return "chat"
    return str(first["content"].removeprefix("You are the ").split(".")[0])


@asynccontextmanager
async def staged(folder: Path, ollama: FakeOllama) -> AsyncIterator[Stage]:
    for name, makes in (("coder", "pages"), ("singer", "songs")):
        place = folder / "agents" / name
        write_skill(place, f"description: Makes {makes}.", body=f"You are the {name}.")
        (place / f"{name}.py").write_text(CODE)
        text = f"from .{name} import look, write\n\n__all__ = ['look', 'write']\n"
        (place / "__init__.py").write_text(text + "__destructive__ = ['write']\n")
    ollama.one_at_a_time = False
    async with running_server(data_dir=folder, ollama=ollama) as server:
        session = await server.new_session(
            agent_settings={"enabled_agents": ["coder", "singer"]},
            tool_settings={"execution_policy": "confirm_destructive"},
        )
        yield Stage(folder, server, ollama, session)
        assert await server.stop() == 0
        assert "Traceback" not in server.log, server.log


def joined(events: list[tuple[str, dict[str, Any]]]) -> list[tuple[str, dict[str, Any]]]:
    """Neighbouring deltas of one voice as one."""
    found: list[tuple[str, dict[str, Any]]] = []
    for name, data in events:
        before = found[-1] if found else None
        if (
            "content" in data
            and before is not None
            and before[0] == name
            and before[1].get("agent_call_id") == data.get("agent_call_id")
        ):
            found[-1] = (name, {**data, "content": before[1]["content"] + data["content"]})
        else:
            found.append((name, data))
    return found


def split(
    events: list[tuple[str, dict[str, Any]]],
) -> dict[str | None, list[tuple[str, dict[str, Any]]]]:
    """Events by the run of an agent that they belong to; None for the conversation's own."""
    found: dict[str | None, list[tuple[str, dict[str, Any]]]] = {}
    for name, data in events:
        found.setdefault(data.get("agent_call_id"), []).append((name, data))
    return {run: joined(own) for run, own in found.items()}


def tool_call(call: dict[str, Any], index: int) -> tuple[str, dict[str, Any]]:
    return (
        "tool_call",
        {
            "tool_name": "agent",
            "arguments": call["arguments"],
            "call_index": index,
            "tool_call_id": call["id"],
        },
    )


def tool_result(call: dict[str, Any], index: int, text: str) -> tuple[str, dict[str, Any]]:
    return (
        "tool_result",
        {
            "tool_name": "agent",
            "success": True,
            "result": text,
            "error_message": None,
            "call_index": index,
            "tool_call_id": call["id"],
        },
    )


def said(text: str, *calls: dict[str, Any]) -> dict[str, Any]:
    """An assistant message, as it is stored."""
    message: dict[str, Any] = {"role": "assistant", "content": text, "model": MODEL, **OFTEN}
    return message | ({"tool_calls": [as_stored(call) for call in calls]} if calls else {})


def heard(call: dict[str, Any], text: str) -> dict[str, Any]:
    """The result of a call, as it is stored."""
    return {
        "role": "tool",
        "content": text,
        "tool_name": call["name"],
        "tool_call_id": call["id"],
    }


def asked_for(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def system(name: str) -> dict[str, Any]:
    return {"role": "system", "content": f"You are the {name}.", "source_file": None}


def sent(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Stored messages as a request has them."""
    kept = ("role", "content", "tool_calls", "tool_name", "tool_call_id")
    return [{key: message[key] for key in kept if key in message} for message in messages]


def check_request(
    body: dict[str, Any], messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None
) -> None:
    """A whole request to the model."""
    rest = dict(body)
    options = rest.pop("options")
    assert set(options) == {"num_ctx", "num_predict"}
    assert 0 < options["num_predict"] < options["num_ctx"]
    assert rest.pop("messages") == messages
    assert rest.pop("tools", None) == tools
    assert rest == {"model": MODEL, "stream": True, "think": False, "truncate": False}


def planning() -> dict[str, Any]:
    tools = "- look: Look into a file.\n- write: Write a file."
    return asked_for(built_in("planning.md").replace("{tools}", tools))


def execution() -> dict[str, Any]:
    return asked_for(built_in("execution.md"))


def check_files_know_no_prompt(folder: Path) -> None:
    """The prompts of the phases are in no file of the data folder."""
    lines = [
        line.encode()
        for name in ("planning.md", "execution.md")
        for line in built_in(name).splitlines()
        if len(line) > 20
    ]
    assert len(lines) > 10
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) > 8
    for path in files:
        content = path.read_bytes()
        assert not [line for line in lines if line in content], path


# The tests


async def test_two_agents_of_one_reply_work_and_one_is_continued(
    tmp_path: Path, ollama: FakeOllama
) -> None:
    """The whole conversation: what the client, the model and the disk get to see of it."""
    async with staged(tmp_path, ollama) as stage:
        script_first(ollama)
        told = split(await stage.turn(ASKED))
        ids = stage.agent_sessions()
        assert set(ids) == {"coder", "singer"}
        check_first_turn(stage, told, ids)
        check_first_requests(stage)
        check_first_files(stage, ids)
        await check_second_turn(stage, ids["coder"])
        assert {body["options"]["num_ctx"] for body in ollama.chats} == {8192}
        assert (ollama.loads, ollama.reloads) == (1, 0)
        check_files_know_no_prompt(tmp_path)
        _, listed = await stage.server.get("/sessions")
        assert [row["session_id"] for row in listed["sessions"]] == [stage.session]
        _, chats = await stage.server.get("/agents/chats")
        assert {row["session_id"] for row in chats["sessions"]} == set(ids.values())


def in_call_order(story: list[tuple[str, dict[str, Any]]]) -> list[tuple[str, dict[str, Any]]]:
    """The events, results that follow each other by the index of their calls: which of two calls
    that run side by side ends first is chance."""
    ordered: list[tuple[str, dict[str, Any]]] = []
    for name, events in groupby(story, key=lambda event: event[0]):
        pairs = list(events)
        if name == "agent_tool_result":
            pairs.sort(key=lambda event: event[1]["call_index"])
        ordered += pairs
    return ordered


def check_first_turn(
    stage: Stage, told: dict[str | None, list[tuple[str, dict[str, Any]]]], ids: dict[str, str]
) -> None:
    """The agents' events one by one, in order; those of the conversation around them."""
    coder, singer = told.pop("call_coder"), told.pop("call_singer")
    assert in_call_order(coder) == coder_story(ids["coder"], stage.questions["coder"])
    assert in_call_order(singer) == singer_story(ids["singer"], stage.questions["singer"])
    (start, head), *outer = told.pop(None)
    assert (start, head["session_id"], head["model"]) == ("run_start", stage.session, MODEL)
    assert not told
    both = [
        tool_result(TO_CODER, 0, page_of(ids["coder"])),
        tool_result(TO_SINGER, 1, song_of(ids["singer"])),
    ]
    results = sorted(outer[3:5], key=lambda event: event[1]["call_index"])
    complete = dict(outer[7][1])
    window = complete.pop("context_window")
    assert window == {
        "current_window": 8192,
        "usage_tokens": 320,
        "reason": "initial_setup",
        "dropped_messages": 0,
    }
    assert complete.pop("message_id")
    assert complete.pop("timestamp")
    assert [*outer[:3], *results, *outer[5:7], (outer[7][0], complete), *outer[8:]] == [
        ("content_delta", {"content": "I ask both.", "role": "assistant"}),
        tool_call(TO_CODER, 0),
        tool_call(TO_SINGER, 1),
        *both,
        ("tool_continuation_start", {"message": "Processing tool results..."}),
        ("content_delta", {"content": "A page, no song.", "role": "assistant"}),
        ("message_complete", {"model": MODEL, **OFTEN, "finish_reason": "stop"}),
        ("done", {"session_id": stage.session}),
    ]


def coder_messages() -> list[dict[str, Any]]:
    return [
        system("coder"),
        asked_for("Make a page of the notes."),
        said(PLAN),
        said("Now I do it.", *CODER_CALLS),
        heard(CODER_CALLS[0], "notes of notes"),
        heard(CODER_CALLS[1], "wrote 7 characters to page"),
        said("The page is there."),
    ]


def singer_messages() -> list[dict[str, Any]]:
    return [
        system("singer"),
        asked_for("Make a song of the notes."),
        said(PLAN),
        said("Now I do it.", *SINGER_CALLS),
        heard(SINGER_CALLS[0], "notes of notes"),
        heard(SINGER_CALLS[1], f"Error: {DENIED}"),
        said("There is no song."),
    ]


def chat_messages(ids: dict[str, str]) -> list[dict[str, Any]]:
    return [
        asked_for(ASKED),
        said("I ask both.", TO_CODER, TO_SINGER),
        heard(TO_CODER, page_of(ids["coder"])),
        heard(TO_SINGER, song_of(ids["singer"])),
        said("A page, no song."),
    ]


def check_first_requests(stage: Stage) -> None:
    """What each model was asked: no tools in planning, the agent's own in execution."""
    for name, stored in (("coder", coder_messages()), ("singer", singer_messages())):
        plan, work, after = stage.requests_of(name)
        messages = sent(stored)
        check_request(plan, [*messages[:2], planning()], None)
        check_request(work, [*messages[:3], execution()], [LOOK, WRITE])
        check_request(after, [*messages[:6], execution()], [LOOK, WRITE])
    first, last = stage.requests_of("chat")
    messages = sent(chat_messages(stage.agent_sessions()))
    check_request(first, messages[:1], [AGENT])
    check_request(last, messages[:4], [AGENT])
    assert len(stage.ollama.chats) == 8


def check_first_files(stage: Stage, ids: dict[str, str]) -> None:
    """Three files, and what the tools have done."""
    chat = stage.stored(stage.session)
    assert chat["messages"] == chat_messages(ids)
    for name, messages in (("coder", coder_messages()), ("singer", singer_messages())):
        file = stage.agent_file(ids[name])
        assert file["messages"] == messages
        metadata = file["metadata"]
        assert (metadata["agent_name"], metadata["model"]) == (name, MODEL)
        assert metadata["context_window_config"]["current_window"] == 8192
    assert (stage.folder / "made" / "page").read_text() == "A page."
    assert not (stage.folder / "made" / "song").exists()


async def check_second_turn(stage: Stage, session_id: str) -> None:
    """The first agent goes on in its session, and hands back only what is new."""
    arguments = {"agent": "coder", "instruction": "Sign it.", "session_id": session_id}
    again = call("agent", "call_again", **arguments)
    before = len(stage.ollama.chats)
    stage.ollama.reply(tool_calls=[again], **OFTEN)
    for text in ("I sign.", "I am signing.", "Signed."):
        stage.ollama.reply([text], match="You are the coder.", **OFTEN)
    stage.ollama.reply(["It is signed."], **OFTEN)
    told = split(await stage.turn("Have it signed."))
    output = f"Session ID: {session_id}\n\nI sign.\n\nI am signing.\n\nSigned."
    voice = {"agent_name": "coder", "agent_call_id": "call_again"}
    start = {"instruction": "Sign it.", "session_id": session_id, "model": MODEL}
    end = {"session_id": session_id, "output": output, "success": True, "error_message": None}
    assert told["call_again"] == [
        ("agent_start", {**voice, **start, "parent_call_id": None}),
        ("agent_planning", {**voice, "content": "I sign."}),
        ("agent_execution", {**voice, "content": "I am signing.Signed."}),
        ("agent_complete", {**voice, **end}),
    ]
    assert [name for name, _ in told[None]] == [
        "run_start",
        "tool_call",
        "tool_result",
        "tool_continuation_start",
        "content_delta",
        "message_complete",
        "done",
    ]
    assert told[None][2] == tool_result(again, 0, output)
    more = [asked_for("Sign it."), said("I sign."), said("I am signing."), said("Signed.")]
    messages = [*coder_messages(), *more]
    assert stage.agent_file(session_id)["messages"] == messages
    history = sent(messages)
    outer, plan, work, after, last = stage.ollama.chats[before:]
    check_request(plan, [*history[:8], planning()], None)
    check_request(work, [*history[:9], execution()], [LOOK, WRITE])
    check_request(after, [*history[:10], execution()], [LOOK, WRITE])
    ids = stage.agent_sessions()
    chat = [
        *chat_messages(ids),
        asked_for("Have it signed."),
        said("", again),
        heard(again, output),
        said("It is signed."),
    ]
    assert stage.stored(stage.session)["messages"] == chat
    check_request(outer, sent(chat[:6]), [AGENT])
    check_request(last, sent(chat[:8]), [AGENT])


async def test_the_same_in_one_piece_while_another_client_decides(
    tmp_path: Path, ollama: FakeOllama
) -> None:
    """The entries of both calls carry what the agents did, question and decision included."""
    async with staged(tmp_path, ollama) as stage:
        script_first(ollama)
        body = {"message": ASKED, "confirmations": "wait"}
        waiting = asyncio.ensure_future(stage.server.post(f"/chat/{stage.session}", body))
        with anyio.fail_after(30):
            while len(stage.questions) < 2:
                _, found = await stage.server.get(f"/chat/{stage.session}/confirmations")
                for question in found["confirmations"]:
                    assert question["session_id"] == stage.session
                    assert question["tool_source"] == f"agent:{question['agent_name']}"
                    await stage.decide(question)
                await anyio.sleep(0.02)
            status, answer = await waiting
        assert status == 200, answer
        ids = stage.agent_sessions()
        stories = [
            coder_story(ids["coder"], stage.questions["coder"]),
            singer_story(ids["singer"], stage.questions["singer"]),
        ]
        texts = [page_of(ids["coder"]), song_of(ids["singer"])]
        for entry in answer["tool_calls_executed"]:
            events = [(event["event"], event["data"]) for event in entry["agent_events"]]
            entry["agent_events"] = [
                {"event": name, "data": data} for name, data in in_call_order(events)
            ]
        assert answer["tool_calls_executed"] == [
            {
                **tool_result(call, index, text)[1],
                "arguments": call["arguments"],
                "agent_events": [{"event": name, "data": data} for name, data in story],
            }
            for index, (call, text, story) in enumerate(
                zip((TO_CODER, TO_SINGER), texts, stories, strict=True)
            )
        ]
        assert answer["message"]["content"] == "A page, no song."
        check_first_requests(stage)
        check_first_files(stage, ids)
        check_files_know_no_prompt(tmp_path)


async def test_in_one_piece_nobody_is_asked_and_the_agents_are_told(
    tmp_path: Path, ollama: FakeOllama
) -> None:
    """Their dangerous calls are denied at once; the harmless ones run."""
    async with staged(tmp_path, ollama) as stage:
        script_first(ollama)
        status, answer = await stage.server.post(f"/chat/{stage.session}", {"message": ASKED})
        assert status == 200, answer
        for entry in answer["tool_calls_executed"]:
            results = {
                event["data"]["tool_name"]: event["data"]
                for event in entry["agent_events"]
                if event["event"] == "agent_tool_result"
            }
            assert results["look"]["success"] is True
            assert results["write"]["code"] == "TOOL_EXECUTION_DENIED"
            assert "nobody can be asked" in results["write"]["error_message"]
            assert entry["success"] is True
        assert not (tmp_path / "made").exists()


async def test_both_agents_wait_for_a_person_at_the_same_time(
    tmp_path: Path, ollama: FakeOllama
) -> None:
    """Side by side: the second one is asked before anybody has answered the first one."""
    async with staged(tmp_path, ollama) as stage:
        script_first(ollama)
        asked: list[dict[str, Any]] = []
        path = f"/chat/{stage.session}/stream"
        with anyio.fail_after(30):
            async for event in stage.server.stream(path, {"message": ASKED}):
                if event.event == "tool_call_confirmation_required":
                    asked.append(event.data)
                    if len(asked) == 2:
                        for question in asked:
                            await stage.decide(question)
        assert {question["agent_name"] for question in asked} == {"coder", "singer"}
        await until(lambda: len(ollama.chats) == 8)
