"""A page of which a part does not arrive at first: in a real browser."""

from __future__ import annotations

import pytest
import pytest_asyncio
from playwright.async_api import expect

from tests.support.chromium import needs_chromium
from tests.support.page import LIMIT, browser_with_server
from tests.support.waiting import until

pytestmark = [needs_chromium, pytest.mark.asyncio(loop_scope="module")]
expect.set_options(timeout=LIMIT)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory):
    async with browser_with_server(tmp_path_factory.mktemp("page")) as shared:
        yield shared


@pytest.mark.parametrize("part", ["texts.js", "main.js", "layout.css"])
async def test_the_page_is_loaded_again_when_a_part_has_not_arrived(shared, part):
    async with shared.context() as context:
        page = await context.new_page()
        await page.route(f"**/{part}", lambda route: route.abort("failed"), times=1)
        await page.goto(shared.server.url)
        await expect(page.get_by_role("textbox", name="Write a message")).to_be_visible()


async def test_a_part_that_never_arrives_is_asked_for_twice(shared):
    asked = []

    async def refuse(route):
        asked.append(route)
        await route.abort("failed")

    async with shared.context() as context:
        page = await context.new_page()
        await page.route("**/texts.js", refuse)
        await page.goto(shared.server.url)
        await until(lambda: len(asked), lambda count: count == 2)
        await page.wait_for_load_state("load")
    assert len(asked) == 2
