"""The entry of an MCP server without its secrets, and changes to it that leave them as they are."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from pydantic import JsonValue

from ...errors import JSONObject
from ...providers.common.values import REDACTED

_PLACEHOLDER = re.compile(
    r"((Basic|Bearer|Token) )?(\$\{(env:|input:)?[A-Za-z0-9_. -]+\})?", re.IGNORECASE
)
"""A value that names a variable only."""
_SECRET_OPTION = re.compile(
    r"(?P<option>-{1,2}[\w-]*(auth|cookie|credential|header|key|passw|pwd|secret|token)[\w-]*)"
    r"(?P<value>=.*)?",
    re.IGNORECASE | re.DOTALL,
)
_RANDOM = re.compile(r"(?=.*[A-Za-z])(?=(?:[^0-9]*[0-9]){3})[A-Za-z0-9_=-]{20,}")
_PREFIXED = re.compile(r"(sk|pk|gh[opsu]|github_pat|xox[abp]|glpat|AKIA)[-_]?\w[\w-]{10,}")
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)


def redacted_server(entry: JSONObject) -> JSONObject:
    """Return an entry in the shape of the file with ``…`` in the place of secrets.

    Those are the values of variables and headers, but for names of variables (``${TOKEN}``), and in
    arguments and addresses what follows ``--token`` and its like, logins, values of parameters, and
    what looks like a key.
    """
    shown = dict(entry)
    for name in ("env", "headers"):
        values = entry.get(name)
        if isinstance(values, dict):
            shown[name] = {key: _redacted_value(value) for key, value in values.items()}
    if isinstance(arguments := entry.get("args"), list):
        shown["args"] = _redacted_arguments(arguments)
    for name in ("url", "command"):
        if isinstance(text := entry.get(name), str):
            shown[name] = _redacted_text(text)
    return shown


def restored_secrets(changes: JSONObject, old: JSONObject) -> JSONObject:
    """Return changes of an entry with its own secrets where they have ``…`` for them.

    Raises:
        ValueError: It is not known what a ``…`` stands for.
    """
    restored = _restored(changes, redacted_server(old), old)
    if REDACTED in str(restored):
        raise ValueError(f"it is not known what {REDACTED!r} stands for: write the value")
    return restored if isinstance(restored, dict) else {}


def _restored(new: JsonValue, shown: JsonValue, old: JsonValue) -> JsonValue:
    if new == shown:
        return old
    if isinstance(new, dict) and isinstance(shown, dict) and isinstance(old, dict):
        return {key: _restored(new[key], shown.get(key), old.get(key)) for key in new}
    if isinstance(new, list) and isinstance(shown, list) and isinstance(old, list):
        known = [*zip(shown, old, strict=True)][: len(new)]
        rest = new[len(known) :]
        return [_restored(each, *pair) for each, pair in zip(new, known, strict=False)] + rest
    return new


def _redacted_value(value: JsonValue) -> JsonValue:
    is_name = isinstance(value, str) and _PLACEHOLDER.fullmatch(value) is not None
    return value if is_name or value is None else REDACTED


def _redacted_arguments(arguments: list[JsonValue]) -> list[JsonValue]:
    shown: list[JsonValue] = []
    is_secret = False
    for argument in arguments:
        text = str(argument)
        option = _SECRET_OPTION.fullmatch(text)
        if option is not None:
            value = option["value"]
            shown.append(option["option"] + ("" if value is None else f"={_shown(value[1:])}"))
        else:
            shown.append(_redacted_value(text) if is_secret else _redacted_text(text))
        is_secret = option is not None and option["value"] is None
    return shown


def _shown(value: str) -> str:
    return value if _PLACEHOLDER.fullmatch(value) else REDACTED


def _redacted_text(text: str) -> str:
    if _ADDRESS.match(text):
        return _redacted_address(text)
    name, separator, value = text.partition("=")
    if separator and (is_key(value) or _ADDRESS.match(value)):
        return f"{name}={_redacted_text(value)}"
    return REDACTED if is_key(text) else text


def is_key(text: str) -> bool:
    """Tell whether a text looks like a key: long, of letters and digits."""
    return _RANDOM.fullmatch(text) is not None or _PREFIXED.fullmatch(text) is not None


def _redacted_address(text: str) -> str:
    try:
        parts = urlsplit(text)
    except ValueError:
        return REDACTED
    _, separator, host = parts.netloc.rpartition("@")
    path = "/".join(REDACTED if is_key(part) else part for part in parts.path.split("/"))
    query = "&".join(_redacted_parameter(each) for each in parts.query.split("&"))
    fragment = REDACTED if parts.fragment else ""
    netloc = f"{REDACTED}@{host}" if separator else host
    return parts._replace(netloc=netloc, path=path, query=query, fragment=fragment).geturl()


def _redacted_parameter(parameter: str) -> str:
    name, _, value = parameter.partition("=")
    return f"{name}={_shown(value)}" if value else (REDACTED if is_key(name) else name)
