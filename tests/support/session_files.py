"""Sessions from the content of their files, and back."""

from __future__ import annotations

from typing import Any

from mochi_server.errors import SessionUnreadable
from mochi_server.sessions import ChatSession
from mochi_server.sessions.codec import NotASession, assemble, disassemble


def session_of(data: bytes, session_id: str | None = None) -> ChatSession:
    """The session of a file of any version; its id is ``session_id`` or that in the file."""
    try:
        document = disassemble(data)
    except NotASession as error:
        raise SessionUnreadable(session_id=session_id, reason=str(error)) from error
    return ChatSession.from_document(document, session_id)


def file_of(session: ChatSession) -> bytes:
    """The whole content of the session's file."""
    return b"".join(assemble(session.document()))


def check_calls(messages: list[dict[str, Any]], *, whole: bool = True) -> None:
    """Check that results follow their calls; if not whole, the last calls may be open."""
    rest = list(messages)
    while rest:
        message = rest.pop(0)
        assert message["role"] in {"system", "user", "assistant"}
        if not rest and not whole:
            return
        for call in message.get("tool_calls") or []:
            result = rest.pop(0)
            assert (result["role"], result["tool_call_id"]) == ("tool", call["id"])
