"""What is whole of a JSON document that was cut."""

from __future__ import annotations

import pytest

from mochi_server.core.partial_json import closed


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
    assert closed(text) == whole
