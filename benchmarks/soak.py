"""Two servers under load whose processes, Redis and database are killed all the time.

    python benchmarks/soak.py                             # 10 minutes, 200 streams, Redis
    python benchmarks/soak.py --storage files             # one folder, a kill every 20 s
    python benchmarks/soak.py --storage database          # Redis and a PostgreSQL of its own
    python benchmarks/soak.py --minutes 3 --streams 40    # a smaller look

Streams of plain turns, tools, questions and agents, with summaries in the background. The second
server is killed every now and then and started again; the first one lives, and its memory is
watched. Redis (which keeps what it has) is killed and started again twice, the database once. At
the end each session is read: what was acknowledged is in it, and nothing twice. Exits with 1 if
that is not so. It ends by itself, and ends what it has started.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import anyio

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.support.agents import write_skill
from tests.support.postgresql import PostgreSQL, running_postgresql
from tests.support.redis import PERSISTENT, Redis, running_redis
from tests.support.server import Server, running_server
from tests.support.sse import ServerEvent, events

MODEL = "test/soak"
TURNS_OF_A_SESSION = 8
PATIENCE_SECONDS = 60.0
"""Longest time in which a turn must be accepted, and, once it is, come to its end."""
GROWTH_MIB = 64.0
"""Of the memory of the server that lives, after the first third of the time."""

TOOL = '''
import os


def note(text: str) -> str:
    """Write a line.

    Args:
        text: The line.
    """
    file = os.open(PLACE, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{text}\\n".encode())
    os.close(file)
    return f"noted {text}"


__all__ = ["note"]
'''

KINDS = ("plain", "tool", "question", "agent")
REFUSED = (409, 429, 502, 503, 507)
"""Statuses of a message that was not accepted, and may be sent again."""
ENDED = ("done", "failed", "stopped", "interrupted")
"""States of runs that are over."""


class Broken(Exception):
    """The connection broke: it is not known what the server has done."""


class NotSent(Broken):
    """There was no connection."""


def script(**fields: Any) -> str:
    return f"<|instruction_start|>{json.dumps(fields)}<|instruction_end|>"


def message_of(kind: str, mark: str) -> str:
    """Return a message whose reply is known."""
    said = [{"text_message": {"text": f"{mark} " + "word " * 60}}]
    if kind == "plain":
        return script(messages=said)
    call = {"name": "note", "args": {"text": mark}}
    if kind == "agent":
        inner = script(
            lasting=True,
            messages=[{"text_message": {"text": "I plan."}}],
            steps=[[{"tool_call": [call]}], [{"text_message": {"text": "I did."}}]],
        )
        call = {"name": "agent", "args": {"agent": "scribe", "instruction": inner}}
    return script(messages=[{"tool_call": [call]}], steps=[said])


@dataclass
class Sent:
    """A message, and what its client was told."""

    mark: str
    kind: str
    text: str
    accepted: bool = False
    completed: bool = False


@dataclass
class Talk:
    """A session and its client."""

    session_id: str
    kind: str
    sent: list[Sent] = field(default_factory=list)


class Worker:
    """A server that is started again after a kill."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        self._stack = AsyncExitStack()
        self.server: Server | None = None

    async def start(self) -> None:
        self._stack = AsyncExitStack()
        running = running_server(ollama=None, **self._settings)
        self.server = await self._stack.enter_async_context(running)

    async def kill(self) -> None:
        assert self.server is not None
        server, self.server = self.server, None
        server.process.send_signal(signal.SIGKILL)
        await server.process.wait()
        await self._stack.aclose()

    async def stop(self) -> None:
        self.server = None
        await self._stack.aclose()

    @property
    def mib(self) -> float:
        """Memory of its process."""
        assert self.server is not None
        pages = int(Path(f"/proc/{self.server.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


class Soak:
    def __init__(self, options: argparse.Namespace, folder: Path, workers: list[Worker]) -> None:
        self.options = options
        self.folder = folder
        self.workers = workers
        self.talks: list[Talk] = []
        self.counts: collections.Counter[str] = collections.Counter()
        self.problems: list[str] = []
        self.memory: list[tuple[float, float]] = []
        self.begin = time.monotonic()
        self.end = self.begin + options.minutes * 60
        self._random = random.Random(options.seed)

    def server(self) -> Server | None:
        """Return any server that runs."""
        running = [worker.server for worker in self.workers if worker.server is not None]
        return self._random.choice(running) if running else None

    @asynccontextmanager
    async def request(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Ask any server."""
        server = self.server()
        if server is None:
            raise NotSent
        try:
            async with server.http.request(
                method, server.api + path, json=body, headers=headers
            ) as response:
                yield response
        except aiohttp.ClientConnectorError as error:
            raise NotSent from error
        except (aiohttp.ClientError, OSError, RuntimeError) as error:
            self.counts["connections broken"] += 1
            raise Broken from error

    # ---- streams

    async def stream(self, number: int) -> None:
        """Talk until the time is over."""
        kind, talk = KINDS[number % len(KINDS)], None
        await anyio.sleep(self._random.uniform(0, 5))
        while time.monotonic() < self.end:
            if talk is None or len(talk.sent) >= TURNS_OF_A_SESSION:
                talk = await self.new_talk(kind)
            else:
                await self.turn(talk)

    async def new_talk(self, kind: str) -> Talk | None:
        policy = "always_confirm" if kind == "question" else "never_confirm"
        body: dict[str, Any] = {"model": MODEL}
        if kind != "plain":
            body["tool_settings"] = {"tools": ["note"], "execution_policy": policy}
        if kind == "agent":
            body["agent_settings"] = {"enabled_agents": ["scribe"]}
        session_id = None
        with suppress(Broken):
            async with self.request("POST", "/sessions", body) as response:
                if response.status == 201:
                    session_id = (await response.json())["session_id"]
        if session_id is None:
            await anyio.sleep(0.2)
            return None
        talk = Talk(session_id, kind)
        self.talks.append(talk)
        return talk

    async def turn(self, talk: Talk) -> None:
        """Send a message until it is accepted, and read its run to the end."""
        mark = f"{talk.session_id}-{len(talk.sent)}"
        sent = Sent(mark, talk.kind, message_of(talk.kind, mark))
        talk.sent.append(sent)
        reader = Reader(self, talk, sent)
        with anyio.move_on_after(PATIENCE_SECONDS):
            while not sent.accepted and reader.may_send_again:
                await reader.send()
        if not sent.accepted:
            self.counts["unsure whether accepted" if not reader.may_send_again else "refused"] += 1
            return
        with anyio.move_on_after(PATIENCE_SECONDS) as patience:
            while not reader.is_over:
                await reader.go_on()
        if patience.cancelled_caught:
            state = await self.state_of(reader.run_id)
            self.problems.append(f"{mark}: no end after {PATIENCE_SECONDS:.0f} s: {state}")
        self.counts[f"{talk.kind}: {reader.outcome}"] += 1

    async def state_of(self, run_id: str) -> str:
        """Return what the servers say of a run, and have logged about it."""
        said = []
        for server in [worker.server for worker in self.workers if worker.server is not None]:
            with suppress(aiohttp.ClientError, OSError):
                said.append(str(await server.get(f"/runs/{run_id}")))
            said += [line for line in server.log.splitlines() if run_id in line]
        return "\n    ".join(said)

    # ---- faults

    async def kill(self) -> None:
        while time.monotonic() + self.options.kill_seconds < self.end:
            await anyio.sleep(self.options.kill_seconds)
            await self.workers[1].kill()
            self.counts["kills"] += 1
            await self.workers[1].start()

    async def restart(self, part: Redis | PostgreSQL, times: int) -> None:
        name = type(part).__name__
        for _ in range(times):
            await anyio.sleep(self.options.minutes * 60 / (times + 1.5))
            await part.stop()
            await anyio.sleep(2)
            await part.start()
            self.counts[f"restarts of {name}"] += 1

    async def watch(self) -> None:
        while time.monotonic() < self.end:
            await anyio.sleep(1)
            self.memory.append((time.monotonic() - self.begin, self.workers[0].mib))

    # ---- the end

    async def check(self) -> None:
        """Read every session, and compare it with what its client knows."""
        server = self.workers[0].server
        assert server is not None
        status, listed = await server.get("/sessions")
        if status != 200 or listed["problems"]:
            self.problems.append(f"the list: {status} {listed}")
        await self.until_over(server)
        for talk in self.talks:
            status, session = await server.get(f"/sessions/{talk.session_id}")
            if status != 200:
                self.problems.append(f"{talk.session_id}: {status} {session}")
            else:
                self.problems += compare(talk, session)
        notes = collections.Counter((self.folder / "notes").read_text().splitlines())
        self.counts["calls executed"] = notes.total()
        self.problems += [f"{mark}: its call ran {n} times" for mark, n in notes.items() if n > 1]
        for talk in self.talks:
            for sent in talk.sent:
                if sent.completed and sent.kind != "plain" and not notes[sent.mark]:
                    self.counts["calls told as interrupted"] += 1

    async def until_over(self, server: Server) -> None:
        """Wait until no run goes on; end those that wait for a person."""
        with anyio.move_on_after(PATIENCE_SECONDS):
            while True:
                status, answer = await server.get("/runs")
                runs = answer["runs"] if status == 200 else []
                open_runs = [each for each in runs if each["state"] not in ENDED]
                if status == 200 and not open_runs:
                    return
                for run in open_runs:
                    await server.post(f"/runs/{run['run_id']}/stop")
                await anyio.sleep(0.5)
        self.problems.append("a run does not end")

    def report(self) -> bool:
        """Print the figures; whether all is well."""
        for name, count in sorted(self.counts.items()):
            print(f"  {name}: {count}")
        turns = [sent for talk in self.talks for sent in talk.sent]
        accepted = sum(sent.accepted for sent in turns)
        completed = sum(sent.completed for sent in turns)
        print(f"  sessions {len(self.talks)}, turns accepted {accepted}, completed {completed}")
        third = self.options.minutes * 20
        first = [mib for seconds, mib in self.memory if third <= seconds < 2 * third]
        last = [mib for seconds, mib in self.memory if seconds >= 2 * third]
        if first and last:
            growth = max(last) - max(first)
            print(f"  memory of the first server: {max(first):.0f} MiB, then {max(last):.0f} MiB")
            if growth > GROWTH_MIB:
                self.problems.append(f"the memory has grown by {growth:.0f} MiB")
        if not completed:
            self.problems.append("no turn was completed")
        for problem in self.problems[:50]:
            print(f"  PROBLEM {problem}")
        print(f"{len(self.problems)} problems")
        return not self.problems


class Reader:
    """The client of one turn, which goes on at any server."""

    def __init__(self, soak: Soak, talk: Talk, sent: Sent) -> None:
        self._soak, self._talk, self._sent = soak, talk, sent
        self.run_id = self._last = ""
        self._kinds: list[str] = []
        self._to_decide: set[str] = set()
        self._code = ""
        self.may_send_again = True

    @property
    def is_over(self) -> bool:
        return self._kinds[-1:] == ["done"]

    @property
    def outcome(self) -> str:
        return self._code or ("completed" if self._sent.completed else "without an end")

    async def send(self) -> None:
        """Send it once; a connection that breaks without an answer leaves it open."""
        path = f"/chat/{self._talk.session_id}/stream"
        body = {"message": self._sent.text, "on_disconnect": "continue"}
        try:
            async with self._soak.request("POST", path, body) as response:
                if response.status == 200:
                    self._sent.accepted = True
                    self.run_id = response.headers["X-Run-Id"]
                    await self._read(response)
                    return
                if response.status not in REFUSED:
                    text = await response.text()
                    self._soak.problems.append(f"{self._sent.mark}: {response.status} {text[:300]}")
                    self.may_send_again = False
        except NotSent:
            pass
        except Broken:
            self.may_send_again = False
        await anyio.sleep(0.3)

    async def go_on(self) -> None:
        await self._decide()
        path = f"/runs/{self.run_id}/events"
        headers = {"Last-Event-ID": self._last} if self._last else {}
        with suppress(Broken):
            async with self._soak.request("GET", path, None, **headers) as response:
                if response.status == 200:
                    await self._read(response)
        if not self.is_over:
            await anyio.sleep(0.2)

    async def _read(self, response: aiohttp.ClientResponse) -> None:
        async for event in events(response.content.iter_any()):
            self._take(event)
            await self._decide()

    def _take(self, event: ServerEvent) -> None:
        if event.id:
            if self._last and int(event.id) <= int(self._last):
                self._soak.problems.append(f"{self._sent.mark}: event {event.id} came twice")
            self._last = event.id
        self._kinds.append(event.event)
        match event.event:
            case "tool_call_confirmation_required":
                self._to_decide.add(event.data["confirmation_id"])
            case "message_complete":
                self._sent.completed = True
            case "error":
                self._code = event.data["code"]

    async def _decide(self) -> None:
        """Allow what is asked, at any server, until one has taken it."""
        for confirmation in list(self._to_decide):
            path = f"/confirmations/{confirmation}"
            with suppress(Broken):
                async with self._soak.request("POST", path, {"approved": True}) as response:
                    if response.status in (200, 404, 408):
                        self._to_decide.discard(confirmation)
                        self._soak.counts[f"decisions: {response.status}"] += 1


def compare(talk: Talk, session: dict[str, Any]) -> list[str]:
    """Return what is wrong with a session."""
    problems, messages = [], session["messages"]
    said = [message["content"] for message in messages if message["role"] == "user"]
    expected = [sent.text for sent in talk.sent if sent.accepted]
    known = {sent.text for sent in talk.sent}
    if [text for text in said if text in expected] != expected:
        problems.append("a message that was accepted is missing, twice, or in another place")
    if len(set(said)) != len(said) or not set(said) <= known:
        problems.append("a message is twice, or was never sent")
    for sent in talk.sent:
        replies = [
            message
            for message in messages
            if message["role"] == "assistant"
            and (message["content"] or "").startswith(f"{sent.mark} ")
        ]
        if len(replies) > 1 or (sent.completed and not replies):
            problems.append(f"{len(replies)} answers to {sent.mark}")
    problems += check_calls(messages)
    return [f"{talk.session_id}: {problem}" for problem in problems]


def check_calls(messages: list[dict[str, Any]]) -> list[str]:
    """Each call has one result, behind it and in order."""
    rest, problems = list(messages), []
    while rest:
        message = rest.pop(0)
        if message["role"] == "tool":
            problems.append("a result without a call")
        for call in message.get("tool_calls") or []:
            result = rest.pop(0) if rest else {"role": None}
            if result["role"] != "tool" or result["tool_call_id"] != call["id"]:
                return [*problems, "a call without its result"]
    return problems


def settings_of(
    options: argparse.Namespace, redis: Redis | None, database: PostgreSQL | None
) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "summarization_enabled": True,
        "summarization_interval_seconds": 1,
        "test_words_per_second": 50,
        "log_level": "WARNING",
    }
    if redis is not None:
        settings["redis_url"] = redis.url
        settings["session_storage"] = options.storage
    if database is not None:
        settings["database_url"] = database.url
    return settings


def prepare(folder: Path, notes: Path) -> None:
    for place in (folder / "tools", folder / "agents" / "scribe" / "tools"):
        place.mkdir(parents=True, exist_ok=True)
        (place / "__init__.py").write_text(TOOL.replace("PLACE", repr(str(notes))))
    write_skill(folder / "agents" / "scribe")


async def soak(options: argparse.Namespace, folder: Path) -> bool:
    (folder / "notes").touch()
    async with AsyncExitStack() as stack:
        redis, database, folders = None, None, [folder / "one", folder / "one"]
        if options.storage != "files":
            folders[1] = folder / "two"
            redis = await stack.enter_async_context(running_redis(folder, *PERSISTENT))
            database = await stack.enter_async_context(running_postgresql())
        for each in folders:
            prepare(each, folder / "notes")
        settings = settings_of(options, redis, database)
        workers = [Worker({**settings, "data_dir": each}) for each in folders]
        for worker in workers:
            await worker.start()
            stack.push_async_callback(worker.stop)
        run = Soak(options, folder, workers)
        async with anyio.create_task_group() as tasks:
            for number in range(options.streams):
                tasks.start_soon(run.stream, number)
            tasks.start_soon(run.kill)
            if redis is not None:
                tasks.start_soon(run.restart, redis, 2)
            if database is not None:
                tasks.start_soon(run.restart, database, 1)
            tasks.start_soon(run.watch)
        await run.check()
        for worker in workers:
            assert worker.server is not None
            if "Traceback" in worker.server.log:
                (folder / "failed.log").write_text(worker.server.log)
                lines = worker.server.log.split("Traceback", 1)[1][-1500:]
                run.problems.append(f"a server logged an error: {lines}")
        return run.report()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--storage", choices=["redis", "files", "database"], default="redis")
    parser.add_argument("--kill-seconds", type=float, help="30; with files 20")
    parser.add_argument("--seed", type=int, default=20261124)
    options = parser.parse_args()
    if options.kill_seconds is None:
        options.kill_seconds = 20.0 if options.storage == "files" else 30.0

    async def bounded() -> bool:
        with tempfile.TemporaryDirectory(prefix="soak-") as folder:
            with anyio.fail_after(options.minutes * 60 + 600):
                return await soak(options, Path(folder))

    return 0 if anyio.run(bounded) else 1


if __name__ == "__main__":
    sys.exit(main())
