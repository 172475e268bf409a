"""What Django's settings do to the process."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta, timezone

from tests.support.tools import write_tools

JAPAN = timezone(timedelta(hours=9))
CLOCK = '''
from datetime import datetime


def wall_clock() -> str:
    """Tell the time of this machine."""
    print("asked for the time")
    return datetime.now().isoformat()


__all__ = ["wall_clock"]
'''


def write_session(folder, session_id, updated_at):
    folder.mkdir(exist_ok=True)
    metadata = {
        "session_id": session_id,
        "model": "qwen3:14b",
        "created_at": updated_at,
        "updated_at": updated_at,
        "message_count": 0,
    }
    path = folder / f"{session_id}.json"
    path.write_text(json.dumps({"metadata": metadata, "messages": []}))


async def test_the_server_keeps_the_time_zone_of_the_machine(
    tmp_path, ollama, server_of, monkeypatch
):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    # Without a zone, as mochi-coco writes times, noon is three o'clock of UTC.
    write_session(tmp_path / "chat_sessions", "aaaaaaaaaa", "2026-01-01T12:00:00.000001")
    write_session(tmp_path / "chat_sessions", "bbbbbbbbbb", "2026-01-01T06:00:00.000001Z")
    write_tools(tmp_path / "tools", init=CLOCK)
    ollama.reply(tool_calls=[{"name": "wall_clock", "arguments": {}}])
    ollama.reply(["Done"])
    async with server_of(ollama=ollama) as server:
        listed = (await server.get("/sessions"))[1]["sessions"]
        settings = {"tools": ["wall_clock"], "execution_policy": "never_confirm"}
        session_id = await server.new_session(tool_settings=settings)
        _, reply = await server.post(f"/chat/{session_id}", {"message": "What time is it?"})
        await server.saw("asked for the time")
    assert [each["session_id"] for each in listed] == ["bbbbbbbbbb", "aaaaaaaaaa"]
    (call,) = reply["tool_calls_executed"]
    told = datetime.fromisoformat(call["result"]).replace(tzinfo=JAPAN)
    logged = re.search(r"^(\S+ \S+),\d+ .*asked for the time$", server.log, re.MULTILINE)
    assert logged is not None, server.log
    now = datetime.now(timezone.utc)
    for moment in (told, datetime.fromisoformat(logged[1]).replace(tzinfo=JAPAN)):
        assert abs(now - moment) < timedelta(hours=1)
