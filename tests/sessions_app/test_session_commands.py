"""``sessions``, ``migrate_sessions`` and ``prune_sessions`` of ``manage.py``."""

from __future__ import annotations

import io
import json
import os
import pty
import shutil
import signal
import sys
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path

import anyio
import pytest
from django.core.management import CommandError, call_command

from mochi_project.management.base import INTERRUPTED
from mochi_server.core.aio import in_thread
from mochi_server.protocol.messages import UserMessage
from mochi_server.sessions import SessionManager
from tests.support.server import environment, run_command, running_server

OLD = Path("tests/data/sessions/mochi-coco/0.3.0/bc62e321bf.json")


def run(*arguments):
    """What the command says, what it complains about, and its exit code."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    try:
        call_command(*arguments, stdout=out, stderr=err)
    except SystemExit as ended:
        code = ended.code
    return out.getvalue(), err.getvalue(), code


@pytest.fixture
def folder(mochi):
    mochi.sessions_path.mkdir(parents=True)
    return mochi.sessions_path


async def make(folder, session_id, *texts, days=0, **labels):
    manager = SessionManager(sessions_dir=folder)
    await manager.create("qwen3:14b", session_id=session_id, labels=labels)
    async with manager.edit(session_id) as session:
        session.append(*(UserMessage(content=text) for text in texts))
    path = folder / f"{session_id}.json"
    content = json.loads(path.read_bytes())
    time = datetime.now(timezone.utc) - timedelta(days=days)
    content["metadata"]["updated_at"] = time.isoformat()
    path.write_text(json.dumps(content))


@pytest.fixture
async def three(folder):
    """One said and pinned, one empty and old, one archived and older."""
    await make(folder, "said", "Hello\x1b[2J\nthere", title="Größe", tags=["a"], pinned=True)
    await make(folder, "empty", days=40)
    await make(folder, "away", "x" * 80, days=50, archived=True)
    return folder


# sessions list


def test_the_list_is_a_table(three):
    out, err, code = run("sessions", "list")
    head, *lines = out.splitlines()
    assert head.split() == ["ID", "CHANGED", "MESSAGES", "MODEL", "TITLE", "TAGS", "FLAGS"]
    cells = [line.split() for line in lines]
    assert [row[0] for row in cells] == ["said", "empty", "away"]
    assert cells[0][3:] == ["1", "qwen3:14b", "Größe", "a", "pinned"]
    assert cells[1][3:] == ["0", "qwen3:14b", "-", "-", "-"]
    assert cells[2][3:] == ["1", "qwen3:14b", "x" * 47 + "...", "-", "archived"]
    assert (err, code) == ("", 0)


def test_the_list_is_filtered_and_cut(three):
    def listed(*options):
        found = json.loads(run("sessions", "list", "--json", *options)[0])
        return [line["session_id"] for line in found["sessions"]]

    assert listed() == ["said", "empty", "away"]
    assert listed("--archived", "true") == ["away"]
    assert listed("--archived", "false", "--limit", "1") == ["said"]
    assert listed("--tag", "a") == ["said"]
    assert listed("--tag", "a", "--tag", "b") == []


def test_files_that_cannot_be_read_are_named(three):
    (three / "torn.json").write_text("{")
    out, err, code = run("sessions", "list")
    assert len(out.splitlines()) == 4
    assert err.startswith("problem: torn: not valid JSON")
    assert code == 0
    [problem] = json.loads(run("sessions", "list", "--json")[0])["problems"]
    assert problem["session_id"] == "torn"


@pytest.mark.parametrize(
    "arguments", [["list"], ["search", "hello"], ["export", "--all", "--output", "out"]]
)
async def test_a_file_that_cannot_be_read_is_complained_about_once(tmp_path, arguments):
    (tmp_path / "chat_sessions").mkdir()
    (tmp_path / "chat_sessions" / "torn.json").write_text("{")
    ended = await run_command(
        "sessions", *arguments, cwd=tmp_path, env=environment(data_dir=tmp_path)
    )
    [complaint] = [line for line in ended.err.splitlines() if "torn" in line]
    assert complaint.startswith("problem: torn: ")


def test_without_sessions_a_line_says_so(mochi):
    mochi.sessions_path.mkdir(parents=True)
    assert run("sessions", "list") == (f"No sessions in {mochi.sessions_path}.\n", "", 0)
    assert json.loads(run("sessions", "list", "--json")[0]) == {"sessions": [], "problems": []}


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_folder_of_sessions_that_is_not_there_is_named(mochi, options):
    with pytest.raises(CommandError, match=f"There is no folder {mochi.sessions_path}"):
        run("sessions", "list", *options)
    assert not mochi.data_dir.exists()


@pytest.mark.parametrize("limit", ["0", "-1", "x"])
def test_a_wrong_limit_is_refused(mochi, limit):
    with pytest.raises(CommandError, match="no number from 1 on"):
        run("sessions", "list", f"--limit={limit}")


# sessions show


def test_a_session_is_shown_without_what_moves_the_cursor(three):
    out, _, code = run("sessions", "show", "said")
    assert out.startswith("# Größe\n\n- Session: `said`\n")
    assert "## User\n\nHello [2J\nthere" in out
    assert code == 0


def test_a_session_is_shown_as_the_api_shows_it(three):
    found = json.loads(run("sessions", "show", "said", "--json")[0])
    assert (found["title"], found["archived"]) == ("Größe", False)
    assert [message["content"] for message in found["messages"]] == ["Hello\x1b[2J\nthere"]


def test_an_unknown_session_is_named(mochi):
    for action in ("show", "export"):
        with pytest.raises(CommandError, match=r"'nobody' not found"):
            run("sessions", action, "nobody")


# sessions export


def test_one_is_exported_to_stdout_or_into_a_file(three, tmp_path):
    stored = (three / "said.json").read_text()
    assert run("sessions", "export", "said") == (stored, "", 0)
    target = tmp_path / "out" / "it.json"
    out, _, code = run("sessions", "export", "said", "--output", str(target))
    assert target.read_text() == stored
    assert (out.splitlines()[1].split(), code) == (["said", str(target)], 0)


async def on_a_terminal(data_dir, *command):
    """What a command writes to a terminal."""
    terminal, its_end = pty.openpty()
    with os.fdopen(terminal, "rb", buffering=0) as screen, anyio.fail_after(100):
        try:
            process = await anyio.open_process(
                [sys.executable, "-m", "mochi_server", *command],
                stdin=None,
                stdout=its_end,
                stderr=None,
                env=environment(data_dir=data_dir),
            )
        finally:
            os.close(its_end)
        written = await in_thread(read_all, screen)
        assert await process.wait() == 0
    return written.decode().replace("\r\n", "\n")


def read_all(screen):
    parts = []
    with suppress(OSError):  # so a terminal says that nobody writes any more
        while part := screen.read(10_000):
            parts.append(part)
    return b"".join(parts)


@pytest.mark.parametrize("to", ["json", "markdown", "jsonl"])
async def test_an_export_moves_no_cursor_of_a_terminal(folder, mochi, to):
    await make(folder, "odd", "\x1b[2J\x9b31m\u202eright\u2028\x07\tleft", title="\x1b]0;it\x07")
    (folder / "odd.json").write_text((folder / "odd.json").read_text().replace("\\u009b", "\x9b"))
    shown = await on_a_terminal(mochi.data_dir, "sessions", "export", "odd", "--format", to)
    assert "right" in shown
    assert "left" in shown
    assert {each for each in shown if not each.isprintable()} <= {"\n"}
    if to != "markdown":
        assert "right" in json.dumps([json.loads(shown)])  # still JSON, to copy


def test_other_formats_are_exported(three):
    line = run("sessions", "export", "said", "--format", "jsonl")[0]
    said = {"role": "user", "content": "Hello\x1b[2J\nthere"}
    assert json.loads(line) == {"messages": [said]}
    assert run("sessions", "export", "said", "--format", "markdown")[0].startswith("# Größe\n")


def test_a_file_is_overwritten_by_force_only(three, tmp_path):
    target = tmp_path / "it.json"
    target.write_text("precious")
    out, err, code = run("sessions", "export", "said", "--output", str(target))
    assert (out, code) == ("Nothing was exported.\n", 1)
    assert "is there already (see --force)" in err
    assert target.read_text() == "precious"
    assert run("sessions", "export", "said", "--output", str(target), "--force")[2] == 0
    assert target.read_text() == (three / "said.json").read_text()


@pytest.mark.parametrize(("name", "suffix"), [("json", "json"), ("markdown", "md")])
def test_all_are_exported_into_a_folder(three, tmp_path, name, suffix):
    (three / "torn.json").write_text("{")
    target = tmp_path / "out"
    out, err, code = run(
        "sessions", "export", "--all", "--output", str(target), "--format", name, "--json"
    )
    began = {
        each: json.loads((three / f"{each}.json").read_text())["metadata"]["created_at"][:10]
        for each in ("said", "empty", "away")
    }
    assert {path.name for path in target.iterdir()} == {
        f"{began['said']} Gr\u00f6\u00dfe.{suffix}",
        f"{began['empty']}.{suffix}",
        f"{began['away']} {'x' * 50}.{suffix}",
    }
    report = json.loads(out)
    assert {each["file"] for each in report["exported"]} == {str(p) for p in target.iterdir()}
    assert [each["session_id"] for each in report["problems"]] == ["torn"]
    assert (err, code) == ("", 1)


async def test_exports_of_the_same_name_have_their_ids_and_no_name_leaves_the_folder(
    folder, tmp_path
):
    for number, title in enumerate(("Sums", "sums", "../a\\b:c\u202e", "..", "\u6f22" * 200)):
        await make(folder, f"s{number}", title=title)
    await in_thread(run, "sessions", "export", "--all", "--output", str(tmp_path / "out"))
    assert {path.stem[11:] for path in (tmp_path / "out").iterdir()} == {
        "Sums s0", "sums s1", ".. a b c", "", "\u6f22" * 50
    }  # fmt: skip


@pytest.mark.parametrize("place", ["", "sub", "said.json"])
def test_an_export_keeps_away_from_the_sessions_themselves(three, place):
    before = {path.name: path.read_bytes() for path in three.glob("*.json")}
    for which in ("--all", "said"):
        with pytest.raises(CommandError, match="folder of the sessions themselves"):
            run("sessions", "export", which, "--output", str(three / place), "--force")
    assert {path.name: path.read_bytes() for path in three.glob("*.json")} == before


@pytest.mark.parametrize("arguments", [["--all"], [], ["said", "--all"]])
def test_an_export_says_what_it_wants(three, arguments):
    with pytest.raises(CommandError):
        run("sessions", "export", *arguments)


# sessions import


def test_files_are_imported_and_nothing_is_overwritten(three, tmp_path):
    lines = tmp_path / "chat.jsonl"
    lines.write_text('{"role": "user", "content": "Hi"}\n')
    mine = (three / "said.json").read_bytes()
    other = tmp_path / "said.json"
    other.write_bytes(mine.replace(b'"model"', b'"modell"'))
    out, err, code = run(
        "sessions", "import", str(OLD), str(other), str(lines), "/nowhere", "--model", "m",
    )  # fmt: skip
    head, first, second, *_ = (line.split() for line in out.splitlines())
    assert head == ["FILE", "FROM", "SESSIONS", "NEW", "CONTINUED", "UNCHANGED", "MESSAGES"]
    assert first == [str(OLD), "mochi", "bc62e321bf", "1", "0", "0", "10"]
    assert (second[:2], second[3:]) == ([str(lines), "chat_messages"], ["1", "0", "0", "1"])
    found = json.loads((three / "bc62e321bf.json").read_bytes())
    assert found["messages"] == json.loads(OLD.read_bytes())["messages"]
    assert "exists already. Nothing was overwritten: it can only be imported with a new id" in err
    assert "problem: /nowhere: No such file" in err
    assert code == 1
    assert (three / "said.json").read_bytes() == mine


def test_an_import_says_which_sessions_ask_again(three):
    lax, strict = three / "empty.json", three / "said.json"
    content = json.loads(lax.read_bytes())
    content["metadata"]["tool_settings"] = {"tools": [], "execution_policy": "never_confirm"}
    lax.write_text(json.dumps(content))
    command = ("sessions", "import", "--new-id", str(lax), str(strict))
    out, _, code = run(*command)
    first, second = (line.split()[2] for line in out.splitlines()[1:3])
    assert code == 0
    [said] = out.splitlines()[3:]
    assert said.startswith(f"{first} asks before every tool call: the policies in its file were")
    assert second not in said
    imported = json.loads(run(*command, "--json")[0])["imported"]
    assert [each["policies_changed"] for each in imported] == [True, False]


def test_an_import_under_another_id_is_told_as_json(three):
    out, _, code = run("sessions", "import", "--new-id", "--json", str(three / "said.json"))
    [imported] = json.loads(out)["imported"]
    assert imported["session_id"] != "said"
    assert (imported["message_count"], imported["format_version"], code) == (1, "1.3", 0)
    assert (three / f"{imported['session_id']}.json").exists()


def test_what_is_too_large_is_not_imported_and_not_read_to_its_end(mochi, tmp_path):
    mochi.max_body_mb = OLD.stat().st_size / 1e7
    larger = tmp_path / "larger.json"
    larger.write_bytes(OLD.read_bytes() + b"\n")
    out, err, code = run("sessions", "import", "/dev/zero", str(larger), str(OLD))
    assert [line.split()[0] for line in out.splitlines()[:2]] == ["FILE", str(OLD)]
    assert "problem" not in out
    words = "it is larger than 0.003449 MB; MOCHI_MAX_BODY_MB allows more"
    assert err.splitlines() == [f"problem: {name}: {words}" for name in ("/dev/zero", larger)]
    assert code == 1


# migrate_sessions


def test_a_migration_is_shown_first_and_done_when_asked_for(folder):
    shutil.copy(OLD, folder)
    out, err, code = run("migrate_sessions")
    assert out.splitlines()[1].split() == ["bc62e321bf", "1.1", "would", "be", "migrated", "-"]
    assert out.splitlines()[-1] == "Nothing was changed. Do it with --write."
    assert (err, code) == ("", 0)
    assert (folder / OLD.name).read_bytes() == OLD.read_bytes()
    [done] = json.loads(run("migrate_sessions", "--write", "--json")[0])
    assert (done["outcome"], done["backup"]) == ("migrated", f"{OLD.name}.1.1.bak")
    assert (folder / done["backup"]).read_bytes() == OLD.read_bytes()
    assert run("migrate_sessions") == ("No session file is of an old version.\n", "", 0)


async def test_a_session_in_use_is_not_migrated(folder):
    shutil.copy(OLD, folder)
    async with SessionManager(sessions_dir=folder).claim(OLD.stem):
        out, _, code = await in_thread(run, "migrate_sessions", "--write")
    assert "skipped: a turn is running" in out
    assert code == 1
    assert (folder / OLD.name).read_bytes() == OLD.read_bytes()


def test_a_file_that_cannot_be_read_makes_a_migration_fail(folder):
    (folder / "torn.json").write_text("{")
    out, err, code = run("migrate_sessions")
    assert out == "No session file is of an old version.\n"
    assert err.startswith("problem: torn: ")
    assert code == 1


async def test_a_disk_that_refuses_leaves_the_old_file_and_no_backup(tmp_path):
    folder = tmp_path / "chat_sessions"
    folder.mkdir()
    path = Path(shutil.copy(OLD, folder))
    limited = ["sh", "-c", 'ulimit -f 1; exec "$@"', "sh"]
    command = [sys.executable, "-m", "mochi_server", "migrate_sessions", "--write"]
    # The limit would cut the byte code of what is imported as well, and leave it so for others.
    variables = environment(data_dir=tmp_path) | {"PYTHONDONTWRITEBYTECODE": "1"}
    with anyio.fail_after(100):
        done = await anyio.run_process(
            [*limited, *command], check=False, cwd=tmp_path, env=variables
        )
    assert done.returncode == 1
    assert b"File too large" in done.stderr
    assert [each.name for each in folder.iterdir() if each.is_file()] == [OLD.name]
    assert path.read_bytes() == OLD.read_bytes()


# prune_sessions


def left(folder):
    return {path.stem for path in folder.glob("*.json")}


def test_a_dry_run_shows_and_deletes_nothing(three):
    out, err, code = run("prune_sessions", "--older-than", "30d")
    assert [line.split()[0] for line in out.splitlines()[1:3]] == ["empty", "away"]
    assert out.splitlines()[-1] == "2 would go. Delete them with --delete."
    assert (err, code) == ("", 0)
    assert left(three) == {"said", "empty", "away"}


@pytest.mark.parametrize(
    ("options", "gone"),
    [
        (["--older-than", "45d"], {"away"}),
        (["--older-than", "30d", "--empty"], {"empty"}),
        (["--empty"], {"empty"}),
        (["--archived"], {"away"}),
        (["--archived", "--empty"], set()),
        (["--older-than", "0m"], {"empty", "away"}),
    ],
)
def test_what_everything_named_is_true_of_is_deleted(three, options, gone):
    report = json.loads(run("prune_sessions", *options, "--delete", "--yes", "--json")[0])
    assert {*report["deleted"]} == {line["session_id"] for line in report["found"]} == gone
    assert report["kept"] == []
    assert left(three) == {"said", "empty", "away"} - gone


def test_what_was_imported_lately_is_not_old(three, tmp_path):
    message = {"role": "user", "content": "Hi", "timestamp": "2020-01-01T00:00:00Z"}
    (tmp_path / "old.json").write_text(json.dumps([message]))
    imported = json.loads(run("sessions", "import", str(tmp_path / "old.json"), "--json")[0])
    options = ("--older-than", "45d", "--delete", "--yes", "--json")
    report = json.loads(run("prune_sessions", *options)[0])
    assert (report["deleted"], report["kept"]) == (["away"], [])
    report = json.loads(run("prune_sessions", "--older-than", "0m", "--json")[0])
    found = {line["session_id"] for line in report["found"]}
    assert imported["imported"][0]["session_id"] in found


async def test_a_session_whose_turn_runs_is_kept(three):
    async with SessionManager(sessions_dir=three).claim("away"):
        options = ("--older-than", "30d", "--delete", "--yes")
        out, err, code = await in_thread(run, "prune_sessions", *options)
    assert out.splitlines()[-1] == "1 of 2 deleted."
    assert err.startswith("kept: away: Session 'away' is busy")
    assert code == 1
    assert left(three) == {"said", "away"}


async def test_chats_of_agents_are_pruned_when_asked_for(three, mochi):
    mochi.agent_chats_path.mkdir(parents=True)
    await make(mochi.agent_chats_path, "agents", days=40)
    options = ("--empty", "--agent-chats", "--delete", "--yes", "--json")
    report = json.loads((await in_thread(run, "prune_sessions", *options))[0])
    assert report["deleted"] == ["agents"]
    assert left(three) == {"said", "empty", "away"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "Say what is to go"),
        (["--delete"], "Say what is to go"),
        (["--older-than", "30"], "no length of time"),
        (["--older-than", "999999d"], "longer ago than any calendar"),
    ],
)
def test_a_rule_that_says_nothing_deletes_nothing(three, options, words):
    with pytest.raises(CommandError, match=words):
        run("prune_sessions", *options)
    assert left(three) == {"said", "empty", "away"}


def test_without_a_terminal_nothing_is_deleted_unless_the_option_says_yes(three):
    with pytest.raises(CommandError, match="--yes") as found:
        run("prune_sessions", "--older-than", "0d", "--delete")
    assert found.value.returncode == 2
    assert left(three) == {"said", "empty", "away"}


async def answered(data_dir, answer, *options):
    """``prune_sessions`` on a terminal on which somebody types this."""
    typed, terminal = pty.openpty()
    try:
        os.write(typed, answer)
        with anyio.fail_after(100):
            return await anyio.run_process(
                [sys.executable, "-m", "mochi_server", "prune_sessions", *options],
                stdin=terminal,
                check=False,
                cwd=data_dir,
                env=environment(data_dir=data_dir),
            )
    finally:
        os.close(typed)
        os.close(terminal)


@pytest.mark.parametrize("answer", [b"\n", b"\x04", b"yesterday\n"])
async def test_on_a_terminal_somebody_is_asked_and_may_say_no(three, mochi, answer):
    done = await answered(mochi.data_dir, answer, "--older-than", "0d", "--delete")
    assert b"Delete 2 of 3 sessions, with 1 message, for good? [y/N]" in done.stderr
    assert done.stdout.splitlines()[-1] == b"Nothing was deleted."
    assert done.returncode == 1
    assert left(three) == {"said", "empty", "away"}


async def test_on_a_terminal_somebody_is_asked_and_may_say_yes(three, mochi):
    done = await answered(mochi.data_dir, b"Y\n", "--archived", "--delete", "--json")
    assert json.loads(done.stdout)["deleted"] == ["away"]
    assert done.returncode == 0
    assert left(three) == {"said", "empty"}


async def test_nobody_is_asked_about_nothing(folder, mochi):
    done = await answered(mochi.data_dir, b"", "--older-than", "0d", "--delete")
    assert (done.stdout, done.returncode) == (b"No session is to go.\n", 0)
    assert done.stderr == b""


# All of them


def test_with_sessions_in_memory_there_is_nothing_to_see(mochi):
    mochi.session_storage = "memory"
    for command in (["sessions", "list"], ["migrate_sessions"], ["prune_sessions", "--empty"]):
        with pytest.raises(CommandError, match="only the server itself has sessions"):
            run(*command)


@pytest.mark.slow
async def test_commands_beside_a_running_server(ollama, folder, mochi):
    async def command(*arguments):
        out, err, code = await in_thread(run, *arguments)
        assert (err, code) == ("", 0)
        return out

    async with running_server(data_dir=mochi.data_dir, ollama=ollama) as server:
        session_id = await server.new_session(title="Mine")
        listed = json.loads(await command("sessions", "list", "--json"))
        assert [line["title"] for line in listed["sessions"]] == ["Mine"]
        await command("sessions", "import", str(OLD))
        _, listed = await server.get("/sessions")
        assert {line["session_id"] for line in listed["sessions"]} == {session_id, OLD.stem}
        await command("migrate_sessions", "--write")
        status, detail = await server.get(f"/sessions/{OLD.stem}")
        assert (status, detail["format_version"]) == (200, "1.3")
        out = await command("prune_sessions", "--empty", "--delete", "--yes")
        assert out.splitlines()[-1] == "1 of 1 deleted."
        assert (await server.get(f"/sessions/{session_id}"))[0] == 404


async def test_lines_are_imported_from_stdin(tmp_path):
    with anyio.fail_after(100):
        done = await anyio.run_process(
            [sys.executable, "-m", "mochi_server", "sessions", "import", "-", "--model", "m"],
            input=b'{"role":"user","content":"Hi"}\n',
            cwd=tmp_path,
            env=environment(data_dir=tmp_path),
        )
    assert done.stdout.splitlines()[1].split()[0] == b"-"
    assert len([*(tmp_path / "chat_sessions").glob("*.json")]) == 1


def test_names_of_strange_files_move_no_cursor(folder):
    (folder / "\x1b[2Jred.json").write_text("{}")
    for command in (("sessions", "list"), ("migrate_sessions",)):
        _, err, _ = run(*command)
        assert "problem:  [2Jred: the file's name is not a session id" in err
        assert "\x1b" not in err


def test_a_limit_beyond_any_number_of_sessions_is_none(three):
    out, _, code = run("sessions", "list", "--archived", "true", "--limit", "9" * 30)
    assert code == 0
    assert "away" in out


def test_a_closed_stdin_is_told_of_as_a_file_that_cannot_be_read(folder, monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)  # as Python has it then
    _, err, code = run("sessions", "import", "-")
    assert (err, code) == ("problem: -: stdin is closed\n", 1)


async def test_an_import_that_waits_for_stdin_can_be_interrupted(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    command = [sys.executable, "-m", "mochi_server", "sessions", "import", str(path)]
    with anyio.fail_after(100):
        async with (
            await anyio.open_process(command, env=environment(data_dir=tmp_path)) as process,
            # Opening it waits until the command does, which then reads.
            await anyio.open_file(path, "wb"),
        ):
            process.send_signal(signal.SIGINT)
            with anyio.fail_after(100):
                assert await process.wait() == INTERRUPTED


def test_all_sessions_without_a_folder_for_them_is_a_wrong_option(three):
    with pytest.raises(CommandError, match="--output DIR") as found:
        run("sessions", "export", "--all")
    assert found.value.returncode == 2
