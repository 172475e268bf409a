"""Tasks and generators."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial

import anyio
import pytest

from mochi_server.core.aio import merge, run_concurrently


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
