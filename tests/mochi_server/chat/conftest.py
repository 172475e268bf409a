"""What every test of the engine needs: a fake Ollama, and a library runtime that talks to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.fake_ollama import FakeOllama
from tests.support.turns import Bench, bench


@pytest.fixture
async def ollama() -> AsyncIterator[FakeOllama]:
    async with FakeOllama() as fake:
        yield fake


@pytest.fixture
async def engine(tmp_path: Path, ollama: FakeOllama) -> AsyncIterator[Bench]:
    async with bench(tmp_path, ollama) as found:
        yield found
