"""What the requests of several wires have in common."""

from __future__ import annotations

from itertools import count
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, StrictBool, Tag
from pydantic.alias_generators import to_camel

from mochi_server.core.aio import yield_to_loop
from mochi_server.protocol.options import ModelOptions
from mochi_server.protocol.response_format import ResponseFormat
from mochi_server.providers.base import Think
from sessions_app.schemas import ModelName

MAX_DIMENSIONS = 1_000_000
MAX_MESSAGES = 100_000
YIELD_EVERY = 64
"""Parts of requests after which a thread that checks them lets the event loop run."""

_checked = count()


def _let_others_run(message: object) -> object:
    if next(_checked) % YIELD_EVERY == 0:
        yield_to_loop()
    return message


Part = TypeVar("Part")

Several = Annotated[list[Annotated[Part, BeforeValidator(_let_others_run)]], Field(fail_fast=True)]
"""Parts of a request. Only the first that is not valid is named."""

History = Annotated[Several[Part], Field(max_length=MAX_MESSAGES)]
"""The messages of a conversation."""

Text = TypeVar("Text")

Either = Annotated[
    Annotated[Text, Tag("text")] | Annotated[Part, Tag("parts")],
    Discriminator(lambda value: "text" if isinstance(value, str) else "parts"),
]
"""A text, or something else, mostly a list of parts. Only what is wrong with this one is named."""

TextOr = Either[str, Part]

MAX_NAMES = 1_000
"""Names of tools in one entry of a list of tools."""

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]

THINK: dict[Effort | None, Think | None] = {
    None: None,
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


class CamelPart(BaseModel):
    """A part of a request whose fields are in camel case."""

    model_config = ConfigDict(extra="ignore", alias_generator=to_camel)


class InterfaceOptions(RequestPart):
    """What libraries of user interfaces have no field for."""

    model: ModelName | None = None
    session_id: str | None = None
    think: StrictBool | Literal["low", "medium", "high", "max"] | None = None
    options: ModelOptions = ModelOptions()
    response_format: ResponseFormat | None = None


class ServerTools(RequestPart):
    """Tools of this server, which it runs itself."""

    type: Literal["mochi"]
    names: Several[str] = Field(max_length=MAX_NAMES)


def type_of(part: object) -> object:
    """Return the type of a part that is to be read, or has been; None without one."""
    return part.get("type") if isinstance(part, dict) else getattr(part, "type", None)


def _owner(tool: object) -> str:
    return "mochi" if type_of(tool) == "mochi" else "function"


AnyTool = Annotated[
    Annotated[Part, Tag("function")] | Annotated[ServerTools, Tag("mochi")], Discriminator(_owner)
]
"""A tool of the client, which need not have a type, or tools of this server."""
