"""The sessions that match a query, and why."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from typing import NamedTuple

import orjson

from ...core.aio import yield_to_loop
from ...errors import JSONObject
from .listing import ALL, IN_ORDER, SessionFilter, read_problems, write_cursor
from .search_query import Query
from .search_text import SearchDocument
from .snippets import passage_of

MOST = 1000
"""Most sessions in a result without filter: the best ones."""

COLUMNS = ", ".join(SearchDocument._fields)

_WEIGHTS = "10.0, 8.0, 5.0, 2.0, 1.5, 0.3"
"""Of the columns of ``SearchDocument``: a title says more than what a tool printed."""

_SCORE = f"-bm25(texts, {_WEIGHTS})"

_MATCHING = "FROM texts WHERE texts MATCH ?"

_RANKED = f"""
SELECT number, round(score, 4) AS rounded, line FROM
(SELECT rowid, {_SCORE} AS score {_MATCHING} {{}}) AS matching
CROSS JOIN sessions AS place ON place.number = matching.rowid WHERE NOT is_problem {{}}
ORDER BY rounded DESC, {IN_ORDER}
"""

_UNRANKED = f"""
SELECT * FROM (SELECT place.number, 0.0, line {{}} AND {{}} ORDER BY {IN_ORDER} LIMIT ?)
"""

_MATCHES = f"+place.number IN (SELECT rowid {_MATCHING})"
"""The plus makes SQLite read the sessions in the order of the list, until the page is full."""

_MATCHES_NOT = f"EXISTS (SELECT 1 FROM texts_docsize WHERE id = place.number) AND NOT {_MATCHES}"

_SAMPLED = 4 * MOST

_SAMPLE = f"""
SELECT round({_SCORE}, 4) {_MATCHING} AND rowid > (SELECT max(id) - {_SAMPLED} FROM texts_docsize)
LIMIT 1 OFFSET {MOST}
"""
"""The score of a match among the sessions added last, if a quarter of them match."""


class Indexing(NamedTuple):
    """How far the index of texts is."""

    done: int
    """Sessions whose texts are in it as they are now."""
    total: int


@dataclass(slots=True)
class SearchResult:
    """The sessions that match, the best first, or a page of them."""

    sessions: list[JSONObject] = field(default_factory=list)
    """Entries of the list of sessions, each with ``score`` (larger is better), ``found_in`` and
    ``snippet``, a list of ``{"text", "match"}``."""
    problems: list[JSONObject] = field(default_factory=list)
    """As in the list: what cannot be read, so cannot be found."""
    next_cursor: str | None = None
    indexing: Indexing | None = None
    """Set when the index was not complete yet; None when every text was searched."""

    def as_json(self) -> JSONObject:
        """Return the answer over HTTP."""
        return {
            "sessions": [*self.sessions],
            "problems": [*self.problems],
            "next_cursor": self.next_cursor,
            "indexing": None if self.indexing is None else {**self.indexing._asdict()},
        }


def read_text(connection: sqlite3.Connection, number: int) -> SearchDocument:
    statement = f"SELECT {COLUMNS} FROM texts WHERE rowid = ?"
    row = connection.execute(statement, (number,)).fetchone()
    return SearchDocument() if row is None else SearchDocument(*row)


class Hit(NamedTuple):
    """A session that a query matches."""

    number: int
    """Of its row."""
    score: float
    """Larger is better; comparable within one answer."""
    line: bytes


def find(
    connection: sqlite3.Connection,
    query: Query,
    session_filter: SessionFilter,
    *,
    most: int,
    start: int,
    limit: int,
) -> tuple[list[Hit], bool]:
    """Return a page of the matching sessions, the best first, and whether there are more.

    Of equals, the one changed last comes first. Only the best ``most`` are considered; -1 for all.
    With an owner all are equal: a score says how many sessions of others have a word.
    """
    if query.required and session_filter.owner is None and _is_ranked(connection, query):
        conditions, values = session_filter.conditions()
        best = "" if most < 0 else f"ORDER BY score DESC LIMIT {most}"
        statement = _RANKED.format(best, conditions)
        values = [query.match, *values]
    else:
        source, values = session_filter.source()
        statement = _UNRANKED.format(source, _MATCHES if query.required else _MATCHES_NOT)
        values = [*values, query.match, most]
    found = connection.execute(f"{statement} LIMIT ? OFFSET ?", [*values, limit + 1, start])
    hits = [Hit(*each) for each in found]
    return hits[:limit], len(hits) > limit


def _is_ranked(connection: sqlite3.Connection, query: Query) -> bool:
    """Return whether scores can differ, or so few sessions match that ranking them is fast.

    BM25 gives a word of at least half of all sessions a weight of about 0. If a query has only such
    words, the score of every match is 0, and one of them shows it.
    """
    sample = connection.execute(_SAMPLE, (query.match,)).fetchone()
    return sample is None or sample[0] > 0


def answer_to(
    query: Query,
    session_filter: SessionFilter,
    start: int,
    limit: int,
    connection: sqlite3.Connection,
) -> SearchResult:
    hits: list[Hit] = []
    has_more = False
    if query:
        most = MOST if session_filter == ALL else -1
        hits, has_more = find(
            connection, query, session_filter, most=most, start=start, limit=limit
        )
    return SearchResult(
        [_entry(connection, query, hit) for hit in hits],
        [] if session_filter.owner is not None else read_problems(connection),
        write_cursor(f"search:{start + limit}") if has_more else None,
    )


def _entry(connection: sqlite3.Connection, query: Query, hit: Hit) -> JSONObject:
    """Make a line of the answer: that of the list, and why the session matches."""
    yield_to_loop()
    passage = passage_of(read_text(connection, hit.number), query)
    return {
        **orjson.loads(hit.line),
        "score": hit.score,
        "found_in": passage.found_in,
        "snippet": [{**part._asdict()} for part in passage.parts],
    }
