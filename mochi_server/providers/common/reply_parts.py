"""The parts of a reply in their order, with the signatures that must go back with them.

A stored message has one text, one thinking and a list of calls. Vendors that sign their parts want
them back as they were: ``provider_data`` says how to split the stored message again, without
storing its text twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from ...core.limits import MAX_RESPONSE, too_large
from ...errors import JSONObject

CallT = TypeVar("CallT")

STORED = {"text": "content", "thinking": "thinking"}


class ReplyParts:
    """Collects the parts of one reply."""

    def __init__(self) -> None:
        self._parts: list[JSONObject] = []
        self._size = 0

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
        if self._size > MAX_RESPONSE:
            raise too_large(MAX_RESPONSE)

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
    texts = {kind: str(message.get(key) or "") for kind, key in STORED.items()}
    ends, call_count = dict.fromkeys(STORED, 0), 0
    pieces: list[tuple[Mapping[str, Any], str | CallT | None]] = []
    for part in parts:
        kind, length = part.get("kind"), part.get("length")
        if kind in STORED and isinstance(length, int) and length >= 0:
            begin, ends[kind] = ends[kind], ends[kind] + length
            pieces.append((part, texts[kind][begin : ends[kind]]))
        elif kind == "call" and call_count < len(calls):
            pieces.append((part, calls[call_count]))
            call_count += 1
        elif kind in STORED or kind == "call":
            return None
        else:
            pieces.append((part, None))
    is_whole = all(ends[kind] == len(text) for kind, text in texts.items())
    return pieces if is_whole and call_count == len(calls) else None
