"""Servers that could not do what they are set up for refuse to start, in a sentence."""

from __future__ import annotations

import asyncio
import re
import socket
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.support.redis import free_port, needs_redis, running_redis
from tests.support.server import environment, run_command, running_server
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("fresh_servers")

OWN_SETTINGS = """
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "own_settings"
from mochi_server.__main__ import main
sys.exit(main([]))
"""
NO_PACKAGE = """
import sys
sys.modules["redis"] = None
from mochi_server.__main__ import main
sys.exit(main(["--port", "0"]))
"""
MEMORY_IS_FOR_ONE = "MOCHI_SESSION_STORAGE=memory is for one process, and 2 were asked for"


async def ended(*command: str, cwd: Path, **settings: Any) -> tuple[int | None, str]:
    """The exit code and what a Python program said before it ended by itself."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *command,
        cwd=cwd,
        env=environment(data_dir=cwd, **settings) | {"PYTHONPATH": f"{cwd}:{Path.cwd()}"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        with anyio.fail_after(100):
            said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode, said.decode()


@pytest.mark.parametrize(
    ("options", "settings", "told", "is_set"),
    [
        ((), {"session_storage": "memory"}, MEMORY_IS_FOR_ONE, True),
        (("--test",), {}, "Test mode is for one process", False),
    ],
)
async def test_workers_of_what_is_for_one_process_are_refused(
    tmp_path: Path, options: tuple[str, ...], settings: Any, told: str, is_set: bool
) -> None:
    env = environment(data_dir=tmp_path, **settings)
    done = await run_command(*options, "--workers", "2", "--port", "0", cwd=tmp_path, env=env)
    (line,) = done.err.splitlines()
    assert done.code == 2
    assert told in line
    assert ("MOCHI_SESSION_STORAGE=json" in line) is ("MOCHI_SESSION_STORAGE" in line) is is_set


@pytest.mark.parametrize("word", [("--workers", "2"), ("--workers=2",)])
async def test_workers_of_uvicorn_with_sessions_in_memory_are_refused(
    tmp_path: Path, word: tuple[str, ...]
) -> None:
    command = ("-m", "uvicorn", "mochi_project.asgi:application", "--port", "0", *word)
    code, said = await ended(*command, cwd=tmp_path, session_storage="memory")
    assert MEMORY_IS_FOR_ONE in said
    assert "Traceback" not in said
    assert code != 0 or "stopping the parent process" in said


async def test_one_process_of_uvicorn_with_sessions_in_memory_serves(tmp_path: Path) -> None:
    command = ("-m", "uvicorn", "mochi_project.asgi:application", "--port", "0")
    async with running_server(
        data_dir=tmp_path,
        command=command,
        ready=re.compile(r"running on (http://\S+)"),
        session_storage="memory",
    ) as server:
        assert (await server.get("/health"))[0] == 200
    assert not (tmp_path / ".mochi").exists()


STORE_IN_MEMORY = "mochi_server.chat.confirmations.state.StateConfirmationStore"


@pytest.mark.slow
async def test_own_settings_that_are_for_one_process_are_refused_for_workers(
    tmp_path: Path,
) -> None:
    (tmp_path / "own_settings.py").write_text(
        "from mochi_project.settings import *\n"
        f"MOCHI_CONFIRMATIONS = {{'default': {{'BACKEND': '{STORE_IN_MEMORY}'}}}}\n"
    )
    env = {"port": free_port(), "workers": 2}
    code, said = await ended("-c", OWN_SETTINGS, cwd=tmp_path, **env)
    assert f"MOCHI_CONFIRMATIONS['default'] is {STORE_IN_MEMORY}" in said
    assert "Traceback" not in said
    assert code == 1


@pytest.mark.parametrize(
    "url",
    ["localhost:6379", "http://me:s3cret@localhost", "redis://", "redis://me:s3cret@host:port"],
)
async def test_a_wrong_address_of_redis_is_one_line_and_code_2(tmp_path: Path, url: str) -> None:
    done = await run_command(cwd=tmp_path, env=environment(redis_url=url))
    (line,) = done.err.splitlines()
    assert done.code == 2
    assert "MOCHI_REDIS_URL" in line
    assert "redis://localhost:6379/0" in line
    assert "s3cret" not in line


@pytest.mark.parametrize(
    ("login", "rest"),
    [
        ("me:s3cret@", "/0"),
        ("", "?password=s3cret&db=0"),
        ("", "?password=s3cret&socket_timeout=x"),
    ],
)
async def test_a_redis_that_is_not_there_or_has_wrong_options_is_one_line_without_secrets(
    tmp_path: Path, login: str, rest: str
) -> None:
    place = f"127.0.0.1:{free_port()}"
    env = environment(redis_url=f"redis://{login}{place}{rest}", data_dir=tmp_path)
    done = await run_command("--port", "0", cwd=tmp_path, env=env)
    (line,) = done.err.splitlines()
    assert done.code == 1
    assert "(MOCHI_REDIS_URL) cannot be used" in line
    assert not login or f"Redis at {place}/0 (MOCHI_REDIS_URL) cannot be used" in line
    assert "s3cret" not in line


async def test_a_redis_that_says_nothing_holds_up_the_start_for_seconds_only(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}"
        env = environment(redis_url=url, data_dir=tmp_path)
        done = await run_command("--port", "0", cwd=tmp_path, env=env)
    assert done.code == 1
    assert len(done.err.splitlines()) == 1


async def test_a_missing_package_is_named_with_what_to_do(tmp_path: Path) -> None:
    code, said = await ended("-c", NO_PACKAGE, cwd=tmp_path, redis_url="redis://localhost")
    (line,) = said.splitlines()
    assert code == 1
    assert re.search(r"the package redis is missing: .*install .*\[redis\]'$", line), line


@pytest.mark.parametrize("command", [("--port", "0"), ("sessions", "list")])
async def test_a_missing_driver_of_the_database_is_named_with_what_to_do(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    url = "mysql://mochi:s3cret@localhost/mochi"
    env = environment(session_storage="database", database_url=url, data_dir=tmp_path)
    done = await run_command(*command, cwd=tmp_path, env=env)
    (line,) = done.err.splitlines()
    assert done.code == 1
    assert line.endswith("the package mysqlclient is missing: pip install mysqlclient")


@needs_redis
async def test_health_shows_a_redis_that_has_gone_and_come_back(tmp_path: Path) -> None:
    async with (
        running_redis(tmp_path) as redis,
        running_server(data_dir=tmp_path, redis_url=redis.url) as server,
    ):

        async def becomes(wanted: bool) -> None:
            status, _ = await until(
                lambda: server.get("/health"),
                lambda answer: answer[1]["redis_connected"] is wanted,
            )
            assert status == 200

        await becomes(True)
        await redis.stop()
        await becomes(False)
        await redis.start()
        await becomes(True)
