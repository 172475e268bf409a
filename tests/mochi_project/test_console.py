from __future__ import annotations

import io
import json

import pytest

from mochi_project.console import as_json, cut, progress, table


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
    shown = progress("sessions", out)
    shown.advance(5, 10)
    shown.advance(10, 10)
    assert out.getvalue().endswith(f"\r[{'#' * 30}] 100 % of 10 sessions\n")


def test_progress_is_plain_lines_elsewhere():
    out = io.StringIO()
    shown = progress("sessions", out)
    for done in range(1, 1001):
        shown.advance(done, 1000)
    lines = out.getvalue().splitlines()
    assert lines == [f"{percent} % of 1,000 sessions" for percent in range(10, 101, 10)]
