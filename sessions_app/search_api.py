"""``GET /sessions?query=``."""

from __future__ import annotations

import orjson

from mochi_server.sessions import SessionFilter
from mochi_server.sessions.catalogue.search import PAGE, SessionSearch


async def search_json(
    search: SessionSearch, query: str, limit: int | None, cursor: str | None, wanted: SessionFilter
) -> bytes:
    """A page of what was found, encoded."""
    found = await search.search(query, limit=limit or PAGE, cursor=cursor, wanted=wanted)
    return orjson.dumps(found.as_json())
