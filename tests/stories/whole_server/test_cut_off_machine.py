"""A machine that is cut off in the middle of a turn, and comes back after another took over."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.support import network
from tests.support.redis import needs_redis, running_redis
from tests.support.run_readers import RunReader
from tests.support.server import Server, running_server

SECONDS = 90
MODEL = "test/any"
WORDS_PER_SECOND = 20
LACK = network.lack()


def saying(words: int) -> str:
    script = {"messages": [{"text_message": {"length": words}}]}
    return f"<|instruction_start|>{json.dumps(script)}<|instruction_end|>"


async def messages(server: Server, session_id: str) -> list[dict[str, Any]]:
    status, session = await server.get(f"/sessions/{session_id}")
    assert status == 200, session
    found: list[dict[str, Any]] = session["messages"]
    return found


async def send_when_free(server: Server, session_id: str, text: str) -> None:
    """Send a message as soon as no turn holds the session, and wait for the answer."""
    with anyio.fail_after(SECONDS):
        while True:
            status, answer = await server.post(f"/chat/{session_id}", {"message": text})
            if status == 200:
                return
            assert (status, answer["error"]["code"]) == (409, "SESSION_BUSY")
            await anyio.sleep(0.2)


@needs_redis
@pytest.mark.slow
@pytest.mark.skipif(LACK is not None, reason=f"no network: {LACK}")
async def test_a_machine_that_was_cut_off_writes_nothing_over_what_another_has_written(
    tmp_path: Path,
) -> None:
    settings: dict[str, Any] = {
        "session_storage": "redis",
        "test_words_per_second": WORDS_PER_SECOND,
    }
    with network.network() as net:
        addresses = ("--bind", "127.0.0.1", net.here, "--protected-mode", "no")
        async with running_redis(tmp_path, *addresses) as redis:
            url = f"redis://{net.here}:{redis.port}/0"
            folders = [tmp_path / "far", tmp_path / "near"]
            for folder in folders:
                folder.mkdir()
            async with (
                running_server(
                    data_dir=folders[0], command=net.command, redis_url=url, **settings
                ) as far,
                running_server(data_dir=folders[1], redis_url=redis.url, **settings) as near,
            ):
                session_id = await far.new_session(MODEL)
                reader = RunReader(session_id)
                first = saying(SECONDS * WORDS_PER_SECOND)
                reading = asyncio.ensure_future(reader.send(far, first))
                with anyio.fail_after(SECONDS):
                    while len(reader.text.split()) < 20:  # noqa: ASYNC110 - the last ones may be lost
                        await anyio.sleep(0.05)
                net.cut()
                await send_when_free(near, session_id, saying(3))
                taken = await messages(near, session_id)
                assert [m["role"] for m in taken] == ["user", "assistant"] * 2
                assert taken[1]["interrupted"] is True
                net.mend()
                await far.saw("is lost to this process")
                with anyio.fail_after(SECONDS):
                    status: dict[str, Any] = {"turn_running": True}
                    while status["turn_running"]:
                        await anyio.sleep(0.2)
                        _, status = await far.get(f"/sessions/{session_id}/status")
                assert await messages(far, session_id) == taken
                await send_when_free(far, session_id, saying(5))
                after = await messages(near, session_id)
                assert after[: len(taken)] == taken
                assert [m["role"] for m in after] == ["user", "assistant"] * 3
                reading.cancel()
