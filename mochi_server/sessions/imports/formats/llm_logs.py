"""Conversations of the command ``llm``: its database ``logs.db``, which is only read."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote

from ....core.json_text import parse_json
from ....errors import CannotImport
from ..conversation import ReplyBuilder, SourceConversation, SourceFile, SourceMessage
from ..fields import Fields, LeftOut

NAME = "llm's logs.db"
MAGIC: Final = b"SQLite format 3\0"


def read_all(path: Path) -> Iterator[tuple[float, SourceConversation | LeftOut]]:
    """Yield each conversation of a database, with the share of them that is done, up to 1.

    What belongs to none is yielded at last.

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
        self._left_out: LeftOut = Counter()
        """Of the conversation that is being read."""

    def conversations(self) -> Iterator[tuple[float, SourceConversation | LeftOut]]:
        if not self._columns.keys() & {"responses", "threads"}:
            raise CannotImport("it has neither a table 'responses' nor 'threads'")
        old = self._ids("conversation_id", "responses")
        new = self._ids("id", "threads")
        total = len(old) + len(new)
        for number, conversation_id in enumerate(old, start=1):
            yield number / total, self._of_responses(conversation_id)
        for number, thread_id in enumerate(new, start=len(old) + 1):
            yield number / total, self._of_thread(thread_id)
        if alone := self._rows("responses", "conversation_id", None):
            yield 1.0, Counter({"response without a conversation": len(alone)})

    def _ids(self, column: str, table: str) -> list[str]:
        if column not in self._columns.get(table, set()):
            return []
        rows = self._connection.execute(
            f"SELECT {column} AS id FROM {table} WHERE {column} IS NOT NULL "
            f"GROUP BY {column} ORDER BY min(rowid)"
        )
        return [str(row["id"]) for row in rows]

    def _rows(self, table: str, column: str, value: object, order: str = "rowid") -> list[Fields]:
        """Return the rows of a table with a value; [] if there is no such table or column."""
        columns = self._columns.get(table, set())
        if column not in columns:
            return []
        names = ", ".join(f'"{name}"' for name in sorted(columns & _READ))
        if (table, column) in _WITHOUT_INDEX:
            statement = f"SELECT {names} FROM {table} WHERE rowid = ?"
            rows = self._rowids_by(table, column).get(value, [])
            found = [row for each in rows for row in self._connection.execute(statement, [each])]
        else:
            statement = f'SELECT {names} FROM {table} WHERE "{column}" IS ? ORDER BY {order}'
            found = [*self._connection.execute(statement, [value])]
        return [Fields(dict(row), self._left_out) for row in found]

    def _rowids_by(self, table: str, column: str) -> dict[object, list[int]]:
        """Return where the rows of each value are, which SQLite would look for each time."""
        if (table, column) not in self._rowids:
            rowids = self._rowids[table, column] = {}
            for row in self._connection.execute(f'SELECT rowid, "{column}" FROM {table}'):
                rowids.setdefault(row[1], []).append(row[0])
        return self._rowids[table, column]

    def _row(self, table: str, column: str, value: object) -> Fields:
        return next(iter(self._rows(table, column, value)), Fields({}))

    # Tables up to 0.31

    def _of_responses(self, conversation_id: str) -> SourceConversation:
        self._left_out = Counter()
        head = self._row("conversations", "id", conversation_id)
        conversation = SourceConversation(
            program="llm",
            source_id=conversation_id,
            place=f"conversations/{conversation_id}",
            title=head.text("name"),
            model=head.text("model"),
            left_out=self._left_out,
        )
        results: set[str] = set()
        responses = self._rows("responses", "conversation_id", conversation_id)
        for response in sorted(responses, key=lambda row: str(row.values.get("datetime_utc"))):
            response_id = response.text("id")
            time = response.time("datetime_utc")
            messages = [
                *self._results(response_id, results),
                *self._prompt(response, response_id, time),
                *self._reply(response, response_id, time),
            ]
            conversation.append(response_id, messages)
            conversation.created_at = conversation.created_at or time
            conversation.updated_at = time or conversation.updated_at
            system = response.text("system")
            if not conversation.system_prompt:
                conversation.system_prompt = system
            elif system not in {"", conversation.system_prompt}:
                self._left_out["system prompt after the first one"] += 1
        return conversation

    def _results(self, response_id: str, known: set[str]) -> Iterator[SourceMessage]:
        """Yield the results that were sent with a prompt, of the calls of the reply before."""
        for row in self._rows("tool_results", "response_id", response_id):
            call_id = row.text("tool_call_id")
            if call_id and call_id in known:
                continue
            known.add(call_id)
            yield SourceMessage(
                "tool",
                row.text("output", "exception"),
                tool_name=row.text("name"),
                tool_call_id=call_id,
                files=self._files(
                    "tool_results_attachments", "tool_result_id", row.values.get("id")
                ),
            )

    def _prompt(
        self, response: Fields, response_id: str, time: str | None
    ) -> Iterator[SourceMessage]:
        fragments = self._rows("prompt_fragments", "response_id", response_id, '"order"')
        texts = [self._fragment(row.values.get("fragment_id")) for row in fragments]
        texts.append(response.text("prompt"))
        if self._rows("system_fragments", "response_id", response_id):
            self._left_out["fragment of a system prompt"] += 1
        text = "\n\n".join(filter(None, texts))
        files = self._files("prompt_attachments", "response_id", response_id)
        if text or files:
            yield SourceMessage("user", text, time=time, files=files)

    def _fragment(self, fragment_id: object) -> str:
        text = self._row("fragments", "id", fragment_id).text("content")
        if not text:
            self._left_out["fragment that is not in the database"] += 1
        return text

    def _reply(self, response: Fields, response_id: str, time: str | None) -> list[SourceMessage]:
        reply = ReplyBuilder(response_id, response.text("resolved_model", "model"), time)
        reply.thinking(response.text("reasoning"))
        reply.text(response.text("response"))
        for row in self._rows("tool_calls", "response_id", response_id):
            reply.call(row.text("name"), row.text("arguments"), row.text("tool_call_id"))
        return reply.messages

    def _files(self, table: str, column: str, value: object) -> list[SourceFile]:
        found = [
            self._file(row.values.get("attachment_id")) for row in self._rows(table, column, value)
        ]
        files = [file for file in found if file is not None]
        if missing := len(found) - len(files):
            self._left_out["file that is not in the database"] += missing
        return files

    def _file(self, attachment_id: object) -> SourceFile | None:
        row = self._row("attachments", "id", attachment_id)
        content = row.values.get("content")
        if not isinstance(content, bytes):
            return None
        return SourceFile(row.text("path"), lambda: content)

    # Tables since 0.32

    def _of_thread(self, thread_id: str) -> SourceConversation:
        self._left_out = Counter()
        head = self._row("threads", "id", thread_id)
        conversation = SourceConversation(
            program="llm",
            source_id=thread_id,
            place=f"threads/{thread_id}",
            title=head.text("name"),
            created_at=head.time("datetime_utc"),
            left_out=self._left_out,
        )
        turns = self._rows("turns", "thread_id", thread_id)
        by_tip = {turn.text("tip_message_hash"): turn for turn in turns}
        hashes: dict[str, Fields] = {}
        at = head.text("tip_message_hash")
        while at and at not in hashes and (row := self._row("messages", "hash", at)).values:
            hashes[at] = row
            at = row.text("parent_hash")
        if at:
            self._left_out["message that is not in the database"] += 1
        for name in reversed(hashes):
            # What a thread has said before it was forked is in a turn of the other one.
            turn = by_tip.get(name) or self._row("turns", "tip_message_hash", name)
            time = turn.time("datetime_utc")
            conversation.updated_at = time or conversation.updated_at
            model = turn.text("resolved_model", "model")
            conversation.model = model or conversation.model
            self._add_message(conversation, name, hashes[name].text("role"), model, time)
        return conversation

    def _add_message(
        self, conversation: SourceConversation, name: str, role: str, model: str, time: str | None
    ) -> None:
        reply = ReplyBuilder(name, model, time)
        for part in self._rows("parts", "message_hash", name, "position"):
            self._add_part(part, role, reply)
        match role:
            case "system":
                texts = (conversation.system_prompt, *(each.text for each in reply.messages))
                conversation.system_prompt = "\n\n".join(filter(None, texts))
                return
            case "user":
                for message in reply.messages:
                    if message.role == "assistant":
                        message.role, message.model = "user", ""
            case "assistant" | "tool":
                pass
            case _:
                conversation.left_out[f"message of the role {role[:40] or 'unknown'}"] += 1
                return
        conversation.append(name, reply.messages)

    def _add_part(self, part: Fields, role: str, reply: ReplyBuilder) -> None:
        payload = self._payload(part)
        match part.text("type"):
            case "text":
                reply.text(self._text_of(part, payload))
            case "reasoning":
                reply.thinking(self._text_of(part, payload))
            case "tool_call":
                call_id = payload.text("tool_call_id")
                reply.call(payload.text("name"), payload.values.get("arguments"), call_id)
            case "tool_result":
                text = payload.text("output", "exception")
                reply.result(text, payload.text("tool_call_id"), payload.text("name"))
            case "attachment":
                file = self._file(payload.object("attachment").values.get("id"))
                if file is None or role == "assistant":
                    self._left_out["file that is not in the database"] += 1
                elif reply.messages:
                    reply.messages[-1].files.append(file)
                else:
                    reply.messages.append(SourceMessage("assistant", files=[file]))
            case kind:
                part.leave_out("content of the type", kind)

    def _payload(self, part: Fields) -> Fields:
        payload: object = part.text("payload") or "{}"
        with suppress(ValueError):
            payload = parse_json(str(payload))
        return Fields({"payload": payload}, self._left_out).object("payload")

    def _text_of(self, part: Fields, payload: Fields) -> str:
        """Return the text of a part, which may consist of fragments and pieces of its own."""
        if "text_ref" not in payload.values:
            return part.text("text") or payload.text("text")
        texts = []
        for piece in payload.objects("text_ref"):
            if "fragment" in piece.values:
                texts.append(self._fragment(piece.values["fragment"]))
            else:
                texts.append(piece.text("literal"))
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
