"""A server in test mode for the clients of vendors' APIs, one for each module."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.server import Server, running_server
from tests.support.tools import write_tools

ADD = '''
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def fail(a: int, b: int) -> int:
    """Fail."""
    raise RuntimeError("out of order")
'''


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """A server in test mode with a tool ``add``."""
    folder = tmp_path_factory.mktemp("data")
    write_tools(folder / "tools", add=ADD)
    settings = {"environment": "test", "test_words_per_second": 0}
    async with running_server(data_dir=folder, **settings) as running:
        yield running
