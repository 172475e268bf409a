"""JSON values, one after the other."""

from __future__ import annotations

import json
from io import BytesIO

from hypothesis import given
from hypothesis import strategies as st

from mochi_server.sessions.imports.json_values import JSONValues

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text('"\\{}[], \n\u00e9a', max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text('"\\]{,', max_size=3), inner)
    ),
    max_leaves=12,
)


class Dripping(BytesIO):
    """A stream that gives a few bytes at a time."""

    def __init__(self, content, size):
        super().__init__(content)
        self._size = size

    def read(self, size=-1):
        return super().read(self._size if size < 0 else min(size, self._size))


@given(
    values=st.lists(VALUES, max_size=6),
    size=st.integers(1, 9),
    indent=st.sampled_from([None, 2]),
    as_ascii=st.booleans(),
)
def test_the_elements_of_a_list_are_those_of_the_whole(values, size, indent, as_ascii):
    content = json.dumps(values, indent=indent, ensure_ascii=as_ascii).encode()
    for start in (b"", b"\xef\xbb\xbf", b" \n"):
        items = [*JSONValues(Dripping(start + content, size), 10_000, lambda done: None)]
        assert [item.value for item in items] == values
        assert [item.place for item in items] == [f"/{number}" for number in range(len(values))]
