"""What a model gets from each tool."""

from __future__ import annotations

import base64
import os
import shutil
import signal
import threading
from contextlib import suppress

import anyio
import pytest

from mochi_server.workspace import search
from mochi_server.workspace import tools as module
from mochi_server.workspace.globs import matches
from mochi_server.workspace.tools import WorkspaceTools
from tests.support.tool_folders import is_gone
from tests.support.waiting import until

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)


@pytest.fixture
def place(tmp_path):
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def call(place):
    tools = WorkspaceTools(place)

    async def text_of(name, **arguments):
        result = await tools.call(name, arguments)
        (block,) = result.content
        return f"ERROR {block.text}" if result.is_error else block.text

    return text_of


async def test_a_file_is_written_read_and_edited(place, call):
    assert await call("write_file", path="src/a.py", content="one\ntwo\n") == (
        "Created src/a.py (8 bytes)."
    )
    assert await call("read_file", path="src/a.py") == "one\ntwo"
    assert await call("edit_file", path="src/a.py", old_text="two", new_text="2") == (
        "Replaced the text in 1 place, in line 2."
    )
    assert (place / "src/a.py").read_text() == "one\n2\n"
    assert await call("write_file", path="src/a.py", content="") == "Replaced src/a.py (0 bytes)."
    assert await call("read_file", path="src/a.py") == "[The file is empty.]"


async def test_the_path_that_pwd_shows_is_understood(place, call):
    await call("write_file", path=f"{place}/a.txt", content="x")
    assert (place / "a.txt").read_text() == "x"
    assert await call("list_files", path=str(place)) == "a.txt (1 byte)"
    assert await call("read_file", path=f"{place}-other/a.txt") == (
        f"ERROR {place}-other/a.txt: It leads out of the folder."
    )


async def test_a_long_file_is_read_in_parts(place, call):
    (place / "long").write_text("".join(f"line {number}\n" for number in range(1, 5_001)))
    text = await call("read_file", path="long")
    assert text.startswith("line 1\nline 2\n")
    assert text.endswith("line 2000\n[Lines 1 to 2,000 of 5,000. Go on with offset 2001.]")
    assert await call("read_file", path="long", offset=4_999) == (
        "line 4999\nline 5000\n[Lines 4,999 to 5,000 of 5,000.]"
    )
    assert await call("read_file", path="long", offset=2, limit=1) == (
        "line 2\n[Lines 2 to 2 of 5,000. Go on with offset 3.]"
    )
    assert await call("read_file", path="long", offset=9_000) == (
        "[There is no line 9,000: the file has 5,000.]"
    )


async def test_long_lines_are_cut(place, call):
    (place / "one").write_text("x" * 60_000)
    text = await call("read_file", path="one")
    assert text == "x" * 50_000 + "\n[Line 1 was cut: it has 60,000 characters.]"
    (place / "several").write_text(f"{'x' * 30_000}\n" * 3)
    text = await call("read_file", path="several")
    assert text.endswith("x\n[Lines 1 to 1 of 3. Go on with offset 2.]")


async def test_images_are_shown_and_other_binary_files_are_not(place):
    tools = WorkspaceTools(place)
    (place / "a.png").write_bytes(PNG)
    (place / "a.webp").write_bytes(b"RIFF\0\0\0\0WEBPVP8 ")
    (image,) = (await tools.call("read_file", {"path": "a.png"})).content
    assert (image.mime_type, base64.b64decode(image.data)) == ("image/png", PNG)
    (image,) = (await tools.call("read_file", {"path": "a.webp"})).content
    assert image.mime_type == "image/webp"
    (place / "big.png").write_bytes(PNG + bytes(5_000_000))
    (place / "program").write_bytes(b"\x7fELF\0\0")
    for name, message in [("big.png", "too large: 5,000,028 bytes"), ("program", "not text")]:
        result = await tools.call("read_file", {"path": name})
        assert result.is_error
        assert message in result.content[0].text


async def test_other_encodings_are_said(place, call):
    (place / "latin").write_bytes("Käse\n".encode("latin-1"))
    assert await call("read_file", path="latin") == (
        "K\ufffdse\n[The file is not UTF-8: other characters are shown as \ufffd.]"
    )
    assert await call("edit_file", path="latin", old_text="K", new_text="k") == (
        "ERROR The file is not UTF-8 text."
    )


async def test_an_edit_that_is_not_clear_is_refused_with_what_helps(place, call):
    (place / "a").write_text("def f():\n    return 1\n\ndef g():\n    return 1\n")

    async def edit(old, new="x", **options):
        return await call("edit_file", path="a", old_text=old, new_text=new, **options)

    assert await edit("return 1") == (
        "ERROR old_text occurs 2 times, in lines 2, 5. Give more of the text around the place that "
        "you mean, or set replace_all."
    )
    assert await edit("def g():\n  return 1") == (
        "ERROR old_text does not occur in the file. White space differs from line 4 on: read the "
        "lines and copy them."
    )
    assert "Read the file again" in await edit("def h()")
    assert await edit("def", "def") == "ERROR old_text and new_text are the same."
    assert await edit("return 1", "return 2", replace_all=True) == (
        "Replaced the text in 2 places, in lines 2, 5."
    )
    (place / "a").write_bytes(b"one\r\ntwo\r\n")
    assert "end with \\r\\n" in await edit("one\ntwo")
    assert (place / "a").read_bytes() == b"one\r\ntwo\r\n"


async def test_edits_at_the_same_time_are_all_kept(place, call):
    (place / "a").write_text("".join(f"<{number}>" for number in range(20)))
    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(edit_one, call, number)
    assert (place / "a").read_text() == "".join(f"({number})" for number in range(20))


async def edit_one(call, number):
    await call("edit_file", path="a", old_text=f"<{number}>", new_text=f"({number})")


async def test_a_list_says_what_there_is(place, call):
    assert await call("list_files") == "[No files.]"
    (place / "src/deep").mkdir(parents=True)
    (place / "src/deep/a.py").write_text("x")
    (place / "src/b.txt").write_text("xy")
    (place / "node_modules/m").mkdir(parents=True)
    (place / "link").symlink_to("src")
    (place / "new\nline").touch()
    os.mkfifo(place / "pipe")
    assert await call("list_files") == (
        "link (link)\nnew\\nline (0 bytes)\nnode_modules/\npipe (no file)\nsrc/"
    )
    assert await call("list_files", path="src", recursive=True) == (
        "src/b.txt (2 bytes)\nsrc/deep/\nsrc/deep/a.py (1 byte)"
    )
    assert await call("list_files", pattern="*.py") == "src/deep/a.py (1 byte)"
    assert await call("list_files", path="src", pattern="deep/*") == "src/deep/a.py (1 byte)"
    assert await call("list_files", pattern="*.c") == "[No file matches.]"
    assert "node_modules/m" not in await call("list_files", recursive=True)
    assert await call("list_files", path="nothing") == ("ERROR nothing: No such file or directory.")


async def test_a_long_list_is_cut(place, call):
    for number in range(1_005):
        (place / f"{number:04}").touch()
    lines = (await call("list_files")).splitlines()
    assert len(lines) == 1_001
    assert lines[-1] == "[There are more than 1,000: the others are not shown.]"


async def test_a_search_finds_lines(place, call):
    (place / "src").mkdir()
    (place / "src/a.py").write_text("import re\nfirst = 1\nsecond = 2\n")
    (place / "b.txt").write_text("First\n")
    (place / "binary").write_bytes(b"\0first")
    assert await call("search_files", pattern=r"^\w+ = \d") == (
        "src/a.py:2: first = 1\nsrc/a.py:3: second = 2\n"
        "[1 files were not searched: binary, very long, or no ordinary files.]"
    )
    found = await call("search_files", pattern="FIRST", ignore_case=True, glob="*.txt")
    assert found == "b.txt:1: First"
    assert await call("search_files", pattern="import", path="src/a.py") == "src/a.py:1: import re"
    assert await call("search_files", pattern="= 1", path="src", glob="*.py") == (
        "src/a.py:2: first = 1"
    )
    assert await call("search_files", pattern="(1", regex=False, path="src") == (
        "[Nothing found in 1 files.]"
    )
    assert "ERROR pattern is no regular expression" in await call("search_files", pattern="(")
    assert await call("search_files", pattern="x", path="../..") == (
        "ERROR ../..: It leads out of the folder"
    )


async def test_a_search_shows_the_middle_of_a_long_line_and_not_too_many(place, call):
    (place / "a").write_text(f"{'x' * 1_000}needle{'y' * 1_000}\n" + "needle\n" * 300)
    lines = (await call("search_files", pattern="needle")).splitlines()
    assert lines[0].startswith("a:1: …xxx")
    assert lines[0].endswith("yyy…")
    assert len(lines[0]) < 320
    assert lines[-1] == "[More than 200 lines match: the others are not shown.]"
    assert len(lines) == 201


@pytest.mark.slow
async def test_a_pattern_that_takes_for_ever_is_ended(place, call, monkeypatch):
    monkeypatch.setattr(search, "SECONDS", 8)
    (place / "a").write_text("found\n")
    (place / "b").write_text(f"{'a' * 100}b\n")
    with anyio.fail_after(60):
        text = await call("search_files", pattern="^(a+)+$|found")
    assert text == "a:1: found\n[Stopped after 8 seconds: not all was searched.]"


async def test_a_command_runs_in_the_folder(place, call):
    assert await call("execute_command", command="pwd; echo no >&2; exit 3") == (
        f"Exit code: 3\nOutput:\n{place}\nErrors:\nno"
    )
    assert await call("execute_command", command="true") == "Exit code: 0\nNo output."
    assert await call("execute_command", command="cat") == "Exit code: 0\nNo output."
    assert await call("execute_command", command="kill -9 $$") == "Ended by SIGKILL\nNo output."
    assert await call("execute_command", command="no-such-program") == (
        "Exit code: 127\nErrors:\nbash: line 1: no-such-program: command not found"
    )


async def test_of_long_output_the_middle_is_left_out(call):
    text = await call("execute_command", command="echo start; head -c 50M /dev/zero; echo end")
    assert text.startswith("Exit code: 0\nOutput:\nstart\n")
    assert "bytes of output were left out here.]" in text
    assert text.endswith("end")
    assert len(text) < 31_000


async def test_a_command_that_takes_too_long_is_ended(monkeypatch, call):
    monkeypatch.setattr(module, "COMMAND_SECONDS", 5)
    with anyio.fail_after(30):
        assert await call("execute_command", command="echo begun; sleep 1000") == (
            "ERROR Stopped after 5 seconds.\nOutput:\nbegun"
        )


async def test_nothing_goes_on_in_the_background(place, call):
    """Also not what ignores signals; and nobody waits for what holds the output."""
    command = (
        "(trap '' TERM HUP; echo $BASHPID > pid; exec sleep 1000) & until [ -s pid ]; do :; done"
    )
    with anyio.fail_after(30):
        assert await call("execute_command", command=command) == "Exit code: 0\nNo output."
        pid = int((place / "pid").read_text())
        await until(lambda: is_gone(pid))


@pytest.mark.skipif(shutil.which("setsid") is None, reason="needs setsid")
async def test_a_process_that_leaves_the_group_delays_nobody(place, call):
    command = "setsid sh -c 'echo $$ > pid; exec sleep 1000' & until [ -s pid ]; do :; done"
    try:
        with anyio.fail_after(30):
            assert await call("execute_command", command=command) == "Exit code: 0\nNo output."
    finally:
        with suppress(ProcessLookupError):
            os.kill(int((place / "pid").read_text()), signal.SIGKILL)


async def test_a_cancelled_command_is_ended(place, call):
    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:

            async def run():
                await call("execute_command", command="echo $$ > new; mv new pid; sleep 1000")

            group.start_soon(run)
            await until((place / "pid").exists)
            group.cancel_scope.cancel()
        pid = int((place / "pid").read_text())
        await until(lambda: is_gone(pid))


async def test_commands_at_the_same_time_do_not_wait_for_each_other(place, call):
    """Each waits for a file that another one makes."""
    with anyio.fail_after(100):
        async with anyio.create_task_group() as group:
            for number in range(12):
                command = f"touch {number}; until [ -e {(number + 1) % 12} ]; do sleep 0.01; done"
                group.start_soon(partial_call(call, command))
    assert threading.active_count() < 60


def partial_call(call, command):
    async def run():
        assert await call("execute_command", command=command) == "Exit code: 0\nNo output."

    return run


async def test_wrong_arguments_are_explained(call):
    assert await call("read_file") == "ERROR path: Field required"
    assert await call("read_file", path="a", lines=3) == (
        "ERROR lines: Extra inputs are not permitted"
    )
    assert await call("write_file", path="a\0b", content="") == (
        "ERROR a\\x00b: The path contains a NUL character."
    )
    assert (await call("write_file", path="a", content="\ud800")).startswith("ERROR content: ")
    assert await call("write_file", path="", content="x") == "ERROR : It is a folder, not a file."


# Globs of paths


@pytest.mark.parametrize(
    ("path", "pattern", "expected"),
    [
        ("main.py", "*.py", True),
        ("src/deep/main.py", "*.py", True),
        ("src/main.py", "src/*.py", True),
        ("src/deep/main.py", "src/*.py", False),
        ("src/main.py", "./src/*.py", True),
        ("src/main.py", "src/**/*.py", True),
        ("src/a/b/main.py", "src/**/*.py", True),
        ("other/src/main.py", "src/**/*.py", False),
        ("other/src/main.py", "**/src/*.py", True),
        ("src/a/b", "src/**", True),
        ("src", "src/**", True),
        ("lib/a", "src/**", False),
        ("a/b", "a/?", True),
        ("Main.py", "main.py", False),
        ("a/x/b/y/c", "**/x/**/y/*", True),
        ("a1", "a[0-9]", True),
    ],
)
def test_a_path_matches_a_glob(path, pattern, expected):
    assert matches(path, pattern) is expected


@pytest.mark.timeout(60)
def test_no_pattern_takes_long():
    assert not matches("a" * 255, "*a" * 100 + "b")
    assert not matches("/".join("a" * 500), "**/a/" * 200 + "b")
