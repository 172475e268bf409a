"""What models are asked: the window and the history of whole turns, and what is refused."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from mochi_server import Runtime
from mochi_server.config import load_settings
from mochi_server.errors import ContextOverflow, ThinkingNotSupported
from mochi_server.protocol.messages import AssistantMessage, ToolMessage, UserMessage
from mochi_server.protocol.turn_request import TurnRequest
from mochi_server.providers.base import (
    Capabilities,
    Chunk,
    ContentDelta,
    Finish,
    ModelInfo,
    ModelRequest,
    Provider,
)
from mochi_server.sessions.types import ToolExecutionPolicy, ToolSettings
from tests.support.fake_ollama import FakeOllama
from tests.support.turns import MODEL, Bench, bench, kinds, read_all, roles, text_of

PAGE = "All work and no play makes Jack a dull boy. " * 25  # 1,100 characters, 275 tokens


@pytest.fixture
async def engine(tmp_path: Path, ollama: FakeOllama) -> AsyncIterator[Bench]:
    async with bench(tmp_path, ollama) as found:
        yield found


async def filled(engine: Bench, pages: int, *, model: str = MODEL, **fields: Any) -> str:
    """A session of so many questions and answers of a page each."""
    session = await engine.session(model, **fields)
    async with engine.sessions.edit(session) as edited:
        for number in range(pages):
            edited.append(UserMessage(content=f"Q{number} {PAGE}"))
            edited.append(AssistantMessage(content=f"A{number} {PAGE}", model=model))
    return session


def sent_windows(ollama: FakeOllama) -> list[int | None]:
    return [(chat.get("options") or {}).get("num_ctx") for chat in ollama.chats]


async def test_sessions_of_every_length_share_one_window_that_grows_without_thrashing(
    engine: Bench, ollama: FakeOllama
) -> None:
    """Each change of size makes Ollama load the model again; taking turns must not."""
    small, middle, large = [await filled(engine, pages) for pages in (0, 14, 30)]
    for _ in range(3):
        for session in (small, large, middle):
            assert kinds(await engine.turn(session, "Next."))[-2:] == ["message_complete", "done"]
    windows = sent_windows(ollama)
    assert windows == [8192] + [32_768] * 8
    assert ollama.reloads == 1
    assert engine.document(small)["metadata"]["context_window_config"]["current_window"] == 32_768


@pytest.mark.parametrize("name", [MODEL, "mine"])
async def test_a_window_that_is_loaded_already_is_reused(
    engine: Bench, ollama: FakeOllama, name: str
) -> None:
    """Another client, or we before a restart, may have loaded it, perhaps by another name."""
    ollama.models[MODEL].loaded = 16_384
    ollama.add_model("mine:latest", base=ollama.models[MODEL])
    await engine.turn(await engine.session(name))
    assert sent_windows(ollama) == [16_384]
    assert (ollama.loads, ollama.reloads) == (0, 0)


async def test_a_smaller_loaded_window_is_loaded_again_once(
    engine: Bench, ollama: FakeOllama
) -> None:
    """What is loaded is looked at now and then: not at each turn."""
    ollama.models[MODEL].loaded = 4096
    session = await engine.session()
    for _ in range(3):
        await engine.turn(session)
    assert sent_windows(ollama) == [8192] * 3
    assert ollama.reloads == 1
    assert [request.path for request in ollama.requests].count("/api/ps") == 1


async def test_the_file_and_the_events_tell_the_window(engine: Bench, ollama: FakeOllama) -> None:
    """First set up, then kept, then grown; each change once in the history."""
    session = await engine.session()
    payloads: list[Any] = []
    for tokens in (100, 200, 6200, 6300):
        ollama.reply(["Yes."], prompt_eval_count=tokens, eval_count=10)
        payloads.append((await engine.turn(session))[-2].payload()["context_window"])
    assert [p["reason"] for p in payloads] == [
        "initial_setup", "no_adjustment", "no_adjustment", "usage_threshold",
    ]  # fmt: skip
    assert [p["current_window"] for p in payloads] == [8192, 8192, 8192, 16_384]
    assert [p["usage_tokens"] for p in payloads] == [110, 210, 6210, 6310]
    config = engine.document(session)["metadata"]["context_window_config"]
    assert config["current_window"] == 16_384
    assert config["last_adjustment"] == "usage_threshold"
    assert [(h["window_size"], h["reason"]) for h in config["adjustment_history"]] == [
        (8192, "initial_setup"),
        (16_384, "usage_threshold"),
    ]


async def test_a_turn_with_calls_tells_why_its_window_has_changed(
    engine: Bench, ollama: FakeOllama
) -> None:
    """The last of its requests changes nothing any more; the turn has."""
    ollama.reply(tool_calls=[{"name": "nothing", "arguments": {}}])
    session = await engine.session()
    window: Any = (await engine.turn(session))[-2].payload()["context_window"]
    assert (window["current_window"], window["reason"]) == (8192, "initial_setup")
    config = engine.document(session)["metadata"]["context_window_config"]
    assert config["last_adjustment"] == "initial_setup"
    assert [entry["reason"] for entry in config["adjustment_history"]] == ["initial_setup"]
    status: Any = (await engine.runtime.status.of(session))["context_window"]
    assert status["last_adjustment_reason"] == "initial_setup"


async def test_a_window_that_an_overflow_has_made_larger_has_a_reason(
    engine: Bench, ollama: FakeOllama
) -> None:
    session = await engine.session()
    await engine.turn(session)
    ollama.play("err_ctx_legacy")
    window: Any = (await engine.turn(session))[-2].payload()["context_window"]
    assert (window["current_window"], window["reason"]) == (16_384, "usage_threshold")


async def test_names_of_the_same_weights_are_not_loaded_in_turns(
    engine: Bench, ollama: FakeOllama
) -> None:
    """Ollama has one runner for all of them, with one window, and lists it under one name."""
    ollama.add_model("mine:small", base=ollama.models[MODEL], num_ctx=2048)
    large, small = await filled(engine, 14), await engine.session("mine:small")
    for _ in range(3):
        await engine.turn(small, "Next.")
        await engine.turn(large, "Next.")
    assert sent_windows(ollama) == [2048] + [16_384] * 5
    assert ollama.reloads == 1


@pytest.mark.parametrize(("beyond", "last"), [(False, 2048), (True, 8192)])
async def test_the_window_of_a_modelfile_is_kept(
    tmp_path: Path, ollama: FakeOllama, beyond: bool, last: int
) -> None:
    """A "hi" must not load four times what the model was made for."""
    ollama.add_model("mine:small", num_ctx=2048)
    async with bench(tmp_path, ollama, context_window_beyond_modelfile=beyond) as engine:
        await engine.turn(await engine.session("mine:small"), "hi")
        session = await filled(engine, 8, model="mine:small")
        events = await engine.turn(session, "Next.")
        assert text_of(events) == "You said: Next."
        window: Any = events[-2].payload()["context_window"]
        assert bool(window["dropped_messages"]) is not beyond
        assert sent_windows(ollama) == [2048, last]


async def test_an_overflow_is_final_where_nothing_can_be_left_out(
    engine: Bench, ollama: FakeOllama
) -> None:
    """The same request would fail alike."""
    ollama.add_model("mine:small", num_ctx=2048)
    session = await engine.session("mine:small", system_prompt="Be brief.")
    ollama.play("err_ctx_legacy")
    events = await engine.turn(session, "漢" * 2_000)
    assert kinds(events) == ["error", "done"]
    assert events[0].payload()["code"] == ContextOverflow.code
    assert len(ollama.chats) == 1


async def test_a_change_of_model_is_a_reason(engine: Bench, ollama: FakeOllama) -> None:
    ollama.add_model("other:7b")
    session = await engine.session()
    await engine.turn(session)
    async with engine.sessions.edit(session) as edited:
        edited.metadata.model = "other:7b"
    events = await engine.turn(session)
    window: Any = events[-2].payload()["context_window"]
    assert window["reason"] == "model_change"
    assert ollama.chats[-1]["model"] == "other:7b"


@pytest.mark.parametrize("loaded", [4096, None])
async def test_switched_off_no_size_is_sent_and_long_conversations_still_run(
    tmp_path: Path, ollama: FakeOllama, loaded: int | None
) -> None:
    """Ollama's own size counts then; a history that exceeds it is cut, not refused for ever."""
    ollama.models[MODEL].loaded = loaded
    async with bench(tmp_path, ollama, dynamic_context_window_enabled=False) as engine:
        session = await filled(engine, 20)
        events = await engine.turn(session, "Next.")
        assert text_of(events) == "You said: Next."
        assert set(sent_windows(ollama)) == {None}
        window: Any = events[-2].payload()["context_window"]
        assert window["dropped_messages"] > 0
        events = await engine.turn(session, "And next.")
        assert text_of(events) == "You said: And next."
        assert ollama.reloads == 0


async def test_a_history_beyond_the_model_is_cut_by_whole_turns(
    engine: Bench, ollama: FakeOllama
) -> None:
    """System prompt and last question stay; what was left out is said; the file keeps all."""
    ollama.add_model("tiny:1b", context_length=4096)
    session = await filled(engine, 20, model="tiny:1b", system_prompt="Be brief.")
    events = await engine.turn(session, "Next.")
    chat = ollama.chats[-1]
    messages = chat["messages"]
    assert messages[0] == {"role": "system", "content": "Be brief."}
    assert messages[-1] == {"role": "user", "content": "Next."}
    assert roles(messages[1:-1]) == ["user", "assistant"] * ((len(messages) - 2) // 2)
    window: Any = events[-2].payload()["context_window"]
    assert window["dropped_messages"] == 42 - len(messages)
    assert window["dropped_messages"] > 0
    assert len(engine.stored(session)) == 43
    options = chat["options"]
    assert options["num_ctx"] == 3686
    used = sum(len(m["content"]) for m in messages) // 4
    assert 0 < options["num_predict"] <= 3686 - used


async def test_calls_and_results_are_cut_together(engine: Bench, ollama: FakeOllama) -> None:
    """A result without its call is refused by models, and so is a call without its result."""
    ollama.add_model("tiny:1b", context_length=4096)
    session = await engine.session("tiny:1b")
    async with engine.sessions.edit(session) as edited:
        for number in range(12):
            edited.append(UserMessage(content=f"Q{number}"))
            calls = [
                {"function": {"name": n, "arguments": {}}, "id": f"c{number}{n}"} for n in "ab"
            ]
            edited.append(AssistantMessage(content="", model="tiny:1b", tool_calls=calls))
            for n in "ab":
                edited.append(ToolMessage(content=PAGE, tool_name=n, tool_call_id=f"c{number}{n}"))
            edited.append(AssistantMessage(content="So.", model="tiny:1b"))
    await engine.turn(session, "Next.")
    sent = roles(ollama.chats[-1]["messages"])
    assert sent[-1] == "user"
    assert len(sent) < 61
    assert sent[:-1] == ["user", "assistant", "tool", "tool", "assistant"] * (len(sent) // 5)
    assert len(sent) > 1


async def test_an_overflow_is_tried_once_more_with_more_room(
    engine: Bench, ollama: FakeOllama
) -> None:
    """Our estimate may be wrong; Ollama's own count is not."""
    dense = "漢" * 5_000
    ollama.play_body(
        b'{"error":"{\\"error\\":{\\"code\\":400,\\"message\\":\\"request (9100 tokens) exceeds the'
        b' available context size (8192 tokens), try increasing it\\",\\"type\\":'
        b'\\"exceed_context_size_error\\",\\"n_prompt_tokens\\":9100,\\"n_ctx\\":8192}}"}',
        status=400,
        content_type="application/json; charset=utf-8",
    )
    events = await engine.turn(await engine.session(), dense)
    assert kinds(events) == ["content_delta", "message_complete", "done"]
    assert sent_windows(ollama) == [8192, 16_384]
    window: Any = events[-2].payload()["context_window"]
    assert window["current_window"] == 16_384


async def test_a_text_that_is_far_denser_than_estimated_is_cut_by_what_ollama_counts(
    engine: Bench, ollama: FakeOllama
) -> None:
    """With one token a character our first estimate is four times too low."""
    ollama.count = lambda messages, tools: sum(len(message["content"]) for message in messages)
    session = await filled(engine, 30)  # 66,000 tokens for a model of 40,960
    for text, most in (("Next.", 2), ("And next.", 2), ("And once more.", 2)):
        before = len(ollama.chats)
        events = await engine.turn(session, text)
        assert text_of(events) == f"You said: {text}"
        window: Any = events[-2].payload()["context_window"]
        assert window["dropped_messages"] > 0
        assert window["usage_tokens"] > 15_000
        assert len(ollama.chats) - before <= most
    assert ollama.reloads <= 1


async def test_switched_off_an_old_server_that_only_says_no_gets_half(
    tmp_path: Path, ollama: FakeOllama
) -> None:
    """Old servers do not tell how long the prompt was."""
    async with bench(tmp_path, ollama, dynamic_context_window_enabled=False) as engine:
        session = await filled(engine, 5)
        ollama.play("err_ctx_legacy")
        events = await engine.turn(session, "Next.")
        assert text_of(events) == "You said: Next."
        first, second = (len(chat["messages"]) for chat in ollama.chats)
        assert first == 11
        assert second < 7


@pytest.mark.parametrize("fixture", ["err_ctx_native", "err_ctx_legacy"])
async def test_a_second_overflow_is_the_answer(
    engine: Bench, ollama: FakeOllama, fixture: str
) -> None:
    """No endless trying: the user is told, and the question is kept."""
    ollama.play(fixture, fixture)
    session = await engine.session()
    events = await engine.turn(session)
    assert kinds(events) == ["error", "done"]
    assert events[0].payload()["code"] == ContextOverflow.code
    assert len(ollama.chats) == 2
    assert ollama.chats[1]["options"]["num_ctx"] > ollama.chats[0]["options"]["num_ctx"]
    assert roles(engine.stored(session)) == ["user"]


async def test_a_message_that_no_model_window_holds_is_refused_before_anything_is_stored(
    engine: Bench, ollama: FakeOllama
) -> None:
    """It could never be answered, and would block the session for ever."""
    ollama.add_model("tiny:1b", context_length=2048)
    session = await engine.session("tiny:1b")
    with pytest.raises(ContextOverflow):
        await engine.chat.open_turn(session, TurnRequest(message="word " * 20_000))
    assert engine.stored(session) == []
    assert not ollama.chats


async def test_optional_limits_of_history_hold(tmp_path: Path, ollama: FakeOllama) -> None:
    async with bench(tmp_path, ollama, max_history_messages=5, max_output_tokens=77) as engine:
        await engine.turn(await filled(engine, 10), "Next.")
        assert len(ollama.chats[-1]["messages"]) == 5
        assert ollama.chats[-1]["options"]["num_predict"] == 77
    async with bench(tmp_path, ollama, max_history_tokens=1000) as engine:
        await engine.turn(await filled(engine, 10), "Next.")
        assert sum(len(m["content"]) for m in ollama.chats[-1]["messages"]) <= 4000


async def test_a_server_that_does_not_tell_what_is_loaded_is_used_all_the_same(
    engine: Bench, ollama: FakeOllama
) -> None:
    """Knowing the loaded window only saves a reload: not knowing it must stop no turn."""
    ollama.play_body(b"404 page not found", status=404, content_type="text/plain", path="/api/ps")
    events = await engine.turn(await engine.session())
    assert kinds(events)[-2:] == ["message_complete", "done"]


async def test_several_workers_agree_on_the_window_of_a_model(
    tmp_path: Path, ollama: FakeOllama
) -> None:
    """Each process sees before each turn what another one has made Ollama load."""
    async with bench(tmp_path, ollama, workers=2) as one, bench(tmp_path, ollama, workers=2) as two:
        small, large = await filled(one, 0), await filled(two, 30)
        await one.turn(small)
        await two.turn(large)
        for _ in range(2):
            await one.turn(small)
            await two.turn(large)
    assert sent_windows(ollama) == [8192] + [32_768] * 5
    assert ollama.reloads == 1


ONE = '''
def {name}(text: str) -> str:
    """Do {name}.

    {words}
    """
    return text
'''
NAMES = [f"tool_{number}" for number in range(25)]


@pytest.fixture
async def many_tools(tmp_path: Path, ollama: FakeOllama) -> AsyncIterator[Bench]:
    """Tools, of about 200 tokens each."""
    (tmp_path / "tools").mkdir()
    code = "".join(ONE.format(name=name, words="It is very good at it. " * 30) for name in NAMES)
    (tmp_path / "tools" / "__init__.py").write_text(f"__all__ = {NAMES!r}\n{code}")
    async with bench(tmp_path, ollama) as found:
        yield found


async def test_tools_that_are_enabled_later_enlarge_the_window_and_drop_no_history(
    many_tools: Bench, ollama: FakeOllama
) -> None:
    session = await many_tools.session()
    for number in range(4):
        ollama.reply(["Yes. " * 300])
        await many_tools.turn(session, f"Question {number}: " + "what is it? " * 50)
    async with many_tools.sessions.edit(session) as edited:
        edited.metadata.tool_settings = ToolSettings(
            tools=NAMES, execution_policy=ToolExecutionPolicy.NEVER_CONFIRM
        )
    complete = (await many_tools.turn(session, "And now?"))[-2].payload()
    before, after = ollama.chats[3], ollama.chats[4]
    assert len(after["tools"]) == len(NAMES)
    assert complete["context_window"]["dropped_messages"] == 0
    assert len(after["messages"]) == len(before["messages"]) + 2
    assert after["options"]["num_ctx"] > before["options"]["num_ctx"]


class PlainProvider(Provider):
    """Thinks never, and says nothing of its models."""

    capabilities = Capabilities(tools=False, thinking=False, structured_output=False)

    async def list_models(self) -> list[ModelInfo]:
        return []

    async def show_model(self, name: str) -> ModelInfo:
        return ModelInfo(name=name)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        yield ContentDelta("Well.")
        yield Finish(reason="stop")

    async def check(self) -> bool:
        return True


async def test_thinking_is_refused_where_the_provider_never_thinks(tmp_path: Path) -> None:
    settings = load_settings(data_dir=tmp_path, summarization_enabled=False)
    async with aclosing(Runtime(settings, providers={"plain": PlainProvider("plain")})) as runtime:
        session_id = (await runtime.sessions.create("plain/any")).session_id
        with pytest.raises(ThinkingNotSupported):
            await runtime.chat.open_turn(session_id, TurnRequest(message="Hello", think=True))
        turn = await runtime.chat.open_turn(session_id, TurnRequest(message="Hello"))
        assert (await read_all(runtime.chat.start(turn)))[-1].type == "done"
