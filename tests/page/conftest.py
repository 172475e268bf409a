"""The page in a real browser."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.page import SharedBrowser, browser_with_server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SharedBrowser]:
    """A browser and a server in test mode, for all tests of a module."""
    async with browser_with_server(tmp_path_factory.mktemp("page")) as shared:
        yield shared
