"""Markdown that is shown while it arrives: finished blocks once, the open one again and again."""

from __future__ import annotations

from typing import ClassVar

from markdown_it import MarkdownIt
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement
from rich.segment import Segment
from rich.syntax import Syntax
from rich.text import Text

_PARSER = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
"""Reads HTML as text: rich would leave it out."""


class _LeftHeading(Heading):
    """A heading on the left, without a box."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class _PlainCodeBlock(CodeBlock):
    """Code without margins, so that it can be copied, in the colours of the terminal."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(f"```{self.lexer_name if self.lexer_name != 'text' else ''}", style="dim")
        yield Syntax(
            str(self.text).rstrip(),
            self.lexer_name,
            theme="ansi_dark",
            word_wrap=True,
            background_color="default",
        )
        yield Text("```", style="dim")


class _Markdown(Markdown):
    def __init__(self, text: str) -> None:
        super().__init__("", hyperlinks=False)
        self.parsed = _PARSER.parse(text)

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _LeftHeading,
        "fence": _PlainCodeBlock,
        "code_block": _PlainCodeBlock,
    }


class TerminalMarkdown:
    """Markdown of a model: links are shown with their addresses, no lines are blank at the ends.

    ``lines``: most lines to show, the last ones; None: all.
    """

    def __init__(self, text: str, lines: int | None = None) -> None:
        self._markdown = _Markdown(text)
        self._lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self._markdown, options.update(height=None), pad=False)
        lines = [_without_trailing_blanks(line) for line in lines]
        filled = [at for at, line in enumerate(lines) if line]
        if not filled:
            return
        shown = lines[filled[0] : filled[-1] + 1]
        for line in shown if self._lines is None else shown[-self._lines :]:
            yield from line
            yield Segment.line()


def split_blocks(text: str) -> list[str]:
    """Split Markdown into its blocks, such as paragraphs and tables; the last one may go on."""
    starts = [
        token.map[0]
        for token in _PARSER.parse(text)
        if token.level == 0 and token.nesting >= 0 and token.map
    ]
    lines = text.splitlines(keepends=True)
    ends = [*starts[1:], len(lines)]
    return ["".join(lines[start:end]) for start, end in zip(starts, ends, strict=True)]


def _without_trailing_blanks(line: list[Segment]) -> list[Segment]:
    line = [*line]
    while line and not line[-1].text.rstrip():
        line.pop()
    if line:
        line[-1] = Segment(line[-1].text.rstrip(), line[-1].style)
    return line
