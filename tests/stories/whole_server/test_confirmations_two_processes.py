"""Questions of one server process, decided at another: over the folder and over PostgreSQL.

``MOCHI_QUESTIONS=200`` asks two hundred at once; a test run does with fewer.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest
import pytest_asyncio

from tests.support.confirmations import open_state, stored_confirmations
from tests.support.fake_ollama import FakeOllama, Reply
from tests.support.postgresql import PostgreSQL, needs_postgresql, running_postgresql
from tests.support.server import Server, connector, running_server
from tests.support.sse import ServerEvent, events
from tests.support.tools import write_tools
from tests.support.waiting import until

QUESTIONS = int(os.environ.get("MOCHI_QUESTIONS", "60"))
CLIENTS = 4
SECONDS = 100 + QUESTIONS // 2

COUNT = '''
import os
from pathlib import Path

COUNTED = Path(__file__).parent.parent / "counted"


def count(number: int) -> str:
    """Count once.

    Args:
        number: What is counted.
    """
    handle = os.open(COUNTED, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(handle, f"{number}\\n".encode())
    os.close(handle)
    return f"counted {number}"


__all__ = ["count"]
'''

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(400 + QUESTIONS),
    pytest.mark.asyncio(loop_scope="module"),
]


class Counting(FakeOllama):
    """A model that counts the number that the user says."""

    def _default(self, body: dict[str, Any]) -> Reply:
        said = body["messages"][-1]
        if said["role"] == "tool":
            return Reply([said["content"]])
        call = {"name": "count", "arguments": {"number": int(said["content"])}}
        return Reply(tool_calls=[call])


class Turn:
    """One stream, and the question in it."""

    def __init__(self, number: int, server: Server, session_id: str) -> None:
        self.number = number
        self.server = server
        self.session_id = session_id
        self.asked = asyncio.Event()
        self.confirmation_id = ""
        self.events: list[ServerEvent] = []

    async def run(self, http: aiohttp.ClientSession) -> None:
        path = f"{self.server.api}/chat/{self.session_id}/stream"
        async with http.post(path, json={"message": str(self.number)}) as response:
            assert response.status == 200, await response.text()
            async for event in events(response.content.iter_any()):
                self.events.append(event)
                if event.event == "tool_call_confirmation_required":
                    self.confirmation_id = event.data["confirmation_id"]
                    self.asked.set()

    def data(self, name: str) -> Any:
        (found,) = [event.data for event in self.events if event.event == name]
        return found


class Pair:
    """Two servers of the same data, and what they share."""

    def __init__(
        self, folder: Path, servers: list[Server], database: PostgreSQL | None = None
    ) -> None:
        self.folder = folder
        self.servers = servers
        self.database = database

    async def __aenter__(self) -> Pair:
        timeout = aiohttp.ClientTimeout(total=SECONDS)
        self.http = aiohttp.ClientSession(connector=connector(limit=0), timeout=timeout)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.http.close()

    async def turn(self, number: int, server: Server) -> Turn:
        settings = {"tools": ["count"], "execution_policy": "always_confirm"}
        session_id = await server.new_session(tool_settings=settings)
        return Turn(number, server, session_id)

    async def confirm(self, server: Server, turn: Turn, **body: Any) -> tuple[int, Any]:
        path = f"{server.api}/chat/{turn.session_id}/confirm-tool"
        body = {"confirmation_id": turn.confirmation_id, "approved": True, **body}
        async with self.http.post(path, json=body) as response:
            return response.status, await response.json()

    async def open_questions(self, server: Server, turn: Turn) -> list[str]:
        status, body = await server.get(f"/chat/{turn.session_id}/confirmations")
        assert status == 200, body
        return [each["confirmation_id"] for each in body["confirmations"]]

    async def leftovers(self) -> list[str]:
        """What is stored of confirmations beside the history."""
        if self.database is not None:
            return await self.database.query(
                "SELECT id FROM state_rows WHERE kind = 'confirmations'"
            )
        with open_state(self.folder) as state:
            return [name for name, _ in stored_confirmations(state)]

    async def nothing_left(self) -> None:
        await until(self.leftovers, lambda left: not left)

    def counted(self) -> Counter[int]:
        path = self.folder / "counted"
        return Counter(map(int, path.read_text().split())) if path.exists() else Counter()


@asynccontextmanager
async def running_pair(folder: Path, kind: str) -> AsyncIterator[Pair]:
    """Two servers that share a folder, or a PostgreSQL as well."""
    async with AsyncExitStack() as stack:
        settings: dict[str, Any] = {}
        database = None
        if kind == "postgresql":
            database = await stack.enter_async_context(running_postgresql())
            settings["database_url"] = database.url
        write_tools(folder / "tools", init=COUNT)
        ollama = await stack.enter_async_context(Counting(one_at_a_time=False))
        servers = [
            await stack.enter_async_context(
                running_server(data_dir=folder, ollama=ollama, **settings)
            )
            for _ in range(2)
        ]
        yield await stack.enter_async_context(Pair(folder, servers, database))


KINDS = ["folder", pytest.param("postgresql", marks=needs_postgresql)]


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=KINDS)
async def common(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Pair]:
    """For all tests that end neither of the servers."""
    async with running_pair(tmp_path_factory.mktemp("pair"), request.param) as found:
        yield found


@pytest.fixture
def pair(common: Pair) -> Pair:
    """Two servers that have counted nothing yet."""
    (common.folder / "counted").unlink(missing_ok=True)
    return common


async def test_each_of_many_decisions_in_any_order_at_any_process_counts_once(pair: Pair) -> None:
    rng = random.Random(20260115)
    turns = [await pair.turn(number, pair.servers[number % 2]) for number in range(QUESTIONS)]
    running = [asyncio.ensure_future(turn.run(pair.http)) for turn in turns]
    with anyio.fail_after(SECONDS):
        await asyncio.gather(*(turn.asked.wait() for turn in turns))
    for turn in rng.sample(turns, 10):
        for server in pair.servers:
            assert await pair.open_questions(server, turn) == [turn.confirmation_id]

    order = rng.sample(turns, len(turns))
    approved = {turn.number for turn in order if rng.random() < 0.7}
    statuses: dict[int, list[int]] = {turn.number: [] for turn in turns}

    async def client(some: list[Turn]) -> None:
        for turn in some:
            server = rng.choice(pair.servers)
            yes = turn.number in approved
            status, _ = await pair.confirm(server, turn, approved=yes, reason=str(turn.number))
            statuses[turn.number].append(status)

    # Every question is decided twice, at two processes, by different clients, at about one time.
    twice = [order[start::CLIENTS] for start in range(CLIENTS)]
    twice = [some + twice[(at + 1) % CLIENTS] for at, some in enumerate(twice)]
    for some in twice:
        rng.shuffle(some)
    with anyio.fail_after(SECONDS):
        await asyncio.gather(*map(client, twice))
        await asyncio.gather(*running)

    assert {number: sorted(found) for number, found in statuses.items()} == {
        number: [200, 404] for number in range(QUESTIONS)
    }
    for turn in turns:
        decided, result = turn.data("tool_call_confirmation_decided"), turn.data("tool_result")
        assert decided["approved"] is result["success"] is (turn.number in approved)
        assert decided["reason"] == str(turn.number)
        assert turn.events[-1].event == "done"
    assert pair.counted() == Counter(approved)
    for turn in turns:
        assert await pair.open_questions(rng.choice(pair.servers), turn) == []
    await pair.nothing_left()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_question_of_a_process_that_died_can_be_decided_once(
    tmp_path: Path, kind: str
) -> None:
    """It outlives its process: it is listed with its run, and the first decision counts."""
    async with running_pair(tmp_path, kind) as pair:
        one, two = pair.servers
        turn = await pair.turn(1, one)
        running = asyncio.ensure_future(turn.run(pair.http))
        with anyio.fail_after(SECONDS):
            await turn.asked.wait()
            await one.stop(signal.SIGKILL)
            await asyncio.gather(running, return_exceptions=True)
            assert await pair.open_questions(two, turn) == [turn.confirmation_id]
            status, body = await two.get(f"/confirmations?session_id={turn.session_id}")
            assert status == 200
            (entry,) = body["confirmations"]
            assert entry["run_id"] == turn.data("run_start")["run_id"]
            assert (await pair.confirm(two, turn))[0] == 200
            status, body = await pair.confirm(two, turn, approved=False)
        assert (status, body["error"]["code"]) == (404, "CONFIRMATION_NOT_FOUND")
        assert await pair.open_questions(two, turn) == []


async def test_workers_of_one_server_share_their_questions(tmp_path: Path) -> None:
    write_tools(tmp_path / "tools", init=COUNT)
    async with (
        Counting(one_at_a_time=False) as ollama,
        running_server(data_dir=tmp_path, ollama=ollama, workers=2) as server,
        Pair(tmp_path, [server]) as pair,
    ):
        turns = [await pair.turn(number, server) for number in range(20)]
        running = [asyncio.ensure_future(turn.run(pair.http)) for turn in turns]
        with anyio.fail_after(SECONDS):
            await asyncio.gather(*(turn.asked.wait() for turn in turns))
            # Each on a connection of its own, so on any worker.
            for turn in turns:
                async with aiohttp.ClientSession() as http:
                    path = f"{server.api}/chat/{turn.session_id}/confirm-tool"
                    body = {"confirmation_id": turn.confirmation_id, "approved": True}
                    async with http.post(path, json=body) as response:
                        assert response.status == 200, json.dumps(await response.json())
            await asyncio.gather(*running)
        assert pair.counted() == Counter(range(20))


@needs_postgresql
async def test_without_its_database_the_call_is_denied_and_the_turn_goes_on(tmp_path: Path) -> None:
    write_tools(tmp_path / "tools", init=COUNT)
    async with (
        running_postgresql() as database,
        Counting(one_at_a_time=False) as ollama,
        running_server(data_dir=tmp_path, ollama=ollama, database_url=database.url) as server,
        Pair(tmp_path, [server], database) as pair,
    ):
        waiting, denied = await pair.turn(1, server), await pair.turn(2, server)
        running = asyncio.ensure_future(waiting.run(pair.http))
        with anyio.fail_after(SECONDS):
            await waiting.asked.wait()
            await database.stop()
            status, body = await pair.confirm(server, waiting)
            assert (status, body["error"]["code"]) == (503, "CONFIRMATION_UNAVAILABLE")
            await denied.run(pair.http)
            await database.start()

            await until(lambda: pair.confirm(server, waiting), lambda answer: answer[0] == 200)
            await running
        assert denied.data("tool_result")["code"] == "CONFIRMATION_UNAVAILABLE"
        assert not denied.data("tool_result")["success"]
        assert denied.events[-2].event == "message_complete"
        assert waiting.data("tool_result")["success"], waiting.events
        assert pair.counted() == Counter([1])
        await pair.nothing_left()
