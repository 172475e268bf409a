from __future__ import annotations

import pytest

from tests.support.imports import Imports


@pytest.fixture
async def imports(tmp_path):
    made = Imports(tmp_path)
    yield made
    await made.sessions.aclose()


@pytest.fixture
async def imports_in_memory(tmp_path):
    imports = Imports(tmp_path, in_memory=True)
    yield imports
    await imports.sessions.aclose()
