"""What the log looks like: one handler on the root, for the server and for Django alike."""

from __future__ import annotations

from typing import Any


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
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "plain"}},
        "root": {"level": level, "handlers": ["stderr"]},
        "loggers": {
            # Django's own configuration hangs handlers of its own below these two.
            "django": {"level": quiet, "handlers": [], "propagate": True},
            "django.server": {"level": quiet, "handlers": [], "propagate": True},
            "django.request": {"level": "ERROR", "propagate": True},
            "asyncio": {"level": "WARNING"},
            "httpx": {"level": quiet},
            "httpx2": {"level": quiet},
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
    config["loggers"] |= {"uvicorn.error": quiet, "uvicorn.access": quiet}
    return config
