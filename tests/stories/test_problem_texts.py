"""What is wrong in a file that somebody wrote is said in that person's words, not in Python's."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mochi_server.chat.rules.rule import read_rules
from mochi_server.core.front_matter import FrontMatterError
from mochi_server.core.tokens import AccessTokenFile, TokensUnusable
from mochi_server.services.models.preset_file import read_preset_file
from mochi_server.sessions.versions import NotMetadata, read_metadata
from mochi_server.testmode.script import END, START, BadScript, script_in
from mochi_server.tools.mcp.config.entry import read_entry

PYTHON = re.compile(
    r"instance of|dictionary|\bto extract\b|Value error|\b[Tt]uple\b|keyword argument|\w\["
    r"|\b_?[A-Z]\w*[a-z][A-Z]\w*"
)
"""Words for programmers, and names of classes."""

TOOL = {"tool": "a", "action": "deny"}
TOKEN = {"name": "eve", "sha256": "0" * 64, "rights": ["admin"]}
HEAD = {"session_id": "one", "model": "m", "format_version": "1.1"}


def of_rules(value: Any, folder: Path) -> str | None:
    return read_rules(value).problem


def of_tokens(value: Any, folder: Path) -> str:
    path = folder / "tokens.json"
    path.write_text(json.dumps(value))
    path.chmod(0o600)
    with pytest.raises(TokensUnusable) as problem:
        AccessTokenFile(path, folder).load()
    return str(problem.value)


def of_mcp_servers(value: Any, folder: Path) -> str:
    with pytest.raises(ValueError, match=r"\w") as problem:
        read_entry("files", value, folder, {})
    return str(problem.value)


def of_presets(value: Any, folder: Path) -> str:
    path = folder / "short.md"
    path.write_text(f"---\n{value}\n---\n")
    with pytest.raises(FrontMatterError) as problem:
        read_preset_file(path)
    return str(problem.value)


def of_sessions(value: Any, folder: Path) -> str:
    with pytest.raises(NotMetadata) as problem:
        read_metadata(value)
    return str(problem.value)


def of_scripts(value: Any, folder: Path) -> str:
    with pytest.raises(BadScript) as problem:
        script_in(f"{START}{json.dumps(value)}{END}")
    return str(problem.value)


READERS: dict[Callable[[Any, Path], str | None], list[Any]] = {
    of_rules: [
        {}, [1], [{**TOOL, "arguments": [1]}], [{**TOOL, "tool": "a*"}], [{**TOOL, "action": {}}],
        [{**TOOL, "x": 1}],
    ],
    of_tokens: [
        [], {"tokens": {}}, {"tokens": [1]}, {"tokens": [{**TOKEN, "name": "token"}]},
        {"tokens": [{**TOKEN, "rights": "admin"}]}, {"tokens": [{**TOKEN, "rights": []}]},
    ],
    of_mcp_servers: [
        [], {"command": "x", "env": []}, {"command": "x", "mochi": 1},
        {"command": "x", "mochi": {"tools": 1}}, {"command": "x", "url": "http://a/"},
    ],
    of_presets: [
        "model: m\noptions:\n  extra: 1", "model: m\noptions:\n  extra:\n    openai: 1",
        "model: m\nthink: much", "model: preset/a", "model: m\noptions:\n  stop:\n    a: 1",
    ],
    of_sessions: [
        {**HEAD, "tool_settings": 1}, {**HEAD, "agent_settings": []}, {**HEAD, "summary": 1},
        {**HEAD, "context_window_config": "x"},
    ],
    of_scripts: [[], {"messages": [1]}, {"messages": [{"text_message": 5}]}],
}  # fmt: skip


@pytest.mark.parametrize(
    ("read", "value"),
    [
        pytest.param(read, value, id=f"{read.__name__} {value}"[:70])
        for read, values in READERS.items()
        for value in values
    ],
)
def test_a_problem_is_said_without_words_of_python(
    read: Callable[[Any, Path], str | None], value: Any, tmp_path: Path
):
    text = read(value, tmp_path)
    assert text
    assert not PYTHON.search(text), text


def test_a_key_that_looks_like_a_type_is_named():
    assert "x[y]" in str(read_rules([{**TOOL, "x[y]": 1}]).problem)


def test_rules_of_another_form_are_told_what_they_must_be():
    form = 'the rules must be a list of objects, each with "tool" and "action"'
    assert read_rules({}).problem == read_rules([TOOL, 1]).problem == form
