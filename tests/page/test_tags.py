"""Tags as places on the page: in a real browser."""

from __future__ import annotations

import asyncio
import re

import pytest
import pytest_asyncio
from playwright.async_api import expect

from tests.support.chromium import needs_chromium
from tests.support.page import expect_accessible
from tests.support.waiting import until

pytestmark = [needs_chromium, pytest.mark.asyncio(loop_scope="session")]

CHATS = (("Tea", ["drink"]), ("Coffee", ["drink", "dear"]), ("Bread", ["food/ä #1"]))


@pytest_asyncio.fixture(loop_scope="session")
async def page(shared):
    """The page with three chats that have tags."""
    for title, tags in CHATS:
        await shared.server.new_session("lorem", title=title, tags=tags)
    async with shared.page() as page:
        await expect(page.locator(".session")).to_have_count(len(CHATS))
        yield page
    for session in (await shared.server.get("/sessions"))[1]["sessions"]:
        await shared.server.request("DELETE", f"/sessions/{session['session_id']}")


def tags(page):
    return page.get_by_role("navigation", name="Tags")


def rows(page):
    return page.get_by_role("main").get_by_role("listitem")


async def act(page, title, action):
    await rows(page).get_by_role("button", name=f"Actions: {title}").click()
    await page.get_by_role("menuitem", name=action, exact=True).click()


async def test_a_tag_opens_its_chats_at_an_address_of_its_own(shared, page):
    await expect(tags(page).get_by_role("link")).to_have_text(["drink 2", "dear 1", "food/ä #1 1"])
    await tags(page).get_by_role("link", name="drink").click()
    await expect(page.get_by_role("heading", name="drink", exact=True)).to_be_visible()
    await expect(rows(page)).to_have_text([re.compile("Coffee"), re.compile("Tea")])
    await expect(tags(page).get_by_role("link", name="drink")).to_have_attribute(
        "aria-current", "page"
    )
    await tags(page).get_by_role("link", name="food").click()
    await expect(rows(page)).to_have_text([re.compile("Bread")])
    await page.reload()
    await expect(rows(page)).to_have_text([re.compile("Bread")])
    async with shared.page() as other:
        await other.goto(page.url)
        await expect(rows(other)).to_have_text([re.compile("Bread")])
    await page.go_back()
    await expect(page.get_by_role("heading", name="drink", exact=True)).to_be_visible()
    await page.go_back()
    await expect(page.get_by_role("textbox", name="Write a message")).to_be_visible()


async def test_a_search_in_a_tag_finds_nothing_of_others(page):
    await tags(page).get_by_role("link", name="drink").click()
    await page.get_by_role("searchbox", name="Search: drink").fill("tea")
    await expect(rows(page)).to_have_text([re.compile("Tea")])
    await expect(rows(page).locator("mark")).to_have_text("Tea")
    await page.get_by_role("searchbox", name="Search: drink").fill("bread")
    await expect(page.get_by_role("main")).to_contain_text("Nothing found.")
    await expect(page.locator(".session")).to_have_count(len(CHATS))
    await page.get_by_role("searchbox", name="Search: drink").fill("")
    await rows(page).get_by_role("link", name="Coffee").click()
    await expect(page.get_by_role("heading", name="Coffee")).to_have_count(1)


@pytest.mark.parametrize("place", ["side", "tag"])
async def test_what_is_typed_while_a_search_never_ends_is_searched(page, place):
    await tags(page).get_by_role("link", name="drink").click()
    await expect(rows(page)).to_have_count(2)
    is_asked = asyncio.Event()

    async def hold(route):
        is_asked.set()

    await page.route("**/sessions?query=te&*", hold)
    name = {"side": "Search", "tag": "Search: drink"}[place]
    search = page.get_by_role("searchbox", name=name, exact=True)
    await search.fill("te")
    await until(is_asked.is_set)
    await search.fill("tea")
    found = {"side": page.locator(".session"), "tag": rows(page)}[place]
    await expect(found.locator("mark")).to_have_text(["Tea"])


async def test_what_is_changed_in_a_place_is_counted_at_the_side(page):
    await tags(page).get_by_role("link", name="drink").click()
    await act(page, "Tea", "Archive")
    await expect(rows(page).filter(has_text="Tea")).to_contain_text("Archived")
    await expect(page.locator(".session")).to_have_count(len(CHATS) - 1)
    await act(page, "Coffee", "Tags")
    await page.get_by_role("dialog").get_by_role("textbox").fill("dear")
    await page.get_by_role("button", name="Save").click()
    await expect(rows(page)).to_have_text([re.compile("Tea")])
    await expect(tags(page).get_by_role("link", name="drink")).to_have_text("drink 1")
    await act(page, "Tea", "Delete")
    await expect(page.get_by_role("main")).to_contain_text("Nothing found.")
    await page.get_by_role("button", name="Undo").click()
    await expect(rows(page)).to_have_text([re.compile("Tea")])


async def test_tags_of_other_chats_are_chosen_with_a_click(shared, page):
    await tags(page).get_by_role("link", name="food").click()
    await act(page, "Bread", "Tags")
    dialog = page.get_by_role("dialog")
    field = dialog.get_by_role("textbox", name="Tags, separated by commas")
    used = dialog.get_by_role("group", name="Tags of other chats")
    await expect(used.get_by_role("button", pressed=True)).to_have_text(["food/ä #1"])
    await used.get_by_role("button", name="drink").click()
    await expect(field).to_have_value("food/ä #1, drink")
    await used.get_by_role("button", name="food").click()
    await field.press("End")
    await field.press_sequentially(", new")
    await expect(used.get_by_role("button", pressed=True)).to_have_text(["drink"])
    await expect_accessible(page)
    await dialog.get_by_role("button", name="Save").click()
    await expect(dialog).to_have_count(0)
    await expect(tags(page).get_by_role("link", name="new")).to_have_text("new 1")
    await expect(tags(page).get_by_role("link", name="drink")).to_have_text("drink 3")
    await expect(tags(page).get_by_role("link", name="food")).to_have_count(0)


async def test_what_others_do_is_seen_in_a_place_and_at_the_side(shared, page):
    await tags(page).get_by_role("link", name="drink").click()
    await expect(rows(page)).to_have_count(2)
    await shared.server.new_session("lorem", title="Milk", tags=["drink", "white"])
    await expect(rows(page).first).to_contain_text("Milk")
    await expect(tags(page).get_by_role("link", name="drink")).to_have_text("drink 3")
    await expect(tags(page).get_by_role("link", name="white")).to_be_visible()


async def test_the_tags_that_are_seldom_come_on_a_click(shared, page):
    await shared.server.new_session("lorem", tags=[f"seldom {n}" for n in range(9)])
    await expect(tags(page).get_by_role("link")).to_have_count(8)
    await tags(page).get_by_role("button", name="Show more").click()
    await expect(tags(page).get_by_role("link")).to_have_count(12)
    await tags(page).get_by_role("button", name="Show less").click()
    await expect(tags(page).get_by_role("link")).to_have_count(8)


async def test_a_place_is_reached_and_left_with_the_keyboard(page):
    await expect(tags(page).get_by_role("link", name="drink")).to_be_visible()
    await page.get_by_role("searchbox", name="Search").focus()
    await page.keyboard.press("Tab")
    await page.keyboard.press("Tab")
    await expect(tags(page).get_by_role("link", name="drink")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(rows(page)).to_have_count(2)
    await expect_accessible(page)
    await rows(page).get_by_role("link", name="Tea").focus()
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(re.compile("#/chat/"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_a_place_suits_a_telephone(shared, page, scheme):
    await shared.server.new_session(
        "lorem", title="W" * 150, tags=["drink", "v" * 50], archived=True
    )
    size = {"width": 390, "height": 664}
    async with shared.page(viewport=size, has_touch=True, color_scheme=scheme) as phone:
        await phone.get_by_role("button", name="Show conversations").click()
        await expect(tags(phone).get_by_role("link", name="v" * 50)).to_be_visible()
        await expect_accessible(phone)
        await tags(phone).get_by_role("link", name="drink").tap()
        await expect(rows(phone)).to_have_count(3)
        await expect(tags(phone)).to_be_hidden()
        await rows(phone).get_by_role("button", name="Actions: WW").tap()
        await expect(phone.get_by_role("menuitem", name="Delete")).to_be_visible()
        await expect_accessible(phone)


@pytest.mark.parametrize("address", ["tag", "tag/", "tag/%E4"])
async def test_an_address_without_a_tag_is_a_new_chat(shared, address):
    async with shared.page(f"/#/{address}") as page:
        await expect(page.get_by_role("textbox", name="Write a message")).to_be_visible()


@pytest.mark.parametrize("width", [1280, 390])
async def test_a_second_click_on_the_button_of_a_menu_closes_it(page, width):
    await tags(page).get_by_role("link", name="drink").click()
    await page.set_viewport_size({"width": width, "height": 420})
    button = rows(page).get_by_role("button", name="Actions: Tea")
    box = await button.bounding_box()
    for menus in (1, 0):
        await page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        await expect(page.get_by_role("menu")).to_have_count(menus)
    assert await button.bounding_box() == box
    await button.click()
    for item in await page.get_by_role("menuitem").all():
        await expect(item).to_be_in_viewport(ratio=1)
