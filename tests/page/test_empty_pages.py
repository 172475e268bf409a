"""Pages of a server that has nothing yet: in a real browser."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.support.chromium import needs_chromium
from tests.support.page import browser_with_server, expect_accessible
from tests.support.waiting import until

pytestmark = [needs_chromium, pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.parametrize(
    ("name", "says", "example", "action"),
    [
        ("inbox", "Nothing waits for you.", "write_file", "New chat"),
        ("prompts", "There are no prompts yet.", "Answer in plain words", "New prompt"),
        ("tools", "There are no tools.", "def count_letters", "Copy the example"),
        ("agents", "There are no agents.", "name: proofreader", "Copy the example"),
    ],
)
async def test_an_empty_page_shows_an_example_and_what_to_do(shared, name, says, example, action):
    size = {"width": 390, "height": 664}
    async with shared.page(f"/#/{name}", viewport=size) as page:
        main = page.get_by_role("main")
        await expect(main).to_contain_text(says)
        await expect(main.get_by_role("group", name="Example")).to_contain_text(example)
        await expect_accessible(page)
        if action == "Copy the example":
            await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
            await main.get_by_role("button", name=action).click()
            await expect(page.get_by_role("status").filter(has_text="Copied")).to_be_visible()
            assert example in await page.evaluate("navigator.clipboard.readText()")
        else:
            await main.get_by_role("link", name=action).last.click()
            await expect(page.get_by_role("textbox").last).to_be_visible()


@pytest.mark.parametrize("name", ["Tools", "Agents"])
async def test_a_chat_without_tools_or_agents_leads_to_how_to_add_one(shared, name):
    async with shared.page() as page:
        await page.get_by_role("button", name="Settings of this chat").click()
        panel = page.get_by_role("complementary", name="Settings of this chat")
        choices = panel.locator("fieldset").filter(has=page.get_by_text(name, exact=True))
        await expect(choices).to_contain_text("None yet.")
        await choices.get_by_role("link", name="How to add one").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text(name)
        await expect(page.get_by_role("group", name="Example")).to_be_visible()


async def test_the_examples_of_a_tool_and_an_agent_are_one(browser, tmp_path):
    async with browser_with_server(browser, tmp_path) as own, own.page() as page:
        for name, file in (
            ("tools", "tools/letters/__init__.py"),
            ("agents", "agents/proofreader/SKILL.md"),
        ):
            await page.goto(f"{own.server.url}/#/{name}")
            place = page.get_by_role("main").get_by_role("group", name="Example")
            path = tmp_path / file
            path.parent.mkdir(parents=True)
            path.write_text(await place.inner_text())

        async def has_both():
            _, tools = await own.server.get("/tools")
            _, agents = await own.server.get("/agents")
            return "count_letters" in tools["tools"] and "proofreader" in agents["agents"]

        await until(has_both, bool)
        _, agents = await own.server.get("/agents")
        assert agents["agents"]["proofreader"]["valid"], agents
