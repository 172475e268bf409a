"""Errors as Ollama has them: ``{"error": "…"}``."""

from __future__ import annotations

from typing import Any

from mochi_project.http.errors import TEXT_CHARACTERS, shortened
from mochi_server.errors import MochiError


def error_object(message: str) -> dict[str, Any]:
    return {"error": shortened(message, TEXT_CHARACTERS)}


def error_shape(error: MochiError) -> dict[str, Any]:
    """Return the object of one of our errors."""
    return error_object(error.message)
