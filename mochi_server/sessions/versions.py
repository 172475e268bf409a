"""Reads metadata of all versions; docs/reference/session-file.md lists all writers.

No file is changed: a session is written in the present version at its next change.
"""

from __future__ import annotations

import re
from datetime import datetime, timezone
from typing import Any

from pydantic import ValidationError

from ..constants import FORMAT_VERSION
from ..core.problems import first_problem
from .types import SessionMetadata

LEGACY_FLAG = "confirmation_necessary"
"""The key of ``tool_settings`` in format 1.1: true asks about every call, false about none."""

OLD_VERSIONS = ("1.0", "1.1", "1.2")
"""Later versions added keys; a ``context_window`` number of 1.0 stays and is ignored."""

_WINDOW_DEFAULTS = {"dynamic_enabled", "adjustment_history", "manual_override"}


class NotMetadata(ValueError):
    """The metadata fit no version of the format; the text says where."""


def version_of(head: dict[str, Any]) -> str:
    return str(head.get("format_version") or "1.0")


def read_metadata(head: dict[str, Any], session_id: str | None = None) -> SessionMetadata:
    """Read metadata of any version; without ``session_id``, the id in the file is used.

    A newer version stays as it is, unknown keys included.

    Raises:
        NotMetadata: they are of a shape that no version has.
    """
    values = _tolerate(head)
    if session_id is not None:
        values["session_id"] = session_id
    try:
        return SessionMetadata.model_validate(values)
    except ValidationError as error:
        raise NotMetadata(f"metadata.{first_problem(error)}") from error


def _tolerate(head: dict[str, Any]) -> dict[str, Any]:
    """Return a copy as of today, without what programs of several versions wrote differently."""
    head = {**head, "format_version": head.get("format_version") or FORMAT_VERSION}
    if head["format_version"] in OLD_VERSIONS:
        head["format_version"] = FORMAT_VERSION
    if isinstance(summary := head.get("summary"), str):
        head["summary"] = {"summary": summary, "topics": []} if summary else None
    elif isinstance(summary, dict):
        head["summary"] = {"summary": "", **_without_nulls(summary, {"summary", "topics"})}
    if isinstance(settings := head.get("tool_settings"), dict):
        head["tool_settings"] = _policy(_without_nulls(settings, {"tools", "execution_policy"}))
    if isinstance(settings := head.get("agent_settings"), dict):
        head["agent_settings"] = _without_nulls(settings, {"enabled_agents"})
    if isinstance(config := head.get("context_window_config"), dict):
        head["context_window_config"] = _without_nulls(config, _WINDOW_DEFAULTS)
    # With an empty time, the file's own decides about the order.
    created, updated = head.get("created_at"), head.get("updated_at")
    head["created_at"] = created or updated or ""
    head["updated_at"] = updated or created or ""
    head["model"] = head.get("model") or ""
    if not isinstance(head.get("message_count"), int):
        head["message_count"] = 0
    return head


def _without_nulls(values: dict[str, Any], keys: set[str]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None or key not in keys}


def _policy(settings: dict[str, Any]) -> dict[str, Any]:
    """Set the policy that the legacy flag means, unless there is a policy."""
    necessary = settings.pop(LEGACY_FLAG, None)
    if necessary is not None and "execution_policy" not in settings:
        settings["execution_policy"] = "always_confirm" if necessary else "never_confirm"
    return settings


_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d)(:\d\d)?(?:[.,](\d+))?\s*([Zz]|[+-]\d\d:?\d\d)?"
)


def instant(text: object) -> datetime:
    """Parse a stored time; return it in UTC.

    A time without zone is local time: that is how mochi-coco wrote them.

    Raises:
        ValueError: it is no ISO 8601 time.
    """
    match = _TIME.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"not a time: {text!r}")
    day, minute, second, fraction, zone = match.groups()
    micro = f"{fraction or '0':0<6.6}"
    if zone is None:
        zone = ""
    elif zone in "Zz":
        zone = "+00:00"
    elif ":" not in zone:
        zone = f"{zone[:3]}:{zone[3:]}"
    try:
        moment = datetime.fromisoformat(f"{day}T{minute}{second or ':00'}.{micro}{zone}")
        return moment.astimezone(timezone.utc)
    except (OverflowError, OSError) as error:
        raise ValueError(f"not a time on this machine: {text!r}") from error


def is_before(text: object, moment: datetime) -> bool:
    """Return whether a stored time is earlier; False if it cannot be parsed."""
    try:
        return instant(text) < moment
    except ValueError:
        return False


def microseconds(text: object, *, otherwise: int) -> int:
    """Return a stored time in microseconds since 1970, or ``otherwise`` if it cannot be parsed."""
    try:
        moment = instant(text)
    except ValueError:
        return otherwise
    since = moment - datetime(1970, 1, 1, tzinfo=timezone.utc)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
