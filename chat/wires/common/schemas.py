"""What the requests of several wires have in common."""

from __future__ import annotations

from itertools import count
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from mochi_server.core.aio import yield_to_loop
from mochi_server.providers.base import Think

MAX_DIMENSIONS = 1_000_000
MAX_MESSAGES = 100_000
YIELD_EVERY = 64
"""Messages after which a thread that checks them lets the event loop run."""

_checked = count()


def _let_others_run(message: object) -> object:
    if next(_checked) % YIELD_EVERY == 0:
        yield_to_loop()
    return message


Part = TypeVar("Part")

History = Annotated[
    list[Annotated[Part, BeforeValidator(_let_others_run)]],
    Field(max_length=MAX_MESSAGES, fail_fast=True),
]
"""The messages of a conversation. Only the first that is not valid is named."""

MAX_NAMES = 1_000
"""Names of tools in one entry of a list of tools."""

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
    names: list[str] = Field(max_length=MAX_NAMES)
