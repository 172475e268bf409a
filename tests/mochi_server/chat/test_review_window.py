"""The context window when a session is given tools after it was counted without them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mochi_server.sessions.types import ToolExecutionPolicy, ToolSettings
from tests.support.fake_ollama import FakeOllama
from tests.support.turns import Bench, bench

ONE = '''
def {name}(text: str) -> str:
    """Do {name}.

    {words}
    """
    return text
'''
NAMES = [f"tool_{number}" for number in range(25)]


@pytest.fixture
async def engine(tmp_path: Path, ollama: FakeOllama) -> AsyncIterator[Bench]:
    """Tools, of about 200 tokens each."""
    (tmp_path / "tools").mkdir()
    code = "".join(ONE.format(name=name, words="It is very good at it. " * 30) for name in NAMES)
    (tmp_path / "tools" / "__init__.py").write_text(f"__all__ = {NAMES!r}\n{code}")
    async with bench(tmp_path, ollama, tool_isolation="thread") as found:
        yield found


async def test_tools_that_are_enabled_later_enlarge_the_window_and_drop_no_history(
    engine: Bench, ollama: FakeOllama
) -> None:
    session = await engine.session()
    for number in range(4):
        ollama.reply(["Yes. " * 300])
        await engine.turn(session, f"Question {number}: " + "what is it? " * 50)
    async with engine.sessions.edit(session) as edited:
        edited.metadata.tool_settings = ToolSettings(
            tools=NAMES, execution_policy=ToolExecutionPolicy.NEVER_CONFIRM
        )
    complete = (await engine.turn(session, "And now?"))[-2].payload()
    before, after = ollama.chats[3], ollama.chats[4]
    assert len(after["tools"]) == len(NAMES)
    assert complete["context_window"]["dropped_messages"] == 0
    assert len(after["messages"]) == len(before["messages"]) + 2
    assert after["options"]["num_ctx"] > before["options"]["num_ctx"]
