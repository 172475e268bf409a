"""What a chat notices of a summary that occupies its model: the time to its first token.

``python benchmarks/summaries.py [--quick]``. Exits 1 when the bar is missed. Each chat that meets a
summary is measured next to one that meets none, so that the ratio is of one run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from mochi_server.services.compaction.text import INSTRUCTION
from tests.support.fake_ollama import FakeOllama
from tests.support.server import Server, running_server
from tests.support.summaries import HELLO

FIRST_TOKEN_MS = 100.0
"""What a model takes by itself for a first token; a good one on a graphics card."""
SUMMARY_SECONDS = 20.0
QUIET_SECONDS = 0.1
BAR = 1.10
WRITTEN = json.dumps({"summary": "They greeted each other.", "topics": ["greeting"]})
SMALL = "tiny:1b"
"""A model with a small window."""
CASES = ("the same session", "another session", "another process")


class ThinkingOllama(FakeOllama):
    """Takes its time before the first token of a chat."""

    async def _send_parts(self, *args: object) -> None:
        await asyncio.sleep(FIRST_TOKEN_MS / 1e3)
        await super()._send_parts(*args)  # type: ignore[arg-type]

    @property
    def summaries(self) -> int:
        """Requests for summaries so far."""
        return sum(bool(body.get("format")) for body in self.chats)

    async def asked_for_notes(self, session_id: str, count: int) -> None:
        """Wait until so many notes about a session have been asked for."""

        def asked() -> int:
            return sum(
                body["messages"][0]["content"] == INSTRUCTION and session_id in str(body)
                for body in self.chats
            )

        await self._until(lambda: asked() >= count)

    async def asked(self, count: int) -> None:
        """Wait until so many summaries have been asked for."""
        await self._until(lambda: self.summaries >= count)


async def first_token_ms(server: Server, session_id: str) -> float:
    """The time from the request to the first piece of text."""
    begin, first = time.perf_counter(), 0.0
    async for event in server.stream(f"/chat/{session_id}/stream", {"message": HELLO}):
        if event.event == "content_delta" and not first:
            first = (time.perf_counter() - begin) * 1e3
    return first


async def pair(
    ollama: ThinkingOllama, summarising: Server, chatting: Server, case: str
) -> tuple[float, float]:
    """A chat that meets no summary, then one that meets one."""
    ids = [await chatting.new_session() for _ in range(2)]
    summarised = await summarising.new_session()
    before = ollama.summaries
    alone = await first_token_ms(chatting, ids[0])
    await ollama.asked(before + 1)
    ollama.reply([WRITTEN], delay=SUMMARY_SECONDS, match="Summarise")
    left = ollama.disconnects
    await first_token_ms(summarising, summarised)
    await ollama.asked(before + 2)
    meeting = await first_token_ms(chatting, summarised if case == CASES[0] else ids[1])
    assert ollama.disconnects == left + 1, "the summary did not give way"
    await ollama.asked(before + 3 + (case != CASES[0]))
    return alone, meeting


async def compacted(ollama: ThinkingOllama, server: Server) -> tuple[float, float]:
    """A chat alone, then one that meets the compaction of another session."""
    full = f"full_{len(ollama.requests)}"
    said = [
        {"role": role, "content": f"{full} {'x' * 600}"}
        for _ in range(8)
        for role in ("user", "assistant")
    ]
    content = {"metadata": {"session_id": full, "model": SMALL}, "messages": said}
    status, answer = await server.post("/sessions/import", content)
    assert status == 200, answer
    alone = await first_token_ms(server, await server.new_session(SMALL))
    ollama.reply(["-"] * 100, delay=SUMMARY_SECONDS, match=f"The messages:\n\n[user] {full}")
    left = ollama.disconnects
    await first_token_ms(server, full)
    await ollama.asked_for_notes(full, 1)
    meeting = await first_token_ms(server, await server.new_session(SMALL))
    assert ollama.disconnects == left + 1, "the compaction did not give way"
    await ollama.asked_for_notes(full, 2)
    await server.request("DELETE", f"/sessions/{full}")
    return alone, meeting


async def measure_compaction(count: int) -> bool:
    """Print one line; whether the bar was missed."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ollama = await stack.enter_async_context(ThinkingOllama())
        ollama.add_model(SMALL, context_length=4096)
        server = await stack.enter_async_context(
            running_server(
                data_dir=folder,
                ollama=ollama,
                compaction=True,
                summarization_interval_seconds=QUIET_SECONDS,
            )
        )
        await compacted(ollama, server)
        pairs = [await compacted(ollama, server) for _ in range(count)]
    return report("the compaction of another session", pairs)


async def measure(case: str, count: int) -> bool:
    """Print one line; whether the bar was missed."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ollama = await stack.enter_async_context(ThinkingOllama())

        async def start() -> Server:
            return await stack.enter_async_context(
                running_server(
                    data_dir=folder,
                    ollama=ollama,
                    summarization_enabled=True,
                    summarization_interval_seconds=QUIET_SECONDS,
                )
            )

        summarising = await start()
        chatting = await start() if case == CASES[2] else summarising
        await pair(ollama, summarising, chatting, case)
        pairs = [await pair(ollama, summarising, chatting, case) for _ in range(count)]
    return report(case, pairs)


def report(case: str, pairs: list[tuple[float, float]]) -> bool:
    """Print one line; whether the bar was missed."""
    alone, meeting = (statistics.median(each) for each in zip(*pairs, strict=True))
    ratio = meeting / alone
    verdict = "ok  " if ratio < BAR else "MISS"
    print(
        f"  {verdict} {case}: {meeting:.1f} ms, alone {alone:.1f} ms, ratio {ratio:.3f} "
        f"(bar {BAR:.2f})",
        flush=True,
    )
    return ratio >= BAR


async def run(count: int) -> int:
    """All cases; the exit code."""
    print(
        f"first token while a summary of {SUMMARY_SECONDS:.0f} s has the model, medians of "
        f"{count}; the model takes {FIRST_TOKEN_MS:.0f} ms"
    )
    missed = [await measure(case, count) for case in CASES]
    return int(any([*missed, await measure_compaction(count)]))


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="take a smaller look")
    raise SystemExit(asyncio.run(run(7 if parser.parse_args().quick else 25)))


if __name__ == "__main__":
    main()
