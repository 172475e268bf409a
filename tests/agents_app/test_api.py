"""``/agents`` over HTTP."""

from __future__ import annotations

import pytest

from mochi_project.runtime import get_runtime
from mochi_server.protocol.messages import UserMessage
from tests.support.agents import write_agent, write_skill
from tests.support.tools import noting

pytestmark = pytest.mark.usefixtures("ollama_url")

CODER = (
    "description: Writes code.",
    "model: qwen3:8b",
    "license: MIT",
    "agents: [writer]",
    "metadata: {author: me}",
)


@pytest.fixture
def folder(mochi):
    write_agent(mochi.agents_path / "coder", *CODER, tools=["read", "write"])
    write_skill(mochi.agents_path / "writer")
    write_skill(mochi.agents_path / "broken", "name: broken")
    return mochi.agents_path


async def test_the_list_has_every_agent_and_what_is_wrong(api, folder):
    listed = (await api.get("/agents")).json()
    assert list(listed["agents"]) == ["broken", "coder", "writer"]
    assert listed["agents"]["coder"] == {
        "name": "coder",
        "description": "Writes code.",
        "model": "qwen3:8b",
        "valid": True,
        "tool_count": 2,
        "tools": ["read", "write"],
        "error_message": None,
    }
    broken = listed["agents"]["broken"]
    assert (broken["valid"], broken["tool_count"]) == (False, 0)
    assert broken["error_message"] == "broken/SKILL.md:1: description is missing"
    assert listed["problems"] == [
        {
            "file": str(folder / "broken" / "SKILL.md"),
            "line": 1,
            "reason": "description is missing",
            "tool": None,
            "severity": "warning",
        }
    ]


async def test_one_agent_has_its_prompt_and_its_tools(api, folder):
    agent = (await api.get("/agents/coder")).json()
    details = agent.pop("tool_details")
    assert agent == {
        "name": "coder",
        "description": "Writes code.",
        "model": "qwen3:8b",
        "valid": True,
        "tool_count": 2,
        "tools": ["read", "write"],
        "error_message": None,
        "system_prompt": "You work.",
        "agents": ["writer"],
        "license": "MIT",
        "compatibility": None,
        "metadata": {"author": "me"},
        "allowed_tools": None,
        "path": str(folder / "coder"),
        "problems": [],
    }
    assert details["write"] == {
        "name": "write",
        "description": "Do write.",
        "parameters": {"type": "object", "properties": {}, "required": []},
        "destructive": None,
        "sequential": False,
        "timeout": 60.0,
    }


async def test_an_agent_that_cannot_be_used_is_an_error_with_the_reason(api, folder):
    response = await api.get("/agents/broken")
    assert response.status_code == 422
    error = response.json()["error"]
    assert error["code"] == "AGENT_INVALID"
    assert "broken/SKILL.md:1: description is missing" in error["message"]
    assert error["details"]["agent"] == "broken"
    assert error["details"]["problems"][0]["line"] == 1


@pytest.mark.parametrize("name", ["nobody", "agent_chats", "..", "_x", "%00", "a b", "%F0%9F"])
async def test_an_agent_that_is_not_there_is_not_found(api, folder, name):
    response = await api.get(f"/agents/{name}")
    assert response.status_code == 404
    assert response.json()["error"]["code"] in {"AGENT_NOT_FOUND", "NOT_FOUND"}


async def test_without_a_folder_there_is_nobody(api, mochi):
    nobody = {"agents": {}, "problems": []}
    assert (await api.get("/agents")).json() == nobody
    response = await api.post("/agents/reload")
    assert (response.status_code, response.json()) == (200, nobody)
    assert not mochi.agents_path.exists()


async def test_a_reload_imports_what_has_not_changed(api, mochi, tmp_path):
    coder = write_agent(mochi.agents_path / "coder")
    (coder / "coder.py").write_text(noting(tmp_path / "log") + (coder / "coder.py").read_text())
    await api.get("/agents")
    before = len((tmp_path / "log").read_text())
    await api.get("/agents")
    assert len((tmp_path / "log").read_text()) == before
    reloaded = await api.post("/agents/reload")
    assert (reloaded.status_code, list(reloaded.json()["agents"])) == (200, ["coder"])
    assert len((tmp_path / "log").read_text()) > before


async def chat_of_an_agent(text="Sort a list."):
    sessions = get_runtime().agent_sessions
    session = await sessions.create("qwen3:8b", system_prompt="You work.")
    await sessions.update(session.session_id, lambda found: found.append(UserMessage(content=text)))
    return session.session_id


async def test_conversations_of_agents_are_listed_and_read(api, folder):
    session_id = await chat_of_an_agent()
    other = await api.new_session()
    [line] = (await api.get("/agents/chats")).json()["sessions"]
    assert (line["session_id"], line["message_count"]) == (session_id, 2)
    assert line["preview"] == "Sort a list."
    chat = (await api.get(f"/agents/chats/{session_id}")).json()
    assert [message["role"] for message in chat["messages"]] == ["system", "user"]
    assert (chat["model"], chat["format_version"]) == ("qwen3:8b", "1.3")

    assert (await api.get(f"/sessions/{session_id}")).status_code == 404
    assert (await api.get(f"/agents/chats/{other}")).status_code == 404
    assert [each["session_id"] for each in (await api.get("/sessions")).json()["sessions"]] == [
        other
    ]
    assert list((await api.get("/agents")).json()["agents"]) == ["broken", "coder", "writer"]


async def test_conversations_of_agents_come_in_pages(api, mochi):
    assert (await api.get("/agents/chats")).json() == {"sessions": [], "problems": []}
    for number in range(3):
        await chat_of_an_agent(f"Number {number}.")
    first = (await api.get("/agents/chats?limit=2")).json()
    rest = (await api.get(f"/agents/chats?limit=2&cursor={first['next_cursor']}")).json()
    previews = [line["preview"] for line in first["sessions"] + rest["sessions"]]
    assert previews == ["Number 2.", "Number 1.", "Number 0."]
    assert rest["next_cursor"] is None
    for query in ("limit=0", "limit=x", "cursor=%00"):
        response = await api.get(f"/agents/chats?{query}")
        assert response.json()["error"]["code"] == "VALIDATION_ERROR"


@pytest.mark.parametrize("session_id", ["0123456789", "..", "a.b", "x" * 65, "%00", "a b", "coder"])
async def test_a_conversation_that_is_not_there_is_not_found(api, folder, session_id):
    response = await api.get(f"/agents/chats/{session_id}")
    assert response.status_code == 404
    assert response.json()["error"]["code"] in {"SESSION_NOT_FOUND", "NOT_FOUND"}


async def test_a_torn_conversation_hides_no_other(api, mochi):
    session_id = await chat_of_an_agent()
    (mochi.agent_chats_path / "fe0394527d.json").write_text('{"metadata": ')
    listed = (await api.get("/agents/chats")).json()
    assert [line["session_id"] for line in listed["sessions"]] == [session_id]
    assert [problem["session_id"] for problem in listed["problems"]] == ["fe0394527d"]
    torn = await api.get("/agents/chats/fe0394527d")
    assert torn.json()["error"]["code"] == "SESSION_UNREADABLE"


async def test_an_agent_named_like_a_route_is_a_problem(api, mochi):
    write_skill(mochi.agents_path / "chats")
    listed = (await api.get("/agents")).json()
    assert not listed["agents"]["chats"]["valid"]
    assert "rename the folder" in listed["problems"][0]["reason"]
    assert (await api.get("/agents/chats")).json()["sessions"] == []


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/agents"),
        ("GET", "/agents/reload"),
        ("POST", "/agents/chats"),
        ("DELETE", "/agents/coder"),
        ("DELETE", "/agents/chats/0123456789"),
    ],
)
async def test_other_methods_are_refused(api, method, path):
    response = await api(method, path)
    assert response.status_code == 405
