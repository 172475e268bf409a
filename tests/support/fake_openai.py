"""A server of OpenAI's chat completions on a raw socket: exact bytes, cuts, and who has gone.

It refuses what OpenAI refuses; ``template`` adds what the chat template of Mistral's models does.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from .sse_vendor import Refused

SSE = "text/event-stream"
JSON = "application/json"


@dataclass(kw_only=True)
class Answer:
    """What the server sends for one request."""

    pieces: list[bytes]
    """Sent one write each."""
    status: int = 200
    content_type: str = SSE
    headers: dict[str, str] = field(default_factory=dict)
    then: str = "end"
    """``end`` of the body, ``cut`` the connection, ``hold`` it until the client goes, or
    ``drop`` or ``reset`` it at once."""


def delta(**fields: Any) -> dict[str, Any]:
    """A chunk with a delta."""
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": [{"index": 0, "delta": fields, "finish_reason": None}]}  # fmt: skip


def finished(reason: str = "stop") -> dict[str, Any]:
    """The chunk that ends a choice."""
    chunk = delta()
    chunk["choices"][0]["finish_reason"] = reason
    return chunk


def usage(prompt: int, completion: int) -> dict[str, Any]:
    """The last chunk, which has no choices."""
    chunk = delta()
    counts = {"prompt_tokens": prompt, "completion_tokens": completion}
    return {**chunk, "choices": [], "usage": {**counts, "total_tokens": prompt + completion}}


def call_delta(index: int, **fields: Any) -> dict[str, Any]:
    """A fragment of a tool call: ``id``, ``name``, ``arguments``."""
    function = {key: fields[key] for key in ("name", "arguments") if key in fields}
    call = {"index": index, "function": function}
    if "id" in fields:
        call |= {"id": fields["id"], "type": "function"}
    return delta(tool_calls=[call])


def stream(*chunks: dict[str, Any], done: bool = True, then: str = "end") -> Answer:
    """A streamed reply."""
    pieces = [f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks]
    return Answer(pieces=[*pieces, *([b"data: [DONE]\n\n"] if done else [])], then=then)


def error(status: int, *, headers: dict[str, str] | None = None, **fields: Any) -> Answer:
    """An error with OpenAI's body."""
    return Answer(
        pieces=[json.dumps({"error": fields}).encode()],
        status=status,
        content_type=JSON,
        headers=headers or {},
    )


class FakeOpenAI:
    """Answers requests in order from ``answers``; keeps what it was asked."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.models: Answer | None = None
        """To every request for the list of models; None: it takes one of the answers."""
        self.paths: list[str] = []
        self.bodies: list[Any] = []
        self.headers: list[dict[str, str]] = []
        self.client_gone = asyncio.Event()
        """Set when a client leaves while its answer is held."""
        self.base_url = ""
        self.template = False
        """Whether roles must alternate, and ids of calls have nine letters and digits."""

    def _refusal(self, body: Any) -> Answer | None:
        """The answer to a request that breaks a rule."""
        if body is None or "messages" not in body:
            return None
        try:
            _check_tools(body)
            _check_messages(body["messages"])
            if self.template:
                _check_template(body["messages"])
        except Refused as refused:
            return error(refused.status, message=str(refused), type="invalid_request_error")
        return None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, one request."""
        try:
            await self._answer(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            self.client_gone.set()
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.split("\r\n")
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        self.paths.append(first.rsplit(" ", 1)[0])
        self.headers.append(headers)
        self.bodies.append(json.loads(body) if body else None)
        if self.models is not None and self.paths[-1].endswith("/models"):
            answer = self.models
        else:
            answer = self._refusal(self.bodies[-1]) or self.answers.pop(0)
        if answer.then == "drop":
            return
        if answer.then == "reset":
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort()
            return
        extra = "".join(f"{name}: {value}\r\n" for name, value in answer.headers.items())
        writer.write(
            f"HTTP/1.1 {answer.status} X\r\nContent-Type: {answer.content_type}\r\n{extra}"
            "Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        )
        for piece in answer.pieces:
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            await writer.drain()
        if answer.then == "end":
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        elif answer.then == "hold":
            await reader.read()
            self.client_gone.set()


_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NINE = re.compile(r"[a-zA-Z0-9]{9}")
_KEYS = {"role", "content", "tool_calls", "tool_call_id"}
_OF_RESULTS = {"name"}
_ECHOED = {"reasoning_content", "reasoning", "reasoning_details"}


def _check_tools(body: dict[str, Any]) -> None:
    names = [tool["function"]["name"] for tool in body.get("tools", ()) if "function" in tool]
    if not all(map(_NAME.fullmatch, names)) or len(set(names)) < len(names):
        raise Refused("Invalid 'tools[0].function.name': string does not match pattern.")
    schemas = [t["function"].get("parameters") for t in body.get("tools", ()) if "function" in t]
    if any(schema is not None and "properties" not in schema for schema in schemas):
        raise Refused("Invalid schema for function: object schema missing properties.")
    if any(schema and schema.keys() & {"oneOf", "anyOf", "allOf", "enum"} for schema in schemas):
        raise Refused("schema must not have 'oneOf'/'anyOf'/'allOf'/'enum' at the top level.")


def _check_messages(messages: list[dict[str, Any]]) -> None:
    waiting: list[str] = []
    for number, message in enumerate(messages):
        known = _KEYS | (_OF_RESULTS if message["role"] == "tool" else _ECHOED)
        if extra := message.keys() - known:
            raise Refused(f"Unrecognized request argument supplied: messages[{number}].{extra}")
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                raise Refused("messages with role 'tool' must follow their 'tool_calls'.")
            waiting.remove(message["tool_call_id"])
            continue
        _check_answered(waiting)
        if not (message["content"] or message.get("tool_calls")):
            raise Refused(f"Invalid 'messages[{number}].content': expected some text.")
        for call in message.get("tool_calls", ()):
            function = call["function"]
            if len(call["id"]) > 40 or not _NAME.fullmatch(function["name"]):
                raise Refused(f"Invalid 'messages[{number}].tool_calls[0]': id or name.")
            if not isinstance(json.loads(function["arguments"]), dict):
                raise Refused(f"Invalid 'messages[{number}].tool_calls[0].function.arguments'.")
            waiting.append(call["id"])
    _check_answered(waiting)


def _check_answered(waiting: list[str]) -> None:
    if waiting:
        raise Refused(f"The following tool_call_ids did not have response messages: {waiting}")


def _check_template(messages: list[dict[str, Any]]) -> None:
    """What the template raises; llama.cpp and vLLM answer 500 or 400 with it."""
    spoken = [m for m in messages if m["role"] in {"user", "assistant"}]
    turns = [m["role"] for m in spoken if not m.get("tool_calls")]
    if turns != [("user", "assistant")[n % 2] for n in range(len(turns))]:
        raise Refused("Conversation roles must alternate user/assistant/user/assistant/...", 500)
    ids = [call["id"] for m in spoken for call in m.get("tool_calls", ())]
    if not all(map(_NINE.fullmatch, ids)):
        raise Refused("Tool call IDs should be alphanumeric strings with length 9!", 500)


@asynccontextmanager
async def running_fake() -> AsyncIterator[FakeOpenAI]:
    """A fake that listens on a free port of loopback."""
    fake = FakeOpenAI()
    server = await asyncio.start_server(fake.serve, "127.0.0.1", 0)
    fake.base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield fake
    finally:
        server.close()
        await server.wait_closed()
