"""Servers, and supervisors of workers, that die without a word, at any moment.

``MOCHI_KILL_ROUNDS=100`` kills a hundred turns; a test run does with fewer.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import re
import signal
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest

from tests.support.chance import moments
from tests.support.fake_ollama import FakeOllama, Reply
from tests.support.run_readers import RunReader
from tests.support.server import Server, running_server
from tests.support.session_files import check_calls
from tests.support.tool_folders import is_gone
from tests.support.waiting import until

TURNS = int(os.environ.get("MOCHI_KILL_ROUNDS", "20"))
AT_ONCE = 5
"""Turns that die together, each at another point of its life."""
LONGEST = 0.4
"""Seconds of life at most; a turn takes about half of that."""
SEED = 20261121

HEAD = [
    "session_id",
    "model",
    "created_at",
    "updated_at",
    "message_count",
    "summary",
    "summary_model",
    "format_version",
    "tool_settings",
    "agent_settings",
    "context_window_config",
    "run",
]


@pytest.mark.slow
@pytest.mark.timeout(400 + TURNS * 2)
async def test_a_server_killed_at_any_moment_leaves_every_session_sound(
    tmp_path: Path, ollama: FakeOllama
) -> None:
    """Every file is a whole session, every accepted message is in it, and the next server goes on
    with every session: no claim outlives its process."""
    ollama.one_at_a_time = False
    ollama.default_reply = Reply(
        [f"word{n} " for n in range(10)],
        thinking=["Hm. ", "Well. "],
        tool_calls=[{"name": "look", "arguments": {"at": "it"}}, {"name": "listen"}],
        delay=0.004,
    )
    rng = random.Random(SEED)
    accepted: dict[str, list[str]] = {}
    finished = 0
    starts = range(0, TURNS, AT_ONCE)
    for start, life in zip(starts, moments(rng, len(starts), LONGEST), strict=True):
        async with running_server(data_dir=tmp_path, ollama=ollama, max_tool_rounds=2) as server:
            while len(accepted) < AT_ONCE:
                accepted[await server.new_session()] = []
            turns = [
                asyncio.ensure_future(
                    ask(server, session, f"{start}.{number}", rng.uniform(0, 0.15), accepted)
                )
                for number, session in enumerate(accepted)
            ]
            before = sum(map(len, accepted.values()))
            if life > LONGEST / 2:  # one has begun, however slow the machine is
                await until(lambda before=before: sum(map(len, accepted.values())) > before)
            await anyio.sleep(life)
            server.process.send_signal(signal.SIGKILL)
            await server.process.wait()
            finished += sum(await asyncio.gather(*turns))
        for session, texts in accepted.items():
            check(tmp_path, session, texts)
    async with running_server(data_dir=tmp_path, ollama=ollama) as server:
        ollama.default_reply = None
        _, listed = await server.get("/sessions")
        assert len(listed["sessions"]) == AT_ONCE
        assert listed["problems"] == []
        for session, texts in accepted.items():
            status, answer = await server.post(f"/chat/{session}", {"message": "Still there?"})
            assert (status, answer["message"]["content"]) == (200, "You said: Still there?")
            check(tmp_path, session, texts, whole=True)
        assert await server.stop() == 0
        assert "Traceback" not in server.log, server.log
    assert any(accepted.values())
    assert finished < TURNS  # else nothing was killed in mid-turn


@pytest.mark.parametrize("pieces", [0, 1])
@pytest.mark.parametrize("edit", [None, "Why else?"])
async def test_an_answer_outlives_a_server_that_was_writing_another_one(
    tmp_path: Path, ollama: FakeOllama, pieces: int, edit: str | None
) -> None:
    ollama.one_at_a_time = False
    async with running_server(data_dir=tmp_path, ollama=ollama) as other:
        session = await other.new_session()
        ollama.reply(["Because."])
        await other.post(f"/chat/{session}", {"message": "Why?"})
        async with running_server(data_dir=tmp_path, ollama=ollama) as server:
            if edit is not None:
                await server.http.put(
                    f"{server.api}/sessions/{session}/messages/0", json={"content": edit}
                )
            ollama.reply(["So", " be it."], pause_after=pieces, gate=asyncio.Event())
            _, started = await server.post(f"/chat/{session}/runs", {})
            reader = RunReader(session, started["run_id"])
            reading = asyncio.ensure_future(reader.go_on(other))
            await reader.has("content_delta" if pieces else "run_start")
            server.process.send_signal(signal.SIGKILL)
            await server.process.wait()
            assert await reading == 200
        _, found = await other.get(f"/sessions/{session}")
        said = [message["content"] for message in found["messages"]]
        is_shown = not pieces and edit is None
        assert said[:1] == [edit or "Why?"]
        assert said[1:] == (["Because."] if is_shown else ["So"] * pieces)
        _, listed = await other.get(f"/sessions/{session}/variants")
        kept = [each["content"] for one in listed["messages"] for each in one["variants"]]
        assert is_shown or kept[0] == "Because."
        ollama.reply(["At last."])
        _, answer = await other.post(f"/chat/{session}", {})
        assert answer["message"]["content"] == "At last."
        assert (await other.get(f"/sessions/{session}/variants"))[1]["messages"] == []


async def ask(
    server: Server, session: str, text: str, wait: float, accepted: dict[str, list[str]]
) -> bool:
    """One turn, noted as accepted when its status arrives; whether it came to its end."""
    await anyio.sleep(wait)
    path = f"{server.api}/chat/{session}/stream"
    body = {"message": text, "think": True}
    try:
        async with server.http.post(path, json=body) as response:
            assert response.status == 200, await response.text()
            accepted[session].append(text)
            return b"event: done" in await response.read()
    except (aiohttp.ClientError, OSError):
        return False


def check(folder: Path, session: str, accepted: list[str], *, whole: bool = False) -> None:
    """The file is a session as documented, and nothing that was accepted is missing."""
    data = (folder / "chat_sessions" / f"{session}.json").read_bytes()
    document: dict[str, Any] = json.loads(data)
    assert list(document) == ["metadata", "messages"]
    metadata, messages = document["metadata"], document["messages"]
    assert list(metadata) == (HEAD if messages else HEAD[:-1])
    assert (metadata["session_id"], metadata["format_version"]) == (session, "1.3")
    assert metadata["message_count"] == len(messages)
    assert all(m["message_id"] and m["timestamp"] for m in messages if m["role"] != "tool")
    assert "system" not in {m["role"] for m in messages}
    said = [m["content"] for m in messages if m["role"] == "user"]
    assert [text for text in said if text in accepted] == accepted
    assert len(set(said)) == len(said)
    check_calls(messages, whole=whole)


OURS: dict[str, Any] = {"workers": 2}
UVICORN: dict[str, Any] = {
    "command": ("-m", "uvicorn", "mochi_project.asgi:application", "--port", "0", "--workers", "2"),
    "ready": re.compile(r"running on (http://\S+)[\s\S]*startup complete"),
}


async def children_of(pid: int) -> list[int]:
    """The processes that it has started."""
    done = await anyio.run_process(["pgrep", "-P", str(pid)])
    return [int(line) for line in done.stdout.split()]


async def half_an_answer(server: Server, ollama: FakeOllama, session: str) -> list[str]:
    """The names of the events of a stream whose server is killed in the middle."""
    names = []
    with anyio.fail_after(60):
        async for event in server.stream(f"/chat/{session}/stream", {"message": "Hi"}):
            names.append(event.event)
            if event.event == "content_delta":
                server.process.send_signal(signal.SIGKILL)
    return names


@pytest.mark.slow
@pytest.mark.parametrize("options", [OURS, UVICORN], ids=["mochi-server", "uvicorn"])
async def test_workers_end_in_order_when_their_supervisor_is_killed(
    tmp_path: Path, ollama: FakeOllama, options: dict[str, Any]
) -> None:
    ollama.reply(["one", "two"], gate=asyncio.Event(), pause_after=1)
    workers: list[int] = []
    async with running_server(data_dir=tmp_path, ollama=ollama, **options) as server:
        try:
            session = await server.new_session()
            workers = await children_of(server.pid)
            names = await half_an_answer(server, ollama, session)
            await until(lambda: all(map(is_gone, workers)), seconds=30)
        finally:
            for pid in workers:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        with pytest.raises(aiohttp.ClientConnectionError):
            await server.get("/health")
    assert len(workers) >= 2
    assert names[-1] != "content_delta"
    stored = json.loads((tmp_path / "chat_sessions" / f"{session}.json").read_text())
    assert stored["messages"][-1]["content"] == "one"
