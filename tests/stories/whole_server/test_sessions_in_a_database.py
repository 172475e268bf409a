"""A server with its sessions in PostgreSQL, which comes late, goes away and comes back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from mochi_server.sessions import SessionManager
from tests.support.fake_ollama import FakeOllama
from tests.support.outages import WAITS_LONG
from tests.support.postgresql import PostgreSQL, needs_postgresql, running_postgresql
from tests.support.server import Server, environment, run_command, running_server
from tests.support.waiting import until

pytestmark = [needs_postgresql, pytest.mark.slow]

SECONDS = 60


@pytest.fixture
async def database() -> AsyncIterator[PostgreSQL]:
    async with running_postgresql() as server:
        yield server


def in_database(database: PostgreSQL, **settings: Any) -> dict[str, Any]:
    return {"session_storage": "database", "database_url": database.url, **settings}


async def until_ready(server: Server) -> None:
    await until(lambda: server.get("/health/ready"), lambda answer: answer[0] == 200)


async def turn_with_fault(
    server: Server, session_id: str, gate: asyncio.Event, fault: Callable[[], Awaitable[None]]
) -> tuple[list[str], list[str]]:
    """Send a message, and let something happen in mid-reply, before the gate is open.

    Returns the names of the events, and the codes of errors.
    """
    kinds: list[str] = []
    errors: list[str] = []
    async for event in server.stream(f"/chat/{session_id}/stream", {"message": "Go"}):
        kinds.append(event.event)
        if event.event == "error":
            errors.append(event.data["code"])
        if event.event == "content_delta" and not gate.is_set():
            await fault()
            gate.set()
    return kinds, errors


async def until_listed(server: Server, session_id: str) -> None:
    """Wait until the server has noticed the session of another one."""
    await until(
        lambda: server.get("/sessions"),
        lambda answer: [each["session_id"] for each in answer[1]["sessions"]] == [session_id],
    )


async def say(server: Server, session_id: str) -> list[str]:
    """The events of a turn."""
    path = f"/chat/{session_id}/stream"
    return [event.event async for event in server.stream(path, {"message": "Hi"})]


async def test_two_servers_make_the_tables_and_share_the_sessions(
    database: PostgreSQL, tmp_path: Path, ollama: FakeOllama
):
    """Each as a machine of its own: with a data folder of its own."""
    folders = [tmp_path / "here", tmp_path / "there"]
    for folder in folders:
        folder.mkdir()
    async with (
        running_server(data_dir=folders[0], ollama=ollama, **in_database(database)) as here,
        running_server(data_dir=folders[1], ollama=ollama, **in_database(database)) as there,
    ):
        assert "sessions: in the database" in here.log
        session_id = await here.new_session(title="Shared")
        assert (await say(here, session_id))[-1] == "done"
        assert (await say(there, session_id))[-1] == "done"
        _, session = await here.get(f"/sessions/{session_id}")
        assert [message["role"] for message in session["messages"]] == ["user", "assistant"] * 2
        for server in (here, there):
            await until_listed(server, session_id)
        _, found = await there.get("/sessions?query=Hi")
        assert [each["session_id"] for each in found["sessions"]] == [session_id]
        assert (await there.request("DELETE", f"/sessions/{session_id}"))[0] == 204
        assert (await here.get(f"/sessions/{session_id}"))[0] == 404


async def test_a_server_starts_without_its_database_and_has_sessions_when_it_comes(
    database: PostgreSQL, tmp_path: Path, ollama: FakeOllama
):
    await database.stop()
    async with running_server(data_dir=tmp_path, ollama=ollama, **in_database(database)) as server:
        status, answer = await server.post("/sessions", {"model": "qwen3:14b"})
        assert (status, answer["error"]["code"]) == (503, "STORAGE_UNAVAILABLE")
        assert (await server.get("/health/ready"))[0] == 503
        assert (await server.get("/health/live"))[0] == 200
        await server.saw("The database of the sessions cannot be used: ")
        assert "Traceback" not in server.log
        await database.start()
        await until_ready(server)
        session_id = await server.new_session()
        assert (await say(server, session_id))[-1] == "done"


async def test_a_turn_whose_database_goes_away_ends_with_an_error_and_keeps_what_was_stored(
    database: PostgreSQL, tmp_path: Path, ollama: FakeOllama
):
    gate = asyncio.Event()
    ollama.reply([f"{number} " for number in range(100)], gate=gate, pause_after=5)
    async with running_server(data_dir=tmp_path, ollama=ollama, **in_database(database)) as server:
        session_id = await server.new_session()
        kinds, errors = await turn_with_fault(server, session_id, gate, database.stop)
        assert (kinds[-1], errors) == ("done", ["STORAGE_UNAVAILABLE"])
        await database.start()
        await until_ready(server)
        _, session = await server.get(f"/sessions/{session_id}")
        assert session["messages"][0]["content"] == "Go"
        await until(
            lambda: server.post(f"/chat/{session_id}", {"message": "Again"}),
            lambda answer: answer[0] == 200,
        )


async def test_a_turn_goes_on_through_a_restart_of_its_database(
    database: PostgreSQL, tmp_path: Path, ollama: FakeOllama
):
    gate = asyncio.Event()
    ollama.reply([f"{number} " for number in range(100)], gate=gate, pause_after=5)
    async with running_server(
        data_dir=tmp_path, ollama=ollama, command=WAITS_LONG, **in_database(database)
    ) as server:
        session_id = await server.new_session()

        async def restart() -> None:
            await database.stop()
            gate.set()
            await database.start()

        kinds, _ = await turn_with_fault(server, session_id, gate, restart)
        assert "error" not in kinds
        assert kinds[-1] == "done"
        _, session = await server.get(f"/sessions/{session_id}")
        assert session["messages"][1]["content"].split() == [str(n) for n in range(100)]


async def test_a_backup_restored_in_mid_turn_gets_no_answer_without_its_question(
    database: PostgreSQL, tmp_path: Path, ollama: FakeOllama
):
    gate = asyncio.Event()
    ollama.reply(["Once", " upon", " a time"], gate=gate, pause_after=2)
    async with (
        running_server(data_dir=tmp_path, ollama=ollama, **in_database(database)) as server,
        await psycopg.AsyncConnection.connect(database.url, autocommit=True) as connection,
    ):
        session_id = await server.new_session()
        await connection.execute("CREATE TABLE backup AS SELECT * FROM sessions_app_storedsession")

        async def restore() -> None:
            async with connection.transaction():
                await connection.execute("DELETE FROM sessions_app_storedsession")
                await connection.execute(
                    "INSERT INTO sessions_app_storedsession SELECT * FROM backup"
                )

        kinds, errors = await turn_with_fault(server, session_id, gate, restore)
        assert (kinds[-1], errors) == ("done", ["STORAGE_UNAVAILABLE"])
        _, session = await server.get(f"/sessions/{session_id}")
        assert session["messages"] == []
        assert (await say(server, session_id))[-1] == "done"


async def test_the_doctor_tells_of_the_database_and_changes_nothing(
    database: PostgreSQL, tmp_path: Path
):
    variables = environment(data_dir=tmp_path, **in_database(database))
    ended = await run_command("doctor", cwd=tmp_path, env=variables)
    assert "lacks sessions_app.0001_initial" in ended.out
    assert ended.out.count("The sessions cannot be listed") == 1
    again = await run_command("doctor", cwd=tmp_path, env=variables)
    assert "lacks sessions_app.0001_initial" in again.out
    listed = await run_command("sessions", "list", cwd=tmp_path, env=variables)
    assert listed.out == "No sessions.\n"
    healthy = await run_command("doctor", cwd=tmp_path, env=variables)
    assert "its tables are complete" in healthy.out
    await database.stop()
    absent = await run_command("doctor", cwd=tmp_path, env=variables)
    assert "The database postgres at 127.0.0.1" in absent.out
    assert absent.out.count("The sessions cannot be listed") == 1
    assert absent.code == 1


async def test_the_doctor_names_a_missing_driver_and_looks_for_no_database(tmp_path: Path):
    variables = environment(
        data_dir=tmp_path, session_storage="database", database_url="mysql://localhost/mochi"
    )
    ended = await run_command("doctor", cwd=tmp_path, env=variables)
    assert ended.code == 1
    assert "the package mysqlclient is missing" in ended.out
    assert "The database " not in ended.out.replace("The database of the sessions", "")


async def test_sessions_are_copied_into_the_database_and_compared(
    database: PostgreSQL, tmp_path: Path
):
    variables = environment(data_dir=tmp_path, database_url=database.url)
    people = SessionManager(sessions_dir=tmp_path / "chat_sessions")
    agents = SessionManager(sessions_dir=tmp_path / "agents" / "agent_chats")
    ids = [(await people.create("m", labels={"title": f"{n}"})).session_id for n in range(30)]
    await agents.create("m", session_id="agent")
    arguments = ("copy_sessions", "--from", "json", "--to", "database")
    first = await run_command(*arguments, cwd=tmp_path, env=variables)
    assert first.code == 0, first.err
    assert "Every session is the same in both storages." in first.out

    async with people.edit(ids[0]) as session:
        session.metadata.label(title="changed since")
    second = await run_command(*arguments, cwd=tmp_path, env=variables)
    assert second.code == 1
    assert (
        second.err.splitlines()[-1] == f"problem: {ids[0]}: another session with this id is there"
    )
    checked = await run_command(*arguments, "--check", cwd=tmp_path, env=variables)
    assert checked.code == 1
    assert checked.err.splitlines()[-1] == f"problem: {ids[0]}: it differs"
    third = await run_command(*arguments, "--overwrite", cwd=tmp_path, env=variables)
    assert third.code == 0

    back = environment(data_dir=tmp_path / "new", database_url=database.url)
    other_way = ("copy_sessions", "--from", "database", "--to", "json", "--json")
    fourth = await run_command(*other_way, cwd=tmp_path, env=back)
    assert fourth.code == 0, fourth.err
    for path in (tmp_path / "chat_sessions").glob("*.json"):
        copy = tmp_path / "new" / "chat_sessions" / path.name
        assert copy.read_bytes() == path.read_bytes()
    assert (tmp_path / "new" / "agents" / "agent_chats" / "agent.json").exists()
