"""Files that people write: a byte order mark is no part of them, other encodings are named."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from mochi_server.agents.file_tools import _text
from mochi_server.agents.prompt_loader import PromptLoader
from mochi_server.agents.skill_file import read_skill_file
from mochi_server.chat.rules.rule import RuleFile
from mochi_server.config import SettingsError, load_settings
from mochi_server.core.front_matter import FrontMatterError
from mochi_server.core.tokens import AccessTokenFile, TokensUnusable
from mochi_server.errors import PromptInvalid
from mochi_server.services.models.presets import PresetService
from mochi_server.services.system_prompts import SystemPromptService
from mochi_server.tools.base import ToolFailed
from mochi_server.tools.mcp.config.file import McpConfigFile

Read = Callable[[Path], Awaitable[str]]
"""Returns what a file in this folder says, or the text of the problem that people see."""

READERS: dict[str, tuple[str, str, Read]] = {}
"""By the kind of file: its name, a content with the text ``Grüße``, and how it is read."""


def kind(name: str, content: str) -> Callable[[Read], Read]:
    def add(read: Read) -> Read:
        READERS[read.__name__] = (name, content, read)
        return read

    return add


@kind("helpful.md", "Grüße")
async def prompt(folder: Path) -> str:
    service = SystemPromptService(folder)
    listing = await service.list()
    if not listing.problems:
        assert listing.prompts[0].preview == "Grüße"
        return await service.read("helpful.md")
    assert listing.prompts == []
    with pytest.raises(PromptInvalid) as raised:
        await service.read("helpful.md")
    assert listing.problems[0].reason in raised.value.message
    return raised.value.message


@kind("SKILL.md", "---\ndescription: Grüße\n---\n\nBe brief.\n")
async def agent(folder: Path) -> str:
    try:
        return read_skill_file(folder / "SKILL.md", "coder").description
    except FrontMatterError as error:
        return error.reason


@kind("planning.md", "Grüße")
async def planning(folder: Path) -> str:
    return PromptLoader(folder / "planning.md", folder / "execution.md").planning()


@kind("notes.txt", "Grüße")
async def file_of_a_skill(folder: Path) -> str:
    try:
        return _text(folder, "notes.txt")
    except ToolFailed as error:
        return str(error)


@kind("brief.md", "---\nmodel: qwen3:14b\ndescription: Grüße\n---\n")
async def preset(folder: Path) -> str:
    [entry] = await PresetService(folder).entries()
    return entry.error_message or (entry.preset.description if entry.preset else "") or ""


@kind("mcp.json", '{"mcpServers": {"a": {"command": "x", "args": ["Grüße"]}}}')
async def mcp_config(folder: Path) -> str:
    config = await McpConfigFile(folder / "mcp.json").read()
    return str(config.problems[0]) if config.problems else config.servers["a"].args[0]


@kind(".env", "MOCHI_OPENAI_BASE_URL=Grüße\n")
async def settings(folder: Path) -> str:
    try:
        return load_settings(data_dir=folder).openai_base_url or ""
    except SettingsError as error:
        return str(error)


@kind("policies.json", '[{"id": "rule_1", "tool": "Grüße", "action": "deny"}]')
async def rules(folder: Path) -> str:
    found = await RuleFile(folder / "policies.json").load()
    return found.problem or found.rules[0].tool


@kind("tokens.json", '{"tokens": [{"name": "Grüße"}]}')
async def tokens(folder: Path) -> str:
    (folder / "tokens.json").chmod(0o600)
    with pytest.raises(TokensUnusable) as raised:
        AccessTokenFile(folder / "tokens.json", folder / "use").load()
    # It was understood, and has a name that no token may have.
    return "Grüße" if str(raised.value).startswith("tokens.0.name") else str(raised.value)


ENCODINGS = {
    "utf-8": None,
    "utf-8-sig": None,
    "cp1252": "Windows-1252",
    "utf-16": "UTF-16",
    "utf-16-le": "UTF-16",
    "utf-32": "UTF-32",
}


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize("encoding", ENCODINGS)
async def test_a_mark_is_no_part_of_a_file_and_other_encodings_are_named(
    kind: str,
    encoding: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.chdir(tmp_path)
    named = ENCODINGS[encoding]
    name, content, read = READERS[kind]
    (tmp_path / name).write_bytes(content.encode(encoding))
    found = await read(tmp_path)
    if named is None:
        assert found == "Grüße"
    elif kind == "planning":  # the built-in prompt takes its place
        assert named in caplog.text
    else:
        assert named in found
        assert "save it as UTF-8" in found
