"""What a response of the API says."""

from __future__ import annotations

from typing import Any

import anyio

from .sse import ServerEvent, events


def error_of(response: Any) -> tuple[int, str]:
    """The status and the code of an error."""
    return response.status_code, response.json()["error"]["code"]


async def events_of(response: Any) -> list[ServerEvent]:
    """All events of a stream."""
    with anyio.fail_after(30):
        return [event async for event in events(response.streaming_content)]
