"""Old metadata in the shape of today; docs/reference/session-file.md names every writer.

Nothing here touches a file: a session is written in the new shape when somebody changes it.
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
    """The metadata of any version as 1.3; ``head`` is left alone.

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
    """No version has metadata of this shape; the text says where."""


def read_metadata(head: Head, session_id: str | None = None) -> SessionMetadata:
    """The metadata of any version; the id in the file counts if none is given.

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
    """1.0 was never written: it is a missing ``format_version``. Its summary may be a text."""
    head.setdefault("tool_settings", None)
    return "1.1"


def _add_context_window(head: Head) -> str:
    """1.1 to 1.2; a stray ``context_window`` number of 1.0 stays, unread."""
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
    """The version that the metadata name; without one they are of 1.0."""
    return str(head.get("format_version") or "1.0")


def _tolerate(head: Head) -> None:
    """What writers of several versions did differently."""
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
    """The policy that the legacy flag means, unless the policy is there as well."""
    necessary = settings.pop(LEGACY_FLAG, None)
    if necessary is not None and "execution_policy" not in settings:
        settings["execution_policy"] = "always_confirm" if necessary else "never_confirm"
    return settings


def _fill(head: Head) -> None:
    """Texts that must be there; an empty time sorts by the file's own."""
    created, updated = head.get("created_at"), head.get("updated_at")
    head["created_at"] = created or updated or ""
    head["updated_at"] = updated or created or ""
    head["model"] = head.get("model") or ""
    if not isinstance(head.get("message_count"), int):
        head["message_count"] = 0
