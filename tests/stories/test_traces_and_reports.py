"""Traces as a collector of OpenTelemetry gets them, and reports of errors as Sentry does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.docs.pages import ROOT, blocks
from tests.support.agents import write_tools_agent
from tests.support.fake_ollama import FakeOllama
from tests.support.receiver import Receiver, running_receiver
from tests.support.server import Server, running_server
from tests.support.tools import write_tools
from tests.support.waiting import until

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
TOOLS = '''
__all__ = ["greet", "fail"]


def greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello {name}"


def fail() -> str:
    """Fail."""
    raise ValueError("of no use")
'''


@dataclass
class SpanSeen:
    """A span as it was exported."""

    name: str
    trace: str
    span: str
    parent: str
    kind: int
    is_error: bool
    description: str
    attributes: dict[str, Any]
    events: list[str] = field(default_factory=list)


def value_of(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [value_of(each) for each in value.array_value.values]
    return getattr(value, kind)


def attributes_of(attributes: Any) -> dict[str, Any]:
    return {each.key: value_of(each.value) for each in attributes}


class Collector:
    """The spans that have come, and what they are of."""

    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver

    @property
    def resources(self) -> list[Any]:
        requests = [each for each in self.receiver.requests if each.path == "/v1/traces"]
        found = []
        for request in requests:
            parsed = ExportTraceServiceRequest()
            parsed.ParseFromString(request.body)
            found += parsed.resource_spans
        return found

    @property
    def spans(self) -> list[SpanSeen]:
        return [
            SpanSeen(
                span.name,
                span.trace_id.hex(),
                span.span_id.hex(),
                span.parent_span_id.hex(),
                span.kind,
                span.status.code == 2,
                span.status.message,
                attributes_of(span.attributes),
                [event.name for event in span.events],
            )
            for resource in self.resources
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    async def turn(self, count: int = 1) -> SpanSeen:
        """Wait for so many whole turns, and return the last one's span."""

        def turns() -> list[SpanSeen]:
            return [span for span in self.spans if "mochi.run.state" in span.attributes]

        await until(lambda: len(turns()) >= count)
        return turns()[count - 1]

    def tree(self, root: SpanSeen, depth: int = 0) -> list[str]:
        """The names of a span and of those below it, indented."""
        below = [span for span in self.spans if span.parent == root.span]
        lines = [line for span in below for line in self.tree(span, depth + 1)]
        return [f"{'  ' * depth}{root.name}", *lines]


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """A collector that the servers of this test know by the standard variables."""
    with running_receiver() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=k3y")
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        yield Collector(receiver)


async def say(server: Server, session: str, message: str, **headers: str) -> list[str]:
    with anyio.fail_after(60):
        stream = server.stream(f"/chat/{session}/stream", {"message": message}, headers=headers)
        return [event.event async for event in stream]


async def test_a_turn_is_a_tree_of_spans_below_that_of_its_caller(
    tmp_path: Path, ollama: FakeOllama, collector: Collector
):
    write_tools(tmp_path / "tools", init=TOOLS)
    write_tools_agent(tmp_path / "agents" / "coder")
    task = {"agent": "coder", "instruction": "secret-of-instruction"}
    greet = {"name": "greet", "arguments": {"name": "secret-of-arguments"}, "id": "call_1"}
    ollama.reply(
        ["secret-of-", "reply"],
        thinking=["secret-of-thinking"],
        tool_calls=[greet, {"name": "fail", "arguments": {}}, {"name": "agent", "arguments": task}],
        prompt_eval_count=300,
        eval_count=20,
    )
    ollama.reply(["I plan."], match="You work.")
    ollama.reply(
        ["I work."],
        match="You work.",
        tool_calls=[{"name": "work", "arguments": {}, "id": "call_1"}],
    )
    ollama.reply(["It is done."], match="You work.")
    ollama.reply(["Well"])
    async with running_server(data_dir=tmp_path, ollama=ollama) as server:
        session = await server.new_session(
            tool_settings={"tools": ["greet", "fail"], "execution_policy": "never_confirm"},
            agent_settings={"enabled_agents": ["coder"]},
        )
        headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "X-Request-ID": "from-a-test"}
        assert (await say(server, session, "secret-of-message", **headers))[-1] == "done"
        turn = await collector.turn()
        lines = collector.tree(turn)
        spans = {span.name: span for span in collector.spans}

    assert (turn.trace, turn.parent) == (TRACE, PARENT)
    assert {span.trace for span in collector.spans} == {TRACE}
    assert sorted(lines) == sorted(
        [
            "invoke_agent",
            "  chat qwen3:14b",
            "  execute_tool greet",
            "  execute_tool fail",
            "  execute_tool agent",
            "    invoke_agent coder",
            "      chat qwen3:14b",
            "      chat qwen3:14b",
            "      execute_tool work",
            "      chat qwen3:14b",
            "  chat qwen3:14b",
        ]
    )
    assert turn.attributes["mochi.request.id"] == "from-a-test"
    assert turn.attributes["mochi.run.state"] == "done"
    assert turn.attributes["gen_ai.conversation.id"] == session
    assert turn.attributes["gen_ai.operation.name"] == "invoke_agent"
    [first] = [s for s in collector.spans if s.attributes.get("gen_ai.usage.input_tokens") == 300]
    seconds = first.attributes.pop("gen_ai.response.time_to_first_chunk")
    assert 0 < seconds < 60
    assert first.kind == 3, "a client's"
    assert first.attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "ollama",
        "gen_ai.request.model": "qwen3:14b",
        "gen_ai.request.stream": True,
        "gen_ai.conversation.id": session,
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.input_tokens": 300,
        "gen_ai.usage.output_tokens": 20,
    }
    assert spans["execute_tool greet"].attributes == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "greet",
        "gen_ai.tool.call.id": "call_1",
        "gen_ai.tool.type": "function",
    }
    failed = spans["execute_tool fail"]
    assert failed.is_error
    assert failed.attributes["error.type"] == "TOOL_EXECUTION_FAILED"
    assert spans["invoke_agent coder"].attributes["gen_ai.agent.name"] == "coder"
    [resource] = {
        each.resource.SerializeToString(): each.resource for each in collector.resources
    }.values()
    assert attributes_of(resource.attributes)["service.name"] == "mochi-server"
    requests = collector.receiver.requests
    assert all(each.headers["api-key"] == "k3y" for each in requests)
    assert not any(b"secret-of" in each.body or b"of no use" in each.body for each in requests)


async def test_turns_that_fail_or_are_left_say_so_without_words(
    tmp_path: Path, ollama: FakeOllama, collector: Collector, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OTEL_SERVICE_NAME", "my-chat")
    async with running_server(data_dir=tmp_path, ollama=ollama) as server:
        session = await server.new_session()
        ollama.reply(["So"], error="secret-of-error")
        odd = {"traceparent": "00-garbage-\\x00-01", "tracestate": "a=" + "b" * 2000}
        assert (await say(server, session, "Hi", **odd))[-2:] == ["error", "done"]
        failed = await collector.turn()
        ollama.reply(["So", "on"], pause_after=1, gate=asyncio.Event())
        async for event in server.stream(f"/chat/{session}/stream", {"message": "Hi"}):
            if event.event == "content_delta":
                break
        left = await collector.turn(2)
        spans = collector.spans
        other, code = failed.trace, await server.stop()
    assert (failed.is_error, failed.description, failed.parent) == (True, "", "")
    assert failed.attributes["error.type"] == "OLLAMA_ERROR"
    assert failed.attributes["mochi.run.state"] == "failed"
    assert left.attributes["mochi.run.state"] == "stopped"
    assert left.trace != other
    [cancelled] = [span for span in spans if span.parent == left.span]
    assert cancelled.attributes["error.type"] == "cancelled"
    [resource] = {
        each.resource.SerializeToString(): each.resource for each in collector.resources
    }.values()
    assert attributes_of(resource.attributes)["service.name"] == "my-chat"
    assert not any(b"secret-of" in each.body for each in collector.receiver.requests)
    assert code == 0


@pytest.mark.parametrize(
    "switch", [{"OTEL_SDK_DISABLED": "true"}, {"OTEL_TRACES_EXPORTER": "none"}]
)
async def test_nothing_is_traced_that_is_switched_off(
    tmp_path: Path,
    ollama: FakeOllama,
    collector: Collector,
    monkeypatch: pytest.MonkeyPatch,
    switch: dict[str, str],
):
    [(name, value)] = switch.items()
    monkeypatch.setenv(name, value)
    async with running_server(data_dir=tmp_path, ollama=ollama) as server:
        session = await server.new_session()
        assert (await say(server, session, "Hi"))[-1] == "done"
        assert await server.stop() == 0
    assert collector.receiver.requests == []


async def test_a_collector_that_is_away_delays_neither_turns_nor_the_end(
    tmp_path: Path, ollama: FakeOllama, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    async with running_server(data_dir=tmp_path, ollama=ollama) as server:
        session = await server.new_session()
        assert (await say(server, session, "Hi"))[-1] == "done"
        assert await server.stop() == 0
    assert "Traceback" not in server.log


RECIPE = next(
    block.text
    for block in blocks(ROOT / "docs" / "how-to" / "observe.md")
    if "sentry_sdk" in block.text
)
BROKEN = """
MOCHI_PROVIDERS = {**MOCHI_PROVIDERS, "broken": {"BACKEND": "broken.Broken", "OPTIONS": {}}}
"""
PROVIDER = """
from mochi_server.providers.base import ContentDelta, ModelInfo, Provider


class Broken(Provider):
    async def list_models(self):
        return []

    async def show_model(self, name):
        if name == "in-a-view":
            secret = "-".join(["secret", "of", "view"])  # the code itself is reported
            raise RuntimeError("broken in a view")
        return ModelInfo(name=name)

    async def stream(self, request):
        secret = "-".join(["secret", "of", "turn"])
        yield ContentDelta(secret)
        raise RuntimeError("broken in a turn")

    async def check(self):
        return True
"""
FAILING_TOOL = '''
__all__ = ["fail"]


def fail() -> str:
    """Fail."""
    raise ValueError("of no use")
'''


def reports(receiver: Receiver) -> list[dict[str, Any]]:
    """The events that have come, out of their envelopes."""
    found = []
    for request in receiver.requests:
        lines = request.body.splitlines()[1:]
        for head, body in zip(lines[::2], lines[1::2], strict=True):
            if json.loads(head)["type"] == "event":
                found.append(json.loads(body))
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "my_settings.py").write_text(RECIPE + BROKEN)
    (tmp_path / "broken.py").write_text(PROVIDER)
    write_tools(tmp_path / "tools", init=FAILING_TOOL)
    return tmp_path


async def test_what_nobody_has_foreseen_arrives_once_with_its_ids_and_no_words(
    folder: Path, ollama: FakeOllama, monkeypatch: pytest.MonkeyPatch
):
    with running_receiver() as receiver:
        monkeypatch.setenv("SENTRY_DSN", receiver.url.replace("://", "://public@") + "/1")
        code = (
            f"import os, sys; sys.path[:0] = [{str(folder)!r}]; "
            "os.environ['DJANGO_SETTINGS_MODULE'] = 'my_settings'; "
            "from mochi_server.__main__ import main; sys.exit(main(['--port', '0']))"
        )
        async with running_server(
            data_dir=folder, ollama=ollama, command=("-c", code), api_token="t0psecret"
        ) as server:
            key = {"Authorization": "Bearer t0psecret"}

            async def post(path: str, body: Any, name: str) -> tuple[int, Any]:
                return await server.post(path, body, headers={**key, "X-Request-ID": name})

            status, body = await post("/sessions", {"model": "broken/in-a-view"}, "view")
            assert (status, body["error"]["code"]) == (500, "INTERNAL_ERROR")
            await until(lambda: len(reports(receiver)) == 1)

            _, session = await post("/sessions", {"model": "broken/in-a-turn"}, "x")
            path = f"/chat/{session['session_id']}/stream"
            headers = {**key, "X-Request-ID": "turn"}
            with anyio.fail_after(60):
                stream = server.stream(path, {"message": "secret-of-message"}, headers=headers)
                events = [event.event async for event in stream]
            assert events[-2:] == ["error", "done"]
            await until(lambda: len(reports(receiver)) == 2)

            _, session = await post(
                "/sessions",
                {
                    "model": "qwen3:14b",
                    "tool_settings": {"tools": ["fail"], "execution_policy": "never_confirm"},
                },
                "x",
            )
            ollama.reply(tool_calls=[{"name": "fail", "arguments": {}}])
            ollama.reply(["Well"])
            status, _ = await post(f"/chat/{session['session_id']}", {"message": "Hi"}, "tool")
            assert status == 200
            assert await server.stop() == 0
        found = reports(receiver)
        everything = b"".join(each.body for each in receiver.requests)

    of_view, of_turn = found
    for report, name, words in (
        (of_view, "view", "broken in a view"),
        (of_turn, "turn", "broken in a turn"),
    ):
        assert report["extra"]["request_id"] == name
        assert report["exception"]["values"][-1]["value"] == words
    assert of_turn["extra"]["run_id"].startswith("run_")
    assert b"secret-of" not in everything
    assert b"t0psecret" not in everything
