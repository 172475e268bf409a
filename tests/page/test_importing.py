"""Importing files on the page: in a real browser."""

from __future__ import annotations

import asyncio
import json

import pytest
import pytest_asyncio
from playwright.async_api import expect

from tests.support.chromium import needs_chromium
from tests.support.page import expect_accessible

pytestmark = [needs_chromium, pytest.mark.asyncio(loop_scope="session")]

DROP = """
([place, name, text]) => {
  const dataTransfer = new DataTransfer();
  if (name) dataTransfer.items.add(new File([text], name));
  const event = new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true });
  return !document.querySelector(place).dispatchEvent(event);
}
"""
"""Drops a file; returns whether the browser is kept from opening it."""


def claude(*conversations):
    """An export of Claude; each conversation has a title and the texts of its messages."""
    return json.dumps([
        {
            "uuid": title, "name": title, "created_at": "2024-05-01T10:00:00Z",
            "updated_at": "2024-05-01T10:00:00Z",
            "chat_messages": [
                {"uuid": f"{title}{at}", "text": text, "sender": ("human", "assistant")[at % 2],
                 "created_at": "2024-05-01T10:00:00Z", "files": [{"file_name": "gone.pdf"}]}
                for at, text in enumerate(texts)
            ],
        }
        for title, *texts in conversations
    ])  # fmt: skip


@pytest_asyncio.fixture(loop_scope="session")
async def page(shared):
    async with shared.page("/#/import") as page:
        yield page


async def choose(page, name, text):
    async with page.expect_file_chooser() as chooser:
        await page.get_by_role("button", name="Choose files").click()
    file = {"name": name, "mimeType": "application/json", "buffer": text.encode()}
    await (await chooser.value).set_files(file)


def card(page, name):
    return page.locator(".import").filter(has_text=name).first


async def test_a_file_says_what_came_of_it_and_what_did_not(shared, page):
    await page.get_by_role("combobox", name="Model of the new").select_option("lorem")
    whole = claude(["Tea", "Green or black?", "Both."], ["Coffee", "How hot?", "Very."])
    critic = {
        "uuid": "x",
        "name": "x",
        "chat_messages": [{"uuid": "y", "sender": "critic", "text": "No."}],
    }
    text = json.dumps([*json.loads(whole), critic])
    await choose(page, "claude.json", text)
    entry = card(page, "claude.json")
    await expect(entry.get_by_role("status")).to_have_text("2 new")
    await expect(entry).to_contain_text("4 \u00d7 file that is not in the export")
    await expect(entry).to_contain_text("Could not be imported")
    await expect_accessible(page)
    await entry.get_by_role("link", name="Open the first one").click()
    await expect(page.get_by_text("Green or black?").last).to_be_visible()
    await expect(page.get_by_role("button", name="Model: lorem")).to_be_visible()
    for title in ("Tea", "Coffee"):
        await expect(page.locator(".session").filter(has_text=title)).to_have_count(1)
    await page.get_by_role("link", name="Settings").click()
    await page.get_by_role("link", name="Import").click()
    await choose(page, "again.json", text)
    await expect(card(page, "again.json").get_by_role("status")).to_have_text("2 here already")


async def test_a_file_of_no_program_says_why(page):
    await choose(page, "notes.txt", "Not a conversation.")
    entry = card(page, "notes.txt")
    await expect(entry.get_by_role("status")).to_have_text("Not imported")
    await expect(entry.locator(".card-body p")).not_to_be_empty()
    await expect_accessible(page)


async def test_a_file_without_messages_brings_nothing_and_says_so(page):
    await choose(page, "empty.json", claude(["Nothing"]))
    entry = card(page, "empty.json")
    await expect(entry.get_by_role("status")).to_have_text("Nothing to import")
    await expect(entry).to_contain_text("conversation without messages")


async def test_an_answer_that_is_not_the_servers_is_no_import(page):
    """As of a proxy that asks who it is."""
    await page.route("**/sessions/import*", lambda route: route.fulfill(body="<p>Log in.</p>"))
    await choose(page, "proxy.json", claude(["Proxied", "Is it there?", "No."]))
    await expect(card(page, "proxy.json").get_by_role("status")).to_have_text("Not imported")


async def test_a_file_that_is_being_read_says_so(page):
    goes_on = asyncio.Event()

    async def hold(route):
        await goes_on.wait()
        await route.continue_()

    await page.route("**/sessions/import*", hold)
    await choose(page, "slow.json", claude(["Slow", "Are you there?", "Yes."]))
    entry = card(page, "slow.json")
    await expect(entry.get_by_role("progressbar")).to_be_visible()
    await page.get_by_role("link", name="Models").click()  # and it goes on
    goes_on.set()
    await page.get_by_role("link", name="Import").click()
    await expect(entry.get_by_role("status")).to_have_text("1 new")


async def test_how_long_the_server_reads_is_not_known(page):
    goes_on = asyncio.Event()
    answer = json.dumps({"imported": [], "left_out": {}, "problems": []})

    async def read_slowly(reader, writer):
        await reader.readuntil(b"[")  # the file
        await goes_on.wait()
        head = f"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {len(answer)}\r\n\r\n"
        writer.write((head + answer).encode())
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(read_slowly, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        there = f"http://{host}:{port}/"
        await page.route("**/sessions/import*", lambda route: route.continue_(url=there))
        await choose(page, "large.json", claude(["Large"]))
        entry = card(page, "large.json")
        await expect(entry.get_by_role("status")).to_have_text("Being read…")
        await expect(entry.locator("progress:indeterminate")).to_be_visible()
        goes_on.set()
        await expect(entry.get_by_role("status")).to_have_text("Nothing to import")


async def test_a_file_that_is_gone_when_its_turn_comes_cannot_be_read(page, tmp_path):
    goes_on = asyncio.Event()

    async def hold(route):
        await goes_on.wait()
        await route.continue_()

    await page.route("**/sessions/import*", hold, times=1)
    first, gone = tmp_path / "first.json", tmp_path / "gone.json"
    for path in (first, gone):
        path.write_text(claude([str(path), "Are you there?", "Yes."]))
    async with page.expect_file_chooser() as chooser:
        await page.get_by_role("button", name="Choose files").click()
    await (await chooser.value).set_files([first, gone])
    await expect(card(page, "gone.json")).to_be_visible()
    gone.unlink()
    goes_on.set()
    await expect(card(page, "first.json").get_by_role("status")).to_have_text("1 new")
    await expect(card(page, "gone.json")).to_contain_text("cannot read this file")


async def drop_folder(page, selector, folder):
    place = await page.locator(selector).bounding_box()
    session = await page.context.new_cdp_session(page)
    data = {"items": [], "files": [str(folder)], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver", "drop"):
        at = {"x": place["x"] + 10, "y": place["y"] + 10}
        await session.send("Input.dispatchDragEvent", {"type": kind, "data": data, **at})


async def test_a_folder_that_is_dropped_cannot_be_read(page, tmp_path):
    await drop_folder(page, ".source", tmp_path)
    await expect(card(page, tmp_path.name)).to_contain_text("cannot read this file")


async def test_a_folder_that_is_dropped_on_the_message_is_not_attached_to_it(page, tmp_path):
    await page.get_by_role("button", name="New chat", exact=True).click()
    await drop_folder(page, "#composer", tmp_path)
    await expect(page.locator(".notice")).to_contain_text(f"{tmp_path.name}: The browser cannot")
    await expect(page.locator(".composer .attachments")).to_have_count(0)


async def test_a_file_is_dropped_on_the_list_of_chats(page):
    await page.get_by_role("link", name="Models").click()
    assert await page.evaluate(
        DROP, [".sidebar", "drop.json", claude(["Dropped", "Here?", "Yes."])]
    )
    await expect(card(page, "drop.json").get_by_role("status")).to_have_text("1 new")
    assert page.url.endswith("#/import")


async def test_a_file_that_is_dropped_on_the_message_is_attached_to_it(page):
    await page.get_by_role("button", name="New chat", exact=True).click()
    assert await page.evaluate(DROP, ["#composer", "notes.txt", "Tea."])
    await expect(page.locator("#composer .attachments")).to_contain_text("notes.txt")


async def test_the_browser_opens_no_file_that_is_dropped_beside_the_places_for_it(page):
    assert await page.evaluate(DROP, ["main", "other.json", "{}"])
    assert not await page.evaluate(DROP, ["main", None, None])  # a text goes its usual way
    await expect(page.locator(".import")).to_have_count(0)
