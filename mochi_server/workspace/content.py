"""The content of a file, as a model reads and edits it."""

from __future__ import annotations

MOST_BYTES = 10_000_000
"""Longest file that is read, written or edited."""

MOST_LINES = 2_000
MOST_CHARACTERS = 50_000
"""Longest text that is shown at once."""

_BINARY_CHECK = 8_192
_SHOWN_LINES = 10


class EditProblem(Exception):
    """Why a text cannot be replaced; for the model."""


def is_binary(content: bytes) -> bool:
    return b"\0" in content[:_BINARY_CHECK]


def printable(text: str) -> str:
    """Return the text with control characters escaped, so that it stays in its line."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def size_text(size: int) -> str:
    return f"{size:,} byte{'s' if size != 1 else ''}"


def excerpt(content: bytes, offset: int, limit: int) -> str:
    """Return some lines of a text file, with a note if these are not all.

    Lines count from 1.
    """
    if not content:
        return "[The file is empty.]"
    text = content.decode("utf-8", "replace")
    lines = text.removesuffix("\n").split("\n")
    shown, cut = _fitting(lines[offset - 1 : offset - 1 + limit])
    last = offset - 1 + len(shown)
    notes = []
    if not shown:
        notes.append(f"[There is no line {offset:,}: the file has {len(lines):,}.]")
    elif offset > 1 or last < len(lines):
        more = f" Go on with offset {last + 1}." if last < len(lines) else ""
        notes.append(f"[Lines {offset:,} to {last:,} of {len(lines):,}.{more}]")
    if cut:
        notes.append(f"[Line {last:,} was cut: it has {len(lines[last - 1]):,} characters.]")
    if "\ufffd" in text and "\ufffd".encode() not in content:
        notes.append("[The file is not UTF-8: other characters are shown as \ufffd.]")
    return "\n".join([*shown, *notes])


def _fitting(lines: list[str]) -> tuple[list[str], bool]:
    """Return the lines that fit into ``MOST_CHARACTERS``, and whether the only one was cut."""
    room = MOST_CHARACTERS
    for number, line in enumerate(lines):
        room -= len(line) + 1
        if room < 0:
            return (lines[:number], False) if number else ([line[:MOST_CHARACTERS]], True)
    return lines, False


def replace_text(content: bytes, old: str, new: str, *, everywhere: bool) -> tuple[bytes, str]:
    """Return the content after an exact replacement, and a sentence about it.

    Raises:
        EditProblem: the old text is not there, or occurs several times.
    """
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise EditProblem("The file is not UTF-8 text.") from None
    if old == new:
        raise EditProblem("old_text and new_text are the same.")
    count = text.count(old)
    if not count:
        raise EditProblem(f"old_text does not occur in the file. {_hint(text, old)}".rstrip())
    lines = _lines_of(text, old)
    if count > 1 and not everywhere:
        raise EditProblem(
            f"old_text occurs {count} times, in {lines}. Give more of the text around the place "
            "that you mean, or set replace_all."
        )
    times = "1 place" if count == 1 else f"{count} places"
    return text.replace(old, new).encode(), f"Replaced the text in {times}, in {lines}."


def _lines_of(text: str, part: str) -> str:
    numbers: list[str] = []
    place = text.find(part)
    while place >= 0 and len(numbers) <= _SHOWN_LINES:
        numbers.append(f"{text.count(chr(10), 0, place) + 1:,}")
        place = text.find(part, place + len(part))
    if len(numbers) > _SHOWN_LINES:
        numbers[-1] = "…"
    return ("line " if len(numbers) == 1 else "lines ") + ", ".join(numbers)


def _hint(text: str, old: str) -> str:
    if "\r\n" in text and old.replace("\n", "\r\n") in text:
        return "The lines of the file end with \\r\\n: write them so."
    wanted = [line.strip() for line in old.strip().splitlines()]
    lines = [line.strip() for line in text.splitlines()]
    for start in range(len(lines) - len(wanted) + 1):
        if wanted and lines[start] == wanted[0] and lines[start : start + len(wanted)] == wanted:
            return f"White space differs from line {start + 1:,} on: read the lines and copy them."
    return "Read the file again: it may have changed."
