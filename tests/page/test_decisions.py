"""Calls of tools and agents on the page: in a real browser, with a server in test mode."""

from __future__ import annotations

import pytest
import pytest_asyncio
from playwright.async_api import expect

from tests.support.chromium import needs_chromium
from tests.support.page import LIMIT, answered, browser_with_server, scripted, send
from tests.support.server import ROOT

pytestmark = [needs_chromium, pytest.mark.asyncio(loop_scope="module")]
expect.set_options(timeout=LIMIT)

CALL = [{"tool_call": [{"name": "add_numbers", "args": {"a": 2, "b": 3}}]}]
TOOLS = '''
def add_numbers(a: float, b: float) -> str:
    """Add two numbers.

    Args:
        a: The first.
        b: The second.
    """
    return str(a + b)


def say(text: str) -> str:
    """Return a text.

    Args:
        text: What to return.
    """
    return text


__all__ = ["add_numbers", "say"]
'''
ASKING = {"tools": ["add_numbers"], "execution_policy": "always_confirm"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    (folder / "tools").mkdir()
    (folder / "tools" / "__init__.py").write_text(TOOLS)
    agents = ROOT / "examples" / "data" / "agents"
    async with browser_with_server(folder, agents_dir=agents) as shared:
        yield shared


async def test_a_call_is_approved_with_other_arguments(shared):
    session = await shared.server.new_session("lorem", tool_settings=ASKING)
    async with shared.page(f"/#/chat/{session}") as page:
        await send(page, scripted(CALL, "All done."))
        card = page.get_by_role("region", name="Call of add_numbers")
        await expect(card.locator("pre")).to_contain_text('"a": 2')
        await card.get_by_role("button", name="Edit arguments").click()
        await card.get_by_role("textbox", name="Arguments").fill("not JSON")
        await card.get_by_role("button", name="Approve with changes").click()
        await expect(card.get_by_role("alert")).to_contain_text("This is not JSON")
        await card.get_by_role("textbox", name="Arguments").fill('{"a": 40, "b": 2}')
        await card.get_by_role("button", name="Approve with changes").click()
        await answered(page)
        await expect(card).to_contain_text("Changed")
        await card.get_by_role("button").click()
        await expect(card.locator(".result")).to_contain_text("42")
        await page.reload()
        await card.get_by_role("button").click()
        await expect(card.locator(".result")).to_contain_text("42")


async def test_a_call_is_denied_in_the_inbox_with_a_reason(shared):
    session = await shared.server.new_session("lorem", tool_settings=ASKING)
    async with shared.page("/#/inbox") as page:
        await expect(page.get_by_text("Nothing waits for you.")).to_be_visible()
        message = scripted(CALL, "As you like.")
        await shared.server.post(f"/chat/{session}/runs", {"message": message})
        await expect(page.locator(".badge")).to_have_text("1")
        await expect(page).to_have_title("(1) mochi")
        await page.get_by_role("button", name="Deny").click()
        await page.get_by_role("textbox", name="Reason").fill("Not today.")
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("Nothing waits for you.")).to_be_visible()
        await page.goto(f"{shared.server.url}/#/chat/{session}")
        await answered(page)
        await page.get_by_role("region", name="Call of add_numbers").get_by_role("button").click()
        await expect(page.locator(".result")).to_contain_text("Not today.")


def call_of_researcher(*steps, **more):
    inner = scripted(*steps, question="", lasting=True)
    arguments = {"agent": "researcher", "instruction": inner, **more}
    return [{"tool_call": [{"name": "agent", "args": arguments}]}]


LOOK = ("I look first.", [{"tool_call": [{"name": "list_documents", "args": {}}]}])


async def new_session_with_researcher(shared):
    return await shared.server.new_session(
        "lorem",
        agent_settings={"enabled_agents": ["researcher"]},
        tool_settings={"tools": [], "execution_policy": "never_confirm"},
    )


async def test_an_agents_work_is_a_tree(shared):
    session = await new_session_with_researcher(shared)
    call = call_of_researcher(*LOOK, "There is a welcome.")
    async with shared.page(f"/#/chat/{session}") as page:
        stall = {"stall": {"seconds": 3600, "after_words": 3}}
        await send(page, scripted(call, [{"text_message": {"text": "one two three four"}}, stall]))
        await expect(page.locator(".answer")).to_contain_text("one two")
        agent = page.get_by_role("region", name="Agent researcher")
        await agent.get_by_role("button").first.click()
        await expect(agent.get_by_role("region", name="Call of list_documents")).to_be_visible()
        await expect(agent.locator(".tree")).to_contain_text("There is a welcome.")
        await page.get_by_role("button", name="Stop").click()
        await answered(page)
        await expect(agent.locator(".tree")).to_contain_text("There is a welcome.")


async def test_an_agents_work_is_a_tree_after_a_reload(shared):
    session = await new_session_with_researcher(shared)
    async with shared.page(f"/#/chat/{session}") as page:
        await send(page, scripted(call_of_researcher(*LOOK, "There is a welcome."), "So it is."))
        await answered(page)
        _, listed = await shared.server.get("/agents/chats")
        again = {"session_id": listed["sessions"][0]["session_id"]}
        await send(page, scripted(call_of_researcher("I know.", "As I said.", **again), "Indeed."))
        await answered(page, 2)
        requests = []
        page.on("request", lambda request: requests.append(request.url))
        await page.reload()
        await answered(page, 2)
        agents = page.get_by_role("region", name="Agent researcher")
        await expect(agents).to_have_count(2)
        assert not any("/agents/chats/" in url for url in requests)
        first, second = agents.first, agents.last
        await first.get_by_role("button").click()
        inner = first.get_by_role("region", name="Call of list_documents")
        await inner.get_by_role("button").click()
        await expect(inner.locator(".result")).to_contain_text("welcome.txt")
        await expect(first.locator(".tree")).to_contain_text("There is a welcome.")
        await expect(first.locator(".tree")).not_to_contain_text("As I said.")
        await first.get_by_role("button", name="Thinking").click()
        await expect(first.locator(".tree")).to_contain_text("I look first.")
        await second.get_by_role("button").click()
        await expect(second.locator(".tree")).to_contain_text("As I said.")
        await expect(second.locator(".tree")).not_to_contain_text("There is a welcome.")
        assert sum("/agents/chats/" in url for url in requests) == 2


async def test_a_stored_call_of_an_agent_whose_session_is_gone_shows_its_result(shared):
    session = await new_session_with_researcher(shared)
    async with shared.page(f"/#/chat/{session}") as page:
        await send(page, scripted(call_of_researcher(*LOOK, "There is a welcome."), "So it is."))
        await answered(page)
        _, listed = await shared.server.get("/agents/chats")
        stored = listed["sessions"][0]["session_id"]
        await page.route(f"**/agents/chats/{stored}", lambda route: route.fulfill(status=404))
        await page.reload()
        agent = page.get_by_role("region", name="Agent researcher")
        await agent.get_by_role("button").click()
        await expect(agent.get_by_role("alert")).to_be_visible()
        await expect(agent.locator(".result")).to_contain_text("There is a welcome.")


async def test_answers_are_kept_beside_each_other_and_branches_begun(shared):
    async with shared.page() as page:
        await send(page, scripted("An answer.", question="A question"))
        await answered(page)
        await page.get_by_role("button", name="Answer again").click()
        await expect(page.locator(".variants")).to_contain_text("2 / 2")
        await page.get_by_role("button", name="Previous answer").click()
        await expect(page.locator(".variants")).to_contain_text("1 / 2")
        first = page.url
        await page.locator(".question").hover()
        await page.get_by_role("button", name="Edit", exact=True).click()
        await page.get_by_role("textbox", name="Edit").fill(scripted("Another one."))
        await page.get_by_role("button", name="Ask in a branch").click()
        await expect(page.locator(".answer[aria-busy=false]")).to_contain_text("Another one.")
        assert page.url != first


async def test_a_hostile_argument_result_and_file_name_do_nothing(shared):
    hostile = (
        "<img src=x onerror='window.hacked=1'><script>window.hacked=1</script>"
        "[a](javascript:window.hacked=1) \u202egnp.exe " + "w" * 3000
    )
    session = await shared.server.new_session(
        "lorem", tool_settings={"tools": ["say"], "execution_policy": "always_confirm"}
    )
    async with shared.page(f"/#/chat/{session}", viewport={"width": 390, "height": 700}) as page:
        file = {"name": f"{hostile[:120]}.txt".replace("/", "-"), "mimeType": "text/plain"}
        await page.locator("input[type=file]").set_input_files({**file, "buffer": b"text"})
        call = [{"tool_call": [{"name": "say", "args": {"text": hostile}}]}]
        await send(page, scripted(call, "Done."))
        card = page.get_by_role("region", name="Call of say")
        await expect(card.locator("pre")).to_contain_text("\\u202egnp.exe")
        await card.get_by_role("button", name="Edit arguments").click()
        await card.get_by_role("button", name="Deny").click()
        for button in await card.get_by_role("button").all():
            box = await button.bounding_box()
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= 390
        await card.get_by_role("button", name="As it was").click()
        await card.get_by_role("button", name="Approve").click()
        await answered(page)
        await card.get_by_role("button").first.click()
        await expect(card.locator(".result")).to_contain_text("\\u202egnp.exe")
        assert await page.locator("main :is(script, iframe, img)").count() == 0
        assert await page.evaluate("window.hacked") is None
        assert await page.evaluate("document.documentElement.scrollWidth") <= 390
        scroller = page.locator(".scroller")
        assert await scroller.evaluate("e => e.scrollWidth <= e.clientWidth")


async def test_a_call_that_runs_is_a_whole_card(shared):
    session = await shared.server.new_session("lorem", tool_settings=ASKING)
    async with shared.page(f"/#/chat/{session}") as page:
        await send(page, scripted(CALL, "Done."))
        card = page.get_by_role("region", name="Call of add_numbers")
        await expect(card).to_be_visible()
        # whatever its state is called, as other parts of the page have classes of these names
        for state in ("asking", "waiting", "running", "done", "failed", "unknown"):
            await card.evaluate("(card, state) => { card.className = `card call ${state}` }", state)
            assert (await card.bounding_box())["width"] > 300, state
        await card.get_by_role("button", name="Approve").click()
        await answered(page)
