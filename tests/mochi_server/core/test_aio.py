"""Tasks and generators."""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import ClassVar

import anyio
import pytest
import uvloop

from mochi_server.core import aio
from mochi_server.core.aio import merge, run_concurrently
from tests.support.waiting import until


async def test_a_merged_generator_goes_on_when_what_it_has_yielded_was_handled():
    """An agent stores its reply after the reply's text is in the journal, also beside another."""
    order: list[str] = []

    async def speaking(name: str) -> AsyncGenerator[str, None]:
        for number in range(3):
            yield f"{name}{number}"
            order.append(f"after {name}{number}")

    with anyio.fail_after(30):
        async with aclosing(merge([speaking("a"), speaking("b")])) as merged:
            async for item in merged:
                await anyio.lowlevel.checkpoint()
                order.append(item)
    assert sorted(order) == sorted(
        text for name in "ab" for n in range(3) for text in (f"{name}{n}", f"after {name}{n}")
    )
    for name in "ab":
        own = [each for each in order if each.removeprefix("after ").startswith(name)]
        assert own == [text for n in range(3) for text in (f"{name}{n}", f"after {name}{n}")]


async def test_closing_what_is_merged_closes_every_generator():
    closed: list[str] = []

    async def endless(name: str) -> AsyncGenerator[str, None]:
        try:
            while True:
                yield name
        finally:
            closed.append(name)

    with anyio.fail_after(30):
        async with aclosing(merge([endless("a"), endless("b")])) as merged:
            await anext(merged)
    assert sorted(closed) == ["a", "b"]


async def test_functions_run_at_the_same_time_up_to_a_limit():
    running, most = 0, 0
    all_run = anyio.Event()

    async def run(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 3:
            all_run.set()
        with anyio.fail_after(30):
            await all_run.wait()
        running -= 1
        return number

    assert await run_concurrently([partial(run, each) for each in range(9)], most=3) == [*range(9)]
    assert most == 3


async def test_the_first_error_ends_what_runs_beside_it():
    ended = []

    async def wait() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(1)

    async def fail() -> None:
        await anyio.lowlevel.checkpoint()
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await run_concurrently([wait, fail, wait], most=3)
    assert ended == [1, 1]


class Watched(io.FileIO):
    """A file during whose closing another thread opens one: if its number is free, that has it."""

    given: ClassVar[list[int]] = []

    def __init__(self, descriptor: int, mode: str, _buffering: int, *, closefd: bool) -> None:
        super().__init__(descriptor, mode, closefd=closefd)

    def close(self) -> None:
        if not self.closed and not is_open(self.fileno()):
            self.given.append(os.dup2(2, self.fileno()))
        super().close()


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("is_written", [False, True])
def test_the_end_of_a_pipe_is_closed_and_no_file_that_gets_its_number(
    monkeypatch, loop, is_written
):
    monkeypatch.setattr(aio, "open", Watched, raising=False)
    monkeypatch.setattr(Watched, "given", [])
    ends = os.pipe()

    async def connect() -> None:
        running = asyncio.get_running_loop()
        file = aio.pipe_end(ends[is_written], "wb" if is_written else "rb")
        connect = running.connect_write_pipe if is_written else running.connect_read_pipe
        transport, _ = await connect(asyncio.Protocol, file)
        transport.close()
        await until(lambda: file.closed)

    running = loop()
    try:
        running.run_until_complete(connect())
        if Watched.given:
            assert all(map(is_open, Watched.given))
        else:
            assert not is_open(ends[is_written])
    finally:
        running.close()
        for descriptor in (ends[not is_written], *Watched.given):
            os.close(descriptor)


def is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True
