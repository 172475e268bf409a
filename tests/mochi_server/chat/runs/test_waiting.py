"""Runs that wait for a person: no process executes them, and a decision takes them up."""

from __future__ import annotations

import asyncio
import sqlite3
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
import pytest_asyncio

from mochi_server.chat.runs.log import LogReader
from mochi_server.chat.runs.run import Run
from mochi_server.chat.tool_calls import handling
from mochi_server.core.clock import Clock
from mochi_server.errors import SessionBusy, ShuttingDown
from mochi_server.protocol.events import ConfirmationRequired, Event
from mochi_server.protocol.options import ModelOptions
from mochi_server.protocol.response_format import JsonSchemaFormat
from mochi_server.protocol.turn_request import TurnRequest
from mochi_server.sessions.types import ToolSettings
from sessions_app.backends.state import DatabaseState
from tests.support.databases import database_alias
from tests.support.fake_ollama import FakeOllama
from tests.support.postgresql import needs_postgresql, running_postgresql
from tests.support.text_calls import TOOLS as FUNCTIONS
from tests.support.turns import Bench, bench, kinds, read_until
from tests.support.waiting import until

TOOLS = '''
from datetime import datetime, timedelta
from pathlib import Path

__all__ = ["look", "erase"]
__destructive__ = ["erase"]


def look(path: str) -> str:
    """Look at a file."""
    return _note("looked at", path)


def erase(path: str) -> str:
    """Erase a file."""
    return _note("erased", path)


def _note(what: str, path: str) -> str:
    with Path("{ran}").open("a") as file:
        file.write(f"{{what}} {{path}}\\n")
    return f"{{what}} {{path}}"
'''


class AnHourLater(Clock):
    """The clock of the system, an hour ahead in every respect."""

    def __call__(self) -> datetime:
        return super().__call__() + timedelta(hours=1)

    def monotonic(self) -> float:
        return super().monotonic() + 3600


class House:
    """A data folder with tools, and what they have done."""

    def __init__(self, folder: Path, ollama: FakeOllama, alias: str | None = None) -> None:
        self.folder, self.ollama, self.alias = folder, ollama, alias
        write(folder / "tools" / "__init__.py", TOOLS.format(ran=folder / "ran"))

    @property
    def ran(self) -> list[str]:
        path = self.folder / "ran"
        return path.read_text().splitlines() if path.exists() else []

    def process(self, **settings: Any) -> Any:
        settings.setdefault("tool_confirmation_timeout_seconds", 0)
        if self.alias is not None:
            settings["state"] = DatabaseState(alias=self.alias)
        return bench(self.folder, self.ollama, **settings)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


in_postgresql_too = pytest.mark.parametrize(
    "house", ["files", pytest.param("postgresql", marks=needs_postgresql)], indirect=True
)


@pytest_asyncio.fixture
async def house(request, tmp_path, ollama, django_db_blocker):
    ollama.one_at_a_time = False
    if getattr(request, "param", "files") == "files":
        yield House(tmp_path, ollama)
        return
    async with running_postgresql() as server:
        with database_alias(server.url, django_db_blocker) as alias:
            yield House(tmp_path, ollama, alias)


@pytest_asyncio.fixture
async def first(house):
    async with house.process() as one:
        yield one


async def session_of(engine: Bench, policy: str = "confirm_destructive") -> str:
    return await engine.session(
        tool_settings=ToolSettings(tools=["look", "erase"], execution_policy=policy)
    )


def call(tool: str, call_id: str = "call_1", /, **arguments: Any) -> dict[str, Any]:
    return {"id": call_id, "name": tool, "arguments": arguments}


async def ask(engine: Bench, session: str) -> str:
    """Start a run that nobody reads, and return its id when it waits without a process."""
    started = await engine.runtime.run_control.start(
        session, TurnRequest(message="Do it.", continues=True)
    )
    started.reader.leave()
    await waiting(engine, started.run_id)
    return started.run_id


async def waiting(engine: Bench, run_id: str) -> None:
    async def is_parked() -> bool:
        return run_id in await engine.runs.others.waiting_runs() and not len(engine.runs)

    await until(is_parked)


async def decide(engine: Bench, *, approved: bool = True, **decision: Any) -> None:
    """Decide about the oldest confirmation."""
    oldest = (await engine.runtime.confirmations.pending())[0]
    await engine.runtime.inbox.decide(oldest.confirmation_id, approved=approved, **decision)


async def first_pending(engine: Bench) -> str | None:
    pending = await engine.runtime.confirmations.pending()
    return pending[0].tool_call_id if pending else None


async def ended(engine: Bench, run_id: str) -> dict[str, Any]:
    status = await until(
        lambda: engine.runtime.run_control.status(run_id),
        lambda status: status["state"] not in {"running", "waiting"},
    )
    return dict(status)


async def replay(engine: Bench, run_id: str) -> list[tuple[int, Event]]:
    reader = await engine.runtime.run_control.join(run_id)
    return await rest_of(reader)


async def rest_of(reader: LogReader) -> list[tuple[int, Event]]:
    events = []
    with anyio.fail_after(30):
        while (batch := await reader.next()) is not None:
            events += batch
    reader.leave()
    return events


@pytest.fixture
def held_up(monkeypatch):
    """Make a step wait; returns what says that it has begun, and what lets it go on."""

    def hold_up(owner: Any, name: str) -> tuple[asyncio.Event, asyncio.Event]:
        step, begun, gate = getattr(owner, name), asyncio.Event(), asyncio.Event()

        async def later(*arguments: Any, **named: Any) -> Any:
            begun.set()
            await gate.wait()
            return await step(*arguments, **named)

        monkeypatch.setattr(owner, name, later)
        return begun, gate

    return hold_up


async def test_a_run_is_not_let_go_before_its_confirmation_is_stored(first, ollama, held_up):
    storing, gate = held_up(first.runtime.confirmations, "_add")
    ollama.reply(tool_calls=[call("erase", path="a")])
    asking = asyncio.ensure_future(ask(first, await session_of(first)))
    with anyio.fail_after(30):
        await storing.wait()
    await asyncio.wait({asking}, timeout=0.5)
    gate.set()
    await asking
    assert await first_pending(first) == "call_1"


async def test_who_joins_a_run_that_is_being_let_go_reads_what_a_decision_makes_of_it(
    first, house, ollama, held_up
):
    """Where a client answers a question at once, the server may be about to let the run go."""
    parking, gate = held_up(Run, "park")
    ollama.reply(tool_calls=[call("erase", path="a")])
    ollama.reply(["Done."])
    asking = asyncio.ensure_future(ask(first, await session_of(first)))
    with anyio.fail_after(30):
        await parking.wait()
    run_id = (await first.runtime.run_control.list())[0]["run_id"]
    joining = asyncio.ensure_future(first.runtime.run_control.join(run_id))
    await asyncio.wait({joining}, timeout=0.2)
    gate.set()
    reader = await joining
    await asking
    await decide(first)
    events = [event for _, event in await rest_of(reader)]
    assert kinds(events)[-1] == "done"
    assert house.ran == ["erased a"]


async def test_who_reads_a_run_that_waits_learns_that_the_server_stops(first, ollama):
    ollama.reply(tool_calls=[call("erase", path="a")])
    run_id = await ask(first, await session_of(first))
    reader = await first.runtime.run_control.join(run_id)
    first.runtime.run_control.stop_all()
    await rest_of(reader)
    assert isinstance(reader.failure, ShuttingDown)


@in_postgresql_too
async def test_a_decision_takes_a_run_up_where_it_stood(first, house, ollama):
    ollama.reply(["I shall."], tool_calls=[call("erase", path="a")])
    ollama.reply(["Done."])
    session = await session_of(first)
    run_id = await ask(first, session)
    assert len(first.runs) == 0
    assert house.ran == []
    status = await first.runtime.run_control.status(run_id)
    assert status["state"] == "waiting"
    assert [one["tool_name"] for one in status["confirmations"]] == ["erase"]
    with pytest.raises(SessionBusy):
        await first.turn(session, "Something else.")
    with pytest.raises(SessionBusy):
        await first.sessions.delete(session)
    await decide(first)
    assert (await ended(first, run_id))["state"] == "done"
    assert house.ran == ["erased a"]
    assert [m["role"] for m in first.stored(session)] == ["user", "assistant", "tool", "assistant"]
    assert [m["content"] for m in first.stored(session)][2:] == ["erased a", "Done."]
    events = await replay(first, run_id)
    assert kinds([event for _, event in events]) == [
        "run_start", "content_delta", "tool_call_confirmation_required",
        "tool_call_confirmation_decided", "tool_result", "tool_continuation_start",
        "content_delta", "message_complete", "done",
    ]  # fmt: skip
    numbers = [number for number, _ in events]
    assert numbers == sorted(set(numbers))
    assert await first.runtime.confirmations.of_run(run_id) == []


@in_postgresql_too
async def test_another_process_decides_after_the_first_has_ended(house, ollama):
    """A reader was there, which the stop of the server ends without ``done``."""
    ollama.reply(tool_calls=[call("erase", path="a"), call("erase", "call_2", path="b")])
    ollama.reply(["Done."])
    async with house.process() as one:
        session = await session_of(one)
        started = await one.runtime.run_control.start(session, TurnRequest(message="Do it."))
        await read_until(started.reader, "tool_call_confirmation_required")
    assert await rest_of(started.reader) == []
    async with house.process() as two:
        two.runtime.start()
        await waiting(two, started.run_id)
        reader = await two.runtime.run_control.join(started.run_id, started.reader.position - 1)
        await decide(two)
        await until(lambda: first_pending(two), lambda answer: answer == "call_2")
        await waiting(two, started.run_id)
        await decide(two, approved=False, reason="Not b.")
        rest = await rest_of(reader)
        assert (await ended(two, started.run_id))["state"] == "done"
        assert house.ran == ["erased a"]
        assert [m["content"] for m in two.stored(session)][2:] == [
            "erased a", "Error: the user denied this call. Reason: Not b.", "Done.",
        ]  # fmt: skip
        assert kinds([event for _, event in rest]) == [
            "tool_call_confirmation_decided", "tool_call_confirmation_required",
            "tool_call_confirmation_decided", "tool_result", "tool_continuation_start",
             "content_delta", "message_complete", "done",
        ]  # fmt: skip


async def test_a_run_that_is_taken_up_has_the_options_and_the_format_that_it_began_with(
    house, ollama
):
    given = {"seed": None, "stop": ["END"], "extra": {"ollama": {"mirostat": 1, "of": 10**30}}}
    ollama.reply(tool_calls=[call("erase", path="a")])
    for text in ("Done.", '"Done."'):
        ollama.reply([text])
    text_of_json = JsonSchemaFormat.of({"type": "string"})
    async with house.process() as one:
        session = await session_of(one)
        async with one.sessions.edit(session) as edited:
            edited.metadata.options = ModelOptions(seed=7, temperature=0.25)
        options = ModelOptions.model_validate(given)
        started = await one.runtime.run_control.start(
            session, TurnRequest(message="Do it.", options=options, response_format=text_of_json)
        )
        await read_until(started.reader, "tool_call_confirmation_required")
        async with one.sessions.edit(session) as edited:
            edited.metadata.options = ModelOptions(temperature=1.5)
    async with house.process() as two:
        two.runtime.start()
        await waiting(two, started.run_id)
        await decide(two)
        assert (await ended(two, started.run_id))["state"] == "done"
        assert two.stored(session)[-1]["content"] == '"Done."'
    before, after, repair = (chat["options"] for chat in ollama.chats)
    assert {"temperature": 0.25, "stop": ["END"], "mirostat": 1}.items() <= before.items()
    assert "seed" not in before
    assert after.keys() == before.keys() == repair.keys()
    sizes = {"num_ctx", "num_predict"}
    assert all(after[name] == before[name] for name in before.keys() - sizes)


async def test_a_run_that_is_taken_up_may_call_what_it_began_with(first, house, ollama):
    ollama.reply(tool_calls=[call("erase", path="a")])
    ollama.reply(["Done."])
    request = TurnRequest(
        message="Do it.",
        continues=True,
        allowed=["erase", "list_notes"],
        client_tools=FUNCTIONS,
    )
    started = await first.runtime.run_control.start(await session_of(first), request)
    started.reader.leave()
    await waiting(first, started.run_id)
    await decide(first)
    assert (await ended(first, started.run_id))["state"] == "done"
    assert house.ran == ["erased a"]
    offered = [[tool["function"]["name"] for tool in chat["tools"]] for chat in ollama.chats]
    assert offered == [["erase", "list_notes"]] * 2


@in_postgresql_too
async def test_a_stop_ends_a_run_that_is_just_being_taken_up(first, house, ollama, monkeypatch):
    taken, gate, never = asyncio.Event(), asyncio.Event(), asyncio.Event()
    take = first.runs.take

    async def take_slowly(run_id: str) -> Run | None:
        run = await take(run_id)
        taken.set()
        await gate.wait()
        return run

    monkeypatch.setattr(first.runs, "take", take_slowly)
    ollama.reply(tool_calls=[call("erase", path="a")])
    ollama.reply(["Done."], gate=never)
    run_id = await ask(first, await session_of(first))
    await decide(first)
    with anyio.fail_after(30):
        await taken.wait()
        stopping = asyncio.ensure_future(first.runtime.run_control.stop(run_id))
        await asyncio.wait({stopping}, timeout=0.5)
        gate.set()
        assert (await stopping)["state"] == "stopped"
    assert house.ran == []


@in_postgresql_too
async def test_a_run_that_waits_can_be_stopped(first, house, ollama):
    ollama.reply(["I shall."], tool_calls=[call("erase", path="a")])
    session = await session_of(first)
    run_id = await ask(first, session)
    answer = await first.runtime.run_control.stop(run_id)
    assert (answer["state"], answer["message"]["content"]) == ("stopped", "I shall.")
    assert await first.runtime.run_control.stop(run_id) == answer
    assert await first.runtime.confirmations.pending() == []
    assert first.stored(session)[-1]["content"].startswith("Error: the call was interrupted")
    assert house.ran == []
    await first.turn(session, "Again.")


@in_postgresql_too
async def test_time_that_is_over_takes_a_run_up(house, ollama, monkeypatch):
    ollama.reply(tool_calls=[call("erase", path="a")])
    ollama.reply(["Then not."])
    async with house.process(tool_confirmation_timeout_seconds=600) as one:
        one.runtime.start()
        session = await session_of(one)
        run_id = await ask(one, session)
        monkeypatch.setattr(one.runtime.confirmations, "clock", AnHourLater())
        assert (await ended(one, run_id))["state"] == "done"
        assert "nobody confirmed the call within 600 seconds" in one.stored(session)[-2]["content"]
    assert house.ran == []


async def test_a_later_call_with_the_same_id_is_asked_about_again(first, house, ollama):
    """Some models count their calls from one in each reply."""
    for path in ("a", "b"):
        ollama.reply(tool_calls=[call("erase", path=path)])
    ollama.reply(["Done."])
    run_id = await ask(first, await session_of(first))
    await decide(first)
    await until(lambda: house.ran == ["erased a"])
    await waiting(first, run_id)
    assert house.ran == ["erased a"]
    await decide(first, approved=False)
    assert (await ended(first, run_id))["state"] == "done"
    assert house.ran == ["erased a"]


async def test_a_message_can_interrupt_a_run_that_waits(first, house, ollama):
    ollama.reply(["I shall."], tool_calls=[call("erase", path="a")])
    ollama.reply(["Something else."])
    session = await session_of(first)
    run_id = await ask(first, session)
    control = first.runtime.run_control
    started = await control.start(session, TurnRequest(message="No!"), when_busy="interrupt")
    await rest_of(started.reader)
    assert (await control.status(run_id))["state"] == "stopped"
    assert first.stored(session)[-1]["content"] == "Something else."
    assert await first.runtime.confirmations.pending() == []
    assert house.ran == []


async def test_nothing_stays_open_for_a_tool_that_is_gone(house, ollama):
    ollama.reply(tool_calls=[call("erase", path="a"), call("erase", "call_2", path="b")])
    ollama.reply(["Neither."])
    async with house.process() as one:
        run_id = await ask(one, await session_of(one))
    write(house.folder / "policies.json", '[{"tool": "erase", "action": "deny"}]')
    async with house.process() as two:
        await decide(two)
        assert (await ended(two, run_id))["state"] == "done"
        assert await two.runtime.confirmations.pending() == []
        assert await two.runtime.confirmations.of_run(run_id) == []
    assert house.ran == []


@in_postgresql_too
async def test_a_run_with_a_further_question_is_not_taken_up_again_and_again(house, first):
    """What was decided before is acted on when the rest is decided, too."""
    calls = [call("erase", name, path=name) for name in ("a", "b")]
    house.ollama.reply(["Both."], tool_calls=calls)
    house.ollama.reply(["Done."])
    session = await session_of(first)
    run_id = await ask(first, session)
    await decide(first)
    await until(first.runtime.confirmations.pending)
    await waiting(first, run_id)
    assert await first.runtime.confirmations.decided_runs() == set()
    await decide(first)
    reader = await first.runs.join(run_id)
    events = await read_until(reader, "done")
    assert sorted(house.ran) == ["erased a", "erased b"], events


@in_postgresql_too
async def test_a_run_that_is_taken_up_with_its_decision_waits_no_more(house, first, monkeypatch):
    """Though many confirmations make it slow to notice changes, it is not let go again."""
    house.ollama.reply(["Go."], tool_calls=[call("erase", path="a")])
    house.ollama.reply(["Done."])
    session = await session_of(first)
    run_id = await ask(first, session)

    async def never(_: str) -> None:
        await asyncio.sleep(3600)

    monkeypatch.setattr(first.runtime.confirmations, "wait", never)
    await decide(first)
    reader = await first.runs.join(run_id)
    with anyio.fail_after(30):
        await read_until(reader, "done")


async def test_a_denial_holds_although_nobody_would_be_asked_any_more(first, house, ollama):
    ollama.reply(tool_calls=[call("erase", path="a")])
    ollama.reply(["Then not."])
    session = await session_of(first)
    run_id = await ask(first, session)
    async with first.sessions.edit(session) as stored:
        stored.metadata.tool_settings = ToolSettings(
            tools=["erase"], execution_policy="never_confirm"
        )
    await decide(first, approved=False)
    assert (await ended(first, run_id))["state"] == "done"
    assert house.ran == []
    assert await first.runtime.confirmations.of_run(run_id) == []


async def test_a_tool_that_has_changed_is_asked_about_again(house, ollama):
    """An argument that the model left out has another default after the restart."""
    text = TOOLS.format(ran=house.folder / "ran")
    cautious = text.replace(
        "def erase(path: str)", 'def erase(path: str, how: str = "softly")'
    ).replace('_note("erased", path)', '_note(f"erased {how}", path)')
    write(house.folder / "tools" / "__init__.py", cautious)
    ollama.reply(tool_calls=[call("erase", path="a")])
    ollama.reply(["Done."])
    async with house.process() as one:
        run_id = await ask(one, await session_of(one))
    write(house.folder / "tools" / "__init__.py", cautious.replace("softly", "for ever"))
    async with house.process() as two:
        await decide(two)
        with anyio.fail_after(30):
            while not (pending := await two.runtime.confirmations.pending()):
                await anyio.lowlevel.checkpoint()
        assert pending[0].arguments == {"path": "a", "how": "for ever"}
        assert house.ran == []
        await waiting(two, run_id)
        await decide(two)
        assert (await ended(two, run_id))["state"] == "done"
        assert house.ran == ["erased for ever a"]
        events = [event for _, event in await replay(two, run_id)]
        asked = [event for event in events if isinstance(event, ConfirmationRequired)]
        assert [event.arguments["how"] for event in asked] == ["softly", "for ever"]


async def test_no_approved_call_runs_that_cannot_be_noted(first, house, ollama, monkeypatch):
    """It could run a second time after a crash."""
    monkeypatch.setattr(handling, "NOTE_SECONDS", 0.2)
    ollama.reply(tool_calls=[call("erase", path="a")])
    ollama.reply(["Not now."])
    started = await first.runtime.run_control.start(
        await session_of(first), TurnRequest(message="Do it.")
    )
    await read_until(started.reader, "tool_call_confirmation_required")
    with sqlite3.connect(first.settings.state_path / "runs.sqlite3") as journal:
        journal.execute("ALTER TABLE state_parts RENAME TO away")
    await decide(first)
    await rest_of(started.reader)
    assert house.ran == []
    journal.close()


async def test_an_approved_call_runs_as_soon_as_that_can_be_noted(first, house, ollama):
    ollama.reply(tool_calls=[call("erase", path="a")])
    ollama.reply(["Erased."])
    started = await first.runtime.run_control.start(
        await session_of(first), TurnRequest(message="Do it.")
    )
    await read_until(started.reader, "tool_call_confirmation_required")
    journal = sqlite3.connect(first.settings.state_path / "runs.sqlite3")
    journal.execute("ALTER TABLE state_parts RENAME TO away")
    await decide(first)
    reading = asyncio.ensure_future(rest_of(started.reader))
    await asyncio.wait({reading}, timeout=0.5)
    assert house.ran == []
    journal.execute("ALTER TABLE away RENAME TO state_parts")
    journal.close()
    await reading
    assert house.ran == ["erased a"]


async def test_a_message_that_came_while_the_journal_was_away_ends_what_waited(
    first, house, ollama
):
    ollama.reply(tool_calls=[call("erase", path="a")])
    session = await session_of(first)
    run_id = await ask(first, session)
    journal = sqlite3.connect(first.settings.state_path / "runs.sqlite3")
    journal.execute("ALTER TABLE state_rows RENAME TO away")
    ollama.reply(["Second."])
    await first.turn(session, "Next.")
    journal.execute("ALTER TABLE away RENAME TO state_rows")
    journal.close()
    await decide(first)
    assert (await ended(first, run_id))["state"] == "failed"
    assert first.stored(session)[-1]["content"] == "Second."
    assert house.ran == []


async def test_confirmations_of_runs_that_are_gone_do_not_stay(house, ollama, monkeypatch):
    ollama.reply(tool_calls=[call("erase", path="a")])
    async with house.process() as one:
        await ask(one, await session_of(one))
    (one.settings.state_path / "runs.sqlite3").unlink()
    async with house.process() as two:
        monkeypatch.setattr(two.runtime.confirmations, "clock", AnHourLater())
        two.runtime.start()
        with anyio.fail_after(30):
            while await two.runtime.confirmations.stored():
                await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("remember", ["session", "tool"])
async def test_what_is_remembered_holds_as_soon_as_its_decision_and_no_sooner(
    first, house, ollama, held_up, remember
):
    """Else it would allow calls although another decision was quicker, or this one was refused."""
    ollama.reply(tool_calls=[call("erase", f"call_{number}", path="a") for number in range(2)])
    ollama.reply(["Erased."])
    session = await session_of(first)
    started = await first.runtime.run_control.start(session, TurnRequest(message="Do it."))
    await read_until(started.reader, "tool_call_confirmation_required")
    begun, gate = held_up(first.runtime.confirmations, "decide")
    deciding = asyncio.ensure_future(decide(first, remember=remember, patterns={"path": "a"}))
    with anyio.fail_after(30):
        await begun.wait()
    rules = first.runtime.inbox.rules
    assert [each.rules for each in await rules(session)] == [(), ()]
    gate.set()
    await deciding
    [rule] = [rule for each in await rules(session) for rule in each.rules]
    assert (rule.action, rule.arguments) == ("allow", {"path": "a"})
    later = [event for _, event in await rest_of(started.reader)]
    assert not [event for event in later if isinstance(event, ConfirmationRequired)]
    assert house.ran == ["erased a", "erased a"]


async def test_a_rule_that_comes_while_a_person_is_asked_denies_the_other_calls(
    first, house, ollama
):
    ollama.reply(tool_calls=[call("look", path="x"), call("erase", "call_2", path="a")])
    ollama.reply(["Done."])
    started = await first.runtime.run_control.start(
        await session_of(first), TurnRequest(message="Do it.")
    )
    await read_until(started.reader, "tool_call_confirmation_required")
    write(house.folder / "policies.json", '[{"tool": "look", "action": "deny"}]')
    await decide(first)
    await rest_of(started.reader)
    assert house.ran == ["erased a"]
