"""Engines on a fake Ollama."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.support.fake_ollama import FakeOllama
from tests.support.summaries import summarising
from tests.support.turns import Bench, bench


@pytest_asyncio.fixture
async def engine(tmp_path: Path, ollama: FakeOllama) -> AsyncIterator[Bench]:
    """One that summarises at once after each turn."""
    async with summarising(tmp_path, ollama) as found:
        yield found


@pytest_asyncio.fixture
async def quiet(tmp_path: Path, ollama: FakeOllama) -> AsyncIterator[Bench]:
    """One that does nothing by itself."""
    async with bench(tmp_path, ollama) as found:
        yield found
