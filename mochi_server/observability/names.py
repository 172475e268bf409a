"""Names and values that metrics and traces share."""

from __future__ import annotations

from typing import Final

LONGEST_NAME: Final = 100

_PROVIDERS = {"gemini": "gcp.gemini"}
"""Aliases whose service has another name in OpenTelemetry's conventions."""


def provider_name(alias: str) -> str:
    """Return the value of ``gen_ai.provider.name``."""
    return _PROVIDERS.get(alias, alias)


def clean(name: str) -> str:
    """Return a name that others have chosen, such as a model: not too long, and valid UTF-8."""
    return name[:LONGEST_NAME].encode("utf-8", "replace").decode()
