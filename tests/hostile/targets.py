"""Where the hostile requests go, and the names that they try."""

from __future__ import annotations

ONE = "0123456789"
"""A session that is there."""

ROUTES = (
    "/health",
    "/models",
    "/models/qwen3:14b",
    "/sessions",
    f"/sessions/{ONE}",
    f"/sessions/{ONE}/messages",
    f"/sessions/{ONE}/messages/0",
    f"/sessions/{ONE}/system-prompt",
    f"/sessions/{ONE}/status",
    f"/chat/{ONE}",
    f"/chat/{ONE}/stream",
    f"/chat/{ONE}/confirm-tool",
    f"/chat/{ONE}/confirmations",
    "/tools",
    "/tools/stats",
    "/tools/reload",
    "/tools/add_numbers",
    "/system-prompts",
    "/system-prompts/helpful.md",
    "/docs",
    "/docs/swagger-ui.css",
    "/openapi.json",
    "/nowhere",
)
METHODS = (
    *("GET", "HEAD", "POST", "PUT", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PROPFIND"),
    *("M-SEARCH", "PURGE", "LOCK", "BREW", "get", "G3T", "QUERY", "DELETE"),
)
WITH_BODY = (
    ("POST", "/sessions"),
    ("PATCH", f"/sessions/{ONE}"),
    ("PUT", f"/sessions/{ONE}/messages/0"),
    ("PUT", f"/sessions/{ONE}/system-prompt"),
    ("POST", f"/chat/{ONE}"),
    ("POST", f"/chat/{ONE}/stream"),
    ("POST", f"/chat/{ONE}/confirm-tool"),
    ("POST", "/system-prompts"),
    ("PUT", "/system-prompts/helpful.md"),
)
WITH_NAME = (
    ("GET", "/sessions/{}"),
    ("DELETE", "/sessions/{}"),
    ("PATCH", "/sessions/{}"),
    ("GET", "/sessions/{}/messages"),
    ("PUT", "/sessions/{}/messages/0"),
    ("PUT", "/sessions/{}/system-prompt"),
    ("DELETE", "/sessions/{}/system-prompt"),
    ("GET", "/sessions/{}/status"),
    ("POST", "/chat/{}"),
    ("POST", "/chat/{}/stream"),
    ("POST", "/chat/{}/confirm-tool"),
    ("GET", "/chat/{}/confirmations"),
    ("GET", "/system-prompts/{}"),
    ("PUT", "/system-prompts/{}"),
    ("DELETE", "/system-prompts/{}"),
    ("GET", "/tools/{}"),
    ("GET", "/models/{}"),
    ("GET", "/docs/{}"),
)
BODIES = {
    "PATCH": b'{"tool_settings": null}',
    "PUT": b'{"content": "hacked"}',
    "POST": b'{"message": "hacked"}',
}
# Beside the data folder lies secret.md, and in it secret.json: what these would reach.
NAMES = (
    "..",
    "../secret",
    "../secret.md",
    "../secret.json",
    "../../secret.md",
    "../chat_sessions/0123456789",
    "..\\secret.md",
    "/etc/passwd",
    "//etc/passwd",
    "C:\\secret.md",
    "\\\\host\\share\\x.md",
    "CON",
    "NUL.md.",
    "secret.md\x00.md",
    "\x00",
    "x\r\nX-Evil: 1",
    ".secret.md",
    "~root",
    "$(id).md`id`",
    "secret.md/.",
    "\uff0e\uff0e\uff0fsecret.md",
    "\u202etxt.md",
    "e\u0301.md",
    "a" * 300,
    "a" * 300 + ".md",
    "😀.md",
    ".locks",
    "0123456789\n",
    "helpful.md\n",
    "0123456789.json",
    "-rf",
    "*",
)
NOT_FOUND = frozenset({400, 404, 405, 422})
