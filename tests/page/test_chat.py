"""Chats on the page: in a real browser, with a server in test mode."""

from __future__ import annotations

import asyncio
import re
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio
from playwright.async_api import expect

from tests.support.chromium import needs_chromium
from tests.support.images import png
from tests.support.page import LIMIT, answered, browser_with_server, scripted, send

pytestmark = [needs_chromium, pytest.mark.asyncio(loop_scope="module")]
expect.set_options(timeout=LIMIT)

STALL = {"stall": {"seconds": 3600, "after_words": 4}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory):
    async with browser_with_server(tmp_path_factory.mktemp("page")) as shared:
        yield shared


@pytest_asyncio.fixture(loop_scope="module")
async def page(shared):
    async with shared.page() as page:
        yield page


async def ask(shared, message, **settings):
    """A session with this question and its answer."""
    session_id = await shared.server.new_session("lorem", **settings)
    status, _ = await shared.server.post(f"/chat/{session_id}", {"message": message})
    assert status == 200
    return session_id


async def test_a_first_message_begins_a_conversation_that_survives_a_reload(page):
    await send(page, scripted("Hello, **you**!", question="A first question"))
    await answered(page)
    await expect(page.locator(".answer strong")).to_have_text("you")
    await expect(page).to_have_url(re.compile("#/chat/"))
    entry = page.get_by_role("navigation", name="Conversations").get_by_role("link")
    await expect(entry.filter(has_text="A first question")).to_have_attribute(
        "aria-current", "page"
    )
    await page.reload()
    await expect(page.locator(".answer strong")).to_have_text("you")
    await send(page, scripted("And again."))
    await answered(page, 2)
    await expect(page.locator(".answer").nth(1)).to_contain_text("And again.")


async def test_markdown_has_code_with_colours_tables_and_formulas(page):
    text = (
        "```python\ndef hello():\n    return 1\n```\n\n"
        "| a | b |\n|---|--:|\n| 1 | 2 |\n\nA formula $a^2$ and $5 or $6."
    )
    await send(page, scripted(text))
    await answered(page)
    await expect(page.locator("pre .hljs-keyword").first).to_have_text("def")
    await expect(page.locator(".katex")).to_have_count(1)
    await expect(page.locator("table td")).to_have_text(["1", "2"])
    await expect(page.locator(".answer")).to_contain_text("$5 or $6")
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await page.locator(".code-head button").click()
    await expect(page.locator(".code-head button")).to_have_text("Copied")
    copied = await page.evaluate("navigator.clipboard.readText()")
    assert copied == "def hello():\n    return 1"


async def test_an_answer_is_stopped_and_kept(page):
    await send(page, scripted([{"text_message": {"text": "one two three four five"}}, STALL]))
    await expect(page.locator(".answer")).to_contain_text("one two three")
    await page.get_by_role("button", name="Stop").click()
    await expect(page.locator(".answer")).to_contain_text("This answer was interrupted.")
    await expect(page.get_by_role("button", name="Send", exact=True)).to_be_visible()


async def test_a_reload_in_mid_stream_shows_the_rest(shared, page):
    text = "one two three four five"
    await send(page, scripted([{"text_message": {"text": text}}, STALL]))
    await expect(page.locator(".answer")).to_contain_text("one two three")
    await page.reload()
    await expect(page.locator(".answer[aria-busy=true]")).to_contain_text("one two three")
    await expect(page.locator(".question")).to_have_count(1)
    session = page.url.rpartition("/")[2]
    await shared.server.post(f"/chat/{session}/stop")
    await expect(page.locator(".answer[aria-busy=false]")).to_contain_text("interrupted")


async def test_a_lost_connection_is_made_again_and_loses_nothing(shared, page):
    await send(page, scripted([{"text_message": {"text": "one two three four five"}}, STALL]))
    await expect(page.locator(".answer")).to_contain_text("one two three")
    await page.context.set_offline(True)
    await expect(page.get_by_text("No connection to the server")).to_be_visible()
    session = page.url.rpartition("/")[2]
    await shared.server.post(f"/chat/{session}/stop")
    await page.context.set_offline(False)
    await expect(page.locator(".answer[aria-busy=false]")).to_contain_text("interrupted")
    await expect(page.get_by_text("No connection to the server")).to_have_count(0)
    assert (await page.locator(".answer .markdown").inner_text()).count("one") == 1


async def test_a_draft_survives_a_reload_and_belongs_to_its_chat(shared, page):
    session = await ask(shared, scripted("Yes."))
    await page.get_by_role("textbox", name="Write a message").fill("half a thought")
    await page.reload()
    await expect(page.get_by_role("textbox", name="Write a message")).to_have_value(
        "half a thought"
    )
    await page.goto(f"{shared.server.url}/#/chat/{session}")
    await answered(page)
    await expect(page.get_by_role("textbox", name="Write a message")).to_have_value("")


async def test_sessions_are_renamed_pinned_tagged_archived_and_found(shared, page):
    await ask(shared, scripted("Yes.", question="About violets"))
    entry = page.locator(".session").filter(has_text="About violets")

    async def choose(action):
        await entry.hover()
        await entry.get_by_role("button", name="Actions").click()
        await page.get_by_role("menuitem", name=action, exact=True).click()

    await choose("Tags")
    await page.get_by_role("textbox", name="Tags").fill("garden, spring")
    await page.get_by_role("button", name="Save").click()
    await expect(entry.locator(".tag")).to_have_text(["garden", "spring"])
    await choose("Pin")
    await expect(page.locator(".sessions section").first).to_contain_text("About violets")
    await choose("Rename")
    await page.get_by_role("textbox", name="Title").fill("Flowers")
    await page.keyboard.press("Enter")
    entry = page.locator(".session").filter(has_text="Flowers")
    await page.get_by_role("searchbox", name="Search").fill("violets")
    await expect(page.locator(".session")).to_have_count(1)
    await expect(entry.locator("mark")).to_have_text("violets")
    await page.get_by_role("searchbox", name="Search").fill("")
    await expect(entry.locator("mark")).to_have_count(0)  # another list, whose menus are its own
    await choose("Archive")
    await expect(entry).to_have_count(0)
    await page.get_by_role("checkbox", name="Archived").check()
    await expect(entry).to_have_count(1)


async def test_a_deletion_can_be_undone_and_else_happens(shared, page):
    sessions = [await ask(shared, scripted("Yes.", question=f"Number {n}")) for n in (1, 2)]

    async def delete(text):
        entry = page.locator(".session").filter(has_text=text)
        await entry.hover()
        await entry.get_by_role("button", name="Actions").click()
        await page.get_by_role("menuitem", name="Delete").click()
        await expect(entry).to_have_count(0)

    await delete("Number 1")
    await page.get_by_role("button", name="Undo").click()
    await expect(page.locator(".session").filter(has_text="Number 1")).to_have_count(1)
    await delete("Number 2")
    await page.goto("about:blank")  # who leaves the page has not undone it
    await page.goto(shared.server.url)
    await expect(page.locator(".session").filter(has_text="Number 1")).to_have_count(1)
    await expect(page.locator(".session").filter(has_text="Number 2")).to_have_count(0)
    assert (await shared.server.get(f"/sessions/{sessions[0]}"))[0] == 200


async def test_what_others_do_appears_by_itself(shared, page):
    session = await ask(shared, scripted("From the API.", question="From elsewhere"))
    await page.locator(".session").filter(has_text="From elsewhere").click()
    await answered(page)
    await shared.server.post(f"/chat/{session}", {"message": scripted("A second answer.")})
    await answered(page, 2)
    await expect(page.locator(".answer").nth(1)).to_contain_text("A second answer.")
    message = scripted([{"text_message": {"text": "one two three four five"}}, STALL])
    await shared.server.post(f"/chat/{session}/runs", {"message": message})
    await expect(page.locator(".answer[aria-busy=true]")).to_contain_text("one two three")
    await expect(page.locator(".session .running")).to_have_count(1)
    await shared.server.post(f"/chat/{session}/stop")
    await answered(page, 3)


async def attach_image(page):
    image = {"name": "dot.png", "mimeType": "image/png", "buffer": png(4, 4)}
    await page.locator("input[type=file]").set_input_files(image)
    await expect(page.get_by_role("img", name="dot.png")).to_be_visible()


async def ask_about_it(page):
    await send(page, "What is on it?")
    await answered(page)
    await expect(page.locator(".answer")).to_contain_text("[files: 1]")


async def test_an_image_is_attached_and_shown_with_the_message(page):
    await attach_image(page)
    await ask_about_it(page)
    shown = page.locator(".question").get_by_role("img", name="dot.png")
    await expect(shown).to_have_attribute("src", re.compile("^blob:"))


@asynccontextmanager
async def without_models(page):
    """Load the page anew; the list of models arrives when the block ends."""
    arrived = asyncio.Event()

    async def hold(route):
        await arrived.wait()
        await route.continue_()

    await page.route(re.compile("/models$"), hold)
    await page.reload()
    yield
    arrived.set()


async def test_an_image_may_be_attached_before_the_models_have_arrived(page):
    async with without_models(page):
        await attach_image(page)
    await ask_about_it(page)


async def test_a_message_may_be_sent_before_the_models_have_arrived(page):
    async with without_models(page):
        message = page.get_by_role("textbox", name="Write a message")
        await message.fill("Hello.")
        await message.press("Enter")
        await expect(message).to_have_value("")
    await answered(page)
    await expect(page.locator(".question")).to_contain_text("Hello.")


async def test_an_image_that_is_pasted_is_attached(page):
    await page.get_by_role("textbox", name="Write a message").focus()
    await page.evaluate(
        """async (bytes) => {
          const image = new File([new Uint8Array(bytes)], "pasted.png", { type: "image/png" });
          const data = new DataTransfer();
          data.items.add(image);
          document.activeElement.dispatchEvent(
            new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true }));
        }""",
        [*png(4, 4)],
    )
    await expect(page.get_by_role("img", name="pasted.png")).to_be_visible()
    await send(page, "What is on it?")
    await answered(page)
    await expect(page.locator(".question").get_by_role("img", name="pasted.png")).to_be_visible()


async def test_text_from_right_to_left_is_shown_so(page):
    text = "مرحبا، كيف حالك؟\n\n- عنصر أول\n- عنصر ثان\n\n| اسم | قيمة |\n|---|---|\n| أ | 1 |"
    await send(page, scripted(f"{text}\n\nAnd English.\n\n- an item", question="اشرح لي"))
    await answered(page)
    direction = "element => getComputedStyle(element).direction"
    answer = page.locator(".answer .markdown")
    for selector in ("p >> nth=0", "ul >> nth=0", "table"):
        assert await answer.locator(selector).evaluate(direction) == "rtl", selector
    for selector in ("p >> nth=1", "ul >> nth=1"):
        assert await answer.locator(selector).evaluate(direction) == "ltr", selector
    assert await page.locator(".bubble").evaluate(direction) == "rtl"


async def test_a_growing_answer_keeps_what_is_drawn_of_it(page):
    rows = "".join(f"| row {number} | some words |\n" for number in range(40))
    table = f"| a | b |\n|---|---|\n{rows}"
    stall = {"stall": {"seconds": 3600, "after_words": 60}}
    pause = {"stall": {"seconds": 2, "after_words": 30}}
    await send(page, scripted([{"text_message": {"text": table}}, pause, stall]))
    row = page.locator(".answer tbody tr").first
    await row.wait_for()
    await row.evaluate("row => { row.seen = true }")
    before = await page.locator(".answer tbody tr").count()
    await expect(page.locator(".answer tbody tr").nth(before)).to_be_visible()
    assert await row.evaluate("row => row.seen")
    await page.get_by_role("button", name="Stop").click()
    await answered(page)


async def test_only_the_latest_of_5000_messages_are_drawn(shared, page):
    messages = [
        {"role": role, "content": f"Message {number} of the {role}."}
        for number in range(2500)
        for role in ("user", "assistant")
    ]
    session = {"metadata": {"session_id": "long", "model": "lorem"}, "messages": messages}
    status, answer = await shared.server.post("/sessions/import", session)
    assert status == 200
    session_id = answer["imported"][0]["session_id"]
    await page.goto(f"{shared.server.url}/#/chat/{session_id}")
    await expect(page.get_by_text("Message 2499 of the assistant.")).to_be_visible()
    articles = page.locator(".messages article")
    assert await articles.count() < 200
    scroller = page.locator(".scroller")
    await page.get_by_role("button", name="Show earlier").scroll_into_view_if_needed()
    await expect(page.get_by_text("Message 2460 of the user.")).to_be_attached()
    assert await articles.count() < 400
    await scroller.evaluate("element => { element.scrollTop = element.scrollHeight }")
    await expect(page.get_by_text("Message 2499 of the assistant.")).to_be_visible()
