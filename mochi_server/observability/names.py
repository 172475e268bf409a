"""Names that metrics and traces share."""

from __future__ import annotations

_PROVIDERS = {"gemini": "gcp.gemini"}
"""Aliases whose service has another name in OpenTelemetry's conventions."""


def provider_name(alias: str) -> str:
    """Return the value of ``gen_ai.provider.name``."""
    return _PROVIDERS.get(alias, alias)
