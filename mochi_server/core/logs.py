"""The log: one handler on the root logger, for the server and for Django.

Each line of a request, its turn included, has the id of the request; as JSON, those of the session
and the run too, where they are known.
"""

from __future__ import annotations

import json
import logging
import random
import re
from collections.abc import Callable, Mapping
from contextvars import ContextVar, copy_context
from datetime import datetime, timezone
from types import MappingProxyType
from typing import Any, Literal, ParamSpec, TypeVar

from .caller import SERVER, set_caller

P = ParamSpec("P")
T = TypeVar("T")

LogFormat = Literal["console", "json"]

FOREIGN_CHARACTERS = 500
"""Characters of foreign text in one line, at most."""

_CLIENTS = ("httpx", "httpx2", "openai", "anthropic", "google_genai", "mcp.client", "client")

_OF_SOCKETS = (
    '"WebSocket %s"',
    "Invalid UTF-8 sequence received",
    "returned without completing handshake",
)

_SANE_ID = re.compile(rb"[A-Za-z0-9._~:/+=@-]{1,128}")

_request_id: ContextVar[str] = ContextVar("mochi_request_id", default="")
_NO_CONTEXT: Mapping[str, str] = MappingProxyType({})
_trace_context: ContextVar[Mapping[str, str]] = ContextVar(
    "mochi_trace_context", default=_NO_CONTEXT
)
_session_id: ContextVar[str | None] = ContextVar("mochi_session_id", default=None)
_run_id: ContextVar[str | None] = ContextVar("mochi_run_id", default=None)


def begin_request(client_id: bytes | None, trace_context: Mapping[str, str] | None = None) -> None:
    """Set the id of the request that this task and those that it starts serve.

    The client's id is taken if it has at most 128 letters, digits and ``._~:/+=@-``.

    Args:
        client_id: What the client calls it.
        trace_context: Its headers ``traceparent`` and ``tracestate``.
    """
    _trace_context.set(trace_context or _NO_CONTEXT)
    if client_id is not None and _SANE_ID.fullmatch(client_id):
        _request_id.set(client_id.decode())
    else:
        _request_id.set(new_request_id())


def new_request_id() -> str:
    """Return an id for a request that came without one."""
    return f"{random.getrandbits(64):016x}"


def set_log_ids(session_id: str | None, run_id: str | None = None) -> None:
    """Set what this task, and those that it starts, work on from now on."""
    _session_id.set(session_id)
    _run_id.set(run_id)


def request_id() -> str:
    """Return the id of the request that this task serves; empty outside of any."""
    return _request_id.get()


def trace_context() -> Mapping[str, str]:
    """Return the headers by which the request says what trace it is part of, if it does."""
    return _trace_context.get()


def _known_ids() -> dict[str, str]:
    """Return the ids of the request, the session and the run that are known here."""
    ids = {
        "request_id": _request_id.get() or None,
        "session_id": _session_id.get(),
        "run_id": _run_id.get(),
    }
    return {name: value for name, value in ids.items() if value is not None}


def outside_request(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call the function without the request's ids and caller, for work that outlives it."""
    context = copy_context()
    context.run(set_caller, SERVER)
    context.run(_request_id.set, "")
    context.run(_trace_context.set, _NO_CONTEXT)
    context.run(set_log_ids, None)
    return context.run(function, *args, **kwargs)


def one_line(words: str, most: int = FOREIGN_CHARACTERS) -> str:
    """Return foreign text as one short line: a line break in it could forge a line of the log."""
    start = words[:most]
    printable = "".join(each if each.isprintable() else " " for each in start)
    return " ".join(printable.split()) + ("…" if len(words) > len(start) else "")


class RequestIdFilter(logging.Filter):
    """Adds its ids to each record: of the request for the formatter, all for what reads records."""

    def filter(self, record: logging.LogRecord) -> bool:
        current = _request_id.get()
        record.__dict__["request"] = f" [{current}]" if current else ""
        record.__dict__.update(_known_ids())
        return True


class JSONFormatter(logging.Formatter):
    """Formats a record as one JSON object in one line; keys without a value are left out."""

    def format(self, record: logging.LogRecord) -> str:
        trace = record.exc_text
        if trace is None and record.exc_info:
            trace = self.formatException(record.exc_info)
        moment = datetime.fromtimestamp(record.created, timezone.utc)
        entry = {
            "time": moment.isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "process": record.process,
            **_known_ids(),
            "exception": trace,
        }
        # ASCII: a lone surrogate in a file's name must not cost the line.
        return json.dumps({key: value for key, value in entry.items() if value is not None})


class NoSockets(logging.Filter):
    """Drops messages of uvicorn about WebSockets, with which a client could fill the log.

    It logs each address with its query, where the token may be; text that is not UTF-8, with a
    trace; and of each socket that is refused with a complete HTTP response that the handshake was
    not completed (https://github.com/Kludex/uvicorn/pull/3138).
    """

    def filter(self, record: logging.LogRecord) -> bool:
        return not any(part in str(record.msg) for part in _OF_SOCKETS)


def logging_config(level: str, log_format: LogFormat = "console") -> dict[str, Any]:
    """Return the configuration for ``logging.config.dictConfig``.

    Errors that a client caused are responses, not log lines.
    """
    quiet = "INFO" if level == "DEBUG" else "WARNING"
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "console": {"format": "%(asctime)s %(levelname)-7s %(name)s%(request)s: %(message)s"},
            "json": {"()": JSONFormatter},
        },
        "filters": {
            "sockets": {"()": NoSockets},
            "request id": {"()": RequestIdFilter},
        },
        "handlers": {
            "stderr": {
                "class": "logging.StreamHandler",
                "formatter": log_format,
                "filters": ["request id"],
            }
        },
        "root": {"level": level, "handlers": ["stderr"]},
        "loggers": {
            # Django's own configuration adds handlers to these two.
            "django": {"level": quiet, "handlers": [], "propagate": True},
            "django.server": {"level": quiet, "handlers": [], "propagate": True},
            "django.request": {"level": "ERROR", "propagate": True},
            "asyncio": {"level": "WARNING"},
            "uvicorn.error": {"filters": ["sockets"]},
            "ollama_instructor": {"level": quiet},
            "channels_redis": {"level": "CRITICAL"},  # who waits for signals says that it is away
            "mcp.server": {"level": quiet},  # a line for each session that comes or goes
            # At lower levels these log addresses with their logins, and conversations.
            **{name: {"level": "WARNING"} for name in _CLIENTS},
            **{name: {"level": "INFO"} for name in ("httpcore", "httpcore2")},
        },
    }


def command_logging_config(level: str, log_format: LogFormat = "console") -> dict[str, Any]:
    """Return the configuration for ``mochi-server``, which itself reports its start.

    Single requests are logged at DEBUG only.
    """
    config = logging_config(level, log_format)
    quiet = {"level": "INFO" if level == "DEBUG" else "WARNING"}
    config["loggers"]["uvicorn.error"] |= quiet
    config["loggers"]["uvicorn.access"] = quiet
    return config
