"""Reads the items of a request into messages as sessions have them."""

from __future__ import annotations

from collections.abc import Sequence

from mochi_server.protocol.fold import BETWEEN_REPLIES
from mochi_server.protocol.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolMessage,
)
from mochi_server.sessions.attachments import AttachmentReader, NewAttachment

from ..common.history import FILES_OF_RESULTS, data_url, let_others_run, question_of
from ..openai.history import call_of
from .compaction import note_in
from .schemas import (
    InputCall,
    InputCallOutput,
    InputCompaction,
    InputContent,
    InputFile,
    InputImage,
    InputItem,
    InputMessage,
    InputReasoning,
    InputReference,
    InputRefusal,
)


async def read_items(
    items: Sequence[InputItem], reader: AttachmentReader
) -> tuple[list[Message], list[NewAttachment]]:
    """Return the messages as sessions have them, and the files that they name.

    Calls and thoughts belong to the message of the model beside them.

    Raises:
        InvalidRequest: the arguments of a call are no JSON object; an image is no data URL.
        AttachmentTooLarge, AttachmentUnsupported: of a file.
    """
    history = _HistoryReader(reader)
    async for item in let_others_run(items):
        await history.read(item)
    history.end_results()
    return history.messages, history.files


class _HistoryReader:
    """Makes messages, as sessions have them, of items."""

    def __init__(self, reader: AttachmentReader) -> None:
        self._reader = reader
        self._names: dict[str, str] = {}
        """Names of functions by the ids of their calls."""
        self._of_results: list[NewAttachment] = []
        """Files of the results before, which no message has yet."""
        self._calling = AssistantMessage()
        """The last reply with calls."""
        self._waiting: set[str] = set()
        """Ids of its calls whose results have not come: what the model says before is of it."""
        self.messages: list[Message] = []
        self.files: list[NewAttachment] = []

    async def read(self, item: InputItem) -> None:
        match item:
            case InputCallOutput():
                await self._read_result(item)
            case InputMessage() if item.role != "assistant":
                self._waiting.clear()
                self.end_results()
                await self._read_said(item)
            case InputMessage():
                reply = self._reply(is_open=not self._has_answer())
                reply.content = _joined(reply.content, text_of(item.content))
            case InputReasoning():
                reply = self._reply(is_open=False)
                reply.thinking = _joined(reply.thinking, item.text) or None
            case InputCall():
                self._read_call(item)
            case InputCompaction():
                self._waiting.clear()
                self.end_results()
                self.messages.append(note_in(item))
            case InputReference():  # the session has it
                self._waiting.clear()
                self.end_results()
                self.messages.append(AssistantMessage())
            case _:
                pass

    def end_results(self) -> None:
        """Add the files of the results, which have no place in them."""
        if self._of_results:
            self.messages.append(question_of(FILES_OF_RESULTS, self._of_results))
            self._of_results = []

    async def _read_said(self, item: InputMessage) -> None:
        text = text_of(item.content)
        if item.role == "user":
            self.messages.append(question_of(text, await self._files_of(item.content)))
        else:
            self.messages.append(SystemMessage(content=text))

    def _read_call(self, item: InputCall) -> None:
        call = call_of(item.call_id, item.name, item.arguments)
        self._names[call.id] = call.name
        self._calling = self._reply(is_open=True)
        self._calling.tool_calls = [*(self._calling.tool_calls or ()), call.as_stored()]
        self._waiting.add(call.id)

    async def _read_result(self, item: InputCallOutput) -> None:
        self._waiting.discard(item.call_id)
        result = ToolMessage(
            content=text_of(item.output),
            tool_name=self._names.get(item.call_id),
            tool_call_id=item.call_id,
        )
        self.messages.append(result)
        self._of_results += await self._files_of(item.output)

    async def _files_of(self, content: InputContent) -> list[NewAttachment]:
        """Read the images and files of a content."""
        files: list[NewAttachment] = []
        for part in () if isinstance(content, str) else content:
            if isinstance(part, InputImage):
                files.append(await self._reader.read(data_url(part.image_url, "An image")))
            elif isinstance(part, InputFile):
                files.append(await self._reader.read(part.file_data, name=part.filename))
        self.files += files
        return files

    def _reply(self, *, is_open: bool) -> AssistantMessage:
        """Return the reply of an item: one whose results are to come, or the last if it is open."""
        if self._waiting:
            return self._calling
        self.end_results()
        last = self.messages[-1] if self.messages else None
        if is_open and isinstance(last, AssistantMessage):
            return last
        reply = AssistantMessage()
        self.messages.append(reply)
        return reply

    def _has_answer(self) -> bool:
        last = self.messages[-1] if self.messages else None
        return isinstance(last, AssistantMessage) and bool(last.content or last.tool_calls)


def _joined(*texts: str | None) -> str:
    return BETWEEN_REPLIES.join(filter(None, texts))


def text_of(content: InputContent) -> str:
    if isinstance(content, str):
        return content
    texts = []
    for part in content:
        if isinstance(part, InputRefusal):
            texts.append(part.refusal)
        elif not isinstance(part, InputImage | InputFile):
            texts.append(part.text)
    return "\n".join(texts)
