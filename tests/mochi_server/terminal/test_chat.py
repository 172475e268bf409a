"""The real program in a pseudo-terminal, against a real server in test mode."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import signal
import socket
import socketserver
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

import pytest
from prompt_toolkit.completion import DummyCompleter

from mochi_server.server.initialise import initialise
from mochi_server.terminal.chat.keyboard import Keyboard
from mochi_server.testing import call, instructions, running_server, stall, text
from tests.support.server import ROOT
from tests.support.terminal import api, running
from tests.support.tool_folders import children, is_gone
from tests.support.waiting import until

MARKDOWN = (
    "# A title\n\nSome **bold** words and [a link](https://example.org/x).\n\n- one\n- two\n\n"
    "```python\nprint('code')\n```\n\n| left | right |\n|---|---|\n| 1 | 2 |\n\n"
    "Hidden: \x1b[31mred \u202egnirts\n\nThe end."
)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    initialise(folder)
    with running_server(data_dir=folder) as server:
        yield server


def chat(server, tmp_path, *arguments, **options):
    return running("chat", "--server", server.url, *arguments, cwd=tmp_path, **options)


def session_with_tool(server, **fields):
    body = {"model": "lorem", "tool_settings": {"tools": ["calculate"]}, **fields}
    return api(server.url, "POST", "/sessions", body)["session_id"]


def calculating(expression, answer):
    return instructions(
        text(exactly="Let me see."),
        call("calculate", expression=expression),
        then=[[text(exactly=answer)]],
    )


def test_an_answer_is_shown_as_markdown_and_its_blocks_once(server, tmp_path):
    with chat(server, tmp_path, "--model", "lorem") as terminal:
        terminal.see("/help lists the commands")
        terminal.say(instructions(text(exactly=MARKDOWN)))
        terminal.see(" tokens")
        terminal.say("/quit")
        assert terminal.ended() == 0
    lines = terminal.text.split("\n")
    assert "A title" in lines
    assert "Some bold words and a link (https://example.org/x)." in lines
    assert " • two" in lines
    assert "print('code')" in lines
    assert " left  right" in lines
    assert "Hidden:  [31mred  gnirts" in lines
    assert "The end." in lines
    for line in ("A title", "print('code')", "The end."):
        assert lines.count(line) == 1


def test_calls_are_allowed_edited_and_denied(server, tmp_path):
    session = session_with_tool(server)
    with chat(server, tmp_path, session) as terminal:
        terminal.say(calculating("2 + 3", "First."))
        assert '"expression": "2 + 3"' in terminal.see("Run it?")
        terminal.enter("?")
        terminal.see("y: yes, n: no, e: edit")
        terminal.see("Run it?", 2)
        terminal.enter("y")
        terminal.see("First.\n")
        assert "\n  5\n" in terminal.text

        terminal.say(calculating("2 + 3", "Second."))
        terminal.see("Run it?", 3)
        terminal.enter("e")
        terminal.see("Arguments: {")
        terminal.ctrl("u")
        terminal.enter('{"expression": ')
        terminal.see("This is not JSON")
        terminal.see("Arguments: {", 2)
        terminal.ctrl("u")
        terminal.enter('{"expression": "20 + 30"}')
        terminal.see("allowed with other arguments")
        terminal.see("Second.\n")
        assert "\n  50\n" in terminal.text

        terminal.say(calculating("2 + 3", "Third."))
        terminal.see("Run it?", 4)
        terminal.enter("n")
        terminal.see("Reason")
        terminal.enter("not today")
        terminal.see("denied: not today")
        terminal.see("Third.\n")
    messages = api(server.url, "GET", f"/sessions/{session}/messages")["messages"]
    results = [message["content"] for message in messages if message["role"] == "tool"]
    assert "not today" in results[2]


class RefusingProxy(socketserver.ThreadingTCPServer):
    """Forwards each connection to a server, but for the requests that it refuses."""

    daemon_threads = True
    refused: tuple[str, bytes] = ("", b"")
    """Which requests, as a regular expression for their first lines, and the answer."""

    def __init__(self, port: int) -> None:
        self.upstream = ("127.0.0.1", port)
        super().__init__(("127.0.0.1", 0), self._serve)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def _serve(self, client: socket.socket, *_: object) -> None:
        head = client.recv(65536)
        pattern, answer = self.refused
        if pattern and re.match(pattern, head.decode("latin-1")):
            client.sendall(answer)
            return
        with socket.create_connection(self.upstream) as server, suppress(OSError):
            server.sendall(head)
            threading.Thread(target=_pump, args=(client, server), daemon=True).start()
            _pump(server, client)


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


@contextmanager
def refusing_proxy(port: int) -> Iterator[RefusingProxy]:
    with RefusingProxy(port) as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        try:
            yield proxy
        finally:
            proxy.shutdown()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"", "does not answer: it has closed the connection"),
        (b"HTTP/1.1 503 Away\r\nContent-Length: 0\r\n\r\n", "answers with status 503"),
    ],
)
def test_a_server_that_is_away_while_it_asks_gets_the_decision_when_it_is_back(
    server, tmp_path, answer, said
):
    session = session_with_tool(server)
    with refusing_proxy(urlsplit(server.url).port) as proxy:
        proxy.refused = r"GET \S+/runs/\w+ ", answer
        with running("chat", "--server", proxy.url, session, cwd=tmp_path) as terminal:
            terminal.say(calculating("2 + 3", "First."))
            terminal.see("Run it?")
            proxy.refused = r"POST \S+/confirmations/", answer
            terminal.enter("y")
            terminal.see("Run it?", 2)
            proxy.refused = "", b""
            terminal.enter("y")
            terminal.see("First.\n")
            assert "\n  5\n" in terminal.text

            terminal.say(calculating("3 + 4", "Second."))
            terminal.see("Run it?", 3)
            proxy.refused = r"POST \S+/confirmations/", answer
            terminal.ctrl("d")  # says no, and can say nothing else
            terminal.see(said, 2)
            decide_elsewhere(server)
            terminal.see("Second.\n")
            assert terminal.text.count(said) == 2


def test_a_decision_that_comes_too_late_is_not_asked_for_again(server, tmp_path):
    session = session_with_tool(server)
    gone = json.dumps({"error": {"code": "CONFIRMATION_NOT_FOUND", "message": "It is over."}})
    head = f"HTTP/1.1 404 Gone\r\nContent-Length: {len(gone)}\r\n\r\n"
    with refusing_proxy(urlsplit(server.url).port) as proxy:
        proxy.refused = r"POST \S+/confirmations/", (head + gone).encode()
        with running("chat", "--server", proxy.url, session, cwd=tmp_path) as terminal:
            terminal.say(calculating("2 + 3", "First."))
            terminal.see("Run it?")
            terminal.enter("y")
            terminal.see("CONFIRMATION_NOT_FOUND: It is over.")
            decide_elsewhere(server)
            assert terminal.see("First.\n").count("Run it?") == 1


def decide_elsewhere(server):
    (waiting,) = api(server.url, "GET", "/confirmations")["confirmations"]
    api(server.url, "POST", f"/confirmations/{waiting['confirmation_id']}", {"approved": True})


def test_an_approval_is_remembered_for_what_the_person_chooses(server, tmp_path):
    session = session_with_tool(server)
    with chat(server, tmp_path, session) as terminal:
        terminal.say(calculating("3 + 4", "First."))
        terminal.see("Run it?")
        terminal.enter("s")
        terminal.see("1: this call again, with exactly the same arguments")
        terminal.see("2: every call of calculate, whatever its arguments are")
        terminal.see("Which? [1/2, Enter: none]")
        terminal.enter("")
        terminal.see("Run it?", 2)
        terminal.enter("s")
        terminal.see("Which?", 2)
        terminal.enter("3")
        terminal.see("Which?", 3)
        terminal.enter("1")
        terminal.see("First.\n")
        terminal.say(calculating("3 + 4", "Second."))
        terminal.see("Second.\n")
        terminal.say(calculating("4 + 5", "Third."))
        terminal.see("Run it?", 3)
        terminal.enter("s")
        terminal.see("Which?", 4)
        terminal.enter("2")
        terminal.see("Third.\n")
        terminal.say(calculating("5 + 6", "Fourth."))
        terminal.see("Fourth.\n")
        assert terminal.text.count("Run it?") == 3
        assert "\n  11\n" in terminal.text


@pytest.mark.parametrize("term", ["xterm-256color", "dumb"])
def test_what_was_typed_before_a_question_is_no_answer_to_it(server, tmp_path, term):
    session = session_with_tool(server)
    calls = [call("calculate", expression=each) for each in ("2 + 3", "4 + 5")]
    with chat(server, tmp_path, session, term=term) as terminal:
        terminal.say(instructions(*calls, then=[[text(exactly="Done.")]]))
        terminal.see("(1 of 2)")
        terminal.see("Run it?")
        terminal.enter("y\ry\ry")
        terminal.see("(2 of 2)")
        terminal.see("Run it?", 2)
        terminal.enter("n")
        terminal.see("Reason")
        terminal.enter("fast")
        terminal.see("Reason: fast")
        terminal.see("Done.\n")
    messages = api(server.url, "GET", f"/sessions/{session}/messages")["messages"]
    first, second = [message["content"] for message in messages if message["role"] == "tool"]
    assert first == "5"
    assert "fast" in second


def test_a_line_that_is_typed_during_an_answer_is_the_next(server, tmp_path):
    with chat(server, tmp_path, "--model", "lorem") as terminal:
        terminal.say(instructions(text(exactly="Begun. "), stall(2), text(exactly="Done.")))
        terminal.see("\nBegun.")
        terminal.enter("/nonsense")
        shown = terminal.see("There is no command /nonsense")
    assert shown.index("Done.\n") < shown.index("\n> /nonsense\n")


def test_ctrl_c_stops_and_a_second_one_leaves(server, tmp_path):
    with chat(server, tmp_path, "--model", "lorem") as terminal:
        waits = instructions(text(exactly="Begun. "), stall(120), text(exactly="Never."))
        terminal.say(waits)
        terminal.see("\nBegun.")
        terminal.ctrl("c")
        terminal.see("(Stopped. What was said is kept.)")
        terminal.say(waits)
        terminal.see("\nBegun.", 2)
        os.kill(server._process.pid, signal.SIGSTOP)
        try:
            terminal.ctrl("c")
            terminal.see("Stopping ... (Ctrl-C again leaves)")
            terminal.ctrl("c")
            assert terminal.ended() == 0
        finally:
            os.kill(server._process.pid, signal.SIGCONT)
    assert terminal.text.count("Never.") == 2  # in the questions
    (last,) = api(server.url, "GET", "/sessions?limit=1")["sessions"]
    messages = api(server.url, "GET", f"/sessions/{last['session_id']}/messages")["messages"]
    assert [message.get("interrupted") for message in messages[:2]] == [None, True]


def test_what_runs_is_joined_and_decided_from_anywhere(server, tmp_path):
    session = session_with_tool(server)
    path = f"/chat/{session}/runs"
    api(server.url, "POST", path, {"message": calculating("6 * 7", "It is done.")})
    with chat(server, tmp_path, "--last") as terminal:
        assert terminal.see("Run it?").count("Let me see.\n") == 1
        terminal.ctrl("c")
        terminal.see("(Stopped.")
        api(server.url, "POST", path, {"message": calculating("6 * 7", "It is done.")})
        terminal.say(f"/open {session}")
        terminal.see("Run it?", 2)
        with chat(server, tmp_path) as other:
            other.say("/inbox")
            other.see("Run it?")
            other.enter("y")
            terminal.see("calculate allowed")
            terminal.see("It is done.\n")
        terminal.say("Hello again")
        terminal.see("\nHello again\n")


def test_an_approval_of_what_is_not_kept_is_not_remembered_for_a_session(server, tmp_path):
    body = {
        "model": "lorem",
        "messages": [{"role": "user", "content": calculating("6 * 7", "It is done.")}],
        "tools": [{"type": "mochi", "names": ["calculate"]}],
    }
    request = urllib.request.Request(
        f"{server.url}/v1/chat/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    answers = []

    def ask() -> None:
        with urllib.request.urlopen(request, timeout=60) as response:
            answers.append(response.read())

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asyncio.run(until(lambda: api(server.url, "GET", "/confirmations")["confirmations"]))
    with chat(server, tmp_path) as terminal:
        terminal.say("/inbox")
        terminal.see("Run it? [y/n/e/t/Enter/?]")
        terminal.enter("s")
        terminal.see("y: yes, n: no, e: edit, t: remember for all sessions, Enter: later")
        terminal.see("Run it?", 2)
        terminal.enter("y")
        asking.join(60)
    assert b"It is done." in answers[0]


def test_a_tool_that_asks_the_model_says_so_below_its_call(tmp_path):
    entry = {"command": sys.executable, "args": ["-m", "tests.support.mcp_asking"]}
    entry |= {"cwd": str(ROOT), "mochi": {"trusted": True}}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"travel": entry}}))
    settings = {"tools": ["travel__suggest"], "execution_policy": "never_confirm"}
    with running_server(data_dir=tmp_path) as server:
        body = {"model": "lorem", "tool_settings": settings}
        session = api(server.url, "POST", "/sessions", body)["session_id"]
        asyncio.run(until(lambda: "travel__suggest" in api(server.url, "GET", "/tools")["tools"]))
        with chat(server, tmp_path, session) as terminal:
            terminal.say(instructions(call("travel__suggest"), then=[[text(exactly="Done.")]]))
            terminal.see("Done.\n")
            lines = terminal.text.split("\n")
    called = lines.index("* travel__suggest()")
    assert re.fullmatch(r"  \(travel__suggest asked lorem, \d+ tokens\)", lines[called + 1])


def test_a_history_is_compacted_and_what_the_model_reads_is_shown(server, tmp_path):
    with chat(server, tmp_path, "--model", "lorem") as terminal:
        terminal.say("/compact")
        terminal.see("nothing before its last turn")
        for word in ("One.", "Two."):
            terminal.say(instructions(text(exactly=word)))
            terminal.see(f"\n{word}\n")
        terminal.say("/compact")
        terminal.see("The model reads this in the place of the messages")
        terminal.say(instructions(text(exactly="Three.")))
        terminal.see("a summary of the 2 oldest messages")
        terminal.see("\nThree.\n")


def test_commands_change_the_session_and_copy_it(server, tmp_path):
    with chat(server, tmp_path, "--model", "lorem") as terminal:
        terminal.say("/system Be brief.")
        terminal.see("\nBe brief.")
        terminal.say("/options temperature=0.5 seed=7")
        terminal.see("\ntemperature=0.5, seed=7")
        terminal.say("/tools calculate")
        terminal.see("*  calculate")
        terminal.say("/tools policy never_confirm")
        terminal.see("policy: never_confirm, mode: native")
        terminal.say("/tools mode prompted")
        terminal.see("policy: never_confirm, mode: prompted")
        terminal.say("/tools mode native")
        terminal.see("policy: never_confirm, mode: native", 2)
        terminal.say("/agents coder")
        terminal.see("*  coder")
        terminal.say("/model lorem-small")
        terminal.see("The model is lorem-small.")
        terminal.say("/nonsense")
        terminal.see("There is no command /nonsense")
        terminal.say(calculating("1 + 2", "Done."))
        terminal.see("\nDone.\n")
        assert "Run it?" not in terminal.text
        terminal.say(instructions(text(exactly="Another.")))
        terminal.see("\nAnother.\n")
        terminal.say("/export jsonl out.jsonl")
        terminal.see("Written to out.jsonl")
        terminal.say("/export jsonl out.jsonl")
        terminal.see("File exists")
        (session,) = api(server.url, "GET", "/sessions?limit=1")["sessions"]
        terminal.say("/branch 1")
        terminal.see("a copy of")
        terminal.see("Another.", 3)  # the question is there to be changed
        terminal.ctrl("c")
        terminal.say("/retry")
        terminal.see("\nDone.\n", 3)
        terminal.say("/quit")
        assert terminal.ended() == 0
    (line,) = (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(line)["messages"][0] == {"role": "system", "content": "Be brief."}
    kept = api(server.url, "GET", f"/sessions/{session['session_id']}")
    assert kept["model"] == "lorem-small"
    assert kept["options"] == {"temperature": 0.5, "seed": 7}
    assert kept["agent_settings"]["enabled_agents"] == ["coder"]


@pytest.mark.parametrize("term", ["dumb", "xterm"])
def test_forty_columns_and_terminals_without_a_cursor(server, tmp_path, term):
    session = session_with_tool(server)
    with chat(server, tmp_path, session, columns=40, term=term) as terminal:
        terminal.say(calculating("5 * 5", "That makes **25**, if I am not mistaken."))
        terminal.see("Run it?")
        terminal.enter("e")
        terminal.see("Arguments:")
        terminal.ctrl("u")
        terminal.enter('{"expression": "6 * 6"}')
        terminal.see("\n  36\n")
        terminal.see("That makes")
        terminal.see("tokens")
        terminal.prompt()
        terminal.ctrl("d")
        assert terminal.ended() == 0
    if term == "dumb":
        assert "\x1b" not in terminal.raw


def test_lines_fit_a_narrow_terminal_without_a_cursor(server, tmp_path):
    with chat(server, tmp_path, columns=40, term="dumb") as terminal:
        terminal.prompt()
        before = len(terminal.raw)
        terminal.say("/help")
        terminal.see("/quit")
        terminal.prompt()
        lines = terminal.raw[before:].splitlines()
        assert max(map(len, lines)) in range(30, 41)


def test_a_server_is_started_where_none_answers_and_ends_with_the_chat(tmp_path):
    with running("--test", "--port", "1", "chat", cwd=tmp_path) as terminal:
        terminal.see("starting one for this command")
        terminal.see("/help lists")
        terminal.say(instructions(text(exactly="I am here.")))
        terminal.see("\nI am here.\n")
        terminal.say("/quit")
        assert terminal.ended() == 0


def test_a_signal_ends_it_and_the_server_that_it_has_started(tmp_path):
    with running("--test", "--port", "1", "chat", cwd=tmp_path) as terminal:
        terminal.see("/help lists")
        terminal.prompt()
        started = children(terminal.pid)
        assert started
        os.kill(terminal.pid, signal.SIGTERM)
        assert terminal.ended() == 128 + signal.SIGTERM
        assert "Traceback" not in terminal.text
        assert all(is_gone(pid) for pid in started)


def test_errors_end_it_with_a_line(server, tmp_path):
    with chat(server, tmp_path, "nobody") as terminal:
        terminal.see("SESSION_NOT_FOUND")
        assert terminal.ended() == 1
    with running("chat", "--server", "http://127.0.0.1:1", cwd=tmp_path) as terminal:
        terminal.see("No mochi-server answers at http://127.0.0.1:1.")
        assert terminal.ended() == 3


# Input from a terminal that cannot move its cursor


class HastyPerson(io.StringIO):
    """Answers in the moment in which a question is shown."""

    def __init__(self, terminal: int) -> None:
        super().__init__()
        self._terminal = terminal

    def write(self, text: str) -> int:
        os.write(self._terminal, b"at once\r")
        return super().write(text)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The end at which the person sits."""
    person, program = os.openpty()
    monkeypatch.setenv("TERM", "dumb")
    with open(program) as stdin, open(person, "rb"):  # noqa: PTH123 - descriptors
        monkeypatch.setattr(sys, "stdin", stdin)
        yield person


async def test_an_answer_can_be_seen_as_soon_as_its_question(
    terminal: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyboard, seen = Keyboard(DummyCompleter()), bytearray()
    monkeypatch.setattr(sys, "stdout", HastyPerson(terminal))
    loop = asyncio.get_running_loop()
    loop.add_reader(terminal, lambda: seen.extend(os.read(terminal, 100)))
    with keyboard.quiet():
        assert await keyboard.line("Why? ") == "at once"
        await until(lambda: b"at once" in seen)
    loop.remove_reader(terminal)
