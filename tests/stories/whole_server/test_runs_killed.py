"""Runs outlive the process that executes them: readers go on at another one.

``MOCHI_KILL_ROUNDS=50`` kills a server fifty times. How much is lost is measured by
``benchmarks/runs.py``.
"""

from __future__ import annotations

import json
import os
import random
import signal
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.support.chance import moments
from tests.support.fake_ollama import FakeOllama
from tests.support.run_readers import RunReader
from tests.support.server import Server, running_server

ROUNDS = int(os.environ.get("MOCHI_KILL_ROUNDS", "12"))
STREAMS = 20
ALONG = 4
"""Runs that somebody reads at the other server as well."""
WORDS = [f"{number} " for number in range(300)]
PAUSE = 0.01
"""Seconds between two words."""
LONGEST = 2.0
"""Seconds of life at most, from the first message or, in longer lives, the first word on."""
SEED = 20261123


class Stream:
    """One run that is killed, and what its readers have."""

    def __init__(self, ollama: FakeOllama, session_id: str, number: int) -> None:
        self.session_id = session_id
        self.message = f"Go, {session_id}."
        ollama.reply(WORDS, delay=PAUSE, match=self.message)
        self.reader = RunReader(session_id)
        self.along = RunReader(session_id) if number < ALONG else None

    async def read_along(self, other: Server) -> None:
        """Read at the other server while the model speaks."""
        if self.along is not None and self.reader.said.is_set():
            self.along.run_id = self.reader.run_id
            assert await self.along.go_on(other) == 200

    async def go_on(self, other: Server) -> None:
        status = await self.reader.go_on(other)
        if status != 200:  # it had not begun
            assert not self.reader.events
            assert status == (404 if self.reader.run_id else 204)

    def check(self, folder: Path) -> bool:
        """Check the session and the readers; return whether the run was cut in its answer."""
        data = (folder / "chat_sessions" / f"{self.session_id}.json").read_bytes()
        document: dict[str, Any] = json.loads(data)
        messages = document["messages"]
        assert document["metadata"]["message_count"] == len(messages)
        assert [message["role"] for message in messages] in ([], ["user"], ["user", "assistant"])
        if self.reader.events:
            assert messages[0]["content"] == self.message
        answer = messages[1] if len(messages) == 2 else {"content": "", "interrupted": True}
        kept = answer["content"].split()
        assert answer["content"] == "".join(WORDS[: len(kept)])
        assert self.reader.text == "".join(WORDS[: len(self.reader.text.split())])
        # What a reader saw of the killed process itself may be what the journal has lost.
        assert self.reader.text.startswith(answer["content"])
        for reader in filter(None, (self.reader, self.along)):
            if reader.kinds[-1:] != ["done"]:
                continue
            reader.check_whole()
            if answer.get("interrupted"):
                assert reader.events[-2].data["code"] == "RUN_INTERRUPTED"
            else:
                assert answer["content"] == reader.text == "".join(WORDS)
                assert reader.kinds[-2] == "message_complete"
        if self.along is not None and self.along.events:
            assert self.along.text == answer["content"]
        return bool(kept) and len(kept) < len(WORDS)


@pytest.mark.slow
@pytest.mark.timeout(120 + ROUNDS * 30)
async def test_readers_of_a_killed_server_go_on_at_another_one(
    tmp_path: Path, ollama: FakeOllama
) -> None:
    """Nothing comes twice, and nothing is lost that a reader at the other server has seen."""
    ollama.one_at_a_time = False
    rng = random.Random(SEED)
    cut = 0
    async with running_server(data_dir=tmp_path, ollama=ollama) as other:
        for life in moments(rng, ROUNDS, LONGEST):
            cut += await kill_one(tmp_path, ollama, other, life)
        assert "Traceback" not in other.log, other.log
        status, answer = await other.get("/runs", params={"state": "running"})
        assert (status, answer["runs"]) == (200, [])
    assert cut


async def kill_one(folder: Path, ollama: FakeOllama, other: Server, life: float) -> int:
    """Return how many runs were cut in their answer."""
    async with running_server(data_dir=folder, ollama=ollama) as server:
        streams = [Stream(ollama, await other.new_session(), number) for number in range(STREAMS)]
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                for stream in streams:
                    tasks.start_soon(stream.reader.send, server, stream.message)
                if life > LONGEST / 2:  # somebody speaks, however slow the machine is
                    await streams[0].reader.said.wait()
                await anyio.sleep(life * 0.6)
                for stream in streams:
                    tasks.start_soon(stream.read_along, other)
                await anyio.sleep(life * 0.4)
                server.process.send_signal(signal.SIGKILL)
                await server.process.wait()
            for stream in streams:
                if "done" not in stream.reader.kinds:
                    await stream.go_on(other)
    cut = sum(stream.check(folder) for stream in streams)
    ollama.forget()
    return cut
