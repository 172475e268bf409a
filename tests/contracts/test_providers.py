"""One conversation with every provider: the same events, and the same messages in the file."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mochi_server.config import load_settings
from mochi_server.errors import ModelNotFound
from mochi_server.events import Event
from mochi_server.providers.anthropic import AnthropicProvider
from mochi_server.providers.base import Provider
from mochi_server.providers.gemini import GeminiProvider
from mochi_server.providers.ollama import OllamaProvider
from mochi_server.providers.openai_compatible import OpenAICompatibleProvider
from mochi_server.runtime import Runtime
from mochi_server.sessions import ToolSettings
from tests.support import fake_anthropic, fake_gemini, fake_openai
from tests.support.fake_ollama import FakeOllama
from tests.support.sse_vendor import Script, event
from tests.support.tools import write_tools
from tests.support.turns import MODEL as OLLAMA_MODEL
from tests.support.turns import kinds, masked, read_all, text_of

Calls = Sequence[tuple[str, dict[str, Any]]]
NAMES = ("ollama", "openai", "anthropic", "gemini")


class Service(ABC):
    """A vendor's service on a socket, and our provider for it."""

    model: str
    provider: Provider

    async def start(self, stack: AsyncExitStack) -> None:
        """Listen."""
        await self.open(stack)
        stack.push_async_callback(self.provider.aclose)

    @abstractmethod
    async def open(self, stack: AsyncExitStack) -> None: ...

    @abstractmethod
    def says(self, thinking: Sequence[str], text: Sequence[str], calls: Calls = ()) -> None:
        """Queue a whole reply."""

    @abstractmethod
    def breaks(self, text: str, error: str | None) -> None:
        """Queue a reply with an error in mid-stream, or with a cut connection."""

    @abstractmethod
    def is_busy(self) -> None:
        """Queue a refusal that says to come back in 30 seconds."""


class Ollama(Service):
    model = OLLAMA_MODEL

    async def open(self, stack: AsyncExitStack) -> None:
        self.fake = await stack.enter_async_context(FakeOllama())
        self.provider = OllamaProvider("it", host=self.fake.url)

    def says(self, thinking: Sequence[str], text: Sequence[str], calls: Calls = ()) -> None:
        found = [{"name": name, "arguments": arguments} for name, arguments in calls]
        self.fake.reply(text, thinking=thinking, tool_calls=found)

    def breaks(self, text: str, error: str | None) -> None:
        if error:
            self.fake.reply([text], error=error)
            return
        line = {"model": self.model, "message": {"role": "assistant", "content": text}}
        self.fake.play_raw([json.dumps({**line, "done": False}).encode() + b"\n"], end="drop")

    def is_busy(self) -> None:
        body = b'{"error":"server busy, please try again"}'
        self.fake.play_body(body, status=503, content_type="application/json")


class OpenAI(Service):
    model = "gpt-test"

    async def open(self, stack: AsyncExitStack) -> None:
        self.fake = await stack.enter_async_context(fake_openai.running_fake())
        self.fake.answers.append(self._models())
        self.provider = OpenAICompatibleProvider(
            "it",
            base_url=self.fake.base_url,
            abilities=("completion", "tools", "thinking"),
            attempts=3,
        )

    def _models(self) -> fake_openai.Answer:
        body = json.dumps({"object": "list", "data": [{"id": self.model, "object": "model"}]})
        return fake_openai.Answer(pieces=[body.encode()], content_type=fake_openai.JSON)

    def says(self, thinking: Sequence[str], text: Sequence[str], calls: Calls = ()) -> None:
        chunks = [fake_openai.delta(reasoning=word) for word in thinking]
        chunks += [fake_openai.delta(content=word) for word in text]
        for number, (name, arguments) in enumerate(calls):
            written = json.dumps(arguments)
            chunks.append(fake_openai.call_delta(number, id=f"c{number}", name=name))
            for part in (written[:4], written[4:]):
                chunks.append(fake_openai.call_delta(number, arguments=part))
        end = fake_openai.finished("tool_calls" if calls else "stop")
        self.fake.answers.append(fake_openai.stream(*chunks, end, fake_openai.usage(7, 5)))

    def breaks(self, text: str, error: str | None) -> None:
        chunks = [fake_openai.delta(content=text)]
        if error:
            chunks.append({"error": {"code": 500, "message": error}})
        then = "end" if error else "cut"
        self.fake.answers.append(fake_openai.stream(*chunks, done=False, then=then))

    def is_busy(self) -> None:
        wait = {"Retry-After": "30"}
        self.fake.answers.append(fake_openai.error(429, headers=wait, message="slow down"))


class Anthropic(Service):
    model = fake_anthropic.MODEL

    async def open(self, stack: AsyncExitStack) -> None:
        self.fake = fake_anthropic.FakeAnthropic()
        await stack.enter_async_context(self.fake)
        key = fake_anthropic.KEY
        self.provider = AnthropicProvider("it", api_key=key, base_url=self.fake.url)

    def says(self, thinking: Sequence[str], text: Sequence[str], calls: Calls = ()) -> None:
        parts = [fake_anthropic.thinking(0, *thinking)] if thinking else []
        parts += [fake_anthropic.text(1, *text)] if text else []
        for number, (name, arguments) in enumerate(calls):
            written = json.dumps(arguments)
            fragments = (written[:4], written[4:])
            parts.append(fake_anthropic.call(2 + number, f"toolu_{number}", name, *fragments))
        parts.append(fake_anthropic.end("tool_use" if calls else "end_turn"))
        pieces = [fake_anthropic.start(), *(piece for part in parts for piece in part)]
        self.fake.scripts.append(Script(pieces=pieces))

    def breaks(self, text: str, error: str | None) -> None:
        pieces = [fake_anthropic.start(), *fake_anthropic.text(0, text)]
        if error:
            pieces.append(event(self.fake.error(500, error), "error"))
        self.fake.scripts.append(Script(pieces=pieces, then="end" if error else "cut"))

    def is_busy(self) -> None:
        body = self.fake.error(429, "slow down")
        self.fake.scripts.append(Script(status=429, body=body, headers={"Retry-After": "30"}))


class Gemini(Service):
    model = fake_gemini.MODEL

    async def open(self, stack: AsyncExitStack) -> None:
        self.fake = fake_gemini.FakeGemini()
        await stack.enter_async_context(self.fake)
        key = fake_gemini.KEY
        self.provider = GeminiProvider("it", api_key=key, base_url=self.fake.url)

    def says(self, thinking: Sequence[str], text: Sequence[str], calls: Calls = ()) -> None:
        pieces = [fake_gemini.piece({"text": word, "thought": True}) for word in thinking]
        pieces += [fake_gemini.piece({"text": word}) for word in text]
        signed: dict[str, Any] = {"signed": fake_gemini.signature()}
        for name, arguments in calls:
            pieces.append(fake_gemini.piece(fake_gemini.call(name, arguments, **signed)))
            signed = {}
        pieces.append(fake_gemini.piece(reason="STOP", generated=5))
        self.fake.scripts.append(Script(pieces=pieces))

    def breaks(self, text: str, error: str | None) -> None:
        pieces = [fake_gemini.piece({"text": text})]
        if error:
            pieces.append(event(self.fake.error(500, error)))
        self.fake.scripts.append(Script(pieces=pieces, then="end" if error else "cut"))

    def is_busy(self) -> None:
        body = self.fake.error(429, "slow down")
        self.fake.scripts.append(Script(status=429, body=body, headers={"Retry-After": "30"}))


SERVICES = {"ollama": Ollama, "openai": OpenAI, "anthropic": Anthropic, "gemini": Gemini}


class Talk:
    """A session with one service."""

    def __init__(self, runtime: Runtime, service: Service, session_id: str) -> None:
        self.runtime, self.service, self._session_id = runtime, service, session_id

    async def turn(self, message: str, **fields: Any) -> list[Event]:
        """All events of a turn."""
        chat = self.runtime.chat
        opened = await chat.open_turn(self._session_id, message=message, **fields)
        return await read_all(chat.start(opened))

    def stored(self) -> list[dict[str, Any]]:
        """The messages in the file, without what differs between vendors."""
        path = self.runtime.settings.sessions_path / f"{self._session_id}.json"
        messages = masked(json.loads(path.read_bytes())["messages"])
        for message in messages:
            for key in ("model", "eval_count", "prompt_eval_count", "provider_data"):
                message.pop(key, None)
            for call in message.get("tool_calls") or ():
                call.pop("id")
        return messages


@pytest.fixture(params=NAMES)
async def talk(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Talk]:
    async with talking(SERVICES[request.param](), tmp_path) as found:
        yield found


@asynccontextmanager
async def talking(service: Service, folder: Path) -> AsyncIterator[Talk]:
    add = 'def add(x: int, y: int) -> int:\n    """Add."""\n    return x + y\n'
    write_tools(folder / "tools", init=f'{add}\n__all__ = ["add"]\n')
    async with AsyncExitStack() as stack:
        await service.start(stack)
        settings = load_settings(data_dir=folder, tool_isolation="thread")
        runtime = Runtime(settings, providers={"it": service.provider})
        stack.push_async_callback(runtime.aclose)
        allowed = ToolSettings(tools=["add"], execution_policy="never_confirm")
        session = await runtime.sessions.create(
            service.model, tool_settings=allowed, system_prompt="Be brief."
        )
        yield Talk(runtime, service, session.session_id)


def error_of(events: list[Event]) -> dict[str, Any]:
    """The data of the one error."""
    (error,) = (event.payload() for event in events if event.type == "error")
    return error


async def test_thinking_two_parallel_calls_and_their_results(talk: Talk) -> None:
    sums = [("add", {"x": 1, "y": 2}), ("add", {"x": 3, "y": 4})]
    talk.service.says(["Hm", "m."], ["Let me ", "see."], sums)
    talk.service.says(["So."], ["3 and ", "7."])
    talk.service.says([], ["You are ", "welcome."])
    events = await talk.turn("Add.", think=True)
    assert [kind for kind in kinds(events) if not kind.startswith("context")] == [
        "thinking_delta",
        "content_delta",
        "tool_call",
        "tool_result",
        "tool_continuation_start",
        "thinking_delta",
        "content_delta",
        "message_complete",
        "done",
    ]
    assert text_of(events) == "Let me see.3 and 7."
    assert text_of(events, "thinking_delta") == "Hmm.So."
    assert text_of(await talk.turn("Thanks.")) == "You are welcome."
    calls = [{"function": {"name": name, "arguments": arguments}} for name, arguments in sums]
    brief = [
        {
            key: message[key]
            for key in ("role", "content", "thinking", "tool_calls")
            if message.get(key)
        }
        for message in talk.stored()
    ]
    assert brief == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Add."},
        {"role": "assistant", "content": "Let me see.", "thinking": "Hmm.", "tool_calls": calls},
        {"role": "tool", "content": "3"},
        {"role": "tool", "content": "7"},
        {"role": "assistant", "content": "3 and 7.", "thinking": "So."},
        {"role": "user", "content": "Thanks."},
        {"role": "assistant", "content": "You are welcome."},
    ]


@pytest.mark.parametrize("error", ["boom", None])
async def test_what_came_before_an_error_or_a_cut_is_kept(talk: Talk, error: str | None) -> None:
    talk.service.breaks("Half", error)
    talk.service.says([], ["Whole."])
    events = await talk.turn("Hello")
    assert [kind for kind in kinds(events) if not kind.startswith("context")] == [
        "content_delta",
        "error",
        "done",
    ]
    if error:
        assert error in str(error_of(events))
    assert talk.stored()[-1]["content"] == "Half"
    assert talk.stored()[-1]["interrupted"] is True
    assert text_of(await talk.turn("Again")) == "Whole."


async def test_a_busy_service_is_said_to_be_busy(talk: Talk) -> None:
    talk.service.is_busy()
    error = error_of(await talk.turn("Hello"))
    assert "PROVIDER_BUSY" in str(error)
    assert [message["role"] for message in talk.stored()] == ["system", "user"]


async def test_an_unknown_model_is_an_error_before_the_stream(talk: Talk) -> None:
    session = await talk.runtime.sessions.create("nobody")
    with pytest.raises(ModelNotFound):
        await talk.runtime.chat.open_turn(session.session_id, message="Hello")
