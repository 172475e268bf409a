"""Arguments as a person reads them."""
# ruff: noqa: RUF001 - texts in which signs look alike

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mochi_server.core.shown_text import is_hidden, shown_arguments


def shown(text: str) -> str:
    line = shown_arguments({"x": text}).split("\n")[1]
    return line.removeprefix('  "x": "').removesuffix('"')


@pytest.mark.parametrize(
    "text",
    [
        "plain text, d'accord (2) – no",
        "é Ünï ñ",
        "Привет, мир: оса",
        "你好，世界（东京）！",
        "한국어",
        "\u0915\u093f\u0902",
        "العربية",
        "emoji 👍 🎉",
        "typographic “quotes” — and ’apostrophes’",
        "ελληνικά",
    ],
)
def test_what_is_plain_stays_as_it_is(text):
    expected = text.replace("–", r"\u2013")  # it looks like a hyphen
    assert shown(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\u202eb", r"a\u202eb"),
        ("a\u200bb\u2060\ufeff", r"a\u200bb\u2060\ufeff"),
        ("\x1b[2J\x7f\x00\x9b", r"\u001b[2J\u007f\u0000\u009b"),
        ("a\x7fb", r"a\u007fb"),
        ("p\u0430ypal", r"p\u0430ypal"),
        ("\u0441\u043e\u0440\u0443.txt", r"\u0441\u043e\u0440\u0443.txt"),
        ("notes\uff0fx \u2215 \u2044", r"notes\uff0fx \u2215 \u2044"),
        ("a\u00a0b\u3000c", r"a\u00a0b\u3000c"),
        ("e\u0301", r"e\u0301"),
        ("\u1112\u1161", "\u1112" + r"\u1161"),
        (" \u0301", r" \u0301"),
        ("\U0001d429", r"\ud835\udc29"),
        ("a\ufe0f\U000e0041", r"a\ufe0f\udb40\udc41"),
        ("\u2028\u2029\u0085", r"\u2028\u2029\u0085"),
        ("rm \u2212rf", r"rm \u2212rf"),
        ("\ud800", r"\ud800"),
        ("\ue000", r"\ue000"),
        ("\u3164\u2800", r"\u3164\u2800"),
        ("Мир\nа", "Мир\\nа"),
        (r"\u202e", r"\\u202e"),
    ],
)
def test_what_misleads_is_written_as_escape(text, expected):
    assert shown(text) == expected


def test_a_foreign_text_does_not_excuse_another():
    text = shown_arguments({"path": "\u0441\u043e\u0440\u0443", "text": "Привет"})
    assert r"\u0441\u043e\u0440\u0443" in text
    assert "Привет" in text


def test_names_of_arguments_are_shown_as_well():
    assert r"p\u0430th\u200b" in shown_arguments({"p\u0430th\u200b": {"\u202e": 1}})


def test_numbers_are_exact():
    arguments = {"big": 2**80, "small": -0.5, "none": None, "not": math.inf}
    assert json.loads(shown_arguments(arguments)) == arguments


TEXTS = st.text(max_size=8)
VALUES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS
NESTED = st.lists(VALUES, max_size=3) | st.dictionaries(TEXTS, VALUES, max_size=2)


@given(st.dictionaries(TEXTS, VALUES | NESTED, max_size=3))
def test_what_is_shown_is_exactly_what_runs(arguments):
    text = shown_arguments(arguments)
    assert json.loads(text) == arguments
    assert not any(is_hidden(each) for each in text if each != "\n")
