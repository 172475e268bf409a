"""Why the processes of one server could not work together, where that is known beforehand."""

from __future__ import annotations

from importlib.util import find_spec

from .config import MochiServerSettings


def sessions_problem(settings: MochiServerSettings, processes: int) -> str | None:
    """Why so many processes cannot serve these sessions."""
    if processes < 2 or settings.session_storage != "memory":  # noqa: PLR2004
        return None
    testing = settings.environment == "test"
    cause = "Test mode" if testing else "MOCHI_SESSION_STORAGE=memory"
    instead = "." if testing else ", or MOCHI_SESSION_STORAGE=json."
    return (
        f"{cause} is for one process, and {processes} were asked for: each would have sessions of "
        f"its own. Take one worker{instead}"
    )


def redis_package_problem(settings: MochiServerSettings) -> str | None:
    """Why Redis is wanted and cannot be spoken to."""
    if settings.redis_url is None or find_spec("channels_redis") is not None:
        return None
    return (
        "MOCHI_REDIS_URL is set, and the package channels-redis is missing: "
        'pip install "mochi-server[redis]"'
    )
