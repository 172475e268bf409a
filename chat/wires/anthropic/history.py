"""Reads the conversation of a request."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence

import orjson

from mochi_server.errors import InvalidRequest, JSONObject
from mochi_server.protocol.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from mochi_server.sessions.attachments import AttachmentReader, NewAttachment

from ..common.history import FILES_OF_RESULTS, let_others_run, question_of, reply_of
from .schemas import (
    AnyTurn,
    CompactionBlock,
    ContentSource,
    DocumentBlock,
    ImageBlock,
    OtherBlock,
    RedactedThinkingBlock,
    ReplyTurn,
    SearchResultBlock,
    SystemTurn,
    TextBlock,
    TextSource,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UrlSource,
    UserBlock,
    UserTurn,
)

_DATA = "mochi:"
"""Before data of our own in a block ``redacted_thinking``."""


def block_of_data(data: JSONObject) -> JSONObject:
    """Return the block that carries what a model's provider wants back with its reply."""
    encoded = base64.b64encode(orjson.dumps(data)).decode()
    return {"type": "redacted_thinking", "data": f"{_DATA}{encoded}"}


def _data_of(block: RedactedThinkingBlock) -> JSONObject | None:
    """Return what ``block_of_data`` was given; None of a block of Anthropic's."""
    if not block.data.startswith(_DATA):
        return None
    try:
        data = orjson.loads(base64.b64decode(block.data.removeprefix(_DATA), validate=True))
    except (binascii.Error, orjson.JSONDecodeError) as error:
        raise InvalidRequest("The data of a block redacted_thinking is damaged.") from error
    return data if isinstance(data, dict) else None


class HistoryReader:
    """Makes messages, as sessions have them, of a conversation."""

    def __init__(self, reader: AttachmentReader) -> None:
        self._reader = reader
        self._names: dict[str, str] = {}
        """Names of the tools by the ids of their calls."""
        self.messages: list[Message] = []
        self.files: list[NewAttachment] = []
        """The files that the messages name."""
        self.ignored: set[str] = set()
        """Types of the blocks that are left out."""

    async def read(
        self, system: str | Sequence[TextBlock] | None, turns: Sequence[AnyTurn]
    ) -> None:
        """Read a conversation.

        Raises:
            InvalidRequest: an image or a document is a URL.
            AttachmentTooLarge, AttachmentUnsupported: of a file.
        """
        if system:
            self.messages.append(SystemMessage(content=_text(system)))
        async for turn in let_others_run(turns):
            match turn:
                case SystemTurn():
                    self.messages.append(SystemMessage(content=_text(turn.content)))
                case UserTurn(content=str() as text):
                    self.messages.append(UserMessage(content=text))
                case UserTurn():
                    await self._read_question(turn.content)
                case ReplyTurn():
                    self._read_reply(turn)

    async def _read_question(self, blocks: str | Sequence[UserBlock]) -> None:
        """Add results first, then what the user says; the files of both belong to the latter."""
        texts: list[str] = []
        files: list[NewAttachment] = []
        has_results = False
        for block in blocks:
            if isinstance(block, ToolResultBlock):
                files += await self._read_result(block)
                has_results = True
            elif isinstance(block, str | TextBlock | SearchResultBlock):
                texts.append(_text_of(block))
            else:
                files += await self._files(block)
        if has_results and not texts and not files:
            return
        text = "\n".join(texts)
        said = text if text or not has_results else FILES_OF_RESULTS
        self.messages.append(question_of(said, files))
        self.files += files

    async def _read_result(self, block: ToolResultBlock) -> list[NewAttachment]:
        """Add the result of a call; return its files, which its message cannot have."""
        content = block.content or ""
        files: list[NewAttachment] = []
        texts: list[str] = []
        for part in [content] if isinstance(content, str) else content:
            if isinstance(part, str | TextBlock | SearchResultBlock):
                texts.append(_text_of(part))
            else:
                files += await self._files(part)
        text = "\n".join(texts)
        result = ToolMessage(
            content=f"Error: {text}" if block.is_error else text,
            tool_name=self._names.get(block.tool_use_id),
            tool_call_id=block.tool_use_id,
        )
        self.messages.append(result)
        return files

    async def _files(self, block: ImageBlock | DocumentBlock) -> list[NewAttachment]:
        """Return the files of a block; a document in parts is a text, and its images."""
        source, name = block.source, block.title if isinstance(block, DocumentBlock) else None
        if isinstance(source, UrlSource):
            raise InvalidRequest(
                f"The {block.type} must be in the request: the server fetches none."
            )
        if isinstance(source, ContentSource):
            text = "\n\n".join(source.texts).encode()
            texts = [text] if text else []
            files = [await self._reader.read(each, name=name) for each in texts]
            for image in source.images:
                files += await self._files(image)
            return files
        content = source.data.encode() if isinstance(source, TextSource) else source.data
        return [await self._reader.read(content, name=name, media_type=source.media_type)]

    def _read_reply(self, turn: ReplyTurn) -> None:
        if isinstance(turn.content, str):
            self.messages.append(AssistantMessage(content=turn.content))
            return
        texts, thoughts, calls = [], [], []
        data: JSONObject | None = None
        for block in turn.content:
            match block:
                case TextBlock() | CompactionBlock():
                    texts.append(block.text)
                case ThinkingBlock():
                    thoughts.append(block.thinking)
                case RedactedThinkingBlock():
                    data = _data_of(block) or data
                case ToolUseBlock():
                    calls.append(ToolCall(id=block.id, name=block.name, arguments=block.input))
                    self._names[block.id] = block.name
                case OtherBlock():
                    self.ignored.add(block.type)
        reply = reply_of("".join(texts), calls, "".join(thoughts))
        if data:
            reply.provider_data = data
        self.messages.append(reply)


def _text(content: str | Sequence[TextBlock]) -> str:
    if isinstance(content, str):
        return content
    return "\n\n".join(block.text for block in content)


def _text_of(block: str | TextBlock | SearchResultBlock) -> str:
    if isinstance(block, str):
        return block
    if isinstance(block, TextBlock):
        return block.text
    return "\n".join([f"{block.title} ({block.source}):", *(part.text for part in block.content)])
