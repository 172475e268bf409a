"""What is begun in a chat stays its own when a person moves on meanwhile: in a real browser."""

from __future__ import annotations

import asyncio
import re

import pytest
from playwright.async_api import expect

from tests.support.chromium import needs_chromium
from tests.support.page import answered, drawn, held, scripted, send, the_chat
from tests.support.waiting import until

pytestmark = [needs_chromium, pytest.mark.asyncio(loop_scope="session")]

REFUSAL = {"error": {"code": "PROVIDER_BUSY", "message": "Too much at once."}}
TEA = {"name": "tea.txt", "mimeType": "text/plain", "buffer": b"Green."}
COMPACT = "Replace what is before the last question"


async def open_chat(shared, page, session_id, title):
    await page.goto(f"{shared.server.url}/#/chat/{session_id}")
    await expect(page.locator("main h1")).to_have_text(title)


async def two_chats(shared, *answers):
    """Ids of two chats, `First` and `Second`, each with these answers."""
    ids = []
    for title in ("First", "Second"):
        ids.append(await shared.server.new_session("lorem", title=title))
        for answer in answers:
            message = {"message": scripted(answer)}
            async for event in shared.server.stream(f"/chat/{ids[-1]}/stream", message):
                assert event.event != "error"
    return ids


async def test_a_message_that_is_refused_says_so_in_its_own_chat(shared):
    first, second = await two_chats(shared)
    async with shared.page() as page:
        await open_chat(shared, page, first, "First")
        async with held(page, "**/runs", status=503, json=REFUSAL) as is_asked:
            await send(page, "Of the first")
            await until(is_asked.is_set)
            await open_chat(shared, page, second, "Second")
        failure = page.get_by_role("alert")
        await expect(failure).to_have_count(0)
        box = page.get_by_role("textbox", name="Write a message")
        await expect(box).to_have_value("")
        await open_chat(shared, page, first, "First")
        await expect(failure).to_contain_text("Too much at once.")
        await expect(box).to_have_value("Of the first")
        await failure.get_by_role("button", name="Try again").click()
        await answered(page)
        await expect(failure).to_have_count(0)


async def test_a_message_that_is_refused_is_in_the_box_of_its_chat_again(shared):
    first, second = await two_chats(shared)
    async with shared.page() as page:
        await open_chat(shared, page, first, "First")
        await page.locator("input[type=file]").set_input_files(TEA)
        box = page.get_by_role("textbox", name="Write a message")
        async with held(page, "**/runs", status=503, json=REFUSAL) as is_asked:
            await send(page, "Of the first")
            await until(is_asked.is_set)
            await open_chat(shared, page, second, "Second")
            await open_chat(shared, page, first, "First")
            await box.fill("And more")
        await expect(box).to_have_value("Of the first\n\nAnd more")
        await page.get_by_role("button", name="Try again").click()
        await answered(page)
        await expect(page.locator(".question")).to_contain_text("Of the first")
        await expect(page.locator(".question")).to_contain_text("tea.txt")


async def test_what_is_written_in_another_chat_is_not_sent(shared):
    first, second = await two_chats(shared)
    refusal = {"error": {"code": "TOOLS_NOT_SUPPORTED", "message": "It cannot call tools."}}
    sent, is_changing, is_due = [], asyncio.Event(), asyncio.Event()

    async def refuse(route):
        sent.append(route.request.url)
        await route.fulfill(status=400, json=refusal)

    async def hold(route):
        if route.request.method == "PATCH":
            is_changing.set()
            await is_due.wait()
        await route.continue_()

    async with shared.page() as page:
        await page.route("**/chat/*/runs", refuse)
        await open_chat(shared, page, first, "First")
        await send(page, "Of the first")
        await page.route(f"**/sessions/{first}", hold)
        await page.get_by_role("button", name="Without tools").click()
        await until(is_changing.is_set)
        await open_chat(shared, page, second, "Second")
        box = page.get_by_role("textbox", name="Write a message")
        await box.fill("Not yet sent")
        async with page.expect_response(the_chat(first)):
            is_due.set()
        await drawn(page)
        await expect(box).to_have_value("Not yet sent")
        assert len(sent) == 1


async def test_a_message_that_is_being_sent_is_seen_when_one_comes_back(shared):
    first, second = await two_chats(shared)
    async with shared.page() as page:
        await open_chat(shared, page, first, "First")
        async with held(page, "**/runs") as is_asked:
            await send(page, scripted("Here it is."))
            await until(is_asked.is_set)
            await open_chat(shared, page, second, "Second")
            await expect(page.locator(".question")).to_have_count(0)
            await open_chat(shared, page, first, "First")
            await expect(page.locator(".question")).to_have_count(1)
        await answered(page)
        await expect(page.locator(".question")).to_have_count(1)
        await expect(page.locator(".answer .markdown")).to_have_text("Here it is.")


async def test_a_message_that_is_being_sent_is_seen_once(shared):
    first, _ = await two_chats(shared)
    async with shared.page() as page:
        await open_chat(shared, page, first, "First")
        async with held(page, "**/runs") as is_asked:
            await send(page, scripted("Here it is."))
            await until(is_asked.is_set)
            async for event in shared.server.stream(f"/chat/{first}/stream", {"message": "Hi"}):
                assert event.event != "error"
            await page.get_by_role("link", name="Settings").click()
            await expect(page.get_by_role("heading", name="Models")).to_be_visible()
            async with page.expect_response("**/runs?session_id=*"):
                await page.go_back()
            await drawn(page)
            await expect(page.locator(".question")).to_have_count(1)
        await answered(page, 2)


async def test_what_is_written_stays_where_its_chat_is_gone(shared):
    first, _ = await two_chats(shared)
    async with shared.page() as page:
        await open_chat(shared, page, first, "First")
        box = page.get_by_role("textbox", name="Write a message")
        await box.fill("Not yet sent")
        await page.get_by_role("link", name="Settings").click()
        await expect(page.get_by_role("heading", name="Models")).to_be_visible()
        await shared.server.request("DELETE", f"/sessions/{first}")
        await page.go_back()
        await expect(page.get_by_text("not found")).to_be_visible()
        await expect(box).to_have_value("Not yet sent")


async def test_files_of_a_first_message_without_an_answer_are_at_its_box(shared):
    async with shared.page() as page:
        await page.route("**/chat/*/runs", lambda route: route.abort("connectionreset"), times=1)
        await page.locator("input[type=file]").set_input_files(TEA)
        await send(page, "The very first")
        box = page.get_by_role("textbox", name="Write a message")
        await expect(box).to_have_value("The very first")
        await page.get_by_role("button", name="Try again").click()
        await answered(page)
        await expect(page.locator(".question")).to_contain_text("tea.txt")


async def test_what_is_attached_stays_with_its_message(shared):
    first, second = await two_chats(shared)
    async with shared.page() as page:
        await open_chat(shared, page, first, "First")
        await page.locator("input[type=file]").set_input_files(TEA)
        await page.get_by_role("link", name="Settings").click()
        await expect(page.get_by_role("heading", name="Models")).to_be_visible()
        await page.go_back()
        await expect(page.locator("#composer")).to_contain_text("tea.txt")
        await open_chat(shared, page, second, "Second")
        await expect(page.locator("#composer")).not_to_contain_text("tea.txt")
        await open_chat(shared, page, first, "First")
        await send(page, "What is in it?")
        await answered(page)
        await expect(page.locator(".question")).to_contain_text("tea.txt")
        await expect(page.locator("#composer")).not_to_contain_text("tea.txt")


async def test_a_first_message_that_is_refused_keeps_its_file_for_the_next_new_chat(shared):
    _, second = await two_chats(shared)
    async with shared.page() as page:
        await page.locator("input[type=file]").set_input_files(TEA)
        async with held(page, "**/runs", status=503, json=REFUSAL) as is_asked:
            await send(page, "The very first")
            await until(is_asked.is_set)
            await open_chat(shared, page, second, "Second")
        await page.get_by_role("button", name="New chat", exact=True).click()
        await expect(page.get_by_role("alert")).to_contain_text("Too much at once.")
        await expect(page.get_by_role("textbox", name="Write a message")).to_have_value(
            "The very first"
        )
        await expect(page.locator("#composer")).to_contain_text("tea.txt")
        await page.get_by_role("button", name="Remove tea.txt").click()


async def write_on_while_a_chat_is_being_made(page):
    """Send a first message, and write another one with a file before there is an answer."""
    async with held(page, "**/api/v1/sessions") as is_asked:
        await send(page, scripted("Done."))
        await until(is_asked.is_set)
        await page.locator("input[type=file]").set_input_files(TEA)
        await page.get_by_role("textbox", name="Write a message").fill("And this")
    await answered(page)


async def test_what_is_attached_while_a_chat_is_being_made_comes_with_it(shared):
    async with shared.page() as page:
        await write_on_while_a_chat_is_being_made(page)
        await expect(page.locator("#composer")).to_contain_text("tea.txt")
        await expect(page.get_by_role("textbox", name="Write a message")).to_have_value("And this")
        await page.get_by_role("button", name="New chat", exact=True).click()
        await expect(page.get_by_role("heading", name="What can I do for you?")).to_be_visible()
        await expect(page.locator("#composer")).not_to_contain_text("tea.txt")


READS_LATE = """() => {
  const read = FileReader.prototype.readAsDataURL;
  const isDue = new Promise((resolve) => { window.readFiles = resolve; });
  FileReader.prototype.readAsDataURL = function (file) { isDue.then(() => read.call(this, file)); };
}"""
IS_FULL = """() => {
  window.setItem = Storage.prototype.setItem;
  Storage.prototype.setItem = () => { throw new Error("It is full."); };
}"""


async def test_a_file_that_is_read_after_its_chat_was_made_is_sent(shared):
    async with shared.page() as page:
        await page.evaluate(READS_LATE)
        await write_on_while_a_chat_is_being_made(page)
        button = page.get_by_role("button", name="Send")
        await expect(button).to_have_attribute("aria-disabled", "true")
        await page.evaluate("readFiles()")
        await expect(button).to_have_attribute("aria-disabled", "false")
        await button.click()
        await answered(page, 2)
        await expect(page.locator(".question").last).to_contain_text("tea.txt")


@pytest.mark.parametrize("is_refused", [True, False], ids=["refused", "taken"])
async def test_what_is_written_for_the_next_new_chat_stays_there(shared, is_refused):
    first, _ = await two_chats(shared)
    answer = {"status": 503, "json": REFUSAL} if is_refused else {}
    async with shared.page() as page:
        box = page.get_by_role("textbox", name="Write a message")
        async with held(page, "**/runs", **answer) as is_asked:
            await send(page, scripted("Done.", question="The first of two"))
            await until(is_asked.is_set)
            await box.fill("Of the first of two")
            await open_chat(shared, page, first, "First")
            await page.get_by_role("button", name="New chat", exact=True).click()
            await expect(page.get_by_role("heading", name="What can I do")).to_be_visible()
            await expect(box).to_have_value("")
            await box.fill("Of the second")
            await page.locator("input[type=file]").set_input_files(TEA)
        await expect(page.locator("#composer")).to_contain_text("tea.txt")
        if is_refused:
            await expect(box).to_have_value(re.compile("Of the first of two\n\nOf the second$"))
        else:
            await expect(box).to_have_value("Of the second")
            await page.locator(".session a").filter(has_text="The first of two").click()
            await answered(page)
            await expect(box).to_have_value("Of the first of two")
            await expect(page.locator("#composer")).not_to_contain_text("tea.txt")
        await page.get_by_role("button", name="New chat", exact=True).click()
        await page.get_by_role("button", name="Remove tea.txt").click()
        await box.fill("")


async def test_a_message_that_is_refused_is_there_once_where_nothing_can_be_kept(shared):
    first, _ = await two_chats(shared)
    async with shared.page() as page:
        await open_chat(shared, page, first, "First")
        await page.evaluate(IS_FULL)
        box = page.get_by_role("textbox", name="Write a message")
        async with held(page, "**/runs", status=503, json=REFUSAL) as is_asked:
            await send(page, "Of the first")
            await until(is_asked.is_set)
        await expect(box).to_have_value("Of the first")
        await page.evaluate("() => { Storage.prototype.setItem = setItem; }")
        await page.get_by_role("button", name="Try again").click()
        await answered(page)
        await page.get_by_role("link", name="Settings").click()
        await expect(page.get_by_role("heading", name="Models")).to_be_visible()
        await page.go_back()
        await answered(page)
        await expect(box).to_have_value("")


async def test_a_suggestion_that_is_refused_is_in_the_box(shared):
    async with shared.page() as page:
        suggestion = page.get_by_role("button", name="Explain what a context window is")
        async with held(page, "**/runs", status=503, json=REFUSAL) as is_asked:
            await suggestion.click()
            await until(is_asked.is_set)
        box = page.get_by_role("textbox", name="Write a message")
        await expect(box).to_have_value(re.compile("Explain what a context window is"))
        async with held(page, "**/runs") as is_asked:
            await suggestion.click()
            await until(is_asked.is_set)
            await suggestion.click()
        await answered(page)
        await expect(box).to_have_value("")
        await expect(page.locator(".question")).to_have_count(1)
        sessions = await shared.server.get("/sessions")
        begun = [each for each in sessions[1]["sessions"] if "Explain what" in each["preview"]]
        assert len(begun) == 1
        await shared.server.request("DELETE", f"/sessions/{begun[0]['session_id']}")


@pytest.mark.parametrize("is_refused", [True, False], ids=["refused", "taken"])
async def test_nobody_is_taken_back_to_a_chat_that_has_begun(shared, is_refused):
    _, second = await two_chats(shared)
    answer = {"status": 503, "json": REFUSAL} if is_refused else {}
    async with shared.page() as page:
        async with held(page, "**/runs", **answer) as is_asked:
            await send(page, scripted("Done.", question="The very first message"))
            await until(is_asked.is_set)
            await open_chat(shared, page, second, "Second")
        await expect(page.locator("main h1")).to_have_text("Second")
        await expect(page).to_have_url(f"{shared.server.url}/#/chat/{second}")
        await expect(page.get_by_role("alert")).to_have_count(0)
        begun = page.locator(".session a").filter(has_text="The very first message")
        if is_refused:
            await page.get_by_role("button", name="New chat", exact=True).click()
            await expect(page.get_by_role("alert")).to_contain_text("Too much at once.")
            box = page.get_by_role("textbox", name="Write a message")
            await expect(box).to_have_value(scripted("Done.", question="The very first message"))
            await expect(begun).to_have_count(0)
        else:
            await begun.click()
            await answered(page)
            _, session = await shared.server.get(f"/sessions/{page.url.rsplit('/', 1)[1]}")
            await shared.server.request("DELETE", f"/sessions/{session['session_id']}")


async def test_a_history_is_compacted_in_its_own_chat(shared):
    first, second = await two_chats(shared, "One.", "Two.")
    async with shared.page() as page:
        await open_chat(shared, page, first, "First")
        async with held(page, "**/compact") as is_asked:
            await page.get_by_role("button", name=COMPACT).click()
            await until(is_asked.is_set)
            busy = page.locator("header [aria-busy=true]")
            await expect(busy).to_be_disabled()
            await open_chat(shared, page, second, "Second")
            await expect(busy).to_have_count(0)
            await expect(page.get_by_role("button", name=COMPACT)).to_be_enabled()
            await open_chat(shared, page, first, "First")
            await expect(busy).to_be_disabled()
        await expect(page.locator(".summary-line")).to_be_visible()
        await expect(page.get_by_role("button", name=COMPACT)).to_be_enabled()


async def test_a_changed_question_that_is_refused_touches_no_other_chat(shared):
    first, second = await two_chats(shared, "The answer.")
    selected = []
    async with shared.page() as page:
        page.on("request", lambda each: selected.append(each.url) if "/select" in each.url else 0)
        await open_chat(shared, page, first, "First")
        await page.locator(".question").hover()
        await page.get_by_role("button", name="Edit", exact=True).click()
        await page.get_by_role("textbox", name="Edit").fill("Another question")
        async with held(page, "**/runs", status=503, json=REFUSAL) as is_asked:
            await page.get_by_role("button", name="Ask again").click()
            await until(is_asked.is_set)
            await open_chat(shared, page, second, "Second")
        await until(lambda: selected)
        assert [f"/sessions/{first}/" in url for url in selected] == [True]
        await open_chat(shared, page, first, "First")
        await expect(page.locator(".answer .markdown")).to_have_text("The answer.")


async def test_nobody_is_taken_along_into_a_copy(shared):
    first, second = await two_chats(shared, "The answer.")
    async with shared.page() as page:
        await open_chat(shared, page, first, "First")
        async with held(page, "**/fork") as is_asked:
            await page.locator(".answer").hover()
            await page.get_by_role("button", name="Branch off here").click()
            await until(is_asked.is_set)
            await open_chat(shared, page, second, "Second")
        await expect(page).to_have_url(f"{shared.server.url}/#/chat/{second}")
        await expect(page.locator("main h1")).to_have_text("Second")
