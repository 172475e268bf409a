"""Turns in which rules decide about calls in the place of a person, and approvals become rules."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import pytest

from mochi_server.chat.confirmations.confirmation import ConfirmationRecord
from mochi_server.chat.rules.commands import Fit
from mochi_server.chat.rules.comparer import Comparer
from mochi_server.errors import (
    ConfirmationNotFound,
    ConfirmationUnavailable,
    InvalidRequest,
    PolicyNotFound,
)
from mochi_server.protocol.events import Event
from mochi_server.sessions import ChatSession
from mochi_server.sessions.fork import fork_session
from mochi_server.sessions.imports.session_file import import_session_file
from mochi_server.sessions.types import ToolSettings
from mochi_server.state.statements import Statements
from tests.support.disk import full_disk
from tests.support.fake_ollama import FakeOllama
from tests.support.tools import write_tools
from tests.support.turns import Bench, bench, kinds, read_all
from tests.support.waiting import until

TOOLS = '''
def write(path: str, text: str = "x") -> str:
    """Write a file."""
    return f"wrote {path}"


__all__ = ["write"]
'''
REQUIRED = "tool_call_confirmation_required"


@pytest.fixture
async def engine(tmp_path: Path, ollama: FakeOllama) -> AsyncIterator[Bench]:
    write_tools(tmp_path / "tools", init=TOOLS)
    async with bench(tmp_path, ollama) as found:
        yield found


def order(ollama: FakeOllama, *paths: str) -> None:
    """Let the model write these files in one reply, then say that it is done."""
    ollama.reply(tool_calls=[{"name": "write", "arguments": {"path": path}} for path in paths])
    ollama.reply(["Done."])


async def session_of(engine: Bench, policy: str = "always_confirm") -> str:
    settings = ToolSettings(tools=["write"], execution_policy=policy)
    return await engine.session(tool_settings=settings)


def rules(engine: Bench, *rules: dict[str, Any]) -> None:
    engine.settings.rules_path.write_text(json.dumps(rules))


def results(events: list[Event]) -> list[Any]:
    found = [event.payload() for event in events if event.type == "tool_result"]
    found.sort(key=lambda each: each["call_index"])
    return [each["result"] or each["code"] for each in found]


async def asked(engine: Bench, session: str) -> str:
    found = await until(lambda: engine.chat.confirmations(session))
    return str(found[0]["confirmation_id"])


async def recorded(engine: Bench) -> list[ConfirmationRecord]:
    return await engine.runtime.inbox.history()


async def test_a_rule_allows_a_call_and_the_history_has_its_use(
    engine: Bench, ollama: FakeOllama
) -> None:
    rule = {"id": "mine", "tool": "write", "action": "allow", "arguments": {"path": "notes/*"}}
    rules(engine, rule)
    order(ollama, "notes/a")
    events = await engine.turn(await session_of(engine))
    assert REQUIRED not in kinds(events)
    assert results(events) == ["wrote notes/a"]
    (record,) = await recorded(engine)
    assert record.decision.approved
    assert (record.decision.decided_by, record.decision.rule_id) == ("policy", "mine")
    assert record.ran == {"path": "notes/a", "text": "x"}
    assert record.confirmation.arguments == {"path": "notes/a", "text": "x"}


async def test_what_leads_out_of_the_pattern_is_asked(engine: Bench, ollama: FakeOllama) -> None:
    rules(engine, {"tool": "write", "action": "allow", "arguments": {"path": "notes/*"}})
    order(ollama, "notes/../x")
    session = await session_of(engine)
    log = await engine.start(session)
    await engine.chat.confirm(session, await asked(engine, session), approved=False)
    assert results(await read_all(log)) == ["TOOL_EXECUTION_DENIED"]


@pytest.mark.parametrize("policy", ["never_confirm", "always_confirm"])
async def test_a_rule_denies_whatever_the_session_says(
    engine: Bench, ollama: FakeOllama, policy: str
) -> None:
    rules(
        engine,
        {"tool": "write", "action": "allow"},
        {"id": "no", "tool": "write", "action": "deny", "arguments": {"path": "secret/**"}},
    )
    order(ollama, "secret/a", "notes/a")
    session = await session_of(engine, policy)
    events = await engine.turn(session)
    assert REQUIRED not in kinds(events)
    assert results(events) == ["TOOL_EXECUTION_DENIED", "wrote notes/a"]
    assert "rule" in engine.stored(session)[2]["content"]
    denied = [each for each in await recorded(engine) if not each.decision.approved]
    assert [(each.decision.rule_id, each.ran) for each in denied] == [("no", None)]


@pytest.mark.parametrize(
    "written", ['[{"tool": "write", "action": "ask"}]', '[{"tool": "write"'], ids=["rule", "torn"]
)
async def test_a_rule_or_a_file_that_cannot_be_read_asks_where_the_session_never_does(
    engine: Bench, ollama: FakeOllama, written: str
) -> None:
    engine.settings.rules_path.write_text(written)
    order(ollama, "a")
    session = await session_of(engine, "never_confirm")
    log = await engine.start(session)
    await engine.chat.confirm(session, await asked(engine, session), approved=True)
    assert results(await read_all(log)) == ["wrote a"]


async def test_a_denial_holds_for_arguments_that_a_person_has_written(
    engine: Bench, ollama: FakeOllama
) -> None:
    rules(
        engine,
        {"id": "no", "tool": "write", "action": "deny", "arguments": {"path": "secret/**"}},
    )
    order(ollama, "notes/a")
    session = await session_of(engine)
    log = await engine.start(session)
    name = await asked(engine, session)
    await engine.chat.confirm(session, name, approved=True, arguments={"path": "secret/a"})
    assert results(await read_all(log)) == ["TOOL_EXECUTION_DENIED"]
    by_rule, by_person = await recorded(engine)
    assert (by_rule.decision.rule_id, by_rule.ran) == ("no", None)
    assert by_rule.confirmation.arguments["path"] == "secret/a"
    assert (by_person.confirmation.confirmation_id, by_person.ran) == (name, None)
    assert by_person.decision.approved


async def test_an_approval_that_is_remembered_allows_the_next_calls(
    engine: Bench, ollama: FakeOllama
) -> None:
    """Already the next one of the same reply; another folder is asked about."""
    order(ollama, "notes/a", "notes/b", "other/c")
    session = await session_of(engine)
    log = await engine.start(session)
    decided = await engine.runtime.inbox.decide(
        await asked(engine, session),
        approved=True,
        remember="session",
        patterns={"path": "notes/*"},
    )
    name = await asked(engine, session)
    (waiting,) = await engine.chat.confirmations(session)
    assert waiting["arguments"] == {"path": "other/c", "text": "x"}
    await engine.chat.confirm(session, name, approved=False)
    assert results(await read_all(log)) == [
        "wrote notes/a",
        "wrote notes/b",
        "TOOL_EXECUTION_DENIED",
    ]
    shared, own = await engine.runtime.inbox.rules(session)
    assert shared.rules == ()
    (rule,) = own.rules
    assert (rule.id, rule.session_id, rule.created_by) == (decided["rule_id"], session, "library")
    uses = {str(each.confirmation.arguments["path"]): each for each in await recorded(engine)}
    assert uses["notes/a"].decision.remember == "session"
    assert uses["notes/b"].decision.decided_by == "policy"
    assert {use.decision.rule_id for use in uses.values()} == {rule.id, None}
    assert uses["other/c"].decision.decided_by == "library"

    await engine.runtime.inbox.remove_rule(rule.id, session)
    assert "policies" not in engine.document(session)["metadata"]
    with pytest.raises(PolicyNotFound):
        await engine.runtime.inbox.remove_rule(rule.id, session)
    order(ollama, "notes/d")
    log = await engine.start(session)
    await engine.chat.confirm(session, await asked(engine, session), approved=False)
    await read_all(log)


@pytest.mark.parametrize(("choice", "next_call"), [(0, None), (1, "notes/b"), (2, "other/c")])
async def test_what_is_suggested_with_a_question_is_remembered_and_no_more(
    engine: Bench, ollama: FakeOllama, choice: int, next_call: str | None
) -> None:
    order(ollama, "notes/a", *([next_call] if next_call else []), "notes/a", "../x")
    session = await session_of(engine)
    log = await engine.start(session)
    name = await asked(engine, session)
    (waiting,) = await engine.chat.confirmations(session)
    suggestions = waiting["suggestions"]
    assert "session_kept" not in waiting
    assert [(each["patterns"], each["allows"]) for each in suggestions] == [
        ({"path": "notes/a", "text": "x"}, "this call again, with exactly the same arguments"),
        ({"path": "notes/*"}, "path: any name in the folder notes; other arguments: anything"),
        ({}, "every call of write, whatever its arguments are"),
    ]
    patterns = suggestions[choice]["patterns"]
    await engine.runtime.inbox.decide(name, approved=True, remember="session", patterns=patterns)
    if patterns:
        name = await asked(engine, session)
        (waiting,) = await engine.chat.confirmations(session)
        assert waiting["arguments"]["path"] == "../x"
        await engine.chat.confirm(session, name, approved=False)
    events = await read_all(log)
    (event, *_) = [each for each in events if each.type == REQUIRED]
    assert event.payload()["suggestions"] == suggestions
    refused = ["TOOL_EXECUTION_DENIED"] if patterns else ["wrote ../x"]
    written = ["notes/a", *([next_call] if next_call else []), "notes/a"]
    assert results(events) == [*(f"wrote {path}" for path in written), *refused]
    assert all(not each.confirmation.suggestions for each in await recorded(engine))


async def test_nothing_is_suggested_that_a_rule_asks_about_all_the_same(
    engine: Bench, ollama: FakeOllama
) -> None:
    rules(engine, {"tool": "write", "action": "ask", "arguments": {"path": "notes/**"}})
    order(ollama, "notes/a")
    session = await session_of(engine)
    log = await engine.start(session)
    name = await asked(engine, session)
    (waiting,) = await engine.chat.confirmations(session)
    assert "suggestions" not in waiting
    await engine.chat.confirm(session, name, approved=False)
    await read_all(log)


async def test_an_approval_that_is_remembered_for_the_tool_holds_in_all_sessions(
    engine: Bench, ollama: FakeOllama
) -> None:
    order(ollama, "a")
    session = await session_of(engine)
    log = await engine.start(session)
    await engine.runtime.inbox.decide(
        await asked(engine, session), approved=True, remember="tool", arguments={"path": "b"}
    )
    assert results(await read_all(log)) == ["wrote b"]
    order(ollama, "c")
    assert results(await engine.turn(await session_of(engine))) == ["wrote c"]
    (rule,) = json.loads(engine.settings.rules_path.read_text())
    assert (rule["tool"], rule["action"]) == ("write", "allow")
    await engine.runtime.inbox.remove_rule(rule["id"])
    assert json.loads(engine.settings.rules_path.read_text()) == []


async def test_what_cannot_be_remembered_leaves_the_call_open_and_no_rule(
    engine: Bench, ollama: FakeOllama
) -> None:
    order(ollama, "notes/a")
    session = await session_of(engine)
    log = await engine.start(session)
    name = await asked(engine, session)
    inbox = engine.runtime.inbox
    for wrong in (
        {"approved": True, "remember": "tool", "patterns": {"path": "other/*"}},
        {"approved": True, "remember": "tool", "patterns": {"path": "[abc]"}},
        {"approved": True, "patterns": {"path": "notes/*"}},
        {"approved": False, "remember": "tool"},
    ):
        with pytest.raises(InvalidRequest):
            await inbox.decide(name, **wrong)
    with pytest.raises(ConfirmationNotFound):
        await inbox.decide(name, approved=True, remember="tool", session_id="another")
    assert [each.rules for each in await inbox.rules(session)] == [(), ()]
    await inbox.decide(name, approved=True, remember="tool", patterns={"path": "notes/*"})
    with pytest.raises(ConfirmationNotFound):
        await inbox.decide(name, approved=True, remember="session")
    assert [len(each.rules) for each in await inbox.rules(session)] == [1, 0]
    assert results(await read_all(log)) == ["wrote notes/a"]


async def keep_rules(engine: Bench, session: str, *rules: dict[str, Any]) -> None:
    """Write rules into the file of a session."""

    def write(found: ChatSession) -> None:
        found.metadata.set_optional("policies", [*rules])

    await engine.sessions.update(session, write)


async def copy_of(engine: Bench, session: str, way: str) -> str:
    """Make a copy of a session that never asks, and return its id."""
    if way == "fork":
        fork = await fork_session(engine.sessions, engine.runtime.attachments, session)
        return fork.session_id
    content = engine.path(session).read_bytes()
    if way == "file":
        engine.path("restored").write_bytes(content)
        return "restored"
    copy = (await import_session_file(engine.sessions, content, new_id=True)).session_id

    def ask_never(found: ChatSession) -> None:
        found.metadata.tool_settings = ToolSettings(
            tools=["write"], execution_policy="never_confirm"
        )

    await engine.sessions.update(copy, ask_never)
    return copy


@pytest.mark.parametrize("way", ["fork", "import", "file"])
@pytest.mark.parametrize("names", ["itself", "another", None])
async def test_a_denial_of_a_session_holds_in_its_copies(
    engine: Bench, ollama: FakeOllama, way: str, names: str | None
) -> None:
    """Whichever session the rule names: it is in the file of this one."""
    session = await session_of(engine, "never_confirm")
    named = session if names == "itself" else names
    rule = {"tool": "write", "action": "deny", "arguments": {"path": "no/*"}, "session_id": named}
    await keep_rules(engine, session, {"id": "mine", **rule})
    copy = await copy_of(engine, session, way)
    for each in (session, copy):
        order(ollama, "no/a", "notes/a")
        found = results(await engine.turn(each))
        assert found == ["TOOL_EXECUTION_DENIED", "wrote notes/a"]
        _, own = await engine.runtime.inbox.rules(each)
        assert [rule.session_id for rule in own.rules] == [each if named else None]
        assert [rule.id for rule in own.rules] == ["mine"]
    await engine.runtime.inbox.remove_rule("mine", copy)
    order(ollama, "no/a")
    assert results(await engine.turn(copy)) == ["wrote no/a"]


@pytest.mark.parametrize("way", ["fork", "import", "file"])
async def test_what_was_remembered_for_a_session_is_asked_about_in_its_copies(
    engine: Bench, ollama: FakeOllama, way: str
) -> None:
    order(ollama, "notes/a")
    session = await session_of(engine)
    log = await engine.start(session)
    await engine.runtime.inbox.decide(
        await asked(engine, session), approved=True, remember="session"
    )
    assert results(await read_all(log)) == ["wrote notes/a"]
    copy = await copy_of(engine, session, way)
    settings = ToolSettings(tools=["write"], execution_policy="always_confirm")
    await engine.sessions.update(
        copy, lambda found: setattr(found.metadata, "tool_settings", settings)
    )
    assert [each.rules for each in await engine.runtime.inbox.rules(copy)] == [(), ()]
    order(ollama, "notes/b")
    log = await engine.start(copy)
    await engine.chat.confirm(copy, await asked(engine, copy), approved=False)
    assert results(await read_all(log)) == ["TOOL_EXECUTION_DENIED"]
    (rule,) = (await engine.runtime.inbox.rules(session))[1].rules
    assert rule.session_id == session


async def test_a_stopped_turn_denies_its_question(engine: Bench, ollama: FakeOllama) -> None:
    order(ollama, "a")
    session = await session_of(engine)
    log = await engine.start(session)
    name = await asked(engine, session)
    (run_id,) = [each["run_id"] for each in await engine.chat.confirmations(session)]
    assert await engine.runs.stop(str(run_id))
    await read_all(log)
    (record,) = await recorded(engine)
    assert (record.confirmation.confirmation_id, record.decision.approved) == (name, False)
    assert await engine.runtime.confirmations.of_run(str(run_id)) == []


async def test_a_session_has_its_own_limit(engine: Bench, ollama: FakeOllama) -> None:
    for seconds, expires in ((0, False), (9, True)):
        settings = ToolSettings(tools=["write"], confirmation_timeout=seconds)
        session = await engine.session(tool_settings=settings)
        order(ollama, "a")
        log = await engine.start(session)
        name = await asked(engine, session)
        (waiting,) = await engine.chat.confirmations(session)
        assert (waiting["expires_at"] is not None) == expires
        await engine.chat.confirm(session, name, approved=True)
        required = [each.payload() for each in await read_all(log) if each.type == REQUIRED]
        assert [each["timeout_seconds"] for each in required] == [seconds]


async def test_a_decision_that_cannot_be_stored_leaves_no_rule(
    engine: Bench, ollama: FakeOllama, monkeypatch: pytest.MonkeyPatch
) -> None:
    order(ollama, "a")
    session = await session_of(engine)
    log = await engine.start(session)
    name = await asked(engine, session)
    write, disk = Statements.replace_row, ExitStack()

    def write_to_full_disk(*arguments: Any, **options: Any) -> Any:
        disk.enter_context(full_disk())
        return write(*arguments, **options)

    remembers: tuple[Literal["tool", "session"], ...] = ("tool", "session")
    for remember in remembers:
        monkeypatch.setattr(Statements, "replace_row", write_to_full_disk)
        with disk, pytest.raises(ConfirmationUnavailable):
            await engine.runtime.inbox.decide(name, approved=True, remember=remember)
        monkeypatch.undo()
        assert not engine.settings.rules_path.exists()
    await engine.chat.confirm(session, name, approved=False)
    assert results(await read_all(log)) == ["TOOL_EXECUTION_DENIED"]


async def test_what_is_suggested_and_remembered_is_not_compared_in_the_event_loop(
    engine: Bench, ollama: FakeOllama, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    compare = Comparer._text_fit

    def noted(self: Comparer, pattern: str, text: str, *, is_allowing: bool) -> Fit:
        threads.append(threading.get_ident())
        return compare(self, pattern, text, is_allowing=is_allowing)

    monkeypatch.setattr(Comparer, "_text_fit", noted)
    order(ollama, "notes/a")
    session = await session_of(engine)
    log = await engine.start(session)
    name, suggesting = await asked(engine, session), len(threads)
    patterns = {"path": "notes/*"}
    await engine.runtime.inbox.decide(name, approved=True, remember="session", patterns=patterns)
    assert results(await read_all(log)) == ["wrote notes/a"]
    assert 0 < suggesting < len(threads)
    assert threading.get_ident() not in threads


async def test_texts_are_compared_with_each_pattern_once_and_not_in_the_event_loop(
    engine: Bench, ollama: FakeOllama, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten rules and a reply of ten calls, some with the same text."""
    patterns = [f"**/secret{number}/**" for number in range(10)]
    rules(
        engine,
        *({"tool": "write", "action": "deny", "arguments": {"path": each}} for each in patterns),
    )
    compared: list[tuple[str, str]] = []
    threads: set[int] = set()
    compare = Comparer._text_fit

    def counted(self: Comparer, pattern: str, text: str, *, is_allowing: bool) -> Fit:
        compared.append((pattern, text))
        threads.add(threading.get_ident())
        return compare(self, pattern, text, is_allowing=is_allowing)

    monkeypatch.setattr(Comparer, "_text_fit", counted)
    paths = [f"notes/{number % 6}" for number in range(10)]
    order(ollama, *paths)
    events = await engine.turn(await session_of(engine, "never_confirm"))
    assert results(events) == [f"wrote {path}" for path in paths]
    assert sorted(compared) == sorted({(each, path) for each in patterns for path in paths})
    assert threading.get_ident() not in threads
