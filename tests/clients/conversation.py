"""A conversation by the client that openapi-python-client makes; prints what the test asks for."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
import sys
from collections.abc import Iterator
from typing import Any

import generated
from generated import AuthenticatedClient
from generated.api.chat import chat, confirm_tool, stream_chat
from generated.api.files import upload_attachment
from generated.api.sessions import create_session, patch_session, read_session
from generated.models import (
    AssistantMessage,
    ChatRequest,
    ConfirmRequest,
    ContentDeltaEvent,
    Error,
    FileUpload,
    MessageCompleteEvent,
    SessionCreate,
    SessionPatch,
    ToolCallConfirmationRequiredEvent,
    ToolResultEvent,
    ToolSettingsBody,
)

for module in pkgutil.walk_packages(generated.__path__, "generated."):
    importlib.import_module(module.name)  # none of them trips over a name

address, token = sys.argv[1:]
client = AuthenticatedClient(address, token)


def events_of(frames: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for found in re.finditer(r"^event: (.*)\ndata: (.*)$", frames, re.MULTILINE):
        yield found[1], json.loads(found[2])


def given(answer: Any) -> Any:
    assert answer is not None
    assert not isinstance(answer, Error), answer
    return answer


body = SessionCreate(
    "qwen3:14b", pinned=True, tool_settings=ToolSettingsBody(tools=["add"], tool_group=None)
)
one = given(create_session.sync(client=client, body=body)).session_id
# Only what is named changes: no key is needed, and none is sent unasked.
given(patch_session.sync(one, client=client, body=SessionPatch(title="Sums")))

upload = given(upload_attachment.sync(one, client=client, body=FileUpload("QQ==", name="a.txt")))

streamed, results, tokens = "", [], None
request = stream_chat._get_kwargs(one, body=ChatRequest("What is 2 + 3?"))
with client.get_httpx_client().stream(**request) as response:
    lines = response.iter_lines()
    for line in lines:
        if not line.startswith("event: "):
            continue
        [(name, data)] = events_of(f"{line}\n{next(lines)}")
        match name:
            case "content_delta":
                streamed += ContentDeltaEvent.from_dict(data).content
            case "tool_call_confirmation_required":
                confirmation_id = ToolCallConfirmationRequiredEvent.from_dict(data).confirmation_id
                decision = ConfirmRequest(confirmation_id, approved=True)
                given(confirm_tool.sync(one, client=client, body=decision))
            case "tool_result":
                results.append(ToolResultEvent.from_dict(data).result)
            case "message_complete":
                tokens = MessageCompleteEvent.from_dict(data).eval_count
            case "error":
                raise SystemExit(data["message"])

reply = given(chat.sync(one, client=client, body=ChatRequest("Thanks.")))
again = given(stream_chat.sync(one, client=client, body=ChatRequest("And?")))
refused = chat.sync("nobody", client=client, body=ChatRequest("Hello?"))
session = given(read_session.sync(one, client=client))
calls = [
    call
    for message in session.messages
    if isinstance(message, AssistantMessage)
    for call in message.tool_calls or ()
]

print(  # noqa: T201 - the test reads it
    json.dumps(
        {
            "streamed": streamed,
            "results": results,
            "tokens": tokens,
            "reply": reply.message.content,
            "whole": "".join(
                data["content"] for name, data in events_of(again) if name == "content_delta"
            ),
            "dropped": reply.context_window.dropped_messages,
            "refused": refused.error.code,
            "title": session.title,
            "uploaded": upload.name,
            "pinned": session.pinned,
            "policy": session.tool_settings.execution_policy.value,
            "roles": [message.role for message in session.messages],
            "called": [call.function.name for call in calls],
        }
    )
)
