"""Rules that decide about calls."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from mochi_server.chat.rules import rule as rule_module
from mochi_server.chat.rules.rule import (
    CallFacts,
    CallRule,
    RuleFile,
    RuleMatch,
    RuleSet,
    match_rules,
    read_rules,
    rule_of,
)
from mochi_server.errors import ConfirmationUnavailable
from tests.support.disk import full_disk, no_more_files


def rule(action: Any = "allow", **fields: Any) -> CallRule:
    return CallRule(**{"tool": "write", "action": action, **fields})


def applied(*given: CallRule, **arguments: Any) -> RuleMatch | None:
    tool, source = arguments.pop("tool", "write"), arguments.pop("source", "directory")
    session_id = arguments.pop("session_id", "one")
    return match_rules([RuleSet(given)], CallFacts(tool, arguments, source, session_id))


def action(*given: CallRule, **arguments: Any) -> str | None:
    match = applied(*given, **arguments)
    return None if match is None else match.action


def test_deny_wins_over_ask_and_ask_over_allow():
    allow, ask, deny = rule("allow"), rule("ask"), rule("deny")
    assert applied(allow, ask, deny) == RuleMatch("deny", deny)
    assert applied(allow, ask) == RuleMatch("ask", ask)
    assert applied(allow) == RuleMatch("allow", allow)
    assert applied() is None
    assert applied(allow, tool="read") is None


def test_a_rule_may_be_of_any_tool_of_one_source_or_of_one_session():
    assert action(rule("deny", tool="*"), tool="read") == "deny"
    assert action(rule("allow", tool_source="mcp:x"), source="mcp:x") == "allow"
    assert action(rule("allow", tool_source="mcp:x")) is None
    assert action(rule("allow", session_id="one")) == "allow"
    assert action(rule("allow", session_id="two")) is None


def test_the_case_of_a_tool_matters_to_who_allows():
    assert action(rule("allow", tool="Write")) is None
    assert action(rule("deny", tool="Write")) == "deny"
    assert action(rule("ask", tool="Write")) == "ask"


@pytest.mark.parametrize(
    "arguments", [{}, {"path": None}, {"path": 5}, {"path": ["notes/a"]}, {"path": {"a": "b"}}]
)
def test_what_is_no_text_or_is_missing_is_a_doubt(arguments: dict[str, Any]):
    patterns = {"path": "notes/*"}
    assert action(rule("allow", arguments=patterns), **arguments) is None
    assert action(rule("ask", arguments=patterns), **arguments) == "ask"
    assert action(rule("deny", arguments=patterns), **arguments) == "deny"


@pytest.mark.parametrize(
    ("value", "pattern"),
    [
        (5, "5"),
        (False, "false"),
        (None, "null"),
        (["a/b", 1], '[[]"a/b", 1[]]'),
        ({"é": "?"}, '[{]"é": "[?]"[}]'),
    ],
)
def test_what_is_no_text_is_allowed_where_the_pattern_is_all_of_its_json(value: Any, pattern: str):
    assert action(rule("allow", arguments={"n": pattern}), n=value) == "allow"
    for other in (6, True, "x", ["a"], {}, [value]):
        assert action(rule("allow", arguments={"n": pattern}), n=other) is None
    assert action(rule("allow", arguments={"n": pattern})) == ("allow" if value is None else None)
    assert action(rule("deny", arguments={"n": "other"}), n=value) == "deny"


def test_all_patterns_must_fit():
    patterns = {"path": "notes/*", "mode": "append"}
    allow, deny = rule("allow", arguments=patterns), rule("deny", arguments=patterns)
    assert action(allow, path="notes/a", mode="append", text="x") == "allow"
    assert action(allow, path="notes/a", mode="replace") is None
    assert action(deny, path="notes/a", mode="APPEND") == "deny"
    assert action(deny, path="notes/a", mode="replace") is None
    assert action(allow, path="notes/../x", mode="append") is None


def test_rules_that_cannot_be_read_make_every_call_a_question():
    broken = RuleSet(problem="no JSON")
    good = RuleSet((rule("allow"), rule("deny", tool="rm")))
    for tool, expected in {"write": "ask", "read": "ask", "rm": "deny"}.items():
        match = match_rules([good, broken], CallFacts(tool, {}, "directory"))
        assert match is not None
        assert match.action == expected


@pytest.mark.parametrize(
    "stored",
    [
        {},
        "text",
        [1],
        [{}],
        [{"tool": "a"}],
        [{"tool": "a", "action": "permit"}],
        [{"tool": "a", "action": "allow", "argument": {"path": "x"}}],
        [{"tool": "a", "action": "allow", "arguments": {"path": 1}}],
        [{"tool": "a", "action": "allow", "arguments": {"path": "{a,b}"}}],
        [{"tool": 1, "action": "allow"}],
        [{"tool": "", "action": "deny"}],
        [{"tool": "sh*", "action": "deny"}],
        [{"tool": "**", "action": "deny"}],
        [{"tool": "sh ", "action": "deny"}],
        [{"tool": "a", "action": "deny"}, {"tool": "a"}],
        None,
    ],
)
def test_a_rule_that_is_not_understood_is_a_problem(stored: Any):
    rule_set = read_rules(stored)
    assert rule_set.rules == ()
    assert rule_set.problem


def test_a_rule_without_id_has_always_the_same():
    [first] = read_rules([{"tool": "a", "action": "deny"}]).rules
    [again] = read_rules([{"tool": "a", "action": "deny"}]).rules
    [other] = read_rules([{"tool": "b", "action": "deny"}]).rules
    assert first == again
    assert first.id.startswith("rule_")
    assert first.id != other.id
    assert read_rules([first.payload()]).rules == (first,)


def test_an_approval_is_remembered_as_a_rule_that_would_have_allowed_it():
    asked = CallFacts("write", {"path": "notes/a", "n": 1}, "directory", "one")
    details: Any = {"created_at": "2026", "created_by": "me"}
    made = rule_of(asked, {"path": "notes/*"}, **details)
    assert action(made, path="notes/b") == "allow"
    assert action(made, path="notes/b", source="mcp:x") is None
    assert action(made, path="notes/b", session_id="two") is None
    assert action(rule_of(asked, {"n": "1"}, **details), n=1) == "allow"
    for patterns in ({"path": "other/*"}, {"n": "2"}, {"missing": "*"}, {"path": "[a"}):
        with pytest.raises(ValueError, match="pattern"):
            rule_of(asked, patterns, **details)


async def add(file: RuleFile, rule: CallRule) -> None:
    async with file.adding(rule):
        pass


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "policies.json"


async def test_rules_are_kept_in_a_file_that_people_can_read(path: Path):
    file = RuleFile(path)
    assert await file.load() == RuleSet()
    first, second = rule("allow", arguments={"path": "é/*"}), rule("deny")
    await add(file, first)
    await add(file, second)
    assert await RuleFile(path).load() == await file.load() == RuleSet((first, second))
    assert '"path": "é/*"' in path.read_text()
    assert json.loads(path.read_text())[1] == second.payload()
    assert await file.remove(first.id)
    assert not await file.remove(first.id)
    assert await file.load() == RuleSet((second,))


async def test_a_rule_holds_when_what_is_done_meanwhile_is_done(path: Path):
    file = RuleFile(path)
    waiting, by_hand = rule("allow", waits_for="conf_1"), rule("deny")
    async with file.adding(waiting):
        assert await RuleFile(path).load() == RuleSet((waiting,))
        assert (await file.load()).holding(()).rules == ()
        assert (await file.load()).holding({waiting.id}).rules == (waiting,)
        path.write_text(json.dumps([waiting.payload(), by_hand.payload()]))
    rules = (await RuleFile(path).load()).rules
    assert rules == (replace(waiting, waits_for=None), by_hand)
    assert RuleSet(rules).holding(()).rules == rules


async def test_a_change_by_hand_is_noticed(path: Path):
    file = RuleFile(path)
    await add(file, rule("allow"))
    os.utime(path, (1, 1))
    assert len((await file.load()).rules) == 1
    path.write_text("[]")
    assert await file.load() == RuleSet()
    path.unlink()
    assert await file.load() == RuleSet()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[",
        "{}",
        "[" * 100_000,
        '[{"tool": "a", "action": "deny", "action": "allow"}]',
        "[]" + " " * 1_000_000,
        "\xff",
        r'[{"tool": "\ud800", "action": "deny"}]',
        r'[{"tool": "a", "action": "deny", "\ud800": 1}]',
    ],
)
async def test_a_file_that_is_not_understood_stays_as_it_is(path: Path, text: str):
    path.parent.mkdir()
    path.write_bytes(text.encode("latin-1"))
    file = RuleFile(path)
    problem = (await file.load()).problem
    assert problem
    assert "policies.json" in problem
    problem.encode()  # as responses do
    with pytest.raises(ConfirmationUnavailable, match=r"policies\.json"):
        await add(file, rule())
    with pytest.raises(ConfirmationUnavailable):
        await file.remove("rule_1")
    assert path.read_bytes() == text.encode("latin-1")


async def test_rules_hold_again_after_a_moment_without_free_files(path: Path):
    file = RuleFile(path)
    await add(file, rule("deny"))
    with no_more_files(path):
        assert (await RuleFile(path).load()).problem
        assert (await file.load()).problem
    assert await file.load() == RuleSet((rule("deny"),))


async def test_a_file_that_cannot_be_read_makes_every_call_a_question(path: Path):
    path.mkdir(parents=True)
    assert (await RuleFile(path).load()).problem
    path.rmdir()
    path.symlink_to("elsewhere.json")
    assert (await RuleFile(path).load()).problem
    path.unlink()
    path.parent.rmdir()
    path.parent.touch()
    assert (await RuleFile(path).load()).problem
    with pytest.raises(ConfirmationUnavailable):
        await add(RuleFile(path), rule())


@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize("there", [True, False])
async def test_a_rule_is_taken_back_also_where_nothing_can_be_written(
    path: Path, monkeypatch: pytest.MonkeyPatch, *, there: bool, links: bool
):
    def no_links(*_: Any) -> None:
        raise OSError(errno.EPERM, "no links")

    if not links:
        monkeypatch.setattr(os, "link", no_links)
    file = RuleFile(path)
    if there:
        await add(file, rule("deny"))
        path.chmod(0o640)
    before = await file.load()
    with pytest.raises(KeyError), ExitStack() as then:  # noqa: PT012 - it fails within
        async with file.adding(rule("allow")):
            assert len((await file.load()).rules) == len(before.rules) + 1
            then.enter_context(full_disk())
            raise KeyError
    assert await file.load() == await RuleFile(path).load() == before
    assert path.exists() == there
    if there:
        assert path.stat().st_mode & 0o777 == 0o640
    assert {each.name for each in path.parent.iterdir()} <= {path.name, ".policies.json.lock"}


async def test_a_file_never_grows_beyond_what_is_read(path: Path, monkeypatch: pytest.MonkeyPatch):
    file = RuleFile(path)
    await add(file, rule("deny"))
    content = path.read_bytes()
    monkeypatch.setattr(rule_module, "MAX_BYTES", len(content) + 50)
    with pytest.raises(ConfirmationUnavailable, match="more than"):
        await add(file, rule("allow"))
    assert path.read_bytes() == content
    assert (await file.load()).problem is None


async def test_rules_that_are_added_at_once_wait_for_each_other(path: Path):
    file = RuleFile(path)

    async def add_slowly(tool: str) -> None:
        async with file.adding(rule(tool=tool)):
            await RuleFile(path).load()  # in a thread, as decisions are stored

    with anyio.fail_after(30):
        await asyncio.gather(*(add_slowly(f"tool_{number}") for number in range(30)))
    assert len((await file.load()).rules) == 30


def test_no_rule_is_lost_when_several_processes_add(path: Path):
    script = (
        "import asyncio, sys\nfrom pathlib import Path\n"
        "from mochi_server.chat.rules.rule import CallRule, RuleFile\n"
        "async def add(file, rule):\n"
        "    async with file.adding(rule):\n"
        "        pass\n"
        "async def main():\n"
        "    file = RuleFile(Path(sys.argv[1]))\n"
        "    rules = [CallRule(tool=sys.argv[2] + str(n), action='ask') for n in range(10)]\n"
        "    await asyncio.gather(*(add(file, rule) for rule in rules))\n"
        "asyncio.run(main())\n"
    )
    processes = [subprocess.Popen([sys.executable, "-c", script, str(path), name]) for name in "ab"]
    for process in processes:
        assert process.wait() == 0
    names = {each.tool for each in asyncio.run(RuleFile(path).load()).rules}
    assert names == {f"{name}{number}" for name in "ab" for number in range(10)}
