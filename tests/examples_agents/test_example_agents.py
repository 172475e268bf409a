"""The example agents are valid by every rule, and touch nothing outside their folder."""

from __future__ import annotations

import os

import pytest

from mochi_server.tools.base import ToolFailed
from tests.support.server import ROOT

EXAMPLES = ROOT / "examples" / "data" / "agents"
SECRET = "the secret"

pytestmark = pytest.mark.asyncio(loop_scope="module")

DESTRUCTIVE = {
    "coder": {"write_file", "replace_in_file", "delete_file"},
    "researcher": {"save_note"},
}


async def test_the_reference_library_of_the_format_finds_nothing_wrong():
    validator = pytest.importorskip("skills_ref.validator")
    found = {path.name: validator.validate(path) for path in EXAMPLES.iterdir() if path.is_dir()}
    assert found == {"coder": [], "researcher": []}


async def test_each_example_is_an_agent_without_problems(agents):
    assert sorted(agents) == ["coder", "researcher"]
    for agent in agents.values():
        assert (agent.valid, list(agent.problems)) == (True, [])
        assert len(agent.system_prompt) > 500


async def test_exactly_what_changes_something_is_destructive(agents):
    for name, expected in DESTRUCTIVE.items():
        tools = agents[name].tools
        assert {tool.name for tool in tools.values() if tool.destructive} == expected
        assert {tool.name for tool in tools.values() if tool.sequential} == expected
        assert None not in {tool.destructive for tool in tools.values()}


async def test_every_tool_that_a_prompt_names_is_there(agents):
    for agent in agents.values():
        words = {word.strip("`,.;") for word in agent.system_prompt.split() if word.startswith("`")}
        named = {word for word in words if "/" not in word}
        assert named
        assert named <= set(agent.tools)


@pytest.fixture
def traps(data):
    """Links, a pipe and hidden files in the folders of both agents; where the links lead."""
    outside = data.parent
    (outside / "secret.txt").write_text(SECRET)
    for name in ("workspace", "files"):
        folder = data / name
        folder.mkdir(exist_ok=True)
        (folder / "link.txt").symlink_to(outside / "secret.txt")
        (folder / "out").symlink_to(outside)
        os.mkfifo(folder / "pipe")
        (folder / "large.txt").write_bytes(b"x" * 1_000_001)
        (folder / "binary").write_bytes(b"\xff\0")
    return outside


TRAPS = [
    "../secret.txt",
    "/etc/passwd",
    "a/../../secret.txt",
    "link.txt",
    "out/secret.txt",
    "pipe",
    "a\0b",
    "",
    "large.txt",
    "binary",
    "x" * 5000,
]


@pytest.mark.parametrize("path", TRAPS)
async def test_no_path_leads_a_reader_out(call_of, traps, path):
    for agent, tool in (("coder", "read_file"), ("coder", "check_python")):
        with pytest.raises(ToolFailed) as caught:
            await call_of(agent)(tool, path=path)
        assert str(traps) not in str(caught.value)
    with pytest.raises(ToolFailed) as caught:
        await call_of("researcher")("read_document", path=path)
    assert str(traps) not in str(caught.value)


@pytest.mark.parametrize("path", [path for path in TRAPS if path not in {"large.txt", "binary"}])
async def test_no_path_leads_a_writer_out(call_of, traps, path):
    call = call_of("coder")
    before = sorted(each.name for each in traps.iterdir())
    for tool, more in (
        ("write_file", {"content": "x", "overwrite": True}),
        ("replace_in_file", {"old": SECRET, "new": "x"}),
        ("delete_file", {}),
    ):
        with pytest.raises(ToolFailed):
            await call(tool, path=path, **more)
    assert (traps / "secret.txt").read_text() == SECRET
    assert sorted(each.name for each in traps.iterdir()) == before


async def test_searching_shows_nothing_behind_a_link(call_of, traps):
    assert SECRET not in await call_of("coder")("search_files", text="secret")
    assert SECRET not in await call_of("researcher")("search_documents", words="secret")
    assert "link.txt" not in await call_of("coder")("list_files")
    assert "link.txt" not in await call_of("researcher")("list_documents")


# The coder

PROGRAM = "def add(a, b):\n    return a - b\n\n\nprint(add(1, 2))\n"


async def test_the_coder_writes_reads_corrects_checks_and_deletes(call_of, data):
    call = call_of("coder")
    assert await call("list_files") == "There are no files."
    assert await call("write_file", path="src/add.py", content=PROGRAM) == (
        "Wrote 6 lines to src/add.py."
    )
    assert await call("list_files") == "src/add.py"
    assert (await call("read_file", path="src/add.py")).splitlines()[1] == "   2|     return a - b"
    assert await call("search_files", text="a - b") == "src/add.py:2: return a - b"
    replaced = await call("replace_in_file", path="src/add.py", old="a - b", new="a + b")
    assert replaced == "Replaced the text at line 2 of src/add.py."
    assert (data / "workspace" / "src" / "add.py").read_text() == PROGRAM.replace("-", "+")
    assert await call("check_python", path="src/add.py") == "The syntax is correct."
    assert await call("delete_file", path="src/add.py") == "Deleted src/add.py."
    assert await call("list_files") == "There are no files."


async def test_the_coder_replaces_only_what_is_there_once(call_of):
    call = call_of("coder")
    await call("write_file", path="a.txt", content="one two two")
    for old, how in (("two", "2 times"), ("three", "not in the file"), ("", "not in the file")):
        with pytest.raises(ToolFailed, match=how):
            await call("replace_in_file", path="a.txt", old=old, new="x")
    assert await call("read_file", path="a.txt") == "   1| one two two"


async def test_the_coder_replaces_a_file_only_when_told_to(call_of, data):
    call = call_of("coder")
    await call("write_file", path="run.sh", content="one")
    (data / "workspace" / "run.sh").chmod(0o750)
    with pytest.raises(ToolFailed, match="'overwrite'"):
        await call("write_file", path="run.sh", content="two")
    await call("write_file", path="run.sh", content="two", overwrite=True)
    assert (data / "workspace" / "run.sh").read_text() == "two"
    assert (data / "workspace" / "run.sh").stat().st_mode & 0o777 == 0o750
    assert [path.name for path in (data / "workspace").iterdir()] == ["run.sh"]


async def test_the_coder_keeps_the_ends_of_lines(call_of, data):
    (data / "workspace").mkdir()
    (data / "workspace" / "dos.txt").write_bytes(b"one\r\ntwo\r\n")
    await call_of("coder")("replace_in_file", path="dos.txt", old="two", new="three")
    assert (data / "workspace" / "dos.txt").read_bytes() == b"one\r\nthree\r\n"


async def test_the_coder_reads_a_long_file_in_parts(call_of):
    call = call_of("coder")
    await call("write_file", path="long.txt", content="\n".join(map(str, range(1, 501))))
    first = (await call("read_file", path="long.txt")).splitlines()
    assert first[-1] == "[500 lines in all; read further with first_line=401.]"
    rest = (await call("read_file", path="long.txt", first_line=401)).splitlines()
    assert (rest[0], rest[-1], len(rest)) == (" 401| 401", " 500| 500", 100)
    assert await call("read_file", path="long.txt", first_line=501) == (
        "The file has only 500 lines."
    )


@pytest.mark.parametrize(
    ("source", "said"),
    [("def (:\n", "Line 1: "), ("x = 1\n  y = 2\n", "Line 2: "), ("\0", "null bytes")],
)
async def test_the_coder_is_told_what_is_no_python(call_of, source, said):
    call = call_of("coder")
    await call("write_file", path="a.py", content=source)
    assert said in await call("check_python", path="a.py")


# The researcher


async def test_the_researcher_finds_reads_and_keeps(call_of, data):
    call = call_of("researcher")
    (data / "files" / "plans.md").write_text("In May we visit\nParis.", "utf-8")
    assert "plans.md (22 bytes)" in (await call("list_documents")).splitlines()
    assert await call("search_documents", words="PARIS") == (
        "plans.md, at 0: In May we visit Paris."
    )
    assert await call("search_documents", words="London") == "No document has 'London' in it."
    assert await call("read_document", path="plans.md") == "In May we visit\nParis."
    assert await call("save_note", title="Trips: May!", text="Paris (plans.md)") == (
        "Kept as notes/trips-may.md."
    )
    assert await call("save_note", title="Trips May", text="again") == (
        "Kept as notes/trips-may-2.md."
    )
    note = (await call("read_document", path="notes/trips-may.md")).splitlines()
    assert (note[0], note[-1]) == ("# Trips: May!", "Paris (plans.md)")


async def test_the_researcher_reads_a_long_document_in_parts(call_of, data):
    call = call_of("researcher")
    (data / "files" / "long.txt").write_text("é" * 12_000 + "end", "utf-8")
    assert (await call("read_document", path="long.txt")).endswith("start=12000.]")
    assert await call("read_document", path="long.txt", start=12_000) == "end"


async def test_the_researcher_reads_how_to_write_a_report(call_of):
    report = await call_of("researcher")("read_skill_file", path="references/report.md")
    assert report.startswith("# The form of a report")


async def test_a_note_is_not_written_through_a_link(call_of, data, tmp_path):
    (data / "files" / "notes").symlink_to(tmp_path)
    with pytest.raises(ToolFailed, match="leads through a link"):
        await call_of("researcher")("save_note", title="x", text="y")
    assert not (tmp_path / "x.md").exists()
