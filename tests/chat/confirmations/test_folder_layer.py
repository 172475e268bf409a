"""The channel layer on a folder, and the cache beside it."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest
from channels.exceptions import ChannelFull

from chat.confirmations import folder_layer as layers
from chat.confirmations.cache import FolderCache
from chat.confirmations.folder_layer import ChannelClosed, FolderChannelLayer
from tests.support.server import ROOT

HOLDS_A_CHANNEL = """
import asyncio, sys
from chat.confirmations.folder_layer import FolderChannelLayer

async def main():
    layer = FolderChannelLayer(sys.argv[1])
    channel = await layer.new_channel()
    print(channel, flush=True)
    while True:
        print((await layer.receive(channel))["number"], flush=True)

asyncio.run(main())
"""

CLAIMS = """
import sys
from chat.confirmations.cache import FolderCache

cache = FolderCache(sys.argv[1], {})
print("ready", flush=True)
sys.stdin.readline()
print(*[number for number in range(300) if cache.delete(f"question:{number}")])
"""


def child(program: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


async def arrives(
    layer: FolderChannelLayer, channel: str, waiting: asyncio.Future[dict[str, object]]
) -> None:
    with anyio.fail_after(30):
        while not (layer.folder / channel).exists():  # noqa: ASYNC110 - nobody tells
            await anyio.sleep(0.01)
        await layer.send(channel, {"number": 1})
        assert await waiting == {"number": 1}


@pytest.fixture
def layer(tmp_path: Path) -> FolderChannelLayer:
    return FolderChannelLayer(tmp_path / "state" / "channels")


async def cancelled(task: asyncio.Future[object]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_messages_arrive_in_order_each_once(layer: FolderChannelLayer):
    channel = await layer.new_channel()
    for number in range(50):
        await layer.send(channel, {"type": "x", "number": number})
    with anyio.fail_after(30):
        assert [(await layer.receive(channel))["number"] for _ in range(50)] == list(range(50))
    with anyio.move_on_after(0.1) as nothing:
        await layer.receive(channel)
    assert nothing.cancelled_caught


async def test_a_message_wakes_who_waits_also_after_a_long_silence(
    layer: FolderChannelLayer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(layers, "SETTLED_SECONDS", 0.05)
    channel = await layer.new_channel()
    for number in range(5):
        waiting = asyncio.ensure_future(layer.receive(channel))
        await anyio.sleep(0.15)  # the folder has settled: nobody looks into it
        await layer.send(channel, {"number": number})
        with anyio.fail_after(30):
            assert await waiting == {"number": number}


async def test_a_channel_ends_with_who_receives(layer: FolderChannelLayer):
    channel = await layer.new_channel()
    waiting = asyncio.ensure_future(layer.receive(channel))
    await layer.send(channel, {"number": 1})
    with anyio.fail_after(30):
        await waiting
    waiting = asyncio.ensure_future(layer.receive(channel))
    await asyncio.sleep(0)
    await cancelled(waiting)
    assert names(layer.folder) == set()
    with pytest.raises(ChannelClosed):
        await layer.send(channel, {"number": 2})
    with pytest.raises(ChannelClosed):
        await layer.receive(channel)


async def test_a_channel_that_ends_while_others_send_leaves_nothing(layer: FolderChannelLayer):
    for _ in range(60):
        channel = await layer.new_channel()
        sending = [asyncio.ensure_future(layer.send(channel, {"number": n})) for n in range(8)]
        await asyncio.wait(sending, return_when=asyncio.FIRST_COMPLETED)
        await layer.flush()
        ends = await asyncio.gather(*sending, return_exceptions=True)
        assert {type(end) for end in ends} <= {type(None), ChannelClosed}
        assert names(layer.folder) == set()


async def test_what_is_half_made_when_somebody_gives_up_is_taken_away(layer: FolderChannelLayer):
    for _ in range(10):
        making = asyncio.ensure_future(layer.new_channel())
        await asyncio.sleep(0)
        await cancelled(making)
    assert names(layer.folder) == set()
    assert not layer._owned


async def test_nobody_else_may_look(layer: FolderChannelLayer):
    channel = await layer.new_channel()
    await layer.send(channel, {"number": 1})
    paths = [layer.folder, layer.folder / channel, *(layer.folder / channel).iterdir()]
    assert {path.stat().st_mode & 0o077 for path in paths} == {0}
    await layer.flush()
    assert names(layer.folder) == set()


async def test_a_channel_outlives_a_failure_of_its_folder(layer: FolderChannelLayer):
    channel = await layer.new_channel()
    (layer.folder / channel / "0.json").mkdir()  # what cannot be read, as when no file is left
    with anyio.fail_after(30), pytest.raises(IsADirectoryError):
        await layer.receive(channel)
    (layer.folder / channel / "0.json").rmdir()
    await layer.send(channel, {"number": 1})
    with anyio.fail_after(30):
        assert await layer.receive(channel) == {"number": 1}


async def test_a_channel_whose_folder_somebody_removes_is_made_again(layer: FolderChannelLayer):
    channel = await layer.new_channel()
    waiting = asyncio.ensure_future(layer.receive(channel))
    await asyncio.sleep(0)
    # In one step: the channel may be made again while its files are removed one by one.
    shutil.rmtree(layer.folder.rename(layer.folder.with_name("away")))
    await arrives(layer, channel, waiting)


async def test_a_channel_is_made_again_also_after_an_attempt_that_failed(
    layer: FolderChannelLayer,
):
    channel = await layer.new_channel()
    shutil.rmtree(layer.folder / channel)
    (layer.folder / f".new-{channel}").mkdir()  # as where the disk had no place for its lock
    await arrives(layer, channel, asyncio.ensure_future(layer.receive(channel)))


async def test_a_full_channel_says_so(tmp_path: Path):
    layer = FolderChannelLayer(tmp_path, capacity=3)
    channel = await layer.new_channel()
    for number in range(3):
        await layer.send(channel, {"number": number})
    with pytest.raises(ChannelFull):
        await layer.send(channel, {"number": 3})
    await layer.flush()


async def test_a_message_that_nobody_took_in_time_is_dropped(tmp_path: Path):
    layer = FolderChannelLayer(tmp_path, expiry=60)
    channel = await layer.new_channel()
    await layer.send(channel, {"number": 1})
    [message] = (tmp_path / channel).glob("*.json")
    put_in, _, rest = message.name.partition("-")
    message.rename(message.with_name(f"{int(put_in) - 61_000_000_000:020d}-{rest}"))
    await layer.send(channel, {"number": 2})
    with anyio.fail_after(30):
        assert await layer.receive(channel) == {"number": 2}
    await layer.flush()


@pytest.mark.parametrize("name", ["../up", "a/b", "", ".", "..", "x" * 200, "specific.unknown"])
async def test_a_channel_that_cannot_be_gets_nothing(layer: FolderChannelLayer, name: str):
    (layer.folder.parent).mkdir(parents=True)
    with pytest.raises((TypeError, ChannelClosed)):
        await layer.send(name, {"number": 1})
    assert names(layer.folder.parent) == set()


async def test_what_is_no_json_is_refused(layer: FolderChannelLayer):
    channel = await layer.new_channel()
    with pytest.raises(TypeError):
        await layer.send(channel, {"number": object()})
    await layer.flush()


async def test_another_process_receives_and_its_death_is_known(layer: FolderChannelLayer):
    with child(HOLDS_A_CHANNEL, layer.folder) as process:
        assert process.stdout is not None
        channel = process.stdout.readline().strip()
        for number in range(3):
            await layer.send(channel, {"number": number})
            assert process.stdout.readline().strip() == str(number)
        process.kill()
        process.wait()
    assert names(layer.folder) == {channel}
    with pytest.raises(ChannelClosed):
        await layer.send(channel, {"number": 3})
    mine = await layer.new_channel()
    assert names(layer.folder) == {mine}
    await layer.flush()


async def test_the_rest_of_a_crash_goes_after_a_while(
    layer: FolderChannelLayer, monkeypatch: pytest.MonkeyPatch
):
    (layer.folder / ".new-x").mkdir(parents=True)
    mine = await layer.new_channel()
    assert names(layer.folder) == {".new-x", mine}
    os.utime(layer.folder / ".new-x", (1, 1))
    other = await layer.new_channel()
    assert names(layer.folder) == {mine, other}
    await layer.flush()


# The cache


def test_of_several_processes_exactly_one_deletes_an_entry(tmp_path: Path):
    cache = FolderCache(str(tmp_path), {})
    for number in range(300):
        cache.set(f"question:{number}", number, 60)
    processes = [child(CLAIMS, tmp_path) for _ in range(3)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    won = [process.communicate(timeout=30)[0].split() for process in processes]
    assert sorted(int(each) for some in won for each in some) == list(range(300))


def test_no_entry_is_lost_because_there_are_many(tmp_path: Path):
    cache = FolderCache(str(tmp_path), {"OPTIONS": {"MAX_ENTRIES": 10}})
    for number in range(500):
        cache.set(str(number), number, 60)
    assert [cache.get(str(number)) for number in range(500)] == list(range(500))


def test_what_is_over_and_what_is_broken_goes_by_itself(tmp_path: Path):
    cache = FolderCache(str(tmp_path), {})
    cache.set("short", 1, 0.01)
    cache.set("long", 2, 60)
    (tmp_path / "broken.djcache").write_bytes(b"\x00" * 100)
    (tmp_path / "tmp1").write_bytes(b"")
    (tmp_path / "tmp2").write_bytes(b"")
    os.utime(tmp_path / "tmp1", (1, 1))
    time.sleep(0.02)
    cache.sweep()
    assert len(names(tmp_path)) == 2
    assert "tmp2" in names(tmp_path)
    assert cache.get("long") == 2


def test_looking_makes_no_folder(tmp_path: Path):
    cache = FolderCache(str(tmp_path / "a"), {})
    assert names(tmp_path) == set()
    assert cache.get("x") is None
    assert not cache.delete("x")
    cache.set("x", 1, 60)
    assert cache.get("x") == 1
    assert (tmp_path / "a").stat().st_mode & 0o077 == 0
    shutil.rmtree(tmp_path / "a")
    assert cache.get("x") is None
    cache.set("x", 2, 60)
    assert cache.get("x") == 2
