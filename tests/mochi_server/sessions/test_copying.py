"""Copies of all sessions from one storage into another one."""

from __future__ import annotations

import pytest

from mochi_server.errors import StorageError
from mochi_server.sessions import JSONFileStorage, MemoryStorage
from mochi_server.sessions.copying import CopyOutcome, CopyReport, compare_sessions, copy_sessions


@pytest.fixture
async def source(tmp_path):
    storage = JSONFileStorage(tmp_path / "source")
    for number in range(150):  # more than one batch
        await storage.write(f"s{number}", [b"%d" % number])
    return storage


def counts(copied: CopyReport) -> dict[str, int]:
    return {outcome.value: count for outcome, count in copied.outcomes.items()}


async def test_every_session_is_copied_with_its_bytes(source):
    target, steps = MemoryStorage(), []
    copied = await copy_sessions(source, target, advance=lambda *step: steps.append(step))
    assert counts(copied) == {"copied": 150}
    assert (await target.read("s149"))[0] == b"149"
    assert steps == [(64, 150), (128, 150), (150, 150)]
    compared = await compare_sessions(source, target)
    assert (counts(compared), compared.problems) == ({"equal": 150}, {})


async def test_a_copy_that_was_interrupted_goes_on(source):
    target = MemoryStorage()

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await copy_sessions(source, target, advance=interrupt)
    assert counts(await copy_sessions(source, target)) == {"equal": 64, "copied": 86}


async def test_what_differs_is_replaced_only_if_that_is_wanted(source):
    target = MemoryStorage()
    await copy_sessions(source, target)
    await source.write("s7", [b"changed"])
    copied = await copy_sessions(source, target)
    assert copied.outcomes[CopyOutcome.DIFFERENT] == 1
    assert copied.problems == {"s7": "another session with this id is there"}
    assert (await target.read("s7"))[0] == b"7"
    assert (await compare_sessions(source, target)).problems == {"s7": "it differs"}

    async with target.claim("s7"):  # a turn goes on there
        copied = await copy_sessions(source, target, overwrite=True)
        assert list(copied.problems) == ["s7"]
        assert (await target.read("s7"))[0] == b"7"
    copied = await copy_sessions(source, target, overwrite=True)
    assert counts(copied) == {"equal": 149, "replaced": 1}
    assert (await compare_sessions(source, target)).problems == {}


async def test_what_cannot_be_copied_is_named_and_hides_no_other(source):
    (source.folder / "folder.json").mkdir()
    target = MemoryStorage()
    copied = await copy_sessions(source, target)
    assert copied.problems == {"folder": "not a plain file"}
    assert copied.outcomes[CopyOutcome.COPIED] == 150
    await target.delete("s3")
    compared = await compare_sessions(source, target)
    assert compared.problems == {"folder": "not a plain file", "s3": "it is not there"}


async def test_a_source_that_cannot_be_listed_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError):
        await copy_sessions(JSONFileStorage(tmp_path / "file"), MemoryStorage())
