"""JSON that models, other programs and persons have written."""

from __future__ import annotations

import pytest

from mochi_server.core.json_text import value_of


@pytest.mark.parametrize("text", ["low", "[" * 5000, '{"a": '])
def test_what_is_no_json_is_a_text(text: str) -> None:
    assert value_of(text) == text
