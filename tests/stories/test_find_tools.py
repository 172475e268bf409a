"""Sessions with more tools than the window has room for."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mochi_server.protocol.events import Event
from mochi_server.sessions.types import ContextWindowConfig, ToolSettings
from tests.stories.test_text_calls import of_type
from tests.support.fake_ollama import FakeOllama
from tests.support.tools import write_tools
from tests.support.turns import Bench, bench, text_of

SUBJECTS = ("github", "jira", "mail", "calendar", "files", "music", "maps", "bank", "shop", "news")
VERBS = ("create", "list", "delete", "search", "update")
THINGS = ("issue", "folder", "song", "invoice")
NAMES = [f"{a}__{verb}_{thing}" for a in SUBJECTS for verb in VERBS for thing in THINGS]
"""200 tools of ten servers."""

ABOUT = "It takes the name that a person knows, and tells what it did in one line. " * 3
TOOL = '''
def {name}(name: str, limit: int = 10) -> str:
    """{title}.

    {about}
    """
    return f"{name} {{name}}"
'''


def title(name: str) -> str:
    return name.replace("__", ": ").replace("_", " ")


@pytest.fixture
async def engine(tmp_path: Path, ollama: FakeOllama) -> AsyncIterator[Bench]:
    tools = "".join(TOOL.format(name=each, title=title(each), about=ABOUT) for each in NAMES)
    destructive = [name for name in NAMES if "__delete_" in name]
    code = f"{tools}\n__all__ = {NAMES!r}\n__destructive__ = {destructive!r}\n"
    write_tools(tmp_path / "tools", init=code)
    async with bench(tmp_path, ollama) as found:
        yield found


async def session_of(engine: Bench, *tools: str, policy: str = "never_confirm", **more: Any) -> str:
    settings = ToolSettings(tools=list(tools or NAMES), execution_policy=policy, **more)
    return await engine.session(tool_settings=settings)


def offered(chat: dict[str, Any]) -> list[str]:
    return [tool["function"]["name"] for tool in chat.get("tools", ())]


def cost(events: list[Event]) -> int:
    [complete] = of_type(events, "message_complete")
    tokens: int = complete["context_window"]["tool_tokens"]
    return tokens


def finds(ollama: FakeOllama, query: str) -> None:
    ollama.reply(tool_calls=[{"name": "find_tools", "arguments": {"query": query}}])


async def test_what_is_found_is_offered_from_the_next_request_on(
    engine: Bench, ollama: FakeOllama
) -> None:
    session = await session_of(engine)
    finds(ollama, "create a GitHub issue")
    create = {"name": "github__create_issue", "arguments": {"name": "Bug"}}
    ollama.reply(tool_calls=[create])
    ollama.reply(["Done."])
    events = await engine.turn(session)
    first, second, third = map(offered, ollama.chats)
    assert first == ["find_tools"]
    assert "github, jira" in ollama.chats[0]["tools"][0]["function"]["description"]
    assert "github__create_issue" in second
    assert len(second) <= 9
    assert third == second
    results = [each["result"] for each in of_type(events, "tool_result")]
    assert results[0].splitlines()[1].startswith("- github__create_issue: github: create issue.")
    assert results[1] == "github__create_issue Bug"
    assert text_of(events) == "Done."
    assert cost(events) < 36_864 // 4
    ollama.reply(["Hello."])
    await engine.turn(session)
    assert set(offered(ollama.chats[3])) == set(second)


async def test_nobody_is_asked_about_the_search_and_the_policy_holds_for_what_is_found(
    engine: Bench, ollama: FakeOllama
) -> None:
    session = await session_of(engine, policy="always_confirm")
    finds(ollama, "delete song of music")
    ollama.reply(tool_calls=[{"name": "music__delete_song", "arguments": {"name": "Hey"}}])
    ollama.reply(["No."])
    events = await engine.turn(session, wait=False)
    assert [each["success"] for each in of_type(events, "tool_result")] == [True, False]
    assert "confirmation" in of_type(events, "tool_result")[1]["error_message"]


async def test_where_all_fit_all_are_sent(engine: Bench, ollama: FakeOllama) -> None:
    session = await session_of(engine, *NAMES[:20])
    status = await engine.runtime.status.of(session)
    ollama.reply(["Hello."])
    events = await engine.turn(session)
    assert offered(ollama.chats[0]) == NAMES[:20]
    assert 1_000 < cost(events) < 36_864 // 4
    assert (status["tool_tokens"], status["tools_are_searched"]) == (cost(events), False)


@pytest.mark.parametrize(
    ("tools", "window", "searched"), [(NAMES[:20], 4096, True), (NAMES[:1], 128, False)]
)
async def test_the_window_that_a_person_has_set_counts_and_one_tool_is_always_offered(
    engine: Bench, ollama: FakeOllama, tools: list[str], window: int, searched: bool
) -> None:
    session = await session_of(engine, *tools)
    async with engine.sessions.edit(session) as found:
        found.metadata.context_window_config = ContextWindowConfig(
            current_window=window, manual_override=True
        )
    status = await engine.runtime.status.of(session)
    assert status["tools_are_searched"] is searched
    await engine.turn(session)
    assert offered(ollama.chats[0]) == (["find_tools"] if searched else tools)


async def test_functions_of_a_client_are_found_as_well(engine: Bench, ollama: FakeOllama) -> None:
    finds(ollama, "song list music")
    ollama.reply(tool_calls=[{"name": "music__list_song", "arguments": {}}])
    events = await engine.turn(await engine.session(), client_tools=functions_of())
    [complete] = of_type(events, "message_complete")
    assert [call["name"] for call in complete["client_calls"]] == ["music__list_song"]


async def test_a_search_that_is_repeated_as_text_is_not_shown(
    engine: Bench, ollama: FakeOllama
) -> None:
    session = await session_of(engine)
    search = json.dumps({"name": "find_tools", "arguments": {"query": "github issue"}})
    for _ in range(4):
        ollama.reply([search])
    events = await engine.turn(session)
    assert '"arguments"' not in text_of(events)
    assert "github__create_issue" in text_of(events)


async def test_a_function_that_was_not_found_is_called_as_text_also_without_other_tools(
    engine: Bench, ollama: FakeOllama
) -> None:
    """The model has repeated its search, and has to answer without the server's tools."""
    for _ in range(3):
        finds(ollama, "github issue")
    ollama.reply(['{"name": "music__list_song", "arguments": {"name": "Hey"}}'])
    events = await engine.turn(await engine.session(), client_tools=functions_of())
    [complete] = of_type(events, "message_complete")
    assert [call["name"] for call in complete["client_calls"]] == ["music__list_song"]
    assert text_of(events) == ""


def functions_of(**descriptions: str) -> list[Any]:
    """Functions of a client by name, with others beside them that are too many."""
    named = {**descriptions, **{name: f"{title(name)}. {ABOUT}" for name in NAMES}}
    parameters = {"type": "object", "properties": {"name": {"type": "string"}}}
    return [
        {
            "type": "function",
            "function": {"name": name, "description": text, "parameters": parameters},
        }
        for name, text in named.items()
    ]


@pytest.mark.parametrize("name", ["zoo:feed", "feed the animals", 'say "zoo": feed', "feed"])
async def test_whatever_the_name_of_a_function_it_is_offered_when_it_is_found(
    engine: Bench, ollama: FakeOllama, name: str
) -> None:
    finds(ollama, "feed animals zoo")
    functions = functions_of(**{name: "Feed the animals: of the zoo."})
    await engine.turn(await engine.session(), client_tools=functions)
    assert offered(ollama.chats[1]) == [name, "find_tools"]


async def test_a_demanded_call_is_demanded_until_tools_were_found(
    engine: Bench, ollama: FakeOllama
) -> None:
    ollama.reply(['{"query": "list song of music"}'])
    ollama.reply(['{"tool_call": {"name": "music__list_song", "arguments": {"name": "Hey"}}}'])
    session = await engine.session()
    events = await engine.turn(session, client_tools=functions_of(), must_call=True)
    first, second = ollama.chats
    assert "query" in first["format"]["properties"]
    assert "music__list_song" in json.dumps(second["format"])
    [complete] = of_type(events, "message_complete")
    assert [call["name"] for call in complete["client_calls"]] == ["music__list_song"]


async def test_a_tool_that_there_is_no_room_for_is_named_as_such_and_can_be_called(
    engine: Bench, ollama: FakeOllama
) -> None:
    functions = functions_of(feed="Feed the animals of the zoo. " * 2_000, zoo="Open the zoo.")
    finds(ollama, "feed animals zoo")
    ollama.reply(['{"name": "feed", "arguments": {"name": "lion"}}'])
    events = await engine.turn(await engine.session(), client_tools=functions)
    [found] = [each["result"] for each in of_type(events, "tool_result")]
    assert found.splitlines() == [
        "You can call these tools now:",
        "- zoo: Open the zoo.",
        "There is no room for the descriptions of: feed.",
    ]
    assert offered(ollama.chats[1]) == ["zoo", "find_tools"]
    [complete] = of_type(events, "message_complete")
    assert [call["name"] for call in complete["client_calls"]] == ["feed"]
    assert text_of(events) == ""


async def test_words_that_no_tool_has_find_nothing(engine: Bench, ollama: FakeOllama) -> None:
    session = await session_of(engine)
    for query in ("xylophone", '"', 'NEAR(" OR'):
        finds(ollama, query)
    ollama.reply(["I cannot."])
    events = await engine.turn(session)
    told = [each["result"] or each["error_message"] for each in of_type(events, "tool_result")]
    assert told[0] == told[2] == "No tool has any of these words. Try others."
    assert "some words" in told[1]


async def test_words_are_found_in_every_script_and_spelling(
    engine: Bench, ollama: FakeOllama
) -> None:
    functions = functions_of(
        film="Open a film on YouTube.",
        zh="在日历中创建一个新的事件",
        ja="カレンダーに予定を追加します",
        ko="달력에 일정을 추가합니다",
        ru="Добавить событие в календарь",
        de="Die Größe ändern",
    )
    queries = ("YouTube", "youtube", "新建事件", "カレンダー", "일정 추가", "СОБЫТИЕ", "grosse")
    arguments = [{"query": query} for query in queries]
    ollama.reply(tool_calls=[{"name": "find_tools", "arguments": each} for each in arguments])
    events = await engine.turn(await engine.session(), client_tools=functions)
    results = sorted(of_type(events, "tool_result"), key=lambda each: each["call_index"])
    told = [str(each["result"]).splitlines()[1:] for each in results]
    found = [[line.split(":")[0] for line in lines] for lines in told]
    assert found == [["- film"], ["- film"], ["- zh"], ["- ja"], ["- ko"], ["- ru"], ["- de"]]


async def test_they_are_described_where_a_model_has_none(engine: Bench, ollama: FakeOllama) -> None:
    session = await session_of(engine, tool_mode="prompted")
    ollama.reply(["Hello."])
    events = await engine.turn(session)
    assert "- find_tools: Find tools" in ollama.chats[0]["messages"][0]["content"]
    assert "github__create_issue" not in ollama.chats[0]["messages"][0]["content"]
    assert cost(events) < 300
