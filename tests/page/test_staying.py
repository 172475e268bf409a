"""What a click is meant for stays where it is: in a real browser."""

from __future__ import annotations

import asyncio
import re

import pytest
import pytest_asyncio
from playwright.async_api import expect

from tests.support.chromium import needs_chromium
from tests.support.page import answered, drawn, without_timers
from tests.support.waiting import until

pytestmark = [needs_chromium, pytest.mark.asyncio(loop_scope="session")]

PHONE = {"viewport": {"width": 393, "height": 727}, "has_touch": True, "is_mobile": True}


@pytest_asyncio.fixture(loop_scope="session")
async def ids(shared):
    """Ids of three chats by their titles; the last is the first of the lists."""
    yield {
        title: await shared.server.new_session("lorem", title=title, tags=["drink"])
        for title in ("Tea", "Coffee", "Milk")
    }
    for session in await sessions(shared):
        await shared.server.request("DELETE", f"/sessions/{session['session_id']}")


@pytest_asyncio.fixture(loop_scope="session")
async def page(shared, ids):
    async with shared.page() as page:
        await expect_order(page.locator(".session"), "Milk", "Coffee", "Tea")
        yield page


async def sessions(shared):
    return (await shared.server.get("/sessions"))[1]["sessions"]


async def change(shared, session_id, **changes):
    """Change a chat, as another window does, which makes it the first of the lists."""
    assert (await shared.server.request("PATCH", f"/sessions/{session_id}", changes))[0] == 200


async def expect_order(rows, *titles):
    await expect(rows).to_have_text([re.compile(title) for title in titles])


def group(page, name):
    return page.locator(".sessions section").filter(has=page.get_by_role("heading", name=name))


async def open_menu(page, title):
    await page.locator(".session").filter(has_text=title).hover()
    await page.get_by_role("button", name=f"Actions: {title}").click()


@pytest.mark.parametrize("place", ["side", "tag"])
async def test_chats_stay_while_the_pointer_is_over_them(shared, ids, page, place):
    rows = page.locator(".session")
    if place == "tag":
        await page.get_by_role("link", name="drink 3").click()
        rows = page.get_by_role("main").get_by_role("listitem")
    await rows.filter(has_text="Coffee").hover()
    await shared.server.new_session("lorem", title="Water", tags=["drink"])
    await change(shared, ids["Tea"], title="Green tea")
    await expect_order(rows, "Milk", "Coffee", "Green tea")
    await page.get_by_role("heading", level=1).hover()
    await expect_order(rows, "Green tea", "Water", "Milk", "Coffee")


async def test_a_chat_of_ones_own_comes_at_once(page):
    await page.locator(".session").filter(has_text="Coffee").hover()
    await page.keyboard.press("Shift+Escape")
    await page.keyboard.type("Water?")
    await page.keyboard.press("Enter")
    await expect_order(page.locator(".session"), "Water", "Milk", "Coffee", "Tea")
    await answered(page)  # a chat in which a run goes on cannot be deleted


async def test_chats_stay_while_one_of_them_has_the_focus(shared, ids, page):
    await page.keyboard.press("Control+k")
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("ArrowDown")
    coffee = page.get_by_role("link", name="Coffee")
    await expect(coffee).to_be_focused()
    await change(shared, ids["Tea"], title="Green tea")
    await expect_order(page.locator(".session"), "Milk", "Coffee", "Green tea")
    await page.keyboard.press("ArrowDown")
    await expect(page.get_by_role("link", name="Green tea")).to_be_focused()
    await page.keyboard.press("Control+k")
    await expect_order(page.locator(".session"), "Green tea", "Milk", "Coffee")


async def test_an_open_menu_stays_and_a_pin_moves_its_chat_at_once(shared, ids, page):
    await open_menu(page, "Tea")
    await change(shared, ids["Tea"], title="Green tea")
    await expect_order(page.locator(".session"), "Milk", "Coffee", "Green tea")
    await expect(page.get_by_role("menu")).to_be_visible()
    await page.get_by_role("menuitem", name="Pin").click()
    await expect(group(page, "Pinned").get_by_role("listitem")).to_contain_text("Green tea")


async def test_a_chat_that_comes_back_has_its_place_again(page):
    await open_menu(page, "Coffee")
    await page.get_by_role("menuitem", name="Delete").click()
    await expect_order(page.locator(".session"), "Milk", "Tea")
    await page.keyboard.press("Control+z")
    await expect_order(page.locator(".session"), "Milk", "Coffee", "Tea")


async def test_a_chat_that_comes_back_is_seen_whatever_the_pointer_is_at(page):
    await open_menu(page, "Coffee")
    await page.get_by_role("menuitem", name="Delete").click()
    tea = page.get_by_role("link", name="Tea")
    await tea.hover()
    await page.get_by_role("textbox", name="Write a message").click()
    await tea.hover()
    await page.keyboard.press("Control+z")
    await expect_order(page.locator(".session"), "Milk", "Coffee", "Tea")


async def test_a_chat_that_could_not_be_deleted_comes_back(shared, ids, page):
    refusal = {"error": {"code": "BUSY", "message": "Busy now."}}

    async def refuse(route):
        if route.request.method == "DELETE":
            await route.fulfill(status=503, json=refusal)
        else:
            await route.continue_()

    await page.route("**/sessions/*", refuse)
    await open_menu(page, "Coffee")
    await page.get_by_role("menuitem", name="Delete").click()
    await expect_order(page.locator(".session"), "Milk", "Tea")
    await page.locator(".notice").get_by_role("button", name="Close").click()
    await expect(page.get_by_text("Busy now.")).to_be_visible()
    await expect_order(page.locator(".session"), "Milk", "Coffee", "Tea")


async def test_chats_stay_while_several_are_selected(shared, ids, page):
    await open_menu(page, "Coffee")
    await page.get_by_role("menuitem", name="Select several").click()
    await page.get_by_role("textbox", name="Write a message").click()
    await shared.server.new_session("lorem", title="Water")
    await change(shared, ids["Tea"], title="Green tea")
    await expect_order(page.locator(".session"), "Milk", "Coffee", "Green tea")
    await page.get_by_role("toolbar").get_by_role("button", name="Select all").click()
    await expect(page.get_by_role("toolbar")).to_contain_text("3 selected")
    await page.get_by_role("toolbar").get_by_role("button", name="End").click()
    await page.get_by_role("textbox", name="Write a message").click()
    await expect_order(page.locator(".session"), "Green tea", "Water", "Milk", "Coffee")


async def test_another_search_shows_its_own_order_at_once(shared, ids, page):
    await page.get_by_role("link", name="Milk").hover()
    await change(shared, ids["Tea"], title="Green tea")
    await expect_order(page.locator(".session"), "Milk", "Coffee", "Green tea")
    await page.get_by_role("searchbox", name="Search").fill("tea")
    await expect_order(page.locator(".session"), "Green tea")
    await page.get_by_role("searchbox", name="Search").fill("")
    await expect_order(page.locator(".session"), "Green tea", "Milk", "Coffee")


async def test_more_chats_come_under_their_own_heading(shared, page):
    for number in range(60):
        await shared.server.new_session("lorem", title=f"Chat {number}")
    await expect(page.get_by_role("link", name="Chat 59")).to_be_visible()
    await expect(page.locator(".session")).to_have_count(60)
    await page.get_by_role("button", name="Show more").click()
    await expect(page.locator(".session")).to_have_count(63)
    await expect(page.locator(".sessions h2")).to_have_text(["Last 24 hours"])


@pytest.mark.parametrize("place", ["side", "tag"])
async def test_what_shows_more_gives_the_focus_to_what_it_has_shown(shared, ids, page, place):
    for number in range(60):
        await shared.server.new_session("lorem", title=f"Chat {number}", tags=["drink"])
    area, rows = page.get_by_role("complementary"), page.locator(".session")
    if place == "tag":
        await page.get_by_role("link", name="drink 63").click()
        area = page.get_by_role("main")
        rows = area.get_by_role("listitem")
    await expect(rows).to_have_count(60)
    await area.get_by_role("button", name="Show more").press("Enter")
    await expect(rows).to_have_count(63)
    await expect(rows.nth(60)).to_contain_text("Milk")
    await expect(rows.nth(60).get_by_role("link")).to_be_focused()


async def test_the_first_chats_to_come_are_no_late_ones(shared, ids):
    asked, is_due = [], asyncio.Event()

    async def hold(route):
        asked.append(route)
        await is_due.wait()
        await route.continue_()

    async with shared.context() as context:
        page = await context.new_page()
        await page.route("**/sessions?*", hold)
        await page.goto(shared.server.url)
        await page.get_by_role("navigation", name="Conversations").hover()
        await until(lambda: asked)
        is_due.set()
        await expect_order(page.locator(".session"), "Milk", "Coffee", "Tea")
        await expect(page.locator(".sessions h2")).to_have_text(["Last 24 hours"])


async def test_chats_come_with_the_tags_above_them(shared, ids):
    asked, is_due = [], asyncio.Event()

    async def hold(route):
        asked.append(route)
        await is_due.wait()
        await route.continue_()

    async with shared.context() as context:
        page = await context.new_page()
        await page.route("**/tags", hold)
        await page.add_init_script(f"({without_timers(1000)})()")  # it waits a second at most
        async with page.expect_response("**/sessions?*") as answer:
            await page.goto(shared.server.url)
        await (await answer.value).finished()
        await until(lambda: asked)
        await drawn(page)
        assert await page.locator(".session").count() == 0
        is_due.set()
        await expect(page.get_by_role("link", name="drink 3")).to_be_visible()
        await expect_order(page.locator(".session"), "Milk", "Coffee", "Tea")


async def test_tags_of_others_wait_while_the_pointer_is_over_the_chats(shared, ids, page):
    coffee = page.locator(".session").filter(has_text="Coffee")
    await coffee.hover()
    place = await coffee.bounding_box()
    many = ["a rather long tag", "another rather long tag", "one more"]
    await shared.server.new_session("lorem", title="Water", tags=many)
    await change(shared, ids["Tea"], title="Green tea")
    await expect_order(page.locator(".session"), "Milk", "Coffee", "Green tea")
    async with page.expect_response("**/sessions?*"):
        pass  # the next look
    await drawn(page)
    assert await coffee.bounding_box() == place
    await page.get_by_role("heading", level=1).hover()
    await expect(page.get_by_role("link", name="one more 1")).to_be_visible()


async def test_a_finger_that_has_been_in_the_list_holds_nothing(shared, ids):
    async with shared.page(**PHONE) as page:
        await page.get_by_role("button", name="Show conversations").tap()
        await expect_order(page.locator(".session"), "Milk", "Coffee", "Tea")
        heading = page.get_by_role("heading", name="Last 24 hours")
        await heading.tap()
        await heading.hover()  # as some browsers leave it after a tap
        await change(shared, ids["Tea"], title="Green tea")
        await expect_order(page.locator(".session"), "Green tea", "Milk", "Coffee")


async def test_a_menu_that_is_open_keeps_the_list_where_one_taps(shared, ids):
    async with shared.page(**PHONE) as page:
        await page.get_by_role("button", name="Show conversations").tap()
        await expect_order(page.locator(".session"), "Milk", "Coffee", "Tea")
        await page.get_by_role("button", name="Actions: Tea").tap()
        await change(shared, ids["Tea"], title="Green tea")
        await expect_order(page.locator(".session"), "Milk", "Coffee", "Green tea")
        await page.get_by_role("menuitem", name="Pin").tap()
        await expect(group(page, "Pinned").get_by_role("listitem")).to_contain_text("Green tea")


async def test_a_deletion_can_be_undone_while_the_pointer_is_at_it(shared, ids):
    async with shared.context() as context:
        page = await context.new_page()
        await page.clock.install()
        await page.goto(shared.server.url)
        undo = page.get_by_role("button", name="Undo")
        tea = page.locator(".session").filter(has_text="Tea")
        for is_undone in (True, False):
            await open_menu(page, "Tea")
            await page.get_by_role("menuitem", name="Delete").click()
            await undo.hover()
            await page.clock.fast_forward(8_000)
            await drawn(page)
            await expect(undo).to_have_count(1)
            if is_undone:
                await undo.click()
                await expect(tea).to_have_count(1)
        await page.get_by_role("heading", level=1).hover()
        await expect(undo).to_have_count(0)
        await until(lambda: sessions(shared), lambda left: len(left) == 2)


async def test_nothing_moves_an_undo_or_puts_it_away(shared, page):
    await page.goto(f"{shared.server.url}/#/tools")
    copy = page.get_by_role("button", name="Copy the example")
    await expect(copy).to_be_visible()
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await open_menu(page, "Tea")
    await page.get_by_role("menuitem", name="Delete").click()
    undo = page.get_by_role("button", name="Undo")
    await undo.hover()
    place = await undo.bounding_box()
    await page.context.set_offline(True)
    await expect(page.get_by_text("No connection to the server")).to_be_visible()
    assert await undo.bounding_box() == place
    await page.context.set_offline(False)
    await expect(page.get_by_text("No connection to the server")).to_have_count(0)
    for _ in range(5):
        await copy.press("Enter")
    await expect(page.get_by_text("Copied")).to_have_count(4)
    assert await undo.bounding_box() == place
    await undo.click()
    await expect_order(page.locator(".session"), "Milk", "Coffee", "Tea")


async def test_a_notice_above_an_undo_is_not_put_away_for_a_new_one(shared, page):
    await page.goto(f"{shared.server.url}/#/tools")
    copy = page.get_by_role("button", name="Copy the example")
    await expect(copy).to_be_visible()
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await copy.press("Enter")
    await expect(page.get_by_text("Copied")).to_have_count(1)
    await open_menu(page, "Tea")
    await page.get_by_role("menuitem", name="Delete").click()
    undo = page.get_by_role("button", name="Undo")
    await undo.hover()
    place = await undo.bounding_box()
    for _ in range(5):
        await copy.press("Enter")
    await expect(page.get_by_text("Copied")).to_have_count(5)
    assert await undo.bounding_box() == place


async def test_what_can_no_longer_be_undone_is_done(shared, ids):
    async with shared.context() as context:
        page = await context.new_page()
        await page.add_init_script(f"({without_timers(7000)})()")
        await page.goto(shared.server.url)
        await open_menu(page, "Tea")
        await page.get_by_role("menuitem", name="Delete").click()
        await expect(page.get_by_role("button", name="Undo")).to_be_visible()
        await page.get_by_role("status").get_by_role("button", name="Close").click()
        await until(lambda: sessions(shared), lambda left: len(left) == 2)
