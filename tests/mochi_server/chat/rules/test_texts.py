"""Texts and patterns, when it is certain and in doubt."""
# ruff: noqa: RUF001 - texts in which signs look alike

from __future__ import annotations

import posixpath
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mochi_server.chat.rules.glob_patterns import check_pattern, denied_forms
from mochi_server.chat.rules.texts import may_fit, readings_of, surely_fits


def possibly_fits(pattern: str, text: str) -> bool:
    return may_fit(pattern, denied_forms(pattern), readings_of(text))


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("notes/*", "notes/a.md"),
        ("notes/*", "notes/50% b~.txt"),
        ("notes/*", "notes/Plan (2).md"),
        ("notes/*", "notes/東京（新宿）.md"),
        ("notes/*", "notes/e\u0301"),
        ("notes/**", "notes/a/b"),
        ("**/*.md", "notes/a/b.md"),
        ("/data/notes/*", "/data/notes/a"),
        ("a?c", "abc"),
        ("a[?]c[*]", "a?c*"),
        ("../x", "../x"),
        ("[~]/x; [[]a[]]", "~/x; [a]"),
        ("git log *", "git log -1"),
        ("https://docs.python.org/**", "https://docs.python.org/3/"),
        ("https://*.python.org/**", "https://docs.python.org/3?q=1"),
        ("**", "two words"),
        ("Report*", "Report - 2026, final"),
        ("*@ok.com", "me@ok.com"),
        ("mail *@ok.com", "mail me@ok.com"),
    ],
)
def test_what_fits_whatever_a_tool_makes_of_it(pattern: str, text: str):
    assert surely_fits(pattern, text)
    assert possibly_fits(pattern, text)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("notes/*", "notes/../x"),
        ("notes/**", "notes/../x"),
        ("notes/**", "notes/a/../../x"),
        ("notes/**", "notes/a/../b"),  # a may be a link
        ("notes/*", "notes/a/b"),
        ("notes/*", "notes/"),
        ("notes/**", "notes/"),
        ("notes/*", "notes"),
        ("notes/*", "notes/."),
        ("notes/*", "notes/.. "),
        ("notes/*", "notes/.?"),
        ("notes/**", "notes/a//b"),
        ("notes/*", "/notes/a"),
        ("notes/*", "Notes/a"),
        ("notes/*", "notes\\a"),
        ("notes/**", "notes/a\\..\\..\\x"),
        ("notes/*", "notes/%2e%2e"),
        ("notes/**", "notes/%252e%252e/x"),
        ("notes/**", "notes/%00"),
        ("notes/**", "notes/%" + "25" * 20 + "2e%2e/x"),
        ("notes/**", "notes/．．／x"),
        ("notes/**", "notes/％2e％2e/x"),
        ("notes/**", "notes/‥/x"),
        ("notes/*", "notes/a／b"),
        ("notes/é", "notes/e\u0301"),
        ("*", "~/x"),
        ("*", "~root"),
        ("*", ""),
        ("notes/*", "notes/$HOME"),
        ("notes/*", "notes/{..,a}"),
        ("notes/*", "notes/.[.]"),
        ("notes/**", "notes/*"),
        ("notes/*", "notes/a\u200b"),
        ("notes/*", "notes/a\u202e"),
        ("notes/*", "notes/a\n"),
        ("notes/*", "notes/a\0"),
        ("notes/*", "notes/" + "x" * 5000),
        ("git log *", "git log; rm x"),
        ("git log *", "git log $(rm x)"),
        ("git log *", "git log\nrm x"),
        ("git log *", "git log > x"),
        ("https://docs.python.org/**", "https://docs.python.org/../x"),
        ("https://docs.python.org/**", "https://docs.python.org.evil.com/x"),
        ("https://*.python.org/**", "https://evil.com#.python.org/x"),
        ("https://*.python.org/**", "https://evil.com?.python.org/x"),
        ("https://*/**", "https://me@evil.com/x"),
        ("a[*]", "ab"),
        ("notes/**", "notes/x /etc/passwd"),
        ("notes/**", "notes/x%20/etc/passwd"),
        ("notes/**", "notes/x\u00a0/etc/passwd"),
        ("notes/**", "notes/x,/etc/passwd"),
        ("notes/**", "notes/x ../y"),
        ("notes/**", "notes/x '/etc/passwd'"),
        ("notes/**", "notes/x of=/etc/passwd"),
        ("notes/**", "notes/x file:///etc/passwd"),
        ("notes/*", "notes/x -rf"),
        ("notes/*", "notes/x --force"),
        ("https://docs.python.org/**", "https://docs.python.org/a https://evil.com/b"),
        ("*@ok.com", "evil@x.com,me@ok.com"),
        ("*@ok.com", "evil@x.com me@ok.com"),
        ("*@ok.com", "evil,me@ok.com"),
        ("mail *@ok.com", "mail evil@x.com me@ok.com"),
    ],
)
def test_in_doubt_nothing_surely_fits(pattern: str, text: str):
    assert not surely_fits(pattern, text)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("secret/*", "secret/a/b"),
        ("secret/*", "SECRET/x"),
        ("Secret/*", "secret/x"),
        ("secret/*", "notes/../secret/x"),
        ("secret/*", "./secret/x"),
        ("./secret/*", "secret/x"),
        ("secret/*", "secret//x"),
        ("secret/*", "secret. /x"),
        ("secret/*", "secret"),
        ("secret/*", "secret/"),
        ("secret/*", "."),
        ("secret/*", ""),
        ("secret/*", "/"),
        ("a/secret/*", "a"),
        ("secret", "secret/x"),
        ("secret/", "secret/x"),
        ("secret/*", "/home/me/secret/x"),
        ("secret/*", "~/x"),
        ("secret/*", "../x"),
        ("secret/*", "a/../.."),
        ("secret/*", "se\u200bcret/x"),
        ("secret/*", "secret\\x"),
        ("secret/*", "secret%2fx"),
        ("secret/*", "secret%252fx"),
        ("secret/*", "secret％2fx"),
        ("secret/*", "secret%\u200b2fx"),
        ("secret/*", "ｓecret／x"),
        ("secret/*", "sec*/x"),
        ("secret/*", "s?cret/x"),
        ("secret/*", "{a,secret}/x"),
        ("secret/*", "a\0"),
        ("secret/*", "a\ud800"),
        ("secret/*", "x" * 5000),
        ("secret/é*", "secret/e\u0301x"),
        ("stra[ß]e", "STRASSE"),
        (".env", "app/.env"),
        ("**/.env", ".env"),
        ("**/.env", "a/b/.env"),
        ("/etc/**", "/etc/passwd"),
        ("/etc/**", "//etc/passwd"),
        ("/etc/**", "etc/passwd"),
        ("/etc/**", "../../etc/passwd"),
        ("/etc/**", "file:///etc/passwd"),
        ("/etc/**", "/"),
        ("rm *", "rm -rf /etc"),
        ("rm *", "ls; rm x"),
        ("rm *", "echo $(rm x)"),
        ("rm *", "'r'm x"),
        ("rm *", "r\\m x"),
        ("rm *", "/bin/rm x"),
        ("rm *", "$X"),
        ("*password*", "my Password"),
        ("*password*", "two\nlines, password"),
        ("**/.git/**", ".git"),
        ("**/.git/**", "a/.git"),
        ("**/.git/**", "/home/me/.git"),
        ("**/.git/*", "a/.git/"),
        ("secret/**", "sec\\\nret/a"),
        ("secret/**", "sec\nret/a"),
        ("/etc/**", "notes/x /etc/passwd"),
        ("secret/**", "notes/x ./secret/y"),
        ("rm *", "rm\t-rf /"),
        ("rm **", "rm\r -rf /"),
        ("rm **", "rm  -rf /"),
        ("rm *", "{rm,-rf,/}"),
        ("rm *", "echo x; {rm,-rf,/}"),
        ("rm *", "r{m..m} x"),
        ("rm *", "/bin/r? x"),
        ("git push *", "git p{us,us}h x"),
        ("https://evil.com/**", "https://evil.com:443/a"),
        ("https://evil.com/**", "https://u@evil.com/a"),
        ("https://evil.com/**", "https://ok.com@u:p@EVIL.com:443/a"),
        ("https://evil.com/**", "https://ev\til.com/a"),
        ("https://evil.com/**", "https://ev\nil.com/a"),
        ("https://evil.com/**", "https:evil.com/a"),
        ("https://evil.com/**", "https:\\\\evil.com\\a"),
        ("https://evil.com/**", "https://evil.com?a=1"),
        ("https://evil.com/**", "https://evil.com#a"),
        ("https://evil.com/**", "https://evil.com./a"),
        ("https://evil.com/**", "https://evil\u3002com/a"),
        ("https://evil.com:8000/**", "https://evil.com:8000/a"),
    ],
)
def test_in_doubt_it_possibly_fits(pattern: str, text: str):
    assert possibly_fits(pattern, text)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("secret/*", "notes/x"),
        ("secret/*", "notes/secret/x"),
        ("secret/*", "/home/me/x"),
        ("secret/*", "secrets/x"),
        ("**/.env", "a/b"),
        ("/etc/**", "notes/x"),
        ("rm *", "echo hi | wc"),
        ("**/.git/**", "a/b"),
        ("**/.git/**", "a/.gitignore"),
        ("secret/**", "notes/My secret (2).md"),
        ("rm *", "echo {a, b}"),
        ("rm *", "rmdir x"),
        ("rm *", "[ -f x ] && [[ -f y ]]"),
        ("https://evil.com/**", "https://ok.com/a?b=1"),
        ("https://evil.com/**", "https://evil.com.ok.com/a"),
        ("https://evil.com/**", "https://ok.com/evil.com/a"),
        ("https://evil.com/**", "http://ok.com:80/a@evil.com/b"),
        ("*password*", "{a,b}"),
        ("*password*", "hello, costs $5 👨\u200d👩\u200d👧 \n ok"),
    ],
)
def test_not_everything_possibly_fits(pattern: str, text: str):
    assert not possibly_fits(pattern, text)


def test_mail_that_a_server_sends_on_is_not_for_the_host_after_the_sign():
    for text in ("a%evil.com@ok.com", "evil.com!a@ok.com", "@evil.com:a@ok.com"):
        assert not surely_fits("*@ok.com", text)
        assert not surely_fits("**@ok.com", text)
    assert possibly_fits("*@evil.com", "a%evil.com@ok.com")
    assert possibly_fits("*@evil.com", "evil.com!a@ok.com")
    assert surely_fits("a%b@ok.com", "a%b@ok.com")
    assert not possibly_fits("*@evil.com", "a@ok.com")


def test_links_are_followed_where_they_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    secret = tmp_path / "secret"
    secret.mkdir()
    (tmp_path / "link").symlink_to(secret)
    (tmp_path / "other").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path)
    for path in ("link/x", f"{tmp_path}/link/x", "other/other/secret/x", "/proc/self/cwd/secret/x"):
        assert possibly_fits(f"{secret}/**", path)
    assert possibly_fits(f"{tmp_path}/other/secret/**", "secret/x")
    assert not possibly_fits(f"{secret}/**", "notes/x")


@pytest.mark.parametrize(
    "path",
    [
        "/proc/self/root/etc/passwd",
        "/proc/1/root/etc/passwd",
        "/proc/self/task/1/root/etc/passwd",
        "/proc/self/root/proc/self/root/etc/passwd",
        "/proc/self/fd/3/passwd",
        "/dev/fd/3",
    ],
)
def test_a_path_by_way_of_a_process_leads_where_it_leads(path: str):
    assert possibly_fits("/etc/**", path)


def test_a_home_folder_is_known(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", "/home/me")
    assert possibly_fits("/home/me/.ssh/**", "~/.ssh/id")
    assert possibly_fits("[~]/.ssh/**", "/home/me/.ssh/id")
    assert not possibly_fits("[~]/.ssh/**", "/home/me/notes")


def test_a_path_from_where_the_server_runs_counts_as_whole(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert possibly_fits(f"{tmp_path}/secret/*", "secret/x")
    assert possibly_fits(f"{tmp_path}/secret/*", ".")
    assert not possibly_fits(f"{tmp_path}/secret/*", "notes/x")


@pytest.mark.parametrize(
    "pattern", ["", "[", "[ab]", "a]b[", "{a,b}", "!a", "~/x", "a\\b", "a\u200b", "x" * 257, "]{"]
)
def test_a_pattern_that_other_programs_read_differently_is_refused(pattern: str):
    with pytest.raises(ValueError, match="is no pattern"):
        check_pattern(pattern)


def steps_of(call: Callable[[], Any]) -> int:
    """Return how many lines of Python a call runs."""
    lines = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return lines


@pytest.mark.parametrize("pattern", ["*a*a*a*a*b", "?*?*?*?*?*?*?*x", "**/" * 60])
@pytest.mark.parametrize(
    "text",
    [
        "a" * 4096,
        "a/" * 2048,
        "; " * 2048,
        "é%" + "25" * 2000,
        "\\\t, /" * 800,
        "{," * 2048,
        ",/" * 2048,
        "https://u@" * 400,
    ],
)
def test_the_work_grows_with_the_text(pattern: str, text: str):
    def compare(text: str) -> None:
        surely_fits(pattern, text)
        possibly_fits(pattern, text)

    compare(text)  # patterns are read once
    half, whole = (steps_of(lambda end=end: compare(text[:end])) for end in (1024, 2048))
    assert whole < 3 * half + 1000


characters = st.sampled_from("abA./\\~$%*?é\u0301\u200b 2eF[]{};")
texts = st.text(characters, max_size=12)


@given(texts, st.sampled_from(["*", "**", "a/*", "a/**", "*/b", "a*", "/a/*", "?b", "a"]))
def test_what_surely_fits_possibly_fits(text: str, pattern: str):
    if surely_fits(pattern, text):
        assert possibly_fits(pattern, text)


def no_shapes(text: str) -> str:
    return "".join(each for each in text if unicodedata.category(each) != "Cf")


STEPS = {
    "decode": unquote,
    "letters": lambda text: unicodedata.normalize("NFKC", text),
    "accents": lambda text: unicodedata.normalize("NFC", text),
    "case": str.lower,
    "slashes": lambda text: text.replace("\\", "/"),
    "shapes": no_shapes,
    "spaces": str.strip,
    "path": posixpath.normpath,
}
"""What tools and systems do with a text before they use it."""

ASCII_PIECES = [
    "a",
    "A",
    "b",
    "/",
    "\\",
    "%2f",
    "%5C",
    "%252F",
    "..",
    ".",
    "%2e",
    "//",
    " ",
    ";",
    "~",
]
OTHER_PIECES = [
    "ａ",
    "／",
    "‥",
    "．",
    "\u200b",
    "é",
    "e\u0301",
    "％2e",
    "％2f",
    "%\u200b2f",
    "%00",
    "$a",
    "*",
]
pieces = st.sampled_from([*ASCII_PIECES, *OTHER_PIECES])
paths = st.lists(pieces, max_size=8).map("".join)
treatments = st.lists(st.sampled_from(sorted(STEPS)), max_size=4)


@given(paths, treatments)
def test_no_treatment_leads_out_of_what_is_allowed_nor_into_what_is_denied(
    text: str, treatment: list[str]
):
    used = text
    for step in treatment:
        used = STEPS[step](used)
    is_within = posixpath.normpath(used).startswith("a/")
    if surely_fits("a/**", text):
        assert is_within
    if is_within:
        assert possibly_fits("a/**", text)
