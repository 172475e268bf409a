"""Conversations as MCP resources: their list, their texts, and search."""

from __future__ import annotations

from urllib.parse import quote, unquote

import mcp_types as types
import orjson

from ..errors import InvalidRequest, JSONObject, SessionNotFound
from ..runtime import Runtime
from ..sessions.exports.exporter import ExportFormat, export_session

SESSIONS = "mochi://sessions/"
SEARCH = "mochi://search/"
AS_JSON = "/json"

PAGE = 100
"""Conversations of a page of the list."""

MARKDOWN, JSON = "text/markdown", "application/json"

TEMPLATES = [
    types.ResourceTemplate(
        name="conversation",
        title="A conversation",
        uri_template=f"{SESSIONS}{{session_id}}",
        description="A conversation as Markdown.",
        mime_type=MARKDOWN,
    ),
    types.ResourceTemplate(
        name="conversation_json",
        title="A conversation as JSON",
        uri_template=f"{SESSIONS}{{session_id}}{AS_JSON}",
        description="The file of a conversation.",
        mime_type=JSON,
    ),
    types.ResourceTemplate(
        name="search",
        title="Search in conversations",
        uri_template=f"{SEARCH}{{query}}",
        description='Conversations that have all the words; "phrases", -not and begin* work. '
        "JSON, the best first.",
        mime_type=JSON,
    ),
]


async def list_conversations(runtime: Runtime, cursor: str | None) -> types.ListResourcesResult:
    """Return a page of the conversations, the one changed last first.

    Raises:
        InvalidRequest: the cursor is none of this list.
        StorageError: the folder cannot be listed.
    """
    page = await runtime.sessions.list(limit=PAGE, cursor=cursor)
    return types.ListResourcesResult(
        resources=[_resource(entry) for entry in page.entries], next_cursor=page.next_cursor
    )


def _resource(entry: JSONObject) -> types.Resource:
    session_id, title = str(entry["session_id"]), entry["title"] or entry["preview"]
    changed = entry["updated_at"]
    return types.Resource(
        uri=f"{SESSIONS}{session_id}",
        name=session_id,
        title=str(title) if title else None,
        description=f"Conversation with {entry['model']}, {entry['message_count']} messages.",
        mime_type=MARKDOWN,
        annotations=types.Annotations(last_modified=str(changed)) if changed else None,
    )


async def read_resource(runtime: Runtime, uri: str) -> types.ReadResourceResult:
    """Return a conversation, or the conversations that match a query.

    Raises:
        SessionNotFound: the address names none.
        SessionUnreadable, StorageError.
    """
    if uri.startswith(SEARCH):
        result = await runtime.search.search(unquote(uri.removeprefix(SEARCH)))
        found = [{**each, "uri": f"{SESSIONS}{each['session_id']}"} for each in result.sessions]
        text = orjson.dumps({**result.as_json(), "sessions": found}).decode()
        return _contents(uri, JSON, text)
    if not uri.startswith(SESSIONS):
        raise InvalidRequest(f"There is no resource {uri!r}.")
    session_id = uri.removeprefix(SESSIONS)
    is_json = session_id.endswith(AS_JSON)
    session_id = session_id.removesuffix(AS_JSON)
    if quote(session_id, safe="") != session_id:
        raise SessionNotFound(session_id=session_id)
    to = ExportFormat.JSON if is_json else ExportFormat.MARKDOWN
    content = await export_session(runtime.sessions, runtime.attachments, session_id, to)
    return _contents(uri, JSON if is_json else MARKDOWN, content.decode("utf-8", "replace"))


def _contents(uri: str, mime_type: str, text: str) -> types.ReadResourceResult:
    contents = types.TextResourceContents(uri=uri, mime_type=mime_type, text=text)
    return types.ReadResourceResult(contents=[contents])
