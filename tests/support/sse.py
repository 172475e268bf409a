"""Reads server-sent events, as a browser would."""

from __future__ import annotations

import json
from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass
from typing import Any


@dataclass
class ServerEvent:
    """One event; ``data`` is its JSON."""

    id: str | None
    event: str
    data: Any


async def events(parts: AsyncIterable[bytes]) -> AsyncIterator[ServerEvent]:
    """The events of a body that arrives in any pieces; comments are skipped."""
    buffer = b""
    async for part in parts:
        buffer += part
        while b"\n\n" in buffer:
            frame, _, buffer = buffer.partition(b"\n\n")
            if (found := parse(frame.decode())) is not None:
                yield found


def parse(frame: str) -> ServerEvent | None:
    """One frame; None for a comment or ``retry``."""
    fields: dict[str, str] = {}
    for line in frame.split("\n"):
        name, _, value = line.partition(":")
        if name:
            fields[name] = value.removeprefix(" ")
    if "data" not in fields:
        return None
    return ServerEvent(fields.get("id"), fields.get("event", "message"), json.loads(fields["data"]))
