"""Several processes on one folder, and processes that die."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from operator import methodcaller
from pathlib import Path

import anyio
import pytest

from mochi_server.errors import SessionBusy
from mochi_server.protocol.messages import UserMessage
from mochi_server.sessions import SessionManager
from mochi_server.sessions.messages import encode_messages

BEGIN = """
import asyncio, sys
from mochi_server.protocol.messages import UserMessage
from mochi_server.sessions import SessionManager

manager = SessionManager(sessions_dir=sys.argv[1])

async def append(text):
    async with manager.edit("one") as session:
        session.append(UserMessage(content=text))
"""

EDITS = """
async def main():
    for number in range(200):
        await append(f"{sys.argv[2]} {number}")
"""

WRITES_FOR_EVER = """
async def main():
    number = 0
    while True:
        await append(f"{number} " + "x" * 20_000)
        print(number, flush=True)
        number += 1
"""

CLAIMS_FOR_EVER = """
async def main():
    async with manager.claim("one"), manager.edit("one"):
        print("claimed", flush=True)
        await asyncio.sleep(3600)
"""


@contextmanager
def child(program: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A process of the program, dead at the end."""
    source = f"{BEGIN}\n{program}\nasyncio.run(main())"
    command = [sys.executable, "-c", source, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "the child ended early"
    return line.strip()


@pytest.mark.slow
async def test_two_processes_edit_one_session_and_lose_nothing(tmp_path: Path):
    manager = SessionManager(sessions_dir=tmp_path)
    await manager.create("m", session_id="one")
    with child(EDITS, tmp_path, "a") as first, child(EDITS, tmp_path, "b") as second:
        assert first.wait(200) == second.wait(200) == 0

    texts = [message.text for message in (await manager.get("one")).messages]
    assert len(texts) == 400
    for name in ("a", "b"):
        mine = [text for text in texts if text.startswith(name)]
        assert mine == [f"{name} {number}" for number in range(200)]
    assert (await manager.list()).entries[0]["message_count"] == 400
    await manager.aclose()
    assert list((tmp_path / ".locks").iterdir()) == []


@pytest.mark.slow
async def test_a_killed_writer_leaves_every_accepted_message_in_a_valid_file(tmp_path: Path):
    manager = SessionManager(sessions_dir=tmp_path)
    for attempt in range(8):
        folder = tmp_path / str(attempt)
        manager = SessionManager(sessions_dir=folder)
        await manager.create("m", session_id="one")
        with child(WRITES_FOR_EVER, folder) as writer:
            accepted = int(first_line(writer))
            assert writer.stdout is not None
            moment = time.monotonic() + attempt * 0.013
            while time.monotonic() < moment:
                accepted = int(writer.stdout.readline())
            os.kill(writer.pid, signal.SIGKILL)
            accepted = max([accepted, *map(int, writer.stdout.read().split())])

        content = json.loads((folder / "one.json").read_bytes())
        numbers = [int(message["content"].split()[0]) for message in content["messages"]]
        assert numbers == list(range(len(numbers)))
        assert len(numbers) - 1 in {accepted, accepted + 1}
        assert content["metadata"]["message_count"] == len(numbers)
        assert [each["session_id"] for each in (await manager.list()).entries] == ["one"]
        with anyio.fail_after(30):
            async with manager.edit("one", exclusive=True) as session:
                session.append(UserMessage(content="after"))


@pytest.mark.slow
async def test_a_killed_process_gives_its_claim_and_its_lock_back(tmp_path: Path):
    manager = SessionManager(sessions_dir=tmp_path)
    await manager.create("m", session_id="one")
    with child(CLAIMS_FOR_EVER, tmp_path) as holder:
        assert first_line(holder) == "claimed"
        with pytest.raises(SessionBusy):
            async with manager.claim("one"):
                pytest.fail("two turns at once")
        with anyio.move_on_after(0.1) as waiting:
            async with manager.edit("one"):
                pytest.fail("two edits at once")
        assert waiting.cancelled_caught

        os.kill(holder.pid, signal.SIGKILL)
        holder.wait(30)
        with anyio.fail_after(30):
            async with manager.claim("one"), manager.edit("one") as session:
                session.append(UserMessage(content="mine"))


async def test_locks_that_are_removed_by_hand_let_a_second_turn_begin_and_lose_nothing(
    tmp_path: Path,
):
    mine, yours = SessionManager(sessions_dir=tmp_path), SessionManager(sessions_dir=tmp_path)
    await mine.create("m", session_id="one")
    managers = [mine, yours] * 10
    async with mine.claim("one"):
        shutil.rmtree(tmp_path / ".locks")
        async with yours.claim("one"), anyio.create_task_group() as tasks:
            for number, manager in enumerate(managers):
                lines = encode_messages([UserMessage(content=str(number))])
                tasks.start_soon(manager.update, "one", methodcaller("extend", lines))
    said = [message.content for message in (await yours.get("one")).messages]
    assert sorted(said) == sorted(map(str, range(len(managers))))
