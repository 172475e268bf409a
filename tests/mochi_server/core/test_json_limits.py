from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mochi_server.core.json_limits import (
    complete_json,
    has_more_values,
    is_too_deep,
    may_be_too_deep,
)


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


TEXTS = st.text(alphabet='ab,[{}]:"\\ \n')
JSON = st.recursive(
    st.none() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXTS, inner, max_size=5),
    max_leaves=30,
)


def count(value: object) -> int:
    """Members and elements, and one for each empty list or object."""
    if not isinstance(value, dict | list):
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return max(len(value), 1) + sum(map(count, inner))


@given(JSON, st.booleans())
def test_values_are_counted_outside_of_texts(value: object, spaces: bool) -> None:
    encoded = json.dumps(value, indent=1 if spaces else None).encode()
    assert not has_more_values(encoded, count(value))
    if count(value):
        assert has_more_values(encoded, count(value) - 1)


@pytest.mark.parametrize("text", ["a, b", '\\"', "\\\\", "[{,", 'say \\"[1,2]\\", '])
def test_a_long_text_is_one_value(text: str) -> None:
    assert not has_more_values(json.dumps({"message": text * 10_000}).encode(), 1)


@pytest.mark.parametrize("one", [b"1,", b"[],", b'"",', b'"a\\\\",', b'"\\",",'])
def test_many_short_values_are_many(one: bytes) -> None:
    assert has_more_values(b"[" + one * 5000 + b"1]", 5000)


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ('{"a": ["x"], "b": "é."\n\n \n', '{"a": ["x"], "b": "é."}'),
        ('{"a": ["x", "y', '{"a": ["x"]}'),
        ('{"b": "x", "a', '{"b": "x"}'),
        ('{"b": "x', "{}"),
        ('{"a":  1}', '{"a":  1}'),
        ("I think", "I think"),
        ("", ""),
    ],
)
def test_a_cut_document_ends_after_its_last_whole_value(text, whole):
    assert complete_json(text) == whole
