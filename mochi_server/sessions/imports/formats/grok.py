"""Conversations of Grok."""

from __future__ import annotations

from typing import Any

from ..conversation import (
    Fields,
    Files,
    Node,
    ReplyBuilder,
    SourceConversation,
    SourceMessage,
    as_object,
)

NAME = "Grok"


def recognises(value: dict[str, Any]) -> bool:
    return "responses" in value and "conversation" in value


def read(source: Fields, files: Files) -> SourceConversation:  # noqa: ARG001 - it has none
    head = source.object("conversation")
    conversation = SourceConversation(
        program="grok",
        source_id=head.any_text("id", "conversation_id"),
        place=source.place,
        title=head.text("title"),
        created_at=head.time("create_time"),
        updated_at=head.time("modify_time"),
        is_pinned=head.values.get("starred") is True,
        shown=head.any_text("leaf_response_id"),
    )
    before: str | None = None
    for number, each in enumerate(source.objects("responses")):
        response = each.object("response")
        key = response.any_text("_id", "response_id") or str(number)
        text, time = response.text("message"), response.time("create_time")
        if response.text("sender").lower() == "human":
            messages = [SourceMessage("user", text, time=time)]
        else:
            model = response.any_text("model") or str(
                as_object(response.object("metadata").values.get("requestModelDetails")).get(
                    "modelId", ""
                )
            )
            reply = ReplyBuilder(key, model, time)
            reply.thinking(response.any_text("thinking_trace"))
            reply.text(text)
            messages = reply.messages
        for kind in ("image_attachments", "file_attachments", "generated_image_urls"):
            if count := len(response.list(kind)):
                conversation.left_out["file that is not in the export"] += count
        parent = response.any_text("parent_response_id") or before
        conversation.nodes[key] = Node(parent, messages)
        before = key
    return conversation
