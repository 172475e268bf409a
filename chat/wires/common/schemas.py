"""What the requests of several wires have in common."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from mochi_server.providers.base import Think

MAX_MESSAGES = 100_000
MAX_DIMENSIONS = 1_000_000

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]

THINK: dict[Effort | None, Think] = {
    None: False,
    "none": False,
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "max",
    "max": "max",
}
"""How much a model thinks, by the vendors' words for it."""


class RequestPart(BaseModel):
    """A part of a request; what is not named is ignored."""

    model_config = ConfigDict(extra="ignore")


class ServerTools(RequestPart):
    """Tools of this server, which it runs itself."""

    type: Literal["mochi"]
    names: list[str]
