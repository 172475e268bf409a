"""Images and documents that go to a model with a message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import JsonValue

from ..errors import JSONObject

FILES: Final = "files"
"""Key of the files of a user's message in a ``ModelRequest``; no stored message has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFile:
    """A file that the model reads in its own form; texts are written into the message."""

    media_type: str
    """Of an image, or ``application/pdf``."""
    data: str
    """The content in base64."""
    name: str | None = None

    @property
    def is_image(self) -> bool:
        return self.media_type.startswith("image/")

    @property
    def data_url(self) -> str:
        return f"data:{self.media_type};base64,{self.data}"


def with_files(message: JSONObject, files: Sequence[RequestFile]) -> JSONObject:
    entries: list[JsonValue] = [
        {"media_type": each.media_type, "data": each.data, "name": each.name} for each in files
    ]
    return {**message, FILES: entries} if entries else message


def files_of(message: Mapping[str, Any]) -> list[RequestFile]:
    return [RequestFile(**entry) for entry in message.get(FILES) or ()]
