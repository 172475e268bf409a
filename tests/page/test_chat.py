"""Chats on the page: in a real browser, with a server in test mode."""

from __future__ import annotations

import asyncio
import re
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio
from playwright.async_api import expect

from tests.support.chromium import needs_chromium
from tests.support.folded_runs import RUNS
from tests.support.images import png
from tests.support.page import LEAVE_UNSETTLED, answered, scripted, send

pytestmark = [needs_chromium, pytest.mark.asyncio(loop_scope="session")]

PHONE = {"width": 393, "height": 851}
STALL = {"stall": {"seconds": 3600, "after_words": 4}}


@pytest_asyncio.fixture(loop_scope="session")
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


async def test_a_first_message_that_is_refused_leaves_no_conversation(shared, page):
    refusal = {"error": {"code": "TOOLS_NOT_SUPPORTED", "message": "It cannot call tools."}}
    await page.route("**/chat/*/runs", lambda route: route.fulfill(status=400, json=refusal))
    _, before = await shared.server.get("/sessions")
    await send(page, "Not for this model")
    await expect(page.get_by_text("It cannot call tools.")).to_be_visible()
    box = page.get_by_role("textbox", name="Write a message")
    await expect(box).to_have_value("Not for this model")
    _, after = await shared.server.get("/sessions")
    assert after["sessions"] == before["sessions"]
    await page.unroute("**/chat/*/runs")
    await box.press("Enter")
    await answered(page)
    await expect(page).to_have_url(re.compile("#/chat/"))


async def test_a_changed_question_that_is_refused_leaves_what_was_there(shared, page):
    session = await ask(shared, scripted("The first answer."))
    refusal = {"error": {"code": "MODEL_NOT_FOUND", "message": "There is no such model."}}
    await page.route("**/chat/*/runs", lambda route: route.fulfill(status=404, json=refusal))
    await page.goto(f"{shared.server.url}/#/chat/{session}")
    await answered(page)
    await page.locator(".question").hover()
    await page.get_by_role("button", name="Edit", exact=True).click()
    changed = page.get_by_role("textbox", name="Edit")
    await changed.fill("Another question")
    await page.get_by_role("button", name="Ask again").click()
    await expect(page.get_by_text("There is no such model.")).to_be_visible()
    await expect(changed).to_have_value("Another question")
    await expect(page.locator(".answer")).to_contain_text("The first answer.")
    _, stored = await shared.server.get(f"/sessions/{session}")
    assert [each["role"] for each in stored["messages"]] == ["user", "assistant"]
    assert stored["messages"][0]["content"] == scripted("The first answer.")


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


async def test_a_second_click_on_send_or_stop_does_not_what_the_button_has_become(shared, page):
    await page.evaluate(LEAVE_UNSETTLED)
    box = page.get_by_role("textbox", name="Write a message")
    await box.fill(scripted([{"text_message": {"text": "one two three four five"}}, STALL]))
    place = await page.get_by_role("button", name="Send", exact=True).bounding_box()
    pointer = place["x"] + place["width"] / 2, place["y"] + place["height"] / 2
    await page.mouse.dblclick(*pointer)
    await expect(page.locator(".answer")).to_contain_text("one two three")
    stop = page.get_by_role("button", name="Stop")
    await expect(stop).to_be_disabled()
    await box.fill("A draft")
    await shared.server.post(f"/chat/{page.url.rpartition('/')[2]}/stop")
    await expect(page.get_by_role("button", name="Send", exact=True)).to_be_disabled()
    await page.mouse.click(*pointer)
    await expect(box).to_have_value("A draft")
    await box.press("Enter")
    await expect(page.locator(".question")).to_have_count(2)


async def test_an_answer_that_is_stopped_before_it_begins_ends_at_once(shared, page):
    await send(page, scripted("First."))
    await answered(page)
    is_due = asyncio.Event()

    async def hold(route):
        await is_due.wait()
        await route.continue_()

    await page.route("**/chat/*/runs", hold)
    async with page.expect_request("**/chat/*/runs"):
        await send(page, scripted([{"text_message": {"text": "one two three"}}, STALL]))
    await page.get_by_role("button", name="Stop").click()
    async with page.expect_request("**/runs/*/stop"):
        is_due.set()
    await expect(page.get_by_role("button", name="Send", exact=True)).to_be_visible()
    await send(page, scripted("Third."))
    await expect(page.locator(".answer").last).to_contain_text("Third.")


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
    pinned = page.locator(".sessions section").filter(
        has=page.get_by_role("heading", name="Pinned")
    )
    await expect(pinned).to_contain_text("About violets")
    await choose("Rename")
    title = page.get_by_role("textbox", name="Title")
    await expect(title).to_have_attribute("placeholder", re.compile("^About violets"))
    await title.fill("Flowers")
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


# Files are read when the test says so.
READ_LATE = """() => {
  const { readAsDataURL } = FileReader.prototype;
  FileReader.prototype.readAsDataURL = function (file) {
    window.read = () => readAsDataURL.call(this, file);
  };
}"""


async def test_a_message_is_sent_with_a_file_that_takes_long_to_read(page):
    await page.evaluate(READ_LATE)
    await page.get_by_role("textbox", name="Write a message").fill("What is in it?")
    file = {"name": "large.txt", "mimeType": "text/plain", "buffer": b"."}
    await page.locator("input[type=file]").set_input_files(file)
    attached = page.locator(".composer .attachments")
    await expect(attached).to_contain_text("large.txt")
    await page.keyboard.press("Enter")
    send_button = page.get_by_role("button", name="Send", exact=True)
    await expect(send_button).to_be_disabled()
    await page.evaluate("read()")
    await send_button.click()
    await answered(page)
    await expect(page.locator(".question")).to_contain_text("large.txt")
    await expect(page.locator(".answer")).to_contain_text("large.txt, text/plain")


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


PASTE = """async ({ bytes, name, text }) => {
  const data = new DataTransfer();
  if (text) data.setData("text/plain", text);
  if (name) data.items.add(new File([new Uint8Array(bytes)], name, { type: "image/png" }));
  const box = document.activeElement;
  const options = { clipboardData: data, bubbles: true, cancelable: true };
  const paste = new ClipboardEvent("paste", options);
  // What a browser does by itself with what a person pastes.
  if (box.dispatchEvent(paste)) document.execCommand("insertText", false, text);
}"""


async def paste(page, text="", name=""):
    await page.get_by_role("textbox", name="Write a message").focus()
    await page.evaluate(PASTE, {"bytes": [*png(4, 4)], "name": name, "text": text})


@pytest.mark.parametrize("text", ["", "pasted.png"], ids=["alone", "with its name"])
async def test_an_image_that_is_pasted_is_attached(page, text):
    await paste(page, text, "pasted.png")
    await expect(page.get_by_role("img", name="pasted.png")).to_be_visible()
    await send(page, "What is on it?")
    await answered(page)
    await expect(page.locator(".question").get_by_role("img", name="pasted.png")).to_be_visible()


async def test_a_text_that_is_pasted_with_a_picture_wins(page):
    box = page.get_by_role("textbox", name="Write a message")
    await paste(page, "Name\tAge\nAnn\t31", "image.png")
    await expect(box).to_have_value("Name\tAge\nAnn\t31")
    await expect(page.get_by_role("img")).to_have_count(0)
    await page.get_by_role("button", name="Attach image.png, too").click()
    await expect(page.get_by_role("img", name="image.png")).to_be_visible()
    await expect(page.get_by_role("button", name="Attach image.png, too")).to_have_count(0)


async def test_a_long_text_that_is_pasted_is_attached(page):
    box = page.get_by_role("textbox", name="Write a message")
    await paste(page, "lorem ipsum dolor " * 30_000)
    await page.get_by_role("button", name="Remove pasted.txt").click()
    await paste(page, "lorem ipsum dolor " * 2000)
    await expect(page.locator(".composer .attachments")).to_contain_text("pasted.txt")
    await box.press_sequentially("abc")
    await expect(box).to_have_value("abc")
    await box.press("Enter")
    await answered(page)
    await expect(page.locator(".question")).to_contain_text("pasted.txt")


async def test_an_image_without_a_text_can_be_sent(page):
    await attach_image(page)
    await page.get_by_role("button", name="Send", exact=True).click()
    await answered(page)
    await expect(page.locator(".question").get_by_role("img", name="dot.png")).to_be_visible()


async def test_the_enter_that_ends_a_composition_sends_nothing(page):
    box = page.get_by_role("textbox", name="Write a message")
    await box.fill("にほんご")
    taken = await box.evaluate(
        """box => !box.dispatchEvent(new KeyboardEvent("keydown", {
          key: "Enter", keyCode: 229, bubbles: true, cancelable: true }))"""
    )
    assert not taken
    await box.press("a")
    await expect(box).to_have_value("にほんごa")
    await expect(page.locator(".question")).to_have_count(0)


async def test_enter_on_a_telephone_is_a_new_line_and_the_button_sends(shared):
    async with shared.page(has_touch=True, is_mobile=True, viewport=PHONE) as page:
        box = page.get_by_role("textbox", name="Write a message")
        await expect(box).to_have_attribute("enterkeyhint", "enter")
        await box.tap()
        await box.press_sequentially("first line")
        await box.press("Enter")
        await box.press_sequentially("second line")
        await expect(box).to_have_value("first line\nsecond line")
        await page.get_by_role("button", name="Send", exact=True).tap()
        await answered(page)


async def test_an_answer_that_fails_says_why_and_is_tried_again(shared, page):
    session = await ask(shared, scripted("The first answer."))
    await page.goto(f"{shared.server.url}/#/chat/{session}")
    await answered(page)
    refusal = {"error": {"code": "PROVIDER_BUSY", "message": "Too much at once."}}
    await page.route("**/chat/*/runs", lambda route: route.fulfill(status=503, json=refusal))
    await page.get_by_role("button", name="Answer again").click()
    failure = page.get_by_role("alert")
    await expect(failure).to_contain_text("Too much at once.")
    await expect(page.locator(".answer")).to_contain_text("The first answer.")
    await failure.get_by_role("button", name="Choose a model").click()
    await expect(page.get_by_role("combobox", name="Search: Model")).to_be_focused()
    await page.keyboard.press("Escape")
    await page.unroute("**/chat/*/runs")
    await failure.get_by_role("button", name="Try again").click()
    await expect(page.locator(".variants")).to_contain_text("2 / 2")
    await expect(failure).to_have_count(0)


async def test_a_turn_that_fails_stays_in_its_own_conversation(shared, page):
    await send(page, scripted([{"error": {"status": 503, "message": "Out of memory."}}]))
    failure = page.get_by_role("alert")
    await expect(failure).to_contain_text("Out of memory.")
    await page.keyboard.press("Control+Shift+O")
    await expect(failure).to_have_count(0)
    await page.go_back()
    await expect(page.get_by_text("This has no answer.")).to_be_visible()
    await page.get_by_role("button", name="Try again").click()
    await expect(failure).to_contain_text("Out of memory.")


async def test_a_refusal_of_tools_is_answered_without_them(shared, page):
    settings = {"tool_settings": {"tools": [], "execution_policy": "never_confirm"}}
    session = await ask(shared, scripted("Yes."), **settings)
    await page.goto(f"{shared.server.url}/#/chat/{session}")
    await answered(page)
    refusal = {"error": {"code": "TOOLS_NOT_SUPPORTED", "message": "It cannot call tools."}}
    await page.route("**/chat/*/runs", lambda route: route.fulfill(status=400, json=refusal))
    await send(page, scripted("Without."))
    await expect(page.get_by_role("alert")).to_contain_text("It cannot call tools.")
    await page.unroute("**/chat/*/runs")
    await page.get_by_role("button", name="Without tools").click()
    await answered(page, 2)
    _, stored = await shared.server.get(f"/sessions/{session}")
    assert stored["agent_settings"]["enabled_agents"] == []


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
    rows = "".join(f"| row {number} | some words |\n" for number in range(400))
    table = f"| a | b |\n|---|---|\n{rows}"
    pauses = [{"stall": {"seconds": 1, "after_words": 30 * part}} for part in range(1, 60)]
    await send(page, scripted([{"text_message": {"text": table}}, *pauses]))
    row = page.locator(".answer tbody tr").first
    await row.wait_for()
    await row.evaluate("row => { row.seen = true }")
    before = await page.locator(".answer tbody tr").count()
    await expect(page.locator(".answer tbody tr").nth(before)).to_be_visible()
    assert await row.evaluate("row => row.seen")
    await page.get_by_role("button", name="Stop").click()
    await answered(page)


async def test_a_history_is_compacted_and_the_page_shows_where_the_summary_stands(shared, page):
    session = await ask(shared, scripted("The first answer."))
    await page.goto(f"{shared.server.url}/#/chat/{session}")
    await answered(page)
    button = page.get_by_role("button", name="Replace what is before the last question")
    await expect(button).to_have_count(0)
    await send(page, scripted("The second answer.", question="Another question"))
    await answered(page, 2)
    await button.click()
    line = page.get_by_text("The model reads a summary in the place of what is above")
    await expect(line).to_be_visible()
    _, stored = await shared.server.get(f"/sessions/{session}")
    text = page.locator(".summary-text")
    await expect(text).to_be_hidden()
    await line.click()
    await expect(text).to_have_text(stored["history_summary"]["text"])
    order = await page.locator(".messages > *").evaluate_all(
        "all => all.map(each => each.className)"
    )
    assert order == ["question", "answer", "summary-line", "question", "answer"]
    await send(page, scripted("The third answer.", question="One more question"))
    await answered(page, 3)
    meter = page.get_by_role("img", name="A summary stood for the 2 oldest messages.")
    await expect(meter).to_be_visible()
    await expect(page.locator(".messages > *").nth(2)).to_have_class("summary-line")


async def long_chat(shared, page, name="long", turns=2500) -> str:
    """Open a chat in a low window, of which the first messages that are drawn show the last."""
    await page.set_viewport_size({"width": 1280, "height": 500})
    messages = [
        {"role": role, "content": f"Message {number} of the {role}."}
        for number in range(turns)
        for role in ("user", "assistant")
    ]
    messages.insert(0, {"role": "system", "content": "Be a system."})
    session = {"metadata": {"session_id": name, "model": "lorem"}, "messages": messages}
    status, answer = await shared.server.post("/sessions/import", session)
    assert status == 200, answer
    session_id = answer["imported"][0]["session_id"]
    await page.goto(f"{shared.server.url}/#/chat/{session_id}")
    await expect(page.get_by_text(f"Message {turns - 1} of the assistant.")).to_be_visible()
    return session_id


async def test_what_is_seen_does_not_move_when_the_end_comes_near(page):
    await send(page, scripted("\n\n".join(f"Line {number}." for number in range(60))))
    await answered(page)
    scroller = page.locator(".scroller")
    await scroller.evaluate("(e) => { e.scrollTop = e.scrollHeight - e.clientHeight - 200 }")
    to_end = page.get_by_role("button", name="To the end")
    await expect(to_end).to_be_visible()
    last = page.get_by_text("Line 59.", exact=True)
    place = await last.evaluate("""(line) => {
      line.closest(".scroller").scrollTop += 195;
      return line.getBoundingClientRect().top;
    }""")
    await expect(to_end).to_have_count(0)
    assert await last.evaluate("(line) => line.getBoundingClientRect().top") == place


async def test_only_the_latest_of_5000_messages_are_drawn(shared, page):
    await long_chat(shared, page)
    articles = page.locator(".messages article")
    assert await articles.count() < 200
    scroller = page.locator(".scroller")
    for question in (2494, 2484, 2474):
        await expect(articles.first).to_contain_text(f"Message {question} of the user.")
        await scroller.evaluate("element => { element.scrollTop = 0 }")
    assert await articles.count() < 400
    await scroller.evaluate("element => { element.scrollTop = element.scrollHeight }")
    await expect(page.get_by_text("Message 2499 of the assistant.")).to_be_visible()


async def test_what_is_at_the_top_stays_in_view_when_earlier_messages_come_above_it(shared, page):
    await long_chat(shared, page)
    articles = page.locator(".messages article")
    for question in (2494, 2484):
        await expect(articles.first).to_contain_text(f"Message {question} of the user.")
        await page.locator(".scroller").evaluate("element => { element.scrollTop = 0 }")
        await expect(articles.first).to_contain_text(f"Message {question - 10} of the user.")
        await expect(page.get_by_text(f"Message {question} of the user.")).to_be_in_viewport()
    assert await articles.count() < 200


async def test_what_is_read_at_the_top_stays_when_an_answer_comes_at_the_end(shared, page):
    session_id = await ask(shared, scripted("Answer 0."))
    for number in range(1, 6):
        message = scripted(f"Answer {number}.")
        path = f"/chat/{session_id}"
        assert (await shared.server.post(path, {"message": message}))[0] == 200
    await page.goto(f"{shared.server.url}/#/chat/{session_id}")
    first = page.get_by_text("Answer 0.", exact=True)
    await expect(first).to_be_attached()
    await page.locator(".scroller").evaluate("element => { element.scrollTop = 0 }")
    await expect(first).to_be_in_viewport()
    message = scripted([{"text_message": {"text": "one two three four five"}}, STALL])
    await shared.server.post(f"/chat/{session_id}/runs", {"message": message})
    await expect(page.locator(".answer[aria-busy=true]")).to_be_attached()
    await expect(first).to_be_in_viewport()
    await expect(page.get_by_role("button", name="Show earlier")).to_have_count(0)
    await shared.server.post(f"/chat/{session_id}/stop")


async def test_the_focus_goes_from_show_earlier_to_what_was_first(shared, page):
    await long_chat(shared, page, "short", turns=8)
    show = page.get_by_role("button", name="Show earlier")
    await show.press("Enter")
    await expect(show).to_have_count(0)
    await expect(page.locator("article:focus")).to_contain_text("Message 2 of the user.")


async def test_a_question_of_a_chat_that_is_loaded_in_part_is_edited(shared, page):
    session = await long_chat(shared, page, name="edited")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Message 0 of the user.")
    await page.get_by_role("button", name="Settings of this chat").click()
    await expect(page.get_by_label("System prompt").first).to_have_value("Be a system.")
    question = page.get_by_role("article").filter(has_text="Message 2498 of the user.")
    await question.get_by_role("button", name="Edit").click()
    await page.get_by_role("textbox", name="Edit").fill(scripted("Anew.", question="Edited"))
    await page.get_by_role("button", name="Ask again").click()
    await expect(page.get_by_text("Anew.", exact=True)).to_be_visible()
    await expect(page.get_by_text("Message 2497 of the assistant.")).to_be_visible()
    _, stored = await shared.server.get(f"/sessions/{session}/messages")
    assert [message["content"].splitlines()[0] for message in stored["messages"][-3:]] == [
        "Message 2497 of the assistant.",
        "Edited",
        "Anew.",
    ]
    assert stored["message_count"] == 1 + 2 * 2499


COMES_TO = """async (runs) => {
  const load = (name) => import(new URL(name, document.querySelector("script[src]").src));
  const { apply, newRun } = await load("conversation/events.js");
  const { textOf } = await load("conversation/nodes.js");
  const STATES = { running: "open", waiting: "open", denied: "failed" };
  const callsOf = ({ children }, agent) => children
    .filter(({ kind }) => kind === "call" || kind === "agent")
    .flatMap((node) => [
      [node.id, agent, STATES[node.state] ?? node.state, node.result ?? null],
      ...callsOf(node, node.id),
    ]);
  return runs.map((events) => {
    const run = newRun("run_1");
    for (const [event, data] of events) apply(run, event, data);
    return {
      text: textOf(run.answer),
      calls: callsOf(run.answer, null),
      client_calls: (run.complete?.client_calls ?? []).map(({ name }) => name),
      end: run.error?.code ?? (run.complete ? "complete" : null),
    };
  });
}"""


async def test_runs_come_to_the_same_on_the_page_as_on_the_server(page):
    def of_place(calls):
        return sorted(calls, key=lambda call: call[1] or "")

    on_page = await page.evaluate(COMES_TO, [run.payloads for run in RUNS.values()])
    for run, shown in zip(RUNS.values(), on_page, strict=True):
        right = {name: run.comes_to[name] for name in shown}
        if right["end"] == "stopped":
            right["end"] = None  # the page sees it by the end of the stream
        right["calls"], shown["calls"] = of_place(right["calls"]), of_place(shown["calls"])
        assert shown == right, run.name


async def test_the_page_works_below_a_path_that_a_proxy_cuts_off(shared):
    paths = set()

    async def cut_off(route):
        path = route.request.url.removeprefix(shared.server.url)
        paths.add(path.split("/")[1])
        await route.continue_(url=shared.server.url + path.removeprefix("/mochi"))

    async with shared.context() as context:
        await context.route(f"{shared.server.url}/**", cut_off)
        page = await context.new_page()
        await page.goto(f"{shared.server.url}/mochi/")
        await send(page, scripted("Hello from **below**."))
        await answered(page)
        await expect(page.locator(".answer strong")).to_have_text("below")
        await page.reload()
        await answered(page)
    assert paths == {"mochi"}
