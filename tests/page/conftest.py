"""The page in a real browser."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from tests.support.page import SharedBrowser, browser_with_server, running_browser


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """One browser for all tests; each has cookies and storage of its own."""
    async with running_browser() as browser:
        yield browser


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shared(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[SharedBrowser]:
    """The browser and a server in test mode, for all tests of a module."""
    async with browser_with_server(browser, tmp_path_factory.mktemp("page")) as shared:
        yield shared
