"""The order of a reply's parts, with the signatures that must be sent back beside them.

A stored message has one text, one thinking and a list of calls. Vendors that sign their parts want
them back as they were: the outline (``provider_data``) says how to cut the stored message again,
without storing its text twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from ...core.http_limits import LARGEST_RESPONSE, too_large
from ...errors import JSONObject

CallT = TypeVar("CallT")

STORED = {"text": "content", "thinking": "thinking"}
"""Which key of a message a kind of part is cut from."""


class Outline:
    """Collects the parts of one reply."""

    def __init__(self) -> None:
        self._parts: list[JSONObject] = []
        self._size = 0
        """Characters of what is kept beside the texts."""

    def grow(self, kind: str, text: str, signature: str | None = None, *, new: bool) -> None:
        """More text of a kind: of the last part, or of a new one.

        Raises:
            ProviderError: the signatures are too large.
        """
        self._count(signature or "")
        last = self._parts[-1] if self._parts else None
        if new or last is None or last["kind"] != kind or (signature and "signature" in last):
            last = {"kind": kind, "length": 0}
            self._parts.append(last)
        length = last["length"]
        last["length"] = (length if isinstance(length, int) else 0) + len(text)
        if signature:
            last["signature"] = signature

    def add(self, kind: str, **fields: str) -> None:
        """A part that is no text: ``call``, or one that is kept whole.

        Raises:
            ProviderError: such parts are too large.
        """
        self._count(*fields.values())
        self._parts.append({"kind": kind, **fields})

    def _count(self, *texts: str) -> None:
        self._size += sum(map(len, texts))
        if self._size > LARGEST_RESPONSE:
            raise too_large(LARGEST_RESPONSE)

    def as_stored(self, form: str, model: str) -> JSONObject | None:
        """``provider_data`` of the reply; None where nothing was signed."""
        if all(part.keys() <= {"kind", "length"} for part in self._parts):
            return None
        return {"form": form, "model": model, "parts": list(self._parts)}


def cut(
    message: Mapping[str, Any], calls: Sequence[CallT], *, form: str, model: str
) -> list[tuple[Mapping[str, Any], str | CallT | None]] | None:
    """The parts of a stored message, each with its text or its call; ``calls`` are the message's.

    None where the message has no outline of this form and model, or another than it was made for.
    """
    outline = message.get("provider_data")
    if not isinstance(outline, dict) or (outline.get("form"), outline.get("model")) != (
        form,
        model,
    ):
        return None
    parts = outline.get("parts")
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        return None
    if _is_of(message, parts, len(calls)):
        return list(_cut(message, parts, iter(calls)))
    return None


def _is_of(message: Mapping[str, Any], parts: Sequence[Mapping[str, Any]], calls: int) -> bool:
    """Whether the parts make up the whole message."""
    for kind, key in STORED.items():
        lengths = [part.get("length") for part in parts if part.get("kind") == kind]
        if not all(isinstance(length, int) and length >= 0 for length in lengths):
            return False
        if sum(length or 0 for length in lengths) != len(message.get(key) or ""):
            return False
    return [part.get("kind") for part in parts].count("call") == calls


def _cut(
    message: Mapping[str, Any],
    parts: Sequence[Mapping[str, Any]],
    calls: Iterator[CallT],
) -> Iterator[tuple[Mapping[str, Any], str | CallT | None]]:
    begin = dict.fromkeys(STORED, 0)
    for part in parts:
        kind = part.get("kind")
        if kind in STORED:
            end = begin[kind] + part["length"]
            yield part, (message.get(STORED[kind]) or "")[begin[kind] : end]
            begin[kind] = end
        else:
            yield part, next(calls) if kind == "call" else None
