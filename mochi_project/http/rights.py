"""Which right each route needs, and which requests are written to the audit log.

The only such table, with those of the wires; docs/reference/tokens.md repeats it. A route that is
not in it needs ``admin``.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

from django.http import HttpRequest

from mochi_server.core.caller import require

from .access import ADMIN, CHAT, OPEN, READ, TOOLS, Access
from .wires import WIRES

ROUTES: Mapping[str, Access] = {
    # What shows no data of a person
    "GET ": OPEN,
    "GET api/v1/docs": OPEN,
    "GET api/v1/docs/<str:name>": OPEN,
    "GET api/v1/openapi.json": OPEN,
    "GET api/v1/health": OPEN,
    "GET api/v1/health/live": OPEN,
    "GET api/v1/health/ready": OPEN,
    "GET api/v1/mcp/oauth/callback": OPEN,
    "GET page/<str:version>/<path:name>": OPEN,
    "GET <path:name>": OPEN,
    "GET ollama": READ,
    "GET metrics": READ,
    "GET api/v1/doctor": ADMIN,
    # Models
    "GET api/v1/models": READ,
    "GET api/v1/models/available": READ,
    "GET api/v1/models/check": READ,
    "GET api/v1/models/pull": READ,
    "POST api/v1/models/pull": Access("admin", "fetch model"),
    "GET api/v1/models/<path:model_name>": READ,
    # Sessions
    "GET api/v1/sessions": READ,
    "POST api/v1/sessions": CHAT,
    "POST api/v1/sessions/import": Access("chat", "import sessions"),
    "POST api/v1/sessions/export": READ,
    "GET api/v1/sessions/<session_id>": READ,
    "PATCH api/v1/sessions/<session_id>": CHAT,
    "DELETE api/v1/sessions/<session_id>": Access("chat", "delete session"),
    "POST api/v1/sessions/<session_id>/fork": CHAT,
    "GET api/v1/sessions/<session_id>/messages": READ,
    "PUT api/v1/sessions/<session_id>/messages/<message_index>": CHAT,
    "PUT api/v1/sessions/<session_id>/system-prompt": CHAT,
    "DELETE api/v1/sessions/<session_id>/system-prompt": CHAT,
    "GET api/v1/sessions/<session_id>/status": READ,
    "POST api/v1/sessions/<session_id>/summarize": CHAT,
    "POST api/v1/sessions/<session_id>/compact": CHAT,
    "GET api/v1/sessions/<session_id>/summary": READ,
    "GET api/v1/sessions/<session_id>/export": READ,
    "GET api/v1/sessions/<session_id>/variants": READ,
    "POST api/v1/sessions/<session_id>/variants/<message_id>/select": CHAT,
    "GET api/v1/sessions/<session_id>/files": READ,
    "GET api/v1/sessions/<session_id>/files/<path:file>": READ,
    "PUT api/v1/sessions/<session_id>/files/<path:file>": Access("chat", "write file"),
    "DELETE api/v1/sessions/<session_id>/files/<path:file>": Access("chat", "delete file"),
    "GET api/v1/sessions/<session_id>/attachments": READ,
    "POST api/v1/sessions/<session_id>/attachments": CHAT,
    "GET api/v1/sessions/<session_id>/attachments/<attachment_id>": READ,
    "GET api/v1/tags": READ,
    # Turns and runs
    "POST api/v1/chat": CHAT,
    "POST api/v1/chat/stream": CHAT,
    "POST api/v1/chat/<session_id>": CHAT,
    "POST api/v1/chat/<session_id>/stream": CHAT,
    "GET api/v1/chat/<session_id>/stream": READ,
    "POST api/v1/chat/<session_id>/stop": CHAT,
    "POST api/v1/chat/<session_id>/runs": CHAT,
    "GET api/v1/runs": READ,
    "GET api/v1/runs/<run_id>": READ,
    "GET api/v1/runs/<run_id>/events": READ,
    "POST api/v1/runs/<run_id>/stop": CHAT,
    # Decisions: the code that makes one writes it to the audit log
    "GET api/v1/chat/<session_id>/confirmations": READ,
    "POST api/v1/chat/<session_id>/confirm-tool": TOOLS,
    "GET api/v1/confirmations": READ,
    "GET api/v1/confirmations/events": READ,
    "GET api/v1/confirmations/history": ADMIN,
    "POST api/v1/confirmations/<confirmation_id>": TOOLS,
    "GET api/v1/policies": READ,
    "DELETE api/v1/policies/<rule_id>": Access("tools", "delete policy"),
    # Tools, agents, prompts, presets
    "GET api/v1/tools": READ,
    "GET api/v1/tools/stats": ADMIN,
    "POST api/v1/tools/reload": Access("admin", "reload tools"),
    "GET api/v1/tools/<tool_name>": READ,
    "GET api/v1/agents": READ,
    "POST api/v1/agents/reload": Access("admin", "reload agents"),
    "GET api/v1/agents/chats": READ,
    "GET api/v1/agents/chats/<session_id>": READ,
    "GET api/v1/agents/<agent_name>": READ,
    "GET api/v1/system-prompts": READ,
    "POST api/v1/system-prompts": Access("admin", "create prompt"),
    "GET api/v1/system-prompts/<filename>": READ,
    "PUT api/v1/system-prompts/<filename>": Access("admin", "change prompt"),
    "DELETE api/v1/system-prompts/<filename>": Access("admin", "delete prompt"),
    "GET api/v1/presets": READ,
    "GET api/v1/presets/<name>": READ,
    "PUT api/v1/presets/<name>": Access("admin", "write preset"),
    "DELETE api/v1/presets/<name>": Access("admin", "delete preset"),
    # MCP servers
    "GET api/v1/mcp/events": READ,
    "GET api/v1/mcp/servers": READ,
    "GET api/v1/mcp/health": READ,
    "GET api/v1/mcp/<name>/resources": TOOLS,
    "GET api/v1/mcp/<name>/log": ADMIN,
    "POST api/v1/mcp/add": Access("admin", "add MCP server"),
    "PATCH api/v1/mcp/<name>": Access("admin", "change MCP server"),
    "DELETE api/v1/mcp/<name>": Access("admin", "remove MCP server"),
    "POST api/v1/mcp/<name>/restart": Access("admin", "restart MCP server"),
    # The audit log
    "GET api/v1/audit": ADMIN,
    # Wires of vendors
    **dict(chain.from_iterable(wire.access(wire.prefixes[:1]).items() for wire in WIRES)),
}
"""By method and route, as Django writes it."""

_EVERYWHERE = {**ROUTES}
for _wire in WIRES:
    _EVERYWHERE.update(_wire.access(_wire.prefixes))


def open_paths() -> set[str]:
    """Return the paths that need no token, without those of files."""
    routes = (each.partition(" ")[2] for each, access in ROUTES.items() if access == OPEN)
    return {f"/{route}" for route in routes if "<" not in route}


def access_to(method: str, route: str) -> Access:
    """Return what a request needs: HEAD as much as GET, OPTIONS, which lists methods, little."""
    if method == "OPTIONS":
        return READ
    if not route:
        return OPEN  # nothing is there, or the page
    return _EVERYWHERE.get(f"{'GET' if method == 'HEAD' else method} {route}", ADMIN)


def access_of(request: HttpRequest) -> Access:
    """Return what a request needs, by the route that Django has found for it."""
    match = request.resolver_match
    if match is None:
        return ADMIN
    route = match.route
    if route.startswith("^api/"):  # a second path of one of our routes
        route = f"api/v1/{match.kwargs['name']}"
    return access_to(request.method or "", route)


def check_right(request: HttpRequest) -> None:
    """Make sure that the caller has the right that a request needs.

    Raises:
        Forbidden: it lacks the right.
    """
    right = access_of(request).right
    if right is not None:
        require(right)
