"""A whole visit in a real browser, from the first message to a second tab."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import expect

from tests.support.chromium import needs_chromium
from tests.support.page import LIMIT, answered, browser_with_server, scripted, send
from tests.support.server import ROOT
from tests.support.tools import write_tools

pytestmark = [needs_chromium, pytest.mark.slow]
expect.set_options(timeout=LIMIT)

ADD = '''
def add(a: float, b: float) -> str:
    """Add two numbers."""
    return str(a + b)


__all__ = ["add"]
'''
WORDS = "one two three four five six seven eight nine ten"
PAUSE = {"stall": {"seconds": 4, "after_words": 3}}
INNER = scripted(
    "I look first.",
    [{"tool_call": [{"name": "list_documents", "args": {}}]}],
    "There is a welcome.",
    question="Look at the documents.",
    lasting=True,
)
AGENT = [{"tool_call": [{"name": "agent", "args": {"agent": "researcher", "instruction": INNER}}]}]


async def choose_tools_and_agents(page):
    await page.get_by_role("button", name="Settings of this chat").click()
    panel = page.get_by_role("complementary", name="Settings of this chat")
    await panel.get_by_role("checkbox", name="add", exact=True).check()
    await panel.get_by_role("checkbox", name="researcher").check()
    await panel.get_by_role("button", name="Close").click()


async def ask_first_question(page):
    await expect(page.get_by_role("heading", level=1)).to_have_text("What can I do for you?")
    await choose_tools_and_agents(page)
    await send(page, scripted("A **first** answer.", question="A first question"))
    await answered(page)
    await expect(page.locator(".answer strong")).to_have_text("first")
    await expect(page).to_have_url(re.compile("#/chat/"))


async def change_arguments(page):
    call = [{"tool_call": [{"name": "add", "args": {"a": 1, "b": 2}}]}]
    await send(page, scripted(call, "Added."))
    card = page.get_by_role("region", name="Call of add")
    await card.get_by_role("button", name="Edit arguments").click()
    await card.get_by_role("textbox", name="Arguments").fill('{"a": 40, "b": 2}')
    await card.get_by_role("button", name="Approve with changes").click()
    await answered(page, 2)
    await expect(card).to_contain_text("Changed")


async def let_an_agent_work(page):
    await send(page, scripted(AGENT, "The agent has looked."))
    await page.get_by_role("button", name="Approve", exact=True).click()
    agent = page.get_by_role("region", name="Agent researcher")
    inner = agent.get_by_role("region", name="Call of list_documents")
    await inner.get_by_role("button", name="Approve", exact=True).click()
    await answered(page, 3)
    await agent.get_by_role("button").first.click()
    await expect(agent.locator(".tree")).to_contain_text("There is a welcome.")


async def lose_the_connection(page):
    await send(page, scripted([{"text_message": {"text": WORDS}}, PAUSE]))
    last = page.locator(".answer").last
    await expect(last).to_contain_text("one two three")
    await page.context.set_offline(True)
    await expect(page.get_by_text("No connection to the server")).to_be_visible()
    await page.context.set_offline(False)
    await answered(page, 4)
    await expect(last.locator(".markdown")).to_have_text(WORDS)


async def reload_in_mid_stream(page):
    await send(page, scripted([{"text_message": {"text": WORDS.upper()}}, PAUSE]))
    await expect(page.locator(".answer").last).to_contain_text("ONE TWO THREE")
    await page.reload()


async def expect_all(page):
    await answered(page, 5)
    await expect(page.locator(".answer")).to_have_count(5)
    await expect(page.locator(".answer").last.locator(".markdown")).to_have_text(WORDS.upper())
    await expect(page.locator(".question")).to_have_count(5)
    for text in ("A first answer.", "Added.", "The agent has looked.", WORDS):
        await expect(page.locator(".answer").filter(has_text=text).first).to_be_visible()


async def test_everything_is_there_after_tools_agents_a_cut_a_reload_and_in_a_second_tab(tmp_path):
    write_tools(tmp_path / "tools", init=ADD)
    agents = ROOT / "examples" / "data" / "agents"
    async with (
        browser_with_server(tmp_path, agents_dir=agents) as shared,
        shared.page() as page,
    ):
        await ask_first_question(page)
        await change_arguments(page)
        await let_an_agent_work(page)
        await lose_the_connection(page)
        await reload_in_mid_stream(page)
        second = await page.context.new_page()
        await second.goto(page.url)
        for tab in (page, second):
            await expect_all(tab)
        await send(second, scripted("From the second tab."))
        await answered(page, 6)
        await expect(page.locator(".answer").last).to_contain_text("From the second tab.")
