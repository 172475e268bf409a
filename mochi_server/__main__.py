"""The command ``mochi-server``: serve, fetch a model, write a data folder, run a command."""

from __future__ import annotations

import gc

gc.disable()  # looking for garbage among what is imported takes a tenth of the time

import argparse
import contextlib
import math
import signal
import socket
import sys
import tempfile
import textwrap
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .app import (
    APPLICATION,
    operator_commands,
    operator_parsers,
    run_operator_command,
    session_storages,
)
from .config import (
    MochiServerSettings,
    SettingsError,
    export,
    load_settings,
    unknown_variables,
    variable_of,
)
from .config.installation import command_name, install_command
from .core.files import raise_file_limit
from .core.logs import command_logging_config, logging_config
from .server.startup import (
    CannotStart,
    accepts_data_folder,
    check_start,
    data_folder_choice,
    forbid_inspection,
    listen,
    shared_metrics,
)
from .version import __version__

gc.freeze()
gc.enable()

OPTIONS = ("host", "port", "ollama_host", "data_dir", "log_level", "workers")
"""Settings that have an option of their own."""

COMMANDS = ("serve", "pull", "init", "mcp")
"""Commands of this module; the operator's are those of the application."""

TERMINAL_COMMANDS = ("chat", "ask", "models", "completion")
"""Commands with options of their own that talk to a server."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 1 when it cannot start, 2 for wrong settings."""
    arguments = sys.argv[1:] if arguments is None else arguments
    split = split_at_command(arguments, map(_option, OPTIONS))
    options = vars(_parser().parse_args(arguments if split is None else split[0]))
    command, name = options.pop("command"), options.pop("name")
    open_page = options.pop("open")
    if command not in COMMANDS:
        known = ", ".join(dict.fromkeys([*COMMANDS, *TERMINAL_COMMANDS, *operator_commands()]))
        return _fail(f"unknown command: {command} (there are: {known})", code=2)
    values = {field: value for field, value in options.items() if value is not None}
    if command in {"serve", "mcp"} and name is not None:
        return _fail(f"unexpected argument: {name}", code=2)
    try:
        settings = load_settings(**values)
    except SettingsError as error:
        return _fail(str(error), code=2)
    for variable, similar in unknown_variables().items():
        hint = f"did you mean {similar}?" if similar else "see --help"
        _complain(f"warning: {variable} is not a setting ({hint})")
    if split is not None:
        if split[1][0] in TERMINAL_COMMANDS:
            return _terminal_command(split[1], settings, values)
        return _operator_command(split[1], settings, values)
    run: dict[str, Callable[[], int]] = {
        "serve": lambda: _serve(settings, values, open_page=open_page),
        "pull": lambda: _pull(name, settings),
        "init": lambda: _init(name, settings),
        "mcp": lambda: _mcp(settings),
    }
    return run[command]()


def split_at_command(
    arguments: Sequence[str], options: Iterable[str]
) -> tuple[list[str], list[str]] | None:
    """Split a command line at a command with options of its own; None when it has no such command.

    ``options`` are those that take a value, such as ``--data-dir``; they may be abbreviated.
    """
    known, at = tuple(options), 0
    while at < len(arguments) and arguments[at].startswith("-"):
        takes_value = any(option.startswith(arguments[at]) for option in known)
        at += 2 if takes_value else 1
    if arguments[at : at + 1] == ["mcp"] and not _is_action(arguments[at + 1 : at + 2]):
        return None
    if at < len(arguments) and arguments[at] in {*TERMINAL_COMMANDS, *operator_commands()}:
        return [*arguments[:at]], [*arguments[at:]]
    return None


def _is_action(words: Sequence[str]) -> bool:
    """Return whether a word, if there is one, is what ``mcp`` is to do with other servers."""
    return any(not word.startswith("-") or word in {"-h", "--help"} for word in words)


def _terminal_command(
    words: Sequence[str], settings: MochiServerSettings, values: Mapping[str, object]
) -> int:
    from .terminal.arguments import run_command  # noqa: PLC0415 - only here

    return run_command(words, settings, values, _complete_parser)


def _complete_parser() -> argparse.ArgumentParser:
    """Return a parser of the whole command line, with all commands and their options."""
    from .terminal.arguments import parsers  # noqa: PLC0415 - only here

    parser = argparse.ArgumentParser(prog=command_name())
    _add_options(parser)
    commands = parser.add_subparsers()
    known = {**parsers(), **operator_parsers(command_name())}
    for command in sorted({*COMMANDS, *known}):
        parents = [known[command]] if command in known else []
        text = parents[0].description if parents else None  # without one it is not completed
        commands.add_parser(command, parents=parents, add_help=not parents, help=text or command)
    return parser


def _operator_command(
    words: Sequence[str], settings: MochiServerSettings, values: Mapping[str, object]
) -> int:
    asks_for_help = not {"-h", "--help"}.isdisjoint(words)
    problem = None if asks_for_help else settings.data_folder_problem
    if problem is not None:
        return _fail(data_folder_choice(problem, *words), code=2)
    export(values)
    run_operator_command(command_name(), words)
    return 0


def _serve(settings: MochiServerSettings, values: Mapping[str, object], *, open_page: bool) -> int:
    try:
        with contextlib.ExitStack() as stack:
            folder = _data_folder(settings, stack)
            if folder is not None:
                values = {**values, "data_dir": folder}
                settings = load_settings(**values)
            return serve(settings, values, open_page=open_page)
    except SettingsError as error:
        return _fail(str(error), code=2)
    except CannotStart as error:
        return _fail(str(error), code=1)
    except KeyboardInterrupt:
        return 0


def _data_folder(settings: MochiServerSettings, stack: contextlib.ExitStack) -> Path | None:
    """Return the folder to use if the settings name none; a SettingsError if nobody has chosen one.

    Test mode, which keeps nothing, gets an empty one.
    """
    problem = settings.data_folder_problem
    if problem is None:
        return None
    if settings.environment == "test":
        return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mochi-server-")))
    if not accepts_data_folder(problem):
        raise SettingsError(data_folder_choice(problem))
    return Path.cwd()


def serve(
    settings: MochiServerSettings, values: Mapping[str, object], *, open_page: bool = False
) -> int:
    """Serve until a signal ends it; ``values`` are the settings of the command line.

    Raises:
        CannotStart: The folder, the address, Redis or a package cannot be used.
        SettingsError: The workers could not work together.
    """
    from .server.announcement import Announcement  # noqa: PLC0415 - only here

    raise_file_limit()
    forbid_inspection()
    check_start(settings)
    sock = listen(settings.host, settings.port)
    export(values)
    announcement = Announcement(
        f"mochi-server {__version__}", settings, sock, _print, open_page=open_page
    )
    announcer = threading.Thread(target=announcement.run, name="announcement", daemon=True)
    # A server that was stopped in order is no failure, whoever sent the signal.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with shared_metrics(settings):
        return 0 if _run_uvicorn(settings, sock, announcer) else 1


def _run_uvicorn(
    settings: MochiServerSettings, sock: socket.socket, announcer: threading.Thread
) -> bool:
    """Serve, and return whether the server started."""
    gc.disable()  # next to nothing of what is imported is garbage; a started application enables it
    import uvicorn  # noqa: PLC0415 - not for --help and pull
    from uvicorn.config import STARTUP_FAILURE  # noqa: PLC0415

    from .server.http_protocol import KEEP_ALIVE_SECONDS, http_protocol  # noqa: PLC0415
    from .server.socket_protocol import LimitedSocketProtocol, socket_options  # noqa: PLC0415

    config = uvicorn.Config(
        APPLICATION,
        workers=settings.workers,
        http=http_protocol(settings),
        ws=LimitedSocketProtocol,
        **socket_options(settings),
        lifespan="on",
        log_config=command_logging_config(settings.log_level, settings.log_format),
        access_log=settings.log_level == "DEBUG",
        server_header=False,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=settings.trusted_proxies,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=math.ceil(settings.shutdown_seconds),
    )
    if settings.workers > 1:
        from .server.workers import run_workers  # noqa: PLC0415

        return run_workers(config, sock, announcer.start)
    announcer.start()
    try:
        uvicorn.Server(config).run(sockets=[sock])
    except SystemExit as ended:
        if ended.code == STARTUP_FAILURE:
            return False
        raise
    return True


def _pull(name: str | None, settings: MochiServerSettings) -> int:
    import logging.config  # noqa: PLC0415 - not for the commands that only ask a server

    from .providers.builtin.pull import run_pull  # noqa: PLC0415 - only here

    logging.config.dictConfig(logging_config(settings.log_level, settings.log_format))
    return run_pull(name, settings)


def _init(name: str | None, settings: MochiServerSettings) -> int:
    if name is None and "data_dir" not in settings.model_fields_set:
        return _fail(f"init: name the folder, such as: {command_name()} init data", code=2)
    from .server.initialise import CannotInitialise, run_init  # noqa: PLC0415 - only here

    try:
        run_init(Path(name) if name is not None else settings.data_dir, _print)
    except CannotInitialise as error:
        return _fail(str(error), code=1)
    return 0


def _mcp(settings: MochiServerSettings) -> int:
    if (problem := settings.data_folder_problem) is not None:
        return _fail(data_folder_choice(problem, "mcp"), code=2)
    if find_spec("mcp") is None:
        return _fail(f"MCP needs the package mcp: {install_command('mcp')}", code=1)
    from .mcp_server.stdio import serve  # noqa: PLC0415 - an extra

    try:
        check_start(settings)
    except SettingsError as error:
        return _fail(str(error), code=2)
    except CannotStart as error:
        return _fail(str(error), code=1)
    forbid_inspection()
    serve(settings, storages=session_storages(settings), version=__version__)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=command_name(),
        usage="%(prog)s [options] [COMMAND ...]",
        description="The self-hosted conversation server.",
        epilog=_tables(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"mochi-server {__version__}")
    parser.add_argument(
        "command",
        nargs="?",
        metavar="COMMAND",
        default="serve",
        help="serve (default), chat: chat in this terminal, ask: print the answer to a question, "
        "models: list the models, "
        "completion: print a script for the shell, pull: fetch a model that needs no Ollama, "
        "init: write a data folder with examples, overwriting nothing, "
        "or mcp: serve one MCP client on standard input and output",
    )
    parser.add_argument(
        "name", nargs="?", help="with pull: the model, or a GGUF file; with init: the folder"
    )
    _add_options(parser)
    return parser


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--test",
        dest="environment",
        action="store_const",
        const="test",
        help="test mode: answers without any model, and keeps nothing (MOCHI_ENVIRONMENT=test)",
    )
    parser.add_argument(
        "--open",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="open the page in a browser, where there is a desktop",
    )
    for field in OPTIONS:
        parser.add_argument(
            _option(field),
            dest=field,
            metavar=field.rpartition("_")[2].upper(),
            help=f"{MochiServerSettings.model_fields[field].description} ({variable_of(field)})",
        )


def _option(field: str) -> str:
    return f"--{field.replace('_', '-')}"


def _tables() -> str:
    """Return the parts of the help that list the commands of an operator, and the settings."""
    names = ", ".join(operator_commands())
    lines = [
        "Commands of an operator, after the options; like chat and ask, each has a --help:",
        "",
        textwrap.fill(names, initial_indent="  ", subsequent_indent="  "),
        "",
        "Settings, each also in .env; options go before variables:",
        "",
    ]
    for field, info in MochiServerSettings.model_fields.items():
        lines.append(f"  {variable_of(field)} [{_shown(info.default)}]")
        lines.append(f"      {info.description}")
    return "\n".join(lines)


def _shown(default: Any) -> str:  # noqa: ANN401 - of any setting
    if default is None or default == []:
        return "unset"
    if isinstance(default, list):
        return ",".join(default)
    return str(default).lower() if isinstance(default, bool) else str(default)


def _print(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _complain(text: str) -> None:
    for line in text.splitlines():
        # A command below a problem is there to be copied.
        sys.stderr.write(f"{line}\n" if line.startswith("  ") else f"{command_name()}: {line}\n")


def _fail(text: str, *, code: int) -> int:
    _complain(text)
    return code


if __name__ == "__main__":
    sys.exit(main())
