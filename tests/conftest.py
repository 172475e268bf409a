"""What every test may use."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest
import pytest_asyncio
from django.core.signals import setting_changed
from django.dispatch import receiver
from django.test import AsyncClient
from hypothesis import HealthCheck
from hypothesis import settings as of_hypothesis
from hypothesis.internal.conjecture import providers

from chat.streaming import EventStreamResponse
from mochi_project.runtime import forget_runtime, get_runtime
from mochi_server.backends import default_providers, default_storages
from mochi_server.config import MochiServerSettings, load_settings
from mochi_server.core.caller import LOOPBACK, SERVER, Caller, serving, set_caller
from tests.support import forked, forked_tools
from tests.support.certificates import trust_one
from tests.support.fake_ollama import FakeOllama
from tests.support.rewriting import rewrite_share
from tests.support.server import Server, running_server
from tests.support.turns import Bench, bench

OF_THE_RUNTIME = {
    *("MOCHI", "MOCHI_PROVIDERS", "MOCHI_SESSION_STORAGES", "MOCHI_CONFIRMATIONS"),
}
"""Settings whose change makes a new runtime."""


@receiver(setting_changed)
def _forget_runtime(*, setting: str, **_: object) -> None:
    if setting in OF_THE_RUNTIME:
        forget_runtime()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fresh-servers",
        action="store_true",
        help="start every server, and its tools, as a new interpreter, none as a fork"
        " (tests/support/forked.py)",
    )
    parser.addoption(
        "--only-slow-below",
        action="append",
        default=[],
        metavar="FOLDER",
        help="of the tests in this folder, run only what is marked slow (.ci/run)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Hear Ctrl-C, and trust one certificate where no vendor is asked, not all the world's."""
    gc.disable()  # going through the syntax trees of all tests again and again takes seconds
    # A shell's background job ignores it, and so would every program that a test starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # How long an example takes says something of the machine, which may be busy, alone.
    of_hypothesis.register_profile(
        "ci",
        max_examples=400,  # with 100, planted faults were missed
        deadline=None,
        derandomize=True,  # a change is not published or held back by chance
        suppress_health_check=[HealthCheck.too_slow],
    )
    of_hypothesis.register_profile(
        "deep", of_hypothesis.get_profile("ci"), derandomize=False, max_examples=2000
    )
    of_hypothesis.load_profile("ci")  # --hypothesis-profile goes before
    _take_no_constants_of_modules()
    # What starts workers leaves them the machine's, as they have to know it too.
    starts_workers = not hasattr(config, "workerinput") and config.getoption("numprocesses", None)
    if "not e2e" in config.option.markexpr and not starts_workers:
        trust_one()
    if not config.option.fresh_servers:
        forked.allow_forks()
        forked_tools.fork_where_allowed()
    rewrite_share(config)


def _take_no_constants_of_modules() -> None:
    """Generate the same cases in every run that is to be the same.

    Hypothesis tries the constants of all modules that are imported by then, which depends on the
    order of the tests.
    """
    constants_of_modules = providers._get_local_constants

    def constants() -> providers.Constants:
        return providers.Constants() if of_hypothesis().derandomize else constants_of_modules()

    providers._get_local_constants = constants


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    folders = {Path(folder).absolute() for folder in config.option.only_slow_below}

    def is_left_out(item: pytest.Item) -> bool:
        return not folders.isdisjoint(item.path.parents) and not item.get_closest_marker("slow")

    if left_out := [item for item in items if is_left_out(item)]:
        items[:] = [item for item in items if not is_left_out(item)]
        config.hook.pytest_deselected(items=left_out)


def pytest_collection_finish() -> None:
    """Collect garbage again, but never go through what lives as long as the run."""
    gc.freeze()
    gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in one line for each reason what was skipped."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in skipped)
    for reason, count in sorted(reasons.items()):
        terminalreporter.write_line(f"{count} skipped: {reason}")


def pytest_unconfigure() -> None:
    forked.stop_parents()


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees the developer's settings, nor for whom the one before has worked."""
    set_caller(SERVER)
    for name in [name for name in os.environ if name.startswith("MOCHI_")]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("OLLAMA_HOST", raising=False)


@pytest.fixture
def fresh_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each server of this test is a new interpreter, as its start is what is tested."""
    monkeypatch.setattr(forked, "forks", False)


@pytest.fixture(scope="module")
def fresh_tools() -> Iterator[None]:
    """Each process of tools is a new interpreter, also those of servers.

    That holds from this test to the end of its module: processes of a module's fixtures are among
    them, and no process that forks is started beside them.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forked, "forks_tools", False)
        yield


@pytest_asyncio.fixture
async def ollama() -> AsyncIterator[FakeOllama]:
    """An Ollama on a real socket."""
    async with FakeOllama() as server:
        yield server


@pytest.fixture
def ollama_url(ollama: FakeOllama) -> str:
    """Its address, for tests that order nothing of it."""
    return ollama.url


@pytest_asyncio.fixture
async def engine(tmp_path: Path, ollama: FakeOllama) -> AsyncIterator[Bench]:
    """A runtime without a web server, for tests that need nothing in its folder."""
    async with bench(tmp_path, ollama) as found:
        yield found


@pytest_asyncio.fixture
async def silent() -> AsyncIterator[str]:
    """The address of a server that accepts connections and never says anything."""
    leave = asyncio.Event()

    async def hold(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await leave.wait()
        writer.close()

    async with await asyncio.start_server(hold, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
        leave.set()


@pytest.fixture
def mochi(ollama: FakeOllama, tmp_path: Path, settings: Any) -> MochiServerSettings:
    """The settings of the Django side of this test: own folder, an Ollama."""
    found = load_settings(
        ollama_host=ollama.url,
        data_dir=tmp_path / "data",
        models_dir=tmp_path / "models",
        summarization_enabled=False,
        compaction=False,
    )
    settings.MOCHI = found
    settings.MOCHI_PROVIDERS = default_providers(found)
    settings.MOCHI_SESSION_STORAGES = default_storages(found)
    settings.MOCHI_CONFIRMATIONS = {}
    return found


class API:
    """Django's AsyncClient, speaking JSON below ``/api/v1``."""

    def __init__(self) -> None:
        # A 500 must be an answer, not an exception in the test.
        self.client = AsyncClient(raise_request_exception=False)
        self._streams: list[AsyncGenerator[bytes]] = []

    async def __call__(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        """The response; ``.json()`` is its body."""
        if body is not None:
            options |= {"data": body, "content_type": "application/json"}
        with serving(Caller(name=LOOPBACK)):  # as the gate finds out
            response = await self.client.generic(method, f"/api/v1{path}", **_encoded(options))
        if isinstance(response, EventStreamResponse):
            response.streaming_content = parts = _parts_of(response)
            self._streams.append(parts)
        return response

    async def aclose(self) -> None:
        """Close what was not read to its end: else the collector finds its task."""
        for parts in self._streams:
            await parts.aclose()

    async def get(self, path: str, **options: Any) -> Any:
        return await self("GET", path, **options)

    async def post(self, path: str, body: Any = None, **options: Any) -> Any:
        return await self("POST", path, body, **options)

    async def put(self, path: str, body: Any = None, **options: Any) -> Any:
        return await self("PUT", path, body, **options)

    async def patch(self, path: str, body: Any = None, **options: Any) -> Any:
        return await self("PATCH", path, body, **options)

    async def delete(self, path: str, **options: Any) -> Any:
        return await self("DELETE", path, **options)

    async def new_session(self, **fields: Any) -> str:
        response = await self.post("/sessions", {"model": "qwen3:14b", **fields})
        assert response.status_code == 201, response.content
        return response.json()["session_id"]


async def _parts_of(response: EventStreamResponse) -> AsyncGenerator[bytes]:
    """Yield the parts of a stream's body as the handler sends them, one at a time."""
    sender, receiver = anyio.create_memory_object_stream[Any](0)

    async def send_all() -> None:
        async with sender:
            await response.send_to(sender.send)

    task = asyncio.create_task(send_all())
    try:
        async for message in receiver:
            if message["type"] == "http.response.body" and message["body"]:
                yield message["body"]
        await task
    finally:
        receiver.close()
        task.cancel()
        response.close()


def _encoded(options: dict[str, Any]) -> dict[str, Any]:
    data = options.get("data")
    if data is not None and not isinstance(data, (str, bytes)):
        options["data"] = orjson.dumps(data)
    return options


@pytest_asyncio.fixture
async def api(mochi: MochiServerSettings) -> AsyncIterator[API]:
    """The API without a socket; the runtime of this test is closed at its end."""
    api = API()
    yield api
    await api.aclose()
    await get_runtime().aclose()
    forget_runtime()


@pytest.fixture
def server_of(tmp_path: Path) -> Any:
    """Start real servers in this test's folder: ``async with server_of(ollama=…) as server``."""

    @asynccontextmanager
    async def start(**options: Any) -> AsyncIterator[Server]:
        options.setdefault("data_dir", tmp_path)
        async with running_server(**options) as server:
            yield server

    return start
