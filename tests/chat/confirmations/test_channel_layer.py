"""Confirmations while the cache or the layer is not there: nothing is lost, nothing hangs."""

from __future__ import annotations

import asyncio
import logging
import shutil
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest
import pytest_asyncio
from channels.exceptions import ChannelFull
from django.core.cache import caches
from django.core.cache.backends.filebased import FileBasedCache

import chat.confirmations.listener
from chat.confirmations.channel_layer import ChannelLayerConfirmations
from chat.confirmations.folder_layer import ChannelClosed, FolderChannelLayer
from mochi_project.settings import caches_of, channel_layers_of
from mochi_server.chat.confirmations import ConfirmationDecision, ConfirmationRequest
from mochi_server.config import load_settings
from mochi_server.errors import ConfirmationNotFound, ConfirmationUnavailable, MochiError
from tests.support.redis import needs_redis, running_redis

YES = ConfirmationDecision(approved=True)


def question(number: int = 0, session_id: str = "one") -> ConfirmationRequest:
    return ConfirmationRequest(
        confirmation_id=f"conf_{number}",
        session_id=session_id,
        tool_name="add",
        tool_source="directory",
        arguments={"a": number},
        call_index=0,
        tool_call_id="call_1",
        queue_position=1,
        queue_total=1,
        asked_at="",
        expires_at="",
    )


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat.confirmations.listener, "CHECK_SECONDS", 0.1)


@pytest_asyncio.fixture
async def brokers(
    tmp_path: Path, settings: Any
) -> AsyncIterator[Callable[..., list[ChannelLayerConfirmations]]]:
    """Makes who asks and who decides, as if in two processes."""
    made: list[ChannelLayerConfirmations] = []

    def make(*, timeout: float = 30, **values: Any) -> list[ChannelLayerConfirmations]:
        mochi = load_settings(data_dir=tmp_path, **values)
        settings.CACHES = caches_of(mochi)
        settings.CHANNEL_LAYERS = channel_layers_of(mochi)
        made.extend(ChannelLayerConfirmations(timeout=timeout) for _ in range(2))
        return made

    yield make
    for broker in made:
        await broker.aclose()


async def eventually(step: Callable[[], Awaitable[object]]) -> None:
    """Repeat it until it succeeds."""
    with anyio.fail_after(30):
        while True:
            try:
                await step()
            except MochiError:  # noqa: PERF203 - until it succeeds
                await anyio.sleep(0.05)
            else:
                return


@needs_redis
async def test_without_redis_asking_fails_at_once_and_deciding_too(
    tmp_path: Path, brokers: Any
) -> None:
    async with running_redis(tmp_path) as redis:
        asking, deciding = brokers(redis_url=redis.url)
        await redis.stop()
        with anyio.fail_after(30):
            with pytest.raises(ConfirmationUnavailable):
                async with asking.ask(question()):
                    raise AssertionError("asked")
            with pytest.raises(ConfirmationUnavailable):
                await deciding.decide("one", "conf_0", YES)
            with pytest.raises(ConfirmationUnavailable):
                await deciding.pending("one")
            assert not await deciding.check()


@needs_redis
async def test_a_question_outlives_a_redis_that_forgot_everything(
    tmp_path: Path, brokers: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "channels_redis.pubsub")
    async with running_redis(tmp_path) as redis:
        asking, deciding = brokers(redis_url=redis.url)
        asked = question()
        async with asking.ask(asked) as pending:
            await redis.stop()
            with pytest.raises(ConfirmationUnavailable):
                await deciding.decide("one", "conf_0", YES)
            await redis.start()
            await eventually(lambda: deciding.decide("one", "conf_0", YES))
            with anyio.fail_after(30):
                assert await pending.decision() == YES
        assert await deciding.pending("one") == []
        assert await redis.keys() == []


@needs_redis
async def test_a_turn_that_ends_without_redis_ends_and_leaves_nothing_for_long(
    tmp_path: Path, brokers: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "channels_redis.pubsub")
    async with running_redis(tmp_path) as redis, AsyncExitStack() as other:
        asking, deciding = brokers(redis_url=redis.url)
        await other.enter_async_context(asking.ask(question(1, "two")))
        with anyio.fail_after(30):
            async with asking.ask(question()):
                await redis.stop()
        await redis.start()
        await eventually(lambda: deciding.decide("two", "conf_1", YES))
        assert await deciding.pending("one") == []


async def test_a_redis_that_says_nothing_hangs_nobody(brokers: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("chat.confirmations.channel_layer.CACHE_SECONDS", 0.5)
    monkeypatch.setattr("chat.confirmations.listener.OPEN_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        asking, deciding = brokers(redis_url=f"redis://127.0.0.1:{silent.getsockname()[1]}")
        with anyio.fail_after(9):
            with pytest.raises(ConfirmationUnavailable):
                async with asking.ask(question()):
                    raise AssertionError("asked")
            with pytest.raises(ConfirmationUnavailable):
                await deciding.decide("one", "conf_0", YES)


async def test_a_package_that_is_missing_denies_the_call_with_the_reason(
    brokers: Any, settings: Any
) -> None:
    asking, _ = brokers()
    settings.CHANNEL_LAYERS = {"default": {"BACKEND": "no.such.Layer"}}
    with pytest.raises(ConfirmationUnavailable, match=r"no\.such\.Layer"):
        async with asking.ask(question()):
            raise AssertionError("asked")


async def test_a_folder_that_cannot_be_written_denies_the_call_with_the_reason(
    tmp_path: Path, brokers: Any
) -> None:
    asking, deciding = brokers()
    (tmp_path / ".mochi").write_text("no folder")
    with pytest.raises(ConfirmationUnavailable, match=r"\.mochi"):
        async with asking.ask(question()):
            raise AssertionError("asked")
    with pytest.raises(ConfirmationUnavailable):
        await deciding.decide("one", "conf_0", YES)


@pytest.mark.parametrize("folder", [".mochi", ".mochi/cache", ".mochi/channels"])
async def test_a_folder_that_somebody_empties_is_filled_again(
    tmp_path: Path, brokers: Any, folder: str
) -> None:
    asking, deciding = brokers()
    async with asking.ask(question()) as pending:
        # In one step: a folder that is filled while its files are removed one by one stays.
        shutil.rmtree((tmp_path / folder).rename(tmp_path / "away"))
        await eventually(lambda: deciding.decide("one", "conf_0", YES))
        with anyio.fail_after(30):
            assert await pending.decision() == YES


async def test_a_lost_signal_only_delays_the_decision(brokers: Any, monkeypatch: Any) -> None:
    async def lost(self: Any, channel: str, message: Any) -> None:
        raise ChannelFull

    asking, deciding = brokers()
    monkeypatch.setattr(FolderChannelLayer, "send", lost)
    async with asking.ask(question()) as pending:
        await deciding.decide("one", "conf_0", YES)
        with anyio.fail_after(30):
            assert await pending.decision() == YES


async def test_a_decision_that_was_fetched_before_its_signal_has_been_made(
    brokers: Any, monkeypatch: Any
) -> None:
    """A look may be faster, and the channel gone by then: the call runs all the same."""
    asking, deciding = brokers()
    fetched = asyncio.Event()
    send = FolderChannelLayer.send

    async def late(self: Any, channel: str, message: Any) -> None:
        await fetched.wait()
        await send(self, channel, message)

    monkeypatch.setattr(FolderChannelLayer, "send", late)
    with anyio.fail_after(30):
        async with asking.ask(question()) as pending:
            decided = asyncio.ensure_future(deciding.decide("one", "conf_0", YES))
            assert await pending.decision() == YES
        fetched.set()
        await decided


async def test_a_decision_is_either_made_or_refused_also_while_its_channel_goes(
    brokers: Any, monkeypatch: Any
) -> None:
    """Who looks may find it just when who decides takes it back."""
    found, taken_back = threading.Event(), threading.Event()
    read, delete = FileBasedCache.get, FileBasedCache.delete

    def slow(self: Any, key: str, *arguments: Any, **options: Any) -> Any:
        value = read(self, key, *arguments, **options)
        if ":decision:" in key and value is not None:
            found.set()
            taken_back.wait(20)
        return value

    def deleted(self: Any, key: str, *arguments: Any, **options: Any) -> Any:
        gone = delete(self, key, *arguments, **options)
        if ":decision:" in key:
            taken_back.set()
        return gone

    async def closed(self: Any, channel: str, message: Any) -> None:
        await asyncio.to_thread(found.wait, 20)
        raise ChannelClosed

    asking, deciding = brokers()
    monkeypatch.setattr(FileBasedCache, "get", slow)
    monkeypatch.setattr(FileBasedCache, "delete", deleted)
    monkeypatch.setattr(FolderChannelLayer, "send", closed)
    async with asking.ask(question()) as pending:
        with pytest.raises(ConfirmationNotFound):
            await deciding.decide("one", "conf_0", YES)
        monkeypatch.undo()
        monkeypatch.setattr(chat.confirmations.listener, "CHECK_SECONDS", 0.1)
        no = ConfirmationDecision(approved=False)
        await eventually(lambda: deciding.decide("one", "conf_0", no))
        with anyio.fail_after(30):
            assert await pending.decision() == no


async def test_no_sign_of_life_outlasts_the_last_question(
    brokers: Any, monkeypatch: Any, tmp_path: Path
) -> None:
    monkeypatch.setattr(chat.confirmations.listener, "CHECK_SECONDS", 0.0)
    asking, _ = brokers()
    with anyio.fail_after(120):
        for number in range(60):
            async with asking.ask(question(number)):
                await asyncio.sleep(number / 10_000)
            assert list((tmp_path / ".mochi" / "cache").iterdir()) == []


async def test_a_question_that_is_over_while_it_is_opened_again_leaves_nothing(
    brokers: Any, monkeypatch: Any, tmp_path: Path
) -> None:
    opening, over = threading.Event(), threading.Event()
    write, remove = FileBasedCache.set, FileBasedCache.delete_many

    def late(self: Any, key: str, *arguments: Any, **options: Any) -> None:
        if "pending:" in key:
            opening.set()
            over.wait(20)
        write(self, key, *arguments, **options)

    def last(self: Any, keys: Any, *arguments: Any, **options: Any) -> None:
        remove(self, keys, *arguments, **options)
        over.set()

    asking, _ = brokers()
    with anyio.fail_after(30):
        async with asking.ask(question()):
            monkeypatch.setattr(FileBasedCache, "set", late)
            monkeypatch.setattr(FileBasedCache, "delete_many", last)
            caches["default"].clear()
            assert await asyncio.to_thread(opening.wait, 20)
        assert list((tmp_path / ".mochi" / "cache").iterdir()) == []


async def test_a_claim_of_a_process_that_died_before_it_decided_is_undone(brokers: Any) -> None:
    asking, deciding = brokers()
    async with asking.ask(question()) as pending:
        assert caches["default"].delete("mochi:confirmation:pending:conf_0")
        await eventually(lambda: deciding.decide("one", "conf_0", YES))
        with anyio.fail_after(30):
            assert await pending.decision() == YES


async def test_a_decision_that_cannot_be_stored_leaves_the_question_open(
    brokers: Any, monkeypatch: Any
) -> None:
    stored = FileBasedCache.set
    broken = [True]

    def full(self: Any, key: str, *args: Any, **kwargs: Any) -> None:
        if ":decision:" in key and broken:
            raise OSError(28, "No space left on device")
        stored(self, key, *args, **kwargs)

    monkeypatch.setattr(FileBasedCache, "set", full)
    asking, deciding = brokers()
    async with asking.ask(question()) as pending:
        with pytest.raises(ConfirmationUnavailable, match="No space left"):
            await deciding.decide("one", "conf_0", YES)
        assert await deciding.pending("one") == [question()]
        broken.clear()
        await deciding.decide("one", "conf_0", YES)
        with anyio.fail_after(30):
            assert await pending.decision() == YES


async def test_each_question_that_could_not_be_taken_out_is_taken_out_later(
    brokers: Any, monkeypatch: Any
) -> None:
    """Also one that is left behind while another one goes."""
    delete = FileBasedCache.delete
    broken = {"conf_1", "conf_2"}
    begun, go_on = threading.Event(), threading.Event()

    def deleted(self: Any, key: str, *args: Any, **kwargs: Any) -> Any:
        if key.rpartition(":")[2] in broken:
            raise OSError(5, "Input/output error")
        if key.endswith("pending:conf_1"):
            begun.set()
            go_on.wait(20)
        return delete(self, key, *args, **kwargs)

    monkeypatch.setattr(FileBasedCache, "delete", deleted)
    asking, deciding = brokers()
    async with asking.ask(question(0)):
        async with asking.ask(question(1)):
            pass
        broken.remove("conf_1")
        assert await asyncio.to_thread(begun.wait, 20)
        async with asking.ask(question(2)):
            pass
        broken.clear()
        go_on.set()
        with anyio.fail_after(30):
            while await deciding.pending("one") != [question(0)]:  # noqa: ASYNC110 - as clients do
                await anyio.sleep(0.05)


async def test_who_hangs_up_while_deciding_leaves_no_question_claimed(brokers: Any) -> None:
    asking, deciding = brokers()
    for side in (asking, deciding):
        for turns in range(12):
            async with asking.ask(question()) as pending:
                deciding_now = asyncio.ensure_future(side.decide("one", "conf_0", YES))
                for _ in range(turns):
                    await asyncio.sleep(0)
                deciding_now.cancel()
                await asyncio.gather(deciding_now, return_exceptions=True)
                if await deciding.pending("one"):
                    await deciding.decide("one", "conf_0", YES)
                with anyio.fail_after(30):
                    assert await pending.decision() == YES


def test_a_broker_serves_one_loop_after_another(brokers: Any) -> None:
    asking, deciding = brokers()

    async def once(number: int) -> None:
        async with asking.ask(question(number)) as pending:
            await deciding.decide("one", f"conf_{number}", YES)
            with anyio.fail_after(30):
                assert await pending.decision() == YES

    for number in range(3):
        asyncio.run(once(number))
