"""The library as a program uses it: its own functions as tools, streams, settings by name."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from mochi_project.runtime import ProviderHandler, StorageHandler
from mochi_server import MochiServerSettings, Runtime
from mochi_server.backends import (
    NotABackend,
    build_provider,
    build_storage,
    default_providers,
    default_storages,
)
from mochi_server.config import load_settings
from mochi_server.errors import MochiError, SessionNotFound
from mochi_server.protocol.events import (
    ConfirmationRequired,
    ContentDelta,
    Done,
    RunStart,
    ToolResultReady,
)
from mochi_server.protocol.turn_request import TurnRequest
from mochi_server.sessions import JSONFileStorage, MemoryStorage, ToolExecutionPolicy, ToolSettings
from mochi_server.testmode.provider import ScriptedProvider
from tests.support.fake_ollama import FakeOllama
from tests.support.tools import write_tools

MODEL = "qwen3:14b"
ASKING = ContextVar("asking", default="nobody")
NEVER = ToolExecutionPolicy.NEVER_CONFIRM


def double(number: int) -> int:
    """Double a number.

    Args:
        number: Which one.
    """
    return 2 * number


def where() -> str:
    """Say where it runs."""
    thread = threading.current_thread()
    return f"{ASKING.get()} {thread is threading.main_thread()} {thread.name}"


async def later() -> str:
    """Say in which loop it runs."""
    await asyncio.sleep(0)
    return str(id(asyncio.get_running_loop()))


@asynccontextmanager
async def library(tmp_path: Path, ollama: FakeOllama, **options: Any) -> AsyncIterator[Runtime]:
    fields = options.pop("settings", {})
    settings = MochiServerSettings(data_dir=tmp_path, ollama_host=ollama.url, **fields)
    with anyio.fail_after(60):
        async with Runtime(settings, **options) as mochi:
            yield mochi


def calls(ollama: FakeOllama, *called: tuple[str, dict[str, Any]]) -> None:
    """Let the model call these, and then say a word."""
    ollama.reply(tool_calls=[{"name": name, "arguments": given} for name, given in called])
    ollama.reply(["Well", "."])


async def results(
    mochi: Runtime, *tools: str, policy: ToolExecutionPolicy = NEVER
) -> list[tuple[bool, str]]:
    """Say something; what the tools gave."""
    settings = ToolSettings(tools=[*tools], execution_policy=policy)
    session = await mochi.sessions.create(MODEL, tool_settings=settings)
    events = [e async for e in mochi.chat.stream(session.session_id, TurnRequest(message="Hi"))]
    ready = [event for event in events if isinstance(event, ToolResultReady)]
    ready.sort(key=lambda event: event.call_index)
    return [(event.success, event.result or event.error_message or "") for event in ready]


async def test_a_stream_is_the_events_of_a_turn(tmp_path, ollama):
    ollama.reply(["Pa", "ris"])
    async with library(tmp_path, ollama) as mochi:
        session = await mochi.sessions.create(MODEL)
        events = [e async for e in mochi.chat.stream(session.session_id, TurnRequest(message="Hi"))]
        again = [e async for e in mochi.chat.stream(session.session_id, TurnRequest())]
    assert [e.content for e in events if isinstance(e, ContentDelta)] == ["Pa", "ris"]
    assert events[-1] == again[-1] == Done(session_id=session.session_id)


async def test_a_turn_that_fails_raises(tmp_path, ollama):
    ollama.reply(["So"], error="boom")
    async with library(tmp_path, ollama) as mochi:
        with pytest.raises(SessionNotFound):
            await anext(mochi.chat.stream("nowhere", TurnRequest(message="Hi")))
        session_id = (await mochi.sessions.create(MODEL)).session_id
        events = mochi.chat.stream(session_id, TurnRequest(message="Hi"))
        assert isinstance(await anext(events), RunStart)
        assert await anext(events) == ContentDelta("So")
        with pytest.raises(MochiError, match="boom"):
            await anext(events)
        assert [m.text for m in (await mochi.sessions.get(session_id)).messages] == ["Hi", "So"]


async def test_who_leaves_a_stream_stops_the_turn(tmp_path, ollama):
    ollama.reply(["So", "on"], pause_after=1, gate=asyncio.Event())
    async with library(tmp_path, ollama) as mochi:
        session_id = (await mochi.sessions.create(MODEL)).session_id
        async with aclosing(mochi.chat.stream(session_id, TurnRequest(message="Hi"))) as events:
            async for event in events:
                if isinstance(event, ContentDelta):
                    break
        await mochi.runs.wait_closed(10)
        stored = (await mochi.sessions.get(session_id)).stored_messages()
    assert [(m["content"], m.get("interrupted")) for m in stored[1:]] == [("So", True)]


async def test_the_end_of_the_runtime_keeps_what_runs(tmp_path, ollama):
    ollama.reply(["So", "on"], pause_after=1, gate=asyncio.Event())
    async with library(tmp_path, ollama) as mochi:
        session_id = (await mochi.sessions.create(MODEL)).session_id
        events = mochi.chat.stream(session_id, TurnRequest(message="Hi"))
        assert [(await anext(events)).type for _ in range(2)] == ["run_start", "content_delta"]
    with pytest.raises(MochiError, match="shutting down"):
        await anext(events)
    async with library(tmp_path, ollama) as again:
        stored = (await again.sessions.get(session_id)).stored_messages()
    assert stored[-1]["interrupted"] is True


async def test_own_functions_are_tools(tmp_path, ollama):
    calls(ollama, ("double", {"number": "21"}), ("double", {"number": "many"}), ("later", {}))
    async with library(tmp_path, ollama, tools=[double, later]) as mochi:
        good, bad, loop = await results(mochi, "double", "later")
        assert good == (True, "42")
        assert bad[0] is False
        assert "number" in bad[1]
        assert loop == (True, str(id(asyncio.get_running_loop())))
    offered = ollama.chats[0]["tools"][0]["function"]
    assert (offered["name"], offered["description"]) == ("double", "Double a number.")
    assert offered["parameters"]["properties"]["number"]["description"] == "Which one."


async def test_own_functions_run_in_threads_of_this_process(tmp_path, ollama):
    calls(ollama, ("where", {}))
    ASKING.set("me")
    async with library(tmp_path, ollama, tools=[where]) as mochi:
        assert await results(mochi, "where") == [(True, "me False mochi-tool")]


async def test_a_person_is_asked_about_own_functions_too(tmp_path, ollama):
    calls(ollama, ("double", {"number": 4}))
    async with library(tmp_path, ollama, tools=[double]) as mochi:
        settings = ToolSettings(
            tools=["double"], execution_policy=ToolExecutionPolicy.CONFIRM_DESTRUCTIVE
        )
        session_id = (await mochi.sessions.create(MODEL, tool_settings=settings)).session_id
        asked = 0
        async for event in mochi.chat.stream(session_id, TurnRequest(message="Hi")):
            if isinstance(event, ConfirmationRequired):
                asked += 1
                await mochi.chat.confirm(
                    session_id, event.confirmation_id, approved=True, arguments={"number": 5}
                )
            if isinstance(event, ToolResultReady):
                assert event.result == "10"
        assert asked == 1


async def test_a_function_that_hangs_ends_its_own_call(tmp_path: Path, ollama: FakeOllama):
    ended = threading.Event()

    def hang() -> str:
        """Hang."""
        ended.wait()
        return "never told"

    calls(ollama, ("hang", {}), ("double", {"number": 1}))
    short = {"tool_timeout_seconds": 1}
    try:
        async with library(tmp_path, ollama, tools=[hang, double], settings=short) as mochi:
            hung, good = await results(mochi, "hang", "double")
            assert (hung[0], good) == (False, (True, "2"))
    finally:
        ended.set()


async def test_own_functions_win_over_those_of_the_folder(tmp_path, ollama):
    write_tools(
        tmp_path / "tools",
        init='def double() -> str:\n    """Say no."""\n    return "no"\n\n'
        'def single() -> str:\n    """Say one."""\n    return "one"\n\n'
        '__all__ = ["double", "single"]\n',
    )
    calls(ollama, ("double", {"number": 3}), ("single", {}))
    async with library(tmp_path, ollama, tools=[double]) as mochi:
        assert await results(mochi, "double", "single") == [(True, "6"), (True, "one")]
        [problem] = (await mochi.tools.inventory()).problems
        assert "is taken by a tool of 'registered'" in problem.reason


def undescribed(number: int) -> int:
    return number


def agent() -> str:
    """Take the name of the tool for agents."""
    return ""


@pytest.mark.parametrize(
    ("functions", "words"),
    [
        ([undescribed], "'undescribed' cannot be a tool: it has no docstring"),
        ([lambda: ""], "'<lambda>' cannot be a tool"),
        ([agent], "'agent' cannot be a tool: it is a name that the server uses itself"),
        ([double, partial(double, 1)], "Two of the tools have the name 'double'"),
        ([double, double], "Two of the tools have the name 'double'"),
        ([7], "'int' cannot be a tool: it is not callable"),
    ],
)
def test_what_cannot_be_a_tool_is_refused_at_once(tmp_path, functions, words):
    with pytest.raises(ValueError, match=words):
        Runtime(MochiServerSettings(data_dir=tmp_path), tools=functions)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("data_dri", "There is no setting 'data_dri'; did you mean 'data_dir'?"),
        ("MOCHI_DATA_DRI", "There is no setting 'MOCHI_DATA_DRI'; did you mean 'data_dir'?"),
        ("MOCHI_DATA_DIR", "There is no setting 'MOCHI_DATA_DIR'; did you mean 'data_dir'?"),
        ("qqqqqq", "There is no setting 'qqqqqq'$"),
    ],
)
def test_a_setting_that_does_not_exist_is_an_error(name, words):
    for make in (MochiServerSettings, load_settings):
        with pytest.raises(TypeError, match=words.replace("?", r"\?")):
            make(**{name: "x"})


@pytest.mark.parametrize("name", ["openai_api_key", "OPENAI_API_KEY", "MOCHI_OPENAI_API_KEY"])
def test_a_setting_may_be_given_by_each_of_its_names(name):
    key = MochiServerSettings(**{name: "it"}).openai_api_key
    assert key.get_secret_value() == "it"


def test_variables_of_others_are_no_error(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MOCHI_DATA_DRI", "x")
    (tmp_path / ".env").write_text("MOCHI_DATA_DRI=x\nOTHERS=1\n")
    assert MochiServerSettings().data_dir == Path()


async def test_a_server_without_work_stops_at_once(tmp_path, ollama, monkeypatch):
    monkeypatch.setattr("mochi_server.runtime.DRAIN_SECONDS", 60.0)
    with anyio.fail_after(30):
        async with library(tmp_path, ollama, settings={"workspace_enabled": True}) as mochi:
            mochi.start()


async def test_the_path_of_a_data_folder_is_enough(tmp_path):
    async with Runtime(str(tmp_path)) as mochi:
        assert mochi.settings.data_dir == tmp_path
    async with Runtime(tmp_path) as mochi:
        assert mochi.settings.data_dir == tmp_path


def test_anything_else_in_the_place_of_settings_is_refused():
    with pytest.raises(TypeError, match="MochiServerSettings or the path of the data folder"):
        Runtime(5)


# One table of backends for the library and for its Django face


MEMORY = {"BACKEND": "mochi_server.sessions.storage.memory.MemoryStorage"}


@pytest.mark.parametrize("storage", ["json", "memory"])
async def test_the_library_and_the_face_build_the_same(tmp_path, storage):
    settings = load_settings(data_dir=tmp_path, session_storage=storage)
    runtime = Runtime(settings)
    providers = ProviderHandler(default_providers(settings))
    storages = StorageHandler(default_storages(settings))

    assert runtime.providers.all_aliases == list(providers)
    for alias in providers:
        mine, theirs = runtime.providers.get(alias), providers[alias]
        assert (type(mine), mine.describe()) == (type(theirs), theirs.describe())
    for manager, alias in ((runtime.sessions, "default"), (runtime.agent_sessions, "agent_chats")):
        kind = JSONFileStorage if storage == "json" else MemoryStorage
        assert type(manager.storage) is type(storages[alias]) is kind
        if storage == "json":
            assert repr(manager.storage) == repr(storages[alias])
    await runtime.aclose()


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("", "not the dotted path"),
        ("nowhere", "not the dotted path"),
        ("no.such.Module", "cannot be imported"),
        ("mochi_server.errors.NoSuch", "is not a Provider"),
        ("math.pi", "is not a Provider"),
        (MEMORY["BACKEND"], "is not a Provider"),
    ],
)
def test_what_is_no_backend_is_named(path, why):
    with pytest.raises(NotABackend, match=why):
        build_provider("x", {"BACKEND": path})


def test_options_are_optional(tmp_path):
    assert isinstance(build_storage(MEMORY), MemoryStorage)
    files = {
        "BACKEND": "mochi_server.sessions.storage.json_files.JSONFileStorage",
        "OPTIONS": {"folder": tmp_path},
    }
    built = build_storage(files)
    assert isinstance(built, JSONFileStorage)
    assert built.folder == tmp_path


class FailingProvider(ScriptedProvider):
    """A provider of somebody's that cannot even end."""

    async def aclose(self) -> None:
        """Fail."""
        raise OSError("It broke.")


class NotingStorage(MemoryStorage):
    """A storage of somebody's that knows whether it was closed."""

    closed = False

    async def aclose(self) -> None:
        """Note it."""
        self.closed = True


async def test_a_part_that_cannot_be_closed_keeps_no_other_open(tmp_path):
    storages = {"default": NotingStorage(), "agent_chats": NotingStorage()}
    runtime = Runtime(
        load_settings(data_dir=tmp_path, session_storage="memory"),
        providers={"test": FailingProvider("test")},
        storages=storages,
    )
    with pytest.raises(OSError, match=r"It broke\."):
        await runtime.aclose()
    assert [storage.closed for storage in storages.values()] == [True, True]
