"""Django's ``DATABASES``, made of ``MOCHI_DATABASE_URL``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

POSTGRESQL: Final = {
    "application_name": "mochi-server",
    "connect_timeout": 3,
    # A machine that is cut off is noticed within seconds, not within the system's hours.
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
MYSQL: Final = {
    "connect_timeout": 3,
    # The driver lets no other thread break a connection that waits for an answer.
    "read_timeout": 10,
    "write_timeout": 10,
    "init_command": "SET time_zone = '+00:00'",  # Django reads the times of the server's clock so
}
SQLITE: Final = {
    "timeout": 20,
    "transaction_mode": "IMMEDIATE",
    "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL",
}


def databases(url: str) -> dict[str, Any]:
    """Return ``DATABASES`` with this one; options of the address go before ours."""
    import dj_database_url  # noqa: PLC0415 - an extra

    database: dict[str, Any] = {**dj_database_url.parse(url, conn_max_age=None)}
    engine = str(database["ENGINE"])
    if engine.endswith("postgresql"):
        database["OPTIONS"] = {**POSTGRESQL, **database.get("OPTIONS", {})}
    elif engine.endswith("mysql"):
        database["OPTIONS"] = {**MYSQL, **database.get("OPTIONS", {})}
    elif engine.endswith("sqlite3"):
        database["OPTIONS"] = {**SQLITE, **database.get("OPTIONS", {})}
    return {"default": database}


def place_of_database(database: Mapping[str, Any]) -> str:
    """Return the name and the host of one of ``DATABASES``, without user, password and options."""
    host, port = database.get("HOST"), database.get("PORT")
    where = f" at {host}:{port}" if host and port else f" at {host}" if host else ""
    return f"{database['NAME']}{where}"
