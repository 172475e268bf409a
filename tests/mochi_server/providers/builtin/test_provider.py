"""The built-in model, with the real engine and the real weights."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import textwrap
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from subprocess import PIPE
from typing import Any

import anyio
import pytest

from mochi_server.config.installation import own_command
from mochi_server.core.leases import FileLock, is_locked
from mochi_server.errors import (
    ContextOverflow,
    ModelNotFound,
    ProviderError,
    ProviderNotConfigured,
)
from mochi_server.providers.base import Chunk, ContentDelta, Finish, ModelRequest
from mochi_server.providers.builtin.engine import Engine
from mochi_server.providers.builtin.provider import SLOTS, LocalProvider
from mochi_server.providers.builtin.served import LlamaServer
from tests.support.local_model import MODEL, folder_with_model
from tests.support.waiting import until

LONG = "Write a very long story about a dragon, with many chapters."


def local(folder: Path, **options: Any) -> LocalProvider:
    return LocalProvider("local", models_path=folder, **{"idle_seconds": 300, **options})


def ask(text: str, **fields: Any) -> ModelRequest:
    messages = [{"role": "user", "content": text}]
    return ModelRequest(**{"model": MODEL, "messages": messages, **fields})


async def answer(provider: LocalProvider, request: ModelRequest) -> tuple[str, Finish]:
    chunks: list[Chunk] = []
    with anyio.fail_after(60):
        async with aclosing(provider.stream(request)) as stream:
            chunks = [chunk async for chunk in stream]
    *texts, finish = chunks
    assert isinstance(finish, Finish)
    return "".join(text.content for text in texts if isinstance(text, ContentDelta)), finish


def running_folder(folder: Path) -> Path:
    (found,) = (path for path in (folder / ".run").iterdir() if path.is_dir())
    return found


def child_pid(provider: LocalProvider) -> int:
    """The process that answered last."""
    (client,) = clients(provider)
    return client.endpoint.pid


def clients(provider: LocalProvider) -> list[LlamaServer]:
    """The client of each model that has been used, the latest of each."""
    return [model.client for model in provider._models.values() if model.client is not None]


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder whose child stays alive from test to test."""
    folder = folder_with_model(tmp_path_factory.mktemp("shared"))
    place = Engine.shared_folder(folder / "smollm2-135m.gguf", 4096)
    place.mkdir(parents=True)
    users = FileLock(place / "users.lock")
    users.acquire(shared=True)
    yield folder
    users.release()


@pytest.fixture
async def provider(shared_folder: Path) -> AsyncIterator[LocalProvider]:
    provider = local(shared_folder)
    yield provider
    await provider.aclose()


@pytest.fixture
def own_folder(tmp_path: Path) -> Path:
    """A folder whose child belongs to one test."""
    return folder_with_model(tmp_path)


async def test_it_streams_an_answer_about_the_capital_of_france(provider):
    with anyio.fail_after(60):
        async with aclosing(provider.stream(ask("What is the capital of France?"))) as stream:
            chunks = [chunk async for chunk in stream]
    texts = [chunk.content for chunk in chunks[:-1] if isinstance(chunk, ContentDelta)]
    assert "Paris" in "".join(texts)
    assert len(texts) > 2, "it must come in pieces"
    finish = chunks[-1]
    assert isinstance(finish, Finish)
    assert finish.reason == "stop"
    assert 0 < (finish.eval_count or 0) < 40
    assert 10 < (finish.prompt_eval_count or 0) < 100


@pytest.mark.parametrize(
    ("question", "word"),
    [
        ("What is 2+2?", "4"),
        ("List three fruits.", "Apples"),
        ("What is the opposite of hot?", "cold"),
        ("Hi", "Hello"),
    ],
)
async def test_simple_questions_get_short_right_answers(provider, question, word):
    text, finish = await answer(provider, ask(question))
    assert word in text
    assert finish.reason == "stop"
    assert len(text) < 200


async def test_a_system_prompt_of_the_session_replaces_the_default_one(provider):
    messages = [
        {"role": "system", "content": "Answer."},
        {"role": "user", "content": "What is the capital of France?"},
    ]
    _, own = await answer(provider, ask("", messages=messages, max_tokens=1))
    _, default = await answer(provider, ask("What is the capital of France?", max_tokens=1))
    assert own.prompt_eval_count is not None
    assert default.prompt_eval_count is not None
    assert own.prompt_eval_count < default.prompt_eval_count
    assert own.reason == "length"


async def test_more_requests_than_slots_are_all_answered(provider):
    texts: list[str] = []

    async def one() -> None:
        texts.append((await answer(provider, ask("What is the capital of France?")))[0])

    async with anyio.create_task_group() as group:
        for _ in range(2 * SLOTS + 1):
            group.start_soon(one)
    assert len(texts) == 2 * SLOTS + 1
    assert all("Paris" in text for text in texts)


async def test_a_long_row_of_short_requests_all_succeed(provider):
    """With kept connections llama.cpp dropped one request of a hundred."""
    for _ in range(100):
        _, finish = await answer(provider, ask("Hi", max_tokens=1))
        assert finish.eval_count == 1


async def test_the_context_length_is_what_the_engine_serves(provider):
    info = await provider.show_model(MODEL)
    with pytest.raises(ContextOverflow) as caught:
        await answer(provider, ask("word " * 6000))
    assert caught.value.details["n_ctx"] == info.context_length == 4096


async def test_the_model_is_described_by_its_file(provider):
    (info,) = await provider.list_models()
    assert (info.name, info.format, info.family) == (MODEL, "gguf", "llama")
    assert (info.parameter_size, info.quantization_level) == ("134.52M", "Q4_1")
    assert info.size_mb == 98.4
    assert info.capabilities == ["completion"]
    assert await provider.problem() is None
    assert await provider.check() is True


async def test_an_unknown_model_is_not_found(provider):
    with pytest.raises(ModelNotFound, match="nope"):
        await answer(provider, ask("Hi", model="nope"))


async def test_without_weights_it_says_what_to_run(tmp_path):
    provider = local(tmp_path / "nothing")
    assert await provider.list_models() == []
    assert await provider.problem() == f"no model (run: {own_command()} pull)"
    assert await provider.check() is False
    with pytest.raises(ProviderNotConfigured, match="mochi-server pull"):
        await answer(provider, ask("Hi"))
    await provider.aclose()


@pytest.mark.parametrize(
    ("name", "reason"), [("x" * 300, "File name too long"), ("file", "Not a directory")]
)
async def test_a_folder_that_cannot_be_read_is_a_problem_and_no_crash(tmp_path, name, reason):
    (tmp_path / "file").touch()
    provider = local(tmp_path / name)
    assert await provider.list_models() == []
    assert await provider.check() is False
    problem = await provider.problem()
    assert problem is not None
    assert problem.startswith(f"the models folder {tmp_path / name} cannot be read: {reason}")
    with pytest.raises(ProviderNotConfigured, match=reason):
        await provider.show_model(MODEL)
    await provider.aclose()


async def test_where_no_file_is_a_model_the_first_one_says_why(tmp_path):
    (tmp_path / "text.gguf").write_text("Hello")
    provider = local(tmp_path)
    assert await provider.problem() == f"{tmp_path / 'text.gguf'} cannot be used: not a GGUF file"
    await provider.aclose()


async def test_things_that_only_look_like_models_hide_no_model(own_folder):
    (own_folder / "a.gguf").mkdir()
    os.mkfifo(own_folder / "b.gguf")
    (own_folder / "c.gguf").symlink_to("c.gguf")
    (own_folder / "d.gguf").symlink_to("nowhere")
    (own_folder / "e.gguf").touch()
    provider = local(own_folder)
    with anyio.fail_after(30):
        assert [model.name for model in await provider.list_models()] == [MODEL]
    assert await provider.problem() is None
    await provider.aclose()


async def test_the_event_loop_runs_on_while_the_model_loads(own_folder):
    provider = local(own_folder)
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await anyio.sleep(0.01)
            ticks += 1

    async with anyio.create_task_group() as group:
        group.start_soon(tick)
        _, finish = await answer(provider, ask("Hi"))
        group.cancel_scope.cancel()
    assert finish.load_seconds > 0.2
    assert ticks >= 5
    await provider.aclose()


async def test_the_last_user_to_leave_ends_the_child(own_folder):
    one, other = local(own_folder), local(own_folder)
    assert await other.loaded_models() == []
    with anyio.fail_after(60):
        await one.load(MODEL)
    [loaded] = await other.loaded_models()
    assert (loaded.model.name, loaded.window) == (MODEL, 4096)
    assert loaded.size > 10**7
    await answer(other, ask("Hi"))
    owner = running_folder(own_folder) / "child.lock"
    await one.aclose()
    assert "Paris" in (await answer(other, ask("What is the capital of France?")))[0]
    assert is_locked(owner)
    await other.aclose()
    assert not is_locked(owner)
    assert await other.loaded_models() == []


async def test_who_leaves_just_when_the_child_looks_for_users_waits_for_its_end(
    tmp_path, monkeypatch
):
    engine = Engine(tmp_path / "model.gguf", tmp_path)
    child, looking = FileLock(tmp_path / "child.lock"), FileLock(tmp_path / "users.lock")
    release = FileLock.release

    def release_and_look(lock: FileLock, **options: bool) -> None:
        release(lock, **options)
        if lock is engine._users:
            assert looking.acquire()

    assert engine._acquire()
    assert child.acquire()
    monkeypatch.setattr(FileLock, "release", release_and_look)
    closing = asyncio.ensure_future(engine.aclose())
    await asyncio.wait({closing}, timeout=0.5)
    assert not closing.done()
    child.release()
    with anyio.fail_after(30):
        await closing


async def test_users_that_start_at_the_same_time_share_one_child(own_folder):
    providers = [local(own_folder) for _ in range(3)]
    async with anyio.create_task_group() as group:
        for provider in providers:
            group.start_soon(answer, provider, ask("Hi"))
    assert len({child_pid(provider) for provider in providers}) == 1
    for provider in providers:
        await provider.aclose()


async def test_an_idle_model_is_unloaded_and_comes_back(own_folder):
    provider = local(own_folder, idle_seconds=0.3)
    await answer(provider, ask("Hi"))
    first = child_pid(provider)
    owner = running_folder(own_folder) / "child.lock"
    await until(lambda: not is_locked(owner))
    assert "Paris" in (await answer(provider, ask("What is the capital of France?")))[0]
    assert child_pid(provider) != first
    await provider.aclose()


async def test_a_killed_child_is_an_error_and_the_next_request_works(own_folder):
    provider = local(own_folder)
    stream = provider.stream(ask(LONG, max_tokens=2000))
    with anyio.fail_after(60):
        await stream.__anext__()
    first = child_pid(provider)
    os.kill(first, signal.SIGKILL)
    with anyio.fail_after(30), pytest.raises(ProviderError):
        async for _ in stream:
            pass
    assert "Paris" in (await answer(provider, ask("What is the capital of France?")))[0]
    assert child_pid(provider) != first
    await provider.aclose()


async def test_weights_that_cannot_be_loaded_are_an_error_with_a_reason(own_folder):
    whole = own_folder / "smollm2-135m.gguf"
    (own_folder / "cut.gguf").write_bytes(whole.read_bytes()[:20_000_000])
    provider = local(own_folder)
    for _ in range(2):
        with pytest.raises(ProviderError, match=r"cut\.gguf cannot be loaded: .+"):
            await answer(provider, ask("Hi", model="cut"))
    await provider.aclose()


USER = textwrap.dedent(
    """
    import asyncio, sys
    from pathlib import Path
    from mochi_server.providers.base import ModelRequest
    from mochi_server.providers.builtin.provider import LocalProvider

    async def main():
        provider = LocalProvider("local", models_path=Path(sys.argv[1]), idle_seconds=300)
        messages = [{"role": "user", "content": "Hi"}]
        async for _ in provider.stream(ModelRequest(model="smollm2:135m", messages=messages)):
            pass
        (model,) = provider._models.values()
        print(model.client.endpoint.pid, flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        await provider.aclose()

    asyncio.run(main())
    """
)


def kill_if_running(process):
    if process.returncode is None:
        process.kill()


async def test_two_processes_share_a_child_which_ends_when_both_are_killed(own_folder):
    command = [sys.executable, "-c", USER, str(own_folder)]
    async with AsyncExitStack() as stack:  # a test that fails leaves no process to the next one
        users, pids = [], []
        for _ in range(2):
            user = await anyio.open_process(command, stdin=PIPE, stdout=PIPE)
            users.append(await stack.enter_async_context(user))
            stack.callback(kill_if_running, user)
        with anyio.fail_after(60):
            for user in users:
                assert user.stdout is not None
                pids.append(int(await user.stdout.receive()))
        assert pids[0] == pids[1]
        owner = running_folder(own_folder) / "child.lock"
        users[0].kill()
        await users[0].wait()
        provider = local(own_folder)
        await answer(provider, ask("Hi"))
        assert child_pid(provider) == pids[0], "the other user keeps it alive"
        await provider.aclose()
        assert is_locked(owner)
        users[1].kill()
        await users[1].wait()
        await until(lambda: not is_locked(owner))


async def test_a_module_in_the_users_folder_is_not_run_by_the_child(
    own_folder, tmp_path, monkeypatch
):
    mine = tmp_path / "mine"
    mine.mkdir()
    for name in ("secrets", "argparse", "xllamacpp"):
        (mine / f"{name}.py").write_text(f"open({str(mine / 'marker')!r}, 'w')")
    monkeypatch.chdir(mine)
    provider = local(Path(os.path.relpath(own_folder)))
    assert "Paris" in (await answer(provider, ask("What is the capital of France?")))[0]
    await provider.aclose()
    assert not (mine / "marker").exists()


async def test_replacing_a_file_leaves_the_replies_of_the_old_one_alone(own_folder):
    provider = local(own_folder)
    file = own_folder / "smollm2-135m.gguf"
    stream = provider.stream(ask(LONG, max_tokens=300))
    with anyio.fail_after(60):
        await stream.__anext__()
    (old,) = (path for path in (own_folder / ".run").iterdir() if path.is_dir())
    source = file.resolve()
    file.unlink()
    shutil.copyfile(source, file)
    assert "Paris" in (await answer(provider, ask("What is the capital of France?")))[0]
    with anyio.fail_after(60):
        chunks = [chunk async for chunk in stream]
    assert isinstance(chunks[-1], Finish)
    assert chunks[-1].reason in ("stop", "length")
    await until(lambda: not is_locked(old / "child.lock"))
    assert (
        len([path for path in (own_folder / ".run").glob("*/child.lock") if is_locked(path)]) == 1
    )
    assert len(clients(provider)) == 1
    await provider.aclose()


async def test_a_file_that_was_replaced_while_nobody_used_it_has_its_child_ended(own_folder):
    provider = local(own_folder)
    await answer(provider, ask("Hi", max_tokens=1))
    owner = running_folder(own_folder) / "child.lock"
    file = own_folder / "smollm2-135m.gguf"
    source = file.resolve()
    file.unlink()
    shutil.copyfile(source, file)
    await answer(provider, ask("Hi", max_tokens=1))
    await until(lambda: not is_locked(owner))
    await provider.aclose()


async def test_a_child_that_came_back_has_the_only_client(own_folder):
    provider = local(own_folder)
    seen = []
    for _ in range(3):
        await answer(provider, ask("Hi", max_tokens=1))
        (client,) = clients(provider)
        seen.append(client)
        os.kill(child_pid(provider), signal.SIGKILL)
        owner = running_folder(own_folder) / "child.lock"
        await until(lambda: not is_locked(owner))  # noqa: B023 - awaited at once
    assert len(set(map(id, seen))) == 3
    assert [client.closed for client in seen] == [True, True, False]
    await provider.aclose()
    assert seen[-1].closed


async def test_models_in_a_folder_that_takes_no_files_run_elsewhere(
    own_folder, tmp_path, monkeypatch
):
    """For the superuser a folder is never read-only; a file in the way is the same to us."""
    (own_folder / ".run").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    provider = local(own_folder)
    assert "Paris" in (await answer(provider, ask("What is the capital of France?")))[0]
    assert [path.name for path in (tmp_path / "cache").glob("mochi-server/run/*/state.json")]
    await provider.aclose()


async def test_where_no_folder_takes_files_a_request_is_an_error(own_folder, tmp_path, monkeypatch):
    for name in (".run", "cache", "tmp"):
        (own_folder / name).touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(own_folder / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(own_folder / "tmp"))
    provider = local(own_folder)
    with pytest.raises(ProviderError, match=r"cannot start: .*Permission denied"):
        await answer(provider, ask("Hi"))
    await provider.aclose()


async def test_a_model_that_vanishes_is_not_found(own_folder):
    provider = local(own_folder)
    await answer(provider, ask("Hi", max_tokens=1))
    (own_folder / "smollm2-135m.gguf").unlink()
    with pytest.raises(ProviderNotConfigured, match="mochi-server pull"):
        await answer(provider, ask("Hi"))
    await provider.aclose()
