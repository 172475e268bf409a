"""Diagrams and charts in answers: drawn in a frame that can do nothing else."""

from __future__ import annotations

import asyncio
import json

import pytest
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

DIAGRAM = "flowchart LR\n  A[Question] --> B[Answer]"
CHART = {
    "data": {"values": [{"day": "Monday", "size": 28}, {"day": "Tuesday", "size": 55}]},
    "transform": [{"calculate": "datum.size * 2", "as": "double"}],
    "mark": "bar",
    "encoding": {"x": {"field": "day"}, "y": {"field": "double", "type": "quantitative"}},
}


def fence(language, content):
    text = content if isinstance(content, str) else json.dumps(content)
    return f"```{language}\n{text}\n```\n\n"


async def drawn(page, count):
    """Wait until so many pictures are shown, and return how wide they are."""
    await expect(page.locator(".drawing img")).to_have_count(count)
    widths = "images => images.map(image => image.decode().then(() => image.naturalWidth))"
    return await page.evaluate(
        f"Promise.all(({widths})([...document.querySelectorAll('.drawing img')]))"
    )


async def test_diagrams_and_charts_are_drawn_and_their_source_is_there(shared):
    async with shared.page() as page:
        broken = fence("mermaid", "flowchart LR\n  A --> [[")
        await send(page, scripted(fence("mermaid", DIAGRAM) + fence("vega-lite", CHART) + broken))
        await answered(page)
        assert min(await drawn(page, 2)) > 50
        await expect(page.get_by_role("img", name="Diagram")).to_be_visible()
        await expect(page.get_by_role("img", name="Chart")).to_be_visible()
        await expect(page.locator(".answer pre").first).to_be_hidden()
        await page.get_by_role("button", name="Show source").first.click()
        await expect(page.locator(".answer pre").first).to_be_visible()
        await expect(page.get_by_role("img", name="Diagram")).to_be_hidden()
        await page.get_by_role("button", name="Show drawing").click()
        await expect(page.get_by_role("img", name="Diagram")).to_be_visible()
        await expect(page.get_by_text("Cannot be drawn: Parse error on line 2")).to_be_visible()
        await expect(page.locator(".answer pre").last).to_be_visible()
        await expect_accessible(page)


@pytest.mark.parametrize("wanted", ["container", 600])
async def test_a_chart_that_fills_its_place_is_not_made_smaller_on_a_telephone(shared, wanted):
    size = {"width": 390, "height": 664}
    async with shared.page(viewport=size) as page:
        await send(page, scripted(fence("vega-lite", CHART | {"width": wanted})))
        [width] = await drawn(page, 1)
        shown = await page.locator(".drawing img").evaluate("image => image.clientWidth")
        assert width - 1 <= shown <= size["width"], (width, shown)
        await expect_accessible(page)


async def test_a_long_source_is_not_drawn_and_says_why(shared):
    async with shared.page() as page:
        await send(page, scripted(fence("mermaid", DIAGRAM + "\n%% " + "x" * 50_000)))
        await answered(page)
        line = "Cannot be drawn: its source is longer than 50,000 characters"
        await expect(page.get_by_text(line)).to_be_visible()


NEVER = "document.title = 'at work'; window.draw = () => new Promise(() => {});"


async def test_a_drawing_that_never_ends_is_given_up_and_the_next_one_is_drawn(shared):
    async with shared.page(is_alone=True) as page:
        await page.clock.install()
        await page.reload()
        await page.route("**/frame/draw.js", lambda route: route.fulfill(body=NEVER))
        await send(page, scripted(fence("mermaid", DIAGRAM)))
        await page.locator("iframe").wait_for(state="attached")
        inner = next(each for each in page.frames if each.parent_frame)
        await until(inner.title, "at work".__eq__)
        await page.clock.fast_forward(20_000)
        await expect(page.get_by_text("Cannot be drawn: it takes too long")).to_be_visible()
        await expect(page.locator("iframe")).to_have_count(0)
        await page.unroute("**/frame/draw.js")
        await send(page, scripted(fence("mermaid", DIAGRAM)))
        await drawn(page, 1)


async def test_a_drawing_whose_library_never_comes_does_not_hold_up_the_next_one(shared):
    is_asked = asyncio.Event()

    async def hold(route):
        is_asked.set()

    async with shared.page(is_alone=True) as page:
        await page.clock.install()
        await page.reload()
        await page.route("**/mermaid.min.js", hold)
        await send(page, scripted(fence("mermaid", DIAGRAM) + fence("vega-lite", CHART)))
        await until(is_asked.is_set)
        await page.clock.fast_forward(60_000)
        await expect(page.get_by_text("Cannot be drawn: it takes too long")).to_be_visible()
        await drawn(page, 1)


async def test_drawings_follow_the_theme(shared):
    async with shared.page(color_scheme="light") as page:
        await send(page, scripted(fence("mermaid", DIAGRAM)))
        await drawn(page, 1)
        light = await page.locator(".drawing img").get_attribute("src")
        await page.emulate_media(color_scheme="dark")
        await expect(page.locator(".drawing img")).not_to_have_attribute("src", light)


async def test_a_drawing_loads_nothing_and_runs_nothing(shared):
    connections = []
    other = await asyncio.start_server(lambda *streams: connections.append(streams), "127.0.0.1", 0)
    async with other, shared.page() as page:
        port = other.sockets[0].getsockname()[1]
        picture = f"http://127.0.0.1:{port}/picture.svg"
        diagram = (
            f'flowchart LR\n  A["<img src={picture} onerror=alert(1)>"] --> B\n'
            f'  click B "javascript:alert(1)"'
        )
        chart = CHART | {"data": {"url": f"http://127.0.0.1:{port}/data.json"}}
        mark = {"type": "image", "encode": {"enter": {"url": {"value": picture}}}}
        other_chart = {"width": 80, "height": 80, "marks": [mark]}
        said = []
        page.on("dialog", lambda dialog: said.append(dialog.message))
        blocks = (("mermaid", diagram), ("vega-lite", chart), ("vega", other_chart))
        text = "".join(fence(language, content) for language, content in blocks)
        await send(page, scripted(text + fence("mermaid", DIAGRAM)))
        await answered(page)
        await expect(page.locator(".drawing, .drawing-problem")).to_have_count(4)
        await expect(page.locator(".drawing img").last).to_be_visible()
        assert (connections, said) == ([], [])
        assert await page.locator("iframe").get_attribute("sandbox") == "allow-scripts"
        inner = next(each for each in page.frames if each.parent_frame)
        assert await inner.evaluate("origin") == "null"
        assert all("Content Security Policy" in problem for problem in shared.problems)
        shared.problems.clear()


async def test_one_setting_switches_drawings_off(browser, tmp_path):
    async with browser_with_server(browser, tmp_path, drawings=False) as own, own.page() as page:
        await send(page, scripted(fence("mermaid", DIAGRAM)))
        await answered(page)
        await expect(page.locator(".answer pre").first).to_be_visible()
        await expect(page.locator(".drawing, iframe")).to_have_count(0)
