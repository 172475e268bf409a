"""What of a conversation a summary is about, and the form of one."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, Field

from ..sessions import ChatSession
from ..sessions.types import ConversationSummary

SUMMARY_CHARACTERS: Final = 1000
MOST_TOPICS: Final = 8
TOPIC_CHARACTERS: Final = 60


def _bounded(text: str) -> str:
    text = " ".join(text.split())
    if not text:
        raise ValueError("must not be blank")
    return cut(text, SUMMARY_CHARACTERS)


def _distinct(topics: list[str]) -> list[str]:
    found = (cut(" ".join(topic.split()), TOPIC_CHARACTERS) for topic in topics)
    by_name = {topic.casefold(): topic for topic in reversed([*found]) if topic}
    return [*reversed(by_name.values())][:MOST_TOPICS]


class SummaryReply(BaseModel):
    """A summary of the conversation."""

    # The bounds of the schema keep a model that cannot stop from being cut; one that is not held
    # to them by a grammar is not refused for a longer text.
    summary: Annotated[str, AfterValidator(_bounded)] = Field(
        description="Two to five sentences.",
        json_schema_extra={"minLength": 1, "maxLength": SUMMARY_CHARACTERS},
    )
    topics: Annotated[
        list[Annotated[str, Field(json_schema_extra={"maxLength": TOPIC_CHARACTERS})]],
        AfterValidator(_distinct),
    ] = Field(description="The topics.", json_schema_extra={"minItems": 1, "maxItems": MOST_TOPICS})


def cut(text: str, characters: int) -> str:
    """The beginning of a longer text, up to a word's end, and ``...``."""
    if len(text) <= characters:
        return text
    text = text[: characters - 3]
    return f"{text[: text.rfind(' ', characters // 2)] if ' ' in text else text}..."


@dataclass(frozen=True, slots=True)
class Said:
    """Something that a person or a model said."""

    message_id: str | None
    role: str
    text: str
    digest: str
    """Of this and all that was said before it: equal as long as nothing of it was changed."""


def said(session: ChatSession) -> list[Said]:
    """What people and models said, in order: no system prompt, no calls and results of tools."""
    running = hashlib.blake2b(digest_size=8)
    found = []
    for message in session.stored_messages():
        text = text_of(message)
        if text is not None and isinstance(message, dict):
            role = str(message["role"])
            running.update(f"{role}\0{text}\0".encode("utf-8", "surrogatepass"))
            digest = running.copy().hexdigest()
            found.append(Said(id_of(message), role, text, digest))
    return found


def id_of(message: object) -> str | None:
    """The stored message's id, which old files may lack."""
    found = message.get("message_id") if isinstance(message, dict) else None
    return found if isinstance(found, str) else None


def text_of(message: object) -> str | None:
    """What the stored message says; None for what is no part of the conversation."""
    if not isinstance(message, dict) or message.get("role") not in {"user", "assistant"}:
        return None
    content = message.get("content")
    return content if isinstance(content, str) and content.strip() else None


def covered(summary: ConversationSummary | None, entries: Sequence[Said]) -> int:
    """How many of the entries the summary is about; 0 where they have changed, or nobody knows."""
    digest = (summary.model_extra or {}).get("covers") if summary is not None else None
    return next((n for n, entry in enumerate(entries, start=1) if entry.digest == digest), 0)


def is_finished(session: ChatSession) -> bool:
    """Whether there is something to summarise: the model has had the last word, and a whole one."""
    if len(session.messages) < 2:  # noqa: PLR2004 - a question and its answer
        return False
    last = next(session.tail())
    if not isinstance(last, dict) or last.get("role") != "assistant":
        return False
    return not last.get("tool_calls") and not last.get("interrupted")
