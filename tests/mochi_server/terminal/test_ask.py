"""``ask`` in pipes, and the scripts of ``completion``."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from mochi_server.__main__ import main
from mochi_server.server.initialise import initialise
from mochi_server.testing import call, error, instructions, running_server, text
from tests.support.server import environment, run_and_list_modules
from tests.support.terminal import api


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    initialise(folder)
    with running_server(data_dir=folder) as server:
        yield server


def mochi(*arguments, cwd, stdin="", **settings):
    return subprocess.run(
        [sys.executable, "-m", "mochi_server", *arguments],
        cwd=cwd,
        env=environment(**settings),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
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
        timeout=60,
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
