"""The pages on test mode show what works."""

from __future__ import annotations

import ast
import inspect
import json
import re

import pytest

from mochi_server import testing
from mochi_server.testmode.script import Item, Script, script_in
from tests.docs.pages import REFERENCE, ROOT, blocks, code, codes, prose, rows, section

TEST_MODE = REFERENCE / "test-mode.md"
TEST_A_FRONT_END = ROOT / "docs" / "how-to" / "test-a-front-end.md"


def test_every_key_of_a_block_and_every_item_is_documented_and_no_other() -> None:
    keys = rows(section(TEST_MODE, "## The instruction block"))
    items = {code(row[0]) for row in rows(section(TEST_MODE, "### Items"))}
    assert {code(row[0]) for row in keys} - items == set(Script.model_fields)
    assert items == set(Item.model_fields)


def test_every_field_of_an_item_is_documented() -> None:
    for row in rows(section(TEST_MODE, "### Items")):
        shown = set(re.findall(r'"(\w+)"', row[1]))
        kind = Item.model_fields[code(row[0])].annotation
        known = re.findall(r"mochi_server\.testmode\.script\.(\w+)", str(kind))
        if known:
            fields = getattr(inspect.getmodule(Item), known[0]).model_fields
            assert shown <= set(fields)
            assert set(fields) <= shown | {"reasoning"}


def test_the_blocks_that_are_shown_are_scripts() -> None:
    shown = [block for page in (TEST_MODE, TEST_A_FRONT_END) for block in blocks(page)]
    messages = [block.text for block in shown if block.language != "json"]
    scripts = [text for text in messages if "<|instruction_start|>" in text]
    assert len(scripts) == 2
    assert all(script_in(text) is not None for text in scripts)
    steps, agent = [block.text for block in blocks(TEST_MODE) if block.language == "json"]
    assert Script.model_validate_json(steps).step(1) is not None
    assert Script.model_validate_json(agent).step(1) is not None
    inner = script_in(json.loads(agent)["messages"][0]["tool_call"][0]["args"]["instruction"])
    assert inner is not None
    assert inner.lasting


def test_every_helper_is_shown_and_the_calls_that_are_shown_work() -> None:
    table = rows(section(TEST_A_FRONT_END, "## Instructions for a reply"))
    shown = [text for row in table for text in codes(row[0])]
    for text in shown:
        item = eval(text, vars(testing))
        assert isinstance(testing.instructions(item), str)
    used = {node.func.id for text in shown for node in [ast.parse(text, mode="eval").body]}  # type: ignore[attr-defined]
    functions = set(testing.__all__) - {"TestServer", "instructions", "running_server"}
    assert used == functions


@pytest.mark.parametrize("name", ["lorem", "lorem-small", "lorem-plain"])
def test_the_listed_models_are_told(name: str) -> None:
    assert name in codes(prose(TEST_MODE))
