"""Models on the page: what they are offered to try, how they are fetched: in a real browser."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio
from playwright.async_api import Route, expect

from tests.support.chromium import needs_chromium
from tests.support.local_model import folder_with_model
from tests.support.model_hub import CONTENT, NAME, running_hub
from tests.support.page import (
    LEAVE_UNSETTLED,
    answered,
    browser_with_server,
    choose_model,
    drawn,
    expect_accessible,
    scripted,
    send,
)
from tests.support.server import ROOT, running_server
from tests.support.waiting import until

pytestmark = [needs_chromium, pytest.mark.asyncio(loop_scope="session")]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shared(browser, tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    tools = ROOT / "examples" / "data" / "tools"
    async with browser_with_server(browser, folder, tools_dir=tools) as shared:
        yield shared


async def test_what_a_model_with_tools_is_offered_begins_a_chat_with_these_tools(shared):
    async with shared.page() as page:
        await expect(page.locator(".suggestions button")).to_have_count(3)
        await page.get_by_role("button", name="Settings of this chat").click()
        panel = page.get_by_role("complementary", name="Settings of this chat")
        await panel.get_by_role("checkbox", name="roll_dice").check()
        await page.get_by_role("button", name="How many days are left").click()
        await answered(page)
        await expect(page.locator(".question")).to_contain_text("How many days are left")
        _, session = await shared.server.get(f"/sessions/{page.url.rpartition('/')[2]}")
        assert session["tool_settings"]["tools"] == ["roll_dice", "current_time", "days_between"]


async def test_what_a_model_without_tools_is_offered_uses_none(shared):
    async with shared.page() as page:
        await choose_model(page, "lorem-plain")
        await expect(page.locator(".suggestions button")).to_have_count(3)
        await page.get_by_role("button", name="Explain what a context window is").click()
        await answered(page)
        _, session = await shared.server.get(f"/sessions/{page.url.rpartition('/')[2]}")
        assert session["tool_settings"] is None


async def test_a_model_is_found_by_what_it_can_and_chosen_with_the_keyboard(shared):
    async with shared.page() as page:
        model = page.get_by_role("button", name="Model: lorem", exact=True)
        await model.click()
        search = page.get_by_role("combobox", name="Search: Model")
        await expect(search).to_be_focused()
        await page.keyboard.press("Escape")
        await expect(model).to_be_focused()
        await page.keyboard.press("Enter")
        await page.keyboard.type("tools vision small")
        await expect(page.get_by_role("option")).to_have_count(1)
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("button", name="Model: lorem-small")).to_be_focused()
        await page.get_by_role("button", name="Model: lorem-small").click()
        await page.keyboard.type("no such model")
        await expect(page.get_by_role("option")).to_have_count(0)
        await expect(page.get_by_text("Nothing found.")).to_be_visible()


async def test_a_model_that_is_gone_says_so(shared):
    session = await shared.server.new_session("lorem")
    async with shared.context() as context:
        await context.route("**/api/v1/models", without_lorem)
        page = await context.new_page()
        await page.goto(f"{shared.server.url}/#/chat/{session}")
        await expect(page.get_by_role("button", name="Model: lorem, not here")).to_be_visible()


async def old_chat(shared, *texts):
    """Import a chat of these texts, whose model is not here."""
    messages = [
        {"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(texts)
    ]
    file = {"metadata": {"session_id": "old", "model": "gpt-4o"}, "messages": messages}
    _, answer = await shared.server.post("/sessions/import?new_id=true", file)
    return answer["imported"][0]["session_id"]


async def test_a_question_whose_model_is_not_here_is_answered_with_another_one(shared):
    session = await old_chat(shared, scripted("By hand."))
    async with shared.page(f"/#/chat/{session}") as page:
        await expect(page.get_by_text("gpt-4o, is not here")).to_be_visible()
        await expect_accessible(page)
        await page.get_by_role("button", name="Answer with …").click()
        dialog = page.get_by_role("dialog", name="Answer with …")
        await expect(dialog.get_by_role("combobox")).to_be_focused()
        await expect_accessible(page)
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("button", name="Answer with …")).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(dialog.get_by_role("combobox")).to_be_focused()
        await page.keyboard.type("lorem-small")
        await page.keyboard.press("Enter")
        await answered(page)
        await expect(page.locator(".answer")).to_contain_text("By hand.")
        model = page.get_by_role("button", name="Model: lorem-small", exact=True)
        await expect(model).to_be_visible()
        await expect(page.get_by_text("is not here")).to_have_count(0)


async def test_a_message_to_a_model_that_is_not_here_asks_for_another_one(shared):
    session = await old_chat(shared, "How?", "By hand.")
    async with shared.page(f"/#/chat/{session}") as page:
        await expect(page.get_by_text("gpt-4o, is not here")).to_be_visible()
        await send(page, scripted("Slowly."))
        dialog = page.get_by_role("dialog", name="Answer with …")
        await expect(dialog.get_by_role("combobox")).to_be_focused()
        await page.keyboard.press("Escape")
        box = page.get_by_role("textbox", name="Write a message")
        await expect(box).to_have_value(scripted("Slowly."))
        await expect(page.locator(".question")).to_have_count(1)
        await box.press("Enter")
        await dialog.get_by_role("option", name="lorem-small").click()
        await answered(page, 2)
        await expect(page.locator(".answer").last).to_contain_text("Slowly.")
        await expect(box).to_have_value("")


@asynccontextmanager
async def models_come_late(page, answer=None):
    """Hold the list of models until the block ends, and give this answer then; yields: asked."""
    is_asked, is_due, is_given = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def hold(route):
        is_asked.set()
        await is_due.wait()
        await (answer or Route.continue_)(route)
        is_given.set()

    await page.route("**/api/v1/models", hold)
    yield is_asked
    is_due.set()
    await until(is_given.is_set)
    await drawn(page)


async def test_nobody_is_asked_for_a_model_in_a_chat_that_was_left(shared):
    session = await old_chat(shared, "How?", "By hand.")
    async with shared.page(f"/#/chat/{session}") as page:
        await expect(page.get_by_text("gpt-4o, is not here")).to_be_visible()
        async with models_come_late(page) as is_asked:
            await send(page, "And then?")
            await until(is_asked.is_set)
            await page.get_by_role("button", name="New chat", exact=True).click()
        await expect(page.get_by_role("dialog")).to_have_count(0)
        await page.go_back()
        await expect(page.get_by_role("textbox", name="Write a message")).to_have_value("And then?")


@pytest.mark.parametrize("place", ["dialog", "box"])
async def test_a_model_that_comes_or_goes_late_moves_no_other_one(shared, place):
    session = await old_chat(shared, "How?")
    async with shared.page(f"/#/chat/{session}") as page:
        options = page.get_by_role("option")
        name = {"dialog": "Answer with …", "box": "Model: gpt-4o, not here"}[place]
        button = page.get_by_role("button", name=name)
        await expect(button).to_be_visible()
        new = {"name": "a-new-one", "provider": "a"}
        async with models_come_late(page, with_another(new)):
            await button.click()
            await expect(options).to_have_count(3)
            before = await places(options)
        await expect(options).to_have_count(4)
        await expect(options.last).to_contain_text("a-new-one")
        assert (await places(options))[:-1] == before
        await expect(options.first).to_contain_text("not here")
        await page.keyboard.press("Escape")
        async with page.expect_response("**/api/v1/models"):
            await button.click()
        await expect(options.first).to_contain_text("a-new-one")
        await expect(options).to_have_count(3)


async def test_the_model_of_a_new_chat_stays_where_the_list_is_loaded_again(shared):
    async with shared.page() as page:
        model = page.get_by_role("button", name="Model: lorem, not here", exact=True)
        for is_there in (True, False):
            if not is_there:
                await page.route("**/api/v1/models", without_lorem)
            # It is asked for once the list has been drawn.
            async with page.expect_response("**/api/v1/models"):
                await page.get_by_role("button", name="Model: lorem", exact=True).click()
            await page.keyboard.press("Escape")
            await expect(page.locator(".picker-list")).to_have_count(0)
        await expect(model).to_be_visible()
        await page.get_by_role("button", name="Answer with …").click()
        await page.get_by_role("option", name="lorem-plain").click()
        await expect(
            page.get_by_role("button", name="Model: lorem-plain", exact=True)
        ).to_be_visible()
        await expect(page.get_by_role("heading", level=1)).to_have_text("What can I do for you?")


async def test_models_that_are_not_there_yet_are_not_called_missing(shared):
    async with shared.page("/#/rules") as page, models_come_late(page):
        await page.goto(shared.server.url)
        await page.get_by_role("button", name="Model: ").click()
        picker = page.locator(".picker-list")
        await expect(picker).to_have_text("Loading…")


async def places(options):
    return await options.evaluate_all("all => all.map(each => each.getBoundingClientRect().y)")


def with_another(model):
    """Answer with this model in the place of the first one."""

    async def answer(route):
        response = await route.fetch()
        body = await response.json()
        models = [body["models"][0] | model, *body["models"][1:]]
        await route.fulfill(response=response, json={**body, "models": models})

    return answer


async def test_a_list_that_cannot_be_loaded_again_stays(shared):
    async with shared.page("/#/models") as page:
        entry = page.get_by_role("button", name="lorem-small")
        await expect(entry).to_be_visible()
        refusal = {"error": {"code": "BUSY", "message": "Too much at once."}}
        await page.route(
            "**/api/v1/models", lambda route: route.fulfill(status=503, json=refusal), times=1
        )
        await page.get_by_role("button", name="Reload").click()
        await expect(page.get_by_role("alert")).to_have_text("Too much at once.")
        await expect(entry).to_be_visible()
        await page.get_by_role("button", name="Reload").click()
        await expect(page.get_by_role("alert")).to_have_count(0)


async def test_a_model_that_went_while_its_chat_was_open_is_replaced(shared):
    async with shared.page() as page:
        await choose_model(page, "lorem-small")
        refusal = {"error": {"code": "MODEL_NOT_FOUND", "message": "There is no such model."}}
        await page.route(
            "**/chat/*/runs", lambda route: route.fulfill(status=404, json=refusal), times=1
        )
        await send(page, scripted("Here."))
        await page.get_by_role("button", name="Answer with …").click()
        await page.get_by_role("dialog").get_by_role("option", name="lorem-plain").click()
        await answered(page)
        await expect(page.get_by_role("button", name="Model: lorem-plain")).to_be_visible()


async def without_lorem(route):
    response = await route.fetch()
    body = await response.json()
    models = [each for each in body["models"] if each["name"] != "lorem"]
    await route.fulfill(response=response, json={**body, "models": models})


def listing(models, problems=()):
    """Answer to a request for the models with these, of the form of the test provider's."""

    async def answer(route):
        response = await route.fetch()
        like = (await response.json())["models"][-1]  # it cannot call tools
        body = {"models": [like | each for each in models], "problems": list(problems)}
        await route.fulfill(response=response, json=body)

    return answer


PULLABLE = {
    "models": [
        {"name": "local/a", "size_mb": 98.4, "capabilities": []},
        {"name": "local/b", "size_mb": 639.4, "capabilities": ["tools"]},
    ]
}
IS_AWAY = {
    "provider": "ollama",
    "code": "OLLAMA_UNREACHABLE",
    "message": "Cannot connect to Ollama at http://127.0.0.1:9: [Errno 111] Connect call failed",
}


async def test_a_large_model_says_its_size_in_gigabytes(shared):
    async with shared.page("/#/rules") as page:
        large, small = {"name": "large", "size_mb": 9276.2}, {"name": "small", "size_mb": 639.4}
        await page.route("**/api/v1/models", listing([large, small]))
        await page.goto(shared.server.url)
        await page.get_by_role("button", name="Model: ").click()
        await expect(page.get_by_role("option", name="large")).to_contain_text("9.3 GB")
        await expect(page.get_by_role("option", name="small")).to_contain_text("639 MB")


async def test_a_new_chat_says_what_is_here_and_what_can_call_tools(shared):
    async with shared.page("/#/rules") as page:
        await page.evaluate("localStorage.setItem('mochi.model', 'qwen3:8b')")
        small = {"name": "local/small", "provider": "local"}
        await page.route("**/api/v1/models", listing([small], [IS_AWAY]))
        await page.route("**/api/v1/models/pull", lambda route: route.fulfill(json=PULLABLE))
        await page.goto(shared.server.url)
        greeting = page.locator(".greeting")
        await expect(greeting).to_contain_text("Models here: local: 1 model")
        await expect(greeting).to_contain_text("Ollama is not running. Start it")
        offered = greeting.get_by_role("region", name="Built-in models that can call tools")
        await expect(offered.get_by_role("listitem")).to_have_count(1)
        await expect(offered).to_contain_text("639 MB, can call tools")
        await expect_accessible(page)
        await page.set_viewport_size({"width": 390, "height": 800})
        await expect_accessible(page)


async def test_a_new_chat_with_tools_asks_for_no_other_model(shared):
    """Whether Ollama runs is nothing to those who use another provider."""
    async with shared.context() as context:
        hosted = {"name": "hosted", "provider": "openai", "capabilities": ["tools"]}
        await context.route("**/api/v1/models", listing([hosted], [IS_AWAY]))
        page = await context.new_page()
        await page.goto(shared.server.url)
        await expect(page.locator(".greeting")).to_contain_text("openai: 1 model")
        await expect(page.get_by_text("Ollama is not running")).to_have_count(0)
        await expect(page.get_by_text("can call tools")).to_have_count(0)
        await page.goto(f"{shared.server.url}/#/models")
        await expect(page.get_by_text("Ollama is not running")).to_be_visible()
        await expect(page.get_by_text("Errno")).to_have_count(0)


async def test_suggestions_are_there_before_the_models(shared):
    goes_on = asyncio.Event()

    async def hold(route):
        await goes_on.wait()
        await route.continue_()

    suggestions = ".suggestions button"
    async with shared.page() as page:
        await expect(page.locator(".suggestions")).to_contain_text("square root")
        shown = await page.locator(suggestions).all_inner_texts()
        await page.route("**/api/v1/models", hold)
        await page.reload()
        await expect(page.locator(suggestions)).to_have_text(shown)
        await page.get_by_role("button", name="square root").click()
        goes_on.set()
        await answered(page)


async def test_suggestions_take_no_click_when_they_have_just_moved(shared):
    goes_on = asyncio.Event()
    small = {"name": "local/small", "provider": "local"}

    async def hold(route):
        await goes_on.wait()
        await listing([small], [IS_AWAY])(route)

    async with shared.page("/#/rules") as page:
        await page.route("**/api/v1/models", hold)
        await page.goto(shared.server.url)
        first = page.locator(".suggestions button").first
        await expect(first).to_be_enabled()
        await page.evaluate(LEAVE_UNSETTLED)
        goes_on.set()
        await expect(page.locator(".greeting")).to_contain_text("Ollama is not running")
        await expect(first).to_be_disabled()


async def test_a_suggestion_whose_tools_are_not_there_is_not_made(browser, tmp_path):
    (tmp_path / "tools").mkdir()
    source = ROOT / "examples" / "data" / "tools" / "calculator.py"
    (tmp_path / "tools" / "__init__.py").write_text(source.read_text())
    async with browser_with_server(browser, tmp_path) as shared, shared.page() as page:
        await expect(page.locator(".suggestions button")).to_have_count(3)
        await expect(page.locator(".suggestions")).to_contain_text("square root")
        await expect(page.locator(".suggestions")).not_to_contain_text("Tokyo")


@pytest.mark.slow
async def test_the_built_in_model_says_what_it_is_and_answers_what_is_offered(browser, tmp_path):
    models = folder_with_model(tmp_path)
    tools = ROOT / "examples" / "data" / "tools"
    server = {"environment": "production", "models_dir": models, "tools_dir": tools}
    async with browser_with_server(browser, tmp_path, **server) as shared, shared.page() as page:
        await expect(page.locator(".greeting")).to_contain_text("it cannot call tools")
        await expect(page.locator(".suggestions button")).to_have_count(3)
        await page.get_by_role("button", name="What is the capital of France?").click()
        await answered(page)
        await expect(page.locator(".answer .markdown")).to_contain_text("Paris")


SERVER = """
import sys
from mochi_server.__main__ import main
from mochi_server.providers.builtin import pull
from mochi_server.providers.builtin.catalogue import CATALOGUE
from tests.support.model_hub import MODEL
CATALOGUE[MODEL.name] = MODEL
pull.pull.__kwdefaults__["hub"] = sys.argv.pop(1)
main()
"""
"""A server that knows one more model."""


async def test_a_model_is_fetched_with_its_progress_also_after_a_reload(browser, tmp_path):
    (tmp_path / "data").mkdir()
    with running_hub() as hub:
        async with (
            running_server(
                data_dir=tmp_path / "data",
                models_dir=tmp_path / "models",
                command=("-c", SERVER, hub.url, "--port", "0"),
            ) as server,
            await browser.new_page() as page,
        ):
            await page.goto(server.url)
            await expect(page.get_by_role("heading", level=1)).to_have_text("There is no model yet")
            first = page.locator(".greeting .card-head").first
            await expect(first).to_have_text(re.compile("MB, can call tools"))
            await expect(page.locator(".greeting .card-head").last).not_to_contain_text("tools")
            fetch = page.get_by_role("button", name=f"Fetch {NAME}")
            await fetch.click()
            await expect(fetch).to_be_focused()  # or a second Enter would fetch another
            await expect(fetch).to_be_disabled()
            bar = page.get_by_role("progressbar", name=f"{NAME} is being fetched")
            await expect(bar).to_have_attribute("max", json.dumps(len(CONTENT)))
            await page.reload()
            await expect(bar).to_have_attribute("max", json.dumps(len(CONTENT)))
            await expect_accessible(page)
            hub.rest.set()
            await expect(page.get_by_text(f"{NAME} is ready.")).to_be_visible()
            await expect(bar).to_have_count(0)
            assert await page.evaluate("localStorage.getItem('mochi.model')") == NAME
            await expect(page.get_by_role("button", name=f"Fetch {NAME}")).to_have_count(0)
            assert len(hub.requests) == 1
            assert (tmp_path / "models" / "tiny-1m.gguf").stat().st_size == len(CONTENT)
