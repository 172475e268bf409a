"""What the log looks like: one handler on the root, for the server and for Django alike.

Each line of a request, of its turn included, has the id of the request.
"""

from __future__ import annotations

import logging
import random
import re
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

WORDS_CHARACTERS = 500
"""Characters of somebody else's words that one line repeats at most."""

_SANE_ID = re.compile(rb"[A-Za-z0-9._~:/+=@-]{1,128}")

_request_id: ContextVar[str] = ContextVar("mochi_request_id", default="")


def begin_request(client_id: bytes | None) -> None:
    """Use this id from now on, in this task and those that it starts, or a new one.

    Args:
        client_id: What the client calls its request; only an id of at most 128 letters, digits and
            ``._~:/+=@-`` is taken.
    """
    if client_id is not None and _SANE_ID.fullmatch(client_id):
        _request_id.set(client_id.decode())
    else:
        _request_id.set(f"{random.getrandbits(64):016x}")


def request_id() -> str:
    """Return the id of the request that this task serves; empty outside of any."""
    return _request_id.get()


def outside_request(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call the function without the request's id, for work that outlives the request."""
    context = copy_context()
    context.run(_request_id.set, "")
    return context.run(function, *args, **kwargs)


def one_line(words: str) -> str:
    """Return somebody else's words fit for one line of the log: they could begin a false one."""
    cut = words[:WORDS_CHARACTERS]
    plain = "".join(each if each.isprintable() else " " for each in cut)
    return " ".join(plain.split()) + ("…" if len(words) > len(cut) else "")


class RequestIdFilter(logging.Filter):
    """Gives each record the id of its request, for the formatter."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Drop nothing."""
        found = _request_id.get()
        record.__dict__["request"] = f" [{found}]" if found else ""
        return True


class NoRefusedSockets(logging.Filter):
    """Drops a wrong complaint of uvicorn's, so that nobody can fill the log with it.

    After each WebSocket that is refused with a whole HTTP response it logs that the handshake was
    not completed (https://github.com/Kludex/uvicorn/pull/3138).
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is about anything else."""
        return "returned without completing handshake" not in str(record.msg)


def logging_config(level: str) -> dict[str, Any]:
    """The configuration for ``logging.config.dictConfig``.

    Errors that the client caused are answers, not log lines.
    """
    debug = level == "DEBUG"
    quiet = "INFO" if debug else "WARNING"
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "plain": {"format": "%(asctime)s %(levelname)-7s %(name)s%(request)s: %(message)s"},
        },
        "filters": {
            "refused sockets": {"()": NoRefusedSockets},
            "request id": {"()": RequestIdFilter},
        },
        "handlers": {
            "stderr": {
                "class": "logging.StreamHandler",
                "formatter": "plain",
                "filters": ["request id"],
            }
        },
        "root": {"level": level, "handlers": ["stderr"]},
        "loggers": {
            # Django's own configuration hangs handlers of its own below these two.
            "django": {"level": quiet, "handlers": [], "propagate": True},
            "django.server": {"level": quiet, "handlers": [], "propagate": True},
            "django.request": {"level": "ERROR", "propagate": True},
            "asyncio": {"level": "WARNING"},
            "uvicorn.error": {"filters": ["refused sockets"]},
            "ollama_instructor": {"level": quiet},
            # These write addresses with their logins, and what is said, at lower levels.
            "httpx": {"level": "WARNING"},
            "httpx2": {"level": "WARNING"},
            "openai": {"level": "WARNING"},
            "anthropic": {"level": "WARNING"},
            "google_genai": {"level": "WARNING"},
            "httpcore": {"level": "INFO"},
            "httpcore2": {"level": "INFO"},
        },
    }


def command_logging_config(level: str) -> dict[str, Any]:
    """The same for our own command, which says itself what uvicorn would say at the start.

    Requests are logged one by one at DEBUG only.
    """
    config = logging_config(level)
    quiet = {"level": "INFO" if level == "DEBUG" else "WARNING"}
    config["loggers"]["uvicorn.error"] |= quiet
    config["loggers"]["uvicorn.access"] = quiet
    return config
