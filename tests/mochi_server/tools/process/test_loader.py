"""Many folders of tools at once, which several processes describe side by side."""

from __future__ import annotations

from pathlib import Path

import pytest

from mochi_server.tools.base import InvalidArguments
from mochi_server.tools.functions.model import FunctionArguments
from mochi_server.tools.functions.signature import read_signature
from mochi_server.tools.process.loader import ProcessLoader
from tests.support.tool_folders import tool_folder

MANY = 35
CODE = '''
__all__ = ["work{number}"]

def work{number}() -> str:
    """Work."""
    return "done {number}"
'''


@pytest.mark.parametrize("count", [0, 1, 7, 17, MANY])
async def test_folders_come_back_in_their_order(tmp_path: Path, count: int) -> None:
    """Each with its own tools, which can be called."""
    loader = ProcessLoader()
    specs = [tool_folder(tmp_path / f"f{n}", CODE.format(number=n)) for n in range(count)]
    try:
        found = await loader.load(specs)
        assert [each.description.folder for each in found] == [str(each.path) for each in specs]
        names = [[tool.name for tool in each.description.tools] for each in found]
        assert names == [[f"work{n}"] for n in range(count)]
        if found:
            last = count - 1
            assert await found[last].call(f"work{last}", {}) == f"done {last}"
    finally:
        await loader.aclose()


async def test_folders_that_end_their_process_hurt_no_other(tmp_path: Path) -> None:
    """First, last and in the middle of what one process describes."""
    loader = ProcessLoader()
    deadly = {0, 9, 10, 20, MANY - 1}
    specs = [
        tool_folder(
            tmp_path / f"f{n}",
            "import os\nos._exit(3)\n" if n in deadly else CODE.format(number=n),
        )
        for n in range(MANY)
    ]
    try:
        found = await loader.load(specs)
        broken = {n for n, each in enumerate(found) if each.description.problems}
        assert broken == deadly
        assert all(found[n].description.tools for n in range(MANY) if n not in deadly)
    finally:
        await loader.aclose()


def test_a_refusal_is_short_however_long_the_names_in_it_are() -> None:
    """Models make up keys of any length."""

    def take(a: dict[str, float]) -> str:
        return str(a)

    with pytest.raises(InvalidArguments) as refused:
        FunctionArguments(read_signature(take).parameters).bind({"a": {"9" * 5000: False}})
    assert len(str(refused.value)) < 200
