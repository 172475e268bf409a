"""Input from a terminal that cannot move its cursor."""

from __future__ import annotations

import asyncio
import io
import os
import sys
from collections.abc import Iterator

import pytest
from prompt_toolkit.completion import DummyCompleter

from mochi_server.terminal.chat.keyboard import Keyboard
from tests.support.waiting import until


class HastyPerson(io.StringIO):
    """Answers in the moment in which a question is shown."""

    def __init__(self, terminal: int) -> None:
        super().__init__()
        self._terminal = terminal

    def write(self, text: str) -> int:
        os.write(self._terminal, b"at once\r")
        return super().write(text)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The end at which the person sits."""
    person, program = os.openpty()
    monkeypatch.setenv("TERM", "dumb")
    with open(program) as stdin, open(person, "rb"):  # noqa: PTH123 - descriptors
        monkeypatch.setattr(sys, "stdin", stdin)
        yield person


async def test_an_answer_can_be_seen_as_soon_as_its_question(
    terminal: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyboard, seen = Keyboard(DummyCompleter()), bytearray()
    monkeypatch.setattr(sys, "stdout", HastyPerson(terminal))
    loop = asyncio.get_running_loop()
    loop.add_reader(terminal, lambda: seen.extend(os.read(terminal, 100)))
    with keyboard.quiet():
        assert await keyboard.line("Why? ") == "at once"
        await until(lambda: b"at once" in seen)
    loop.remove_reader(terminal)
