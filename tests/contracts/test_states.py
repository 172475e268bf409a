"""What every state promises: who wins, what is seen, what stays."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from mochi_server.state import State
from tests.contracts.conftest import NewState


class Sides(NamedTuple):
    """A state as two processes have it."""

    one: State
    two: State


@pytest.fixture
def sides(new_state: NewState) -> Sides:
    return Sides(new_state(), new_state())


async def add(state, name, value=b"1"):
    return await state.write(lambda rows: rows.add_row("k", name, value))


async def ids(state):
    return await state.read(lambda rows: rows.row_ids("k"))


async def test_the_first_to_add_or_to_replace_a_row_wins(sides):
    one, two = sides
    assert (await add(one, "a"), await add(two, "a", b"2")) == (True, False)
    row = await one.read(lambda rows: rows.row("k", "a"))
    replaced = [
        await state.write(lambda rows, value=value: rows.replace_row("k", row, value))
        for state, value in [(two, b"two"), (one, b"one")]
    ]
    assert replaced == [True, False]
    assert (await one.read(lambda rows: rows.row("k", "a"))).value == b"two"
    await two.write(lambda rows: rows.remove_row("k", "a"))
    assert await one.read(lambda rows: rows.row("k", "a")) is None
    assert not await one.write(lambda rows: rows.replace_row("k", row, b"late"))


async def test_the_version_says_that_somebody_has_changed_something(sides):
    one, two = sides
    versions = [await one.read(lambda rows: rows.version())]

    async def is_new() -> bool:
        versions.append(await one.read(lambda rows: rows.version()))
        return versions[-1] != versions[-2]

    await add(two, "a")
    assert await is_new()
    assert not await is_new()
    await add(two, "b")
    since = await one.read(lambda rows: rows.rows_since("k", versions[-1].number))
    assert [row.id for row in since] == ["b"]
    await two.write(lambda rows: rows.remove_row("k", "b"))
    assert await is_new()
    assert await ids(one) == {"a"}
    assert await one.read(lambda rows: rows.rows_since("other", 0)) == []


async def test_what_fails_changes_nothing(sides):
    one, two = sides
    await add(one, "a")

    def fail(rows):
        rows.add_row("k", "b", b"1")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await one.write(fail)
    assert await ids(two) == {"a"}
    assert await add(two, "b")


async def test_lines_are_read_from_the_last_one_and_old_ones_go(sides):
    one, two = sides

    async def append(log, name):
        await two.write(
            lambda rows: rows.append_line(log, name, name.encode() * 10, keep_bytes=100)
        )

    async def read(limit=100, before=None):
        lines = await one.read(lambda rows: rows.last_lines("l", limit=limit, before=before))
        return "".join(chr(line[0]) for line in lines)

    for name in "abcb":
        await append("l", name)
        await append("other", name)
    assert (await read(), await read(limit=2), await read(before="c")) == ("cba", "cb", "ba")
    assert await read(before="x") == ""
    assert await one.read(lambda rows: rows.line("l", "b")) == b"b" * 10
    for number in range(9):
        await append("l", str(number))
    assert await read() == "876543210c"
