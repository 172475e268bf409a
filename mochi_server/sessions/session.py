"""One conversation in memory, and the changes of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import orjson
from pydantic import JsonValue

from ..constants import FORMAT_VERSION
from ..errors import (
    AttachmentNotFound,
    EmptyHistory,
    InvalidMessageIndex,
    JSONObject,
    MessageNotFound,
    SessionUnreadable,
)
from ..protocol.messages import Message, SystemMessage, now
from .attachments import attachments_of
from .codec import TOO_DEEP, Document, encode, id_of, is_bottomless, is_user
from .messages import StoredMessageLines, encode_messages
from .types import HISTORY_SUMMARY, SUMMARY_DRAFT, SessionMetadata
from .variants import (
    REPLACED,
    VARIANTS,
    Branch,
    Variant,
    identified,
    is_replaced,
    is_storable,
    main_id,
    main_message,
    marked,
    reachable,
    read_branches,
    split_branch,
    with_id,
    with_question,
)
from .versions import NotMetadata, read_metadata

_BOOKKEEPING = ("updated_at", "message_count", "format_version")


class ChatSession(StoredMessageLines):
    """A session: ``metadata`` to read and set, ``messages`` to read.

    Changes reach the disk by ``SessionManager.edit``. Messages of unknown roles, and list items
    that are no objects, are kept as they are.
    """

    def __init__(self, metadata: SessionMetadata, document: Document | None = None) -> None:
        self.metadata = metadata
        super().__init__(document.lines if document else ())
        self._rest = document.rest if document else b"{}"
        self._stored_head = document.head if document else b"{}"
        self._messages_changed = False
        self.metadata.message_count = len(self._lines)

    def __repr__(self) -> str:
        return f"<ChatSession {self.session_id} of {len(self._lines)} messages>"

    @property
    def session_id(self) -> str:
        return self.metadata.session_id

    @property
    def changed(self) -> bool:
        return self._messages_changed or self._has_other_metadata()

    def _has_other_metadata(self, *ignored: str) -> bool:
        """Return whether the metadata differ from those that are stored, apart from some keys."""
        stored = read_metadata(orjson.loads(self._stored_head), self.session_id)
        before, present = (
            each.model_dump(mode="json", exclude={*_BOOKKEEPING, *ignored})
            for each in (stored, self.metadata)
        )
        return before != present

    # Changes

    def append(self, *messages: Message) -> None:
        self.extend(encode_messages(messages))

    def extend(self, lines: Iterable[bytes]) -> None:
        self._lines += lines
        self._changed_messages()

    def edit_user_message(
        self, index: int, content: str, attachments: Sequence[str] | None = None
    ) -> None:
        """Replace a user message's text and time, and remove all messages after it.

        Its id stays. The index counts the system message. What was there before is kept as a
        variant until the message has a complete answer. ``attachments``: ids of those that it
        keeps; None: all.

        Raises:
            AttachmentNotFound: it has no attachment with one of the ids.
            InvalidMessageIndex: out of range (negative ones are), or not a user message.
            SessionUnreadable: it is nested so deeply that it cannot be written anew.
        """
        if not 0 <= index < len(self._lines):
            raise InvalidMessageIndex(
                f"Index {index} is out of range: session {self.session_id!r} has "
                f"{len(self._lines)} messages, and the first one has the index 0.",
                details={"index": index, "session_id": self.session_id},
            )
        message = self.stored(index)
        if not is_user(message):
            raise InvalidMessageIndex(index=index, session_id=self.session_id)
        self._check_depth(index)
        message = before = with_id(message)
        if attachments is not None:
            message = self._with_attachments(message, attachments)
        branches, key = self._branches(), str(id_of(message))
        answers = [*branches.pop(key, []), identified(self._after(index))]
        versions = [with_question(each, before) for each in answers if each]
        branches[key] = [marked(each, key, replaced=True) for each in versions if is_storable(each)]
        self.forget_summary_from(index)
        self._lines[index:] = [encode({**message, "content": content, "timestamp": now()})]
        self._set_reachable(branches)

    def replace_messages(self, changes: Mapping[int, JSONObject | None]) -> None:
        """Replace messages by their indexes; None removes one.

        Raises:
            SessionUnreadable: one is nested so deeply that it cannot be written anew.
        """
        for index, message in changes.items():
            if message is not None:
                self._check_depth(index)
        self.forget_summary_from(min(changes, default=len(self._lines)))
        lines: list[bytes] = []
        for index, line in enumerate(self._lines):
            changed = changes.get(index)
            if changed is not None:
                lines.append(encode(changed))
            elif index not in changes:
                lines.append(line)
        self._lines = lines
        self._changed_messages()
        if branches := self._branches():
            self._set_reachable(branches)

    def _check_depth(self, index: int) -> None:
        if is_bottomless(self._lines[index]):
            reason = f"message {index} is {TOO_DEEP}"
            raise SessionUnreadable(session_id=self.session_id, reason=reason)

    def forget_summary_from(self, index: int) -> None:
        """Remove the summary of the oldest messages if it covers one that is at an index or behind.

        It would hold the text of a message that the session does not have any more.
        """
        if (summary := self.metadata.history_summary) is None:
            return
        last = summary.through_message_id
        marks = b"" if last is None else last.encode()
        lines = (line for line in reversed(self._lines[:index]) if marks in line)
        if last is None or not any(id_of(orjson.loads(line)) == last for line in lines):
            self.metadata.history_summary = None

    def _with_attachments(self, message: JSONObject, ids: Sequence[str]) -> JSONObject:
        """Return a message with those of its attachments that have one of the ids."""
        present = [*attachments_of(message)]
        known = [each["attachment_id"] for each in present]
        if unknown := [each for each in ids if each not in known]:
            raise AttachmentNotFound(session_id=self.session_id, attachment_id=unknown[0])
        others = {key: value for key, value in message.items() if key != "attachments"}
        kept: list[JsonValue] = [each for each in present if each["attachment_id"] in ids]
        return {**others, "attachments": kept} if kept else others

    def truncate_after_last_user(self) -> int:
        """Remove what follows the last user message, and return the index of that message.

        Raises:
            EmptyHistory: there is no such message.
        """
        index, _ = self._last_question()
        if index + 1 < len(self._lines):
            self.forget_summary_from(index + 1)
            del self._lines[index + 1 :]
            self._changed_messages()
        return index

    def _last_question(self) -> tuple[int, JSONObject]:
        for question in self._questions_from_last():
            return question
        raise EmptyHistory(session_id=self.session_id)

    def _after(self, index: int) -> Branch:
        return [orjson.loads(line) for line in self._lines[index + 1 :]]

    # Variants

    def _branches(self) -> dict[str, list[Branch]]:
        return read_branches(orjson.loads(self._rest).get(VARIANTS))

    def set_aside_answer(self, *, keep: bool) -> None:
        """Make a variant of what follows the last user message, as something takes its place.

        Args:
            keep: Keep it for good; else until the message has another complete answer.

        Raises:
            EmptyHistory: there is no such message.
            SessionUnreadable: what is kept for good is nested too deeply.
        """
        index, question = self._last_question()
        if keep or is_storable(self._after(index)):
            self._set_aside(index, question, replaced=not keep)
        self.truncate_after_last_user()

    def _set_aside(self, index: int, question: JSONObject, *, replaced: bool = False) -> None:
        """Keep what follows a user's message as a variant."""
        branch = identified(self._after(index))
        if not branch:
            return
        if not is_storable(branch):
            reason = f"a message after {index} is {TOO_DEEP}"
            raise SessionUnreadable(session_id=self.session_id, reason=reason)
        question = with_id(question)
        branches, key = self._branches(), str(id_of(question))
        branches.setdefault(key, []).append(marked(branch, key, replaced=replaced))
        self._lines[index] = encode(question)
        self._set_branches(branches)

    def settle_variants(self, *, keep: bool) -> None:
        """Remove what was kept until the last user message had an answer; or keep it for good."""
        if f'"{REPLACED}"'.encode() not in self._rest:
            return
        branches, key = self._branches(), id_of(self.last_user_message) or ""
        kept = branches.get(key, [])
        if any(is_replaced(each, key) for each in kept):
            branches[key] = [
                marked(each, key, replaced=False)
                for each in kept
                if keep or not is_replaced(each, key)
            ]
            self._set_reachable(branches)

    def _set_reachable(self, branches: dict[str, list[Branch]]) -> None:
        """Keep those branches whose user's message is shown, or is in another one."""
        shown = (id_of(orjson.loads(line)) for line in self._lines if b'"user"' in line)
        self._set_branches(reachable(branches, filter(None, shown)))

    def _set_branches(self, branches: dict[str, list[Branch]]) -> None:
        rest = orjson.loads(self._rest)
        rest.pop(VARIANTS, None)
        if kept := {message_id: each for message_id, each in branches.items() if each}:
            rest[VARIANTS] = kept
        self._rest = encode(rest)
        self._changed_messages()

    def _branching(self) -> Iterator[tuple[int, JSONObject, list[Branch]]]:
        """Yield the user's messages with kept branches, each with its index and these."""
        if not (branches := self._branches()):
            return
        for index, line in enumerate(self._lines):
            message = orjson.loads(line) if b'"user"' in line else None
            if is_user(message) and (kept := branches.get(id_of(message) or "")):
                yield index, message, kept

    def variants(self) -> list[tuple[str, list[Variant]]]:
        """Return the answers to each user's message that has several, the oldest first.

        Each is the id of the message, and the answers, of which at most one is shown.
        """
        found = []
        for index, message, kept in self._branching():
            shown = self._after(index)
            key = id_of(message)
            answers = [Variant.of(branch, shown=False, to=key) for branch in kept]
            if main_message(shown) is not None:
                answers.append(Variant.of(shown, shown=True))
            answers.sort(key=lambda each: each.created_at or "")
            found.append((str(key), answers))
        return found

    def select_variant(self, message_id: str) -> None:
        """Show a kept answer, and what followed it, in the place of the one that is shown.

        That one is kept, with all that follows it.

        Raises:
            MessageNotFound: no answer of this id is kept for a message of the session.
            SessionUnreadable: what is shown is nested too deeply to be kept.
        """
        for index, message, kept in self._branching():
            for branch in kept:
                if main_id(branch, id_of(message)) == message_id:
                    self._show(index, message, branch)
                    return
        for _, answers in self.variants():
            if any(each.shown and each.message_id == message_id for each in answers):
                return
        raise MessageNotFound(session_id=self.session_id, message_id=message_id)

    def _show(self, index: int, question: JSONObject, branch: Branch) -> None:
        """Show a kept branch, with the version of the user's message that it is an answer to."""
        self._set_aside(index, question)
        branches, key = self._branches(), str(id_of(question))
        branches[key].remove(branch)
        version, rest = split_branch(marked(branch, key, replaced=False), key)
        if version is not None:
            branches[key] = [with_question(each, question) for each in branches[key]]
        self.forget_summary_from(index)
        self._lines[index:] = map(encode, [version or question, *rest])
        self._set_branches(branches)

    def set_system_prompt(self, content: str, source_file: str | None = None) -> None:
        line = encode(SystemMessage(content=content, source_file=source_file).as_stored())
        self._lines[: int(self._has_system_prompt())] = [line]
        self._changed_messages()

    def remove_system_prompt(self) -> bool:
        """Remove the system message, and return whether there was one."""
        if has_prompt := self._has_system_prompt():
            del self._lines[0]
            self._changed_messages()
        return has_prompt

    def _changed_messages(self) -> None:
        self._messages_changed = True
        self.metadata.message_count = len(self._lines)

    # To and from the file

    def touch(self) -> None:
        """Set the time of the change and the version of the format, before a save.

        A new summary, or a part of one, does not change the time: no message was added, and the
        session keeps its place in the list.
        """
        if self._messages_changed or self._has_other_metadata(
            "summary", SUMMARY_DRAFT, HISTORY_SUMMARY
        ):
            self.metadata.updated_at = now()
        self.metadata.format_version = FORMAT_VERSION
        self.metadata.message_count = len(self._lines)

    def document(self) -> Document:
        return Document(
            encode(self.metadata.model_dump(mode="json")), list(self._lines), self._rest
        )

    def saved(self, document: Document) -> None:
        """Note that the session is stored as this document."""
        self._stored_head = document.head
        self._messages_changed = False

    @classmethod
    def from_document(cls, document: Document, session_id: str | None = None) -> ChatSession:
        """Make a session from the parts of its file, which stay unchanged.

        Raises:
            SessionUnreadable: the metadata are of a shape that no version has.
        """
        try:
            return cls(read_metadata(orjson.loads(document.head), session_id), document)
        except NotMetadata as error:
            raise SessionUnreadable(session_id=session_id, reason=str(error)) from error
