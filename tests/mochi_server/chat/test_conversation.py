"""A reply without an end: what is kept of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.fake_ollama import FakeOllama
from tests.support.turns import bench, kinds, text_of

WORD = "abcdefgh" * 128


@pytest.mark.parametrize("thinking", [False, True])
async def test_a_reply_is_kept_as_far_as_the_limit_lets_it_come(
    tmp_path: Path, ollama: FakeOllama, thinking: bool
) -> None:
    """A gigabyte of it would be a session that nobody can open any more."""
    many = [WORD] * 20_000
    ollama.reply([] if thinking else many, thinking=many if thinking else [])
    async with bench(tmp_path, ollama, max_reply_mb=1) as engine:
        session = await engine.session()
        events = await engine.turn(session, think=thinking)
        assert kinds(events)[-2:] == ["error", "done"]
        error = events[-2].payload()
        assert error["code"] == "PROVIDER_ERROR"
        assert "longer than 1 MB (MOCHI_MAX_REPLY_MB)" in str(error["message"])
        kept = engine.stored(session)[-1]
        text = kept["thinking" if thinking else "content"]
        assert kept["interrupted"] is True
        assert 1_000_000 < len(text) < 2_000_000
        assert text == text_of(events, "thinking_delta" if thinking else "content_delta")
        await ollama.disconnected()
        ollama.reply(["Yes."])
        assert text_of(await engine.turn(session)) == "Yes."


async def test_calls_count_as_well(tmp_path: Path, ollama: FakeOllama) -> None:
    calls = [{"name": "write", "arguments": {"text": f"{n}{WORD}"}} for n in range(1500)]
    ollama.reply(tool_calls=calls)
    async with bench(tmp_path, ollama, max_reply_mb=1) as engine:
        session = await engine.session()
        events = await engine.turn(session)
        assert kinds(events)[-2:] == ["error", "done"]
        stored = engine.stored(session)
        assert 900 < len(stored[1]["tool_calls"]) < 1500
        assert len(stored) == 2 + len(stored[1]["tool_calls"]), "each has a result"


@pytest.mark.parametrize("letter", ["\x01", "中", "\U0001f600"])
async def test_a_letter_counts_as_much_as_it_takes_in_the_file(
    tmp_path: Path, ollama: FakeOllama, letter: str
) -> None:
    """Ten million control characters are a file of sixty megabytes."""
    ollama.reply([letter * 1000] * 2000)
    async with bench(tmp_path, ollama, max_reply_mb=1) as engine:
        session = await engine.session()
        assert kinds(await engine.turn(session))[-2:] == ["error", "done"]
        assert 1_000_000 < engine.path(session).stat().st_size < 1_200_000
