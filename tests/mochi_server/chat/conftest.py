"""What tests of the engine need: a fake Ollama, a library runtime that talks to it, a Redis."""

from __future__ import annotations

import pytest

from tests.support.lines import line_to
from tests.support.redis import running_redis


@pytest.fixture
async def redis(tmp_path):
    async with running_redis(tmp_path) as server:
        yield server


@pytest.fixture
async def line(redis):
    """A way to Redis that a test can cut."""
    async with line_to(redis) as line:
        yield line
