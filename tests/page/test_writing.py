"""What somebody writes stays when the page is drawn anew meanwhile: in a real browser."""

from __future__ import annotations

import json
import re
import sys

import pytest
import pytest_asyncio
from playwright.async_api import expect

from tests.support.chromium import needs_chromium
from tests.support.mcp import Wire, known_to, tool
from tests.support.page import answered, browser_with_server, press, scripted, send
from tests.support.server import ROOT

pytestmark = [needs_chromium, pytest.mark.asyncio(loop_scope="session")]

BOOK = {"name": "travel__book", "args": {"hotel": "Ritz"}}
SETTINGS = {"tools": ["travel__book"], "execution_policy": "never_confirm"}


ODD_NAMES = ["l", "elements", "action", "constructor", "__proto__"]
ODD_QUESTION = {
    "message": "Which?",
    "requestedSchema": {
        "type": "object",
        "properties": {name: {"type": "string"} for name in ODD_NAMES},
    },
}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shared(browser, tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    asking = {
        "command": sys.executable,
        "args": ["-m", "tests.support.mcp_asking"],
        "cwd": str(ROOT),
    }
    ask = {"do": "request", "method": "elicitation/create", "how": ODD_QUESTION}
    odd = Wire(folder / "odd.json", tools=[tool("ask")], calls={"ask": ask}).entry()
    servers = {"travel": asking, "odd": odd, "trusted": asking | {"mochi": {"trusted": True}}}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    async with browser_with_server(browser, folder) as shared:
        await known_to(shared.server, "travel__book", "odd__ask", "trusted__suggest_and_book")
        yield shared


async def rename(shared, page, session_id, title):
    """Let another client change the session, and wait until the page is drawn with it."""
    await shared.server.request("PATCH", f"/sessions/{session_id}", {"title": title})
    await expect(page.locator("main h1")).to_have_text(title)


async def test_an_option_of_a_chat(shared):
    session_id = await shared.server.new_session()
    async with shared.page(f"/#/chat/{session_id}") as page:
        await page.get_by_role("button", name="Settings of this chat").click()
        panel = page.get_by_role("complementary", name="Settings of this chat")
        field = panel.get_by_role("spinbutton", name="Temperature")
        await field.press_sequentially("0.3")
        await rename(shared, page, session_id, "Once")
        await expect(field).to_have_value("0.3")
        async with page.expect_response(is_change):
            await page.keyboard.press("Tab")
        await panel.get_by_role("textbox", name="Texts that end").fill("###")
        await rename(shared, page, session_id, "Twice")
        async with page.expect_response(is_change):
            await page.keyboard.press("Tab")
        await panel.get_by_role("spinbutton", name="Context window").fill("4096")
        await rename(shared, page, session_id, "Thrice")
        async with page.expect_response(is_change):
            await page.keyboard.press("Tab")
    _, session = await shared.server.get(f"/sessions/{session_id}")
    assert session["options"] == {"temperature": 0.3, "stop": ["###"]}
    _, status = await shared.server.get(f"/sessions/{session_id}/status")
    assert status["context_window"]["current_window"] == 4096


async def test_a_system_prompt(shared):
    session_id = await shared.server.new_session()
    path = f"/sessions/{session_id}/system-prompt"
    async with shared.page(f"/#/chat/{session_id}") as page:
        await page.get_by_role("button", name="Settings of this chat").click()
        panel = page.get_by_role("complementary", name="Settings of this chat")
        field = panel.get_by_role("textbox", name="System prompt")
        await field.press_sequentially("Be brief.")
        await rename(shared, page, session_id, "Once")
        await expect(field).to_have_value("Be brief.")
        async with page.expect_response("**/system-prompt"):
            await page.keyboard.press("Tab")
        await shared.server.request("PUT", path, {"content": "Be kind."})
        await expect(field).to_have_value("Be kind.")
        refusal = {"error": {"code": "STORAGE_FULL", "message": "There is no room."}}
        await page.route("**/system-prompt", lambda route: route.fulfill(status=507, json=refusal))
        await field.fill("Be a friend.")
        await page.keyboard.press("Tab")
        await expect(page.get_by_text("There is no room.")).to_be_visible()
        await rename(shared, page, session_id, "Twice")
        await expect(field).to_have_value("Be a friend.")


def is_change(response):
    return response.request.method == "PATCH"


async def asked(shared, session_id, calls):
    """Let the model call a tool that asks a person; the inbox counts it."""
    message = scripted([{"tool_call": calls}], "Done.")
    await shared.server.post(f"/chat/{session_id}/runs", {"message": message})


async def test_a_title(shared):
    mine = await shared.server.new_session(title="Mine")
    other = await shared.server.new_session("lorem", tool_settings=SETTINGS)
    async with shared.page(f"/#/chat/{mine}") as page:
        row = page.locator(".session").filter(has_text="Mine")
        await row.hover()
        await row.get_by_role("button", name="Actions").click()
        await page.get_by_role("menuitem", name="Rename").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_role("textbox").fill("My words")
        await asked(shared, other, [BOOK])
        await expect(page).to_have_title("(1) Mine · mochi")
        await dialog.get_by_role("button", name="Save").click()
        await expect(page.get_by_role("link", name="My words")).to_be_visible()
    await shared.server.request("DELETE", f"/sessions/{other}")


async def test_a_prompt_that_is_taken_is_shown_in_the_place_of_one_that_was_not_kept(shared):
    prompt = {"filename": "kind.md", "content": "Be kind."}
    assert (await shared.server.post("/system-prompts", prompt))[0] == 201
    session_id = await shared.server.new_session()
    refusal = {"error": {"code": "STORAGE_FULL", "message": "The disk is full."}}
    async with shared.page(f"/#/chat/{session_id}") as page:
        await page.get_by_role("button", name="Settings of this chat").click()
        await page.route(
            "**/system-prompt", lambda route: route.fulfill(status=507, json=refusal), times=1
        )
        prompt = page.get_by_role("textbox", name="System prompt")
        await prompt.fill("Mine")
        await page.keyboard.press("Tab")
        await expect(page.get_by_text("The disk is full.")).to_be_visible()
        await expect(prompt).to_have_value("Mine")
        await expect(prompt).to_have_attribute("aria-invalid", "true")
        await page.get_by_role("combobox", name="Take one").select_option("kind.md")
        await expect(prompt).to_have_value("Be kind.")
        await expect(prompt).not_to_have_attribute("aria-invalid", "true")
        await page.route(
            f"**/sessions/{session_id}",
            lambda route: route.fulfill(status=507, json=refusal),
            times=1,
        )
        temperature = page.get_by_role("spinbutton", name="Temperature")
        await temperature.fill("0.5")
        await page.keyboard.press("Tab")
        await expect(page.get_by_text("The disk is full.")).to_have_count(2)
        await expect(temperature).to_have_value("0.5")


async def test_an_answer_to_a_tool(shared):
    session_id = await shared.server.new_session("lorem", tool_settings=SETTINGS)
    async with shared.page(f"/#/chat/{session_id}") as page:
        await send(page, scripted([{"tool_call": [BOOK]}], "Done."))
        form = page.locator("form.elicitation")
        await form.get_by_role("textbox", name="City").fill("Rome")
        await form.get_by_role("spinbutton", name="Nights").fill("3")
        await press(form, "Answer")
        await answered(page)
    _, session = await shared.server.get(f"/sessions/{session_id}")
    [result] = [m["content"] for m in session["messages"] if m["role"] == "tool"]
    assert result == "Ritz in Rome for 3"


async def test_a_running_call_says_that_it_has_asked_the_model(shared):
    settings = SETTINGS | {"tools": ["trusted__suggest_and_book"]}
    session_id = await shared.server.new_session("lorem", tool_settings=settings)
    async with shared.page(f"/#/chat/{session_id}") as page:
        calls = [{"name": "trusted__suggest_and_book", "args": {}}]
        await send(page, scripted([{"tool_call": calls}], "Done."))
        card = page.locator(".call.running")
        await expect(card.get_by_text(re.compile(r"^Asked lorem · \d+ tokens$"))).to_be_visible()
        form = card.locator("form.elicitation")
        await form.get_by_role("textbox", name="City").fill("Rome")
        await press(form, "Answer")
        await answered(page)
        await expect(page.get_by_text("Asked lorem")).to_have_count(0)


async def test_a_tool_may_call_its_questions_as_it_likes(shared):
    session_id = await shared.server.new_session(
        "lorem", tool_settings=SETTINGS | {"tools": ["odd__ask"]}
    )
    async with shared.page(f"/#/chat/{session_id}") as page:
        await send(page, scripted([{"tool_call": [{"name": "odd__ask", "args": {}}]}], "Done."))
        form = page.locator("form.elicitation")
        for name in ODD_NAMES:
            await form.get_by_role("textbox", name=name, exact=True).fill(f"my {name}")
        await press(form, "Answer")
        await answered(page)
        box = page.get_by_role("textbox", name="Write a message")
        await expect(box).to_be_focused()
    _, session = await shared.server.get(f"/sessions/{session_id}")
    [result] = [m["content"] for m in session["messages"] if m["role"] == "tool"]
    assert json.loads(result)["content"] == {name: f"my {name}" for name in ODD_NAMES}


@pytest.mark.parametrize("kind", ["system-prompts", "presets"])
async def test_an_editor_has_the_text_of_its_own_file(shared, kind):
    field, place = {
        "system-prompts": ("content", "prompts"),
        "presets": ("system_prompt", "presets"),
    }[kind]
    names = ["first.md", "second.md"]
    for name in names:
        if kind == "system-prompts":
            await shared.server.post(f"/{kind}", {"filename": name, "content": "."})
        body = {"model": "lorem"} if kind == "presets" else {}
        await shared.server.request("PUT", f"/{kind}/{name}", body | {field: f"Of {name}."})
    async with shared.page(f"/#/{place}/first.md") as page:
        text = page.get_by_role("textbox", name="System prompt")
        await expect(text).to_have_value("Of first.md.")
        await page.goto(f"{shared.server.url}/#/{place}/second.md")
        await expect(text).to_have_value("Of second.md.")
        await text.fill("Changed.")
        await page.get_by_role("button", name="Save").click()
        await expect(page.get_by_role("link", name="second.md")).to_be_visible()
    stored = [(await shared.server.get(f"/{kind}/{name}"))[1][field] for name in names]
    assert stored == ["Of first.md.", "Changed."]
