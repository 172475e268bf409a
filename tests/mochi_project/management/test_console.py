from __future__ import annotations

import argparse
import io
import json
from datetime import timedelta

import pytest

from mochi_project.management.console import as_json, cut, duration, progress, table


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_columns_are_as_wide_as_their_longest_cell():
    text = table([["a", 1, None], ["long one", 12, True]], ["NAME", "COUNT", "PINNED"])
    assert text.splitlines() == [
        "NAME      COUNT  PINNED",
        "a         1      -",
        "long one  12     yes",
    ]


def test_a_table_without_rows_has_its_head():
    assert table([], ["A", "B"]) == "A  B"


def test_wide_and_combining_characters_keep_the_columns_straight():
    lines = table([["日本", "x"], ["e\u0301te", "x"]], ["NAME", "B"]).splitlines()
    assert lines[1] == "日本  x"
    assert lines[2] == "e\u0301te   x"


@pytest.mark.parametrize("nasty", ["a\nb", "a\x1bb", "a\x9bb", "a\u2028b", "a\u202eb", "a\udc80b"])
def test_a_cell_cannot_move_the_cursor(nasty):
    assert table([[nasty]], ["X"]).splitlines() == ["X", "a b"]


def test_a_text_is_cut_to_its_columns():
    assert cut("  one\ntwo ", 10) == "one two"
    assert cut("one two three", 10) == "one two..."
    assert cut("日本語日本語", 9) == "日本語..."


def test_json_keeps_the_letters_of_every_language():
    text = as_json({"title": "Größe 日本"})
    assert "Größe 日本" in text
    assert json.loads(text) == {"title": "Größe 日本"}


def test_progress_is_a_bar_on_a_terminal():
    out = Terminal()
    shown = progress("sessions", out, 0)
    shown.advance(5, 10)
    shown.advance(10, 10)
    assert out.getvalue().endswith(f"\r[{'#' * 30}] 100 % of 10 sessions\n")


def test_progress_is_plain_lines_elsewhere():
    out = io.StringIO()
    shown = progress("sessions", out, 0)
    for done in range(1, 1001):
        shown.advance(done, 1000)
    lines = out.getvalue().splitlines()
    assert lines == [f"{percent} % of 1,000 sessions" for percent in range(10, 101, 10)]


@pytest.mark.parametrize("kind", [Terminal, io.StringIO])
def test_work_that_ends_soon_stays_silent(kind):
    stream = kind()
    shown = progress("sessions", stream, 3600)
    shown.advance(5, 10)
    shown.advance(10, 10)
    assert stream.getvalue() == ""


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("90m", timedelta(minutes=90)),
        ("12h", timedelta(hours=12)),
        ("30d", timedelta(days=30)),
        ("2w", timedelta(days=14)),
        ("0d", timedelta(0)),
    ],
)
def test_a_length_of_time_has_a_unit(text, length):
    assert duration(text) == length


@pytest.mark.parametrize("text", ["", "30", "d", "-1d", "1.5d", "30 days", "1y", "9999999d"])
def test_another_text_is_no_length_of_time(text):
    with pytest.raises(argparse.ArgumentTypeError, match="30d, 12h, 2w"):
        duration(text)


def test_json_can_be_written_anywhere_and_moves_no_cursor():
    """Names of files may be no text, and some terminals obey the controls behind ASCII."""
    value = {"name": "\udcff.json", "title": "Größe \x9b2J\x7f"}
    text = as_json(value)
    text.encode()
    assert "Größe" in text
    assert not {"\x9b", "\x7f"} & set(text)
    assert json.loads(text) == {"name": "\ufffd.json", "title": "Größe \x9b2J\x7f"}
