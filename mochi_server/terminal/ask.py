"""``mochi-server ask``: one question, and the answer on standard output, for pipes and scripts."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any

import anyio

from ..errors import JSONObject
from .client import Client, RequestRefused, ServerUnreachable, StreamEvent, path_of, safe_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked, and how."""

    text: str
    model: str | None = None
    """Name of the model; None: the session's, or the first that the server lists."""

    session_id: str | None = None
    """Session that goes on; None: a new one, which is deleted afterwards unless ``keep``."""

    last: bool = False
    """Go on with the session that changed last."""

    keep: bool = False
    system_prompt: str | None = None
    tools: Sequence[str] = field(default=())
    options: JSONObject = field(default_factory=dict)
    """Of the model, such as ``temperature``."""

    attachments: Sequence[JSONObject] = field(default=())
    """As ``POST /chat/{session_id}`` takes them."""

    wait_for_confirmations: bool = False
    as_json: bool = False


class NothingThere(Exception):
    """The server has no model, or no session to go on with."""


class CannotPrint(Exception):
    """Standard output takes no more, as a full disk does."""


async def first_model(client: Client) -> str:
    """Return the name of the first model that the server lists.

    Raises:
        NothingThere: It has none.
    """
    answer = await client.request("GET", "/models")
    for model in answer["models"]:
        return str(model["name"])
    problems = "; ".join(f"{each['provider']}: {each['message']}" for each in answer["problems"])
    raise NothingThere(f"The server has no model. {problems}".rstrip())


async def last_session(client: Client) -> str | None:
    """Return the id of the session that changed last; None if there is no session."""
    listed = await client.request("GET", "/sessions", limit=1)
    return next((str(each["session_id"]) for each in listed["sessions"]), None)


async def ask(client: Client, question: Question) -> None:
    """Print the answer to a question as it comes, or with ``as_json`` the response of the server.

    Raises:
        NothingThere: No model is named, and the server has none; or there is no last session.
        RequestRefused: The server or the model refuses.
        ServerUnreachable: The server went away.
        CannotPrint, BrokenPipeError: The answer cannot be printed.
    """
    session_id = question.session_id
    if question.last:
        session_id = await last_session(client)
        if session_id is None:
            raise NothingThere("There is no session to go on with.")
    is_new = session_id is None
    temporary = is_new and not question.keep
    if session_id is None:
        session_id = await _new_session(client, question)
    elif question.model is not None:
        await client.request("PATCH", path_of("sessions", session_id), {"model": question.model})
    body = _message_of(question)
    try:
        if question.as_json:
            print_json(await client.request("POST", path_of("chat", session_id), body))
        else:
            await _stream(client, path_of("chat", session_id, "stream"), body)
    except BaseException:
        if temporary:
            with anyio.CancelScope(shield=True), suppress(RequestRefused, ServerUnreachable):
                # Its run may not have noticed yet that nobody waits for it.
                await client.request("POST", path_of("chat", session_id, "stop"))
            await _delete(client, session_id)
        elif is_new:
            await _delete_if_empty(client, session_id)
        raise
    if temporary:
        await _delete(client, session_id)


def _message_of(question: Question) -> JSONObject:
    body: JSONObject = {
        "message": question.text,
        "confirmations": "wait" if question.wait_for_confirmations else "deny",
    }
    if question.options:
        body["options"] = {**question.options}
    if question.attachments:
        body["attachments"] = [*question.attachments]
    return body


async def _stream(client: Client, path: str, body: JSONObject) -> None:
    answer = _StreamedText()
    try:
        await _print_events(answer, client.events("POST", path, body))
    except (SystemExit, KeyboardInterrupt):  # by a signal, perhaps as nobody reads
        raise
    except BaseException:
        answer.end()
        raise
    answer.end()


async def _print_events(answer: _StreamedText, stream: AsyncGenerator[StreamEvent, None]) -> None:
    async with aclosing(stream) as events:
        async for event in events:
            data: Any = event.data
            match event.name:
                case "content_delta":
                    answer.write(data["content"])
                case "tool_continuation_start" | "reply_retry":
                    answer.begin_paragraph()
                case "message_complete":
                    answer.is_complete = True
                case "error":
                    raise RequestRefused(0, data["code"], data["message"])
    if not answer.is_complete:
        raise RequestRefused(0, "RUN_STOPPED", "Somebody has stopped the answer.")


class _StreamedText:
    """A text on standard output, which ends with one line break."""

    def __init__(self) -> None:
        self.is_complete = False
        self._is_empty = True
        self._line_breaks = ""
        """Those that are printed only if something follows."""

    def write(self, text: str) -> None:
        text = self._line_breaks + text
        printed = text.rstrip("\n")
        self._line_breaks = text[len(printed) :]
        self._is_empty = self._is_empty and not printed
        print_text(printed)

    def begin_paragraph(self) -> None:
        if not self._is_empty:
            self._line_breaks = "\n\n"

    def end(self) -> None:
        if self.is_complete or not self._is_empty:
            print_text("\n")


def print_text(text: str) -> None:
    """Print a text at once; on a terminal without what could change other lines.

    Raises:
        CannotPrint: Standard output is closed, or takes no more.
        BrokenPipeError: Whoever reads it has closed it.
    """
    if sys.stdout is None:
        raise CannotPrint("The answer cannot be written: standard output is closed")
    try:
        sys.stdout.write(safe_text(text) if sys.stdout.isatty() else text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CannotPrint(f"The answer cannot be written: {error.strerror}") from error


def print_json(value: object) -> None:
    """Print a value as JSON for people."""
    print_text(json.dumps(value, ensure_ascii=False, indent=2) + "\n")


async def _delete_if_empty(client: Client, session_id: str) -> None:
    """Delete a session whose first message was refused."""
    with anyio.CancelScope(shield=True), suppress(RequestRefused, ServerUnreachable):
        session = await client.request("GET", path_of("sessions", session_id))
        if not any(message["role"] == "user" for message in session["messages"]):
            await _delete(client, session_id)


async def _delete(client: Client, session_id: str) -> None:
    with anyio.CancelScope(shield=True), suppress(RequestRefused, ServerUnreachable):
        await client.request("DELETE", path_of("sessions", session_id))


async def _new_session(client: Client, question: Question) -> str:
    body: dict[str, Any] = {"model": question.model or await first_model(client)}
    if question.system_prompt is not None:
        body["system_prompt"] = question.system_prompt
    if question.tools:
        body["tool_settings"] = {"tools": [*question.tools]}
    session = await client.request("POST", "/sessions", body)
    return str(session["session_id"])
