"""Input from the terminal: prompts, Ctrl-C while an answer arrives, no echo between prompts."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import Completer
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input.typeahead import clear_typeahead
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.utils import is_dumb_terminal

_INPUT_FLAGS, _LOCAL_FLAGS = 0, 3
"""Positions of the flags among the attributes of a terminal."""

_LONGEST_LINE = 4096
"""Bytes of a line that a terminal gives at a time."""


class Interrupted(Exception):
    """Ctrl-C at a prompt. `KeyboardInterrupt` would end the event loop if a task raised it."""


class Left(Exception):
    """The person leaves the program: Ctrl-C twice, or Ctrl-D."""


class Keyboard:
    """The prompts.

    Args:
        completer: Completes what is written at the first prompt.

    Where the terminal cannot move its cursor, its own line editing is all there is: every line
    begins empty, and has no history and no completion.
    """

    def __init__(self, completer: Completer) -> None:
        self._messages: PromptSession[str] | None = None
        if is_dumb_terminal():
            return
        self._messages = PromptSession(
            history=InMemoryHistory(),
            completer=completer,
            complete_while_typing=False,
            key_bindings=_bindings(),
            interrupt_exception=Interrupted,
        )

    async def message(self, default: str = "") -> str:
        """Ask for the next message or command.

        Raises:
            Left: Ctrl-D, or Ctrl-C where nothing is written.
        """
        try:
            if self._messages is None:
                return await _plain_line("> ")
            return await self._messages.prompt_async("> ", default=default)
        except Interrupted as error:
            if self._messages is not None and self._messages.default_buffer.text:
                return ""
            raise Left from error
        except EOFError as error:
            raise Left from error

    def quiet(self) -> AbstractContextManager[None]:
        """Keep what is typed out of the output; it is kept for the next prompt, Enter as well."""
        return _attributes(echo=False, enter_is_newline=self._messages is None)

    async def line(self, question: str, default: str = "") -> str:
        """Ask for a line about what the program shows.

        What was typed before is not taken for an answer.

        Raises:
            Interrupted: Ctrl-C.
            EOFError: Ctrl-D.
        """
        termios.tcflush(sys.stdin, termios.TCIFLUSH)
        if self._messages is None:
            return await _plain_line(question)
        prompt: PromptSession[str] = PromptSession(interrupt_exception=Interrupted)
        clear_typeahead(prompt.input)  # what came in one piece with the answer before
        return await prompt.prompt_async(question, default=default, handle_sigint=False)


async def _plain_line(question: str) -> str:
    """Read a line as the terminal itself lets one edit it.

    Raises:
        Interrupted: Ctrl-C.
        EOFError: Ctrl-D.
    """
    loop = asyncio.get_running_loop()
    read: asyncio.Future[bytes] = loop.create_future()

    def take() -> None:
        if not read.done():
            read.set_result(os.read(sys.stdin.fileno(), _LONGEST_LINE))

    def interrupt() -> None:
        if not read.done():
            read.set_exception(Interrupted())

    loop.add_reader(sys.stdin, take)
    try:
        with _attributes(echo=True, enter_is_newline=True), on_interrupt(interrupt):
            print(question, end="", flush=True)  # noqa: T201
            line = await read
    finally:
        loop.remove_reader(sys.stdin)
    if not line:
        raise EOFError
    return line.decode(errors="replace").rstrip("\r\n")


def _bindings() -> KeyBindings:
    bindings = KeyBindings()

    @bindings.add("escape", "enter")
    @bindings.add("c-j")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return bindings


@contextmanager
def _attributes(*, echo: bool, enter_is_newline: bool) -> Iterator[None]:
    before = termios.tcgetattr(sys.stdin)
    changed = termios.tcgetattr(sys.stdin)
    for position, flag, on in (
        (_LOCAL_FLAGS, termios.ECHO, echo),
        (_INPUT_FLAGS, termios.ICRNL, enter_is_newline),
    ):
        changed[position] = changed[position] | flag if on else changed[position] & ~flag
    termios.tcsetattr(sys.stdin, termios.TCSADRAIN, changed)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


@contextmanager
def on_interrupt(action: Callable[[], object]) -> Iterator[None]:
    """Call a function at each Ctrl-C until the block ends."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, action)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
