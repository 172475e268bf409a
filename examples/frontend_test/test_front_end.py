import subprocess
import sys
from pathlib import Path

from mochi_server.testing import error, instructions, text


def typed(server, *lines):
    command = [sys.executable, Path(__file__).with_name("front_end.py"), server.url]
    return subprocess.check_output(command, input="\n".join(lines), text=True, timeout=30)


def test_the_answer_appears(mochi_test_server):
    message = instructions(text(exactly="Good morning."))
    assert typed(mochi_test_server, message) == "Good morning.\n"


def test_a_failure_is_told_and_the_next_message_answered(mochi_test_server):
    shown = typed(mochi_test_server, instructions(error(503)), instructions(text(exactly="Back.")))
    assert [line.split(",")[0] for line in shown.splitlines()] == ["", "Sorry", "Back."]
