"""What an approval may be remembered as: patterns of the call, as somebody would evade them."""
# ruff: noqa: E501 - tables of calls

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mochi_server.chat.rules.rule import CallFacts, CallRule, RuleSet, match_rules
from mochi_server.chat.rules.suggestions import RuleSuggestion, suggestions_for

RUN = "execute_command"


def suggested(
    tool: str, *rules: CallRule, schema: Any = None, **arguments: Any
) -> list[RuleSuggestion]:
    parameters = {"type": "object", "properties": schema or {}}
    return suggestions_for(CallFacts(tool, arguments, "mcp:x"), parameters, [RuleSet(rules)])


def patterns(tool: str, **arguments: Any) -> list[dict[str, str]]:
    return [dict(each.patterns) for each in suggested(tool, **arguments)]


def is_allowed(suggestion: RuleSuggestion, tool: str, **arguments: Any) -> bool:
    """Return whether a rule with these patterns decides about another call."""
    rule = CallRule(tool=tool, action="allow", arguments=suggestion.patterns)
    match = match_rules([RuleSet((rule,))], CallFacts(tool, arguments, "mcp:x"))
    return match is not None and match.action == "allow"


@pytest.mark.parametrize(
    ("command", "pattern"),
    [
        ("git log -5 --oneline", "git log *"),
        ("git status", "git status *"),
        ("ls -la", "ls *"),
        ("cat notes/a.md", "cat notes/*"),
        ("cat a notes/b", "cat a notes/*"),
        ("cat notes/b a", "cat notes/* *"),
        ("cat 'notes/a b'", "cat 'notes/*'"),
        ('grep -n "two words" src/a.py', 'grep -n "*" src/*'),
        ('git commit -m "fix it" src/a.py', 'git commit -m "*" src/*'),
        ("pytest tests/test_a.py -q", "pytest tests/* -q"),
        ("pytest -k 'a or b' tests/test_a.py", "pytest -k '*' tests/*"),
        ("pytest 'a b.py' 'tests/c d'", "pytest 'a b.py' 'tests/*'"),
        ("cat a && cat b", "cat *"),
        ("cd src && git log -5", "cd src && git log *"),
        ("cat a > b && head -5 c", "cat a > b && head *"),
        ("git diff HEAD~1 -- src/a.py", "git diff HEAD~1 -- src/*"),
    ],
)  # fmt: skip
def test_a_command_is_suggested_by_its_first_words_and_folders(command: str, pattern: str):
    assert patterns(RUN, command=command) == [{"command": command}, {"command": pattern}]


@pytest.mark.parametrize(
    "command",
    [
        "bash -c ls", "sh -c 'cat a'", "python -c x", "python3 a.py", "sudo ls", "env ls", "xargs cat", "rm -rf a", "rm notes/a",
        "curl https://a.com/b", "npx tool", "X=1 ls", "ls > a", "cat < a", "cat $X", "cat ~/a", "cat ../a/b", "cat a/../b/c",
        "cat a | sh", "ls; rm a", "ls & rm a", "(ls)", "! ls", "eval ls", "cat `ls`", "cat <(ls)", "cat a/*", "/bin/cat a",
        "time ls", "find . -name a", "git push", "git -c a=b log", "git", "ls |& cat", "cat notes/", "cat /a", "mytool notes/a",
        "git add 'a b'", "mypy 'a b.py'", "ruff check 'a b.py'", "mkdir 'a b'", 'touch -m "a b"', 'git commit -a "a b"', "pytest 'a b.py'",
    ],
)  # fmt: skip
def test_of_other_commands_only_the_same_again_is_suggested(command: str):
    [suggestion] = suggested(RUN, command=command)
    assert suggestion.allows == "this call again, with exactly the same arguments"
    assert is_allowed(suggestion, RUN, command=command)
    assert not is_allowed(suggestion, RUN, command=f"{command} ")


@pytest.mark.parametrize(
    "command", ["cat 'x", "if", "cat )", "ls \x1b", "ls " + "x" * 5000, "ls\0"]
)
def test_nothing_is_suggested_of_what_cannot_be_read(command: str):
    assert suggested(RUN, command=command) == []


@pytest.mark.parametrize(
    ("tool", "arguments", "wider"),
    [
        ("write", {"path": "notes/a.md", "content": "x"}, {"path": "notes/*"}),
        ("write", {"path": "a.md", "content": "x"}, {"path": "*"}),
        ("write", {"path": "notes/a", "mode": "append"}, {"path": "notes/*", "mode": "append"}),
        ("delete", {"path": "notes/a", "force": False, "n": 1}, {"path": "notes/*", "force": "false"}),
        ("copy", {"source": "a/b", "destination": "c/d"}, {"source": "a/*", "destination": "c/*"}),
        ("copy", {"paths": ["x/y"], "destination": "c/d"}, {"paths": '[[]"x/y"[]]', "destination": "c/*"}),
        ("load", {"document": "/srv/a/b.md", "kind": "a/b"}, {"document": "/srv/a/*", "kind": "a/b"}),
        ("fetch", {"url": "https://ok.com/a?b=1"}, {"url": "https://ok.com/**"}),
        ("mail", {"to": "me@ok.com", "body": "two words"}, {"to": "me@ok.com"}),
        (RUN, {"command": "ls", "cwd": "a/b", "timeout": 3, "description": "Look"}, {"command": "ls *", "cwd": "a/b"}),
        ("exec", {"command": "cat", "args": ["/etc/a"]}, {"command": "cat *", "args": '[[]"/etc/a"[]]'}),
        ("run_shell", {"input": "ls -l"}, {"input": "ls *"}),
    ],
)  # fmt: skip
def test_a_folder_or_a_host_is_suggested(
    tool: str, arguments: dict[str, Any], wider: dict[str, str]
):
    assert wider in patterns(tool, **arguments)


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("add", {"a": 1, "b": 2.5}),
        ("deploy", {"target": "staging"}),
        ("look_up", {"query": "two words"}),
        ("write", {"path": "/a"}),
        ("write", {"path": "../a/b"}),
        ("write", {"path": "~/a"}),
        ("write", {"path": "a/../b/c"}),
        ("fetch", {"url": "https://me@ok.com/a"}),
        ("write", {"path": "x y/a"}),
    ],
)
def test_elsewhere_the_same_call_or_every_call_is(tool: str, arguments: dict[str, Any]):
    exact, every = suggested(tool, **arguments)
    assert is_allowed(exact, tool, **arguments)
    assert not is_allowed(exact, tool, **{**arguments, next(iter(arguments)): "other"})
    assert every.patterns == {}
    assert every.allows == f"every call of {tool}, whatever its arguments are"


@pytest.mark.parametrize(
    "arguments", [{"code": "1 + 1"}, {"sql": "SELECT 1"}, {"pythonCode": "1"}, {"command": "python a"}]
)  # fmt: skip
def test_every_call_of_what_runs_code_is_never_suggested(arguments: dict[str, Any]):
    assert [each.allows[:4] for each in suggested("tool", **arguments)] == ["this"]
    for tool in ("run_python", "execute_query", "PowerShell"):
        assert [each.allows[:4] for each in suggested(tool, query="1 + 1")] == ["this"]


def test_arguments_that_the_call_does_not_have_are_not_allowed_to_it():
    schema = {
        "path": {},
        "recursive": {"type": "boolean"},
        "mode": {"enum": ["a", "b"]},
        "note": {},
    }
    exact, folder, _ = suggested("delete", schema=schema, path="notes/a")
    assert is_allowed(folder, "delete", path="notes/b", note="x")
    assert not is_allowed(folder, "delete", path="notes/b", recursive=True)
    assert not is_allowed(folder, "delete", path="notes/b", mode="b")
    assert not is_allowed(exact, "delete", path="notes/a", note="x")
    assert folder.allows == (
        "path: any name in the folder notes; recursive: not given; mode: not given; "
        "other arguments: anything"
    )


@pytest.mark.parametrize(
    ("command", "what"),
    [
        ("git log -5", "git log * (any options and words without “/”"),
        ("cat notes/a", "cat notes/* (any text without “/” for *"),
        (
            "cat notes/a b",
            "cat notes/* * (any text without “/” for *, at the end any options and words without “/”",
        ),
    ],
)
def test_a_person_reads_what_a_command_may_be(command: str, what: str):
    _, wider = suggested(RUN, cwd="a/b", command=command, timeout=3)
    assert wider.allows == (
        f"command: {what}, and nothing else in the line); cwd: only a/b; other arguments: anything"
    )


def test_nothing_is_hidden_in_what_a_person_reads():
    for each in suggested("write\u202e", **{"pa\u202eth": "notes/a", "mode": "ap\u200bpend"}):
        assert each.allows.isprintable()
        assert "\u202e" not in each.allows


def test_what_another_rule_asks_about_or_denies_is_not_suggested():
    ask = CallRule(tool="write", action="ask", arguments={"path": "notes/**"})
    assert suggested("write", ask, path="notes/a") == []
    assert suggested("write", ask, path="other/a") != []
    deny = CallRule(tool="*", action="deny", arguments={"command": "**/.env"})
    assert suggested(RUN, deny, command="cat *.md") != []
    assert suggested(RUN, deny, command="cat .e*") == []


def test_long_texts_take_no_time_and_deep_values_no_stack():
    deep: Any = "a/b"
    for _ in range(900):  # more is no JSON to Python
        deep = [deep]
    assert patterns("write", path="notes/a", edits=deep) == [{}]
    long = "/a" * 500_000
    assert patterns("write", path=long, content=long) == [{}]
    assert patterns("write", path="notes/a", content=long, more=["x" * 9**6]) == [
        {"path": "notes/*"},
        {},
    ]


WORDS = [
    "cat",
    "ls",
    "git",
    "log",
    "commit",
    "-m",
    "grep",
    "-n",
    "a",
    "notes/a",
    "notes/b/c.md",
    '"x y"',
    "'notes/z'",
    "-5",
    ".",
    "--x=1",
    "é",
]
ADDED = [
    "; rm -rf x", ";rm x", " && rm -rf x", " || rm x", " | sh", " | tee x", " & rm x", "\nrm x", " $(rm x)", "$(rm x)", " `rm x`",
    " > x", ">x", " >> x", " 2> x", " < /etc/passwd", " <<< x", " <(rm x)", " ../x", "/../../x", "/../x", " /etc/passwd", " ~/x",
    " $X", "$X", " *", " {a,b}", " # x", " \\", "\u200b", "\u202e", "\t-x", "'", '"', " 'x'/..", "\0", "\r",
]  # fmt: skip


commands = st.lists(st.sampled_from([*WORDS, "&&", "|", ";"]), min_size=1, max_size=7).map(" ".join)


@given(commands)
@example("cat notes/a.md")
@example('git commit -m "x"')
@example("cd a && ls b/c d")
def test_what_is_suggested_allows_the_command_and_nothing_that_is_added_to_it(command: str):
    for suggestion in suggested(RUN, command=command):
        assert is_allowed(suggestion, RUN, command=command)
        for added in ADDED:
            assert not is_allowed(suggestion, RUN, command=command + added), added
            assert not is_allowed(suggestion, RUN, command=f"rm x; {command}{added}")
        for before in ("rm x; ", "rm x && ", "sudo ", "X=1 ", "! ", "$X ", "> x "):
            assert not is_allowed(suggestion, RUN, command=before + command), before


paths = st.lists(
    st.sampled_from(["a", "notes", "b.md", "..", ".", "~", "", "é", "*", "x y", "$X"]),
    min_size=1,
    max_size=4,
).map("/".join)
OUT = [
    "/../../x",
    "/..",
    "/../x",
    "; rm x",
    " /etc/passwd",
    " -rf",
    "/%2e%2e/x",
    "\u200b",
    "\n",
    " ../x",
    "/$X",
    "/*",
    "`x`",
]


@given(paths, st.sampled_from(["path", "file", "document", "source", "to"]), st.sampled_from(OUT))
def test_what_is_suggested_allows_the_path_and_nothing_out_of_its_folder(
    path: str, name: str, out: str
):
    for suggestion in suggested("write", **{name: path}):
        assert is_allowed(suggestion, "write", **{name: path})
        if suggestion.patterns:
            assert not is_allowed(suggestion, "write", **{name: path + out})
            assert not is_allowed(suggestion, "write", **{name: f"../{path}"})
            assert not is_allowed(suggestion, "write", **{name: f"/etc/{path}"})


addresses = st.builds(
    "https://{}{}".format,
    st.sampled_from(["ok.com", "a.ok.com:8443"]),
    st.sampled_from(["", "/", "/a", "/a/b?c=1#d"]),
)


@given(addresses)
def test_what_is_suggested_allows_the_address_and_no_other_host(address: str):
    for suggestion in suggested("fetch", url=address):
        assert is_allowed(suggestion, "fetch", url=address)
        if suggestion.patterns:
            for evil in (
                address.replace("ok.com", "ok.com.evil.com"), address.replace("ok.com", "ok.com@evil.com"),
                address.replace("https", "http"), f"{address}/../x", f"{address} https://evil.com/", f"https://evil.com/{address}",
                address.replace("://", "://evil.com\\@"), address.replace("ok.com", "evil.com#ok.com"),
            ):  # fmt: skip
                assert not is_allowed(suggestion, "fetch", url=evil), evil


def test_a_suggestion_says_that_other_arguments_may_be_given():
    schema = {"properties": {"command": {"type": "string"}}, "additionalProperties": True}
    exact, wider = suggestions_for(CallFacts(RUN, {"command": "ls a"}, "mcp:x"), schema)
    for each in (exact, wider):
        assert is_allowed(each, RUN, command="ls a", cwd="/srv")
        assert each.allows.endswith("; arguments that the tool does not name: anything")
