"""``SKILL.md`` is read as the public format has it, and refused with a line and a reason."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from mochi_server.agents.skill_file import SkillFile, read_skill_file
from mochi_server.core.front_matter import MAX_DEPTH, MAX_FILE_BYTES, FrontMatterError


def parse(text: str | bytes, name: str = "coder") -> SkillFile:
    with TemporaryDirectory() as folder:
        path = Path(folder, "SKILL.md")
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_skill_file(path, name)


def front(*lines: str, body: str = "Body.") -> str:
    return "\n".join(["---", *lines, "---", body])


def refusal(text: str | bytes, name: str = "coder") -> tuple[int, str]:
    with pytest.raises(FrontMatterError) as caught:
        parse(text, name)
    return caught.value.line, caught.value.reason


def test_the_shortest_file_of_the_format_is_an_agent():
    skill = parse("---\nname: coder\ndescription: Writes code.\n---")
    assert skill == SkillFile(
        name="coder",
        description="Writes code.",
        system_prompt="Writes code.",
        agents_line=1,
        tools_line=1,
        allowed_tools_line=1,
    )


def test_tools_of_the_server_are_names_and_patterns():
    lines = "description: A.", "metadata: {mochi-tools: 'a b*'}", "tools: [time__*, c]"
    skill = parse(front(*lines[:2]))
    assert (skill.tools, skill.tools_line) == (("a", "b*"), 3)
    skill = parse(front(*lines))
    assert (skill.tools, skill.tools_line) == (("time__*", "c"), 4)


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        (front("name: other", "description: x"), 2, "name is 'other', and the folder is 'coder'"),
        (front("description: x", "name: Co Der!"), 3, "name is 'Co Der!'"),
        (front("name: ../coder", "description: x"), 2, "name is '../coder'"),
        (front(f"name: {'c' * 65}", "description: x"), 2, "the folder is 'coder'"),
        (front("name: coder", f"description: {'x' * 1025}"), 3, "longer than 1,024"),
    ],
)
def test_what_the_format_forbids_and_hurts_nothing_is_a_warning(text, line, reason):
    """Skills that are published have both; the folder's name is the one that counts."""
    skill = parse(text)
    assert skill.name == "coder"
    assert skill.description.startswith("x")
    [(at, told)] = skill.warnings
    assert at == line
    assert reason in told


def test_every_key_of_the_format_is_read():
    skill = parse(
        front(
            "name: coder",
            "description: >",
            "  Writes",
            "  code.",
            "license: Apache-2.0",
            "compatibility: Needs git",
            "metadata:",
            "  author: example-org",
            '  version: "1.0"',
            "allowed-tools: Bash(git:*) Read",
            body="\n# You write code\n\nDo it.\n",
        )
    )
    assert skill.description == "Writes code."
    assert skill.system_prompt == "# You write code\n\nDo it."
    assert (skill.license, skill.compatibility) == ("Apache-2.0", "Needs git")
    assert skill.metadata == {"author": "example-org", "version": "1.0"}
    assert skill.allowed_tools == ("Bash(git:*)", "Read")
    assert (skill.model, skill.agents) == (None, ())


def test_our_keys_stand_at_the_top_or_where_the_format_has_room_for_them():
    top = parse(front("description: x", "model: qwen3:8b", "agents: [coder, writer]"))
    assert (top.model, top.agents) == ("qwen3:8b", ("coder", "writer"))
    below = parse(
        front(
            "description: x", "metadata:", "  mochi-model: qwen3:8b", "  mochi-agents: coder writer"
        )
    )
    assert (below.model, below.agents) == ("qwen3:8b", ("coder", "writer"))


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("a, b  c", ("a", "b", "c")),
        ("[a, b, a]", ("a", "b")),
        ("\n  - a\n  - b", ("a", "b")),
        ("", ()),
        ("[]", ()),
    ],
)
def test_names_are_a_list_or_a_text(value, names):
    skill = parse(front("description: x", f"agents: {value}", f"allowed-tools: {value}"))
    assert skill.agents == names
    assert skill.allowed_tools == names


def test_no_allowed_tools_is_not_an_empty_list_of_them():
    assert parse(front("description: x")).allowed_tools is None


@pytest.mark.parametrize("value", ["1.0", "yes", "2024-01-01", "0x10", "1e5", "off", "12:30"])
def test_a_value_is_text_as_it_is_written(value):
    skill = parse(front(f"description: {value}", f"metadata: {{version: {value!r}, v: {value}}}"))
    assert skill.description == value
    assert skill.metadata == {"version": value, "v": value}


@pytest.mark.parametrize("nothing", ["", "~", "null"])
def test_a_value_that_is_nothing_is_as_if_it_were_not_there(nothing):
    skill = parse(front("description: x", f"model: {nothing}", f"metadata: {nothing}"))
    assert (skill.model, skill.metadata) == (None, {})
    assert refusal(front(f"description: {nothing}")) == (2, "description is empty")


def test_windows_and_a_byte_order_mark_change_nothing():
    text = front("name: coder", "description: Writes code.", body="One.\nTwo.")
    assert parse("\ufeff" + text.replace("\n", "\r\n")) == parse(text)
    assert parse(text.replace("\n", "\r")) == parse(text)


def test_lines_are_counted_as_editors_do():
    assert parse(front("description: a\u2028b\x85c")).description == "a b c"
    assert refusal(front("a: 1\u2028\u2028", "description: [x]"))[0] == 3


def test_keys_that_nobody_knows_are_left_alone():
    skill = parse(front("description: x", "user-invocable: true", "hooks: {a: [b]}"))
    assert skill.description == "x"


def test_metadata_may_be_nested():
    skill = parse(front("description: x", "metadata:", "  tool: {emoji: 🎮, bins: [gh, 1]}"))
    assert skill.metadata == {"tool": {"emoji": "🎮", "bins": ["gh", "1"]}}


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("", 1, "must begin with front matter"),
        ("You are a coder.", 1, "must begin with front matter"),
        ("\n---\ndescription: x\n---", 1, "must begin with front matter"),
        ("---\ndescription: x\n", 1, "not closed"),
        ("---\n---\nBody", 2, "must be keys"),
        (front("- a", "- b"), 2, "must be keys"),
        (front("just text"), 2, "must be keys"),
        (front("name: coder"), 1, "description is missing"),
        (front("name: coder", "description: '  '"), 3, "description is empty"),
        (front("description: [a]"), 2, "description must be a text"),
        (front("a: b", "description:", "  b: c"), 4, "description must be a text"),
        (front("description: x", f"compatibility: {'x' * 501}"), 3, "longer than 500"),
        (front("description: Use it for: this"), 2, "quote a text that has a colon"),
        (front("description: x", "a: [1, 2"), 3, "not valid YAML"),
        (front("description: x", "\tb: 1"), 3, "not valid YAML"),
        (front('description: "x'), 2, "not valid YAML"),
        (front("description: x", "description: y"), 3, "twice"),
        (front("description: x", "? [a]", ": b"), 3, "a key must be a text"),
        (front("description: x", "---extra", "..."), 0, "not valid YAML"),
        (front("description: x", "...", "b: c"), 4, "not valid YAML"),
        (front("description: !!python/object:os.system x"), 2, "tags"),
        (front("description: !x"), 2, "tags"),
        (front("description: &a x", "model: *a"), 2, "aliases"),
        (front("model: *a"), 2, "not valid YAML|aliases"),
        (front('description: "\\ud800"'), 2, "surrogate"),
        (front('description: "\\U99999999"'), 1, "not valid YAML"),
        (front("description: x", "a: \x01"), 3, "control character"),
        (front("description: x", "metadata: text"), 3, "metadata must be keys"),
        (front("description: x", "metadata: [a]"), 3, "metadata must be keys"),
        (front("description: x", "model: [a]"), 3, "model must be a text"),
        (front("description: x", "agents: {a: b}"), 3, "agents must be a text"),
        (front("description: x", "agents: [a, [b]]"), 3, "list of names"),
        (front("description: x", "allowed-tools: [a, '']"), 3, "list of names"),
        (b"---\ndescription: \xff\n---\n", 2, "not UTF-8"),
        (b"---\ndescription: x\n---\n\n\xc3", 5, "not UTF-8"),
        (b"x" * (MAX_FILE_BYTES + 1), 1, "larger than"),
        (front("a: " + "x" * 40_000), 1, "longer than 32,000"),
        (front("a: " + "[" * 1000), 2, "levels deep"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(text, line, reason):
    found_line, found = refusal(text)
    assert any(part in found for part in reason.split("|")), found
    assert line in {0, found_line}


@pytest.mark.parametrize("name", ["", "a b", "-a", "_a", "a.b", "a/b", "x" * 65, "\ud800"])
def test_a_folder_that_has_no_name_for_an_agent_is_refused(name):
    assert "the folder's name" in refusal(front("description: x"), name)[1]


@pytest.mark.parametrize(
    "name", ["a", "agent_builder", "pdf-processing", "Coder2", "prüfer", "研究"]
)
def test_names_that_are_allowed(name):
    assert parse(front(f"name: {name}", "description: x"), name).name == name


def test_aliases_that_would_blow_up_are_refused():
    lines = ["a0: &a0 [x, x]"] + [f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 200)]
    assert "aliases" in refusal(front(*lines))[1]


def test_a_deep_value_within_the_limit_is_read():
    deep = "[" * (MAX_DEPTH - 2) + "]" * (MAX_DEPTH - 2)
    assert parse(front("description: x", f"metadata: {{a: {deep}}}")).metadata["a"]
    assert "levels" in refusal(front("description: x", f"metadata: {{a: [[{deep}]]}}"))[1]


def test_a_link_a_folder_and_nothing_are_no_files(tmp_path):
    (tmp_path / "real.md").write_text(front("description: x"))
    (tmp_path / "link.md").symlink_to(tmp_path / "real.md")
    assert read_skill_file(tmp_path / "real.md", "coder").description == "x"
    for name in ("link.md", "nothing.md", "."):
        with pytest.raises(FrontMatterError, match="cannot be read"):
            read_skill_file(tmp_path / name, "coder")


# Properties


def attempt(text: str | bytes) -> SkillFile | FrontMatterError:
    try:
        return parse(text)
    except FrontMatterError as error:
        return error


plain = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1
)


@given(
    st.binary(max_size=400) | st.text(max_size=400).map(lambda text: text.encode("utf-8", "ignore"))
)
def test_no_content_does_more_than_be_refused(content):
    found = attempt(content)
    if isinstance(found, FrontMatterError):
        assert found.line >= 1
        assert found.reason
    else:
        assert found.description


@given(st.text(alphabet="ab:-[]{}&*!|>'\"%@`#,?\\ \n\t~0x9\u2028\ufeff", max_size=60))
def test_no_front_matter_does_more_than_be_refused(text):
    found = attempt(f"---\ndescription: x\n{text}\n---\nBody")
    if isinstance(found, FrontMatterError):
        assert 1 <= found.line <= text.count("\n") + 5
    else:
        json.dumps(dict(found.metadata), ensure_ascii=False).encode()


@given(
    description=plain.filter(lambda text: text.strip() and len(text) <= 1024),
    model=plain.filter(str.strip),
    metadata=st.dictionaries(plain, plain | st.lists(plain, max_size=3), max_size=4),
    agents=st.lists(
        st.from_regex(r"[a-z][a-z0-9_-]{0,9}", fullmatch=True), unique=True, max_size=4
    ),
    body=plain.filter(lambda text: not text.startswith("---")),
)
def test_what_a_yaml_library_writes_is_read_back(description, model, metadata, agents, body):
    keys = {"description": description, "model": model, "metadata": metadata, "agents": agents}
    written = yaml.safe_dump(keys, allow_unicode=True, default_style='"')
    skill = parse(f"---\n{written}---\n{body}")
    assert skill.description == " ".join(description.split())
    assert skill.model == model.strip()
    assert skill.metadata == metadata
    assert skill.agents == tuple(agents)
    assert skill.system_prompt == (body.strip() or skill.description)
