"""Answers of the server that come late, or not in their order: in a real browser."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import expect

from tests.support.chromium import needs_chromium
from tests.support.page import answered, choose_model, scripted, send, the_chat
from tests.support.waiting import until

pytestmark = [needs_chromium, pytest.mark.asyncio(loop_scope="session")]

STALL = {"stall": {"seconds": 3600, "after_words": 4}}


@asynccontextmanager
async def late(page, address):
    """Let the first answer to a GET arrive when the block ends; yields an event: it is given."""
    is_given, is_due = asyncio.Event(), asyncio.Event()
    requests = []

    async def hold(route):
        if requests or route.request.method != "GET":
            await route.continue_()
            return
        requests.append(route.request)
        response = await route.fetch()
        is_given.set()
        await is_due.wait()
        await route.fulfill(response=response)

    await page.route(address, hold)
    yield is_given
    async with page.expect_event("requestfinished", lambda request: request == requests[0]):
        is_due.set()
    for _ in range(2):  # the page has drawn what it makes of it
        await page.evaluate("new Promise(requestAnimationFrame)")


async def set_option(page, name, value):
    async with page.expect_response(lambda response: response.request.method == "PATCH"):
        await page.get_by_role("spinbutton", name=name).fill(value)
        await page.keyboard.press("Tab")


async def test_no_setting_is_lost(shared):
    session_id = await shared.server.new_session()
    async with shared.page(f"/#/chat/{session_id}") as page:
        await page.get_by_role("button", name="Settings of this chat").click()
        async with late(page, the_chat(session_id)) as is_given:
            await shared.server.request("PATCH", f"/sessions/{session_id}", {"title": "Once"})
            await until(is_given.is_set)
            await set_option(page, "Temperature", "0.3")
            await expect(page.locator("main h1")).to_have_text("Once")
        await expect(page.get_by_role("spinbutton", name="Temperature")).to_have_value("0.3")
        await set_option(page, "Top p", "0.9")
    _, session = await shared.server.get(f"/sessions/{session_id}")
    assert session["options"] == {"temperature": 0.3, "top_p": 0.9}


REFUSAL = {"error": {"code": "PROVIDER_BUSY", "message": "Too much at once."}}


@pytest.mark.parametrize("is_new", [True, False], ids=["new chat", "chat"])
@pytest.mark.parametrize("is_refused", [True, False], ids=["refused", "taken"])
async def test_what_is_written_while_a_message_is_sent_stays(shared, is_new, is_refused):
    session_id = await shared.server.new_session("lorem")
    is_asked, is_due = asyncio.Event(), asyncio.Event()

    async def hold(route):
        is_asked.set()
        await is_due.wait()
        await (route.fulfill(status=503, json=REFUSAL) if is_refused else route.continue_())

    async with shared.page("/" if is_new else f"/#/chat/{session_id}") as page:
        await page.route("**/chat/*/runs", hold)
        await send(page, "A question")
        await until(is_asked.is_set)
        box = page.get_by_role("textbox", name="Write a message")
        await expect(box).to_have_value("")
        await box.press_sequentially("And more")
        is_due.set()
        if is_refused:
            await expect(page.get_by_role("alert")).to_contain_text("Too much at once.")
        else:
            await answered(page)
        left = "A question\n\nAnd more" if is_refused else "And more"
        await expect(box).to_have_value(left)
        await page.reload()
        await expect(box).to_have_value(left)


async def test_a_chat_that_comes_late_leaves_the_focus_to_what_is_written_meanwhile(shared):
    session_id = await shared.server.new_session("lorem", title="Slow")
    async with shared.page() as page:
        async with late(page, the_chat(session_id)):
            await page.get_by_role("link", name="Slow").click()
            await page.keyboard.press("Control+k")
            await page.keyboard.type("Slow")
        await expect(page.get_by_role("heading", name="Slow")).to_be_visible()
        await page.keyboard.type("ly")
        await expect(page.get_by_role("searchbox", name="Search")).to_have_value("Slowly")
        await page.keyboard.press("Control+Shift+O")
        await expect(page.get_by_role("textbox", name="Write a message")).to_be_focused()


async def test_the_last_one_of_two_changes_holds(shared):
    session_id = await shared.server.new_session()
    goes_on = asyncio.Event()
    changes = []

    async def hold_first(route):
        if route.request.method == "PATCH":
            changes.append(route.request.post_data_json)
            if len(changes) == 1:
                await goes_on.wait()
        await route.continue_()

    async with shared.page(f"/#/chat/{session_id}") as page:
        await page.get_by_role("button", name="Settings of this chat").click()
        await page.route(f"**/sessions/{session_id}", hold_first)
        field = page.get_by_role("spinbutton", name="Temperature")
        for value in ("0.3", "0.5"):
            await field.fill(value)
            await page.keyboard.press("Tab")
            # What the page has sent before this is on its way.
            assert await page.evaluate("fetch('/api/v1/health').then(({ ok }) => ok)")
        assert [each["options"] for each in changes] == [{"temperature": 0.3}]
        goes_on.set()
        await until(lambda: len(changes) == 2)
        await expect(field).to_have_value("0.5")
        await until(lambda: shared.server.get(f"/sessions/{session_id}"), has_last)


async def test_a_change_that_waits_for_another_is_sent_when_the_page_is_left(shared):
    session_id = await shared.server.new_session()
    held = asyncio.Event()

    async def hold(route):
        held.set()

    async with shared.page(f"/#/chat/{session_id}") as page:
        await page.get_by_role("button", name="Settings of this chat").click()
        # Only this one: what a page sends when it is left passes no route.
        await page.route(f"**/sessions/{session_id}", hold, times=1)
        field = page.get_by_role("spinbutton", name="Temperature")
        for value in ("0.3", "0.5"):
            await field.fill(value)
            await page.keyboard.press("Tab")
            await held.wait()
        await page.goto("about:blank")
        await until(lambda: shared.server.get(f"/sessions/{session_id}"), has_last)


def has_last(answer):
    return answer[1].get("options") == {"temperature": 0.5}


async def test_a_run_is_shown_in_its_own_chat_alone(shared):
    first = await shared.server.new_session("lorem", title="First")
    second = await shared.server.new_session("lorem", title="Second")
    async with shared.page(f"/#/chat/{first}") as page:
        await expect(page.locator("main h1")).to_have_text("First")
        async with late(page, the_chat(first)) as is_given:
            message = scripted([{"text_message": {"text": "one two three four five"}}, STALL])
            await shared.server.post(f"/chat/{first}/runs", {"message": message})
            await until(is_given.is_set)
            await page.goto(f"{shared.server.url}/#/chat/{second}")
            await expect(page.locator("main h1")).to_have_text("Second")
        await expect(page.locator(".answer")).to_have_count(0)
        await send(page, scripted("Of the second."))
        await answered(page)
        await expect(page.locator(".answer .markdown")).to_have_text("Of the second.")
        await page.goto(f"{shared.server.url}/#/chat/{first}")
        await expect(page.locator(".answer")).to_contain_text("one two three")
    await shared.server.post(f"/chat/{first}/stop")


async def test_the_question_of_a_run_that_begins_while_its_chat_is_opened_is_shown(shared):
    session_id = await shared.server.new_session("lorem", title="First")
    async with shared.page() as page:
        is_asked, is_due = asyncio.Event(), asyncio.Event()

        async def hold(route):
            is_asked.set()
            await is_due.wait()
            await route.continue_()

        await page.route(f"**/runs?session_id={session_id}", hold)
        await page.goto(f"{shared.server.url}/#/chat/{session_id}")
        await expect(page.locator("main h1")).to_have_text("First")
        await until(is_asked.is_set)
        answer = [{"text_message": {"text": "one two three four five"}}, STALL]
        message = scripted(answer, question="How many?")
        await shared.server.post(f"/chat/{session_id}/runs", {"message": message})
        is_due.set()
        await expect(page.locator(".answer")).to_contain_text("one two three")
        await expect(page.locator(".question")).to_contain_text("How many?")
    await shared.server.post(f"/chat/{session_id}/stop")


async def test_a_message_is_sent_with_the_settings_that_were_chosen_before(shared):
    session_id = await shared.server.new_session("lorem")
    is_asked, is_due = asyncio.Event(), asyncio.Event()
    sent = []

    async def hold(route):
        if route.request.method == "PATCH":
            is_asked.set()
            await is_due.wait()
        await route.continue_()

    async with shared.page(f"/#/chat/{session_id}") as page:
        await page.route(f"**/sessions/{session_id}", hold)
        page.on("request", lambda each: sent.append(each.url) if each.method == "POST" else 0)
        await choose_model(page, "lorem-small")
        await until(is_asked.is_set)
        await send(page, scripted("Answered."))
        await expect(page.locator(".question")).to_have_count(1)
        # What the page has sent before this is on its way.
        assert await page.evaluate("fetch('/api/v1/health').then(({ ok }) => ok)")
        assert sent == []
        is_due.set()
        await answered(page)
    _, session = await shared.server.get(f"/sessions/{session_id}")
    assert session["messages"][-1]["model"] == "lorem-small"


LOCKED = {"error": {"code": "STORAGE_UNAVAILABLE", "message": "The setting is not saved."}}


async def test_a_message_is_not_sent_when_a_setting_that_was_chosen_before_it_is_lost(shared):
    session_id = await shared.server.new_session("lorem")
    is_asked, is_due = asyncio.Event(), asyncio.Event()

    async def refuse(route):
        if route.request.method != "PATCH":
            await route.continue_()
            return
        is_asked.set()
        await is_due.wait()
        await route.fulfill(status=503, json=LOCKED)

    async with shared.page(f"/#/chat/{session_id}") as page:
        await page.route(f"**/sessions/{session_id}", refuse)
        await choose_model(page, "lorem-small")
        await until(is_asked.is_set)
        message = scripted("Answered.")
        await send(page, message)
        await expect(page.locator(".question")).to_have_count(1)
        is_due.set()
        failure = page.get_by_role("alert").filter(has=page.get_by_role("button"))
        await expect(failure).to_contain_text("The setting is not saved.")
        box = page.get_by_role("textbox", name="Write a message")
        await expect(box).to_have_value(message)
        await expect(page.locator(".question")).to_have_count(0)
        _, session = await shared.server.get(f"/sessions/{session_id}")
        assert session["messages"] == []
        # What was lost is seen by now: whoever sends anyway wants it so.
        await expect(page.get_by_role("button", name="Model: ")).to_contain_text("lorem")
        await failure.get_by_role("button", name="Try again").click()
        await answered(page)
        _, session = await shared.server.get(f"/sessions/{session_id}")
        assert session["messages"][-1]["model"].endswith("lorem")


async def test_a_message_that_is_to_go_without_tools_is_not_sent_with_them(shared):
    refusal = {"error": {"code": "TOOLS_NOT_SUPPORTED", "message": "It cannot call tools."}}
    session_id = await shared.server.new_session("lorem")
    sent = []

    async def refuse_change(route):
        if route.request.method == "PATCH":
            await route.fulfill(status=503, json=LOCKED)
        else:
            await route.continue_()

    async def refuse_run(route):
        sent.append(route.request.url)
        await route.fulfill(status=422, json=refusal)

    async with shared.page(f"/#/chat/{session_id}") as page:
        await page.route(f"**/sessions/{session_id}", refuse_change)
        await page.route("**/chat/*/runs", refuse_run)
        await send(page, "A question")
        await page.get_by_role("button", name="Without tools").click()
        await expect(page.get_by_text("The setting is not saved.")).to_be_visible()
        # What the page has sent before this is on its way.
        assert await page.evaluate("fetch('/api/v1/health').then(({ ok }) => ok)")
        assert len(sent) == 1
        box = page.get_by_role("textbox", name="Write a message")
        await expect(box).to_have_value("A question")
