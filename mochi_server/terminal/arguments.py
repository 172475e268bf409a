"""The command lines of ``chat``, ``ask``, ``models`` and ``completion``, and their exit codes."""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import signal
import sys
import time
from base64 import b64encode
from collections.abc import Callable, Coroutine, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any, Final, TextIO

from ..config import MochiServerSettings
from ..config.installation import command_name, install_command
from ..core.json_text import value_of
from ..errors import JSONObject
from .ask import CannotPrint, NothingThere, Question, ask
from .client import Client, RequestRefused, ServerUnreachable
from .connection import NoDataFolder, connected
from .models import print_models

COMMANDS: Final = ("chat", "ask", "models", "completion")

FAILED: Final = 1
WRONG_USAGE: Final = 2
NO_SERVER: Final = 3
INTERRUPTED: Final = 130
"""Exit code of a command that was ended from the keyboard, as shells have it."""

CLOSED_PIPE: Final = 141
"""Exit code that shells give to a command whose pipe was closed."""

_BY_SIGNAL: Final = 128
"""Is added to the number of the signal that has ended a command, as shells do."""

_REPEAT_SECONDS: Final = 1.0
"""Seconds after a signal in which another one is ignored: a terminal that is closed sends two."""

_CODES: Final[Mapping[type[Exception], int]] = {
    RequestRefused: FAILED,
    NothingThere: FAILED,
    CannotPrint: FAILED,
    ServerUnreachable: NO_SERVER,
    NoDataFolder: WRONG_USAGE,
}

_SHELLS: Final = ("bash", "zsh", "fish")


def run_command(
    words: Sequence[str],
    settings: MochiServerSettings,
    values: Mapping[str, object],
    complete_parser: Callable[[], argparse.ArgumentParser],
) -> int:
    """Run one of the commands and return its exit code.

    Args:
        words: The command and what follows it.
        settings: The settings of this program.
        values: Those of them that the command line names.
        complete_parser: Makes the parser of the whole command line, for completion.
    """
    parser = parsers()[words[0]]
    options = parser.parse_args(words[1:])
    if words[0] == "completion":
        return _completion(options.shell, complete_parser)
    if words[0] == "chat":
        return _chat(options, settings, values)
    if words[0] == "models":
        return _models(options, settings, values)
    return _ask(options, settings, values)


def parsers() -> dict[str, argparse.ArgumentParser]:
    return {
        "chat": _chat_parser(),
        "ask": _ask_parser(),
        "models": _models_parser(),
        "completion": _completion_parser(),
    }


def _chat_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"{command_name()} chat",
        description="Chat in the terminal. /help lists the commands.",
        epilog="Exit codes: 0 after /quit; 1 after an error of the server; 2 for wrong usage; "
        "3 if no server answers or can be started; 130 after Ctrl-C.",
    )
    parser.add_argument("session", nargs="?", metavar="SESSION", help="id of a session to go on")
    _add_last(parser)
    _add_common(parser)
    return parser


def _ask_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"{command_name()} ask",
        description="Ask one question. Only the answer is printed on standard output. Text on "
        "standard input follows the question.",
        epilog="Exit codes: 0 if there is an answer; 1 if the server or the model refuses or "
        "fails; 2 for wrong usage; 3 if no server answers or can be started; 130 after Ctrl-C.",
    )
    parser.add_argument("question", nargs="*", metavar="QUESTION", help="the question")
    _add_common(parser)
    parser.add_argument("--system", metavar="TEXT", help="system prompt of a new session")
    _add_repeatable(parser)
    parser.add_argument(
        "--wait",
        action="store_true",
        help="wait until a person decides about a tool call in another client; else it is denied",
    )
    parser.add_argument("--session", metavar="ID", help="session to go on")
    _add_last(parser)
    parser.add_argument(
        "--keep", action="store_true", help="keep the new session; else it is deleted"
    )
    parser.add_argument(
        "--json", action="store_true", help="print the response of POST /chat/{session_id}"
    )
    return parser


def _add_repeatable(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tool",
        action="append",
        default=[],
        metavar="NAME",
        help="tool that the model may call; can be repeated",
    )
    parser.add_argument(
        "-o",
        "--option",
        action="append",
        default=[],
        type=_option_of,
        metavar="NAME=VALUE",
        help="option of the model, such as temperature=0.2; can be repeated",
    )
    parser.add_argument(
        "-a",
        "--attachment",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="image, PDF file or text that the model reads with the question; can be repeated",
    )


def _models_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"{command_name()} models",
        description="List the models that can answer. The first one answers where none is named.",
        epilog="Exit codes: 0 if there are models; 1 if there are none; 2 for wrong usage; "
        "3 if no server answers or can be started; 130 after Ctrl-C.",
    )
    _add_server(parser)
    parser.add_argument("--json", action="store_true", help="print the response of GET /models")
    return parser


def _completion_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"{command_name()} completion",
        description="Print a script that completes this command.",
    )
    parser.add_argument("shell", choices=_SHELLS, help="the shell")
    return parser


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", metavar="NAME", help="model that answers")
    _add_server(parser)


def _add_last(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-c", "--last", action="store_true", help="go on with the session that changed last"
    )


def _add_server(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--server",
        metavar="URL",
        help="address of the server (MOCHI_SERVER_URL); else that of MOCHI_HOST and MOCHI_PORT, "
        "and if none answers there, one is started until this command ends",
    )


def _chat(
    options: argparse.Namespace, settings: MochiServerSettings, values: Mapping[str, object]
) -> int:
    if missing := _missing("prompt_toolkit", "rich"):
        return _fail(missing, FAILED)
    if not (_is_terminal(sys.stdin) and _is_terminal(sys.stdout)):
        return _fail(f"chat needs a terminal. For pipes: {command_name()} ask", WRONG_USAGE)
    if options.session is not None and options.last:
        return _fail("--last cannot be used with a session.", WRONG_USAGE)
    from .chat import chat  # noqa: PLC0415 - an extra

    async def work(client: Client) -> None:
        await chat(client, session_id=options.session, model=options.model, last=options.last)

    return _run(work, options.server, ("chat",), settings, values)


def _ask(
    options: argparse.Namespace, settings: MochiServerSettings, values: Mapping[str, object]
) -> int:
    text = " ".join(options.question)
    if sys.stdin is not None and not sys.stdin.isatty():
        text = "\n\n".join(part for part in (text, sys.stdin.read().rstrip()) if part)
    if options.session is not None and options.last:
        return _fail("--last cannot be used with a session.", WRONG_USAGE)
    if not (text.strip() or options.attachment):
        return _fail("ask: there is no question.", WRONG_USAGE)
    try:
        attachments = [_attachment_of(path) for path in options.attachment]
    except OSError as error:
        return _fail(f"ask: {error.filename} cannot be read: {error.strerror}", WRONG_USAGE)
    question = Question(
        text=text,
        model=options.model,
        session_id=options.session,
        last=options.last,
        keep=options.keep,
        system_prompt=options.system,
        tools=options.tool,
        options=dict(options.option),
        attachments=attachments,
        wait_for_confirmations=options.wait,
        as_json=options.json,
    )
    return _run(lambda client: ask(client, question), options.server, ("ask",), settings, values)


def _models(
    options: argparse.Namespace, settings: MochiServerSettings, values: Mapping[str, object]
) -> int:
    def work(client: Client) -> Coroutine[Any, Any, None]:
        return print_models(client, as_json=options.json)

    return _run(work, options.server, ("models",), settings, values)


def _option_of(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE, such as temperature=0.2")
    return name, value_of(value)


def _attachment_of(path: Path) -> JSONObject:
    return {"data": b64encode(path.read_bytes()).decode(), "name": path.name}


def _run(
    work: Callable[[Client], Coroutine[Any, Any, None]],
    url: str | None,
    words: tuple[str, ...],
    settings: MochiServerSettings,
    values: Mapping[str, object],
) -> int:
    async def run() -> None:
        _exit_by_signals()
        async with connected(settings, values, url=url, words=words, say=_say) as client:
            await work(client)

    try:
        asyncio.run(run())
    except tuple(_CODES) as error:
        if isinstance(error, CannotPrint):
            _drop_output()
        return _fail(str(error), next(_CODES[each] for each in _CODES if isinstance(error, each)))
    except KeyboardInterrupt:
        _drop_output()
        return INTERRUPTED
    except SystemExit:  # by another signal, perhaps as nobody reads
        _drop_output()
        raise
    except OSError as error:
        _drop_output()
        if isinstance(error, BrokenPipeError):  # whoever reads has seen enough, such as ``head``
            return CLOSED_PIPE
        return _fail(str(error), FAILED)
    return 0


def _exit_by_signals() -> None:
    """Let signals that end a program raise SystemExit, also in a write that nobody reads.

    So what is left is tidied up, as after Ctrl-C. A later one ends that, too.
    """
    loop, last = asyncio.get_running_loop(), -math.inf

    def end(number: int, _: FrameType | None) -> None:
        nonlocal last
        if (now := time.monotonic()) - last > _REPEAT_SECONDS:
            last = now
            raise SystemExit(_BY_SIGNAL + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # else it is ignored, as below nohup
            loop.add_signal_handler(number, int)  # does nothing, but wakes the loop for the next
            signal.signal(number, end)


def _drop_output() -> None:
    """Let what was not written be lost, where Python would try it once more at its end."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _completion(shell: str, complete_parser: Callable[[], argparse.ArgumentParser]) -> int:
    if missing := _missing("shtab"):
        return _fail(missing, FAILED)
    import shtab  # noqa: PLC0415 - an extra

    sys.stdout.write(shtab.complete(complete_parser(), shell=shell))
    return 0


def _missing(*packages: str) -> str | None:
    if all(find_spec(package) is not None for package in packages):
        return None
    return f"This needs the extra cli: {install_command('cli')}"


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _is_terminal(stream: TextIO | None) -> bool:
    """Return whether a stream is a terminal; one that was closed before the start is None."""
    return stream is not None and stream.isatty()


def _fail(text: str, code: int) -> int:
    for line in text.splitlines():
        sys.stderr.write(f"{line}\n" if line.startswith("  ") else f"{command_name()}: {line}\n")
    return code
