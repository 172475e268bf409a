"""``mochi-server ask``: one question, and the answer on standard output, for pipes and scripts."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import anyio

from ..errors import JSONObject
from .client import Client, RequestRefused, ServerUnreachable, path_of, safe_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked, and how."""

    text: str
    model: str | None = None
    """Name of the model; None: the session's, or the first that the server lists."""

    session_id: str | None = None
    """Session that goes on; None: a new one, which is deleted afterwards unless ``keep``."""

    keep: bool = False
    system_prompt: str | None = None
    tools: Sequence[str] = field(default=())
    wait_for_confirmations: bool = False
    as_json: bool = False


class NoModel(Exception):
    """The server has no model."""


async def first_model(client: Client) -> str:
    """Return the name of the first model that the server lists.

    Raises:
        NoModel: It has none.
    """
    answer = await client.request("GET", "/models")
    for model in answer["models"]:
        return str(model["name"])
    problems = "; ".join(f"{each['provider']}: {each['message']}" for each in answer["problems"])
    raise NoModel(f"The server has no model. {problems}".rstrip())


async def ask(client: Client, question: Question) -> None:
    """Print the answer to a question, or with ``as_json`` the response of the server.

    Raises:
        NoModel: No model is named, and the server has none.
        RequestRefused: The server or the model refuses.
        ServerUnreachable: The server went away.
    """
    session_id = question.session_id
    if session_id is None:
        session_id = await _new_session(client, question)
    elif question.model is not None:
        await client.request("PATCH", path_of("sessions", session_id), {"model": question.model})
    body: JSONObject = {
        "message": question.text,
        "confirmations": "wait" if question.wait_for_confirmations else "deny",
    }
    temporary = question.session_id is None and not question.keep
    try:
        answer = await client.request("POST", path_of("chat", session_id), body)
    except BaseException:
        if temporary:
            with anyio.CancelScope(shield=True), suppress(RequestRefused, ServerUnreachable):
                # Its run may not have noticed yet that nobody waits for it.
                await client.request("POST", path_of("chat", session_id, "stop"))
            await _delete(client, session_id)
        raise
    if temporary:
        await _delete(client, session_id)
    _print(answer, as_json=question.as_json)


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


def _print(answer: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        text = json.dumps(answer, ensure_ascii=False, indent=2)
    else:
        text = answer["message"]["content"].rstrip("\n")
    if sys.stdout.isatty():
        text = safe_text(text)
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
