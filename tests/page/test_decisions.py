"""Calls of tools and agents on the page: in a real browser, with a server in test mode."""

from __future__ import annotations

import asyncio
import operator
import re

import pytest
import pytest_asyncio
from playwright.async_api import expect

from tests.support.chromium import needs_chromium
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


def same(price: float, number: int) -> list[float]:
    """Return both.

    Args:
        price: What.
        number: Which.
    """
    return [price, number]


def write(path: str) -> str:
    """Write a file.

    Args:
        path: Which.
    """
    return f"wrote {path}"


__all__ = ["add_numbers", "say", "same", "write"]
'''
ASKING = {"tools": ["add_numbers"], "execution_policy": "always_confirm"}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shared(browser, tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    (folder / "tools").mkdir()
    (folder / "tools" / "__init__.py").write_text(TOOLS)
    agents = ROOT / "examples" / "data" / "agents"
    async with browser_with_server(browser, folder, agents_dir=agents) as shared:
        yield shared


async def test_a_call_is_approved_with_other_arguments(shared):
    session = await shared.server.new_session("lorem", tool_settings=ASKING)
    async with shared.page(f"/#/chat/{session}") as page:
        await send(page, scripted(CALL, "All done."))
        card = page.get_by_role("region", name="Call of add_numbers")
        await expect(card.locator("pre")).to_contain_text('"a": 2')
        await card.get_by_role("button", name="Edit arguments").click()
        await card.get_by_role("textbox", name="Arguments").fill("not JSON")
        await press(card, "Approve with changes")
        await expect(card.get_by_role("alert")).to_contain_text("This is not JSON")
        await card.get_by_role("textbox", name="Arguments").fill('{"a": 40, "b": 2}')
        await press(card, "Approve with changes")
        await answered(page)
        await expect(card).to_contain_text("Changed")
        await card.get_by_role("button").click()
        await expect(card.locator(".result")).to_contain_text("42")
        await page.reload()
        await card.get_by_role("button").click()
        await expect(card.locator(".result")).to_contain_text("42")


async def test_numbers_of_a_call_are_shown_and_sent_as_they_are_written(shared):
    asking = {"tools": ["same"], "execution_policy": "always_confirm"}
    session = await shared.server.new_session("lorem", tool_settings=asking)
    call = [{"tool_call": [{"name": "same", "args": {"price": 2.0, "number": 12345678901234567}}]}]
    async with shared.page(f"/#/chat/{session}") as page:
        await send(page, scripted(call, "Done."))
        card = page.get_by_role("region", name="Call of same")
        await card.get_by_role("button", name="Edit arguments").click()
        field = card.get_by_role("textbox", name="Arguments")
        written = '{\n  "price": 2.0,\n  "number": 12345678901234567\n}'
        await expect(field).to_have_value(written)
        written = written.replace("34567\n", "34569\n")
        await field.fill(written)
        await press(card, "Approve with changes")
        await answered(page)
        for _ in range(2):
            await expect(card.locator(".summary")).to_have_text("2.0, 12345678901234569")
            await card.get_by_role("button").click()
            await expect(card.locator("pre").first).to_have_text(written)
            await expect(card.locator(".result")).to_contain_text("12345678901234569")
            await expect(card.locator(".result")).to_contain_text("2.0")
            await page.reload()


FITS = """field => {
  const { font, paddingLeft, paddingRight } = getComputedStyle(field);
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = font;
  const room = field.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight);
  return pen.measureText(field.placeholder).width <= room;
}"""
"""Whether the placeholder of a field is seen whole."""


async def test_what_the_reason_is_for_is_seen_whole_on_a_telephone(shared):
    session = await shared.server.new_session("lorem", tool_settings=ASKING)
    phone = {"viewport": {"width": 393, "height": 727}, "has_touch": True, "is_mobile": True}
    async with shared.page(f"/#/chat/{session}", **phone) as page:
        await send(page, scripted(CALL, "Not done."))
        card = page.get_by_role("region", name="Call of add_numbers")
        await press(card, "Deny")
        reason = card.get_by_role("textbox", name="Reason, for the model")
        assert await reason.evaluate(FITS)
        await page.set_viewport_size({"width": 320, "height": 727})
        assert await reason.evaluate(FITS)
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        await reason.press("Enter")
        await answered(page)


async def test_a_call_that_the_model_wrote_as_text_says_so(shared):
    session = await shared.server.new_session("lorem", tool_settings=ASKING)
    written = '{"name": "add_numbers", "arguments": {"a": 2, "b": 3}}'
    async with shared.page(f"/#/chat/{session}") as page:
        await send(page, scripted(written, "All done."))
        card = page.get_by_role("region", name="Call of add_numbers")
        await expect(card).to_contain_text("The model wrote this call as text.")
        await press(card, "Approve")
        await answered(page)
        await expect(card).to_contain_text("Written as text")
        await page.reload()
        await expect(card).to_contain_text("Written as text")
        await expect(page.get_by_text('"arguments"')).to_have_count(0)


async def test_a_call_that_was_opened_for_changes_but_not_changed_says_nothing_of_it(shared):
    session = await shared.server.new_session("lorem", tool_settings=ASKING)
    async with shared.page(f"/#/chat/{session}") as page:
        await send(page, scripted(CALL, "All done."))
        card = page.get_by_role("region", name="Call of add_numbers")
        await card.get_by_role("button", name="Edit arguments").click()
        await press(card, "Approve with changes")
        await answered(page)
        await expect(card).to_contain_text("Done")
        await expect(card).not_to_contain_text("Changed")


SAYING = {"tools": ["write"], "execution_policy": "always_confirm"}


def writing(*paths):
    return [{"tool_call": [{"name": "write", "args": {"path": path}}]} for path in paths]


async def test_a_person_chooses_what_an_approval_allows_from_now_on(shared):
    session = await shared.server.new_session("lorem", tool_settings=SAYING)
    async with shared.page(f"/#/chat/{session}") as page:
        await send(page, scripted(writing("notes/a", "notes/b", "c/d"), "All done."))
        card = page.get_by_role("region", name="Call of write").first
        await expect(card.get_by_role("radio")).to_have_count(0)
        await card.get_by_role("combobox", name="Remember").select_option("in this conversation")
        choices = card.get_by_role("group", name="Allowed from now on")
        await expect(choices.get_by_role("radio").first).to_be_checked()
        await expect(choices).to_contain_text("this call again")
        await choices.get_by_role("radio", name="path: any name in the folder notes").check()
        await card.get_by_role("button", name="Edit arguments").click()
        await expect(choices).to_have_count(0)
        await expect(card.get_by_role("combobox", name="Remember")).to_have_count(0)
        await card.get_by_role("button", name="As it was").click()
        await press(card, "Approve")
        last = page.get_by_role("region", name="Call of write").last
        await expect(last.locator("pre")).to_contain_text('"c/d"')
        await page.goto(f"{shared.server.url}/#/inbox")
        await page.get_by_role("combobox", name="Remember").select_option("everywhere")
        await press(page, "Approve")
        await expect(page.get_by_text("Nothing waits for you.")).to_be_visible()
        _, body = await shared.server.get("/policies", params={"session_id": session})
        found = {each.get("session_id"): each["arguments"] for each in body["policies"]}
        assert found == {session: {"path": "notes/*"}, None: {"path": "c/d"}}


async def test_an_approval_of_what_is_not_kept_is_not_remembered_for_a_conversation(shared):
    script = scripted(writing("a"), "All done.")
    body = {
        "model": "lorem",
        "messages": [{"role": "user", "content": script}],
        "tools": [{"type": "mochi", "names": ["write"]}],
    }

    async def ask() -> str:
        url = f"{shared.server.url}/v1/chat/completions"
        async with shared.server.http.post(url, json=body) as response:
            return await response.text()

    asking = asyncio.create_task(ask())
    async with shared.page("/#/inbox") as page:
        choice = page.get_by_role("combobox", name="Remember")
        await expect(choice.get_by_role("option")).to_have_text(["no", "everywhere"])
        await press(page, "Approve")
        await expect(page.get_by_text("Nothing waits for you.")).to_be_visible()
    assert "All done." in await asyncio.wait_for(asking, 30)


async def test_what_an_approval_allows_from_now_on_is_seen_whole(shared):
    session = await shared.server.new_session("lorem", tool_settings=SAYING)
    window = {"viewport": {"width": 1280, "height": 520}}
    async with shared.page(f"/#/chat/{session}", **window) as page:
        await send(page, scripted("One.", question="Question\n" * 20))
        await answered(page)
        await send(page, scripted(writing("notes/a"), "All done."))
        await expect(page.get_by_role("button", name="Approve")).to_be_enabled()
        await page.get_by_role("combobox", name="Remember").select_option("in this conversation")
        choices = page.get_by_role("group", name="Allowed from now on")
        await expect(choices).to_be_in_viewport(ratio=1)
        await press(page, "Approve")
        await answered(page, 2)


async def test_a_call_is_denied_in_the_inbox_with_a_reason(shared):
    session = await shared.server.new_session("lorem", tool_settings=ASKING)
    async with shared.page("/#/inbox") as page:
        await expect(page.get_by_text("Nothing waits for you.")).to_be_visible()
        message = scripted(CALL, "As you like.")
        await shared.server.post(f"/chat/{session}/runs", {"message": message})
        await expect(page.locator(".badge")).to_have_text("1")
        await expect(page).to_have_title("(1) mochi")
        await expect(page.locator(".card time")).to_have_attribute("title", re.compile("20.."))
        await press(page, "Deny")
        await page.get_by_role("textbox", name="Reason").fill("Not today.")
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("Nothing waits for you.")).to_be_visible()
        await page.goto(f"{shared.server.url}/#/chat/{session}")
        await answered(page)
        card = page.get_by_role("region", name="Call of add_numbers")
        await expect(card).to_contain_text("Denied")
        await expect(card).not_to_contain_text("Failed")
        await expect(card).to_contain_text("Reason: Not today.")
        await expect_accessible(page)
        await card.get_by_role("button").click()
        await expect(card.get_by_text("Arguments")).to_be_visible()
        await expect(card).to_contain_text("Reason: Not today.")


async def test_calls_are_followed_where_they_could_not_be_listed(shared):
    refusal = {"error": {"code": "BUSY", "message": "Busy now."}}
    async with shared.context() as context:
        page = await context.new_page()
        await page.route(
            "**/confirmations?limit=*",
            lambda route: route.fulfill(status=503, json=refusal),
            times=1,
        )
        await page.goto(f"{shared.server.url}/#/inbox")
        await expect(page.get_by_text("Busy now.")).to_be_visible()
        session = await shared.server.new_session("lorem", tool_settings=ASKING)
        message = scripted(CALL, "As you like.")
        await shared.server.post(f"/chat/{session}/runs", {"message": message})
        await press(page, "Approve")
        await expect(page.get_by_text("Nothing waits for you.")).to_be_visible()


async def test_the_inbox_reads_no_whole_chat_for_the_name_of_one_that_is_not_listed(shared):
    session = await shared.server.new_session("lorem", title="Far away", tool_settings=ASKING)
    status, _ = await shared.server.request(
        "PATCH", f"/sessions/{session}", json={"archived": True}
    )
    assert status == 200
    message = scripted(CALL, "As you like.")
    await shared.server.post(f"/chat/{session}/runs", {"message": message})
    asked = []
    async with shared.context() as context:
        page = await context.new_page()
        page.on("request", lambda request: asked.append(request.url))
        await page.goto(f"{shared.server.url}/#/inbox")
        await expect(page.locator("a.conversation")).to_contain_text("Far away")
        await press(page, "Approve")
        await expect(page.get_by_text("Nothing waits for you.")).to_be_visible()
    reads = [url for url in asked if f"/sessions/{session}" in url]
    assert reads
    assert all(url.endswith("?turns=1") for url in reads)


# Clicks a button, and the one that comes in its place as soon as it is there. From then on the time
# stands still: however long the next key takes, it comes at once.
CLICK_TWICE = """button => new Promise(resolve => {
  const now = performance.now();
  performance.now = () => now;
  const look = () => {
    const next = [...document.querySelectorAll("main button")]
      .find(each => each !== button && each.innerText === "Approve");
    if (button.isConnected || !next) return requestAnimationFrame(look);
    next.click();
    next.focus();
    resolve();
  };
  button.click();
  look();
})"""


LET_TIME_GO_ON = "delete performance.now"


async def waiting_calls(shared):
    return (await shared.server.get("/confirmations"))[1]["confirmations"]


async def test_a_second_click_does_not_approve_the_next_call_of_a_conversation(shared):
    session = await shared.server.new_session("lorem", tool_settings=SAYING)
    async with shared.page(f"/#/chat/{session}") as page:
        await send(page, scripted(writing("first", "second"), "All done."))
        cards = page.get_by_role("region", name="Call of write")
        approve = page.get_by_role("button", name="Approve")
        await expect(approve).to_be_enabled()
        await approve.evaluate(CLICK_TWICE)
        await page.keyboard.press("Enter")
        await page.evaluate(LET_TIME_GO_ON)
        await expect(cards.last.locator("pre")).to_contain_text("second")
        await expect(approve).to_be_enabled()  # it can be seen by now
        assert [each["arguments"] for each in await waiting_calls(shared)] == [{"path": "second"}]
        await expect(page.locator(".working")).to_have_text("Waits for you")
        await approve.click()
        await answered(page)


async def test_a_second_click_does_not_approve_the_next_call_of_the_inbox(shared):
    sessions = [
        await shared.server.new_session("lorem", title=title, tool_settings=SAYING)
        for title in ("The first", "The second")
    ]
    async with shared.page("/#/inbox") as page:
        for session, path in zip(sessions, "ab", strict=True):
            message = scripted(writing(path), "Done.")
            await shared.server.post(f"/chat/{session}/runs", {"message": message})
            await expect(page.locator("li.card", has_text=f'"{path}"')).to_be_visible()
        approve = page.get_by_role("button", name="Approve")
        await expect(approve.first).to_be_enabled()
        await approve.first.evaluate(CLICK_TWICE)
        await page.evaluate(LET_TIME_GO_ON)
        await expect(approve).to_have_count(1)
        await expect(approve).to_be_enabled()
        assert [each["session_id"] for each in await waiting_calls(shared)] == sessions[1:]
        await page.get_by_role("main").get_by_role("link", name="The second").click()
        await press(page.get_by_role("region", name="Call of write"), "Approve")
        await answered(page)


STOP_THE_TIME = "const now = performance.now(); performance.now = () => now;"


async def test_a_reason_that_moves_is_not_sent_for_a_call_that_was_not_seen_there(shared):
    for path in "ab":
        session = await shared.server.new_session("lorem", title=path, tool_settings=SAYING)
        message = scripted(writing(path), "Done.")
        await shared.server.post(f"/chat/{session}/runs", {"message": message})
    async with shared.page("/#/inbox") as page:
        cards = page.locator("li.card")
        for path in "ab":
            await expect(cards.get_by_role("link", name=f"In: {path}")).to_be_visible()
        await press(cards.last, "Deny")
        await drawn(page)
        await page.evaluate(STOP_THE_TIME)
        first, second = await waiting_calls(shared)
        if f'"{second["arguments"]["path"]}"' in await cards.first.inner_text():
            first, second = second, first
        decision = {"confirmation_id": first["confirmation_id"], "approved": True}
        await shared.server.post(f"/confirmations/{first['confirmation_id']}", decision)
        await expect(cards).to_have_count(1)
        deny = cards.locator("form").get_by_role("button", name="Deny")
        await expect(deny).to_be_disabled()
        await page.keyboard.type("Not this.")
        await page.keyboard.press("Enter")
        await page.evaluate(LET_TIME_GO_ON)
        await expect(deny).to_be_enabled()
        assert [each["arguments"] for each in await waiting_calls(shared)] == [second["arguments"]]
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("Nothing waits for you.")).to_be_visible()


async def test_a_long_call_says_how_much_of_it_is_below(shared):
    settings = {"tools": ["say"], "execution_policy": "always_confirm"}
    session = await shared.server.new_session("lorem", tool_settings=settings)
    text = "\n".join(f"line {number}" for number in range(500))
    async with shared.page(f"/#/chat/{session}") as page:
        call = [{"tool_call": [{"name": "say", "args": {"text": f"{text}\nrm -rf /"}}]}]
        await send(page, scripted(call, "Done."))
        card = page.get_by_role("region", name="Call of say")
        await expect(card).to_contain_text("more lines below")
        shown = card.locator("pre")
        await shown.evaluate("element => { element.scrollTop = element.scrollHeight }")
        await expect(card).not_to_contain_text("more lines below")
        await shown.evaluate("element => { element.scrollTop = 0 }")
        await card.get_by_role("button", name="Show all of it").click()
        await expect(card).not_to_contain_text("more lines below")
        assert await shown.evaluate("element => element.scrollHeight <= element.clientHeight + 1")
        await press(card, "Approve")
        await answered(page)


async def test_the_fields_of_a_decision_have_the_focus_and_escape_gives_it_back(shared):
    session = await shared.server.new_session("lorem", tool_settings=ASKING)
    async with shared.page(f"/#/chat/{session}") as page:
        await send(page, scripted(CALL, "Done."))
        card = page.get_by_role("region", name="Call of add_numbers")
        for button, field in (("Edit arguments", "Arguments"), ("Deny", "Reason")):
            await card.get_by_role("button", name=button).click()
            await expect(card.get_by_role("textbox", name=field)).to_be_focused()
            await page.keyboard.press("Escape")
            await expect(card.get_by_role("textbox")).to_have_count(0)
            await expect(card.get_by_role("button", name=button)).to_be_focused()
        await press(card, "Approve")
        await answered(page)
        await page.locator(".question").hover()
        edit = page.get_by_role("button", name="Edit", exact=True)
        await edit.click()
        await expect(page.get_by_role("textbox", name="Edit")).to_be_focused()
        await page.keyboard.press("Escape")
        await expect(edit).to_be_focused()


def call_of_researcher(*steps, **more):
    inner = scripted(*steps, question="", lasting=True)
    arguments = {"agent": "researcher", "instruction": inner, **more}
    return [{"tool_call": [{"name": "agent", "args": arguments}]}]


LOOK = ("I look first.", [{"tool_call": [{"name": "list_documents", "args": {}}]}])


async def new_session_with_researcher(shared, policy="never_confirm"):
    return await shared.server.new_session(
        "lorem",
        agent_settings={"enabled_agents": ["researcher"]},
        tool_settings={"tools": [], "execution_policy": policy},
    )


async def test_an_agents_work_is_a_tree_that_stays_as_it_is_when_the_agent_ends(shared):
    session = await new_session_with_researcher(shared, "always_confirm")
    call = call_of_researcher(*LOOK, "There is a welcome.")
    async with shared.page(f"/#/chat/{session}") as page:
        stall = {"stall": {"seconds": 3600, "after_words": 3}}
        await send(page, scripted(call, [{"text_message": {"text": "one two three four"}}, stall]))
        await press(page.get_by_role("region", name="Call of agent"), "Approve")
        agent = page.get_by_role("region", name="Agent researcher")
        head = agent.get_by_role("button", name="researcher")
        await press(agent.get_by_role("region", name="Call of list_documents"), "Approve")
        await expect(page.locator(".answer")).to_contain_text("one two")
        await expect(agent.locator(".tree")).to_contain_text("There is a welcome.")
        await head.click()
        await expect(agent.locator(".tree")).to_have_count(0)
        await head.click()
        await page.get_by_role("button", name="Stop").click()
        await answered(page)
        await expect(agent.locator(".tree")).to_contain_text("There is a welcome.")
        await page.reload()
        await answered(page)
        await expect(head).to_have_attribute("aria-expanded", "false")


async def test_an_agents_work_is_a_tree_after_a_reload(shared):
    session = await new_session_with_researcher(shared)
    async with shared.page(f"/#/chat/{session}") as page:
        await send(page, scripted(call_of_researcher(*LOOK, "There is a welcome."), "So it is."))
        await answered(page)
        _, listed = await shared.server.get("/agents/chats")
        again = {"session_id": listed["sessions"][0]["session_id"]}
        await send(page, scripted(call_of_researcher("I know.", "As I said.", **again), "Indeed."))
        await answered(page, 2)
        agents = page.get_by_role("region", name="Agent researcher")
        await expect(agents.locator(".tree")).to_contain_text(["There is a welcome.", "As I said."])
        requests = []
        page.on("request", lambda request: requests.append(request.url))
        await page.reload()
        await answered(page, 2)
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


async def test_the_agent_of_another_answer_shows_its_own_work(shared):
    session = await new_session_with_researcher(shared)
    async with shared.page(f"/#/chat/{session}") as page:
        await send(page, scripted(call_of_researcher(*LOOK, "There is a welcome."), "So it is."))
        await answered(page)
        _, listed = await shared.server.get("/agents/chats")
        work = f"/agents/chats/{listed['sessions'][0]['session_id']}"
        await page.get_by_role("button", name="Answer again").click()
        await expect(page.locator(".variants")).to_contain_text("2 / 2")
        await page.get_by_role("button", name="Previous answer").click()
        await expect(page.locator(".variants")).to_contain_text("1 / 2")
        agent = page.get_by_role("region", name="Agent researcher")
        await expect(agent.locator(".tree")).to_have_count(0)
        async with page.expect_response(f"**{work}"):
            await agent.get_by_role("button", name="researcher").click()
        await expect(agent.locator(".tree")).to_contain_text("There is a welcome.")


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
        await press(card, "Deny")
        for button in await card.get_by_role("button").all():
            box = await button.bounding_box()
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= 390
        await card.get_by_role("button", name="As it was").click()
        await press(card, "Approve")
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
        await press(card, "Approve")
        await answered(page)


SCRIBE = """---
name: scribe
description: Writes.
tools: [write]
---

You write.
"""


def call_of_scribe(*steps):
    arguments = {"agent": "scribe", "instruction": scripted(*steps, question="", lasting=True)}
    return {"name": "agent", "args": arguments}


async def test_a_call_is_decided_while_the_conversation_goes_on_above_and_below_it(
    browser, tmp_path
):
    for path, content in {"tools/__init__.py": TOOLS, "agents/scribe/SKILL.md": SCRIBE}.items():
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(content)
    async with browser_with_server(browser, tmp_path, test_words_per_second=50) as shared:
        session = await shared.server.new_session(
            "lorem",
            agent_settings={"enabled_agents": ["scribe"]},
            tool_settings={"tools": [], "execution_policy": "confirm_destructive"},
        )
        async with shared.page(f"/#/chat/{session}") as page:
            text = [{"text_message": {"length": 10_000}}]  # three minutes
            long = call_of_scribe("Plan.", text)
            asking = call_of_scribe("Plan.", writing("notes"), text)
            await send(page, scripted([{"tool_call": [long, asking, long]}], "All done."))
            card = page.get_by_role("region", name="Call of write")
            texts = page.get_by_role("region", name="Agent scribe").locator(".tree")
            approve = card.get_by_role("button", name="Approve")
            await approve.wait_for()
            await expect(texts).to_have_count(3)

            async def lengths():
                return [len(await text.text_content()) for text in (texts.first, texts.last)]

            before = await lengths()
            await expect(approve).to_be_enabled()
            await approve.click()
            await expect(card).to_contain_text("Done")
            await until(lengths, lambda after: all(map(operator.gt, after, before)))
            await page.get_by_role("button", name="Stop").click()
            await answered(page)
