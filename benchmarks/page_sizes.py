"""How soon the page shows what a person does, where there is much of everything.

    python benchmarks/page_sizes.py
    python benchmarks/page_sizes.py --rounds 1

A server with 2,000 chats, one of 5,000 messages, 60 models of an Ollama and 200 tools; a headless
Chromium, which draws without a graphics card. Each act is a real click, key or turn of the wheel
(a word is typed as a quick typist does, and its time begins with the last key);
its time ends when what it is for has been painted. The first search of all is the server's, which
reads the sessions for it. Exits with 1 when a median is over the limit.
benchmarks/README.md names it.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path

from page import CHROMIUM, ROOT, figures, running_server
from playwright.async_api import CDPSession, Page, async_playwright
from search import MIDDLE, Author

sys.path.insert(0, str(ROOT))
from tests.support.fake_ollama import FakeOllama

CHATS = 2000
MESSAGES = 5000
MODELS = 60
TOOLS = 200
MOST_MILLISECONDS = 100
KEY_MILLISECONDS = 60
"""From one key of a word to the next."""
MOST_SECONDS = 60
"""Until an act has been seen at all."""
LONG = f"{CHATS:010x}"

ACTED = """
window.acted = (isSeen) => new Promise((resolve) => {
  let begin = null;
  const note = ({ timeStamp }) => {
    begin = timeStamp; // of the last key, where a word is typed
  };
  const types = ["pointerdown", "keydown", "wheel"];
  for (const type of types) addEventListener(type, note, true);
  const look = () => {
    if (begin === null || !isSeen()) {
      requestAnimationFrame(look);
      return;
    }
    for (const type of types) removeEventListener(type, note, true);
    setTimeout(() => resolve(performance.now() - begin)); // after this frame
  };
  isSeen(); // as it is before
  requestAnimationFrame(look);
});
"""
TOOL = '''def tool_{number}(place: str, count: int = 1) -> str:
    """Do the thing of number {number} at a place, as often as it says."""
    return place * count


'''


def write_data(folder: Path) -> Author:
    sessions, tools = folder / "chat_sessions", folder / "tools"
    sessions.mkdir()
    tools.mkdir()
    author = Author()
    for number in range(CHATS):
        turn = [("user", 200), ("assistant", 600)]
        (sessions / f"{number:010x}.json").write_bytes(author.session(number, turn))
    turns = [("user", 200), ("assistant", 900)] * (MESSAGES // 2)
    (sessions / f"{LONG}.json").write_bytes(author.session(CHATS, turns))
    functions = "".join(TOOL.format(number=number) for number in range(TOOLS))
    names = ", ".join(f'"tool_{number}"' for number in range(TOOLS))
    (tools / "__init__.py").write_text(f"__all__ = [{names}]\n\n\n{functions}")
    return author


class Acts:
    """What a person does, and how long it took: milliseconds, of a clock and of the main thread."""

    def __init__(self, page: Page, client: CDPSession) -> None:
        self.page, self._client = page, client
        self.times: dict[str, list[float]] = defaultdict(list)
        self.computed: dict[str, list[float]] = defaultdict(list)

    async def do(self, name: str, act: Callable[[], Awaitable[None]], seen: str) -> None:
        """Act, and wait until the expression ``seen`` is true and painted."""
        before = (await figures(self._client))["TaskDuration"]
        await self.page.evaluate(f"() => {{ window.done = acted(() => {seen}); }}")
        await act()
        async with asyncio.timeout(MOST_SECONDS):
            self.times[name].append(await self.page.evaluate("window.done"))
        after = (await figures(self._client))["TaskDuration"]
        self.computed[name].append(1000 * (after - before))


async def in_chats(acts: Acts, author: Author) -> None:
    page = acts.page
    link = page.locator(f'.session a[href="#/chat/{LONG}"]')
    await page.mouse.move(1, 1)
    await acts.do(
        "open a chat of 5,000 messages",
        link.click,
        "document.querySelectorAll('.messages > article').length > 10",
    )
    await page.locator(".messages").hover()
    for _ in range(3):
        await acts.do("scroll in it", lambda: page.mouse.wheel(0, -2500), _moved(".scroller"))
    await page.locator(".sessions").hover()
    await acts.do(
        "scroll the list of chats", lambda: page.mouse.wheel(0, 900), _moved("#sidebar *")
    )
    count = await page.locator(".session").count()
    more = page.get_by_role("button", name="Show more")
    await acts.do(
        "show more chats", more.click, f"document.querySelectorAll('.session').length > {count}"
    )
    search = page.get_by_role("searchbox", name="Search")
    await search.focus()
    word = author.words[MIDDLE]
    await acts.do(
        "search a word of most chats",
        lambda: page.keyboard.type(word, delay=KEY_MILLISECONDS),
        "document.querySelector('.session mark')",
    )

    async def clear() -> None:
        await page.keyboard.press("Control+a")
        await page.keyboard.press("Delete")

    await acts.do(
        "leave the search",
        clear,
        "!document.querySelector('.session mark')",
    )


def _moved(selector: str) -> str:
    places = f"[...document.querySelectorAll('{selector}')].map((each) => each.scrollTop).join()"
    return f"(window.place ??= {places}) !== {places} && ((window.place = null), true)"


async def at_the_box(acts: Acts) -> None:
    page = acts.page
    await page.goto(page.url.partition("#")[0] + "#/")
    model = page.locator(".model-picker > button, button[aria-label^='Model:']").first
    await acts.do("open the models", model.click, "document.activeElement.role === 'combobox'")
    await acts.do(
        "search a model",
        lambda: page.keyboard.type("m47"),
        "document.querySelectorAll('[role=option]').length === 1",
    )
    await acts.do(
        "pick it",
        lambda: page.keyboard.press("Enter"),
        "document.querySelector(\"button[aria-label^='Model:']\").ariaLabel.includes('m47')",
    )
    tools = page.get_by_role("button", name="Tools: none in this chat")
    await acts.do(
        "open the tools", tools.click, "document.querySelectorAll('.tool-menu .tool').length > 20"
    )
    await acts.do(
        "search a tool",
        lambda: page.keyboard.type("tool_177"),
        "document.querySelectorAll('.tool-menu .tool').length === 1",
    )
    await acts.do(
        "choose it",
        page.get_by_role("checkbox", name="tool_177").click,
        "document.querySelector('.tool-menu .tool input').checked",
    )
    await acts.do(
        "close the tools",
        lambda: page.keyboard.press("Escape"),
        "!document.querySelector('.tool-menu')",
    )


async def main(rounds: int) -> bool:
    async with FakeOllama() as ollama, async_playwright() as playwright:
        for number in range(MODELS):
            ollama.add_model(f"m{number}:{number + 1}b")
        with tempfile.TemporaryDirectory() as folder:
            author = await asyncio.to_thread(write_data, Path(folder))
            settings = {"MOCHI_ENVIRONMENT": "production", "MOCHI_OLLAMA_HOST": ollama.url}
            async with running_server(Path(folder), **settings) as address:
                browser = await playwright.chromium.launch(
                    executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"]
                )
                times: dict[str, list[float]] = defaultdict(list)
                computed: dict[str, list[float]] = defaultdict(list)
                for _ in range(rounds):
                    context = await browser.new_context(viewport={"width": 1280, "height": 900})
                    page = await context.new_page()
                    await page.add_init_script(ACTED)
                    client = await context.new_cdp_session(page)
                    await client.send("Performance.setTimeDomain", {"timeDomain": "threadTicks"})
                    await client.send("Performance.enable")
                    await page.goto(address)
                    await page.locator(".session").first.wait_for()
                    acts = Acts(page, client)
                    await in_chats(acts, author)
                    await at_the_box(acts)
                    for name in acts.times:
                        times[name] += acts.times[name]
                        computed[name] += acts.computed[name]
                    await context.close()
                await browser.close()
    print(f"{'':32} {'ms':>6} {'most':>6} {'CPU ms':>7}")
    for name, each in times.items():
        print(
            f"{name:32} {statistics.median(each):>6.0f} {max(each):>6.0f}"
            f" {statistics.median(computed[name]):>7.0f}"
        )
    return all(statistics.median(each) <= MOST_MILLISECONDS for each in times.values())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    sys.exit(not asyncio.run(main(parser.parse_args().rounds)))
