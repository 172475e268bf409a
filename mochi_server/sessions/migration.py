"""Convert old metadata to the present version; docs/reference/session-file.md lists all writers.

No file is changed here: a session is written in the present version at its next change.
"""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from ..constants import FORMAT_VERSION
from .types import SessionMetadata

Head = dict[str, Any]

LEGACY_FLAG = "confirmation_necessary"
"""The key of ``tool_settings`` in format 1.1: true asks about every call, false about none."""


def migrate(head: Head) -> Head:
    """Return the metadata of any version as 1.3; ``head`` stays unchanged.

    A newer version stays as it is, unknown keys included.
    """
    head = dict(head)
    version = head.get("format_version") or "1.0"
    for old, step in _STEPS:
        if version == old:
            version = step(head)
    head["format_version"] = version
    _tolerate(head)
    return head


class NotMetadata(ValueError):
    """The metadata fit no version of the format; the text says where."""


def read_metadata(head: Head, session_id: str | None = None) -> SessionMetadata:
    """Read metadata of any version; without ``session_id``, the id in the file is used.

    Raises:
        NotMetadata: they are of a shape that no version has.
    """
    values = migrate(head)
    if session_id is not None:
        values["session_id"] = session_id
    try:
        return SessionMetadata.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, ("metadata", *first["loc"])))
        raise NotMetadata(f"{where}: {first['msg']}") from error


def _add_tool_settings(head: Head) -> str:
    """Convert 1.0, which means that ``format_version`` is missing; its summary may be a text."""
    head.setdefault("tool_settings", None)
    return "1.1"


def _add_context_window(head: Head) -> str:
    """Convert 1.1 to 1.2; a ``context_window`` number of 1.0 stays and is ignored."""
    head.setdefault("context_window_config", None)
    return "1.2"


def _add_agent_settings(head: Head) -> str:
    head.setdefault("agent_settings", None)
    return FORMAT_VERSION


_STEPS = (
    ("1.0", _add_tool_settings),
    ("1.1", _add_context_window),
    ("1.2", _add_agent_settings),
)

OLD_VERSIONS = frozenset(version for version, _ in _STEPS)
"""Versions that :func:`migrate` brings to today's."""


def version_of(head: Head) -> str:
    """Return the version of the metadata; 1.0 if they have none."""
    return str(head.get("format_version") or "1.0")


def _tolerate(head: Head) -> None:
    """Accept what programs of several versions wrote differently."""
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
    _fill(head)


_WINDOW_DEFAULTS = {"dynamic_enabled", "adjustment_history", "manual_override"}


def _without_nulls(values: Head, keys: set[str]) -> Head:
    return {key: value for key, value in values.items() if value is not None or key not in keys}


def _policy(settings: Head) -> Head:
    """Set the policy that the legacy flag means, unless there is a policy."""
    necessary = settings.pop(LEGACY_FLAG, None)
    if necessary is not None and "execution_policy" not in settings:
        settings["execution_policy"] = "always_confirm" if necessary else "never_confirm"
    return settings


def _fill(head: Head) -> None:
    """Add required texts; with an empty time, the file's own decides about the order."""
    created, updated = head.get("created_at"), head.get("updated_at")
    head["created_at"] = created or updated or ""
    head["updated_at"] = updated or created or ""
    head["model"] = head.get("model") or ""
    if not isinstance(head.get("message_count"), int):
        head["message_count"] = 0
