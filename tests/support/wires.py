"""The declared wires, by which the tables of tests are held to have all of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mochi_project.http.wires import WIRES, Wire

WITHOUT_MODEL = {"models", "conversations"}
"""Wires that ask no model anything."""


_QUESTION = {"id": "1", "role": "user", "content": "Hi"}
_MESSAGES = {"messages": [{"role": "user", "content": "Hi"}]}
HELLO: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": _MESSAGES,
    "/v1/messages": {**_MESSAGES, "max_tokens": 100},
    "/v1/responses": {"input": "Hi"},
    "/ollama/api/chat": _MESSAGES,
    "/api/v1/agui": {"threadId": "t", "runId": "r", "messages": [_QUESTION]},
    "/api/v1/ui/chat": {
        "id": "c",
        "trigger": "submit-message",
        "messages": [{"id": "1", "role": "user", "parts": [{"type": "text", "text": "Hi"}]}],
    },
}
"""The shortest question over each wire that asks a model, by path, without the model."""


def hello(path: str, model: str) -> dict[str, Any]:
    """Return the body of the shortest question to a model."""
    named = {"model": model}
    return {**HELLO[path], **({"forwardedProps": named} if path == "/api/v1/agui" else named)}


def paths_of(wire: Wire) -> list[str]:
    """Return the paths of a wire's routes below its first prefix."""
    return [f"/{wire.prefixes[0]}{route.partition(' ')[2]}" for route in wire.routes]


def wires_without(paths: Iterable[str]) -> set[str]:
    """Return the names of the wires of which none of the paths is."""
    known = set(paths)
    return {wire.name for wire in WIRES if known.isdisjoint(paths_of(wire))}
