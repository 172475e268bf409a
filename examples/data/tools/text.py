"""Text: counting, replacing, sorting, extracting; and JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Literal

LONGEST = 1_000_000
"""Characters of a result."""

# Every repetition is bounded, so that no text makes a search slow.
_KINDS = {
    "emails": r"[\w.+-]{1,64}@(?:[\w-]{1,63}\.){1,8}[A-Za-z]{2,24}",
    "numbers": r"(?<![\w.])[-+]?\d{1,30}(?:[.,]\d{1,30}){0,10}(?:[eE][-+]?\d{1,4})?(?!\w)",
    "links": r"https?://[^\s<>\"']{1,2000}",
    "dates": r"\b\d{4}-\d\d-\d\d\b",
}

_STEP = re.compile(r"\[(-?\d{1,9})\]|([^.\[\]]+)|\.")


def count_text(text: str) -> str:
    """Count the characters, words and lines of a text.

    Args:
        text: The text.
    """
    lines = len(text.splitlines())
    return f"{len(text)} characters, {len(text.split())} words, {lines} lines"


def replace_in_text(text: str, find: str, replacement: str, ignore_case: bool = False) -> str:
    """Replace every occurrence of some words in a text, literally.

    Args:
        text: The text.
        find: What to look for.
        replacement: What to put in its place; empty to delete it.
        ignore_case: Whether capitals do not matter.
    """
    if not find:
        raise ValueError("There is nothing to look for: 'find' is empty.")
    pattern = re.compile(re.escape(find), re.IGNORECASE if ignore_case else 0)
    count = sum(1 for _ in pattern.finditer(text))
    if len(text) + count * (len(replacement) - len(find)) > LONGEST:
        raise ValueError(f"The result would be longer than {LONGEST} characters.")
    return pattern.sub(lambda _: replacement, text)


def sort_lines(
    text: str,
    by: Literal["alphabet", "number", "length"] = "alphabet",
    descending: bool = False,
    unique: bool = False,
) -> str:
    """Sort the lines of a text; empty lines are left out.

    Args:
        text: The text.
        by: What to sort by: the letters, the first number of each line, or its length.
        descending: Whether the largest comes first.
        unique: Whether equal lines are kept only once.
    """
    keys: dict[str, Callable[[str], Any]] = {
        "alphabet": str.casefold,
        "number": _first_number,
        "length": len,
    }
    lines = [line for line in text.splitlines() if line.strip()]
    if unique:
        lines = list(dict.fromkeys(lines))
    return "\n".join(sorted(lines, key=keys[by], reverse=descending))


def extract_from_text(text: str, kind: Literal["emails", "numbers", "links", "dates"]) -> str:
    """Find all e-mail addresses, numbers, links or dates (YYYY-MM-DD) in a text, one on each line.

    Args:
        text: The text.
        kind: What to find.
    """
    found = dict.fromkeys(match[0] for match in re.finditer(_KINDS[kind], text))
    return "\n".join(found) or f"There are no {kind} in the text."


def format_json(text: str, indent: int = 2) -> str:
    """Check that a text is JSON, and write it with one value on each line.

    Args:
        text: The JSON.
        indent: Spaces for each level, from 0 to 8.
    """
    if not 0 <= indent <= 8:
        raise ValueError("'indent' must be from 0 to 8.")
    return json.dumps(_parsed(text), indent=indent, ensure_ascii=False)


def pick_from_json(text: str, path: str) -> str:
    """Pick one value out of JSON.

    Args:
        text: The JSON.
        path: The way to the value, such as "users[0].address.city".
    """
    value, done = _parsed(text), ""
    for step in _steps(path):
        done += f"[{step}]" if isinstance(step, int) else f".{step}"
        try:
            value = _step_into(value, step)
        except (KeyError, IndexError, TypeError):
            raise ValueError(f"There is nothing at {done.lstrip('.')!r}.") from None
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _step_into(value: Any, step: str | int) -> Any:  # noqa: ANN401 - JSON
    """One key of an object, or one item of a list, which "0" names as well as "[0]".

    Raises:
        KeyError, IndexError, TypeError: there is no such thing.
    """
    if isinstance(value, str):
        raise TypeError
    if isinstance(value, list) and isinstance(step, str) and step.isdecimal():
        step = int(step[:9])
    return value[step]


def _steps(path: str) -> list[str | int]:
    steps: list[str | int] = []
    end = 0
    for match in _STEP.finditer(path):
        if match.start() != end:
            break
        end = match.end()
        if match[1] is not None:
            steps.append(int(match[1]))
        elif match[2] is not None:
            steps.append(match[2])
    if end != len(path):
        raise ValueError(f"{path!r} is not a path such as users[0].address.city.")
    return steps


def _parsed(text: str) -> Any:  # noqa: ANN401 - JSON
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("This JSON is nested too deeply.") from None
    except ValueError as error:
        raise ValueError(f"This is not JSON: {error}.") from None


def _first_number(line: str) -> float:
    found = re.search(r"-?\d{1,30}(?:\.\d{1,30})?", line)
    return float(found[0]) if found else float("inf")
