"""Several chats at once on the page, and all of them as one archive: in a real browser."""

from __future__ import annotations

import asyncio
from zipfile import ZipFile

import pytest
import pytest_asyncio
from playwright.async_api import expect

from tests.support.chromium import needs_chromium
from tests.support.page import expect_accessible
from tests.support.waiting import until

pytestmark = [needs_chromium, pytest.mark.asyncio(loop_scope="session")]


@pytest_asyncio.fixture(loop_scope="session")
async def page(shared):
    """The page with three chats, none of which is open."""
    for title in ("Tea", "Coffee", "Bread"):
        await shared.server.new_session("lorem", title=title)
    async with shared.page() as page:
        await expect(page.locator(".session")).to_have_count(3)
        yield page
    for session in (await shared.server.get("/sessions"))[1]["sessions"]:
        await shared.server.request("DELETE", f"/sessions/{session['session_id']}")


def row(page, name):
    return page.locator(".session").filter(has_text=name)


async def select(page, *names):
    first, *others = names
    await row(page, first).hover()
    await page.get_by_role("button", name=f"Actions: {first}").click()
    await page.get_by_role("menuitem", name="Select several").click()
    for name in others:
        await page.get_by_role("checkbox", name=name).check()
    await expect(page.get_by_role("toolbar").get_by_role("status")).to_have_text(
        f"{len(names)} selected"
    )


async def do(page, name):
    await page.get_by_role("toolbar").get_by_role("button", name=name, exact=True).click()


async def titles(shared):
    status, answer = await shared.server.get("/sessions")
    assert status == 200
    return {session["title"] for session in answer["sessions"]}


async def test_the_menu_of_a_chat_far_below_is_whole(page):
    await page.set_viewport_size({"width": 1280, "height": 700})
    await row(page, "Tea").hover()  # the first that was made, so the last of the list
    await page.get_by_role("button", name="Actions: Tea").click()
    items = await page.get_by_role("menuitem").all()
    for item in items:
        await expect(item).to_be_in_viewport(ratio=1)
    heights = [(await item.bounding_box())["height"] for item in items]
    assert len(set(heights)) == 1  # of one line each


@pytest.mark.parametrize("height", [700, 420])
async def test_a_second_click_on_the_button_of_a_menu_far_below_closes_it(shared, page, height):
    await page.set_viewport_size({"width": 1280, "height": height})
    await row(page, "Tea").hover()
    button = page.get_by_role("button", name="Actions: Tea")
    box = await button.bounding_box()
    for menus in (1, 0):
        await page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        await expect(page.get_by_role("menu")).to_have_count(menus)
    assert await button.bounding_box() == box
    await expect(page.get_by_role("dialog")).to_have_count(0)
    assert await titles(shared) == {"Tea", "Coffee", "Bread"}


async def test_a_menu_closes_when_its_button_is_scrolled_away(page):
    await page.set_viewport_size({"width": 1280, "height": 300})
    await row(page, "Bread").hover()
    await page.get_by_role("button", name="Actions: Bread").click()
    await expect(page.get_by_role("menu")).to_be_visible()
    await row(page, "Bread").get_by_role("link").hover()
    await page.mouse.wheel(0, 100)
    await expect(page.get_by_role("menu")).to_have_count(0)


async def test_chats_are_selected_with_the_keyboard_and_tagged(page):
    await select(page, "Bread")
    await expect(page.get_by_role("checkbox", name="Bread")).to_be_focused()
    await page.keyboard.press("ArrowDown")
    await expect(page.get_by_role("checkbox", name="Coffee")).to_be_focused()
    await page.keyboard.press("Space")
    await expect(page.get_by_role("checkbox", name="Coffee")).to_be_checked()
    await expect_accessible(page)
    dialog = page.get_by_role("dialog", name="Add tags")
    await do(page, "Add tags")
    await dialog.get_by_role("button", name="Cancel").click()
    await expect(page.get_by_role("checkbox", name="Coffee")).to_be_checked()
    await do(page, "Add tags")
    await dialog.get_by_role("textbox").fill("food, food, cheap")
    await dialog.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("toolbar")).to_have_count(0)
    for name in ("Bread", "Coffee"):
        await expect(row(page, name).locator(".tag")).to_have_text(["food", "cheap"])
    await expect(row(page, "Tea").locator(".tag")).to_have_count(0)
    await expect(page.locator(".session a").first).to_be_focused()


async def test_a_selection_is_open_until_the_list_has_what_was_changed(page):
    asked, is_seen = [], asyncio.Event()

    async def hold(route):
        asked.append(route)
        await is_seen.wait()
        await route.continue_()

    await select(page, "Tea")
    await do(page, "Add tags")
    await page.get_by_role("dialog").get_by_role("textbox").fill("cheap")
    async with page.expect_response(lambda each: each.request.method == "PATCH"):
        await page.route("**/sessions?*", hold)
        await page.get_by_role("dialog").get_by_role("button", name="Save").click()
    await until(lambda: len(asked) >= 2)  # the second in the place of the first
    await expect(page.get_by_role("toolbar")).to_have_count(1)
    is_seen.set()
    await expect(page.get_by_role("toolbar")).to_have_count(0)
    await expect(row(page, "Tea").locator(".tag")).to_have_text(["cheap"])
    await expect(page.locator(".session a").first).to_be_focused()


async def test_escape_ends_the_selection_and_nothing_has_changed(shared, page):
    await select(page, "Tea", "Bread")
    await do(page, "Select all")
    await expect(page.get_by_role("checkbox", name="Coffee")).to_be_checked()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("toolbar")).to_have_count(0)
    await expect(row(page, "Tea").get_by_role("link")).to_be_visible()
    assert await titles(shared) == {"Tea", "Coffee", "Bread"}


async def test_selected_chats_go_into_the_archive_and_come_out(page):
    await select(page, "Tea", "Bread")
    await do(page, "Archive")
    await expect(page.locator(".session")).to_have_text(["Coffee"])
    await page.get_by_role("checkbox", name="Archived").check()
    await expect(page.locator(".session")).to_have_count(2)
    await select(page, "Tea", "Bread")
    await do(page, "Take out of the archive")
    await expect(page.locator(".session")).to_have_count(0)
    await page.get_by_role("checkbox", name="Archived").uncheck()
    await expect(page.locator(".session")).to_have_count(3)


async def test_selected_chats_are_deleted_unless_that_is_undone(shared, page):
    await select(page, "Tea", "Bread")
    await do(page, "Delete")
    await expect(page.locator(".session")).to_have_text(["Coffee"])
    notice = page.get_by_text("Deleted: 2 conversations")
    await expect(notice).to_be_visible()
    await page.get_by_role("button", name="Undo").click()
    await expect(page.locator(".session")).to_have_count(3)
    await select(page, "Tea", "Coffee")
    await do(page, "Delete")
    await until(lambda: titles(shared), lambda left: left == {"Bread"})
    await expect(page.locator(".session")).to_have_text(["Bread"])


async def downloaded(download):
    with ZipFile(await (await download.value).path()) as archive:
        return sorted(name.split(" ", 1)[1] for name in archive.namelist())


async def test_selected_chats_and_all_are_saved_as_one_archive(page):
    await select(page, "Tea", "Bread")
    async with page.expect_download() as download:
        await do(page, "Export as one archive")
    assert await downloaded(download) == ["Bread.json", "Tea.json"]
    await page.get_by_role("link", name="Settings").click()
    await page.get_by_role("link", name="Import and export").click()
    async with page.expect_download() as download:
        await page.get_by_role("button", name="Export all conversations").click()
    assert await downloaded(download) == ["Bread.json", "Coffee.json", "Tea.json"]
    await expect_accessible(page)


@pytest.mark.parametrize(
    ("title", "name"),
    [("Tea: green/black?", "Tea_ green_black_.md"), ("x" * 150, "x" * 60 + ".md")],
)
async def test_a_chat_is_saved_under_its_title(shared, page, title, name):
    await shared.server.new_session("lorem", title=title)
    chat = page.locator(".session").first
    await expect(chat).to_contain_text(title)
    await chat.hover()
    await chat.get_by_role("button", name="Actions: ").click()
    async with page.expect_download() as download:
        await page.get_by_role("menuitem", name="Export as Markdown").click()
    assert (await download.value).suggested_filename == name
