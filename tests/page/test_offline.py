"""The installed app while the server does not answer: in a real browser."""

from __future__ import annotations

import shutil
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import anyio
import pytest
from aiohttp import web
from playwright.async_api import expect

from mochi_project.http.page import FOLDER
from tests.support.chromium import needs_chromium
from tests.support.page import AXE, LIMIT
from tests.support.server import connector, running_server

pytestmark = [needs_chromium, pytest.mark.asyncio(loop_scope="session")]

SERVER = """
import os, sys
from pathlib import Path
os.environ["DJANGO_SETTINGS_MODULE"] = "mochi_project.settings"
from mochi_project.http import page
from mochi_server.__main__ import main
page.FOLDER = page.OWN.folder = Path(sys.argv.pop(1))
main()
"""
"""A server whose page has the files of a folder."""

IS_APP = """{
  const matches = window.matchMedia;
  window.matchMedia = (query) => (
    query === "(display-mode: standalone)" ? { matches: true } : matches.call(window, query));
}"""
"""Says that the window is that of an app, which a browser without a screen has not."""

WORKERS = (
    """navigator.serviceWorker.getRegistrations().then((all) => all.map((one) => one.scope))"""
)


@asynccontextmanager
async def server_of(files: Path, folder: Path, port: int = 0):
    command = ("-c", SERVER, str(files), "--port", str(port))
    async with running_server(data_dir=folder, command=command, environment="test") as server:
        yield server


@asynccontextmanager
async def proxy_to(url: str):
    """A proxy that cuts off ``/mochi``, and answers 502 while nobody is there."""

    async def answer(request):
        path = request.path_qs.removeprefix("/mochi")
        assert path != request.path_qs, "the page asks for something beside its path"
        try:
            async with client.get(url + path) as response:
                headers = {
                    name: response.headers[name]
                    for name in ("Content-Type", "Service-Worker-Allowed")
                    if name in response.headers
                }
                body = web.StreamResponse(status=response.status, headers=headers)
                await body.prepare(request)
                async for chunk in response.content.iter_any():
                    await body.write(chunk)
                return body
        except aiohttp.ClientError:
            return web.Response(status=502, text="Bad gateway")

    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    async with aiohttp.ClientSession(connector=connector()) as client:
        runner = web.AppRunner(application, shutdown_timeout=0)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            yield f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}/mochi"
        finally:
            await runner.cleanup()


@asynccontextmanager
async def app_window(browser):
    """A window without the bars of a browser, as an installed app has it."""
    async with await browser.new_page() as page:
        page.set_default_timeout(LIMIT)
        await page.add_init_script(IS_APP)
        yield page


async def ways_of_files(page):
    """Load the page again; return by what ways its files came, as the rules of its worker say."""
    devtools = await page.context.new_cdp_session(page)
    answers = []
    devtools.on("Network.responseReceived", lambda answer: answers.append(answer["response"]))
    await devtools.send("Network.enable")
    await page.reload()
    await expect(page.get_by_role("heading", level=1)).to_have_text("New rules")
    files = [answer for answer in answers if "/page/" in answer["url"]]
    return {answer["serviceWorkerRouterInfo"].get("actualSourceType") for answer in files}


@pytest.mark.parametrize(
    "is_below",
    [
        pytest.param(False, id="root"),
        pytest.param(True, id="below a path", marks=pytest.mark.slow),
    ],
)
async def test_the_app_says_that_it_is_not_connected_and_comes_back_as_it_is_then(
    browser, tmp_path, is_below
):
    files = shutil.copytree(FOLDER, tmp_path / "files")
    (tmp_path / "data").mkdir()
    async with AsyncExitStack() as stack:
        page = await stack.enter_async_context(app_window(browser))
        async with server_of(files, tmp_path / "data") as server:
            root = server.url
            if is_below:
                root = await stack.enter_async_context(proxy_to(server.url))
            await page.goto(f"{root}/#/rules")
            await expect(page.get_by_role("heading", level=1)).to_have_text("Rules")
            with anyio.fail_after(60):
                await page.evaluate("navigator.serviceWorker.ready.then(() => {})")
            assert await page.evaluate(WORKERS) == [f"{root}/"]
        await page.reload()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Not connected")
        await page.evaluate(AXE)
        assert (await page.evaluate("axe.run()"))["violations"] == []
        texts = files / "app" / "texts.js"
        texts.write_text(texts.read_text().replace('rules: "Rules"', 'rules: "New rules"'))
        async with server_of(files, tmp_path / "data", urlsplit(server.url).port):
            await expect(page.get_by_role("heading", level=1)).to_have_text("New rules")
            assert page.url == f"{root}/#/rules"
            assert await page.evaluate(WORKERS) == [f"{root}/"]
            assert await page.evaluate("caches.keys()") == []
            assert await ways_of_files(page) == {"network"}


async def test_a_tab_of_a_browser_has_no_service_worker(shared):
    """At its address there may be another program tomorrow."""
    async with shared.page("/#/rules") as page:
        await expect(page.get_by_role("heading", level=1)).to_have_text("Rules")
        assert await page.evaluate(WORKERS) == []
