"""Fetching and loading models on the page: in a real browser, with a server and a hub."""

from __future__ import annotations

import json

from playwright.async_api import async_playwright, expect

from tests.support.chromium import CHROMIUM, needs_chromium
from tests.support.model_hub import CONTENT, NAME, running_hub
from tests.support.page import LIMIT
from tests.support.server import running_server

pytestmark = needs_chromium
expect.set_options(timeout=LIMIT)

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


async def test_a_model_is_fetched_with_its_progress_also_after_a_reload(tmp_path):
    (tmp_path / "data").mkdir()
    with running_hub() as hub:
        async with (
            running_server(
                data_dir=tmp_path / "data",
                models_dir=tmp_path / "models",
                command=("-c", SERVER, hub.url, "--port", "0"),
            ) as server,
            async_playwright() as playwright,
        ):
            browser = await playwright.chromium.launch(
                executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"]
            )
            page = await browser.new_page()
            await page.goto(server.url)
            await expect(page.get_by_role("heading", level=1)).to_have_text("There is no model yet")
            await expect(page.get_by_role("button", name=f"Fetch {NAME}")).to_be_visible()
            await page.get_by_role("link", name="Models").first.click()
            await page.get_by_role("button", name=f"Fetch {NAME}").click()
            bar = page.get_by_role("progressbar", name=f"{NAME} is being fetched")
            await expect(bar).to_have_attribute("max", json.dumps(len(CONTENT)))
            await page.reload()
            await expect(bar).to_have_attribute("max", json.dumps(len(CONTENT)))
            hub.rest.set()
            await expect(page.get_by_text(f"{NAME} is ready.")).to_be_visible()
            await expect(bar).to_have_count(0)
            await expect(page.get_by_role("button", name=f"Fetch {NAME}")).to_have_count(0)
            assert len(hub.requests) == 1
            assert (tmp_path / "models" / "tiny-1m.gguf").stat().st_size == len(CONTENT)
            await browser.close()
