"""Finding a conversation again on the page: in a real browser."""

from __future__ import annotations

import asyncio
import re
from datetime import datetime, timezone

import pytest
import pytest_asyncio
from playwright.async_api import expect

from tests.support.chromium import needs_chromium
from tests.support.page import (
    answered,
    browser_with_server,
    expect_accessible,
    scripted,
    send,
)
from tests.support.waiting import until

pytestmark = [needs_chromium, pytest.mark.asyncio(loop_scope="session")]

WHOLE = re.compile(r"Sunday, December 24, 2023\b.*\b10:00")
CHATS = [
    ("Tea", datetime(2024, 5, 1, 10, tzinfo=timezone.utc), True),
    ("Coffee with tea", datetime(2024, 5, 3, 10, tzinfo=timezone.utc), False),
    ("Bread", datetime(2023, 12, 24, 10, tzinfo=timezone.utc), False),
]
"""Of each the title, the time of all of it, and whether it is archived."""


def exported(title, time, is_archived):
    """A conversation as ChatGPT exports it."""
    seconds = time.timestamp()
    messages = [
        {"author": {"role": role}, "create_time": seconds,
         "content": {"content_type": "text", "parts": [f"About {title}."]}}
        for role in ("user", "assistant")
    ]  # fmt: skip
    nodes = {
        f"{at}": {"id": f"{at}", "parent": f"{at - 1}" if at else None, "message": message}
        for at, message in enumerate([None, *messages])
    }
    return {
        "title": title, "create_time": seconds, "update_time": seconds, "is_archived": is_archived,
        "conversation_id": title, "mapping": nodes, "current_node": "2",
    }  # fmt: skip


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shared(browser, tmp_path_factory):
    async with browser_with_server(browser, tmp_path_factory.mktemp("page")) as shared:
        chats = [exported(*chat) for chat in CHATS]
        status, result = await shared.server.post("/sessions/import?model=lorem", chats)
        assert (status, len(result["imported"])) == (200, 3), result
        metadata = {"session_id": "0123456789", "model": "lorem", "title": "By hand"}
        message = {"role": "user", "content": "Me.", "timestamp": "once"}
        written = {"metadata": {**metadata, "updated_at": "some day"}, "messages": [message]}
        assert (await shared.server.post("/sessions/import", written))[0] == 200
        yield shared


@pytest_asyncio.fixture(loop_scope="session")
async def page(shared):
    async with shared.page(timezone_id="UTC") as page:
        yield page


def group(page, name):
    return page.locator(".sessions section").filter(has=page.get_by_role("heading", name=name))


async def test_older_chats_are_under_the_month_of_their_last_change(page):
    await expect(group(page, "May 2024").get_by_role("listitem")).to_have_text("Coffee with tea")
    await expect(group(page, "December 2023").get_by_role("listitem")).to_have_text("Bread")
    link = page.get_by_role("link", name="Bread")
    await expect(link).to_have_attribute("title", WHOLE)


async def test_a_chat_of_the_future_is_none_of_the_last_day(shared, page):
    time = datetime(2999, 1, 1, tzinfo=timezone.utc)
    _, result = await shared.server.post("/sessions/import", [exported("Later", time, False)])
    await expect(group(page, "In the future").get_by_role("listitem")).to_have_text("Later")
    await shared.server.request("DELETE", f"/sessions/{result['imported'][0]['session_id']}")


async def test_the_list_says_what_it_shows_also_while_another_one_is_on_its_way(shared, page):
    is_due = asyncio.Event()

    async def hold(route):
        await is_due.wait()
        await route.continue_()

    await page.route("**/sessions?query=*", hold)
    search = page.get_by_role("searchbox", name="Search")
    await expect(group(page, "May 2024")).to_be_visible()
    async with page.expect_request("**/sessions?query=*"):
        await search.fill("tea")
    await page.get_by_role("link", name="Settings").click()  # the list is drawn again
    await expect(page.get_by_role("heading", name="Models")).to_be_visible()
    await expect(group(page, "May 2024")).to_be_visible()
    await expect(group(page, "Found")).to_have_count(0)
    is_due.set()
    await expect(group(page, "Found").get_by_role("listitem")).to_have_count(2)


async def test_an_archive_without_chats_is_no_list_without_any(shared, page):
    _, archive = await shared.server.get("/sessions?archived=true")
    [tea] = [f"/sessions/{each['session_id']}" for each in archive["sessions"]]
    await shared.server.request("PATCH", tea, {"archived": False})
    await page.get_by_role("checkbox", name="Archived").check()
    await expect(page.locator(".sessions")).to_have_text("Nothing found.")
    await shared.server.request("PATCH", tea, {"archived": True})


async def test_a_message_says_when_it_was_written(page):
    await page.get_by_role("link", name="Bread").click()
    times = page.locator("main time")
    await expect(times).to_have_text(["Dec 24, 2023"] * 2)
    await expect(times.last).to_have_attribute("title", WHOLE)
    await expect_accessible(page)


async def test_a_chat_without_a_time_is_shown_like_others(page):
    await page.get_by_role("link", name="By hand").click()
    await expect(page.get_by_role("article", name="Your message")).to_contain_text("Me.")
    await expect(page.locator("main time")).to_have_count(0)


async def test_escape_empties_the_search_before_it_closes_the_list_of_a_narrow_window(page):
    await page.set_viewport_size({"width": 390, "height": 800})
    await page.get_by_role("button", name="Show conversations").click()
    search = page.get_by_role("searchbox", name="Search")
    await search.fill("tea")
    await expect(page.locator(".session mark").first).to_be_visible()
    await search.press("Escape")
    await expect(search).to_have_value("")
    await expect(search).to_be_focused()
    await expect(page.get_by_role("link", name="Bread")).to_be_visible()
    await search.press("Escape")
    await expect(search).not_to_be_in_viewport()


async def test_a_search_finds_what_is_archived_and_the_arrows_go_through_it(page):
    await expect(page.locator(".session")).to_have_count(3)
    search = page.get_by_role("searchbox", name="Search")
    await search.fill("tea")
    found = page.locator(".session")
    await expect(found).to_have_count(2)
    await expect(found.filter(has_text="Archived")).to_contain_text("Tea")
    coffee = found.filter(has_text="Coffee with tea")  # no other test changes it
    await expect(coffee.locator("time")).to_have_text("May 3, 2024")
    await expect_accessible(page)
    await search.focus()
    links = found.locator("a")
    for keys in ("ArrowUp", "Shift+ArrowDown"):  # this one marks the text
        await page.keyboard.press(keys)
        await expect(search).to_be_focused()
    for at in (0, 1, 1):
        await page.keyboard.press("ArrowDown")
        await expect(links.nth(at)).to_be_focused()
    await page.keyboard.press("ArrowUp")
    await page.keyboard.press("ArrowUp")
    await expect(search).to_be_focused()
    await page.keyboard.press("ArrowDown")
    opened = await links.first.get_attribute("href")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("article", name="Your message")).to_be_visible()
    assert page.url.endswith(opened)
    await expect(found).to_have_count(2)
    await search.press("Escape")
    await expect(page.locator(".session")).to_have_count(3)
    await expect(page.locator(".session").filter(has_text="Archived")).to_have_count(0)


async def test_words_that_are_found_are_marked_in_titles_and_once(page):
    await page.get_by_role("searchbox", name="Search").fill("tea")
    found = page.locator(".session")
    await expect(found).to_have_count(2)
    coffee = found.filter(has_text="Coffee with")
    await expect(coffee.locator(".session-title")).to_have_text("Coffee with tea")
    await expect(coffee.locator(".session-title mark")).to_have_text("tea")
    await page.get_by_role("searchbox", name="Search").fill("about")
    await expect(found).to_have_count(3)
    await expect(found.locator(".session-title mark")).to_have_count(0)
    await expect(found.locator(".snippet mark").first).to_have_text("About")


MARKED = """() => [...(CSS.highlights.get("found") ?? [])].map(
  (range) => [range.toString(), range.startContainer.parentElement.closest("article").innerText])"""


async def test_a_chat_opens_at_what_was_found_in_it_with_the_words_marked(shared, page):
    """Far above its end, in a part that is not drawn otherwise."""
    metadata = {"session_id": "long", "model": "lorem", "title": "Long"}
    messages = [
        {"role": role, "content": f"**{text}** {number}."}
        for number in range(60)
        for role, text in (("user", "About"), ("assistant", "Nothing"))
    ]
    messages[21]["content"] = "It lies in the *Zanzibar* archipelago."
    messages[100]["content"] = "And Zanzibar again."
    file = {"metadata": metadata, "messages": messages}
    assert (await shared.server.post("/sessions/import", file))[0] == 200
    await page.get_by_role("searchbox", name="Search").fill("zanzibar archipelago")
    await page.locator(".session a").filter(has_text="Long").click()
    answer = page.get_by_role("article").filter(has_text="It lies in the Zanzibar archipelago.")
    await expect(answer).to_be_in_viewport()
    await until(
        lambda: page.evaluate(MARKED),
        lambda marked: (
            {word.lower() for word, _ in marked} == {"zanzibar", "archipelago"}
            and len(marked) == 3
            and "It lies in" in marked[0][1]
        ),
    )
    await expect(page.get_by_role("button", name="To the end")).to_be_visible()
    await page.get_by_role("searchbox", name="Search").fill("")
    await page.get_by_role("link", name="Bread").click()
    await expect(page.get_by_text("About Bread.").first).to_be_visible()
    assert await page.evaluate("CSS.highlights.has('found')") is False
    await page.get_by_role("link", name="Long").click()
    await expect(page.get_by_text("Nothing 59.")).to_be_in_viewport()
    await expect(answer).to_have_count(0)
    assert (await shared.server.request("DELETE", "/sessions/long"))[0] == 204


async def test_the_marks_go_when_a_message_is_sent(shared, page):
    metadata = {"session_id": "sent", "model": "lorem", "title": "Sent"}
    file = {"metadata": metadata, "messages": [{"role": "user", "content": "Where is Mombasa?"}]}
    assert (await shared.server.post("/sessions/import", file))[0] == 200
    await page.get_by_role("searchbox", name="Search").fill("mombasa")
    await page.locator(".session a").filter(has_text="Sent").click()
    await until(lambda: page.evaluate(MARKED))
    await send(page, scripted("In Kenya."))
    await answered(page)
    assert await page.evaluate(MARKED) == []
    assert (await shared.server.request("DELETE", "/sessions/sent"))[0] == 204
