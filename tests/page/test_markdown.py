"""What is seen of the Markdown of models: in a real browser."""

from __future__ import annotations

import json
import re

import pytest
from playwright.async_api import expect

from tests.support.chromium import needs_chromium
from tests.support.page import answered, scripted, send
from tests.support.server import ROOT

pytestmark = [needs_chromium, pytest.mark.asyncio(loop_scope="session")]

RULES = json.loads((ROOT / "tests/data/markdown.json").read_text())
SEEN = """async texts => {
  const main = document.querySelector("script[type=module]").src;
  const { MarkdownText } = await import(new URL("markdown/render.js", main));
  const kept = ["href", "start", "checked", "align", "dir", "data-language"];
  const clean = (element) => {
    for (const inner of element.querySelectorAll("*")) {
      if (inner.dataset.formula !== undefined) {
        const kind = inner.dataset.display ? "display" : "formula";
        inner.replaceWith(`{${kind}: ${inner.dataset.formula}}`);
        continue;
      }
      for (const { name, value } of [...inner.attributes]) {
        const isUsual = ["auto", "ltr"].includes(value);
        if (isUsual || !kept.includes(name)) inner.removeAttribute(name);
      }
    }
    return element.innerHTML.replaceAll("&gt;", ">").trim();
  };
  const shown = (text) => {
    const markdown = new MarkdownText();
    let blocks, rest;
    do ({ blocks, rest } = markdown.blocks(text, { isComplete: true })); while (rest);
    return blocks.map((block) => {
      const element = document.createElement("div");
      element.innerHTML = block;
      return clean(element);
    }).join("\\n");
  };
  return texts.map(shown);
}"""


async def test_what_is_seen_is_as_the_table_of_rules_says(shared):
    cases = [case for rule in RULES.values() for case in rule]
    assert len(cases) >= 120
    async with shared.page() as page:
        seen = await page.evaluate(SEEN, [text for text, _ in cases])
    wrong = [
        (text, found, wanted)
        for (text, wanted), found in zip(cases, seen, strict=True)
        if found != wanted
    ]
    assert wrong == []


HEAVY = {
    "quotations": ">" * 6000,
    "lists": "\n".join(" " * 2 * depth + "- a" for depth in range(400)),
    "dollars": "$$" * 10_000,
    "marks": "*_" * 10_000,
    "brackets": "[" * 20_000,
    "numbers": "1. " * 7000,
    "cells": "|---|---|---|---|---|---|\n" * 2000,
    "braces": f"${'{' * 4000}$",
}


async def imported(shared, *answers):
    """A session with a question and these answers."""
    messages = [
        message
        for answer in answers
        for message in ({"role": "user", "content": "?"}, {"role": "assistant", "content": answer})
    ]
    session = {"metadata": {"model": "lorem"}, "messages": messages}
    status, answer = await shared.server.post("/sessions/import", session)
    assert status == 200
    return answer["imported"][0]["session_id"]


async def test_no_text_makes_the_others_unreadable(shared):
    session = await imported(shared, *HEAVY.values(), "The **last** one.")
    async with shared.page(f"/#/chat/{session}") as page:
        answers = page.locator(".answer .markdown")
        await expect(answers.last.locator("strong")).to_have_text("last")
        await page.get_by_role("button", name="Show earlier").press("Enter")
        await expect(answers).to_have_count(len(HEAVY) + 1)
        for answer, (name, text) in zip(await answers.all(), HEAVY.items(), strict=False):
            if name == "cells":  # a table, which is drawn in parts
                await expect(answer.locator("td").last).to_have_text("---")
                continue
            is_plain = name not in {"marks", "braces"}  # which have few steps, and stay as they are
            await expect(answer).to_contain_text(text.strip("$")[:100] if is_plain else text[10:20])
        await send(page, scripted("It **goes** on."))
        await answered(page, len(HEAVY) + 2)
        await expect(answers.last.locator("strong")).to_have_text("goes")


async def test_a_long_text_is_drawn_to_its_end(shared):
    parts = [f"## Part {number}\n\nSome **words** and `code`.\n\n- a\n- b" for number in range(900)]
    text = "\n\n".join([*parts, "See [the end][1].", "[1]: https://a.example/"])
    session = await imported(shared, text)
    async with shared.page(f"/#/chat/{session}") as page:
        await expect(page.locator(".answer a")).to_have_text("the end")
        await expect(page.locator(".answer h3")).to_have_count(900)
        await expect(page.locator(".answer strong")).to_have_count(900)
        await expect(page.locator(".answer .plain")).to_have_count(0)


async def test_a_table_with_a_very_long_row_is_drawn_to_its_end(shared):
    rows = ["| x | y |\n" * 500, "| " + "**word** " * 900 + "| y |\n", "| last | y |\n"]
    session = await imported(shared, f"| a | b |\n|---|---|\n{''.join(rows)}\nThe end.")
    async with shared.page(f"/#/chat/{session}") as page:
        await expect(page.locator(".answer .markdown > .block").last).to_have_text("The end.")
        await expect(page.locator(".answer td").nth(-2)).to_have_text("last")
        await expect(page.locator(".answer td", has_text="x")).to_have_count(500)


async def test_a_quotation_that_begins_with_a_very_long_line_is_drawn_to_its_end(shared):
    text = "> " + "**word** " * 900 + "\n>\n> The last line.\n\nThe end."
    session = await imported(shared, text)
    async with shared.page(f"/#/chat/{session}") as page:
        await expect(page.locator(".answer .markdown > .block").last).to_have_text("The end.")
        await expect(page.locator(".answer blockquote p").last).to_have_text("The last line.")


@pytest.mark.parametrize("word", ["word" * 8, "हिन्दी" * 4])
async def test_a_word_is_not_cut_where_a_text_without_spaces_is(shared, word):
    session = await imported(shared, ">" * 1_990 + word + " and another")
    async with shared.page(f"/#/chat/{session}") as page:
        await expect(page.locator(".answer .markdown")).to_contain_text(f"{word} and")


LONG = {
    "li": "".join(f"{number}. item {number} with **bold** words\n" for number in range(1, 1001)),
    "td": "| a | b |\n|--:|---|\n" + "".join(f"| {n} | x **b** |\n" for n in range(1000)),
    "blockquote p": "".join(f"> {number} with **bold** words\n>\n" for number in range(1000)),
    "p": "\n".join(f"{number} with **bold** words" for number in range(1000)),
}
PARTS = """async ([text, selector, pieces]) => {
  const main = document.querySelector("script[type=module]").src;
  const { MarkdownText } = await import(new URL("markdown/render.js", main));
  const parser = new MarkdownText();
  let drawn;
  for (let piece = 1; piece <= pieces; piece += 1) {
    const arrived = text.slice(0, Math.ceil((text.length * piece) / pieces));
    const isComplete = piece === pieces;
    do drawn = parser.blocks(arrived, { isComplete }); while (drawn.rest);
  }
  const parts = drawn.blocks.map((block) => {
    const element = document.createElement("div");
    element.innerHTML = block;
    return element;
  });
  const all = (wanted) => parts.flatMap((part) => [...part.querySelectorAll(wanted)]);
  return {
    found: all(selector).length,
    plain: all(".plain").length,
    bold: all("strong").length,
    aligned: all("td[align=right]").length,
    starts: all("ol").map(({ start, firstElementChild }) => [start, firstElementChild.textContent]),
    text: parts.map(({ textContent }) => textContent).join(""),
    largest: Math.max(...parts.map((part) => part.querySelectorAll("*").length)),
  };
}"""


@pytest.mark.parametrize("pieces", [1, 7])
@pytest.mark.parametrize("selector", LONG)
async def test_a_block_of_thousands_is_drawn_in_parts_as_markdown(shared, selector, pieces):
    text = LONG[selector]
    async with shared.page() as page:
        drawn = await page.evaluate(PARTS, [text, selector, pieces])
    numbers = text.count("**") // 2
    assert drawn["plain"] == 0
    assert drawn["bold"] == numbers
    if selector != "p":  # as many lines as wanted may be in one
        assert drawn["found"] == numbers * (2 if selector == "td" else 1)
    assert drawn["largest"] < 1_500
    if selector == "li":
        assert all(text.startswith(f"item {start} ") for start, text in drawn["starts"])
    if selector == "td":
        assert drawn["aligned"] == numbers
    lost = [word for word in re.findall(r"\d+", text) if word not in drawn["text"]]
    assert lost == []


COUNTED = {
    "the same number": ("1. {}\n", 1),
    "another first number": ("3. {}\n", 3),
    "in a quotation": ("> 1. {}\n", 1),
    "with another list in each": ("1. {}\n   - b\n", 1),
}


@pytest.mark.parametrize("pieces", [1, 9])
@pytest.mark.parametrize("kind", COUNTED)
async def test_a_list_in_parts_goes_on_with_its_count(shared, kind, pieces):
    line, first = COUNTED[kind]
    numbers = range(first, first + 1500)
    text = "".join(line.format(number) for number in numbers) + "\nSo.\n\n1. one\n2. two\n"
    async with shared.page() as page:
        drawn = await page.evaluate(PARTS, [text, "li", pieces])
    *parts, last = drawn["starts"]
    assert len(parts) > 1
    assert [start for start, _ in parts] == [int(re.match(r"\d+", text)[0]) for _, text in parts]
    assert last == [1, "one"]


async def test_a_block_in_parts_looks_the_same_when_it_arrives_slowly(shared):
    text = "\n\n".join([LONG["li"], LONG["td"], "The end."])
    async with shared.page() as page:
        # No drawing is too long: several parts are cut in one step.
        await page.evaluate("performance.now = () => 0")
        whole, grown = [await page.evaluate(PARTS, [text, "*", pieces]) for pieces in (1, 9)]
    assert grown == whole


async def test_a_formula_that_would_take_long_is_shown_as_it_was_written(shared):
    long = " + ".join(f"x_{{{number}}}" for number in range(400))
    text = f"$$\n{long}\n$$\n\n```math\n{long}\n```\n\n$y_1$"
    session = await imported(shared, text)
    async with shared.page(f"/#/chat/{session}") as page:
        answer = page.locator(".answer .markdown")
        await expect(answer.locator(".katex")).to_have_count(1)
        await expect(answer).to_contain_text(long[-60:])
        await expect(answer.locator("pre")).to_contain_text(long[-60:])


CODE = "\n\n".join(f"line({number})" for number in range(1000))


async def test_long_code_is_drawn_in_parts_and_copied_whole(shared):
    session = await imported(shared, f"```unknown\n{CODE}\n```")
    async with shared.page(f"/#/chat/{session}") as page:
        block = page.locator(".answer pre")
        await expect(block).to_contain_text("line(999)")
        parts = block.locator(".lines")
        await expect(parts).to_have_count(20)
        height = await block.evaluate("(element) => element.scrollHeight")
        await block.evaluate("(element) => element.scrollTo(0, element.scrollHeight)")
        await expect(parts.last).to_be_in_viewport()
        assert await block.evaluate("(element) => element.scrollHeight") == height
        await block.evaluate("(element) => getSelection().selectAllChildren(element)")
        assert (await page.evaluate("`${getSelection()}`")).rstrip("\n") == CODE


async def test_code_of_many_symbols_stays_without_colours(shared):
    many, usual = "[1,2,3]," * 3_000, "    return 1 + value\n" * 1_200
    session = await imported(shared, f"```json\n{many}\n```", f"```python\n{usual}```")
    async with shared.page(f"/#/chat/{session}") as page:
        first, second = (page.locator(".answer pre").nth(index) for index in (0, 1))
        await expect(second.locator(".hljs-keyword")).to_have_count(1_200)
        await expect(first).to_contain_text(many)
        await expect(first.locator("[class^=hljs]")).to_have_count(0)


async def test_a_table_in_parts_is_copied_whole_with_tabs(shared):
    rows = [(f"{number}", "*x*<br>y", "$a_1$") for number in range(1500)]
    lines = [("n", "b", "c"), ("-",) * 3, *rows]
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    session = await imported(shared, f"{table}\nSo.\n\n| d |\n|---|\n| 1 |")
    async with shared.page(f"/#/chat/{session}") as page:
        await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        tables = page.locator(".answer table")
        await expect(tables.last).to_have_text("d1")
        assert await tables.count() > 2
        copies = page.get_by_role("button", name="Copy table")
        await expect(copies).to_have_count(2)
        await copies.first.click()
        await expect(page.get_by_role("button", name="Copied")).to_be_visible()
        copied = await page.evaluate("navigator.clipboard.readText()")
    assert copied.split("\n") == ["n\tb\tc", *(f"{number}\tx y\ta_1" for number, *_ in rows)]


SLOW = """async (text) => {
  const main = document.querySelector("script[type=module]").src;
  const { MarkdownText } = await import(new URL("markdown/render.js", main));
  let now = 0;
  performance.now = () => { now += 31; return now; };
  const parser = new MarkdownText();
  let drawn;
  do drawn = parser.blocks(text, { isComplete: true }); while (drawn.rest);
  const element = document.createElement("div");
  return drawn.blocks.flatMap((block) => {
    element.innerHTML = block;
    return [...element.children].map(({ textContent }) => textContent.trim());
  });
}"""


async def test_a_slow_machine_draws_a_long_text_as_any_other(shared):
    """Whose clock has gone on by 31 ms whenever it is looked at."""
    parts = ["1. a\n\n   b", "---"] * 150
    async with shared.page() as page:
        drawn = await page.evaluate(SLOW, "\n\n".join([*parts, "word " * 1_100]))
    assert drawn == [*["a\nb", ""] * 150, "word " * 1_099 + "word"]


NOISE = "".join((ROOT / "tests/support" / name).read_text() for name in ("noise.js", "draw.js"))
DRAWN = f"""async ([seeds, length, pieces]) => {{
  {NOISE}
  const texts = [];
  for (const seed of seeds) {{
    const text = noise(seed, length);
    const {{ seen, ...drawn }} = await draw(text, pieces);
    texts.push({{ seed, lost: missing(text, seen), ...drawn }});
  }}
  return texts;
}}"""


@pytest.mark.parametrize("pieces", [1, pytest.param(10, marks=pytest.mark.slow)])
async def test_of_noise_nothing_is_lost_and_nothing_fails(shared, pieces):
    async with shared.page() as page:
        drawn = await page.evaluate(DRAWN, [list(range(40)), 20_000, pieces])
    assert [text for text in drawn if text["lost"] or text["isBroken"]] == []
    assert any(text["plain"] for text in drawn)  # what takes too long is shown as it was written


async def test_lists_that_are_long_to_look_through_are_drawn_to_their_end(shared):
    async with shared.page() as page:
        drawn = await page.evaluate(DRAWN, [[147], 100_000, 1])
    assert [text["lost"] for text in drawn] == [[]]


BROKEN = """
const { blocks } = MarkdownText.prototype;
MarkdownText.prototype.blocks = function (text, options) {
  if (text.includes("cannot be drawn")) throw new Error("broken");
  return blocks.call(this, text, options);
};
"""


async def test_a_message_that_cannot_be_drawn_is_shown_as_it_was_written(shared):
    session = await imported(shared, "This *cannot be drawn*.", "This **can**.")

    async def serve(route):
        response = await route.fetch()
        await route.fulfill(response=response, body=await response.text() + BROKEN)

    async with shared.context() as context:
        await context.route("**/markdown/render.js", serve)
        page = await context.new_page()
        await page.goto(f"{shared.server.url}/#/chat/{session}")
        await expect(page.locator(".answer").first).to_contain_text("This *cannot be drawn*.")
        await expect(page.locator(".answer strong")).to_have_text("can")
