"""Tools that are too many for the window: those in use are offered, and one that finds others.

What is in use follows from the messages of the session alone, so that another process, or the next
turn, offers the same.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import (
    AsyncGenerator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import closing
from itertools import islice, pairwise
from typing import Any, Final

from ..core.aio import in_thread
from ..errors import JSONObject
from ..providers.common.tools import parameters_of
from ..services.requests import RequestBuilder
from ..sessions import ChatSession
from ..sessions.catalogue.search_text import JOINT, normalize, split_unspaced
from ..tools.base import InvalidArguments, Tool, ToolContext, ToolOutput
from ..tools.loading import RESERVED_IN_CHATS

FIND_TOOLS: Final = "find_tools"
MOST_FOUND: Final = 8
"""Tools that one call finds."""
MOST_READ: Final = 500
"""Messages of a session, from the end, in which tools are looked for."""

_MOST_TERMS: Final = 30
_MOST_SERVERS: Final = 30
_MOST_OF_LINE: Final = 200
_WORD: Final = re.compile(r"[^\W_]+")
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_FOUND: Final = re.compile(r"^- (\"(?:[^\"\\]|\\.)*\"|[^\s:\"]+): ", re.MULTILINE)
_PLAIN: Final = re.compile(r"[^\s:\"]+")


class FindTools(Tool):
    """Finds tools by words of their names, descriptions and parameters.

    Args:
        schemas: Those of all tools that the turn has.
        fitting: Tells which of some tools the next request has room for, by their names.
    """

    name = FIND_TOOLS
    source = "chat"
    destructive = False
    sequential = False
    timeout = None
    only_tells = True

    def __init__(
        self, schemas: Sequence[JSONObject], fitting: Callable[[Iterable[str]], Collection[str]]
    ) -> None:
        self._fitting = fitting
        self._functions: list[Any] = [schema["function"] for schema in schemas]
        names = (name.split("__")[0] for name in self._names if "__" in name)
        servers = [*dict.fromkeys(names)][:_MOST_SERVERS]
        of_servers = f" They are of: {', '.join(servers)}." if servers else ""
        self.description = (
            f"Find tools for a task. There are {len(self._functions)} tools, and you see only a "
            f"few.{of_servers} What is found can be called afterwards."
        )
        query: JSONObject = {"type": "string", "description": "Words for what the tool should do."}
        self.parameters = {
            "type": "object",
            "properties": {"query": query},
            "required": ["query"],
        }

    @property
    def _names(self) -> Iterator[str]:
        return (str(function["name"]) for function in self._functions)

    async def validate(self, arguments: JSONObject) -> JSONObject:
        query = arguments.get("query")
        if not isinstance(query, str) or not _WORD.search(query):
            raise InvalidArguments("'query' must be a text with some words.")
        return {"query": query}

    async def run(
        self,
        arguments: JSONObject,
        context: ToolContext,  # noqa: ARG002 - it tells everybody the same
    ) -> AsyncGenerator[ToolOutput, None]:
        found = await in_thread(self._find, str(arguments["query"]))
        if not found:
            yield ToolOutput("No tool has any of these words. Try others.")
            return
        fitting = self._fitting(each["name"] for each in found)
        lines = [_line(each) for each in found if each["name"] in fitting]
        if lines:
            lines.insert(0, "You can call these tools now:")
        if large := [_written(each["name"]) for each in found if each["name"] not in fitting]:
            lines.append(f"There is no room for the descriptions of: {', '.join(large)}.")
        yield ToolOutput("\n".join(lines))

    def _find(self, query: str) -> list[Any]:
        match = " OR ".join(f'"{term}"' for term in _terms(query))
        with closing(sqlite3.connect(":memory:")) as database:
            database.execute(
                "CREATE VIRTUAL TABLE tools USING fts5 (name, description, parameters, "
                "tokenize='porter unicode61 remove_diacritics 2')"
            )
            database.executemany("INSERT INTO tools VALUES (?, ?, ?)", map(_row, self._functions))
            rows = database.execute(
                "SELECT rowid FROM tools WHERE tools MATCH ? "
                "ORDER BY bm25(tools, 8, 3, 1), rowid LIMIT ?",
                (match, MOST_FOUND),
            )
            return [self._functions[number - 1] for (number,) in rows]


def _row(function: Mapping[str, Any]) -> tuple[str, str, str]:
    parameters = json.dumps(parameters_of({"function": function})["properties"], ensure_ascii=False)
    texts = str(function["name"]), str(function.get("description") or ""), parameters
    name, description, properties = (split_unspaced(_folded(text)) for text in texts)
    return name, description, properties


def _folded(text: str) -> str:
    """Return a text in small letters, behind it the words that stand together in ``GitHub``."""
    text = normalize(text)
    parts = (_HUMP.sub(" ", word) for word in _WORD.findall(text) if _HUMP.search(word))
    return " ".join([text, *parts]).casefold()


def _terms(query: str) -> list[str]:
    """Return the words of a query; of scripts without spaces, any two neighbours."""
    terms: dict[str, None] = {}
    for word in _WORD.findall(_folded(query)):
        characters = split_unspaced(word).strip(JOINT).split(JOINT)
        pairs = [" ".join(pair) for pair in pairwise(characters)]
        terms |= dict.fromkeys(pairs or characters)
    return [*terms][:_MOST_TERMS]


def _line(function: Mapping[str, Any]) -> str:
    """Return a name and the beginning of a description."""
    description = " ".join(str(function.get("description") or "").split())
    return f"- {_written(function['name'])}: {description[:_MOST_OF_LINE]}"


def _written(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def _names_in(text: str) -> Iterator[str]:
    """Yield the names that a result of ``find_tools`` offers."""
    for found in _FOUND.findall(text):
        yield json.loads(found) if found.startswith('"') else found


class ToolShelf:
    """The tools of a turn that has too many of them.

    ``room``: tokens that they may take.
    """

    def __init__(self, schemas: Sequence[JSONObject], requests: RequestBuilder, room: int) -> None:
        self.finder = FindTools(schemas, self._fitting)
        self._by_name = {_name(schema): schema for schema in schemas}
        self._requests = requests
        self._room = room

    def on_offer(self, session: ChatSession) -> tuple[list[JSONObject], list[JSONObject]]:
        """Return the schemas that the next request has, and those that it leaves out.

        It has tools in use, as far as they fit, and the one that finds others. Those used or found
        last come first where there is not room for all.
        """
        self._room = self._requests.room_for_tools(session) or 0
        chosen = self._fitting(_in_use(islice(session.tail(), MOST_READ)))
        offered = [self._by_name[name] for name in self._by_name if name in chosen]
        others = [self._by_name[name] for name in self._by_name if name not in chosen]
        return [*offered, self.finder.schema()], others

    def _fitting(self, names: Iterable[str]) -> set[str]:
        """Return those of the tools that there is room for, and those that are always offered."""
        chosen = {name for name in RESERVED_IN_CHATS if name in self._by_name}
        always = [self.finder.schema(), *(self._by_name[name] for name in chosen)]
        left = self._room - self._requests.tool_tokens(always)
        for name in names:
            if name in chosen or name not in self._by_name:
                continue
            cost = self._requests.tool_tokens([self._by_name[name]])
            if cost <= left:
                chosen.add(name)
                left -= cost
        return chosen


def are_searched(schemas: Sequence[JSONObject], tokens: int, room: int | None) -> bool:
    """Return whether tools that take so many tokens are not all offered.

    They are where they fit, where there is one alone, or one has the name of what finds others.
    """
    is_taken = any(_name(schema) == FIND_TOOLS for schema in schemas)
    return room is not None and tokens > room and len(schemas) > 1 and not is_taken


def shelf_of(
    schemas: Sequence[JSONObject], requests: RequestBuilder, session: ChatSession
) -> ToolShelf | None:
    """Return the shelf of a turn whose tools are searched; None for another one."""
    room = requests.room_for_tools(session)
    if room is None or not are_searched(schemas, requests.tool_tokens(schemas), room):
        return None
    return ToolShelf(schemas, requests, room)


def _name(schema: JSONObject) -> str:
    function: Any = schema["function"]
    return str(function["name"])


def _in_use(backwards: Iterable[Any]) -> Iterator[str]:
    """Yield the names of tools that were called or found, the last ones first."""
    for message in backwards:
        if not isinstance(message, dict):
            continue
        if message.get("role") == "tool" and message.get("tool_name") == FIND_TOOLS:
            yield from _names_in(str(message.get("content")))
        elif message.get("role") == "assistant":
            for call in message.get("tool_calls") or ():
                function = call.get("function") if isinstance(call, dict) else None
                if isinstance(function, dict):
                    yield str(function.get("name"))
