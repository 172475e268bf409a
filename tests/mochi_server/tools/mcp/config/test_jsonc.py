"""JSON with comments, changed in place."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mochi_server.tools.mcp.config.jsonc import CommentedJson

COMMENTED = """\
// of VS Code
{
    "inputs": [{"id": "key", "type": "promptString"}], // asked once
    "servers": {
        /* the time */
        "time": {"command": "uvx", "args": ["a//b", "/* no comment */",]},
        "git": {
            "command": "git", // "x": 1
        },
    },
}
"""


def test_comments_and_trailing_commas_are_no_part_of_the_value() -> None:
    assert CommentedJson(COMMENTED).value == {
        "inputs": [{"id": "key", "type": "promptString"}],
        "servers": {
            "time": {"command": "uvx", "args": ["a//b", "/* no comment */"]},
            "git": {"command": "git"},
        },
    }


def test_members_know_their_lines() -> None:
    document = CommentedJson(COMMENTED)
    lines = {each.key: document.line_of(each) for each in document.members("servers")}
    assert lines == {"time": 6, "git": 7}


def test_a_change_leaves_all_other_text_as_it_is() -> None:
    text = CommentedJson(COMMENTED).with_member("servers", "new", {"command": "x"})
    addition = '        "new": {\n          "command": "x"\n        },\n'
    assert text.replace(addition, "", 1) == COMMENTED
    changed = CommentedJson(text).with_member("servers", "new", {"command": "y"})
    assert changed == text.replace('"x"\n', '"y"\n')
    assert CommentedJson(changed).without_member("servers", "new") == COMMENTED


def test_the_first_the_last_and_the_only_member_can_be_removed() -> None:
    without_time = CommentedJson(COMMENTED).without_member("servers", "time")
    assert CommentedJson(without_time).value["servers"] == {"git": {"command": "git"}}
    without_git = CommentedJson(COMMENTED).without_member("servers", "git")
    assert CommentedJson(without_git).value["servers"] == {
        "time": {"command": "uvx", "args": ["a//b", "/* no comment */"]}
    }
    neither = CommentedJson(without_git).without_member("servers", "time")
    assert CommentedJson(neither).value["servers"] == {}
    assert CommentedJson(neither).with_member("servers", "a", 1) != neither
    assert neither.startswith("// of VS Code")


def test_members_of_one_name_are_all_removed() -> None:
    text = '{"servers": {"a": 1, "b": 2, "a": 3}}'
    assert CommentedJson(CommentedJson(text).without_member("servers", "a")).value == {
        "servers": {"b": 2}
    }


names = st.text(max_size=5)
values = st.recursive(
    st.none() | st.integers(0, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=5,
)


@given(
    servers=st.dictionaries(names, values, max_size=4),
    other=st.dictionaries(names.filter(lambda name: name != "servers"), values, max_size=2),
    name=names,
    value=values,
    indent=st.sampled_from([None, 0, 2, 4]),
)
def test_a_change_is_the_same_as_of_the_value(servers, other, name, value, indent) -> None:
    for document in ({**other, "servers": servers}, other):
        text = json.dumps(document, indent=indent, ensure_ascii=False)
        added = CommentedJson(text).with_member("servers", name, value)
        expected = {**document, "servers": {**document.get("servers", {}), name: value}}
        assert json.loads(added) == expected
        removed = CommentedJson(added).without_member("servers", name)
        del expected["servers"][name]
        assert json.loads(removed) == expected


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"a": }', '{"a": 1,, }', "{'a': 1}", '{"a": "\n"}', "// {}", "/* {}"]
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        CommentedJson(text)


@pytest.mark.parametrize("text", ['"\\', "/*", ", ", ",", '"', "//"])
def test_a_million_hostile_characters_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        CommentedJson("{" + text * (1_000_000 // len(text)))
