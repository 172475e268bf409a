"""Conversations of Grok."""

from __future__ import annotations

from typing import Any

from ..conversation import Files, Node, ReplyBuilder, SourceConversation, SourceMessage
from ..fields import Fields

NAME = "Grok"


def recognises(value: dict[str, Any]) -> bool:
    return "responses" in value and "conversation" in value


def read(source: Fields, files: Files) -> SourceConversation:  # noqa: ARG001 - it has none
    head = source.object("conversation")
    conversation = SourceConversation(
        program="grok",
        source_id=head.text("id", "conversation_id"),
        title=head.text("title"),
        created_at=head.time("create_time"),
        updated_at=head.time("modify_time"),
        is_pinned=head.flag("starred"),
        shown=head.text("leaf_response_id"),
        left_out=source.left_out,
    )
    before: str | None = None
    for number, each in enumerate(source.objects("responses")):
        response = each.object("response")
        key = response.text("_id", "response_id") or str(number)
        parent = response.text("parent_response_id") or before
        conversation.nodes[key] = Node(parent, _messages(key, response))
        before = key
    return conversation


def _messages(key: str, response: Fields) -> list[SourceMessage]:
    for kind in ("image_attachments", "file_attachments", "generated_image_urls"):
        if count := len(response.list(kind)):
            response.left_out["file that is not in the export"] += count
    text, time = response.text("message"), response.time("create_time")
    match response.text("sender").lower():
        case "human" | "user":
            return [SourceMessage("user", text, time=time)]
        case "assistant":
            details = response.object("metadata").object("requestModelDetails")
            model = response.text("model") or details.text("modelId")
            reply = ReplyBuilder(key, model, time)
            reply.thinking(response.text("thinking_trace"))
            reply.text(text)
            return reply.messages
        case sender:
            response.leave_out("message of the role", sender)
            return []
