"""The page in a real browser, for a module of tests.

In a module whose tests run in one loop::

    pytestmark = [needs_chromium, pytest.mark.asyncio(loop_scope="module")]


    @pytest_asyncio.fixture(scope="module", loop_scope="module")
    async def shared(tmp_path_factory):
        async with browser_with_server(tmp_path_factory.mktemp("page")) as shared:
            yield shared


    @pytest_asyncio.fixture(loop_scope="module")
    async def page(shared):
        async with shared.page() as page:
            yield page
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, BrowserContext, Page, async_playwright

from .chromium import CHROMIUM
from .server import Server, running_server

LIMIT = 30_000  # milliseconds that anything on the page may take
BROWSER_SAYS = "Failed to load resource"  # of every answer from 400 on


@dataclass
class SharedBrowser:
    """A browser, and a server in test mode."""

    browser: Browser
    server: Server
    problems: list[str] = field(default_factory=list)

    @asynccontextmanager
    async def context(self, **options: Any) -> AsyncIterator[BrowserContext]:
        """A browser without cookies and storage; nothing on its pages may fail."""
        self.problems.clear()
        context = await self.browser.new_context(**options)
        context.set_default_timeout(LIMIT)
        context.on("page", self._watch)
        try:
            yield context
        finally:
            await context.close()
        assert self.problems == []

    @asynccontextmanager
    async def page(self, path: str = "/", **options: Any) -> AsyncIterator[Page]:
        async with self.context(**options) as context:
            page = await context.new_page()
            await page.goto(self.server.url + path)
            yield page

    def _watch(self, page: Page) -> None:
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on(
            "console",
            lambda said: (
                self.problems.append(said.text)
                if said.type == "error" and BROWSER_SAYS not in said.text
                else None
            ),
        )


@asynccontextmanager
async def browser_with_server(folder: Path, **settings: Any) -> AsyncIterator[SharedBrowser]:
    settings = {"environment": "test", "test_words_per_second": 0} | settings
    async with (
        running_server(data_dir=folder, **settings) as server,
        async_playwright() as playwright,
    ):
        browser = await playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        try:
            yield SharedBrowser(browser, server)
        finally:
            await browser.close()


def scripted(*steps: Any, question: str = "Go.", **more: Any) -> str:
    """A message that says what test mode answers: in each step a text, or items of a script."""
    items = [
        [{"text_message": {"text": step}}] if isinstance(step, str) else step for step in steps
    ]
    script = {"messages": items[0], "steps": items[1:], **more}
    return f"{question}\n<|instruction_start|>{json.dumps(script)}<|instruction_end|>"


async def send(page: Page, message: str) -> None:
    await page.get_by_role("textbox", name="Write a message").fill(message)
    await page.get_by_role("button", name="Send", exact=True).click()


async def answered(page: Page, count: int = 1) -> None:
    """Wait until so many answers are complete."""
    await page.locator(".answer[aria-busy=false] .figures").nth(count - 1).wait_for()
