"""The items of a compacted conversation: what the user said, and one in the place of the rest."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence

import orjson

from mochi_server.core.ids import new_message_id
from mochi_server.errors import InvalidRequest, JSONObject
from mochi_server.protocol.messages import UserMessage
from mochi_server.services.compaction.covered import CoveredHistory
from mochi_server.services.compaction.fitting import note_of
from mochi_server.sessions.types import HistorySummary

from .schemas import InputCompaction, InputFile, InputImage, InputItem, InputMessage


def compaction_item(summary: HistorySummary) -> JSONObject:
    """Return the item of a summary, which a client sends back as it is."""
    content = orjson.dumps({"text": summary.text, "covers": summary.covers})
    return {
        "id": f"cmp_{new_message_id()}",
        "type": "compaction",
        "encrypted_content": base64.urlsafe_b64encode(content).decode(),
    }


def note_in(item: InputCompaction) -> UserMessage:
    """Return the message that stands for what a compaction item covers.

    Raises:
        InvalidRequest: it is none of this server.
    """
    try:
        content = base64.urlsafe_b64decode(item.encrypted_content)
        summary = HistorySummary.model_validate_json(content)
    except ValueError:
        raise InvalidRequest("The compaction item is none of this server.") from None
    note = note_of(CoveredHistory(summary, 0))
    return UserMessage(content=str(note["content"]))


def user_items(items: Sequence[InputItem]) -> Iterator[JSONObject]:
    """Yield what the user says in a request."""
    for item in items:
        if isinstance(item, InputMessage) and item.role == "user":
            yield {
                "id": f"msg_{new_message_id()}",
                "type": "message",
                "role": "user",
                "status": "completed",
                "content": [*_parts(item)],
            }


def _parts(item: InputMessage) -> Iterator[JSONObject]:
    if isinstance(item.content, str):
        yield {"type": "input_text", "text": item.content}
        return
    for part in item.content:
        if isinstance(part, InputImage):
            yield {"type": "input_image", "detail": "auto", "image_url": part.image_url}
        elif isinstance(part, InputFile):
            data = {"file_data": part.file_data, "filename": part.filename}
            yield {"type": "input_file", **data}
        else:
            yield {"type": "input_text", "text": getattr(part, "text", "")}
