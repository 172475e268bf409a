"""Folders of agents for tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.support.tools import function


def write_skill(folder: Path, *lines: str, body: str = "You work.") -> Path:
    """Write the ``SKILL.md`` of an agent, with these lines as its front matter."""
    folder.mkdir(parents=True, exist_ok=True)
    front = "\n".join(lines or (f"description: Does the work of {folder.name}.",))
    (folder / "SKILL.md").write_text(f"---\n{front}\n---\n\n{body}\n", "utf-8")
    return folder


def write_agent(folder: Path, *lines: str, tools: Sequence[str] = ("work",)) -> Path:
    """An agent of three files, whose tools return their names."""
    write_skill(folder, *lines)
    (folder / f"{folder.name}.py").write_text("".join(map(function, tools)))
    names = ", ".join(tools)
    exports = f"from .{folder.name} import {names}\n\n__all__ = {list(tools)!r}\n"
    (folder / "__init__.py").write_text(exports)
    return folder


def write_tools_agent(folder: Path, *lines: str, tools: Sequence[str] = ("work",)) -> Path:
    """An agent with a folder of tools."""
    write_skill(folder, *lines)
    (folder / "tools").mkdir(exist_ok=True)
    text = "".join(map(function, tools)) + f"\n__all__ = {list(tools)!r}\n"
    (folder / "tools" / "__init__.py").write_text(text)
    return folder
