"""The pages beside the chats: models, tools, agents, prompts, presets, MCP servers, health."""

from __future__ import annotations

import asyncio
import json
import re
import shutil

import pytest
import pytest_asyncio
from playwright.async_api import expect

from tests.support.chromium import needs_chromium
from tests.support.mcp import Wire, known_to, tool
from tests.support.page import (
    answered,
    browser_with_server,
    drawn,
    expect_accessible,
    press,
    scripted,
    send,
)
from tests.support.server import ROOT
from tests.support.waiting import until

pytestmark = [needs_chromium, pytest.mark.asyncio(loop_scope="session")]

PAGES = [
    "", "inbox", "models", "tools", "agents", "prompts", "prompts/helpful.md", "new-prompt",
    "presets", "presets/brief", "new-preset", "rules", "servers", "import", "health",
]  # fmt: skip
HOSTILE = "<img src=x onerror=\"document.title='broken'\"><script>alert(1)</script>\u202eevil"
PRESET = "---\ndescription: Short.\nmodel: lorem\noptions:\n  temperature: 0.2\n---\n\nBe brief.\n"


def add_tool(folder, name, description):
    (folder / f"tools/{name}.py").write_text(
        f'def {name}() -> str:\n    """{description}"""\n    return ""\n'
    )
    package = folder / "tools/__init__.py"
    listed = package.read_text().replace("__all__ = [", f'__all__ = [\n    "{name}",', 1)
    package.write_text(listed.replace("from .text", f"from .{name} import {name}\nfrom .text", 1))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    shutil.copytree(ROOT / "examples/data", folder, dirs_exist_ok=True)
    (folder / "tools/broken.py").write_text("def broken(:\n")
    add_tool(folder, "hostile", HOSTILE)
    (folder / "agents/broken").mkdir()
    (folder / "agents/broken/SKILL.md").write_text("---\nname: broken\n---\n")
    (folder / "presets").mkdir()
    (folder / "presets/brief.md").write_text(PRESET)
    (folder / "presets/broken.md").write_text("---\nnonsense: 1\n---\n")
    (folder / "system_prompts/hostile.md").write_text(HOSTILE)
    wire = Wire(folder / "wire.json", tools=[tool("read", HOSTILE)])
    servers = {"wire": wire.entry(), "gone": {"command": "no-such-program"}}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    return folder


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shared(browser, data):
    async with browser_with_server(browser, data) as shared:
        yield shared


@pytest_asyncio.fixture(loop_scope="session")
async def page(shared):
    async with shared.page() as page:
        yield page


async def unfold(page, name):
    """Unfold the entry of a list, and return it."""
    entry = page.locator(".page li.card").filter(has=page.get_by_text(name, exact=True)).first
    await entry.locator(".card-head").click()
    return entry


async def visit(page, shared, path):
    await page.goto(f"{shared.server.url}/#/{path}")


@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
async def test_no_page_has_a_finding_of_axe_or_is_wider_than_a_telephone(shared, theme):
    async with shared.context(color_scheme=theme, bypass_csp=True) as context:
        page = await context.new_page()
        await page.goto(shared.server.url)
        for path in PAGES:
            await page.evaluate(GO, path)
            await expect(page.get_by_text("Loading…")).to_have_count(0)
            for head in await page.locator(".page li.card button.card-head").all():
                await head.click()
            await expect(page.get_by_text("Loading…")).to_have_count(0)
            for width in (1280, 390):
                await page.set_viewport_size({"width": width, "height": 800})
                await expect_accessible(page)


GO = """path => new Promise((drawn) => {
  const wait = () => requestAnimationFrame(() => requestAnimationFrame(drawn));
  addEventListener("hashchange", wait, { once: true });
  location.hash = `#/${path}`;
})"""
"""Goes to another address, and is done when it is drawn."""


async def test_every_section_of_the_settings_leads_to_a_page(page):
    heading = page.get_by_role("heading", level=1)
    await page.get_by_role("link", name="Inbox").click()
    await expect(heading).to_have_text("Inbox")
    sections = page.get_by_role("navigation", name="Settings")
    await expect(sections).to_have_count(0)
    await page.get_by_role("link", name="Settings").click()
    links = sections.get_by_role("link")
    await expect(links).to_have_count(9)
    for link in await links.all():
        name = await link.inner_text()
        await link.click()
        await expect(heading).to_have_text(name.strip())
        await expect(link).to_have_attribute("aria-current", "page")
        await expect(link).to_be_focused()
    await page.set_viewport_size({"width": 390, "height": 800})
    await page.reload()
    await expect(links.last).to_be_in_viewport()
    await expect_accessible(page)


async def test_models_tell_what_they_can_and_begin_a_chat(shared, page):
    await visit(page, shared, "models")
    entry = await unfold(page, "lorem-small")
    await expect(entry).to_contain_text("4,096 tokens")
    await expect(entry).to_contain_text("completion, tools, thinking, vision")
    await entry.get_by_role("button", name="New chat").click()
    await expect(page.get_by_role("button", name="Model: lorem-small")).to_be_visible()


async def test_tools_have_their_schema_source_and_problems(shared, page, data):
    await visit(page, shared, "tools")
    entry = await unfold(page, "roll_dice")
    await expect(entry.get_by_role("group", name="Schema")).to_contain_text('"sides"')
    await expect(entry.get_by_role("group", name="Source")).to_contain_text("def roll_dice(")
    await expect(entry).to_contain_text("tools/chance.py:")
    problems = page.get_by_role("region", name="Problems")
    await expect(problems).to_contain_text("SyntaxError")
    await expect(problems).to_contain_text("tools/broken.py:1")
    add_tool(data, "later", "Later.")
    await page.get_by_role("button", name="Reload").click()
    await expect(page.get_by_text("later", exact=True)).to_be_visible()


HURRIED = """
new MutationObserver((_, observer) => {
  if (!document.querySelector("#app main")) return;
  observer.disconnect();
  location.hash = "#/agents";
}).observe(document, { childList: true, subtree: true });
"""
"""Goes to another address as soon as the first one is drawn."""


async def test_an_address_that_changes_while_the_page_is_drawn_is_shown(shared):
    async with shared.context() as context:
        await context.add_init_script(HURRIED)
        page = await context.new_page()
        await page.goto(shared.server.url)
        await expect(page.get_by_role("heading", name="Agents", exact=True)).to_be_visible()


@pytest.mark.parametrize("name", ["constructor", "__proto__", "toString", "chat", "chat/"])
async def test_an_address_that_names_nothing_is_a_new_chat(shared, name):
    async with shared.page(f"/#/{name}") as page:
        await send(page, scripted("Here."))
        await answered(page)


async def test_names_that_every_object_has_are_names_like_others(shared):
    chosen = {
        "tools": ["constructor"],
        "tool_group": "toString",
        "execution_policy": "never_confirm",
    }
    session = await shared.server.new_session("lorem", tool_settings=chosen)
    async with shared.page(f"/#/chat/{session}") as page:
        await page.get_by_role("button", name="Tools: 1 in this chat").click()
        missing = page.get_by_role("group", name="Not here any more")
        await expect(missing.get_by_role("checkbox", name="constructor")).to_be_checked()


async def test_agents_have_their_tools_and_problems(shared, page):
    await visit(page, shared, "agents")
    entry = await unfold(page, "coder")
    await expect(entry).to_contain_text("check_python")
    await expect(entry).to_contain_text("You are a careful programmer.")
    await expect(page.get_by_role("region", name="Problems")).to_contain_text(
        "description is missing"
    )


async def test_a_prompt_is_made_changed_and_deleted(shared, page):
    await visit(page, shared, "prompts")
    await page.get_by_role("link", name="New prompt").click()
    await page.get_by_role("textbox", name="File name").fill("pirate")
    await page.get_by_role("textbox", name="System prompt").fill("You are a pirate.")
    await page.get_by_role("button", name="Save").click()
    await page.get_by_role("link", name="pirate.md").click()
    text = page.get_by_role("textbox", name="System prompt")
    await expect(text).to_have_value("You are a pirate.")
    await text.fill("You are an old pirate.")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("link", name="pirate.md")).to_contain_text("an old pirate")
    await page.get_by_role("button", name="Delete pirate.md").click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await expect(page.get_by_role("link", name="pirate.md")).to_have_count(0)
    assert (await shared.server.get("/system-prompts/pirate.md"))[0] == 404


async def test_a_preset_is_made_changed_and_deleted(shared, page):
    await visit(page, shared, "new-preset")
    presets = page.get_by_role("main")  # conversations may name dice, too
    await page.get_by_role("textbox", name="Name").fill("dice")
    await expect(page.get_by_role("combobox", name="Model")).not_to_have_value("")
    await page.get_by_role("combobox", name="Model").select_option("lorem")
    await expect(page.get_by_role("button", name="Save")).to_be_in_viewport(ratio=1)
    await page.get_by_role("spinbutton", name="Temperature").fill("0.4")
    await page.keyboard.press("Tab")
    await page.get_by_role("searchbox", name="Search: Tools").fill("dice")
    await page.get_by_role("checkbox", name="roll_dice").check()
    await page.get_by_role("combobox", name="Asks you").select_option("never")
    await page.get_by_role("button", name="Save").click()
    await presets.get_by_role("link", name="dice").click()
    await expect(page.get_by_role("spinbutton", name="Temperature")).to_have_value("0.4")
    await page.get_by_role("textbox", name="Description").fill("Rolls dice.")
    await page.get_by_role("button", name="Save").click()
    await expect(presets.get_by_role("link", name="dice")).to_contain_text("Rolls dice.")
    _, preset = await shared.server.get("/presets/dice")
    assert preset["options"] == {"temperature": 0.4}
    assert (preset["tools"], preset["policy"]) == (["roll_dice"], "never_confirm")
    begin = page.get_by_role("button", name="New chat with dice")
    await expect(begin).to_have_text("New chat")
    await begin.click()
    await expect(page.get_by_role("button", name="Model: preset/dice")).to_be_visible()
    await expect(page.get_by_role("textbox", name="Message")).to_be_focused()
    await visit(page, shared, "presets")
    await page.get_by_role("button", name="Delete dice").click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await expect(presets.get_by_role("link", name="dice")).to_have_count(0)
    await presets.get_by_role("link", name="broken").click()
    await expect(page.get_by_role("alert")).to_contain_text("there is no key 'nonsense'")


async def test_mcp_servers_are_added_restarted_switched_off_and_removed(shared, page):
    await visit(page, shared, "servers")
    entry = page.locator(".page li.card").filter(has=page.get_by_text("wire", exact=True))
    await expect(entry).to_contain_text("1 tool")
    await entry.locator(".card-head").click()
    async with page.expect_response("**/restart"):
        await entry.get_by_role("button", name="Restart").click()
    await expect(entry).to_contain_text("Ready")
    place = await entry.get_by_role("button", name="Restart").bounding_box()

    async def fail(route):
        response = await route.fetch()
        body = await response.json()
        body["servers"]["wire"] |= {"last_error": "It has just failed.", "state": "failed"}
        await route.fulfill(response=response, json=body)

    await page.route("**/api/v1/mcp/servers", fail)
    await page.reload()
    await entry.locator(".card-head").click()
    await expect(entry).to_contain_text("It has just failed.")
    assert await entry.get_by_role("button", name="Restart").bounding_box() == place
    await page.unroute("**/api/v1/mcp/servers")
    await page.reload()
    await entry.locator(".card-head").click()
    await entry.get_by_role("button", name="Show log").click()
    await expect(entry).to_contain_text("[ended: it was stopped]")
    await expect(page.get_by_text("Failed", exact=True)).to_be_visible()
    await page.get_by_role("button", name="Add").click()
    await page.get_by_role("textbox", name="Name").fill("other")
    await page.get_by_role("textbox", name="Configuration").fill("{")
    await page.get_by_role("dialog").get_by_role("button", name="Add").click()
    await expect(page.get_by_role("alert")).to_contain_text("This is not JSON")
    config = json.dumps({"command": "no-such-program", "disabled": True})
    await page.get_by_role("textbox", name="Configuration").fill(config)
    await page.get_by_role("dialog").get_by_role("button", name="Add").click()
    await expect(page.get_by_role("dialog")).to_have_count(0)
    other = page.locator(".page li.card").filter(has=page.get_by_text("other", exact=True))
    await expect(other).to_contain_text("Off")
    await other.locator(".card-head").click()
    await other.get_by_role("button", name="Switch on").click()
    await expect(other.locator(".state")).not_to_have_text("Off")
    await other.get_by_role("button", name="Remove").click()
    await page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    await expect(other).to_have_count(0)


async def test_a_whole_block_of_mcp_servers_is_added_at_once(browser, tmp_path):
    async with browser_with_server(browser, tmp_path) as shared, shared.page() as page:
        await visit(page, shared, "servers")
        await expect(page.get_by_text("There are no servers.")).to_be_visible()
        await page.get_by_role("button", name="Add an MCP server").click()
        off = {"command": "no-such-program", "disabled": True}
        field = page.get_by_role("textbox", name="Configuration")
        add = page.get_by_role("dialog").get_by_role("button", name="Add")
        await field.fill(json.dumps(off))
        await add.click()
        await expect(page.get_by_role("alert")).to_contain_text("needs a name")
        await field.fill(json.dumps({"mcpServers": {"one": off, "two": {"nonsense": 1}}}))
        await add.click()
        await expect(page.get_by_role("alert")).to_contain_text("two")
        await field.fill(json.dumps({"mcpServers": {"one": off, "two": off}}))
        sent, is_clicked_again = [], asyncio.Event()

        async def hold(route):
            sent.append(route.request.post_data_json["name"])
            await is_clicked_again.wait()
            await route.continue_()

        await page.route("**/mcp/add", hold)
        await add.click()
        await add.click()
        is_clicked_again.set()
        await expect(page.get_by_role("dialog")).to_have_count(0)
        assert sent == ["two"]
        await expect(page.locator(".page li.card .name")).to_have_text(["one", "two"])


async def test_health_shows_providers_and_what_the_doctor_finds(shared, page):
    await visit(page, shared, "health")
    await expect(page.locator(".page li.card").filter(has_text="test")).to_contain_text("reachable")
    await expect(page.get_by_role("button", name="tools warning")).to_have_attribute(
        "aria-expanded", "true"
    )
    findings = page.locator(".findings")
    await expect(findings.get_by_text("SyntaxError")).to_be_visible()
    await expect(findings.get_by_text("there is no key 'nonsense'")).to_be_visible()
    await expect(findings.get_by_text("Python 3.")).to_have_count(0)  # what is well is folded
    await page.get_by_role("button", name="server").click()
    await expect(findings.get_by_text("Python 3.")).to_be_visible()


async def test_health_shows_what_is_wrong_with_a_provider(browser, tmp_path):
    (tmp_path / "models").mkdir()
    settings = {"environment": "production", "models_dir": tmp_path / "models"}
    async with browser_with_server(browser, tmp_path, **settings) as shared, shared.page() as page:
        await visit(page, shared, "health")
        provider = page.locator(".page li.card").filter(has_text="local")
        await expect(provider).to_contain_text("mochi-server pull")
        await expect(page.get_by_text("Loading…")).to_have_count(0)


async def test_without_a_model_a_chat_says_what_to_do(browser, tmp_path):
    (tmp_path / "models").mkdir()
    settings = {"environment": "production", "models_dir": tmp_path / "models"}
    settings |= {"ollama_host": "http://127.0.0.1:9"}  # nothing listens there
    async with browser_with_server(browser, tmp_path, **settings) as shared, shared.page() as page:
        await expect(page.get_by_text("Ollama is not running.")).to_be_visible()
        await expect(page.get_by_role("button", name="Check again")).to_be_visible()
        for path in ("rules", "presets", "servers"):
            await visit(page, shared, path)
            empty = page.locator(".empty")
            await expect(empty.get_by_role("group", name="Example")).to_be_visible()
            await expect(empty.locator("button, a")).to_have_count(1)


async def test_a_part_of_health_that_cannot_be_read_says_so(shared, page):
    broken = {"providers": {"test": None}}
    await page.route("**/models/check", lambda route: route.fulfill(json=broken))
    await page.route("**/api/v1/health", lambda route: route.fulfill(status=500, json={}))
    await visit(page, shared, "health")
    providers = page.locator("section.group").filter(has_text="Providers")
    await expect(providers.get_by_role("alert")).to_be_visible()
    await expect(page.get_by_text("The server answered 500.")).to_be_visible()
    await expect(page.locator(".findings").get_by_text("SyntaxError")).to_be_visible()
    await expect(page.get_by_text("Loading…")).to_have_count(0)


async def test_a_rule_that_was_remembered_is_listed_and_removed(shared, page):
    asking = {"tools": ["roll_dice"], "execution_policy": "always_confirm"}
    session = await shared.server.new_session("lorem", tool_settings=asking)
    call = [{"tool_call": [{"name": "roll_dice", "args": {}}]}]
    await visit(page, shared, f"chat/{session}")
    await send(page, scripted(call, call, "Rolled."))
    card = page.get_by_role("region", name="Call of roll_dice")
    await card.get_by_role("combobox", name="Remember").select_option("session")
    await press(card, "Approve")
    await answered(page)
    await page.get_by_role("button", name="Settings of this chat").click()
    rules = page.get_by_role("region", name="Rules of this conversation")
    await expect(rules).to_contain_text("roll_dice")
    await rules.get_by_role("button", name="Remove the rule of roll_dice").click()
    await page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    await expect(rules).to_have_count(0)
    await send(page, scripted(call, "Again."))
    await card.last.get_by_role("combobox", name="Remember").select_option("tool")
    await press(card.last, "Approve")
    await answered(page, 2)
    await visit(page, shared, "rules")
    entry = page.locator(".page li.card").filter(has_text="roll_dice")
    await expect(entry).to_contain_text("Allowed")
    await expect(entry.locator("time")).to_have_attribute("title", re.compile("20.."))
    await entry.get_by_role("button", name="Remove the rule of roll_dice").click()
    await page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    await expect(page.get_by_text("There are no rules.")).to_be_visible()
    await expect(page.get_by_role("button", name="Copy the example")).to_be_visible()
    assert (await shared.server.get("/policies"))[1]["policies"] == []


async def test_settings_of_a_chat_are_kept(shared, page):
    await page.get_by_role("button", name="Settings of this chat").click()
    panel = page.get_by_role("complementary", name="Settings of this chat")
    await panel.get_by_role("textbox", name="System prompt").fill("Be a friend.")
    await panel.get_by_role("checkbox", name="roll_dice").check()
    await panel.get_by_role("checkbox", name="coder").check()
    await panel.get_by_role("spinbutton", name="Temperature").fill("0.3")
    await page.keyboard.press("Tab")
    await panel.get_by_role("combobox", name="Asks you").select_option("never")
    await send(page, scripted("Yes."))
    await answered(page)
    session_id = page.url.rpartition("/")[2]
    _, session = await shared.server.get(f"/sessions/{session_id}")
    assert session["messages"][0]["content"] == "Be a friend."
    assert session["tool_settings"]["tools"] == ["roll_dice"]
    assert session["tool_settings"]["execution_policy"] == "never_confirm"
    assert session["agent_settings"]["enabled_agents"] == ["coder"]
    assert session["options"] == {"temperature": 0.3}
    await page.reload()
    await page.get_by_role("button", name="Settings of this chat").click()
    await expect(panel.get_by_role("checkbox", name="roll_dice")).to_be_checked()
    await panel.get_by_role("combobox", name="Take one").select_option("helpful.md")
    await expect(panel.get_by_role("textbox", name="System prompt")).to_have_value(
        (ROOT / "examples/data/system_prompts/helpful.md").read_text()
    )


RULE = {"id": "r", "tool": "roll_dice", "action": "allow", "arguments": {}, "session_id": "s"}


@pytest.mark.parametrize("late", ["tools", "agents", "system-prompts", "policies"])
async def test_settings_of_a_chat_stay_where_they_come(shared, page, late):
    is_asked, is_due = asyncio.Event(), asyncio.Event()

    async def hold(route):
        is_asked.set()
        await is_due.wait()
        if late == "policies":
            await route.fulfill(json={"policies": [RULE], "problems": []})
        else:
            await route.continue_()

    session_id = await shared.server.new_session(
        "lorem",
        tool_settings={"tools": ["roll_dice", "no_tool"], "execution_policy": "always_confirm"},
        agent_settings={"enabled_agents": ["researcher", "nobody"]},
    )
    await visit(page, shared, f"chat/{session_id}")
    await page.route(re.compile(rf"/api/v1/{late}(\?|$)"), hold)
    await page.reload()
    await page.get_by_role("button", name="Settings of this chat").click()
    panel = page.get_by_role("complementary", name="Settings of this chat")
    await until(is_asked.is_set)
    await drawn(page)
    before = await panel.evaluate(PLACES)
    is_due.set()
    await expect(panel.get_by_role("combobox", name="Take one")).to_be_visible()
    await expect(panel.get_by_title("This does not exist.")).to_have_text(["nobody"])
    await expect(panel.get_by_role("checkbox", name="roll_dice")).to_be_checked()
    if late == "policies":
        await expect(panel.get_by_role("button", name="Remove the rule")).to_be_visible()
    after = await panel.evaluate(PLACES)
    assert [each for each in before if each not in after] == []


@pytest.mark.parametrize("part", ["tools", "agents"])
async def test_a_list_of_the_settings_that_cannot_be_loaded_says_so_by_itself(shared, page, part):
    session_id = await shared.server.new_session(
        "lorem", tool_settings={"tools": ["roll_dice"]}, agent_settings={"enabled_agents": ["me"]}
    )
    await visit(page, shared, f"chat/{session_id}")
    refusal = {"error": {"code": "BUSY", "message": "Too much at once."}}
    await page.route(
        re.compile(rf"/api/v1/{part}(\?|$)"),
        lambda route: route.fulfill(status=503, json=refusal),
    )
    await page.reload()
    await page.get_by_role("button", name="Settings of this chat").click()
    panel = page.get_by_role("complementary", name="Settings of this chat")
    await expect(panel.get_by_role("spinbutton", name="Temperature")).to_be_visible()
    await expect(panel.get_by_role("alert")).to_have_text("Too much at once.")
    missing = {"tools": ["me"], "agents": []}[part]
    await expect(panel.get_by_title("This does not exist.")).to_have_text(missing)
    await expect(panel.get_by_role("group", name="Not here any more")).to_have_count(0)


PLACES = """panel => [...panel.querySelectorAll("label, legend, h3")]
  .map((each) => [each.innerText, each.getBoundingClientRect().top])"""


@pytest.mark.parametrize("name", ["nobody", "no_tool"])
async def test_what_is_no_longer_chosen_can_be_chosen_again(shared, page, name):
    session_id = await shared.server.new_session(
        "lorem",
        tool_settings={"tools": ["no_tool"], "execution_policy": "always_confirm"},
        agent_settings={"enabled_agents": ["nobody"]},
    )
    await visit(page, shared, f"chat/{session_id}")
    await page.get_by_role("button", name="Settings of this chat").click()
    choice = page.get_by_role("checkbox", name=name)
    for is_chosen in (False, True):
        async with page.expect_response(re.compile(rf"/sessions/{session_id}\?turns=")):
            await choice.click()
        await drawn(page)
        await expect(choice).to_be_checked(checked=is_chosen)
        await expect(choice).to_be_focused()


async def test_texts_of_tools_prompts_and_servers_do_nothing(shared, page):
    await known_to(shared.server, "wire__read")
    for path, name in [("tools", "hostile"), ("tools", "wire__read"), ("prompts", "hostile.md")]:
        await visit(page, shared, path)
        entry = page.locator(".page li.card").filter(has=page.get_by_text(name, exact=True))
        await expect(entry).to_contain_text("<script>alert(1)</script>\\u202eevil")
        await entry.locator(".card-head").click()
        await expect(page.locator("main :is(img, script)")).to_have_count(0)
    await expect(page).to_have_title("mochi")
