"""The page by the keyboard alone: in a real browser, with a server in test mode."""

from __future__ import annotations

import re

import pytest
import pytest_asyncio
from playwright.async_api import expect

from tests.support.chromium import needs_chromium
from tests.support.page import LIMIT, answered, browser_with_server, scripted
from tests.support.tools import function, write_tools

pytestmark = [needs_chromium, pytest.mark.asyncio(loop_scope="module")]
expect.set_options(timeout=LIMIT)

STALL = {"stall": {"seconds": 3600, "after_words": 3}}
MOST_STEPS = 80
FOCUSED = (
    "() => document.activeElement.getAttribute('aria-label') || document.activeElement.innerText"
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    write_tools(folder / "tools", init=function("add") + "\n__all__ = ['add']\n")
    async with browser_with_server(folder) as shared:
        yield shared


@pytest_asyncio.fixture(loop_scope="module")
async def page(shared):
    async with shared.page() as page:
        await expect(page.get_by_role("textbox", name="Write a message")).to_be_focused()
        yield page


async def go_to(page, name, key="Tab"):
    """Press a key until what has this name has the focus."""
    names = []
    for _ in range(MOST_STEPS):
        names.append(await page.evaluate(FOCUSED) or "")
        if re.search(name, names[-1]):
            return
        await page.keyboard.press(key)
    raise AssertionError(f"no focus on {name}: {names}")


async def type_and_send(page, text):
    await page.keyboard.insert_text(text)
    await page.keyboard.press("Enter")


async def test_a_message_is_sent_and_its_answer_stopped(page):
    await type_and_send(page, scripted([{"text_message": {"text": "one two three four"}}, STALL]))
    await expect(page.locator(".answer")).to_contain_text("one two three")
    await go_to(page, "^Stop$")
    await page.keyboard.press("Enter")
    await expect(page.locator(".answer")).to_contain_text("interrupted")
    await page.keyboard.press("Shift+Escape")
    await type_and_send(page, scripted("Again."))
    await answered(page, 2)


async def test_a_call_is_approved_and_the_focus_returns_to_the_message(shared):
    asking = {"tools": ["add"], "execution_policy": "always_confirm"}
    session = await shared.server.new_session("lorem", tool_settings=asking)
    async with shared.page(f"/#/chat/{session}") as page:
        message = page.get_by_role("textbox", name="Write a message")
        await expect(message).to_be_focused()
        call = [{"tool_call": [{"name": "add", "args": {}}]}]
        await type_and_send(page, scripted(call, "Done."))
        await expect(page.locator(".card.asking")).to_be_visible()
        await go_to(page, "^Approve$", "Shift+Tab")
        await expect(page.get_by_role("button", name="Approve")).to_be_enabled()
        await page.keyboard.press("Enter")
        await answered(page)
        await expect(message).to_be_focused()


async def test_one_moves_between_conversations_and_to_the_inbox(shared, page):
    for name in ("First", "Second"):
        session = await shared.server.new_session("lorem", title=name)
        await shared.server.post(f"/chat/{session}", {"message": scripted(f"{name} answer.")})
        await expect(page.locator(".session").filter(has_text=name)).to_be_visible()
    await page.keyboard.press("Control+k")
    await expect(page.get_by_role("searchbox", name="Search")).to_be_focused()
    for name in ("First", "Second"):
        await go_to(page, f"^{name}$")
        await page.keyboard.press("Enter")
        await expect(page.locator(".answer")).to_contain_text(f"{name} answer.")
        await page.keyboard.press("Control+k")
    await go_to(page, "^Inbox")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Inbox")
    await page.keyboard.press("Control+Shift+O")
    await expect(page.get_by_role("heading", level=1)).to_have_text("What can I do for you?")


@pytest.mark.parametrize("key", ["Escape", "Enter"])
async def test_a_menu_and_a_dialog_give_the_focus_back(shared, page, key):
    await shared.server.new_session("lorem", title=f"With a menu {key}")
    await expect(page.get_by_text(f"With a menu {key}")).to_be_visible()
    menu = page.get_by_role("button", name=f"Actions: With a menu {key}")
    await go_to(page, f"^Actions: With a menu {key}")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("menuitem", name="Rename")).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(menu).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("menuitem", name="Rename")).to_be_focused()
    await page.keyboard.press("ArrowDown")
    await expect(page.get_by_role("menuitem", name="Pin")).to_be_focused()
    await page.keyboard.press("ArrowUp")
    await expect(page.get_by_role("menuitem", name="Rename")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("textbox", name="Title")).to_be_focused()
    await page.keyboard.press(key)
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await expect(menu).to_be_focused()


@pytest.mark.parametrize("place", ["button", "a"], ids=["menu", "link"])
async def test_a_chat_that_comes_into_another_group_keeps_the_focus(shared, page, place):
    session_id = await shared.server.new_session("lorem", title="To be pinned")
    focused = page.locator(f".session:has(a[href$='{session_id}']) {place}").first
    await focused.focus()
    pinned = page.locator(".sessions section").filter(
        has=page.get_by_role("heading", name="Pinned")
    )
    await shared.server.request("PATCH", f"/sessions/{session_id}", {"pinned": True})
    await expect(pinned).to_contain_text("To be pinned")
    await expect(focused).to_be_focused()
    await shared.server.request("DELETE", f"/sessions/{session_id}")


async def test_the_list_of_a_narrow_page_closes_and_gives_the_focus_back(page):
    await page.set_viewport_size({"width": 390, "height": 800})
    await go_to(page, "^Show conversations$", "Shift+Tab")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("link", name="mochi")).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("button", name="Show conversations")).to_be_focused()
    await expect(page.get_by_role("link", name="mochi")).to_be_hidden()
