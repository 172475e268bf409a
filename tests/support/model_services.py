"""Services that run models, each behind our provider for it, and told what to reply."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from codecs import BOM_UTF8
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

from mochi_server.providers.anthropic.provider import AnthropicProvider
from mochi_server.providers.base import Provider
from mochi_server.providers.gemini.provider import GeminiProvider
from mochi_server.providers.ollama.provider import OllamaProvider
from mochi_server.providers.openai import OpenAICompatibleProvider

from . import fake_anthropic, fake_gemini, fake_openai
from .fake_ollama import FakeOllama
from .sse_vendor import Script, event
from .turns import MODEL as OLLAMA_MODEL

Calls = Sequence[tuple[str, dict[str, Any]]]


class Service(ABC):
    """A vendor's service on a socket, and our provider for it."""

    model: str
    provider: Provider
    tools: Sequence[str] = ("add",)
    """What its sessions may use."""

    async def start(self, stack: AsyncExitStack) -> None:
        """Listen."""
        await self.open(stack)
        stack.push_async_callback(self.provider.aclose)
        await self.load()

    async def load(self) -> None:
        """Be ready for a turn, which must not take long."""
        await self.provider.show_model(self.model)

    def asked(self, message: str) -> str:
        """The message to send, where the queued replies follow from it."""
        return message

    def offered(self) -> list[str]:
        """The names of the tools in the last request, as the vendor reads them."""
        raise NotImplementedError

    def last_request(self) -> dict[str, Any]:
        """The body of the last chat, as the vendor reads it."""
        raise NotImplementedError

    @abstractmethod
    async def open(self, stack: AsyncExitStack) -> None: ...

    @abstractmethod
    def says(self, thinking: Sequence[str], text: Sequence[str], calls: Calls = ()) -> None:
        """Queue a whole reply."""

    @abstractmethod
    def writes_badly(self, name: str, arguments: str) -> None:
        """Queue a reply with a call whose arguments are this text."""

    @abstractmethod
    def breaks(self, text: str, error: str | None) -> None:
        """Queue a reply with an error in mid-stream, or with a cut connection."""

    def says_in_odd_bytes(self, text: Sequence[str]) -> None:
        """Queue a reply behind a byte order mark, with an invalid byte for each ``#``."""
        raise NotImplementedError

    def embeds(self, vectors: Sequence[Sequence[float]]) -> None:  # noqa: B027 - as it says
        """Queue an answer with vectors, where they do not follow from the texts."""

    @abstractmethod
    def is_busy(self) -> None:
        """Queue a refusal that says to come back in 30 seconds."""


def odd_bytes(pieces: Sequence[bytes]) -> list[bytes]:
    """The same behind a byte order mark in two writes, with an invalid byte for each ``#``."""
    return [BOM_UTF8[:1], BOM_UTF8[1:], *(piece.replace(b"#", b"\xff") for piece in pieces)]


class Ollama(Service):
    model = OLLAMA_MODEL

    async def open(self, stack: AsyncExitStack) -> None:
        self.fake = await stack.enter_async_context(FakeOllama())
        self.provider = OllamaProvider("it", host=self.fake.url)

    def last_request(self) -> dict[str, Any]:
        return self.fake.chats[-1]

    def says(self, thinking: Sequence[str], text: Sequence[str], calls: Calls = ()) -> None:
        found = [{"name": name, "arguments": arguments} for name, arguments in calls]
        self.fake.reply(text, thinking=thinking, tool_calls=found)

    def writes_badly(self, name: str, arguments: str) -> None:
        self.fake.reply([], tool_calls=[{"name": name, "arguments": arguments}])

    def breaks(self, text: str, error: str | None) -> None:
        if error:
            self.fake.reply([text], error=error)
            return
        line = {"model": self.model, "message": {"role": "assistant", "content": text}}
        self.fake.play_raw([json.dumps({**line, "done": False}).encode() + b"\n"], end="drop")

    def says_in_odd_bytes(self, text: Sequence[str]) -> None:
        lines = [
            {"model": self.model, "message": {"role": "assistant", "content": word}, "done": False}
            for word in text
        ]
        end = {"model": self.model, "message": {"role": "assistant", "content": ""}, "done": True}
        self.fake.play_raw(odd_bytes([json.dumps(line).encode() + b"\n" for line in [*lines, end]]))

    def is_busy(self) -> None:
        body = b'{"error":"server busy, please try again"}'
        self.fake.play_body(body, status=503, content_type="application/json")


class OpenAI(Service):
    model = "gpt-test"

    async def open(self, stack: AsyncExitStack) -> None:
        self.fake = await stack.enter_async_context(fake_openai.running_fake())
        self.fake.models = self._models()  # asked for again after half a minute
        self.provider = OpenAICompatibleProvider("it", base_url=self.fake.base_url)

    def offered(self) -> list[str]:
        return [tool["function"]["name"] for tool in self.fake.bodies[-1]["tools"]]

    def last_request(self) -> dict[str, Any]:
        found: dict[str, Any] = self.fake.bodies[-1]
        return found

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

    def writes_badly(self, name: str, arguments: str) -> None:
        call = fake_openai.call_delta(0, id="c0", name=name, arguments=arguments)
        self.fake.answers.append(fake_openai.stream(call, fake_openai.finished("tool_calls")))

    def breaks(self, text: str, error: str | None) -> None:
        chunks = [fake_openai.delta(content=text)]
        if error:
            chunks.append({"error": {"code": 500, "message": error}})
        then = "end" if error else "cut"
        self.fake.answers.append(fake_openai.stream(*chunks, done=False, then=then))

    def says_in_odd_bytes(self, text: Sequence[str]) -> None:
        self.says([], text)
        answer = self.fake.answers[-1]
        answer.pieces = odd_bytes(answer.pieces)

    def embeds(self, vectors: Sequence[Sequence[float]]) -> None:
        data = [{"index": index, "embedding": vector} for index, vector in enumerate(vectors)]
        usage = {"prompt_tokens": 7, "total_tokens": 7}
        body = json.dumps({"object": "list", "data": data[::-1], "usage": usage})
        self.fake.answers.append(
            fake_openai.Answer(pieces=[body.encode()], content_type=fake_openai.JSON)
        )

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

    def offered(self) -> list[str]:
        return [tool["name"] for tool in self.fake.chats[-1]["tools"]]

    def last_request(self) -> dict[str, Any]:
        return self.fake.chats[-1]

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

    def says_in_odd_bytes(self, text: Sequence[str]) -> None:
        self.says([], text)
        script = self.fake.scripts[-1]
        script.pieces = odd_bytes(script.pieces)

    def writes_badly(self, name: str, arguments: str) -> None:
        call = fake_anthropic.call(0, "toolu_0", name, arguments)
        pieces = [fake_anthropic.start(), *call, *fake_anthropic.end("tool_use")]
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

    def offered(self) -> list[str]:
        (tools,) = self.fake.chats[-1]["tools"]
        return [declared["name"] for declared in tools["functionDeclarations"]]

    def last_request(self) -> dict[str, Any]:
        return self.fake.chats[-1]

    def says(self, thinking: Sequence[str], text: Sequence[str], calls: Calls = ()) -> None:
        pieces = [fake_gemini.piece({"text": word, "thought": True}) for word in thinking]
        pieces += [fake_gemini.piece({"text": word}) for word in text]
        signed: dict[str, Any] = {"signed": fake_gemini.signature()}
        for name, arguments in calls:
            pieces.append(fake_gemini.piece(fake_gemini.call(name, arguments, **signed)))
            signed = {}
        pieces.append(fake_gemini.piece(reason="STOP", generated=5))
        self.fake.scripts.append(Script(pieces=pieces))

    def says_in_odd_bytes(self, text: Sequence[str]) -> None:
        self.says([], text)
        script = self.fake.scripts[-1]
        script.pieces = odd_bytes(script.pieces)

    def writes_badly(self, name: str, arguments: str) -> None:
        """End the reply as Gemini does: the call is in the words of the end only."""
        words = f"Malformed function call: print(default_api.{name}({arguments}"
        end = fake_gemini.piece(reason="MALFORMED_FUNCTION_CALL", words=words)
        self.fake.scripts.append(Script(pieces=[end]))

    def breaks(self, text: str, error: str | None) -> None:
        pieces = [fake_gemini.piece({"text": text})]
        if error:
            pieces.append(event(self.fake.error(500, error)))
        self.fake.scripts.append(Script(pieces=pieces, then="end" if error else "cut"))

    def is_busy(self) -> None:
        body = self.fake.error(429, "slow down")
        self.fake.scripts.append(Script(status=429, body=body, headers={"Retry-After": "30"}))
