"""The page in a real browser, which all tests of the page in a worker share.

In a module whose tests have a server of their own::

    pytestmark = [needs_chromium, pytest.mark.asyncio(loop_scope="session")]


    @pytest_asyncio.fixture(scope="module", loop_scope="session")
    async def shared(browser, tmp_path_factory):
        async with browser_with_server(browser, tmp_path_factory.mktemp("page")) as shared:
            yield shared


    @pytest_asyncio.fixture(loop_scope="session")
    async def page(shared):
        async with shared.page() as page:
            yield page
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from playwright.async_api import (
    Browser,
    BrowserContext,
    Locator,
    Page,
    Route,
    async_playwright,
    expect,
)

from .chromium import CHROMIUM
from .server import Server, running_server
from .waiting import until

AXE = (Path(__file__).parents[1] / "page" / "vendor" / "axe.min.js").read_text()
LIMIT = 60_000  # milliseconds that anything on the page may take
expect.set_options(timeout=LIMIT)
BROWSER_SAYS = "Failed to load resource"  # of every answer from 400 on


@dataclass
class SharedBrowser:
    """A browser, and a server in test mode."""

    browser: Browser
    server: Server
    problems: list[str] = field(default_factory=list)
    unanswered: set[str] = field(default_factory=set)
    """Addresses of requests that have no whole answer."""
    failed: list[str] = field(default_factory=list)
    """Requests that got none, each with the reason of the browser."""

    _kept: defaultdict[str, list[BrowserContext]] = field(
        default_factory=partial(defaultdict, list)
    )
    """By their options: what a page has left for the next, with no more than the server's files."""

    @asynccontextmanager
    async def context(self, **options: Any) -> AsyncIterator[BrowserContext]:
        """A browser without cookies and storage; nothing on its pages may fail.

        What its pages show and wait for at the end is written out, for the test that fails.
        """
        context = await self._new_context(**options)
        try:
            async with self._watched(context):
                yield context
        finally:
            await context.close()
        assert self.problems == []

    @asynccontextmanager
    async def page(
        self, path: str = "/", *, is_alone: bool = False, **options: Any
    ) -> AsyncIterator[Page]:
        """A page in a browser without cookies and storage; nothing on it may fail.

        It may find the files of the page in a cache, as whoever comes again does. A test that
        leaves something in its context, such as a clock, takes a page alone.
        """
        if is_alone:
            async with self.context(**options) as context:
                page = await context.new_page()
                await page.goto(self.server.url + path)
                yield page
            return
        kept = self._kept[repr(options)]
        context = kept.pop() if kept else await self._new_context(**options)
        try:
            async with self._watched(context):
                page = await context.new_page()
                await self._forget_storage(page)
                await page.goto(self.server.url + path)
                yield page
            await context.clear_permissions()
            await context.set_offline(False)
            for page in context.pages:
                await page.close()
            await context.clear_cookies()
        except BaseException:
            await context.close()
            raise
        kept.append(context)
        assert self.problems == []

    async def _forget_storage(self, page: Page) -> None:
        devtools = await page.context.new_cdp_session(page)
        everything = {"origin": self.server.url, "storageTypes": "all"}
        await devtools.send("Storage.clearDataForOrigin", everything)
        await devtools.detach()

    async def _new_context(self, **options: Any) -> BrowserContext:
        context = await self.browser.new_context(**options)
        context.set_default_timeout(LIMIT)
        context.on("page", self._watch)
        return context

    @asynccontextmanager
    async def _watched(self, context: BrowserContext) -> AsyncIterator[None]:
        self.problems.clear()
        self.unanswered.clear()
        self.failed.clear()
        try:
            yield
        finally:
            for page in context.pages:
                sys.stderr.write(f"{page.url}\n{await page.inner_text('body')}\n")
            sys.stderr.write(
                f"problems: {self.problems}, unanswered: {self.unanswered}, failed: {self.failed}\n"
            )
            # Else a route that is in the middle of its work fails the next test.
            for each in (context, *context.pages):
                await each.unroute_all(behavior="ignoreErrors")

    async def aclose(self) -> None:
        """Close what was left for a next page."""
        for context in chain.from_iterable(self._kept.values()):
            await context.close()

    def _watch(self, page: Page) -> None:
        page.on("request", lambda request: self.unanswered.add(request.url))
        for event in ("requestfinished", "requestfailed"):
            page.on(event, lambda request: self.unanswered.discard(request.url))
        page.on(
            "requestfailed",
            lambda request: self.failed.append(f"{request.url}: {request.failure}"),
        )
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
async def running_browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def browser_with_server(
    browser: Browser, folder: Path, **settings: Any
) -> AsyncIterator[SharedBrowser]:
    settings = {"environment": "test", "test_words_per_second": 0} | settings
    async with running_server(data_dir=folder, **settings) as server:
        shared = SharedBrowser(browser, server)
        yield shared
        await shared.aclose()


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


def without_timers(milliseconds: int) -> str:
    """A function for a page whose timers of this length never go off."""
    return f"""() => {{
  const later = window.setTimeout;
  const isLeft = (after) => after === {milliseconds};
  window.setTimeout = (run, after, ...rest) => (isLeft(after) ? 0 : later(run, after, ...rest));
}}"""


LEAVE_UNSETTLED = without_timers(1000)
"""Function for a page where what has changed or moved takes no click, however long that is ago."""


async def choose_model(page: Page, name: str) -> None:
    await page.get_by_role("button", name="Model: ").click()
    await page.get_by_role("option", name=name, exact=False).first.click()


async def press(place: Page | Locator, name: str) -> None:
    """Click a button of a decision, which takes nothing while it has just appeared or moved.

    A click that must wait scrolls, and so moves what is waited for: the pointer goes there first.
    """
    button = place.get_by_role("button", name=name)
    await button.hover()
    await expect(button).to_be_enabled()
    await button.click()


async def answered(page: Page, count: int = 1) -> None:
    """Wait until so many answers are complete."""
    await page.locator(".answer[aria-busy=false] .figures").nth(count - 1).wait_for()


async def expect_accessible(page: Page) -> None:
    """Expect no finding of axe, nor anything to scroll aside."""
    if await page.evaluate("typeof axe === 'undefined'"):
        await page.evaluate(AXE)
    findings = await page.evaluate("axe.run().then(({violations}) => violations)")
    described = [(each["id"], [node["target"] for node in each["nodes"]]) for each in findings]
    assert not described, (described, page.url, page.viewport_size)
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    wide = "[...document.querySelectorAll('.scroller')].every(e => e.scrollWidth <= e.clientWidth)"
    assert await page.evaluate(wide)


@asynccontextmanager
async def held(page: Page, address: str, **answer: Any) -> AsyncIterator[asyncio.Event]:
    """Hold the next POST to the address until the block ends; then give this answer, or its own."""
    is_asked, is_due, is_given = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def hold(route: Route) -> None:
        if route.request.method != "POST" or is_asked.is_set():
            await route.continue_()
            return
        is_asked.set()
        await is_due.wait()
        await route.fulfill(**(answer or {"response": await route.fetch()}))
        is_given.set()

    await page.route(address, hold)
    yield is_asked
    is_due.set()
    await until(is_given.is_set)
    await drawn(page)


def the_chat(session_id: str) -> re.Pattern[str]:
    """What the address of a chat and its last turns has."""
    return re.compile(rf"/sessions/{session_id}\?turns=")


async def drawn(page: Page) -> None:
    """Wait until the page has drawn what has arrived."""
    assert await page.evaluate("fetch('api/v1/health').then(({ ok }) => ok)")
    for _ in range(2):
        await page.evaluate("new Promise(requestAnimationFrame)")
