"""Options of a request, as a service gets them."""

from __future__ import annotations

from collections.abc import Iterable

from ...errors import JSONObject
from ...protocol.options import ModelOptions


def fields_of(options: ModelOptions, names: Iterable[str]) -> JSONObject:
    """Return those of the named options that have a value; services call them as we do."""
    values = ((name, getattr(options, name)) for name in names)
    return {name: value for name, value in values if value is not None}


def extra_of(options: ModelOptions, alias: str) -> JSONObject:
    """Return the fields that are for this provider alone."""
    return dict((options.extra or {}).get(alias, {}))
