"""Conversations of the command ``llm``: its database ``logs.db``, which is only read."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from ....errors import CannotImport
from ..conversation import (
    LeftOut,
    ReplyBuilder,
    SourceConversation,
    SourceFile,
    SourceMessage,
    as_object,
    time_of,
)

NAME = "llm's logs.db"
MAGIC: Final = b"SQLite format 3\0"

Row = dict[str, Any]


def read_all(path: Path) -> Iterator[tuple[float, SourceConversation]]:
    """Yield each conversation of a database, with the share of them that is done, up to 1.

    Raises:
        CannotImport: It is no database of llm.
    """
    try:
        uri = f"file:{quote(str(path.absolute()))}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, check_same_thread=False)) as connection:
            connection.row_factory = sqlite3.Row
            connection.execute("PRAGMA query_only = 1")
            connection.execute("PRAGMA trusted_schema = 0")
            yield from _Logs(connection).conversations()
    except sqlite3.Error as error:
        raise CannotImport(f"not a readable database ({error})") from error


class _Logs:
    """The tables of two generations: ``responses``, and since 0.32 ``threads`` and ``messages``."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        self._columns = {
            name: {str(row["name"]) for row in connection.execute(f"PRAGMA table_info({name})")}
            for name in {str(row["name"]) for row in tables} & _TABLES
        }
        self._rowids: dict[tuple[str, str], dict[object, list[int]]] = {}

    def conversations(self) -> Iterator[tuple[float, SourceConversation]]:
        if not self._columns.keys() & {"responses", "threads"}:
            raise CannotImport("it has neither a table 'responses' nor 'threads'")
        old = self._ids("conversation_id", "responses")
        new = self._ids("id", "threads")
        total = len(old) + len(new)
        for number, conversation_id in enumerate(old, start=1):
            yield number / total, self._of_responses(conversation_id)
        for number, thread_id in enumerate(new, start=len(old) + 1):
            yield number / total, self._of_thread(thread_id)

    def _ids(self, column: str, table: str) -> list[str]:
        if column not in self._columns.get(table, set()):
            return []
        rows = self._connection.execute(
            f"SELECT {column} AS id FROM {table} WHERE {column} IS NOT NULL "
            f"GROUP BY {column} ORDER BY min(rowid)"
        )
        return [str(row["id"]) for row in rows]

    def _rows(self, table: str, column: str, value: object, order: str = "rowid") -> list[Row]:
        """Return the rows of a table with a value; [] if there is no such table or column."""
        columns = self._columns.get(table, set())
        if column not in columns:
            return []
        names = ", ".join(f'"{name}"' for name in sorted(columns & _READ))
        if (table, column) in _WITHOUT_INDEX:
            statement = f"SELECT {names} FROM {table} WHERE rowid = ?"
            rows = self._rowids_by(table, column).get(value, [])
            return [
                dict(row) for each in rows for row in self._connection.execute(statement, [each])
            ]
        statement = f'SELECT {names} FROM {table} WHERE "{column}" = ? ORDER BY {order}'
        return [dict(row) for row in self._connection.execute(statement, [value])]

    def _rowids_by(self, table: str, column: str) -> dict[object, list[int]]:
        """Return where the rows of each value are, which SQLite would look for each time."""
        if (table, column) not in self._rowids:
            rowids = self._rowids[table, column] = {}
            for row in self._connection.execute(f'SELECT rowid, "{column}" FROM {table}'):
                rowids.setdefault(row[1], []).append(row[0])
        return self._rowids[table, column]

    def _row(self, table: str, column: str, value: object) -> Row:
        return next(iter(self._rows(table, column, value)), {})

    # Tables up to 0.31

    def _of_responses(self, conversation_id: str) -> SourceConversation:
        head = self._row("conversations", "id", conversation_id)
        conversation = SourceConversation(
            program="llm",
            source_id=conversation_id,
            place=f"conversations/{conversation_id}",
            title=_text(head.get("name")),
            model=_text(head.get("model")),
        )
        results: set[str] = set()
        responses = self._rows("responses", "conversation_id", conversation_id)
        for response in sorted(responses, key=lambda row: _text(row.get("datetime_utc"))):
            response_id = _text(response.get("id"))
            messages = [
                *self._results(response_id, results, conversation.left_out),
                *self._prompt(response, response_id, conversation.left_out),
                *self._reply(response, response_id),
            ]
            conversation.append(response_id, messages)
            time = time_of(response.get("datetime_utc"))
            conversation.created_at = conversation.created_at or time
            conversation.updated_at = time or conversation.updated_at
            system = _text(response.get("system"))
            if not conversation.system_prompt:
                conversation.system_prompt = system
            elif system not in {"", conversation.system_prompt}:
                conversation.left_out["system prompt after the first one"] += 1
        return conversation

    def _results(
        self, response_id: str, known: set[str], left_out: LeftOut
    ) -> Iterator[SourceMessage]:
        """Yield the results that were sent with a prompt, of the calls of the reply before."""
        for row in self._rows("tool_results", "response_id", response_id):
            text = _text(row.get("output")) or _text(row.get("exception"))
            call_id = _text(row.get("tool_call_id"))
            if call_id in known:
                continue
            known.add(call_id)
            files = [
                *self._files("tool_results_attachments", "tool_result_id", row.get("id"), left_out)
            ]
            yield SourceMessage(
                "tool", text, tool_name=_text(row.get("name")), tool_call_id=call_id, files=files
            )

    def _prompt(
        self, response: Row, response_id: str, left_out: LeftOut
    ) -> Iterator[SourceMessage]:
        texts = []
        for row in self._rows("prompt_fragments", "response_id", response_id, '"order"'):
            fragment = self._row("fragments", "id", row.get("fragment_id"))
            texts.append(_text(fragment.get("content")))
        texts.append(_text(response.get("prompt")))
        if self._rows("system_fragments", "response_id", response_id):
            left_out["fragment of a system prompt"] += 1
        text = "\n\n".join(filter(None, texts))
        files = [*self._files("prompt_attachments", "response_id", response_id, left_out)]
        if text or files:
            time = time_of(response.get("datetime_utc"))
            yield SourceMessage("user", text, time=time, files=files)

    def _reply(self, response: Row, response_id: str) -> list[SourceMessage]:
        model = _text(response.get("resolved_model")) or _text(response.get("model"))
        reply = ReplyBuilder(response_id, model, time_of(response.get("datetime_utc")))
        reply.thinking(_text(response.get("reasoning")))
        reply.text(_text(response.get("response")))
        for row in self._rows("tool_calls", "response_id", response_id):
            name, call_id = _text(row.get("name")), _text(row.get("tool_call_id"))
            reply.call(name, _text(row.get("arguments")), call_id)
        return reply.messages

    def _files(
        self, table: str, column: str, value: object, left_out: LeftOut
    ) -> Iterator[SourceFile]:
        for row in self._rows(table, column, value):
            if (file := self._file(_text(row.get("attachment_id")))) is not None:
                yield file
            else:
                left_out["file that is not in the database"] += 1

    def _file(self, attachment_id: str) -> SourceFile | None:
        row = self._row("attachments", "id", attachment_id)
        content = row.get("content")
        if not isinstance(content, bytes):
            return None
        return SourceFile(_text(row.get("path")), lambda: content)

    # Tables since 0.32

    def _of_thread(self, thread_id: str) -> SourceConversation:
        head = self._row("threads", "id", thread_id)
        conversation = SourceConversation(
            program="llm",
            source_id=thread_id,
            place=f"threads/{thread_id}",
            title=_text(head.get("name")),
            created_at=time_of(head.get("datetime_utc")),
        )
        turns = self._rows("turns", "thread_id", thread_id)
        by_tip = {_text(turn.get("tip_message_hash")): turn for turn in turns}
        hashes: dict[str, Row] = {}
        at = _text(head.get("tip_message_hash"))
        while at and at not in hashes and (row := self._row("messages", "hash", at)):
            hashes[at] = row
            at = _text(row.get("parent_hash"))
        for name in reversed(hashes):
            # What a thread has said before it was forked is in a turn of the other one.
            turn = by_tip.get(name) or self._row("turns", "tip_message_hash", name)
            time = time_of(turn.get("datetime_utc"))
            conversation.updated_at = time or conversation.updated_at
            model = _text(turn.get("resolved_model")) or _text(turn.get("model"))
            conversation.model = model or conversation.model
            self._add_message(conversation, hashes[name], model, time)
        return conversation

    def _add_message(
        self, conversation: SourceConversation, row: Row, model: str, time: str | None
    ) -> None:
        name, role = _text(row.get("hash")), _text(row.get("role"))
        parts = self._rows("parts", "message_hash", name, "position")
        reply = ReplyBuilder(name, model, time)
        for part in parts:
            self._add_part(part, role, reply, conversation.left_out)
        if role == "system":
            texts = (conversation.system_prompt, *(each.text for each in reply.messages))
            conversation.system_prompt = "\n\n".join(filter(None, texts))
            return
        for message in reply.messages:
            if message.role == "assistant" and role == "user":
                message.role, message.model = "user", ""
        conversation.append(name, reply.messages)

    def _add_part(self, part: Row, role: str, reply: ReplyBuilder, left_out: LeftOut) -> None:
        payload = _payload(part.get("payload"))
        kind = _text(part.get("type"))
        match kind:
            case "text":
                reply.text(self._text_of(part, payload))
            case "reasoning":
                reply.thinking(self._text_of(part, payload))
            case "tool_call":
                name = _text(payload.get("name"))
                reply.call(name, payload.get("arguments"), _text(payload.get("tool_call_id")))
            case "tool_result":
                text = _text(payload.get("output")) or _text(payload.get("exception"))
                call_id = _text(payload.get("tool_call_id"))
                reply.result(text, call_id, _text(payload.get("name")))
            case "attachment":
                file = self._file(_text(as_object(payload.get("attachment")).get("id")))
                if file is None or role == "assistant":
                    left_out["file that is not in the database"] += 1
                elif reply.messages:
                    reply.messages[-1].files.append(file)
                else:
                    reply.messages.append(SourceMessage("assistant", files=[file]))
            case _:
                left_out[f"content of the type {kind[:40]}"] += 1

    def _text_of(self, part: Row, payload: Row) -> str:
        """Return the text of a part, which may consist of fragments and pieces of its own."""
        pieces = payload.get("text_ref")
        if not isinstance(pieces, list):
            return _text(part.get("text")) or _text(payload.get("text"))
        texts = []
        for piece in map(as_object, pieces):
            if "fragment" in piece:
                row = self._row("fragments", "id", piece["fragment"])
                texts.append(_text(row.get("content")))
            else:
                texts.append(_text(piece.get("literal")))
        return "".join(texts)


_TABLES: Final = frozenset(
    {"conversations", "responses", "tool_calls", "tool_results", "tool_results_attachments"}
    | {"attachments", "prompt_attachments", "fragments", "prompt_fragments", "system_fragments"}
    | {"threads", "turns", "messages", "parts"}
)
_WITHOUT_INDEX: Final = frozenset(
    {("responses", "conversation_id"), ("tool_calls", "response_id")}
    | {("tool_results", "response_id"), ("turns", "tip_message_hash")}
)
_READ: Final = frozenset(
    {"id", "name", "model", "resolved_model", "prompt", "system", "response", "reasoning"}
    | {"datetime_utc", "arguments", "tool_call_id", "output", "exception", "attachment_id"}
    | {"type", "path", "content", "fragment_id", "tip_message_hash", "hash", "parent_hash"}
    | {"role", "text", "payload"}
)
"""Columns that are read; of other generations, some are missing."""


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _payload(value: object) -> Row:
    try:
        payload = json.loads(value) if isinstance(value, str) else None
    except (ValueError, RecursionError):
        payload = None
    return payload if isinstance(payload, dict) else {}
