"""What is chosen at the message box, what an answer offers, and what the system tells of it."""

from __future__ import annotations

import re
import shutil

import pytest
import pytest_asyncio
from playwright.async_api import expect

from tests.support.chromium import needs_chromium
from tests.support.page import (
    answered,
    browser_with_server,
    choose_model,
    expect_accessible,
    press,
    scripted,
    send,
)
from tests.support.server import ROOT

pytestmark = [needs_chromium, pytest.mark.asyncio(loop_scope="session")]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shared(browser, tmp_path_factory):
    folder = tmp_path_factory.mktemp("box")
    shutil.copytree(ROOT / "examples/data", folder, dirs_exist_ok=True)
    async with browser_with_server(browser, folder) as shared:
        yield shared


@pytest_asyncio.fixture(loop_scope="session")
async def page(shared):
    async with shared.page() as page:
        yield page


async def tool_settings(shared, page):
    _, session = await shared.server.get(f"/sessions/{page.url.rpartition('/')[2]}")
    return session["tool_settings"]


def button(page):
    return page.get_by_role("button", name=re.compile("^Tools: .* in this chat$"))


async def test_tools_are_chosen_at_the_box_of_a_new_chat_and_changed_later(shared, page):
    await button(page).click()
    menu = page.get_by_role("group", name="Tools of this chat")
    await expect(menu.get_by_role("searchbox")).to_be_focused()
    await expect(menu.get_by_text("Roll dice; the numbers and their sum.")).to_be_visible()
    await expect(menu.get_by_role("checkbox", name="append_to_file Destructive")).to_be_visible()
    await menu.get_by_role("searchbox").fill("dice")
    await menu.get_by_role("checkbox", name="roll_dice").check()
    await expect(menu.get_by_role("checkbox", name="append_to_file")).to_have_count(0)
    await page.keyboard.press("Escape")
    await expect(button(page)).to_be_focused()
    await expect(button(page)).to_have_accessible_name("Tools: 1 in this chat")
    await send(page, scripted("Yes."))
    await answered(page)
    assert (await tool_settings(shared, page))["tools"] == ["roll_dice"]
    await button(page).click()
    group = menu.get_by_role("checkbox", name="chance (1 of 3)")
    assert await group.evaluate("box => box.indeterminate")
    await group.check()
    await expect(menu.get_by_role("checkbox", name="shuffle")).to_be_checked()
    await menu.get_by_role("checkbox", name="roll_dice").uncheck()
    await page.get_by_role("button", name="Settings of this chat").click()
    panel = page.get_by_role("complementary", name="Settings of this chat")
    await expect(panel.get_by_role("checkbox", name="shuffle")).to_be_checked()
    await panel.get_by_role("combobox", name="Asks you").select_option("never")
    await page.reload()
    await expect(button(page)).to_have_accessible_name("Tools: 2 in this chat")
    settings = await tool_settings(shared, page)
    assert sorted(settings["tools"]) == ["choose", "shuffle"]
    assert settings["execution_policy"] == "never_confirm"


async def test_the_tools_of_a_group_in_the_settings_are_chosen_one_by_one(shared):
    of_group = {"tools": [], "tool_group": "chance", "execution_policy": "never_confirm"}
    session = await shared.server.new_session("lorem", tool_settings=of_group)
    async with shared.page(f"/#/chat/{session}") as page:
        await button(page).click()
        await page.get_by_role("checkbox", name="roll_dice").uncheck()
        await expect(button(page)).to_have_accessible_name("Tools: 2 in this chat")
        await page.get_by_role("checkbox", name="calculate").check()
        await page.reload()
        await expect(button(page)).to_have_accessible_name("Tools: 3 in this chat")
        settings = await tool_settings(shared, page)
        assert settings["tool_group"] is None
        assert sorted(settings["tools"]) == ["calculate", "choose", "shuffle"]


async def test_chosen_tools_stand_first_when_the_menu_is_opened(shared):
    chosen = {"tools": ["roll_dice", "calculate"]}
    session = await shared.server.new_session("lorem", tool_settings=chosen)
    async with shared.page(f"/#/chat/{session}") as page:
        await button(page).click()
        menu = page.get_by_role("group", name="Tools of this chat")
        tools = menu.locator(".tool")
        is_chosen = "all => all.map(each => each.querySelector('input').checked)"
        await expect(tools.filter(has_text="roll_dice")).to_be_in_viewport(ratio=1)
        groups = menu.locator("[role=group] [role=group]")
        for index in range(await groups.count()):
            states = await groups.nth(index).locator(".tool").evaluate_all(is_chosen)
            assert states[0] is (index < 2)
            assert states == sorted(states, reverse=True)
        names = await tools.all_inner_texts()
        await tools.last.get_by_role("checkbox").check()
        assert await tools.all_inner_texts() == names  # nothing moves under the pointer
        await button(page).click()
        await button(page).click()
        await expect(groups.nth(2).locator(".tool").first).to_contain_text(names[-1].split()[0])


async def test_a_model_that_cannot_call_tools_says_so_until_the_prompt_describes_them(page):
    await choose_model(page, "lorem-plain")
    await button(page).click()
    menu = page.get_by_role("group", name="Tools of this chat")
    await expect(menu).to_contain_text("lorem-plain cannot call tools.")
    await expect(menu.get_by_role("checkbox", name="roll_dice")).to_be_disabled()
    await menu.get_by_role("checkbox", name="Describe the tools").check()
    await menu.get_by_role("checkbox", name="roll_dice").check()
    await page.get_by_role("textbox", name="Write a message").click()
    await expect(menu).to_have_count(0)
    await expect(button(page)).to_have_accessible_name("Tools: 1 in this chat")


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_the_choice_of_tools_is_accessible_and_fits_a_telephone(shared, theme):
    async with shared.page(color_scheme=theme) as page:
        await choose_model(page, "lorem-plain")
        await button(page).click()
        await page.get_by_role("checkbox", name="Describe the tools").check()
        await page.get_by_role("checkbox", name="roll_dice").check()
        await expect(button(page)).to_have_text("Tools: 1")
        for width in (1280, 390):
            await page.set_viewport_size({"width": width, "height": 800})
            await expect_accessible(page)


# A browser without a screen has no voice: this one reads until it is stopped.
VOICE = """
window.lines = [];
window.SpeechSynthesisUtterance = class extends EventTarget {
  constructor(text) { super(); this.text = text; }
};
const voice = {
  cancel: () => { window.lines.length = 0; },
  speak: ({ text }) => window.lines.push(text),
};
Object.defineProperty(window, "speechSynthesis", { value: voice });
"""


async def test_an_answer_is_read_aloud_as_it_is_seen_until_it_is_stopped(shared):
    async with shared.context() as context:
        await context.add_init_script(VOICE)
        page = await context.new_page()
        await page.goto(shared.server.url)
        parts = ["# First", "A **second** line.", "| third |\n|---|", "> ```text\n> fourth\n> ```"]
        await send(page, scripted("\n\n".join(parts)))
        await answered(page)
        await page.get_by_role("button", name="Read aloud").click()
        lines = await page.evaluate("window.lines")
        assert [line.strip() for line in lines] == ["First", "A second line.", "third", "fourth"]
        await page.get_by_role("button", name="Stop reading").click()
        await expect(page.get_by_role("button", name="Read aloud")).to_be_visible()
        assert await page.evaluate("window.lines") == []


# A browser without a microphone hears nothing: this one is told what it hears.
EARS = """
window.SpeechRecognition = class extends EventTarget {
  start() { window.listener = this; }
  stop() { this.end(); }
  abort() { this.end(); }
  end() {
    window.listener = null;
    this.dispatchEvent(new Event("end"));
  }
  hear(transcript, isFinal) {
    const results = [Object.assign([{ transcript }], { isFinal })];
    this.dispatchEvent(Object.assign(new Event("result"), { resultIndex: 0, results }));
  }
};
"""


async def test_a_message_is_dictated_once_it_is_known_where_the_sound_goes(shared):
    async with shared.context() as context:
        await context.add_init_script(EARS)
        page = await context.new_page()
        await page.goto(shared.server.url)
        box = page.get_by_role("textbox", name="Write a message")
        await box.fill("Dear")
        dictate = page.get_by_role("button", name="Dictate", exact=True)
        dialog = page.get_by_role("dialog", name="Dictate")
        await dictate.click()
        await expect(dialog).to_contain_text("may send the sound to its maker")
        await dialog.get_by_role("button", name="Cancel").click()
        assert not await page.evaluate("window.listener")
        await dictate.click()
        await dialog.get_by_role("button", name="Dictate").click()
        end = page.get_by_role("button", name="End the dictation")
        await expect(end).to_have_attribute("aria-pressed", "true")
        await page.evaluate("window.listener.hear('mo', false)")
        await page.evaluate("window.listener.hear(' mochi', true)")
        await expect(box).to_have_value("Dear mochi")
        await page.evaluate("window.listener.hear('hello', true)")
        await expect(box).to_have_value("Dear mochi hello")
        await expect_accessible(page)
        await end.click()
        await expect(dictate).to_have_attribute("aria-pressed", "false")
        await dictate.click()
        await expect(end).to_be_visible()  # and nothing is asked again
        await box.press("Enter")
        await answered(page)
        await expect(page.locator(".question")).to_contain_text("Dear mochi hello")
        assert not await page.evaluate("window.listener")


async def test_a_dictation_that_the_browser_refuses_says_so(shared):
    async with shared.context() as context:
        await context.add_init_script(EARS)
        page = await context.new_page()
        await page.goto(shared.server.url)
        await page.evaluate("localStorage.setItem('mochi.dictation', 'on')")
        await page.get_by_role("button", name="Dictate", exact=True).click()
        refusal = "Object.assign(new Event('error'), { error: 'not-allowed' })"
        await page.evaluate(f"window.listener.dispatchEvent({refusal}); window.listener.end()")
        await expect(page.get_by_text("may have no microphone")).to_be_visible()
        await expect(page.get_by_role("button", name="Dictate", exact=True)).to_be_visible()


async def test_a_browser_that_recognises_no_speech_offers_no_dictation(shared):
    async with shared.context() as context:
        await context.add_init_script(
            "delete window.SpeechRecognition; delete window.webkitSpeechRecognition"
        )
        page = await context.new_page()
        await page.goto(shared.server.url)
        await expect(page.get_by_role("button", name="Attach files")).to_be_visible()
        await expect(page.get_by_role("button", name="Dictate")).to_have_count(0)


# What the browser would ask, and show outside of the page.
SYSTEM = """
window.told = [];
window.Notification = class extends EventTarget {
  static permission = "default";
  static requestPermission = async () => (Notification.permission = window.allowed);
  constructor(text) { super(); window.told.push(text); }
};
Object.defineProperty(document, "hidden", { get: () => window.isAway });
"""


async def test_who_wants_it_is_told_of_calls_and_answers_while_away(shared):
    asking = {"tools": ["roll_dice"], "execution_policy": "always_confirm"}
    session = await shared.server.new_session("lorem", tool_settings=asking)
    call = [{"tool_call": [{"name": "roll_dice", "args": {}}]}]
    async with shared.context() as context:
        await context.add_init_script(SYSTEM)
        page = await context.new_page()
        await page.goto(f"{shared.server.url}/#/inbox")
        wanted = page.get_by_role("button", name="Notifications")
        await page.evaluate("window.allowed = 'denied'")
        await wanted.click()
        await expect(page.get_by_text("does not allow notifications")).to_be_visible()
        await expect(wanted).to_have_attribute("aria-pressed", "false")
        await page.evaluate("window.allowed = 'granted'")
        await wanted.click()
        await expect(wanted).to_have_attribute("aria-pressed", "true")
        await page.evaluate("id => { location.hash = `#/chat/${id}` }", session)
        await page.evaluate("window.isAway = true")
        await send(page, scripted(call, "Rolled."))
        await press(page.get_by_role("region", name="Call of roll_dice"), "Approve")
        await answered(page)
        await page.wait_for_function("window.told.length === 3")
        told = await page.evaluate("window.told")
        assert told == ["Notifications are on", "Waits for you", "The answer is done"]
