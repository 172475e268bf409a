"""The parts of a reply in their order, with the signatures that must go back with them.

A stored message has one text, one thinking and a list of calls. Vendors that sign their parts want
them back as they were: ``provider_data`` says how to split the stored message again, without
storing its text twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from ...core.limits import LARGEST_RESPONSE, too_large
from ...errors import JSONObject

CallT = TypeVar("CallT")

STORED = {"text": "content", "thinking": "thinking"}
"""The key of a message with the text of each kind of part."""


class ReplyParts:
    """Collects the parts of one reply."""

    def __init__(self) -> None:
        self._parts: list[JSONObject] = []
        self._size = 0
        """Characters that are kept beside the texts."""

    def add_text(self, kind: str, text: str, signature: str | None = None, *, new: bool) -> None:
        """Add text of a kind to the last part, or as a new one."""
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
        """Add a part without text: a ``call``, or one that is kept whole."""
        self._count(*fields.values())
        self._parts.append({"kind": kind, **fields})

    def _count(self, *texts: str) -> None:
        self._size += sum(map(len, texts))
        if self._size > LARGEST_RESPONSE:
            raise too_large(LARGEST_RESPONSE)

    def provider_data(self, form: str, model: str) -> JSONObject | None:
        """Return what is stored with the reply; None where nothing was signed."""
        if all(part.keys() <= {"kind", "length"} for part in self._parts):
            return None
        return {"form": form, "model": model, "parts": list(self._parts)}


def split(
    message: Mapping[str, Any], calls: Sequence[CallT], *, form: str, model: str
) -> list[tuple[Mapping[str, Any], str | CallT | None]] | None:
    """Split a stored message into its parts, each with its text or its call.

    None where the message has no parts of this form and model, or others than it is made of.
    """
    data = message.get("provider_data")
    if not isinstance(data, dict) or (data.get("form"), data.get("model")) != (form, model):
        return None
    parts = data.get("parts")
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        return None
    if not _make_up(message, parts, len(calls)):
        return None
    return list(_split(message, parts, iter(calls)))


def _make_up(message: Mapping[str, Any], parts: Sequence[Mapping[str, Any]], calls: int) -> bool:
    for kind, key in STORED.items():
        lengths = [part.get("length") for part in parts if part.get("kind") == kind]
        if not all(isinstance(length, int) and length >= 0 for length in lengths):
            return False
        if sum(length or 0 for length in lengths) != len(message.get(key) or ""):
            return False
    return [part.get("kind") for part in parts].count("call") == calls


def _split(
    message: Mapping[str, Any], parts: Sequence[Mapping[str, Any]], calls: Iterator[CallT]
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
