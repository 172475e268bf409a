"""Makes sessions of the conversations of other programs."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ...core.aio import in_thread, run_to_completion
from ...core.caller import current_caller
from ...errors import (
    AttachmentTooLarge,
    AttachmentUnsupported,
    CannotImport,
    InvalidRequest,
    JSONObject,
    SessionBusy,
    SessionExists,
    SessionNotFound,
    SessionUnreadable,
)
from ...protocol.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolMessage,
    UserMessage,
    now,
)
from ..attachments import MAX_ATTACHMENTS, AttachmentReader, AttachmentStore, NewAttachment
from ..manager import SessionManager
from ..session import ChatSession
from ..storage.base import SESSION_ID
from ..types import FORKED_FROM, IMPORTED_FROM, MAX_TAGS, TAG_CHARACTERS, TITLE_CHARACTERS
from .conversation import SourceConversation, SourceFile, SourceMessage
from .report import ImportedSession, Outcome

UNKNOWN_MODEL: Final = "unknown"
"""Model of a session whose source names none: one must be chosen before the chat goes on."""
ID_DIGITS: Final = 10
FREE_IDS: Final = 2
"""So many free ids in a row end the search for sessions of a conversation."""


@dataclass(slots=True)
class _Branch:
    """A branch as it will be stored."""

    messages: list[Message]
    files: list[tuple[str, SourceFile]] = field(default_factory=list)
    """Those that are taken, with the id of their message."""

    @property
    def digest(self) -> str:
        """What is the same of the same messages in a later export."""
        ids = "\0".join(map(_message_id, self.messages))
        return hashlib.sha256(ids.encode()).hexdigest()[:32]


@dataclass(slots=True)
class _KnownSession:
    """A session that was made of the conversation before."""

    session: ChatSession
    digest: object
    is_matched: bool = False

    def begins(self, branch: _Branch) -> bool:
        """Return whether the branch goes on where this session, which nobody has changed, ends."""
        mine, new = self.session.messages, branch.messages
        return len(mine) < len(new) and all(
            _essence(before) == _essence(after) for before, after in zip(mine, new, strict=False)
        )


def _essence(message: Message) -> tuple[Any, ...]:
    return message.role, getattr(message, "message_id", None), message.text


class ConversationWriter:
    """Stores conversations, each only once.

    The ids of sessions and messages follow from those of the source. So a second import finds what
    the first one has made, also when both go on at the same time.
    """

    def __init__(
        self,
        sessions: SessionManager,
        attachments: AttachmentStore,
        reader: AttachmentReader,
        model: str | None = None,
        *,
        check_model: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        """Take the model of all new sessions; None: the one that the source names."""
        self._sessions, self._attachments, self._reader = sessions, attachments, reader
        self._model, self._check_model = model, check_model

    async def store(self, conversation: SourceConversation) -> list[ImportedSession]:
        """Store a conversation: the branch that is shown, and the others as forks of it.

        A branch that was imported before and has become longer continues its session, unless that
        was changed here; else the branch becomes another session.

        Raises:
            CannotImport: None of its messages can be taken, or a session of it is being used.
            StorageError: It could not be written.
        """
        branches = await _BranchMaker(conversation, self._reader).make()
        if not branches:
            if conversation.left_out:
                what = (f"{count} \u00d7 {kind}" for kind, count in conversation.left_out.items())
                raise CannotImport(f"no message of it can be taken ({', '.join(what)})")
            conversation.left_out["conversation without messages"] += 1
            return []
        for _ in branches:
            if done := await self._store_unless_taken(conversation, branches):
                return done
        return await self._store(conversation, branches)

    async def _store_unless_taken(
        self, conversation: SourceConversation, branches: Sequence[_Branch]
    ) -> list[ImportedSession]:
        """Store a conversation; wait, and return [], if another import makes a session of it."""
        try:
            return await self._store(conversation, branches)
        except SessionExists as error:
            async with self._sessions.storage.lock(str(error.details["session_id"])):
                return []

    async def _store(
        self, conversation: SourceConversation, branches: Sequence[_Branch]
    ) -> list[ImportedSession]:
        source_id = conversation.source_id or branches[0].digest
        key: JSONObject = {"program": conversation.program, "id": source_id}
        stored, free = await self._find(key, len(branches))
        done: list[ImportedSession] = []
        for branch in branches:
            fork = _fork_of(done[0].session_id, branches[0], branch) if done else None
            extra: JSONObject = {IMPORTED_FROM: {**key, "digest": branch.digest, "at": now()}}
            if fork is not None:
                extra[FORKED_FROM] = fork
            known = _find_equal(stored, branch) or _find_beginning(stored, branch)
            if known is not None:
                known.is_matched = True
                done.append(await self._continue(known, branch, extra, fork))
            else:
                session_id = next(free)
                await self._create(session_id, conversation, branch, extra)
                done.append(_imported(session_id, branch, "created", fork))
        return done

    async def _find(
        self, key: JSONObject, branches: int
    ) -> tuple[list[_KnownSession], Iterator[str]]:
        """Return the sessions of a conversation, and ids for as many new ones."""
        stored: list[_KnownSession] = []
        free: list[str] = []
        number = free_in_a_row = 0
        owner = current_caller().owner
        own = () if owner is None else (owner,)  # others may import the same conversation
        while len(free) < branches or free_in_a_row < FREE_IDS:
            session_id = _id_of(key["program"], key["id"], number, *own)
            number += 1
            free_in_a_row += 1
            try:
                session = await self._sessions.get(session_id)
            except SessionNotFound:
                free.append(session_id)
                continue
            except SessionUnreadable:
                free_in_a_row = 0
                continue
            free_in_a_row = 0
            origin = session.metadata.optional(IMPORTED_FROM)
            if isinstance(origin, dict) and key.items() <= origin.items():
                stored.append(_KnownSession(session, origin.get("digest")))
        return stored, iter(free)

    async def _continue(
        self, known: _KnownSession, branch: _Branch, extra: JSONObject, fork: JSONObject | None
    ) -> ImportedSession:
        """Add to a session what it has not yet; nothing if the branch is no longer than before."""
        session = known.session
        if known.digest == branch.digest:
            return _imported(session.session_id, session, "unchanged", fork)
        start = len(session.messages)
        new = branch.messages[start:]
        await self._sessions.take_space_for(new)
        ids = {_message_id(message) for message in new}
        await self._keep_files(session.session_id, branch, ids)
        try:
            async with self._sessions.edit(session.session_id, exclusive=True) as changed:
                if len(changed.messages) == start:
                    changed.append(*new)
                    changed.metadata.set_optional(IMPORTED_FROM, extra[IMPORTED_FROM])
        except SessionBusy as error:
            raise CannotImport(f"its session {session.session_id} is being used") from error
        return _imported(session.session_id, branch, "continued", fork)

    async def _create(
        self, session_id: str, conversation: SourceConversation, branch: _Branch, extra: JSONObject
    ) -> None:
        replies = (each.model for each in branch.messages if isinstance(each, AssistantMessage))
        last = next(filter(None, reversed([*replies])), None)
        created = conversation.created_at or _time_of(branch.messages[0])
        updated = conversation.updated_at or _time_of(branch.messages[-1])
        model = self._model or conversation.model or last or UNKNOWN_MODEL
        if self._check_model is not None:
            await self._check_model(model)

        def prepare(session: ChatSession) -> None:
            session.metadata.created_at = created
            session.metadata.updated_at = updated
            for key, value in extra.items():
                session.metadata.set_optional(key, value)
            session.append(*branch.messages)

        async def create() -> None:
            # First: a session that is there is not imported again, with or without its files.
            await self._keep_files(session_id, branch)
            await self._sessions.create(
                model,
                session_id=session_id,
                labels={
                    "title": " ".join(conversation.title.split())[:TITLE_CHARACTERS],
                    "tags": [tag[:TAG_CHARACTERS] for tag in conversation.tags[:MAX_TAGS]],
                    "pinned": conversation.is_pinned,
                    "archived": conversation.is_archived,
                },
                prepare=prepare,
            )

        await run_to_completion(create())

    async def _keep_files(
        self, session_id: str, branch: _Branch, only: Container[str] | None = None
    ) -> None:
        """Keep the files of all messages, or only of those with these ids."""
        for message_id, file in branch.files:
            if only is None or message_id in only:
                attachment = await read_file(file, self._reader)
                await self._attachments.keep(session_id, [attachment])


def _find_equal(stored: Sequence[_KnownSession], branch: _Branch) -> _KnownSession | None:
    return next((each for each in stored if each.digest == branch.digest), None)


def _find_beginning(stored: Sequence[_KnownSession], branch: _Branch) -> _KnownSession | None:
    return next((each for each in stored if not each.is_matched and each.begins(branch)), None)


def _fork_of(session_id: str, shown: _Branch, branch: _Branch) -> JSONObject:
    """Return what a fork says of the session that it is of."""
    last: str | None = None
    for one, other in zip(shown.messages, branch.messages, strict=False):
        if _essence(one) != _essence(other):
            break
        last = _message_id(one)
    return {"session_id": session_id, "message_id": last}


def _imported(
    session_id: str, what: _Branch | ChatSession, outcome: Outcome, fork: JSONObject | None
) -> ImportedSession:
    return ImportedSession(
        session_id=session_id,
        message_count=len(what.messages),
        outcome=outcome,
        forked_from=None if fork is None else str(fork["session_id"]),
    )


def _message_id(message: Message) -> str:
    return str(getattr(message, "message_id", None))


def _time_of(message: Message) -> str:
    return str(getattr(message, "timestamp", None) or now())


def _id_of(*parts: object) -> str:
    """Return an id that follows from the parts."""
    text = "\0".join(map(str, parts))
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:ID_DIGITS]


async def read_file(file: SourceFile, reader: AttachmentReader) -> NewAttachment:
    """Return a file of an export as an attachment.

    Raises:
        CannotImport: It cannot be read.
        MochiError: As ``AttachmentReader.read``.
    """
    return await reader.read(await in_thread(file.read), name=file.name)


class _BranchMaker:
    """Makes the messages of all branches of one conversation."""

    def __init__(self, conversation: SourceConversation, reader: AttachmentReader) -> None:
        self._conversation, self._reader = conversation, reader
        self._entries: dict[int, JSONObject | None] = {}
        """What messages say of a file, by the id of its object; None of one that is left out."""

    async def make(self) -> list[_Branch]:
        branches = []
        for path in await in_thread(lambda: [*self._conversation.branches()]):
            branch = _Branch([])
            if prompt := self._conversation.system_prompt:
                message_id = self._id("system", 0, prompt)
                time = self._conversation.created_at or _first_time(path)
                branch.messages.append(
                    SystemMessage(content=prompt, message_id=message_id, timestamp=time)
                )
            await self._add(branch, path)
            branches.append(branch)
        return branches

    async def _add(self, branch: _Branch, path: Sequence[tuple[str, SourceMessage]]) -> None:
        time = self._conversation.created_at or _first_time(path)
        counts: Counter[str] = Counter()
        for key, source in path:
            time = source.time or time
            counts[key] += 1
            message_id = source.message_id
            if not SESSION_ID.fullmatch(message_id):
                message_id = self._id(key, counts[key], f"{source.role}\0{source.text}")
            entries = await self._files(branch, message_id, source.files)
            branch.messages.append(_message_of(source, message_id, time, entries))

    def _id(self, key: str, number: int, text: str) -> str:
        conversation = self._conversation
        return _id_of(conversation.program, conversation.source_id, key, number, text)

    async def _files(
        self, branch: _Branch, message_id: str, files: Sequence[SourceFile]
    ) -> list[JSONObject]:
        entries = []
        left_out = self._conversation.left_out
        if len(files) > MAX_ATTACHMENTS:
            left_out["file beyond the twentieth of a message"] += len(files) - MAX_ATTACHMENTS
        for file in files[:MAX_ATTACHMENTS]:
            if id(file) not in self._entries:
                self._entries[id(file)] = await self._entry(file)
            if (entry := self._entries[id(file)]) is not None:
                entries.append(entry)
                branch.files.append((message_id, file))
        return entries

    async def _entry(self, file: SourceFile) -> JSONObject | None:
        left_out = self._conversation.left_out
        try:
            attachment = await read_file(file, self._reader)
        except AttachmentTooLarge:
            left_out["file that is too large"] += 1
        except (AttachmentUnsupported, InvalidRequest):
            left_out["file that models cannot read"] += 1
        except CannotImport:
            left_out["file that is damaged"] += 1
        else:
            return attachment.described().payload()
        return None


def _first_time(path: Sequence[tuple[str, SourceMessage]]) -> str:
    return next((message.time for _, message in path if message.time), None) or now()


def _message_of(
    source: SourceMessage, message_id: str, time: str, entries: list[JSONObject]
) -> Message:
    common: dict[str, Any] = {
        "content": source.text, "message_id": message_id, "timestamp": time
    }  # fmt: skip
    optional: dict[str, Any] = {}
    if source.role == "assistant":
        if source.thinking:
            optional["thinking"] = source.thinking
        if source.calls:
            optional["tool_calls"] = [call.as_stored() for call in source.calls]
        if source.is_partial:
            optional["interrupted"] = True
        return AssistantMessage(**common, model=source.model or None, **optional)
    if entries:
        optional["attachments"] = entries
    if source.role == "tool":
        if source.tool_call_id:
            optional["tool_call_id"] = source.tool_call_id
        return ToolMessage(**common, tool_name=source.tool_name or None, **optional)
    return UserMessage(**common, **optional)
