"""A page of which a part does not arrive at first: in a real browser."""

from __future__ import annotations

import asyncio
import re

import pytest
from playwright.async_api import expect

from tests.support.chromium import needs_chromium
from tests.support.page import drawn, scripted, send
from tests.support.waiting import until

pytestmark = [needs_chromium, pytest.mark.asyncio(loop_scope="session")]


async def hold_all(page, address):
    """Let no request for an address get an answer; return those that came, and will come."""
    held = []

    async def hold(route):
        held.append(route)

    await page.route(address, hold)
    return held


@pytest.mark.parametrize("part", ["texts.js", "main.js", "layout.css"])
async def test_the_page_is_loaded_again_when_a_part_has_not_arrived(shared, part):
    async with shared.context() as context:
        page = await context.new_page()
        for _ in range(2):  # also where it has helped before
            await page.route(f"**/{part}", lambda route: route.abort("failed"), times=1)
            await page.goto(shared.server.url, wait_until="commit")
            await expect(page.get_by_role("textbox", name="Write a message")).to_be_visible()
            await page.wait_for_load_state("load")


async def test_a_part_that_never_arrives_is_asked_for_twice_and_the_page_says_so(shared):
    asked = []

    async def refuse(route):
        asked.append(route)
        await route.abort("failed")

    async with shared.context() as context:
        page = await context.new_page()
        await page.route("**/texts.js", refuse)
        await page.goto(shared.server.url, wait_until="commit")
        await until(lambda: len(asked), lambda count: count == 2)
        await expect(page.get_by_role("alert")).to_contain_text("has not arrived")
        assert len(asked) == 2
        await page.unroute("**/texts.js")
        await page.get_by_role("link", name="Load it again").click()
        await expect(page.get_by_role("textbox", name="Write a message")).to_be_visible()
        await expect(page.get_by_role("alert")).to_have_count(0)


@pytest.mark.parametrize("part", ["texts.js", "main.js"])
async def test_a_part_of_which_nothing_comes_is_asked_for_twice_and_the_page_says_so(shared, part):
    """As of a connection that is dead without an end."""
    async with shared.context() as context:
        page = await context.new_page()
        await page.clock.install()
        held = await hold_all(page, f"**/{part}")
        await page.goto(shared.server.url, wait_until="commit")
        for count in (1, 2):
            await until(lambda: len(held), lambda length, count=count: length == count)
            await page.locator("#incomplete").wait_for(state="attached")
            await page.clock.fast_forward(31_000)
        await expect(page.get_by_role("alert")).to_contain_text("has not arrived")
        await held[1].continue_()
        await expect(page.get_by_role("textbox", name="Write a message")).to_be_visible()
        await expect(page.get_by_role("alert")).to_have_count(0)
        assert await page.evaluate("history.state") is None


async def test_what_draws_formulas_and_code_is_asked_for_again_when_it_has_not_arrived(shared):
    message = scripted("A formula $a^2$\n\n```python\nreturn 1\n```")
    failed = set()
    async with shared.page() as page:
        await page.evaluate("window.isSame = true")
        page.on("requestfailed", lambda request: failed.add(request.url.rpartition("/")[2]))
        for parts in ({"katex.min.js", "core.min.js"}, {"katex.min.css"}):
            address = re.compile(f"/vendor/.*({'|'.join(parts)})$")
            await page.route(address, lambda route: route.abort("failed"))
            await send(page, message)
            await until(lambda parts=parts: failed >= parts)
            await page.unroute(address)
        await send(page, message)
        answer = page.locator(".answer").last
        await expect(answer.locator(".hljs-keyword")).to_have_text("return")
        await expect(answer.locator(".katex")).to_have_css("font-family", re.compile("KaTeX"))
        assert await page.evaluate("window.isSame"), "the page was loaded again"


async def test_pages_beside_the_chats_that_have_not_arrived_say_so_and_are_asked_for_again(shared):
    async with shared.context() as context:
        page = await context.new_page()
        await page.route("**/pages.js", lambda route: route.abort("failed"))
        await page.goto(f"{shared.server.url}/#/models")
        await expect(page.get_by_role("heading", name="Models")).to_be_visible()
        await expect(page.get_by_role("main").get_by_role("alert")).to_be_visible()
        await page.unroute("**/pages.js")
        await page.get_by_role("link", name="Prompts").click()
        await expect(page.get_by_role("heading", name="Prompts")).to_be_visible()
        await expect(page.get_by_role("link", name="New prompt").first).to_be_visible()
        await expect(page.get_by_role("alert")).to_have_count(0)


async def test_a_late_answer_replaces_no_later_one(shared):
    is_newer = asyncio.Event()
    late = []

    async def hold_first(route):
        response = await route.fetch()
        if not late:
            late.append(route.request)
            await is_newer.wait()
        await route.fulfill(response=response)

    async with shared.context() as context:
        page = await context.new_page()
        await page.route("**/system-prompts", hold_first)
        await page.goto(f"{shared.server.url}/#/prompts")
        await until(lambda: late)
        body = {"filename": "new.md", "content": "Be new."}
        assert (await shared.server.post("/system-prompts", body))[0] == 201
        await page.get_by_role("link", name="Models").click()
        await page.get_by_role("link", name="Prompts").click()
        await expect(page.get_by_role("link", name="new.md")).to_be_visible()
        async with page.expect_event("requestfinished", lambda request: request == late[0]):
            is_newer.set()
        await page.evaluate("new Promise(requestAnimationFrame)")
        await page.evaluate("new Promise(requestAnimationFrame)")
        await expect(page.get_by_role("link", name="new.md")).to_have_count(1)


async def size_of(page, icon):
    """Pixels of the shorter side of a picture, as the browser draws it."""
    return await page.evaluate(
        """async (url) => {
          const picture = new Image();
          picture.src = url;
          await picture.decode();
          return Math.min(picture.naturalWidth, picture.naturalHeight);
        }""",
        icon,
    )


async def test_the_page_can_be_installed_as_an_app(shared):
    async with shared.page() as page:
        devtools = await page.context.new_cdp_session(page)
        found = await devtools.send("Page.getAppManifest")
        assert found["errors"] == []
        assert found["url"].endswith("/manifest.webmanifest")
        manifest = found["manifest"]
        assert (manifest["startUrl"], manifest["scope"]) == (f"{shared.server.url}/",) * 2
        # What Chromium asks for; its own answer is missing in the one without windows.
        assert manifest["name"] == "mochi"
        assert manifest["display"] == "kStandalone"
        icons = [await size_of(page, each["url"]) for each in manifest["icons"]]
        assert len(icons) == 3
        assert min(icons) >= 144


@pytest.mark.parametrize("part", ["runs", "sessions?*"])
async def test_an_answer_that_never_comes_does_not_end_the_looks_for_changes(shared, part):
    """As of a connection that is dead without an end."""
    async with shared.context() as context:
        page = await context.new_page()
        await page.clock.install()
        await page.goto(shared.server.url)
        await expect(page.get_by_role("textbox", name="Write a message")).to_be_visible()
        held = await hold_all(page, f"**/api/v1/{part}")
        await until(lambda: held)
        await page.clock.fast_forward(31_000)
        await expect(page.get_by_text("No connection to the server")).to_be_visible()
        await page.unroute(f"**/api/v1/{part}")
        await expect(page.get_by_text("No connection to the server")).to_have_count(0)


async def test_a_chat_that_could_not_be_loaded_comes_with_the_connection(shared):
    session = await shared.server.new_session("lorem", title="Far away")
    async with shared.context() as context:
        page = await context.new_page()
        await page.goto(shared.server.url)
        link = page.get_by_role("link", name="Far away")
        await expect(link).to_be_visible()
        await context.set_offline(True)
        await link.click()
        await expect(page.get_by_role("main")).to_have_text(re.compile("Loading…"))
        await context.set_offline(False)
        await expect(page.get_by_role("heading", name="Far away")).to_be_visible()
        # Nor is it shown when it is gone since.
        await page.get_by_role("link", name="Settings").click()
        await expect(page.get_by_role("heading", name="Models")).to_be_visible()
        await shared.server.request("DELETE", f"/sessions/{session}")
        lost = page.get_by_role("status").get_by_text("connection")
        await context.set_offline(True)
        await expect(lost).to_be_visible()
        await context.set_offline(False)
        await expect(lost).to_have_count(0)
        await drawn(page)
        await expect(page.get_by_role("heading", name="Models")).to_be_visible()
        await page.go_back()
        await expect(page).to_have_url(f"{shared.server.url}/#/")


async def test_a_page_finds_nothing_of_the_test_before_but_what_is_cached(shared):
    """What tests/support/page.py says of its pages."""
    left = "[localStorage.left ?? null, document.cookie, navigator.onLine]"
    for _ in range(2):
        async with shared.page() as page:
            await expect(page.get_by_role("textbox", name="Write a message")).to_be_focused()
            assert await page.evaluate(left) == [None, "", True]
            assert await page.evaluate("indexedDB.databases()") == []
            state = (
                "navigator.permissions.query({ name: 'geolocation' }).then(({ state }) => state)"
            )
            assert await page.evaluate(state) != "granted"
            await page.evaluate(
                """new Promise((done) => {
                  localStorage.left = document.cookie = "left=1";
                  indexedDB.open("left").onsuccess = ({ target }) => done(target.result.close());
                })"""
            )
            context = page.context
            await context.grant_permissions(["geolocation"])
            await context.set_offline(True)
    files = "performance.getEntriesByType('resource').filter(({ name }) => name.includes('/app/'))"
    async with shared.page() as page:
        await expect(page.get_by_role("textbox", name="Write a message")).to_be_focused()
        assert page.context is context
        assert await page.evaluate(f"{files}.every(({{ transferSize }}) => transferSize === 0)")
