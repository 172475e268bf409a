"""The head of a chat on the page: its title, and what can be done with it: in a real browser."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import expect

from tests.support.chromium import needs_chromium
from tests.support.page import answered, expect_accessible, scripted, send

pytestmark = [needs_chromium, pytest.mark.asyncio(loop_scope="session")]

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


async def do(page, action):
    await page.get_by_role("main").get_by_role("button", name="Rename, tag, export").click()
    await page.get_by_role("menuitem", name=action, exact=True).click()


async def write(page, text):
    dialog = page.get_by_role("dialog")
    await dialog.get_by_role("textbox").fill(text)
    await dialog.get_by_role("button", name="Save").click()
    await expect(dialog).to_have_count(0)


async def test_a_chat_is_renamed_tagged_and_deleted_at_its_head(shared):
    session_id = await shared.server.new_session("lorem", title="Tea")
    async with shared.page(f"/#/chat/{session_id}") as page:
        await page.get_by_role("searchbox", name="Search").fill("nothing has this")
        await expect(page.locator(".session")).to_have_count(0)  # the list does not have the chat
        await do(page, "Rename")
        await write(page, "Green tea")
        await expect(page.locator("main h1")).to_have_text("Green tea")
        await do(page, "Tags")
        await write(page, "drink, hot")
        tags = page.get_by_role("navigation", name="Tags").get_by_role("link")
        await expect(tags.filter(has_text=re.compile("drink|hot"))).to_have_text(
            ["drink 1", "hot 1"]
        )
        await do(page, "Pin")
        await do(page, "Unpin")
        await do(page, "Archive")
        await do(page, "Take out of the archive")
        await expect_accessible(page)
        await do(page, "Delete")
        await expect(page.get_by_role("heading", level=1)).to_have_text("What can I do for you?")
        await page.get_by_role("button", name="Undo").click()
        _, session = await shared.server.get(f"/sessions/{session_id}")
        assert (session["title"], session["tags"]) == ("Green tea", ["drink", "hot"])


async def test_the_tab_is_named_after_the_chat(shared):
    await shared.server.new_session("lorem", title="Tea")
    async with shared.page() as page:
        await expect(page).to_have_title("mochi")
        await page.get_by_role("link", name="Tea").first.click()
        await expect(page).to_have_title("Tea · mochi")
        await do(page, "Rename")
        await write(page, f"{'Long ' * 30}\u202e")
        await expect(page).to_have_title(re.compile(f"^{'Long ' * 12}· mochi$"))
        await page.get_by_role("link", name="Inbox").click()
        await expect(page).to_have_title("mochi")


async def test_the_head_has_place_for_the_model_on_a_telephone(shared):
    async with shared.page(**PHONE) as page:
        for text in ("First.", "Second."):  # the second one brings the button that compacts
            await send(page, scripted(text))
            await expect(page.locator(".answer").last).to_contain_text(text)
        await answered(page, 2)
        await expect(page.get_by_role("button", name="Replace what is before")).to_be_visible()
        name = page.locator(".model-choice .name")
        assert await name.evaluate("e => e.scrollWidth <= e.clientWidth")
        assert await page.locator(".page-head").evaluate("e => e.scrollWidth <= e.clientWidth")
        await expect_accessible(page)


@pytest.mark.parametrize("options", [{}, PHONE], ids=["mouse", "finger"])
async def test_a_preset_a_chat_with_it_its_name_and_its_tag_need_no_keys(shared, options):
    """From a preset to the chat that is found again: by clicks, and texts in fields."""
    name = "finger" if options else "mouse"
    async with shared.page(**options) as page:

        async def press(button):
            await (button.tap() if options else button.click())

        async def open_list():
            if options:
                await press(page.get_by_role("button", name="Show conversations"))

        await open_list()
        await press(page.get_by_role("link", name="Settings"))
        await press(page.get_by_role("link", name="Presets"))
        await press(page.get_by_role("link", name="New preset").first)
        await page.get_by_role("textbox", name="Name", exact=True).fill(name)
        model = page.get_by_role("combobox", name="Model")
        await expect(model).not_to_have_value("")  # one is chosen already
        await model.select_option("lorem")
        save = page.get_by_role("button", name="Save")
        await expect(save).to_be_in_viewport(ratio=1)  # without scrolling
        await expect_accessible(page)
        await press(save)
        begin = page.get_by_role("button", name=f"New chat with {name}")
        await expect(begin).to_have_text("New chat")
        await expect_accessible(page)
        await press(begin)
        await page.get_by_role("textbox", name="Write a message").fill("Hello.")
        await press(page.get_by_role("button", name="Send", exact=True))
        await answered(page)
        for action, text in (("Rename", f"By {name}"), ("Tags", f"of {name}")):
            await press(page.get_by_role("main").get_by_role("button", name="Rename, tag, export"))
            await press(page.get_by_role("menuitem", name=action, exact=True))
            await page.get_by_role("dialog").get_by_role("textbox").fill(text)
            await press(page.get_by_role("dialog").get_by_role("button", name="Save"))
            await expect(page.get_by_role("dialog")).to_have_count(0)
        await open_list()
        await press(page.get_by_role("button", name="New chat", exact=True))
        await expect(page.get_by_role("heading", name="What can I do for you?")).to_be_visible()
        await open_list()
        tags = page.get_by_role("navigation", name="Tags")
        await press(tags.get_by_role("link", name=f"of {name}"))
        row = page.get_by_role("main").get_by_role("link", name=f"By {name}")
        await expect(row).to_be_visible()
        await press(row)
        await expect(page.locator("main h1")).to_have_text(f"By {name}")
        await expect(page.get_by_role("button", name=f"Model: preset/{name}")).to_be_visible()


async def test_a_new_chat_is_begun_at_the_top_of_a_telephone(shared):
    session = await shared.server.new_session("lorem", title="Tea")
    async with shared.page(f"/#/chat/{session}", **PHONE) as page:
        begin = page.locator(".page-head").get_by_role("link", name="New chat")
        await begin.tap()
        await expect(page.get_by_role("heading", name="What can I do for you?")).to_be_visible()
        await page.goto(f"{shared.server.url}/#/inbox")
        await expect_accessible(page)
        await begin.tap()
        await expect(page.get_by_role("textbox", name="Write a message")).to_be_visible()
        await page.set_viewport_size({"width": 1280, "height": 800})
        await expect(begin).to_be_hidden()
