"""The same runs through every wire, whole and as a stream: equal texts, calls and ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest

from chat.wires.agui.encoder import EventEncoder
from chat.wires.agui.schemas import RunAgentInput
from chat.wires.anthropic.encoder import AnswerFrame, MessageEncoder, message_of
from chat.wires.common.answers import whole_run
from chat.wires.common.approvals import ApprovalId
from chat.wires.common.encoder import not_met
from chat.wires.ollama.encoder import AnswerEncoder
from chat.wires.openai.encoder import (
    ChunkEncoder,
    TextChunkEncoder,
    completion_of,
    text_completion_of,
)
from chat.wires.responses.encoder import ResponseEncoder
from chat.wires.responses.resource import record_of, response_of
from chat.wires.responses.schemas import ResponseRequest
from chat.wires.vercel.encoder import UIChunkEncoder
from mochi_server.chat.control import StartedRun
from mochi_server.chat.responses import ResponseId
from mochi_server.chat.runs.log import Numbered, RunLog
from mochi_server.chat.service import events_of, whole_reply
from mochi_server.errors import MochiError
from mochi_server.protocol.events import ReplyRetry
from tests.support.folded_runs import RUNS, FoldedRun
from tests.wires.test_promises import WIRES

RUN_ID = "run_0123456789abcdef"
OF_MODEL: dict[str, Any] = {"model": "m"}
FRAME = AnswerFrame(message_id="msg_1", model="m", shows_thinking=True, ignored_blocks=[])
INPUT = RunAgentInput.model_validate(
    {"threadId": "t", "runId": "r", "protocolVersion": "1.0", "messages": []}
)
DENIED = "Denied: no"
"""The result of a call that was denied, which one wire does not say."""
Sent = list[dict[str, Any]]


@dataclass
class Said:
    """What a client has read; None: the wire has no place for it."""

    text: str = ""
    thinking: str | None = ""
    results: list[str] | None = field(default_factory=list)
    """Of the server's tools that the conversation's model has called, sorted."""
    functions: list[str] | None = field(default_factory=list)
    """Names of the client's functions that are to be called."""
    end: str = ""
    """``complete``, ``stopped``, or what the error says."""


def started(log: RunLog, after: int = 0) -> StartedRun:
    return StartedRun(RUN_ID, "s", "running", log.reader(after), "m")


async def stream(run: StartedRun, encoder: Callable[[list[Numbered]], bytes]) -> Sent:
    """Return what an encoder makes of a run, which comes event by event."""
    raw = ""
    while (batch := await run.reader.next()) is not None:
        raw += b"".join(encoder([each]) for each in batch).decode()
    lines = [line.removeprefix("data: ") for line in raw.split("\n")]
    return [orjson.loads(line) for line in lines if line.startswith("{")]


def end_of(message: str | None) -> str:
    if message is None:
        return "complete"
    return "stopped" if "was stopped" in message else message


# ---- answers in one piece, and streams of text


def reasoning_of(message: dict[str, Any]) -> str:
    return message.get("reasoning_content") or message.get("thinking") or ""


THOUGHTS: dict[str, Callable[[dict[str, Any]], str]] = {
    "chat": lambda each: reasoning_of(each["choices"][0]["message"]),
    "chat stream": lambda each: "".join(reasoning_of(one["delta"]) for one in each["choices"]),
    "messages": lambda each: "".join(map(reasoning_of, each["content"])),
    "messages stream": lambda each: reasoning_of(each.get("delta", {})),
    "ollama chat": lambda each: reasoning_of(each["message"]),
    "ollama chat stream": lambda each: reasoning_of(each["message"]),
    "generate": reasoning_of,
    "generate stream": reasoning_of,
}
ENCODERS: dict[str, Callable[[StartedRun], Any]] = {
    "chat stream": lambda run: ChunkEncoder(run, include_usage=True, **OF_MODEL),
    "completions stream": lambda run: TextChunkEncoder(run, include_usage=False, **OF_MODEL),
    "messages stream": lambda run: MessageEncoder(run, FRAME),
    "ollama chat stream": lambda run: AnswerEncoder(run, "chat", **OF_MODEL),
    "generate stream": lambda run: AnswerEncoder(run, "generate", **OF_MODEL),
}
WHOLE: dict[str, Callable[[StartedRun, Any], dict[str, Any]]] = {
    "chat": lambda run, fold: completion_of(run, fold, **OF_MODEL),
    "completions": lambda run, fold: text_completion_of(run, fold, **OF_MODEL),
    "messages": lambda run, fold: message_of(run, fold, FRAME),
    "ollama chat": lambda run, fold: AnswerEncoder(run, "chat", **OF_MODEL).whole(fold),
    "generate": lambda run, fold: AnswerEncoder(run, "generate", **OF_MODEL).whole(fold),
}


async def read_whole(name: str, run: FoldedRun) -> Said:
    begun = started(run.log())
    try:
        answer = WHOLE[name](begun, await whole_run(begun))
    except MochiError as error:
        return Said(end=end_of(error.message))
    return text_said(name, run, [answer], answer)


async def read_stream(name: str, run: FoldedRun) -> Said:
    begun = started(run.log())
    sent = await stream(begun, ENCODERS[name](begun))
    error = sent[-1].get("error")
    said = text_said(name, run, sent[:-1] if error else sent)
    said.end = end_of(error["message"] if isinstance(error, dict) else error)
    return said


def text_said(name: str, run: FoldedRun, sent: Sent, answer: Any = None) -> Said:
    wire, answer = WIRES[name], sent if answer is None else answer
    return Said(
        text=wire.text(answer) or "",
        thinking="".join(map(THOUGHTS[name], sent)) if name in THOUGHTS else None,
        results=None,
        functions=None if not wire.calls else wire.calls(answer) if functions_of(run) else [],
        end="complete",
    )


def functions_of(run: FoldedRun) -> list[str]:
    functions: list[str] = run.comes_to["client_calls"]
    return functions


# ---- wires with the calls of the server's tools, which ask persons


class Reading:
    """What a client makes of such a stream, which goes on after each question."""

    def __init__(self) -> None:
        self.said = Said(results=[], functions=[])
        self.texts = [""]
        """Between calls."""
        self.calls: dict[str, str] = {}
        self.question: ApprovalId | None = None

    def call(self, call_id: str, name: str) -> None:
        self.calls[call_id] = name
        self.texts.append("")

    def text(self, text: str) -> None:
        self.texts[-1] += text

    def result(self, text: str) -> None:
        assert self.said.results is not None
        self.said.results = sorted([*self.said.results, text])

    def thought(self, text: str) -> None:
        self.said.thinking = f"{self.said.thinking}{text}"

    def whole(self) -> Said:
        self.said.text = "\n\n".join(filter(None, self.texts))
        return self.said


def read_agui(reading: Reading, each: dict[str, Any]) -> None:
    match each:
        case {"type": "TEXT_MESSAGE_CONTENT"}:
            reading.text(each["delta"])
        case {"type": "REASONING_MESSAGE_CONTENT"}:
            reading.thought(each["delta"])
        case {"type": "TOOL_CALL_START"}:
            reading.call(each["toolCallId"], each["toolCallName"])
        case {"type": "TOOL_CALL_RESULT"}:
            reading.result(each["content"].removeprefix("Error: "))
        case {"type": "RUN_ERROR"}:
            reading.said.end = each["message"]
        case {"type": "RUN_FINISHED", "outcome": {"type": "success", "pendingToolCallIds": ids}}:
            reading.said.end = "complete"
            reading.said.functions = [reading.calls[call_id] for call_id in ids]
        case {"type": "RUN_FINISHED", "outcome": {"type": "cancelled"}}:
            reading.said.end = "stopped"
        case {"type": "RUN_FINISHED", "outcome": {"interrupts": [interrupt]}}:
            reading.question = ApprovalId.read(interrupt["id"])


def read_ui(reading: Reading, each: dict[str, Any]) -> None:  # noqa: C901 - a table
    match each:
        case {"type": "text-delta"}:
            reading.text(each["delta"])
        case {"type": "reasoning-delta"}:
            reading.thought(each["delta"])
        case {"type": "tool-input-available"}:
            reading.call(each["toolCallId"], each["toolName"])
            if "dynamic" not in each:
                reading.said.functions = [*(reading.said.functions or ()), each["toolName"]]
        case {"type": "tool-output-available"}:
            reading.result(each["output"])
        case {"type": "tool-output-error"}:
            reading.result(each["errorText"])
        case {"type": "tool-output-denied"}:
            reading.result(DENIED)
        case {"type": "tool-approval-request"}:
            reading.question = ApprovalId.read(each["approvalId"])
        case {"type": "finish"}:
            reading.said.end = "complete"
        case {"type": "error"}:
            reading.said.end = each["errorText"]
        case {"type": "abort"}:
            reading.said.end = "stopped"


def read_item(reading: Reading, item: dict[str, Any]) -> None:
    match item:
        case {"type": "mcp_call"}:
            reading.call(item["id"], item["name"])
            if item["error"] is not None:
                reading.result(item["error"]["content"][0]["text"])
            elif item["output"] is not None:
                reading.result(item["output"])
        case {"type": "mcp_approval_request"}:
            _, confirmation, number = item["id"].rsplit("_", 2)
            reading.question = ApprovalId(f"conf_{confirmation}", RUN_ID, int(number))
            reading.texts.append("")
        case {"type": "function_call"}:
            reading.said.functions = [*(reading.said.functions or ()), item["name"]]


def read_response(reading: Reading, response: dict[str, Any]) -> None:
    """Read the end of a response."""
    error = response["error"]
    is_stopped = response["status"] == "cancelled"
    reading.said.end = "stopped" if is_stopped else end_of(error and error["message"])


def read_whole_response(reading: Reading, response: dict[str, Any]) -> None:
    for item in response["output"]:
        if item["type"] == "message":
            reading.text(item["content"][0]["text"])
        elif item["type"] == "reasoning":
            reading.thought(item["content"][0]["text"])
        else:
            read_item(reading, item)
    read_response(reading, response)


def read_response_event(reading: Reading, each: dict[str, Any]) -> None:
    match each["type"].removeprefix("response."):
        case "output_text.delta":
            reading.text(each["delta"])
        case "reasoning_text.delta":
            reading.thought(each["delta"])
        case "output_item.done":
            read_item(reading, each["item"])
        case "completed" | "incomplete" | "failed":
            read_response(reading, each["response"])


async def read_responses(name: str, run: FoldedRun) -> Said:
    record = record_of(ResponseRequest.model_validate({"model": "m", "input": "Hello"}))
    reading, log, part, is_whole = Reading(), run.log(), 0, name == "responses"
    while True:
        begun, response_id = started(log, part), ResponseId(RUN_ID, "s", part)
        response = response_of(record, response_id)
        encoder = ResponseEncoder(response, begun.reader, response_id, is_whole=is_whole)
        reading.question = None
        sent = await stream(begun, encoder)
        ids = [
            each["id"] for each in response["output"] if each["type"] in {"message", "reasoning"}
        ]
        assert len(ids) == len(set(ids))
        if is_whole:
            read_whole_response(reading, response)
        else:
            for each in sent:
                read_response_event(reading, each)
        if reading.question is None:
            return reading.whole()
        part = reading.question.number


async def read_steps(name: str, run: FoldedRun) -> Said:
    reading, log = Reading(), run.log()
    while True:
        begun, answered = started(log), reading.question
        encoder = (
            EventEncoder(begun, INPUT, answered)
            if name == "agui"
            else UIChunkEncoder(begun, None, answered)
        )
        reading.question = None
        for each in await stream(begun, encoder):
            (read_agui if name == "agui" else read_ui)(reading, each)
        if reading.question is None:
            return reading.whole()


# ---- the suite

READERS = {
    **dict.fromkeys(WHOLE, read_whole),
    **dict.fromkeys(ENCODERS, read_stream),
    "responses": read_responses,
    "responses stream": read_responses,
    "agui": read_steps,
    "ui chat": read_steps,
}


def expected(name: str, run: FoldedRun, said: Said) -> Said:
    """Return what must be read; where the wire has no place for something, as it was read."""
    found = dict(run.payloads)
    end = found["error"]["message"] if "error" in found else run.comes_to["end"]
    if name in WHOLE and end != "complete":
        return Said(end=end)
    results = sorted(text for _, agent, _, text in run.comes_to["calls"] if not agent and text)
    right = Said(run.comes_to["text"], run.comes_to["thinking"], results, functions_of(run), end)
    retries = [event for event in run.events if isinstance(event, ReplyRetry)]
    if retries and WIRES[name].is_stream:  # what it has said cannot be unsaid
        right.text, right.end = run.comes_to["streamed"], not_met(retries[0]).message
        right.thinking = said.thinking
    for place in ("thinking", "results", "functions"):
        if getattr(said, place) is None:
            setattr(right, place, None)
    return right


def test_no_wire_is_left_out() -> None:
    assert READERS.keys() == WIRES.keys()


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("run", [name for name in RUNS if RUNS[name].comes_to["end"]])
async def test_a_run_says_the_same_on_every_wire(name: str, run: str) -> None:
    if RUNS[run].comes_to["client_calls"] and WIRES[name].path == "/v1/completions":
        pytest.skip("its requests can offer no functions")
    said = await READERS[name](name, RUNS[run])
    assert said == expected(name, RUNS[run], said)


@pytest.mark.parametrize("run", [name for name in RUNS if RUNS[name].comes_to["end"] == "complete"])
async def test_the_json_answer_has_the_calls_of_the_model_and_of_its_agents(run: str) -> None:
    """Those of an agent in the call that has started it, or the agent that has called it."""
    answer: Any = await whole_reply("s", events_of(RUNS[run].log().reader()))
    found = []
    for entry in answer["tool_calls_executed"]:
        found.append((None, entry["tool_call_id"], entry["result"] or entry["error_message"]))
        for each in entry.get("agent_events", ()):
            if each["event"] == "agent_tool_result":
                data = each["data"]
                text = data["result"] or data["error_message"]
                found.append((data["agent_call_id"], data["tool_call_id"], text))
    right = [(agent, call_id, text) for call_id, agent, _, text in RUNS[run].comes_to["calls"]]
    assert sorted(found, key=str) == sorted(right, key=str)
