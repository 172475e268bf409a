"""The application within another one, and within another Django project."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import anyio
import pytest

from tests.docs.pages import ROOT, blocks
from tests.mochi_project.test_init import RUNS, run_python
from tests.support.fake_ollama import FakeOllama
from tests.support.server import Server, running_server

PAGE = ROOT / "docs" / "how-to" / "mount-in-another-application.md"
HOST = '''
import contextlib
import signal

from mochi_server import create_app

mochi = create_app()


async def application(scope, receive, send):
    """Mount it at /inner, as Starlette and FastAPI do; everything else is the signal handlers."""
    if scope["type"] == "lifespan":
        await receive()
        async with LIFESPAN:
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})
    elif scope["path"].startswith("/inner"):
        await mochi({**scope, "root_path": "/inner"}, receive, send)
    else:
        text = repr([signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": text.encode()})
'''
LIFESPAN = "mochi.lifespan()"
NO_LIFESPAN = "contextlib.AsyncExitStack()"
COMMAND = ("-m", "uvicorn", "host:application", "--port", "0", "--timeout-graceful-shutdown", "1")


@asynccontextmanager
async def mounted(
    folder: Path, lifespan: str = NO_LIFESPAN, **options: object
) -> AsyncIterator[Server]:
    """A program of somebody else's with the application at ``/inner``."""
    (folder / "host.py").write_text(HOST.replace("LIFESPAN", lifespan))
    async with running_server(data_dir=folder, command=COMMAND, ready=RUNS, **options) as server:
        server.url += "/inner"
        yield server


async def test_health_is_open_and_the_root_stays_inside(tmp_path: Path) -> None:
    async with mounted(tmp_path, api_token="secret") as server:
        assert (await server.get("/health"))[0] == 200
        assert (await server.get("/sessions"))[0] == 401
        token = {"Authorization": "Bearer secret"}
        options = {"headers": token, "allow_redirects": False}
        for path, source in (("", "inner/page/"), ("/", "page/")):  # of a relative address
            async with server.http.get(server.url + path, **options) as answer:
                assert f'src="{source}' in await answer.text()
        async with server.http.get(f"{server.api}/docs", headers=token) as answer:
            assert answer.status == 200
        _, document = await server.get("/openapi.json", headers=token)
        assert "/inner/api/v1/sessions" in document["paths"]
        assert (await server.get("/sessions", headers=token))[0] == 200


async def test_signal_handlers_stay_and_a_program_that_does_not_tell_its_end_ends_quietly(
    tmp_path: Path,
) -> None:
    async with mounted(tmp_path) as server:
        place = server.url.removesuffix("/inner")
        async with server.http.get(place) as answer:
            before = await answer.text()
        assert (await server.get("/sessions"))[0] == 200
        async with server.http.get(place) as answer:
            assert await answer.text() == before
        await server.stop()
    for sign in ("Traceback", "never retrieved", "was destroyed"):
        assert sign not in server.log


TOOLS = """
import atexit
from pathlib import Path

__all__ = ["add"]

LEFT = Path(__file__).with_name("left.txt")
atexit.register(LEFT.write_text, "the process was asked to end")


def add(a: int) -> str:
    '''Add one.'''
    return str(a + 1)
"""


async def test_the_end_of_the_program_closes_the_runtime(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "__init__.py").write_text(TOOLS)
    async with mounted(tmp_path, LIFESPAN) as server:
        assert (await server.get("/tools"))[0] == 200
        await server.stop()
    assert (tmp_path / "tools" / "left.txt").exists()


async def test_a_reply_is_kept_when_the_program_ends(tmp_path: Path) -> None:
    async with FakeOllama() as ollama, mounted(tmp_path, LIFESPAN, ollama=ollama) as server:
        ollama.reply(["Hal", "lo"], gate=asyncio.Event(), pause_after=1)
        session = await server.new_session()
        with anyio.fail_after(60), contextlib.suppress(aiohttp.ClientError):
            async for event in server.stream(f"/chat/{session}/stream", {"message": "Hi"}):
                if event.event == "content_delta":
                    server.process.terminate()
        await server.stop()
    stored = json.loads((tmp_path / "chat_sessions" / f"{session}.json").read_text())
    assert [message["content"] for message in stored["messages"]] == ["Hi", "Hal"]
    assert stored["messages"][1]["interrupted"] is True


async def test_the_program_of_the_page_serves_below_its_path(tmp_path: Path) -> None:
    program = next(block.text for block in blocks(PAGE) if block.language == "python")
    (tmp_path / "host.py").write_text(program)
    async with running_server(data_dir=tmp_path, command=COMMAND, ready=RUNS) as server:
        server.url += "/mochi"
        assert (await server.get("/health"))[0] == 200
        async with server.http.get(server.url + "/") as answer:
            assert 'src="page/' in await answer.text()
        async with server.http.get(f"{server.api}/docs") as answer:
            assert answer.status == 200


@pytest.mark.parametrize(
    "setup",
    [
        "from django.conf import settings; settings.configure(); import django; django.setup()",
        "import os; os.environ['DJANGO_SETTINGS_MODULE'] = 'site_settings'",
    ],
)
async def test_within_another_django_project_the_error_says_what_to_do(
    tmp_path: Path, setup: str
) -> None:
    (tmp_path / "site_settings.py").write_text("SECRET_KEY = 'x'\n")
    code, output = await run_python(
        f"{setup}; from mochi_server import create_app; create_app()", tmp_path
    )
    assert code == 1
    assert re.search(r"(?m)^RuntimeError: .*another Django project.*process of its own", output)
