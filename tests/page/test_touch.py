"""What is touched is large enough for a finger: in a real browser that is a telephone."""

from __future__ import annotations

import pytest
import pytest_asyncio
from playwright.async_api import expect

from tests.support.chromium import needs_chromium
from tests.support.page import answered, expect_accessible, scripted

pytestmark = [needs_chromium, pytest.mark.asyncio(loop_scope="session")]

PHONE = {"viewport": {"width": 393, "height": 727}, "has_touch": True, "is_mobile": True}
SMALL = """() => [...document.querySelectorAll(
  "a[href], button, input, select, textarea, summary, [role=option], [role=menuitem]"
)].map((each) => each.matches("[type=checkbox], [type=radio]") ? each.closest("label") : each)
  .filter((each) => each.checkVisibility({ visibilityProperty: true }) && !each.closest(".skip, p"))
  .map((each) => [each, each.getBoundingClientRect()])
  .filter(([, { width, height }]) => width < 40 || height < 40)
  .map(([each, { width, height }]) =>
    `${each.className} ${each.ariaLabel ?? each.innerText}: ${width} x ${height}`)"""
"""What of the page is less than 40 pixels wide or high, but for links in a text."""


@pytest_asyncio.fixture(loop_scope="session")
async def page(shared):
    async with shared.page(**PHONE) as page:
        yield page


async def expect_large(page):
    assert await page.evaluate(SMALL) == []
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")


async def test_chats_are_found_chosen_and_deleted_with_a_finger(shared, page):
    for title in ("One", "Two"):
        await shared.server.new_session("lorem", title=title, tags=["drink"])
    await expect(page.get_by_role("heading", name="What can I do for you?")).to_be_visible()
    await expect_large(page)
    await page.get_by_role("button", name="Show conversations").tap()
    row = page.locator(".session").filter(has_text="One")
    await expect(row).to_be_in_viewport()
    await expect_large(page)
    await row.get_by_role("button", name="Actions").tap()
    await expect(page.get_by_role("menuitem", name="Rename")).to_be_visible()
    await expect_large(page)
    await page.get_by_role("menuitem", name="Select several").tap()
    await expect(page.get_by_text("1 selected")).to_be_visible()
    await expect_large(page)
    await page.get_by_role("toolbar").get_by_role("button", name="Delete").tap()
    await expect(page.get_by_role("button", name="Undo")).to_be_visible()
    await expect_large(page)
    await page.get_by_role("button", name="Undo").tap()
    await expect(row).to_be_visible()


async def test_a_chat_is_led_with_a_finger(shared, page):
    session_id = await shared.server.new_session("lorem")
    for text in ("First answer.", "Second answer."):
        await shared.server.post(f"/chat/{session_id}", {"message": scripted(text)})
    await page.goto(f"{shared.server.url}/#/chat/{session_id}")
    await answered(page, 2)
    await page.get_by_role("button", name="Answer again").tap()
    await expect(page.get_by_text("2 / 2")).to_be_visible()
    await expect_large(page)
    await page.get_by_role("button", name="Model: ").tap()
    await expect(page.get_by_role("option").first).to_be_visible()
    await expect_large(page)
    await page.get_by_role("option", name="lorem-small").tap()
    await page.get_by_role("button", name="Edit", exact=True).first.tap()
    await expect_large(page)
    await page.get_by_role("button", name="Cancel").tap()
    await page.get_by_role("button", name="Settings of this chat").tap()
    await expect(page.get_by_role("complementary", name="Settings of this chat")).to_be_visible()
    await expect_large(page)


async def test_the_end_of_a_chat_is_reached_with_a_finger(shared, page):
    session_id = await shared.server.new_session("lorem")
    message = {"message": scripted("A line.\n\n" * 50)}
    assert (await shared.server.post(f"/chat/{session_id}", message))[0] == 200
    await page.goto(f"{shared.server.url}/#/chat/{session_id}")
    await answered(page)
    await page.locator(".scroller").evaluate("scroller => scroller.scrollTo(0, 0)")
    await expect(page.get_by_role("button", name="To the end")).to_be_visible()
    await expect_large(page)


async def test_what_is_chosen_from_brings_no_keyboard(shared, page):
    """That would hide half of the choices."""
    message = page.get_by_role("textbox", name="Write a message")
    await expect(message).to_be_visible()
    for name, place in (("Model: ", ".picker-list"), ("Tools", ".tool-menu")):
        await page.get_by_role("button", name=name).tap()
        await expect(page.locator(f"{place} :focus:not(input)")).to_have_count(1)
        await page.keyboard.press("Escape")
    session_id = await shared.server.new_session("gone-model")
    await page.goto(f"{shared.server.url}/#/chat/{session_id}")
    await page.get_by_role("button", name="Answer with").tap()
    await expect(page.locator("dialog :focus:not(input)")).to_have_count(1)


@pytest.mark.parametrize("name", ["models", "servers", "new-preset", "import"])
async def test_a_page_beside_the_chats_is_used_with_a_finger(shared, page, name):
    await page.goto(f"{shared.server.url}/#/{name}")
    await expect(page.get_by_role("navigation", name="Settings")).to_be_visible()
    await expect(page.get_by_text("Loading…")).to_have_count(0)
    await expect_large(page)
    await expect_accessible(page)
