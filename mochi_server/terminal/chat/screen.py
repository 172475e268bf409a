"""What the terminal shows: texts as they arrive, tool calls, agents, tables, lines of status."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections.abc import Sequence
from typing import Final, Literal

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from ..client import safe_text
from .markdown import TerminalMarkdown, split_blocks

REFRESH_SECONDS: Final = 0.1
"""Shortest time between two pictures of what is not finished."""

REFRESH_SHARE: Final = 5
"""A picture that took long is followed by a pause of so many times its time."""

THINKING_LINES: Final = 3
"""Lines of thinking and of agents' texts that are shown while they arrive."""

_MARGIN: Final = 4
"""Lines of the screen that a text does not use while it arrives."""

Kind = Literal["answer", "thinking"]


class Screen:
    """The output of the chat.

    On a terminal that can move its cursor, what is not finished is drawn at the end of the output,
    at most each REFRESH_SECONDS, and replaced by its final form, which is never drawn again. On
    others, texts are written as they arrive.
    """

    def __init__(self) -> None:
        self.console = Console(markup=False, highlight=False, emoji=False)
        if self.console.is_dumb_terminal:  # rich takes each of them for 80 columns wide
            self.console.size = shutil.get_terminal_size()
        self.is_plain = self.console.is_dumb_terminal or not self.console.is_terminal
        self._live: Live | None = None
        self._kind: Kind | None = None
        self._text = ""
        self._label = ""
        self._blocks = 0
        self._status = ""
        self._drawn_at = 0.0
        self._pause = REFRESH_SECONDS
        self._timer: asyncio.TimerHandle | None = None

    # ---- whole lines

    def line(self, text: str = "", style: str = "") -> None:
        """Print a line, after what was arriving."""
        self.finish()
        self._print(Text(safe_text(text), style=style))

    def note(self, text: str) -> None:
        self.line(text, "dim")

    def error(self, text: str) -> None:
        self.line(text, "red")

    def markdown(self, text: str) -> None:
        self.finish()
        text = safe_text(text)
        self._print(Text(text) if self.is_plain else TerminalMarkdown(text))

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Print rows below the names of their columns; cells are folded where there is no room."""
        self.finish()
        table = Table(box=None, header_style="dim", pad_edge=False)
        for column in columns:
            table.add_column(column, overflow="fold")
        for row in rows:
            table.add_row(*(Text(safe_text(str(cell))) for cell in row))
        self._print(table)

    def card(self, title: str, body: str, notice: str = "") -> None:
        """Print a text in a frame; nothing of it is left out."""
        self.finish()
        parts = [Text(safe_text(body))]
        if notice:
            parts.insert(0, Text(safe_text(notice), style="yellow"))
        if self.is_plain:
            self._print(Group(Text(f"== {safe_text(title)}"), *parts))
            return
        self._print(
            Panel(Group(*parts), title=Text(safe_text(title)), title_align="left", expand=False)
        )

    # ---- texts that arrive

    def answer(self, text: str) -> None:
        """Show a piece of the answer."""
        self._feed("answer", "", text)

    def thinking(self, text: str, label: str = "Thinking") -> None:
        """Show a piece of what is shown only while it arrives."""
        self._feed("thinking", label, text)

    def status(self, text: str) -> None:
        """Show a line at the end of the output until something else begins."""
        self._status = safe_text(text)
        if not self.is_plain:
            self._draw_soon()

    def finish(self) -> None:
        """Print what is arriving in its final form."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        kind, text = self._kind, self._text
        self._kind, self._text, self._status = None, "", ""
        if self._live is not None:
            self._live.stop()
            self._live = None
        if kind == "answer":
            if self.is_plain:
                self._write("\n")
            else:
                self._print_blocks(split_blocks(text))
        elif kind == "thinking":
            words = len(text.split())
            self._print(Text(f"({self._label}: {words:,} words)", style="dim"))
        self._blocks = 0

    def _feed(self, kind: Kind, label: str, text: str) -> None:
        if (self._kind, self._label) != (kind, label):
            self.finish()
            self._kind, self._label = kind, label
        text = safe_text(text)
        if self.is_plain and kind == "answer":
            self._write(text)
            return
        self._text += text
        if not self.is_plain:
            self._draw_soon()

    def _draw_soon(self) -> None:
        if self._timer is None:
            wait = max(0.0, self._drawn_at + self._pause - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(wait, self._draw)

    def _draw(self) -> None:
        self._timer = None
        begin = time.monotonic()
        if self._live is None:
            self._live = Live(
                console=self.console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        done: list[str] = []
        if self._kind == "answer" and (blocks := split_blocks(self._text)):
            *done, self._text = blocks
        self._live.update(self._picture(is_first=not (self._blocks or done)), refresh=not done)
        self._print_blocks(done)
        self._drawn_at = time.monotonic()
        self._pause = max(REFRESH_SECONDS, REFRESH_SHARE * (self._drawn_at - begin))

    def _picture(self, *, is_first: bool) -> RenderableType:
        status = Text(self._status, style="dim")
        if self._kind is None:
            return status
        text = self._picture_of_text(is_first=is_first)
        return Group(text, status) if self._status else text

    def _picture_of_text(self, *, is_first: bool) -> RenderableType:
        if self._kind == "thinking":
            lines = Text(self._text.strip(), style="dim italic").wrap(
                self.console, self.console.width
            )
            return Group(Text(f"{self._label} ...", style="dim"), *lines[-THINKING_LINES:])
        room = max(1, self.console.height - _MARGIN)
        markdown = TerminalMarkdown(self._text, room)
        return markdown if is_first else Group("", markdown)

    def _print_blocks(self, blocks: Sequence[str]) -> None:
        for block in blocks:
            content = TerminalMarkdown(block)
            self._print(Group(Text(), content) if self._blocks else content)
            self._blocks += 1

    def _print(self, content: RenderableType) -> None:
        self.console.print(content)

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()
