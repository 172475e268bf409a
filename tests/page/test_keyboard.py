"""The page by the keyboard alone: in a real browser, with a server in test mode."""

from __future__ import annotations

import json
import re

import pytest
import pytest_asyncio
from playwright.async_api import expect

from tests.support.chromium import needs_chromium
from tests.support.page import (
    LEAVE_UNSETTLED,
    answered,
    browser_with_server,
    held,
    scripted,
)
from tests.support.tools import function, write_tools
from tests.support.waiting import until

pytestmark = [needs_chromium, pytest.mark.asyncio(loop_scope="session")]

STALL = {"stall": {"seconds": 3600, "after_words": 3}}
MOST_STEPS = 80
FOCUSED = (
    "() => document.activeElement.getAttribute('aria-label') || document.activeElement.innerText"
)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shared(browser, tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    write_tools(folder / "tools", init=function("add") + "\n__all__ = ['add']\n")
    async with browser_with_server(browser, folder) as shared:
        yield shared


@pytest_asyncio.fixture(loop_scope="session")
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
    await expect(page.get_by_role("button", name="Stop")).to_be_enabled()
    await page.keyboard.press("Enter")
    await expect(page.locator(".answer")).to_contain_text("interrupted")
    await expect(page.get_by_role("textbox", name="Write a message")).to_be_focused()
    await type_and_send(page, scripted("Again."))
    await answered(page, 2)


async def test_an_answer_that_another_client_stops_leaves_the_focus_to_the_message(shared, page):
    await type_and_send(page, scripted([{"text_message": {"text": "one two three four"}}, STALL]))
    await expect(page.locator(".answer")).to_contain_text("one two three")
    await go_to(page, "^Stop$")
    await page.evaluate(LEAVE_UNSETTLED)
    box = page.get_by_role("textbox", name="Write a message")
    await box.evaluate("(box) => { box.value = 'A draft'; box.dispatchEvent(new Event('input')); }")
    await shared.server.post(f"/chat/{page.url.rpartition('/')[2]}/stop")
    await expect(page.locator(".answer")).to_contain_text("interrupted")
    await expect(box).to_be_focused()
    await page.keyboard.press("Enter")  # was to stop
    await expect(box).to_have_value("A draft")
    await type_and_send(page, ", written on")
    await expect(box).to_have_value("")


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


async def test_a_new_chat_by_the_keyboard_begins_in_its_box(page):
    message = page.get_by_role("textbox", name="Write a message")
    await page.keyboard.press("Control+k")
    for _ in range(2):  # from the search, and from the box itself
        await page.keyboard.press("Control+Shift+O")
        await expect(message).to_be_focused()


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


async def choose_in_menu(page, title, action):
    """Open the menu of a chat from its row, and choose an action, by the keyboard."""
    await page.get_by_role("button", name=f"Actions: {title}").focus()
    await page.keyboard.press("Enter")
    await go_to(page, f"^{action}$", "ArrowDown")
    await page.keyboard.press("Enter")


async def test_a_chat_that_moves_in_its_list_keeps_the_focus(shared, page):
    ids = [await shared.server.new_session("lorem", title=title, tags=["b"]) for title in "cba"]
    await page.goto(f"{shared.server.url}/#/tag/b")
    rows = page.get_by_role("main").get_by_role("listitem")
    await expect(rows).to_have_text([re.compile(f"^{title}") for title in "abc"])
    menu = rows.get_by_role("button", name="Actions: c")
    await menu.focus()
    await page.keyboard.press("Enter")
    await go_to(page, "^Pin$", "ArrowDown")
    await page.keyboard.press("Enter")
    await expect(rows).to_have_text([re.compile(f"^{title}") for title in "cab"])
    await expect(menu).to_be_focused()
    for each in ids:
        await shared.server.request("DELETE", f"/sessions/{each}")


async def test_a_chat_that_leaves_the_list_gives_the_focus_to_its_neighbour(shared, page):
    for other in (await shared.server.get("/sessions"))[1]["sessions"]:
        await shared.server.post(f"/chat/{other['session_id']}/stop")
        await shared.server.request("DELETE", f"/sessions/{other['session_id']}")
    ids = [await shared.server.new_session("lorem", title=f"Row {each}") for each in "cba"]
    a, b, c = (page.locator(f"a[href$='{each}']") for each in reversed(ids))
    await expect(a).to_be_visible()
    await choose_in_menu(page, "Row b", "Archive")
    await expect(b).to_have_count(0)
    await expect(c).to_be_focused()
    await choose_in_menu(page, "Row c", "Delete")
    await expect(c).to_have_count(0)
    await expect(a).to_be_focused()
    await a.click()
    await expect(page.get_by_role("textbox", name="Write a message")).to_be_focused()
    await shared.server.request("PATCH", f"/sessions/{ids[2]}", {"archived": True})
    await expect(a).to_have_count(0)
    await expect(page.get_by_role("textbox", name="Write a message")).to_be_focused()
    for each in ids:
        await shared.server.request("DELETE", f"/sessions/{each}")


async def remove_row(page, name):
    await page.get_by_role("button", name=name).press("Enter")
    await expect(page.get_by_role("dialog")).to_be_visible()
    await go_to(page, "^(Delete|Remove)$")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("button", name=name)).to_have_count(0)


@pytest.mark.parametrize("kind", ["prompts", "presets"])
async def test_an_entry_that_is_deleted_gives_the_focus_to_its_neighbour(shared, page, kind):
    for name in ("a", "b", "c"):
        if kind == "presets":
            await shared.server.request("PUT", f"/presets/{name}", {"model": "lorem"})
        else:
            body = {"filename": f"{name}.md", "content": "Be brief."}
            await shared.server.post("/system-prompts", body)
    await page.goto(f"{shared.server.url}/#/{kind}")
    await remove_row(page, "Delete b")
    await expect(page.locator("a.card-head").last).to_be_focused()
    await remove_row(page, "Delete c")
    await expect(page.locator("a.card-head")).to_be_focused()
    await remove_row(page, "Delete a")
    title = {"prompts": "Prompts", "presets": "Presets"}[kind]
    await expect(page.get_by_role("region", name=title)).to_be_focused()


async def test_a_card_that_is_decided_gives_the_focus_to_its_neighbour(shared):
    asking = {"tools": ["add"], "execution_policy": "always_confirm"}
    ids = [
        await shared.server.new_session("lorem", title=title, tool_settings=asking)
        for title in ("Card one", "Card two")
    ]
    call = [{"tool_call": [{"name": "add", "args": {}}]}]
    async with shared.page("/#/inbox") as page:
        for session_id in ids:
            message = {"message": scripted(call, "Done.")}
            await shared.server.post(f"/chat/{session_id}/runs", message)
        cards = page.locator("li.card")
        await expect(cards).to_have_count(2)
        for left in (1, 0):
            approve = cards.first.get_by_role("button", name="Approve")
            await expect(approve).to_be_enabled()
            await approve.focus()
            await page.keyboard.press("Enter")
            await expect(cards).to_have_count(left)
            if left:
                await expect(cards.get_by_role("link")).to_be_focused()
        await expect(page.get_by_role("region", name="Inbox")).to_be_focused()
    for session_id in ids:
        await shared.server.request("DELETE", f"/sessions/{session_id}")


async def test_a_file_that_is_removed_gives_the_focus_to_its_neighbour(page):
    files = [{"name": f"{name}.txt", "mimeType": "text/plain", "buffer": b"."} for name in "ab"]
    await page.locator("input[type=file]").set_input_files(files)
    await page.get_by_role("button", name="Remove a.txt").press("Enter")
    await expect(page.get_by_role("button", name="Remove b.txt")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("textbox", name="Write a message")).to_be_focused()


async def test_the_list_of_a_narrow_page_closes_and_gives_the_focus_back(page):
    await page.set_viewport_size({"width": 390, "height": 800})
    await go_to(page, "^Show conversations$", "Shift+Tab")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("link", name="mochi")).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("button", name="Show conversations")).to_be_focused()
    await expect(page.get_by_role("link", name="mochi")).to_be_hidden()


async def test_the_settings_of_a_chat_take_the_focus_and_give_it_back(page):
    panel = page.get_by_role("complementary", name="Settings of this chat")
    button = page.get_by_role("button", name="Settings of this chat")
    await go_to(page, "^Settings of this chat$", "Shift+Tab")
    await page.keyboard.press("Enter")
    await expect(panel).to_be_focused()
    await page.keyboard.press("Tab")
    await expect(panel.get_by_role("button", name="Close")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(panel).to_have_count(0)
    await expect(button).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(panel).to_be_focused()
    await page.keyboard.press("Tab")
    await page.keyboard.press("Tab")
    await expect(panel.get_by_role("textbox", name="System prompt")).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(panel).to_have_count(0)
    await expect(button).to_be_focused()


async def test_a_question_that_is_asked_again_leaves_the_focus_to_the_message(page):
    message = page.get_by_role("textbox", name="Write a message")
    await type_and_send(page, scripted("Once."))
    await answered(page)
    await go_to(page, "^Edit$", "Shift+Tab")
    await page.keyboard.press("Enter")
    await go_to(page, "^Ask again$")
    await page.keyboard.press("Enter")
    await expect(message).to_be_focused()
    await answered(page)
    await go_to(page, "^Answer again$", "Shift+Tab")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("2 / 2")).to_be_visible()
    await expect(message).to_be_focused()


async def test_a_deletion_is_undone_where_nothing_is_written(shared, page):
    session_id = await shared.server.new_session("lorem", title="To be kept")
    row = page.get_by_role("link", name="To be kept")
    message = page.get_by_role("textbox", name="Write a message")
    undo = page.get_by_role("button", name="Undo")
    await expect(row).to_be_visible()
    await choose_in_menu(page, "To be kept", "Delete")
    await expect(undo).to_be_visible()
    await expect(row).to_have_count(0)
    await message.focus()
    await page.keyboard.insert_text("Words")
    await page.keyboard.press("Control+z")
    await expect(message).to_have_value("")
    await expect(undo).to_be_visible()
    await page.keyboard.press("Control+z")
    await expect(row).to_be_visible()
    await expect(undo).to_have_count(0)
    await choose_in_menu(page, "To be kept", "Delete")
    await undo.press("Enter")
    await expect(row).to_be_visible()
    await expect(message).to_be_focused()
    await shared.server.request("DELETE", f"/sessions/{session_id}")


async def test_a_block_of_an_mcp_server_is_pasted_where_its_example_stands(shared, page):
    await page.goto(f"{shared.server.url}/#/servers")
    await page.get_by_role("button", name="Add", exact=True).press("Enter")
    field = page.get_by_role("textbox", name="Configuration")
    assert "mcpServers" in await field.get_attribute("placeholder")
    await page.keyboard.press("Tab")
    await expect(field).to_be_focused()
    server = {"command": "no-such-program", "disabled": True}
    await page.keyboard.insert_text(json.dumps({"mcpServers": {"pasted": server}}))
    await go_to(page, "^Add$")
    await page.keyboard.press("Enter")
    await expect(page.locator(".page li.card .name")).to_have_text(["pasted"])
    await shared.server.request("DELETE", "/mcp/pasted")


async def test_the_name_of_a_preset_says_what_it_may_have(shared, page):
    await page.goto(f"{shared.server.url}/#/new-preset")
    name = page.get_by_role("textbox", name="Name", exact=True)
    characters = "Letters from A to Z, digits, dots, - and _"
    await expect(name).to_have_attribute("placeholder", characters)
    await expect(name).to_have_attribute("title", characters)  # the browser adds it to what it says


async def expect_kept(button, page, address):
    """Press a button, and expect that it has the focus while its work goes on, and afterwards."""
    async with held(page, address) as is_asked:
        await button.press("Enter")
        await until(is_asked.is_set)
        await expect(button).to_be_disabled()
        await expect(button).to_be_focused()
        await page.keyboard.press("Enter")  # takes nothing meanwhile
    await expect(button).to_be_enabled()
    await expect(button).to_be_focused()


async def test_the_button_that_compacts_keeps_the_focus(shared, page):
    session_id = await shared.server.new_session("lorem")
    for text in ("First answer.", "Second answer."):
        await shared.server.post(f"/chat/{session_id}", {"message": scripted(text)})
    await page.goto(f"{shared.server.url}/#/chat/{session_id}")
    await answered(page, 2)
    button = page.locator("header [aria-busy]")
    await expect(button).to_have_accessible_name(re.compile("^Replace what is before"))
    await expect_kept(button, page, "**/compact")
    await expect(page.locator(".summary-line")).to_be_visible()


@pytest.mark.parametrize(
    ("path", "name", "address"),
    [("import", "(Export all|The archive)", "**/export"), ("tools", "Reload", "**/reload")],
)
async def test_a_button_that_works_keeps_the_focus(shared, page, path, name, address):
    await page.goto(f"{shared.server.url}/#/{path}")
    button = page.locator("main").get_by_role("button", name=re.compile(f"^{name}"))
    await expect_kept(button, page, address)


async def test_the_arrows_of_an_answer_keep_the_focus_at_its_first_and_last_variant(page):
    await type_and_send(page, scripted("Once."))
    await answered(page)
    await page.get_by_role("button", name="Answer again").press("Enter")
    number = page.locator(".variants span")
    await expect(number).to_have_text("2 / 2")
    for name, shown in (("Previous answer", "1 / 2"), ("Next answer", "2 / 2")):
        arrow = page.get_by_role("button", name=name)
        await arrow.press("Enter")
        await expect(number).to_have_text(shown)
        await expect(arrow).to_be_disabled()
        await expect(arrow).to_be_focused()
        await page.keyboard.press("Enter")
        await page.keyboard.press("Space")
        await expect(arrow).to_be_focused()
        await expect(number).to_have_text(shown)


async def test_a_decision_that_is_refused_gives_no_focus_away(shared):
    asking = {"tools": ["add"], "execution_policy": "always_confirm"}
    session_id = await shared.server.new_session("lorem", tool_settings=asking)
    call = [{"tool_call": [{"name": "add", "args": {}}]}]
    await shared.server.post(f"/chat/{session_id}/runs", {"message": scripted(call, "Done.")})
    async with shared.page(f"/#/chat/{session_id}") as page:
        approve = page.get_by_role("button", name="Approve")
        await expect(approve).to_be_enabled()
        refusal = {"error": {"code": "BUSY", "message": "Too much at once."}}
        await page.route(
            "**/confirmations/*",
            lambda route: route.fulfill(status=503, json=refusal),
            times=1,
        )
        await approve.press("Enter")
        await expect(page.get_by_text("Too much at once.")).to_be_visible()
        await expect(approve).to_be_focused()
        await expect(approve).to_be_enabled()
        await page.keyboard.press("Enter")
        await answered(page)
