"""What tools return, as text for a model."""

from __future__ import annotations

import datetime as dt
import enum
from pathlib import Path
from typing import Any

import pytest

from mochi_server.tools.base import ToolFailed
from mochi_server.tools.functions.results import as_text

from .hints import Colour, Point, Size


class Unprintable:
    def __str__(self) -> str:
        raise SystemExit("no")


class Word(str, enum.Enum):
    YES = "yes"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is\n", "as it is\n"),
        ("", ""),
        (None, "(no result)"),
        (Word.YES, "yes"),
        (Colour.RED, "red"),
        (7, "7"),
        (True, "True"),
        (b"abc\xff", "abc\ufffd"),
        ({"ü": [1, None]}, '{"ü": [1, null]}'),
        ((1, "a"), '[1, "a"]'),
        (Point(x=1), '{"title": "here", "x": 1, "near": []}'),
        (Size(1), '{"width": 1, "height": 1}'),
        ({"at": dt.date(2024, 1, 2), "in": Path("a")}, '{"at": "2024-01-02", "in": "a"}'),
        ({"n": float("inf"), "b": b"\xff"}, '{"n": Infinity, "b": "\ufffd"}'),
        ("a\ud800", "a?"),
        ({"k": "\ud800"}, '{"k": "?"}'),
        ({1: {2}}, '{"1": [2]}'),
        (2**70, str(2**70)),
        (dt.date(2024, 1, 2), "2024-01-02"),
    ],
)
def test_results_become_text(value: object, text: str) -> None:
    assert as_text(value) == text


def endless() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


async def coroutine() -> str:
    return ""


@pytest.mark.parametrize(
    "make",
    [Unprintable, lambda: [Unprintable()], endless, coroutine],
    ids=["object", "inside", "endless", "coroutine"],
)
def test_a_result_that_cannot_be_text_is_a_failure(make: Any) -> None:
    with pytest.raises(ToolFailed):
        as_text(make())
