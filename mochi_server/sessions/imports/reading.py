"""What an export contains: recognises its format by its content, and reads it piece by piece."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol, TypeAlias

from ...core.progress import Advance
from ...errors import CannotImport, JSONObject
from .archive import MAGIC as ARCHIVE_MAGIC
from .archive import Archive
from .conversation import Files, SourceConversation, SourceFile
from .fields import Fields, LeftOut
from .formats import chat_messages, chatgpt, claude, grok, librechat, llm_logs, open_webui
from .json_values import JSONItem, JSONValues


class Format(Protocol):
    """A module of ``formats``."""

    NAME: str

    def recognises(self, value: dict[str, Any], /) -> bool: ...
    def read(self, source: Fields, files: Files, /) -> SourceConversation: ...


FORMATS: Final[tuple[Format, ...]] = (
    chatgpt, claude, open_webui, librechat, grok, chat_messages
)  # fmt: skip
"""The first that recognises a conversation reads it."""

NAMES: Final = ", ".join(
    ["sessions of mochi-server", *(each.NAME for each in FORMATS), llm_logs.NAME]
)


@dataclass(frozen=True, slots=True)
class SessionFile:
    """A session as mochi-server stores it."""

    content: bytes
    place: str
    files: Files
    """Those beside it."""


Item: TypeAlias = SourceConversation | SessionFile | LeftOut | CannotImport
"""What an export contains; an error stands for a conversation that cannot be read."""


class _NoFiles:
    def find(self, file_id: str) -> SourceFile | None:  # noqa: ARG002 - there are none
        return None


def read_export(
    path: Path, *, limit: int, max_file_bytes: int, advance: Advance
) -> Generator[Item, None, None]:
    """Yield what a file contains, one conversation in memory at a time.

    Args:
        path: The file.
        limit: Bytes of one conversation.
        max_file_bytes: Of a file that belongs to a message.
        advance: Takes how many bytes are done, and of how many.

    Raises:
        CannotImport: It is of no known format, or damaged from somewhere on.
        OSError: It cannot be read.
    """
    with path.open("rb") as file:
        head = file.read(16)
        size = file.seek(0, 2)
        file.seek(0)
        if head == llm_logs.MAGIC:
            yield from _database(path, size, advance)
        elif head.startswith(ARCHIVE_MAGIC):
            yield from _archive(file, limit, max_file_bytes, advance)
        else:
            stream = JSONValues(file, limit, lambda done: advance(done, size))
            yield from _ConversationReader(_NoFiles()).items(stream)


def _database(path: Path, size: int, advance: Advance) -> Iterator[Item]:
    try:
        for share, item in llm_logs.read_all(path):
            yield item
            advance(int(share * size), size)
    except CannotImport as error:
        raise CannotImport(error.reason, place=error.place, program=llm_logs.NAME) from error


def _archive(file: BinaryIO, limit: int, max_file_bytes: int, advance: Advance) -> Iterator[Item]:
    archive = Archive(file, max_file_bytes)
    if not archive.conversations:
        raise CannotImport("the archive has no conversations.json")
    total = sum(info.file_size for info in archive.conversations)
    before = 0
    for info in archive.conversations:
        progress = _shifted(advance, before, total)
        with archive.open(info) as member:
            yield from _ConversationReader(archive, f"{info.filename}#").items(
                JSONValues(member, limit, progress)
            )
        before += info.file_size
    if archive.unused:
        yield Counter({"other file of the archive": archive.unused})


def _shifted(advance: Advance, before: int, total: int) -> Callable[[int], object]:
    return lambda done: advance(before + done, total)


class _ConversationReader:
    """Reads the JSON values of one file."""

    def __init__(self, files: Files, prefix: str = "") -> None:
        """Begin before the first value.

        Args:
            files: Those beside the conversations.
            prefix: What places begin with.
        """
        self._files, self._prefix = files, prefix
        self._name = ""
        """Of the format, as soon as it is known."""
        self._unknown: LeftOut = Counter()

    def items(self, values: JSONValues) -> Iterator[Item]:
        messages: list[JSONObject] = []
        try:
            for item in values:
                if isinstance(item, CannotImport):
                    if messages:  # without it, the conversation would be another one
                        raise item
                    yield self._error(item)
                elif chat_messages.is_message(item.value):
                    self._name = chat_messages.NAME
                    messages.append(item.value)
                else:
                    yield from self._conversations(item)
            if messages:
                yield self._placed(chat_messages.read_lines(messages), "")
        except CannotImport as error:
            raise self._error(error) from error
        if not self._name:
            raise CannotImport(f"it is of no known format ({NAMES})", place=self._prefix)
        yield self._unknown

    def _conversations(self, item: JSONItem) -> Iterator[Item]:
        value = item.value
        if not isinstance(value, dict):
            self._unknown["entry that is no conversation"] += 1
        elif item.content and "metadata" in value:
            self._name = "mochi-server"
            yield SessionFile(item.content, self._prefix, self._files)
        elif isinstance(inner := value.get("conversations"), list):
            for index, each in enumerate(inner):
                yield from self._conversations(JSONItem(each, f"/conversations/{index}"))
        elif (known := next((each for each in FORMATS if each.recognises(value)), None)) is None:
            self._unknown["entry that is no conversation"] += 1
        else:
            self._name = known.NAME
            yield self._placed(known.read(Fields(value), self._files), item.place)

    def _placed(self, conversation: SourceConversation, place: str) -> SourceConversation:
        conversation.place = self._prefix + place
        return conversation

    def _error(self, error: CannotImport) -> CannotImport:
        return CannotImport(error.reason, place=self._prefix + error.place, program=self._name)
