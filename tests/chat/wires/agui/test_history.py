"""Conversations as clients of AG-UI send them."""

from __future__ import annotations

from chat.wires.agui.history import read_history
from chat.wires.agui.schemas import RunAgentInput
from mochi_server.protocol.messages import AssistantMessage
from mochi_server.sessions.attachments import AttachmentReader


async def test_a_thought_without_a_reply_is_not_that_of_a_later_one():
    run = RunAgentInput.model_validate(
        {
            "threadId": "t",
            "runId": "r",
            "messages": [
                {"id": "1", "role": "user", "content": "Hi"},
                {"id": "2", "role": "reasoning", "content": "First."},
                {"id": "3", "role": "user", "content": "Are you there?"},
                {"id": "4", "role": "assistant", "content": "No."},
                {"id": "5", "role": "user", "content": "Why?"},
                {"id": "6", "role": "reasoning", "content": "Second."},
                {"id": "7", "role": "assistant", "content": "So."},
            ],
        }
    )
    history, _ = await read_history(run, AttachmentReader(max_bytes=1))
    replies = [each for each in history if isinstance(each, AssistantMessage)]
    assert [reply.thinking for reply in replies] == [None, "Second."]
