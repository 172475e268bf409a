"""``ask`` in pipes, and the scripts of ``completion``."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import signal
import subprocess
import sys
import termios
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

from mochi_server.__main__ import main
from mochi_server.core.aio import in_thread
from mochi_server.server.initialise import initialise
from mochi_server.testing import call, error, instructions, running_server, stall, text
from tests.support.fake_ollama import FakeOllama
from tests.support.server import environment, run_and_list_modules
from tests.support.server import running_server as server_process
from tests.support.terminal import api
from tests.support.waiting import until


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    initialise(folder)
    with running_server(data_dir=folder) as server:
        yield server


SHORT = Path(sys.executable).parent / "mochi"


def mochi(*arguments, cwd, stdin="", command=(sys.executable, "-m", "mochi_server"), **settings):
    return subprocess.run(
        [*command, *arguments],
        cwd=cwd,
        env=environment(**settings),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_only_the_answer_is_printed_and_its_session_is_deleted(server, tmp_path):
    ended = mochi(
        *("ask", "--model", "lorem", "Write the commit message"),
        cwd=tmp_path,
        stdin=instructions(text(exactly="Fix \x1b[31m it.")),
        server_url=server.url,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "Fix \x1b[31m it.\n", "")
    assert api(server.url, "GET", "/sessions")["sessions"] == []


def test_the_answer_is_printed_while_it_is_written(server, tmp_path):
    question = instructions(text(exactly="First words."), stall(60))
    process = subprocess.Popen(
        [SHORT, "ask", "--server", server.url, question],
        cwd=tmp_path,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    killer = threading.Timer(30, process.kill)
    killer.start()
    try:
        assert process.stdout.read(12) == b"First words."
        [session] = api(server.url, "GET", "/sessions")["sessions"]
        api(server.url, "POST", f"/chat/{session['session_id']}/stop")
        out, err = process.communicate()
    finally:
        killer.cancel()
        process.kill()
    assert (process.returncode, out) == (1, b"\n")
    assert err == b"mochi: RUN_STOPPED: Somebody has stopped the answer.\n"
    assert api(server.url, "GET", "/sessions")["sessions"] == []


@pytest.fixture
def hangups():
    """Processes of this test end by SIGHUP, also below ``nohup``."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@contextmanager
def asking(server, tmp_path, *answer, before=(), pipe_bytes=65_536):
    """``ask`` whose output nobody has read yet; it is killed at the end."""
    reading, writing = os.pipe()
    fcntl.fcntl(reading, fcntl.F_SETPIPE_SZ, pipe_bytes)
    with os.fdopen(writing, "wb") as output:
        process = subprocess.Popen(
            [*before, SHORT, "ask", "--server", server.url, instructions(*answer)],
            cwd=tmp_path,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.PIPE,
        )
    process.stdout = os.fdopen(reading, "rb")
    killer = threading.Timer(60, process.kill)
    killer.start()
    try:
        yield process
    finally:
        killer.cancel()
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("number", "times"),
    [(signal.SIGINT, 1), (signal.SIGTERM, 1), (signal.SIGHUP, 2)],  # a closed terminal sends two
)
@pytest.mark.usefixtures("hangups")
def test_a_signal_ends_the_answer_and_its_session(server, tmp_path, number, times):
    with asking(server, tmp_path, text(exactly="First."), stall(60)) as process:
        assert process.stdout.read(6) == b"First."
        for _ in range(times):
            process.send_signal(number)
        _, err = process.communicate()
    assert (process.returncode, err) == (128 + number, b"")
    assert api(server.url, "GET", "/sessions")["sessions"] == []


def waiting_bytes(pipe):
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


async def test_a_signal_ends_an_answer_that_nobody_reads(server, tmp_path):
    with asking(server, tmp_path, text(exactly="word " * 8_000), pipe_bytes=4_096) as process:
        await until(lambda: waiting_bytes(process.stdout), lambda size: size > 4_000)
        process.terminate()
        assert process.wait() == 128 + signal.SIGTERM
        assert process.stderr.read() == b""
    assert api(server.url, "GET", "/sessions")["sessions"] == []


def test_below_nohup_a_closed_terminal_does_not_end_it(server, tmp_path):
    answer = text(exactly="First."), stall(1), text(exactly=" Second.")
    with asking(server, tmp_path, *answer, before=["nohup"]) as process:
        assert process.stdout.read(6) == b"First."
        process.send_signal(signal.SIGHUP)
        out, _ = process.communicate()
    assert (process.returncode, out) == (0, b"\n\n Second.\n")


@pytest.mark.parametrize(
    ("redirected", "code", "said"),
    [
        ("<&-", 0, ""),
        (">&-", 1, "mochi: The answer cannot be written: standard output is closed\n"),
        (">/dev/full", 1, "mochi: The answer cannot be written: No space left on device\n"),
    ],
)
def test_streams_that_are_closed_or_full_are_a_line_and_a_code(
    server, tmp_path, redirected, code, said
):
    question = shlex.quote(instructions(text(exactly="Hello.")))
    script = f"{SHORT} ask --server {server.url} {question} {redirected}"
    ended = mochi("-c", script, cwd=tmp_path, command=["bash"])
    assert (ended.returncode, ended.stderr) == (code, said)
    assert api(server.url, "GET", "/sessions")["sessions"] == []


def test_replies_around_a_call_are_paragraphs(server, tmp_path):
    question = instructions(
        text(exactly="Let me see.\n"), call("calculate", expression="1"),
        then=[[text(exactly="It is 1.\n\n")]],
    )  # fmt: skip
    ended = mochi("ask", "--tool", "calculate", question, cwd=tmp_path, server_url=server.url)
    assert (ended.returncode, ended.stdout) == (0, "Let me see.\n\nIt is 1.\n")


def test_a_reader_that_has_seen_enough_is_no_error(server, tmp_path):
    script = f"{SHORT} ask --server {server.url} {shlex.quote(instructions(text(9000)))}"
    ended = mochi("-c", f"set -o pipefail; {script} | head -c 5", cwd=tmp_path, command=["bash"])
    assert (ended.returncode, len(ended.stdout), ended.stderr) == (141, 5, "")
    assert api(server.url, "GET", "/sessions")["sessions"] == []


def test_options_and_files_go_with_the_question_and_the_last_session_goes_on(server, tmp_path):
    (tmp_path / "notes.txt").write_text("Some notes")
    common = ("ask", "--server", server.url)
    first = mochi(
        *(*common, "--keep", "--json", "-o", "top_k=3", "-o", "keep_alive=10m", "-a", "notes.txt"),
        *("-a", str(tmp_path / "notes.txt"), "Read it"), cwd=tmp_path,
    )  # fmt: skip
    assert first.returncode == 0, first.stderr
    answer = json.loads(first.stdout)
    assert {*answer["ignored_options"]} == {"top_k", "keep_alive"}
    assert mochi(*common, "-c", "Again?", cwd=tmp_path).returncode == 0
    session = api(server.url, "GET", f"/sessions/{answer['session_id']}")
    asked = [message for message in session["messages"] if message["role"] == "user"]
    assert asked[1]["content"] == "Again?"
    assert {each["name"] for each in asked[0]["attachments"]} == {"notes.txt"}
    api(server.url, "DELETE", f"/sessions/{answer['session_id']}")
    for options, code, words in (
        (["-c", "Again?"], 1, "mochi-server: There is no session to go on with.\n"),
        (["-o", "temperature", "Hi"], 2, "'temperature' is not NAME=VALUE"),
        (["-o", "temperature=hot", "Hi"], 1, "mochi-server: VALIDATION_ERROR: "),
        (["-a", "gone.txt", "Hi"], 2, "ask: gone.txt cannot be read: No such file"),
        (["-c", "--session", "one", "Hi"], 2, "--last cannot be used with a session."),
    ):
        failed = mochi(*common, *options, cwd=tmp_path)
        assert (failed.returncode, failed.stdout) == (code, ""), options
        assert words in failed.stderr, options


async def test_a_model_that_is_nowhere_is_named_with_the_nearest(tmp_path):
    async with (
        FakeOllama() as ollama,
        server_process(data_dir=tmp_path, ollama=ollama) as other,
    ):
        ended = await in_thread(
            mochi, "ask", "--server", other.url, "--model", "qwen3:14", "Hi", cwd=tmp_path
        )
        listed = await other.get("/sessions")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("mochi-server: MODEL_NOT_FOUND: ")
    assert "'qwen3:14'" in ended.stderr
    assert "qwen3:14b" in ended.stderr
    assert listed[1]["sessions"] == []


def test_the_models_are_listed(server, tmp_path):
    ended = mochi("models", "--server", server.url, cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    head, first, *_ = ended.stdout.splitlines()
    assert head.split() == ["MODEL", "PROVIDER", "CONTEXT", "CAN"]
    assert first.split() == ["lorem", "test", "32,768", "tools,", "thinking,", "vision"]
    listed = json.loads(mochi("models", "--json", "--server", server.url, cwd=tmp_path).stdout)
    assert listed == api(server.url, "GET", "/models")


def test_messages_begin_with_the_command_that_was_typed(server, tmp_path):
    for script in ("mochi", "mochi-server"):
        for options in (["ask", "--server", "nowhere", "Hi"], ["doctr"], ["init"]):
            said = mochi(*options, cwd=tmp_path, command=[SHORT.parent / script]).stderr
            assert said.startswith(f"{script}: "), options
        for command in ("ask", "chat", "models", "sessions"):
            said = mochi(command, "--help", cwd=tmp_path, command=[SHORT.parent / script]).stdout
            assert said.startswith(f"usage: {script} {command} "), command


def test_a_question_imports_no_complete_http_client_and_nothing_of_the_server(server, tmp_path):
    _, loaded = run_and_list_modules("ask", "--server", server.url, "Hello", cwd=tmp_path)
    assert "mochi_server.terminal.ask" in loaded
    late = {"aiohttp", "httpx", "django", "uvicorn", "rich", "prompt_toolkit", "logging.config"}
    assert loaded & {*late, "mochi_server.runtime", "mochi_server.server.announcement"} == set()


def test_json_is_the_response_of_the_server_and_a_session_can_go_on(server, tmp_path):
    question = instructions(call("calculate", expression="1 + 1"), then=[[text(exactly="Denied.")]])
    options = ("--server", server.url, "--json", "--tool", "calculate")
    ended = mochi("ask", *options, "--keep", "--system", "Be brief.", question, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    answer = json.loads(ended.stdout)
    assert answer["message"]["content"] == "Denied."
    assert answer["tool_calls_executed"][0]["success"] is False
    session = answer["session_id"]
    again = mochi("ask", "--server", server.url, "--session", session, "Again?", cwd=tmp_path)
    assert again.stdout.endswith("Again?\n")
    messages = api(server.url, "GET", f"/sessions/{session}/messages")["messages"]
    assert [message["role"] for message in messages].count("user") == 2
    assert messages[0] == messages[0] | {"role": "system", "content": "Be brief."}
    api(server.url, "DELETE", f"/sessions/{session}")


def test_failures_have_a_line_and_a_code(server, tmp_path):
    fails = instructions(error(message="Out of order."))
    failed = mochi("ask", "--server", server.url, fails, cwd=tmp_path)
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr.startswith("mochi-server: PROVIDER_ERROR: ")
    assert api(server.url, "GET", "/sessions")["sessions"] == []
    nothing = mochi("ask", "--server", server.url, cwd=tmp_path)
    assert (nothing.returncode, nothing.stderr) == (2, "mochi-server: ask: there is no question.\n")
    nobody = mochi("ask", "--server", "http://127.0.0.1:1", "Hello?", cwd=tmp_path)
    assert nobody.returncode == 3
    assert nobody.stderr == "mochi-server: No mochi-server answers at http://127.0.0.1:1.\n"
    folder = mochi("--port", "1", "ask", "Hello?", cwd=tmp_path)
    assert folder.returncode == 2
    assert "--data-dir data ask" in folder.stderr
    pipe = mochi("chat", "--server", server.url, cwd=tmp_path)
    assert (pipe.returncode, pipe.stdout) == (2, "")
    assert "For pipes: mochi-server ask" in pipe.stderr


@pytest.mark.parametrize(("sent", "left"), [((), 1), (("-a", "rubbish.bin"), 0)])
def test_a_session_that_is_kept_has_its_question(server, tmp_path, sent, left):
    (tmp_path / "rubbish.bin").write_bytes(b"\x00\x01\xff")
    question = instructions(error(message="out of memory"))
    options = ("--server", server.url, "--model", "lorem", "--keep", *sent)
    assert mochi("ask", *options, question, cwd=tmp_path).returncode != 0
    sessions = api(server.url, "GET", "/sessions")["sessions"]
    assert len(sessions) == left
    for each in sessions:
        api(server.url, "DELETE", f"/sessions/{each['session_id']}")


def test_shells_complete_commands_and_their_options(tmp_path, capsys):
    scripts = {}
    for shell in ("bash", "zsh", "fish"):
        assert main(["completion", shell]) == 0
        scripts[shell] = capsys.readouterr().out
    assert "--keep[keep the new session" in scripts["zsh"]
    assert "-l keep -d 'keep the new session" in scripts["fish"]
    (tmp_path / "complete.bash").write_text(scripts["bash"], encoding="utf-8")
    ended = subprocess.run(
        ["bash", "-c", _COMPLETE],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    commands, options, actions = ended.stdout.splitlines()
    assert set(commands.split()) == {"chat", "check"}
    assert set(options.split()) == {"--server", "--session", "--system"}
    assert actions == "export"


_COMPLETE = """
source complete.bash
function=$(complete -p mochi-server | sed 's/.*-F \\([^ ]*\\).*/\\1/')
completed() {
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
    $function mochi-server "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
    echo "${COMPREPLY[@]}"
}
completed mochi-server ch
completed mochi-server ask --s
completed mochi-server sessions e
"""
