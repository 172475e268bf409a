from __future__ import annotations

import json

import pytest

from mochi_server.nesting import is_too_deep, may_be_too_deep


def nested(levels: int, pair: str = "[]") -> object:
    inner = '{"a":' if pair == "{}" else pair[0]
    return json.loads(inner * levels + "1" + pair[1] * levels)


@pytest.mark.parametrize("pair", ["[]", "{}"])
@pytest.mark.parametrize(("levels", "deep"), [(0, False), (64, False), (65, True), (900, True)])
def test_levels_are_counted_of_objects_and_lists_alike(pair: str, levels: int, deep: bool):
    value = nested(levels, pair)
    assert is_too_deep(value, 64) is deep
    assert may_be_too_deep(json.dumps(value).encode(), 64) is deep


def test_width_is_no_depth():
    wide = [{"a": []}] * 1000
    assert may_be_too_deep(json.dumps(wide).encode(), 64)
    assert not is_too_deep(wide, 3)
    assert is_too_deep(wide, 2)
