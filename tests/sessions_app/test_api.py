from __future__ import annotations

import orjson
import pytest

from mochi_project.runtime import get_runtime
from mochi_server.protocol.messages import AssistantMessage, UserMessage
from tests.support.api import error_of
from tests.support.tools import function, write_tools

ALWAYS = "always_confirm"
TOOLS = {"tools": ["add"], "tool_group": None, "execution_policy": "never_confirm"}


async def with_messages(session_id, *messages):
    async with get_runtime().sessions.edit(session_id) as session:
        session.append(*messages)


async def test_a_new_session_answers_what_was_asked_for(api):
    response = await api.post(
        "/sessions",
        {
            "model": "qwen3:14b",
            "system_prompt": "Be brief.",
            "tool_settings": TOOLS,
            "agent_settings": {"enabled_agents": ["coder"]},
        },
    )
    body = response.json()
    assert response.status_code == 201
    assert list(body) == ["session_id", "model", "created_at", "updated_at", "message_count",
                          "tool_settings", "agent_settings",
                          "title", "tags", "pinned", "archived", "warnings"]  # fmt: skip
    assert body["message_count"] == 1
    assert body["warnings"] == ["There is no tool 'add'."]
    assert body["tool_settings"] == TOOLS
    assert body["agent_settings"]["enabled_agents"] == ["coder"]
    detail = (await api.get(f"/sessions/{body['session_id']}")).json()
    assert detail["messages"][0]["content"] == "Be brief."
    assert detail["format_version"] == "1.3"


async def test_the_prompt_file_alone_is_loaded(api):
    await api.post("/system-prompts", {"filename": "a.md", "content": "From the file."})
    session_id = await api.new_session(system_prompt_source_file="a.md")
    (message,) = (await api.get(f"/sessions/{session_id}/messages")).json()["messages"]
    assert (message["role"], message["content"]) == ("system", "From the file.")
    assert message["source_file"] == "a.md"


async def test_an_unknown_prompt_file_makes_no_session(api):
    response = await api.post(
        "/sessions", {"model": "qwen3:14b", "system_prompt_source_file": "../a.md"}
    )
    assert error_of(response) == (404, "PROMPT_NOT_FOUND")
    assert (await api.get("/sessions")).json()["sessions"] == []


async def test_an_unknown_model_makes_no_session(api):
    response = await api.post("/sessions", {"model": "nobody:1b"})
    assert error_of(response) == (404, "MODEL_NOT_FOUND")
    assert (await api.get("/sessions")).json()["sessions"] == []


async def test_without_ollama_no_session_is_made(api, ollama):
    await ollama.__aexit__(None, None, None)
    response = await api.post("/sessions", {"model": "qwen3:14b"})
    assert error_of(response) == (502, "OLLAMA_UNREACHABLE")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "model"),
        ({"model": ""}, "model"),
        ({"model": 7}, "model"),
        ({"model": "m", "modle": "x"}, "modle"),
        ({"model": "m", "tool_settings": {"tool": []}}, "tool_settings.tool"),
        ({"model": "m", "tool_settings": {"execution_policy": "maybe"}},
         "tool_settings.execution_policy"),
        ({"model": "m", "agent_settings": {"enabled": []}}, "agent_settings.enabled"),
        ([], ""),
    ],
)  # fmt: skip
async def test_a_wrong_body_is_refused_by_the_name_of_the_field(api, body, field):
    response = await api.post("/sessions", body)
    assert error_of(response) == (422, "VALIDATION_ERROR")
    fields = [entry["field"] for entry in response.json()["error"]["details"]["errors"]]
    assert field in fields


@pytest.mark.parametrize(
    "body", [b"{", b"\xff", b'{"model": NaN}', b'{"model": "\\ud800"}', b"[" * 60]
)
async def test_a_body_that_is_no_json_says_so(api, body):
    response = await api.post("/sessions", body)
    assert error_of(response) == (400, "INVALID_JSON")


async def test_the_list_shows_the_one_changed_last_first(api):
    first = await api.new_session()
    second = await api.new_session()
    await with_messages(first, UserMessage(content="x" * 150))
    listed = (await api.get("/sessions")).json()
    assert [entry["session_id"] for entry in listed["sessions"]] == [first, second]
    assert listed["sessions"][0]["preview"] == "x" * 97 + "..."
    assert listed["sessions"][1]["preview"] == ""
    assert listed["problems"] == []


async def test_the_list_comes_in_pages(api):
    made = [await api.new_session() for _ in range(3)]
    page = (await api.get("/sessions?limit=2")).json()
    rest = (await api.get(f"/sessions?limit=2&cursor={page['next_cursor']}")).json()
    listed = [entry["session_id"] for entry in page["sessions"] + rest["sessions"]]
    assert listed == made[::-1]
    assert rest["next_cursor"] is None


@pytest.mark.parametrize("query", ["limit=0", "limit=-1", "limit=x", "cursor=%21%21"])
async def test_a_wrong_page_is_refused(api, query):
    await api.new_session()
    assert error_of(await api.get(f"/sessions?{query}")) == (422, "VALIDATION_ERROR")


async def test_a_torn_file_is_reported_and_hides_no_other(api, mochi):
    good = await api.new_session()
    (mochi.sessions_path / "bad0000000.json").write_text("{")
    listed = (await api.get("/sessions")).json()
    assert [entry["session_id"] for entry in listed["sessions"]] == [good]
    assert [problem["session_id"] for problem in listed["problems"]] == ["bad0000000"]
    response = await api.get("/sessions/bad0000000")
    assert error_of(response) == (500, "SESSION_UNREADABLE")
    assert (mochi.sessions_path / "bad0000000.json").read_text() == "{"


ROUTES = [
    ("GET", "", None),
    ("DELETE", "", None),
    ("PATCH", "", {"model": "qwen3:14b"}),
    ("GET", "/messages", None),
    ("PUT", "/messages/0", {"content": "x"}),
    ("PUT", "/system-prompt", {"content": "x"}),
    ("DELETE", "/system-prompt", None),
    ("GET", "/status", None),
]


@pytest.mark.parametrize(("method", "route", "body"), ROUTES)
async def test_every_route_of_an_unknown_session_says_not_found(api, method, route, body):
    for session_id in ("0123456789", "a.b", "%2e%2e%2fx", "x" * 65, "ä"):
        response = await api(method, f"/sessions/{session_id}{route}", body)
        assert response.status_code == 404, session_id
        assert response.json()["error"]["code"] in {"SESSION_NOT_FOUND", "NOT_FOUND"}


async def test_a_deleted_session_is_gone(api, mochi):
    session_id = await api.new_session()
    response = await api.delete(f"/sessions/{session_id}")
    assert (response.status_code, response.content) == (204, b"")
    assert error_of(await api.get(f"/sessions/{session_id}")) == (404, "SESSION_NOT_FOUND")
    assert list(mochi.sessions_path.glob("*.json")) == []


async def test_a_patch_changes_what_it_names_and_nothing_else(api):
    session_id = await api.new_session(tool_settings=TOOLS)
    response = await api.patch(f"/sessions/{session_id}", {"model": "gemma3:4b"})
    assert response.status_code == 200
    assert response.json()["model"] == "gemma3:4b"
    assert response.json()["tool_settings"] == TOOLS
    replaced = await api.patch(f"/sessions/{session_id}", {"tool_settings": {"tool_group": "math"}})
    assert replaced.json()["tool_settings"] == {
        "tools": [],
        "tool_group": "math",
        "execution_policy": "always_confirm",
    }
    removed = await api.patch(f"/sessions/{session_id}", {"tool_settings": None})
    assert removed.json()["tool_settings"] is None


async def test_settings_are_taken_back_as_they_were_handed_out(api, mochi):
    """Also keys and policies of another program, which the session has already."""
    session_id = await api.new_session(tool_settings=TOOLS, agent_settings={})
    others = {
        "tool_settings": {
            "tools": ["add"],
            "tool_group": None,
            "execution_policy": "by_vote",
            "tool_policies": {"add": "always_confirm", "wipe": "twice", "see": None},
            "sandbox": {"network": False},
        },
        "agent_settings": {
            "enabled_agents": ["coder"],
            "selection_metadata": None,
            "max_depth": 2,
        },
    }
    file = mochi.sessions_path / f"{session_id}.json"
    stored = orjson.loads(file.read_bytes())
    stored["metadata"] |= others
    file.write_bytes(orjson.dumps(stored))
    handed_out = (await api.get(f"/sessions/{session_id}")).json()
    back = {name: handed_out[name] for name in others}
    assert back == others
    response = await api.patch(f"/sessions/{session_id}", back)
    assert response.status_code == 200, response.content
    assert {name: response.json()[name] for name in others} == others
    assert (await api.get(f"/sessions/{session_id}")).json()["tool_settings"] == back[
        "tool_settings"
    ]
    status = (await api.get(f"/sessions/{session_id}/status")).json()
    assert status["execution_policy"] == "always_confirm"


async def test_policies_of_single_tools_are_set_and_taken_away(api):
    policies = {"wipe": "always_confirm"}
    session_id = await api.new_session(tool_settings={**TOOLS, "tool_policies": policies})
    made = (await api.get(f"/sessions/{session_id}")).json()
    assert made["tool_settings"] == {**TOOLS, "tool_policies": policies}
    changed = await api.patch(f"/sessions/{session_id}", {"tool_settings": TOOLS})
    assert changed.json()["tool_settings"] == TOOLS


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"tool_policies": {"add": "sometimes"}}, "tool_settings.tool_policies.add"),
        ({"tool_policies": {"add": None}}, "tool_settings.tool_policies.add"),
        ({"confirmation_timeout": False}, "tool_settings.confirmation_timeout"),
        ({"confirmation_timeout": "1"}, "tool_settings.confirmation_timeout"),
        ({"tool_mode": "guess"}, "tool_settings.tool_mode"),
        ({"confirmation_timeout": -1}, "tool_settings.confirmation_timeout"),
        ({"tool_policies": ["add"]}, "tool_settings.tool_policies"),
        (
            {"tool_policies": dict.fromkeys(map(str, range(5000)), ALWAYS)},
            "tool_settings.tool_policies",
        ),
        ({"execution_policy": "by_vote"}, "tool_settings.execution_policy"),
        ({"tool_polices": {"add": "always_confirm"}}, "tool_settings.tool_polices"),
    ],
)
async def test_a_policy_or_key_that_is_new_and_unknown_is_refused(api, wrong, field):
    session_id = await api.new_session(tool_settings=TOOLS)
    for response in (
        await api.patch(f"/sessions/{session_id}", {"tool_settings": wrong}),
        await api.post("/sessions", {"model": "qwen3:14b", "tool_settings": wrong}),
    ):
        assert error_of(response) == (422, "VALIDATION_ERROR")
        assert response.json()["error"]["details"]["errors"][0]["field"] == field
    assert (await api.get(f"/sessions/{session_id}")).json()["tool_settings"] == TOOLS


async def test_a_misspelt_name_in_the_settings_of_tools_is_a_warning(api, mochi):
    """In the answer to whoever wrote it; the settings are kept, for tools may come later."""
    text = function("multiply") + "__all__ = ['multiply', 'broken']\n__math__ = ['multiply']\n"
    write_tools(mochi.tools_path, init=text)
    fine = {"tools": ["multiply"], "tool_group": "math", "tool_policies": {"multiply": ALWAYS}}
    made = await api.post("/sessions", {"model": "qwen3:14b", "tool_settings": fine})
    assert "warnings" not in made.json()
    session_id = made.json()["session_id"]
    wrong = {
        "tools": ["multipli", "broken", "fetch"],
        "tool_group": "maths",
        "tool_policies": {"multyply": ALWAYS},
    }
    warnings = [
        "There is no tool 'multipli'; did you mean 'multiply'?",
        (
            "The tool 'broken' cannot be used: __all__ names 'broken', which does not exist here; "
            "import it first."
        ),
        "There is no tool 'fetch'.",
        "There is no tool 'multyply'; did you mean 'multiply'?",
        "There is no group of tools 'maths'; did you mean 'math'?",
    ]
    for answer in (
        await api.patch(f"/sessions/{session_id}", {"tool_settings": wrong}),
        await api.post("/sessions", {"model": "qwen3:14b", "tool_settings": wrong}),
    ):
        assert answer.json()["warnings"] == warnings
        assert answer.json()["tool_settings"]["tools"] == wrong["tools"]
    assert "warnings" not in (await api.patch(f"/sessions/{session_id}", {"title": "T"})).json()
    assert "warnings" not in (await api.get(f"/sessions/{session_id}")).json()


async def test_hundreds_of_unknown_names_are_counted_not_named(api):
    names = [f"tool_{number}" for number in range(300)]
    made = await api.post("/sessions", {"model": "qwen3:14b", "tool_settings": {"tools": names}})
    *named, last = made.json()["warnings"]
    assert (len(named), last) == (20, "There are 280 more such names.")


async def test_an_empty_patch_changes_nothing(api):
    session_id = await api.new_session()
    before = (await api.get(f"/sessions/{session_id}")).json()
    assert (await api.patch(f"/sessions/{session_id}", {})).status_code == 200
    assert (await api.get(f"/sessions/{session_id}")).json() == before


async def test_a_model_that_does_not_exist_is_not_patched_in(api):
    session_id = await api.new_session()
    response = await api.patch(f"/sessions/{session_id}", {"model": "nobody:1b"})
    assert error_of(response) == (404, "MODEL_NOT_FOUND")
    assert (await api.get(f"/sessions/{session_id}")).json()["model"] == "qwen3:14b"


@pytest.mark.parametrize(
    "body", [{"model": None}, {"modle": "x"}, {"context_window": {"manual_override": True}}]
)
async def test_a_wrong_patch_is_refused(api, body):
    session_id = await api.new_session()
    response = await api.patch(f"/sessions/{session_id}", body)
    assert error_of(response) == (422, "VALIDATION_ERROR")


async def test_a_person_sets_the_context_window_and_gives_it_back(api):
    session_id = await api.new_session()
    window = {"manual_override": True, "current_window": 16384}
    assert (
        await api.patch(f"/sessions/{session_id}", {"context_window": window})
    ).status_code == 200
    status = (await api.get(f"/sessions/{session_id}/status")).json()["context_window"]
    assert (status["manual_override"], status["current_window"]) == (True, 16384)
    await api.patch(f"/sessions/{session_id}", {"context_window": {"manual_override": False}})
    status = (await api.get(f"/sessions/{session_id}/status")).json()["context_window"]
    assert status["manual_override"] is False


async def test_an_edited_message_drops_what_follows_it(api):
    session_id = await api.new_session(system_prompt="Be brief.")
    await with_messages(
        session_id,
        UserMessage(content="one"),
        AssistantMessage(content="two"),
        UserMessage(content="three"),
    )
    response = await api.put(f"/sessions/{session_id}/messages/1", {"content": "ONE"})
    assert response.status_code == 200
    assert [message["content"] for message in response.json()["messages"]] == ["Be brief.", "ONE"]
    assert response.json()["message_count"] == 2


@pytest.mark.parametrize("index", ["0", "2", "99", "-1", "9" * 40])
async def test_only_user_messages_can_be_edited(api, index):
    session_id = await api.new_session(system_prompt="Be brief.")
    await with_messages(session_id, UserMessage(content="one"), AssistantMessage(content="two"))
    response = await api.put(f"/sessions/{session_id}/messages/{index}", {"content": "x"})
    assert error_of(response) == (400, "INVALID_MESSAGE_INDEX")
    outside = index not in {"0", "2"}
    assert ("out of range" in response.json()["error"]["message"]) == outside
    assert ("not a user message" in response.json()["error"]["message"]) != outside


@pytest.mark.parametrize("index", ["1.0", "1e0", "1_0", "+1", "%201", "one", "%D9%A1", "true"])
async def test_an_index_is_a_whole_number(api, index):
    session_id = await api.new_session(system_prompt="Be brief.")
    await with_messages(session_id, UserMessage(content="one"))
    response = await api.put(f"/sessions/{session_id}/messages/{index}", {"content": "x"})
    assert error_of(response) == (422, "VALIDATION_ERROR")


@pytest.mark.parametrize("body", [{"content": " \n"}, {}, {"content": None}])
async def test_a_message_is_not_emptied(api, body):
    session_id = await api.new_session()
    response = await api.put(f"/sessions/{session_id}/messages/0", body)
    assert error_of(response) == (422, "VALIDATION_ERROR")


@pytest.mark.parametrize(
    ("method", "route", "body"),
    [
        ("PUT", "/messages/0", {"content": "x"}),
        ("PUT", "/system-prompt", {"content": "x"}),
        ("DELETE", "/system-prompt", None),
        ("DELETE", "", None),
    ],
)
async def test_messages_are_left_alone_while_a_turn_runs(api, method, route, body):
    session_id = await api.new_session()
    await with_messages(session_id, UserMessage(content="one"))
    async with get_runtime().sessions.claim(session_id):
        response = await api(method, f"/sessions/{session_id}{route}", body)
        assert error_of(response) == (409, "SESSION_BUSY")
        patched = await api.patch(f"/sessions/{session_id}", {"tool_settings": TOOLS})
        assert patched.status_code == 200
    assert (await api(method, f"/sessions/{session_id}{route}", body)).status_code in {200, 204}


async def test_the_system_prompt_is_set_replaced_and_removed(api):
    await api.post("/system-prompts", {"filename": "a.md", "content": "From the file."})
    session_id = await api.new_session()
    await with_messages(session_id, UserMessage(content="one"))
    url = f"/sessions/{session_id}/system-prompt"
    first = await api.put(url, {"content": "Text."})
    assert [message["content"] for message in first.json()["messages"]] == ["Text.", "one"]
    second = (await api.put(url, {"source_file": "a.md"})).json()["messages"]
    assert [message["content"] for message in second] == ["From the file.", "one"]
    assert second[0]["source_file"] == "a.md"
    both = (await api.put(url, {"source_file": "b.md", "content": "Mine."})).json()["messages"]
    assert (both[0]["content"], both[0]["source_file"]) == ("Mine.", "b.md")
    removed = await api.delete(url)
    assert (removed.status_code, removed.content) == (204, b"")
    listed = (await api.get(f"/sessions/{session_id}/messages")).json()
    assert (listed["message_count"], [m["content"] for m in listed["messages"]]) == (1, ["one"])
    assert (await api.delete(url)).status_code == 204


@pytest.mark.parametrize(
    ("turns", "read"),
    [
        (1, ["Brief.", "three", "3"]),
        (2, ["Brief.", "two", "2", "2 more", "three", "3"]),
        (3, ["Brief.", "one", "two", "2", "2 more", "three", "3"]),
        (100_000, ["Brief.", "A greeting", "one", "two", "2", "2 more", "three", "3"]),
    ],
)
async def test_the_last_turns_of_a_session_are_read_alone(api, turns, read):
    session_id = await api.new_session(system_prompt="Brief.")
    await with_messages(
        session_id,
        AssistantMessage(content="A greeting"),
        UserMessage(content="one"),
        UserMessage(content="two"),
        *(AssistantMessage(content=text) for text in ("2", "2 more")),
        UserMessage(content="three"),
        AssistantMessage(content="3"),
    )
    for path in ("", "/messages"):
        answer = (await api.get(f"/sessions/{session_id}{path}?turns={turns}")).json()
        assert [message["content"] for message in answer["messages"]] == read
        assert answer["message_count"] == 8


@pytest.mark.parametrize("turns", ["0", "-1", "1.5", "all", "", "100001"])
async def test_no_other_number_of_turns_is_read(api, turns):
    session_id = await api.new_session()
    for path in ("", "/messages"):
        response = await api.get(f"/sessions/{session_id}{path}?turns={turns}")
        assert error_of(response) == (422, "VALIDATION_ERROR")


async def test_an_unknown_prompt_file_changes_no_session(api):
    session_id = await api.new_session(system_prompt="Old.")
    response = await api.put(f"/sessions/{session_id}/system-prompt", {"source_file": "no.md"})
    assert error_of(response) == (404, "PROMPT_NOT_FOUND")
    assert (await api.get(f"/sessions/{session_id}")).json()["messages"][0]["content"] == "Old."


async def test_the_status_has_every_documented_field(api):
    session_id = await api.new_session(tool_settings=TOOLS)
    body = (await api.get(f"/sessions/{session_id}/status")).json()
    assert {
        "session_id", "model", "message_count", "context_window", "tools_enabled", "active_tools",
        "execution_policy", "agents_enabled", "enabled_agents", "system_prompt_file", "summary",
        "summary_model",
    } <= set(body)  # fmt: skip
    assert body["execution_policy"] == "never_confirm"
    assert body["context_window"]["model_max_context"] == 40960


async def test_answers_are_what_is_stored(api, mochi):
    session_id = await api.new_session()
    await with_messages(session_id, UserMessage(content="Grüße 🙂\u2028"))
    stored = orjson.loads((mochi.sessions_path / f"{session_id}.json").read_bytes())
    detail = (await api.get(f"/sessions/{session_id}")).json()
    labels = {"title": None, "tags": [], "pinned": False, "archived": False}
    assert detail == {**stored["metadata"], **labels, "messages": stored["messages"]}


async def test_texts_of_another_type_in_the_file_of_another_program_are_null(api, mochi):
    path = mochi.sessions_path / "theirs.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    summary = {"summary": "Old.", "topics": [], "model": 5}
    times = dict.fromkeys(("created_at", "updated_at"), "2025-01-15T10:30:00.000000Z")
    metadata = {"session_id": "theirs", "model": "qwen3:14b", **times, "summary": summary}
    messages = [{"role": "system", "content": "Be brief.", "source_file": 5}]
    path.write_bytes(orjson.dumps({"metadata": {**metadata, "messages": 1}, "messages": messages}))
    status = await api.get("/sessions/theirs/status")
    shown = await api.get("/sessions/theirs/summary")
    detail = await api.get("/sessions/theirs")
    assert (status.status_code, shown.status_code, detail.status_code) == (200, 200, 200)
    assert status.json()["system_prompt_file"] is None
    assert shown.json()["model_used"] is None
    assert detail.json()["messages"] == messages


@pytest.mark.parametrize("levels", [63, 300, 2000])
async def test_a_body_that_is_nested_too_deeply_is_refused(api, levels):
    deep = b'{"a":' * levels + b"1" + b"}" * levels
    settings = b'"agent_settings":{"enabled_agents":[],"selection_metadata":' + deep + b"}}"
    session_id = await api.new_session()
    for method, path, start in (
        ("POST", "/sessions", b'{"model":"qwen3:14b",'),
        ("PATCH", f"/sessions/{session_id}", b"{"),
        ("POST", f"/chat/{session_id}", b'{"message":"Hi",'),
    ):
        response = await api(method, path, start + settings)
        assert error_of(response) == (422, "VALIDATION_ERROR")
        assert "64 levels" in response.json()["error"]["message"]
    assert len((await api.get("/sessions")).json()["sessions"]) == 1


async def test_settings_as_deep_as_a_body_may_be_are_kept(api):
    value: object = 1
    for _ in range(62):
        value = {"a": value}
    settings = {"enabled_agents": [], "selection_metadata": value}
    session_id = await api.new_session(agent_settings=settings)
    patched = await api.patch(f"/sessions/{session_id}", {"agent_settings": settings})
    assert patched.status_code == 200
    assert patched.json()["agent_settings"]["selection_metadata"] == value
    assert (await api.get(f"/sessions/{session_id}")).json()["agent_settings"] == settings


async def test_a_stored_session_that_is_nested_too_deeply_is_unreadable(api, mochi):
    session_id = await api.new_session()
    path = mochi.sessions_path / f"{session_id}.json"
    stored = orjson.loads(path.read_bytes())
    deep = b'{"a":' * 300 + b"1" + b"}" * 300
    stored["metadata"]["agent_settings"] = {"selection_metadata": "DEEP"}
    path.write_bytes(orjson.dumps(stored).replace(b'"DEEP"', deep))
    for method, route, body in (
        ("GET", "", None),
        ("GET", "/messages", None),
        ("GET", "/status", None),
        ("PATCH", "", {"tool_settings": None}),
        ("PUT", "/system-prompt", {"content": "x"}),
    ):
        response = await api(method, f"/sessions/{session_id}{route}", body)
        assert response.json()["error"]["code"] == "SESSION_UNREADABLE", (method, route)
    (problem,) = (await api.get("/sessions")).json()["problems"]
    assert problem["session_id"] == session_id


@pytest.mark.parametrize("text", ["", " \n", "x" * 10_000])
async def test_every_way_to_a_system_prompt_has_the_same_rule(api, mochi, text):
    session_id = await api.new_session()
    mochi.system_prompts_path.mkdir(parents=True)
    (mochi.system_prompts_path / "a.md").write_text(text)
    for method, path, body in (
        ("POST", "/sessions", {"model": "qwen3:14b", "system_prompt": text}),
        ("POST", "/sessions", {"model": "qwen3:14b", "system_prompt_source_file": "a.md"}),
        ("PUT", f"/sessions/{session_id}/system-prompt", {"content": text}),
        ("PUT", f"/sessions/{session_id}/system-prompt", {"source_file": "a.md"}),
        ("POST", "/system-prompts", {"filename": "b.md", "content": text}),
        ("PUT", "/system-prompts/a.md", {"content": text}),
    ):
        response = await api(method, path, body)
        assert error_of(response) == (422, "VALIDATION_ERROR"), (method, path)
    assert (await api.get(f"/sessions/{session_id}")).json()["message_count"] == 0
    assert len((await api.get("/sessions")).json()["sessions"]) == 1


async def test_the_longest_system_prompt_is_accepted(api):
    session_id = await api.new_session(system_prompt="x" * 9_999)
    response = await api.put(f"/sessions/{session_id}/system-prompt", {"content": "y" * 9_999})
    assert response.status_code == 200
