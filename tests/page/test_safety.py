"""Hostile texts, accessibility and the token: in a real browser."""

from __future__ import annotations

import asyncio
import json
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
    scripted,
    send,
    the_chat,
)
from tests.support.waiting import until

pytestmark = [needs_chromium, pytest.mark.asyncio(loop_scope="session")]

TOKEN = "t0ken"
HOSTILE = "\n\n".join(
    [
        "<script>window.hacked = 1</script>",
        "<img src=x onerror='window.hacked = 1'>",
        '<svg onload="window.hacked = 1"><a xlink:href="javascript:alert(1)">x</a></svg>',
        "[a link](javascript:window.hacked=1) [another](data:text/html,x) [good](https://a.example/)",
        "![image](https://evil.example/pixel.png)",
        '<iframe srcdoc="<script>parent.hacked=1</script>"></iframe><form action=/x><input></form>',
        '<style>body { display: none }</style><div style="position:fixed;inset:0">over all</div>',
        "<details><summary>open</summary>never closed",
        "| " + " | ".join("column" for _ in range(80)) + " |",
        "|" + "---|" * 80 + "\n|" + "x|" * 80,
        "\u202eright to left override, not ended",
        "a" * 3000,
        "$\\href{javascript:alert(1)}{x} \\def\\a{\\a\\a}\\a$",
        "```\nnever closed <b>",
    ]
)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shared(browser, tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    async with browser_with_server(browser, folder, api_token=TOKEN) as shared:
        shared.server.http.headers["Authorization"] = f"Bearer {TOKEN}"
        yield shared


async def enter_token(page, token=TOKEN):
    dialog = page.get_by_role("dialog", name="Token")
    await dialog.get_by_role("textbox", name="Token").fill(token)
    await dialog.get_by_role("button", name="Open").click()


async def test_the_page_asks_for_the_token_and_keeps_it_in_the_tab(shared):
    async with shared.page() as page:
        await enter_token(page, "wrong")
        await expect(page.get_by_text("refused this token")).to_be_visible()
        await enter_token(page)
        await send(page, scripted("Welcome."))
        await answered(page)
        await page.reload()
        await expect(page.locator(".answer")).to_contain_text("Welcome.")


async def test_a_file_is_imported_where_the_server_wants_a_token(shared):
    async with shared.page() as page:
        await enter_token(page)
        await page.get_by_role("link", name="Settings").click()
        await page.get_by_role("link", name="Import and export").click()
        async with page.expect_file_chooser() as chooser:
            await page.get_by_role("button", name="Choose files").click()
        chat = chat_of("Green or black?")
        file = {"name": "tea.json", "mimeType": "application/json", "buffer": chat.encode()}
        await (await chooser.value).set_files(file)
        await expect(page.locator(".import").get_by_role("status")).to_have_text("1 new")


async def test_files_to_import_wait_for_a_token(shared, tmp_path):
    async with shared.page("/#/import") as page:
        await enter_token(page)
        await expect(page.get_by_role("heading", name="Import")).to_be_visible()
        await page.evaluate("sessionStorage.setItem('mochi.token', 'old')")
        names = ["first.json", "second.json"]
        files = [tmp_path / name for name in names]
        for path in files:
            path.write_text(chat_of(str(path)))
        await page.locator("input[type=file]").set_input_files(files)
        await expect(page.get_by_text("refused this token")).to_be_visible()
        await enter_token(page)
        for name in names:
            entry = page.locator(".import").filter(has_text=name)
            await expect(entry.get_by_role("status")).to_have_text("1 new")


def chat_of(text):
    return json.dumps({"messages": [{"role": "user", "content": text}]})


async def test_the_token_is_kept_on_the_device_where_a_person_wants_that(shared):
    async with shared.context() as context:
        tab = await context.new_page()
        await tab.goto(shared.server.url)
        await tab.get_by_role("checkbox", name="Keep it on this device").check()
        await enter_token(tab)
        await expect(tab.get_by_role("textbox", name="Write a message")).to_be_visible()
        other = await context.new_page()
        await other.goto(shared.server.url)
        await expect(other.get_by_role("textbox", name="Write a message")).to_be_visible()


async def test_a_token_that_another_tab_was_given_is_used(shared):
    async with shared.context() as context:
        tabs = [await context.new_page() for _ in range(2)]
        for tab in tabs:
            await tab.goto(shared.server.url)
            await expect(tab.get_by_role("dialog", name="Token")).to_be_visible()
        await tabs[0].get_by_role("checkbox", name="Keep it on this device").check()
        await enter_token(tabs[0])
        for tab in tabs:
            await expect(tab.get_by_role("dialog")).to_have_count(0)
            await expect(tab.get_by_role("button", name="Model: lorem", exact=True)).to_be_visible()


async def test_what_is_shown_is_what_the_token_of_another_tab_may_see(shared):
    session_id = await shared.server.new_session("lorem")
    async with shared.context() as context:
        tab, other = [await context.new_page() for _ in range(2)]
        await tab.goto(f"{shared.server.url}/#/chat/{session_id}")
        await tab.get_by_role("checkbox", name="Keep it on this device").check()
        await enter_token(tab)
        await expect(tab.get_by_role("button", name="Settings of this chat")).to_be_visible()
        await tab.route(the_chat(session_id), lambda route: route.fulfill(status=404, json={}))
        await other.goto(shared.server.url)
        async with tab.expect_request("**/confirmations/events"):
            await other.evaluate(f"localStorage.setItem('mochi.token', '{TOKEN} ')")
        await expect(tab).to_have_url(f"{shared.server.url}/#/")


FORBID = """for (const name of ["sessionStorage", "localStorage"]) {
  Object.defineProperty(window, name, {
    get() { throw new DOMException("Access is denied for this document.", "SecurityError"); },
  });
}"""


async def test_the_page_works_where_the_browser_keeps_nothing(shared):
    async with shared.context() as context:
        await context.add_init_script(FORBID)
        page = await context.new_page()
        await page.route("**/texts.js", lambda route: route.abort("failed"), times=1)
        await page.goto(shared.server.url, wait_until="commit")
        await enter_token(page)
        await page.get_by_role("button", name="Think").click()
        async with page.expect_request("**/chat/*/runs") as sent:
            await send(page, scripted("Welcome."))
        assert (await sent.value).post_data_json["think"] is True
        await answered(page)
        box = page.get_by_role("textbox", name="Write a message")
        await box.fill("Not yet sent")
        await page.get_by_role("link", name="Settings").click()
        await page.go_back()
        await expect(page.locator(".answer")).to_contain_text("Welcome.")
        await expect(box).to_have_value("Not yet sent")


async def test_a_token_that_is_refused_later_takes_nothing_that_is_written(shared):
    session_id = await shared.server.new_session("lorem")
    async with shared.page(f"/#/chat/{session_id}") as page:
        await enter_token(page)
        await send(page, scripted("Welcome.", question="Who is there?"))
        await answered(page)
        await page.get_by_role("button", name="Edit", exact=True).click()
        field = page.locator(".editor textarea")
        await field.fill("Is somebody there?")
        await page.evaluate("sessionStorage.setItem('mochi.token', 'old')")
        dialog = page.get_by_role("dialog", name="Token")
        await expect(dialog).to_contain_text("refused this token")
        await expect_accessible(page)
        await page.keyboard.press("Escape")
        await expect(dialog.get_by_role("textbox", name="Token")).to_be_focused()
        await enter_token(page, "wrong")
        await expect(dialog).to_contain_text("refused this token")
        await enter_token(page)
        await expect(dialog).to_have_count(0)
        await expect(field).to_have_value("Is somebody there?")
        await expect(field).to_be_focused()
        await page.get_by_role("button", name="Ask again").click()
        await expect(page.locator(".question")).to_contain_text("Is somebody there?")


async def test_what_is_shown_is_what_another_token_may_see(shared):
    session_id = await shared.server.new_session("lorem")
    async with shared.page(f"/#/chat/{session_id}") as page:
        await enter_token(page)
        await expect(page.get_by_role("button", name="Settings of this chat")).to_be_visible()
        await page.evaluate("sessionStorage.setItem('mochi.token', 'old')")
        await expect(page.get_by_text("refused this token")).to_be_visible()
        missing = {"error": {"code": "SESSION_NOT_FOUND", "message": "There is no such session."}}
        await page.route(
            the_chat(session_id), lambda route: route.fulfill(status=404, json=missing)
        )
        async with page.expect_request("**/confirmations/events"):
            await enter_token(page)
        await expect(page).to_have_url(f"{shared.server.url}/#/")


async def test_a_token_is_taken_without_what_was_copied_with_it(shared):
    async with shared.page() as page:
        await enter_token(page, f" \u200b{TOKEN}\u200b ")
        await expect(page.get_by_role("button", name="Model: lorem", exact=True)).to_be_visible()


async def test_a_dialog_that_opens_while_the_token_is_asked_for_waits(shared):
    session_id = await shared.server.new_session("gpt-4o")
    is_asked, is_due = asyncio.Event(), asyncio.Event()

    async def hold(route):
        is_asked.set()
        await is_due.wait()
        await route.continue_()

    async with shared.page(f"/#/chat/{session_id}") as page:
        await enter_token(page)
        await expect(page.get_by_role("button", name="Model: gpt-4o, not here")).to_be_visible()
        await page.route("**/api/v1/models", hold)
        await send(page, "Is somebody there?")
        await until(is_asked.is_set)
        await page.evaluate("sessionStorage.setItem('mochi.token', 'old')")
        await expect(page.get_by_text("refused this token")).to_be_visible()
        async with page.expect_response("**/api/v1/models"):
            is_due.set()
        await drawn(page)
        await enter_token(page)
        dialog = page.get_by_role("dialog", name="Answer with …")
        await expect(dialog.get_by_role("combobox")).to_be_focused()


@pytest.mark.parametrize("name", ["tools", "rules", "presets", "health"])
async def test_a_page_that_is_opened_with_a_refused_token_comes_with_another(shared, name):
    async with shared.page("/#/models") as page:
        await enter_token(page)
        await expect(page.get_by_role("heading", name="Models")).to_be_visible()
        await page.evaluate("sessionStorage.setItem('mochi.token', 'old')")
        await page.goto(f"{shared.server.url}/#/{name}")
        await expect(page.get_by_text("refused this token")).to_be_visible()
        await enter_token(page)
        await expect(page.get_by_role("dialog")).to_have_count(0)
        await expect(page.get_by_text("Loading…")).to_have_count(0)
        await expect(page.get_by_role("alert")).to_have_count(0)


async def test_a_file_is_sent_once_there_is_a_token_again(shared):
    async with shared.page() as page:
        await enter_token(page)
        file = {"name": "tea.txt", "mimeType": "text/plain", "buffer": b"Green."}
        await page.locator("input[type=file]").set_input_files(file)
        await page.evaluate("sessionStorage.setItem('mochi.token', 'old')")
        await expect(page.get_by_text("refused this token")).to_be_visible()
        await enter_token(page)
        await expect(page.locator(".composer .attachments")).to_contain_text("tea.txt")
        await send(page, "What is it?")
        await answered(page)
        await expect(page.locator(".question")).to_contain_text("tea.txt")


STALL = {"stall": {"seconds": 3600, "after_words": 3}}


async def test_an_answer_goes_on_when_there_is_a_token_again(shared):
    session_id = await shared.server.new_session("lorem")
    async with shared.page(f"/#/chat/{session_id}") as page:
        await enter_token(page)
        box = page.get_by_role("textbox", name="Write a message")
        await expect(box).to_be_visible()
        refusal = {"error": {"code": "UNAUTHORIZED", "message": "No."}}
        await page.route(
            re.compile("/runs/[^/]+/events"),
            lambda route: route.fulfill(status=401, json=refusal),
            times=1,
        )
        await send(page, scripted([{"text_message": {"text": "one two three four"}}, STALL]))
        await enter_token(page)
        await expect(page.locator(".answer[aria-busy=true]")).to_contain_text("one two")
        await page.get_by_role("button", name="Stop").click()
        await answered(page)


BLOCKS = ".markdown > div.block"  # which the page makes itself, with a style


async def test_nothing_of_a_hostile_text_runs_or_breaks_the_layout(shared):
    status, session = await shared.server.post(
        "/sessions", {"model": "lorem", "title": "\u202e<b>evil</b>" + "w" * 150, "tags": ["<i>"]}
    )
    assert status == 201
    async with shared.page(viewport={"width": 900, "height": 700}) as page:
        outside = []
        page.on("request", lambda request: outside.append(request.url))
        await enter_token(page)
        await page.goto(f"{shared.server.url}/#/chat/{session['session_id']}")
        await send(page, scripted(HOSTILE, reasoning={"text": HOSTILE}))
        await answered(page)
        await page.get_by_role("button", name="Thinking").click()
        assert await page.evaluate("window.hacked") is None
        links = page.locator(".answer .markdown a")
        addresses = await links.evaluate_all("all => all.map(link => link.getAttribute('href'))")
        assert {address.split(":")[0] for address in addresses} == {"https"}
        for selector in ("script", "iframe", "form", "img", "style", "[onerror]", "[style]"):
            hostile = page.locator(f".answer .markdown {selector}:not(.katex *, {BLOCKS})")
            assert await hostile.count() == 0, selector
        width = await page.evaluate("document.documentElement.scrollWidth")
        assert width <= 900
        assert all(url.startswith((shared.server.url, "blob:", "data:")) for url in outside)
        await links.filter(has_text="good").last.click()
        await expect(page.get_by_role("dialog")).to_contain_text("a.example")


async def test_axe_finds_nothing_in_what_asks_for_the_token_nor_in_a_chat(shared):
    async with shared.page() as page:
        await expect_accessible(page)
        await enter_token(page)
        await expect(page.get_by_role("heading", level=1)).to_be_visible()
        await page.get_by_role("button", name="Model: lorem", exact=True).click()
        await expect(page.get_by_role("option")).not_to_have_count(0)
        await expect_accessible(page)
        await page.keyboard.press("Escape")
        await page.get_by_role("button", name="Settings of this chat").click()
        for theme in ("light", "dark"):
            await page.evaluate("theme => document.documentElement.dataset.theme = theme", theme)
            await expect_accessible(page)
        await send(
            page, scripted("# Head\n\n`code`\n\n```python\na = 1\n```\n\n| a |\n|---|\n| b |")
        )
        await answered(page)
        await expect(page.locator(".hljs-number")).to_have_count(1)
        for theme in ("light", "dark"):
            await page.evaluate("theme => document.documentElement.dataset.theme = theme", theme)
            await expect_accessible(page)
