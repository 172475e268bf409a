"""Decisions in the terminal."""

from __future__ import annotations

from typing import Any

import pytest

from mochi_server.errors import JSONObject
from mochi_server.terminal.chat.decisions import Decisions
from mochi_server.terminal.client import RequestRefused, ServerUnreachable


class Person:
    """A keyboard, and what its person sees."""

    def __init__(self, *lines: str) -> None:
        self.lines = [*lines]
        self.errors: list[str] = []

    async def line(self, _: str, **__: Any) -> str:
        return self.lines.pop(0)

    def card(self, *_: str) -> None:
        pass

    def error(self, text: str) -> None:
        self.errors.append(text)


class Server:
    """Answers decisions, with errors first."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = [*errors]
        self.decided: list[JSONObject] = []

    async def request(self, _: str, __: str, body: JSONObject) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.decided.append(body)


async def decide(server: Server, person: Person) -> None:
    decisions = Decisions(server, person, person)  # type: ignore[arg-type] # all that is used
    await decisions.decide({"confirmation_id": "conf_1", "tool_name": "note", "shown": "{}"})


async def test_a_decision_that_a_server_did_not_get_is_asked_for_again():
    away, busy = ServerUnreachable("it is away"), RequestRefused(503, "X", "not now")
    server, person = Server(away, busy), Person("y", "y", "n", "too late")
    await decide(server, person)
    assert server.decided == [{"approved": False, "reason": "too late"}]
    assert person.errors == [str(away), str(busy)]


@pytest.mark.parametrize("code", ["CONFIRMATION_NOT_FOUND", "TOOL_CONFIRMATION_TIMEOUT"])
async def test_a_decision_that_came_too_late_is_not_asked_for_again(code):
    person = Person("y")
    await decide(Server(RequestRefused(404, code, "gone")), person)
    assert len(person.errors) == 1
