"""Tasks and generators."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

import anyio

from mochi_server.core.aio import merge


async def test_a_merged_generator_goes_on_when_what_it_has_yielded_was_handled() -> None:
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


async def test_closing_what_is_merged_closes_every_generator() -> None:
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
