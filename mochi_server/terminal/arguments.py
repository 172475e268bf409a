"""The command lines of ``chat``, ``ask`` and ``completion``, and their exit codes."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from ..config import MochiServerSettings
from ..config.installation import NAME, install_command
from .ask import NoModel, Question, ask
from .client import Client, RequestRefused, ServerUnreachable
from .connection import NoDataFolder, connected

COMMANDS: Final = ("chat", "ask", "completion")

FAILED: Final = 1
WRONG_USAGE: Final = 2
NO_SERVER: Final = 3
INTERRUPTED: Final = 130
"""Exit code of a command that was ended from the keyboard, as shells have it."""

SHORT_NAME: Final = "mochi"
"""The other name of the command."""

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
    return _ask(options, settings, values)


def parsers() -> dict[str, argparse.ArgumentParser]:
    """Return the parser of each command."""
    return {"chat": _chat_parser(), "ask": _ask_parser(), "completion": _completion_parser()}


def _chat_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"{NAME} chat",
        description="Chat in the terminal. /help lists the commands.",
        epilog="Exit codes: 0 after /quit; 1 after an error of the server; 2 for wrong usage; "
        "3 if no server answers or can be started; 130 after Ctrl-C.",
    )
    parser.add_argument("session", nargs="?", metavar="SESSION", help="id of a session to go on")
    parser.add_argument(
        "--last", action="store_true", help="go on with the session that changed last"
    )
    _add_common(parser)
    return parser


def _ask_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"{NAME} ask",
        description="Ask one question. Only the answer is printed on standard output. Text on "
        "standard input follows the question.",
        epilog="Exit codes: 0 if there is an answer; 1 if the server or the model refuses or "
        "fails; 2 for wrong usage; 3 if no server answers or can be started; 130 after Ctrl-C.",
    )
    parser.add_argument("question", nargs="*", metavar="QUESTION", help="the question")
    _add_common(parser)
    parser.add_argument("--system", metavar="TEXT", help="system prompt of a new session")
    parser.add_argument(
        "--tool",
        action="append",
        default=[],
        metavar="NAME",
        help="tool that the model may call; can be repeated",
    )
    parser.add_argument(
        "--wait",
        action="store_true",
        help="wait until a person decides about a tool call in another client; else it is denied",
    )
    parser.add_argument("--session", metavar="ID", help="session to go on")
    parser.add_argument(
        "--keep", action="store_true", help="keep the new session; else it is deleted"
    )
    parser.add_argument(
        "--json", action="store_true", help="print the response of POST /chat/{session_id}"
    )
    return parser


def _completion_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"{NAME} completion", description="Print a script that completes this command."
    )
    parser.add_argument("shell", choices=_SHELLS, help="the shell")
    return parser


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", metavar="NAME", help="model that answers")
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
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return _fail(f"chat needs a terminal. For pipes: {NAME} ask", WRONG_USAGE)
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
    if not sys.stdin.isatty():
        text = "\n\n".join(part for part in (text, sys.stdin.read().rstrip()) if part)
    if not text.strip():
        return _fail("ask: there is no question.", WRONG_USAGE)
    question = Question(
        text=text,
        model=options.model,
        session_id=options.session,
        keep=options.keep,
        system_prompt=options.system,
        tools=options.tool,
        wait_for_confirmations=options.wait,
        as_json=options.json,
    )
    return _run(lambda client: ask(client, question), options.server, ("ask",), settings, values)


def _run(
    work: Callable[[Client], Coroutine[Any, Any, None]],
    url: str | None,
    words: tuple[str, ...],
    settings: MochiServerSettings,
    values: Mapping[str, object],
) -> int:
    async def run() -> None:
        async with connected(settings, values, url=url, words=words, say=_say) as client:
            await work(client)

    try:
        asyncio.run(run())
    except (RequestRefused, NoModel) as error:
        return _fail(str(error), FAILED)
    except ServerUnreachable as error:
        return _fail(str(error), NO_SERVER)
    except NoDataFolder as error:
        return _fail(str(error), WRONG_USAGE)
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _completion(shell: str, complete_parser: Callable[[], argparse.ArgumentParser]) -> int:
    if missing := _missing("shtab"):
        return _fail(missing, FAILED)
    import shtab  # noqa: PLC0415 - an extra

    parser = complete_parser()
    if Path(sys.argv[0]).name == SHORT_NAME:
        parser.prog = SHORT_NAME
    sys.stdout.write(shtab.complete(parser, shell=shell))
    return 0


def _missing(*packages: str) -> str | None:
    if all(find_spec(package) is not None for package in packages):
        return None
    return f"This needs the extra cli: {install_command('cli')}"


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _fail(text: str, code: int) -> int:
    for line in text.splitlines():
        sys.stderr.write(f"{line}\n" if line.startswith("  ") else f"{NAME}: {line}\n")
    return code
