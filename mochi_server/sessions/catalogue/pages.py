"""A stretch of the list, written as an answer; work for a thread."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

import orjson

from ...core.aio import yield_to_loop
from ...errors import JSONObject
from .rows import ALL, Key, Row, SessionFilter, SessionList, cursor_behind

_BREATH = 512


@dataclass(frozen=True, slots=True)
class Page:
    """What a list shows, apart from the table, so that a thread can pick and encode it."""

    rows: dict[str, Row]
    sessions: list[Key]
    """In order, from the beginning of the page on; the list may have more behind it."""
    problems: list[Key]
    limit: int | None = None
    wanted: SessionFilter = ALL

    def pick(self) -> tuple[list[bytes], str | None]:
        """The encoded rows of the sessions, and where the next page begins."""
        keys = self.sessions
        if self.wanted != ALL:
            stop = None if self.limit is None else min(self.limit, len(keys)) + 1
            keys = [*islice(filter(self._is_wanted, keys), stop)]
        following = None
        if self.limit is not None and len(keys) > self.limit:
            keys = keys[: self.limit]
            following = cursor_behind(keys[-1])
        return self.lines(keys), following

    def _is_wanted(self, key: Key) -> bool:
        return self.wanted.matches(self.rows[key[1]])

    def lines(self, keys: list[Key]) -> list[bytes]:
        """The encoded rows of these places."""
        return [self.rows[session_id].encoded for _, session_id in keys]


def parsed(page: Page) -> SessionList:
    """The page as objects."""
    sessions, following = page.pick()
    return SessionList(_objects(sessions), _objects(page.lines(page.problems)), following)


def _objects(lines: list[bytes]) -> list[JSONObject]:
    objects = []
    for number, line in enumerate(lines, start=1):
        objects.append(orjson.loads(line))
        if number % _BREATH == 0:
            yield_to_loop()
    return objects


def joined(page: Page, *, paged: bool) -> bytes:
    """The page as JSON, its rows as they were encoded before."""
    sessions, following = page.pick()
    parts = [b'{"sessions":[', b",".join(sessions)]
    parts += [b'],"problems":[', b",".join(page.lines(page.problems)), b"]"]
    if paged:
        parts += [b',"next_cursor":', orjson.dumps(following)]
    return b"".join([*parts, b"}"])
