"""What the log looks like: one handler on the root, for the server and for Django alike."""

from __future__ import annotations

import logging
from typing import Any


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
            "plain": {"format": "%(asctime)s %(levelname)-7s %(name)s: %(message)s"},
        },
        "filters": {"refused sockets": {"()": NoRefusedSockets}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "plain"}},
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
