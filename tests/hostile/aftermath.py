"""What must still be true of a server and its folder after whatever was done to them."""

from __future__ import annotations

import re
from pathlib import Path

from mochi_server.services.models.preset_file import PRESET_NAME
from mochi_server.services.system_prompts import FILENAME
from tests.support.server import Server

ATTACHMENT = re.compile(r"[A-Za-z0-9_-]{1,64}(/[0-9a-f]{64}(\.label)?)?")
SESSION = re.compile(r"[A-Za-z0-9_-]{1,64}\.json")
LOCK = re.compile(r"[A-Za-z0-9_-]{1,64}\.(lock|claim)")
MARKS = r"summaries(/[A-Za-z0-9_-]{1,64})?"
STATES = r"(state|runs)(\.lock|\.sqlite3(-wal|-shm)?)|runs(/[0-9a-f]{16}\.lock)?"
PROCESSES = r"processes(/\d+-[0-9a-f]{8}\.(json|tmp))?"
STATE = re.compile(
    rf"{MARKS}|{STATES}|{PROCESSES}|audit\.lock|mcp(/[^/]+)?|sessions-[0-9a-f]{{8}}(/({MARKS}|catalogue-\d+\.sqlite3(-wal|-shm|\.lock|\.watch)?))?"
)
NAMES = {
    "presets": re.compile(rf"{PRESET_NAME.pattern}\.md"),
    "system_prompts": FILENAME,
}
"""Names of the files in folders that have no others."""
FOLDERS = {
    ".mochi",
    ".policies.json.lock",
    ".mcp.json.lock",
    "mcp.json",
    "approved_tools.json",
    "audit.jsonl",
    ".approved_tools.json.lock",
    "agents",
    "attachments",
    "chat_sessions",
    "agent_chat_sessions",
    "models",
    "presets",
    "system_prompts",
    "tools",
}
TROUBLE = ("Traceback", "Unexpected error", "ERROR", "CRITICAL", "never awaited")


def everything_below(folder: Path) -> set[Path]:
    """Every file and folder, links not followed."""
    return set(folder.rglob("*"))


def strangers(data: Path) -> list[str]:
    """What is in a data folder without being a session or a prompt."""
    return sorted(str(path) for path in everything_below(data) if not _belongs(path, data))


def _belongs(path: Path, data: Path) -> bool:
    inner = path.relative_to(data).parts
    if len(inner) == 1:
        return inner[0] in FOLDERS
    folder, *rest = inner
    if folder == ".mochi":
        return STATE.fullmatch("/".join(rest)) is not None
    if folder == "attachments":
        return ATTACHMENT.fullmatch("/".join(rest)) is not None
    if (name := NAMES.get(folder)) is not None:
        return name.fullmatch("/".join(rest)) is not None
    if rest[:1] == [".locks"]:
        return len(rest) == 1 or LOCK.fullmatch(rest[1]) is not None
    return SESSION.fullmatch("/".join(rest)) is not None


async def is_unharmed(server: Server) -> None:
    """Assert that the server is alive and has nothing to complain about in its log."""
    status, health = await server.get("/health")
    assert (status, health["status"]) == (200, "ok")
    assert server.process.returncode is None
    assert [word for word in TROUBLE if word in server.log] == [], server.log
