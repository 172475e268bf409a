"""People with tokens of their own use one server: their rights, and whose sessions they see."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from websockets.exceptions import ConnectionClosed

from mochi_project.http.rights import ROUTES
from mochi_server.config import load_settings
from mochi_server.core.caller import Right
from mochi_server.core.tokens import AccessTokenFile
from tests.support.fake_ollama import FakeOllama
from tests.support.mcp_clients import ERAS
from tests.support.server import Server, running_server
from tests.support.sockets import ready_socket
from tests.support.tools import write_tools
from tests.support.waiting import until

TOOLS = '''
def write(path: str) -> str:
    """Write a file."""
    return f"wrote {path}"


__all__ = ["write"]
'''
SECRET = "the treasure is under the oak"
PEOPLE: dict[str, list[Right]] = {
    "alice": ["chat", "tools"],
    "bob": ["chat", "tools"],
    "carol": ["chat"],
    "dave": ["read"],
    "root": ["admin"],
}
ASKING = {"tools": ["write"], "execution_policy": "always_confirm"}


class People:
    """A server, and what each person's requests get."""

    def __init__(self, server: Server, file: AccessTokenFile, tokens: dict[str, str]) -> None:
        self.server, self.file, self.tokens = server, file, tokens

    def headers(self, who: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.tokens[who]}"}

    async def __call__(
        self, who: str, method: str, path: str, body: Any = None, **options: Any
    ) -> tuple[int, Any]:
        if body is not None:
            options["json"] = body
        url = self.server.url + path
        headers = {**self.headers(who), **options.pop("headers", {})}
        async with self.server.http.request(method, url, headers=headers, **options) as answer:
            content = await answer.read()
            is_json = answer.content_type == "application/json"
            return answer.status, json.loads(content) if is_json and content else content.decode()

    async def session(self, who: str, **fields: Any) -> str:
        body = {"model": "qwen3:14b", **fields}
        status, session = await self(who, "POST", "/api/v1/sessions", body)
        assert status == 201, session
        return str(session["session_id"])

    async def turn(self, who: str, session: str, message: str = "Hi") -> tuple[int, Any]:
        return await self(who, "POST", f"/api/v1/chat/{session}", {"message": message})


@asynccontextmanager
async def people_of(folder: Path, ollama: FakeOllama, **settings: Any) -> AsyncIterator[People]:
    found = load_settings(data_dir=folder)
    file = AccessTokenFile(found.tokens_path, found.token_use_path)
    tokens = {name: file.add(name, rights) for name, rights in PEOPLE.items()}
    write_tools(folder / "tools", init=TOOLS)
    settings = {"session_owners": True, **settings}
    async with running_server(data_dir=folder, ollama=ollama, **settings) as server:
        yield People(server, file, tokens)
    for token in tokens.values():
        assert token not in server.log


@pytest.fixture
async def people(tmp_path: Path, ollama: FakeOllama) -> AsyncIterator[People]:
    async with people_of(tmp_path, ollama) as found:
        yield found


def code_of(answer: tuple[int, Any]) -> tuple[int, str]:
    status, body = answer
    return status, body["error"]["code"] if isinstance(body, dict) and "error" in body else ""


async def asked(people: People, who: str, session: str) -> str:
    """The id of the call that waits in a session."""
    path = f"/api/v1/chat/{session}/confirmations"
    _, body = await until(
        lambda: people(who, "GET", path), lambda answer: answer[1]["confirmations"]
    )
    return str(body["confirmations"][0]["confirmation_id"])


async def waiting_run(people: People, ollama: FakeOllama, who: str) -> tuple[str, str, str]:
    """The ids of a session, of its run, and of the confirmation that this one waits for."""
    ollama.reply(tool_calls=[{"name": "write", "arguments": {"path": SECRET}}])
    session = await people.session(who, tool_settings=ASKING, title=SECRET)
    path = f"/api/v1/chat/{session}/runs"
    status, run = await people(who, "POST", path, {"message": SECRET})
    assert status == 202, run
    return session, run["run_id"], await asked(people, who, session)


async def test_each_right_opens_its_routes_alone(people: People, ollama: FakeOllama) -> None:
    forbidden = (403, "FORBIDDEN")
    session = await people.session("carol")
    ollama.reply(["Hello."])
    status, reply = await people.turn("carol", session)
    assert (status, reply["message"]["content"]) == (200, "Hello."), reply

    status, body = await people("dave", "POST", "/api/v1/sessions", {"model": "qwen3:14b"})
    assert (status, body["error"]["details"]) == (403, {"right": "chat"})
    assert (await people("dave", "GET", "/api/v1/sessions"))[0] == 200
    assert (await people("dave", "GET", "/api/models/available"))[0] == 200

    # Without the right to tools, nobody gets at them by the settings of a session, ...
    with_tools = {"tool_settings": {"tools": ["write"], "execution_policy": "never_confirm"}}
    body = {"model": "qwen3:14b", **with_tools}
    assert code_of(await people("carol", "POST", "/api/v1/sessions", body)) == forbidden
    path = f"/api/v1/sessions/{session}"
    assert code_of(await people("carol", "PATCH", path, with_tools)) == forbidden
    agents = {"agent_settings": {"enabled_agents": ["x"]}}
    assert code_of(await people("carol", "PATCH", path, agents)) == forbidden
    assert (await people("carol", "PATCH", path, {"title": "Mine"}))[0] == 200
    # ... nor by a turn in a session that has some, nor by naming some,
    assert (await people("root", "PATCH", path, with_tools))[0] == 200
    status, body = await people.turn("carol", session)
    assert (status, body["error"]["code"], body["error"]["details"]) == (
        403,
        "FORBIDDEN",
        {"right": "tools"},
    )
    chosen = {"model": "qwen3:14b", "message": "Hi", "selected_tools": ["write"]}
    assert code_of(await people("carol", "POST", "/api/v1/chat/stream", chosen)) == forbidden
    # nor by the wires of vendors, each of which says it in its own form.
    openai = {"model": "qwen3:14b", "messages": [{"role": "user", "content": "Hi"}]}
    status, body = await people(
        "carol", "POST", "/v1/chat/completions", openai, headers={"X-Mochi-Session": session}
    )
    assert (status, body["error"]["code"]) == (403, "FORBIDDEN"), body
    anthropic = {**openai, "max_tokens": 10}
    version = {"anthropic-version": "2023-06-01"}
    status, body = await people("dave", "POST", "/v1/messages", anthropic, headers=version)
    assert (status, body["type"], body["error"]["type"]) == (403, "error", "permission_error")
    status, body = await people("dave", "POST", "/ollama/api/chat", openai)
    assert (status, type(body["error"])) == (403, str)
    for path in ("/v1/responses", "/api/v1/agui", "/api/v1/ui/chat"):
        status, body = await people("dave", "POST", path, {})
        assert (status, "'chat'" in json.dumps(body)) == (403, True), body

    for method, path in [
        ("GET", "/api/v1/audit"),
        ("GET", "/api/v1/confirmations/history"),
        ("POST", "/api/v1/mcp/add"),
        ("POST", "/api/mcp/add"),
        ("POST", "/api/v1/tools/reload"),
        ("PUT", "/api/v1/presets/x"),
        ("DELETE", "/api/v1/system-prompts/x.md"),
        ("POST", "/ollama/api/pull"),
        ("GET", "/api/v1/mcp/x/log"),
        ("HEAD", "/api/v1/audit"),
        ("GET", "/api/v1/audit/"),
        ("GET", "/api/v1//audit"),
    ]:
        status, _ = await people("alice", method, path, {} if method in {"POST", "PUT"} else None)
        assert status in {403, 404}, (method, path)
    assert code_of(await people("root", "GET", "/api/v1/audit"))[0] == 200


async def test_without_the_right_to_tools_nobody_chooses_a_preset_that_has_some(
    people: People, ollama: FakeOllama
) -> None:
    """It would let the calls of others run without a question."""
    forbidden = (403, "FORBIDDEN")
    lax = {"model": "qwen3:14b", "tools": ["write"], "policy": "never_confirm"}
    for name, preset in {"lax": lax, "brief": {"model": "qwen3:14b"}}.items():
        status, body = await people("root", "PUT", f"/api/v1/presets/{name}", preset)
        assert status in {200, 201}, body
    session = await people.session("carol")
    path = f"/api/v1/sessions/{session}"
    lax_model, brief_model = {"model": "preset/lax"}, {"model": "preset/brief"}
    assert code_of(await people("carol", "PATCH", path, lax_model)) == forbidden
    assert (await people("carol", "GET", path))[1]["model"] == "qwen3:14b"
    assert code_of(await people("carol", "POST", "/api/v1/sessions", lax_model)) == forbidden
    simple = {**lax_model, "message": "Hi", "selected_tools": []}
    assert code_of(await people("carol", "POST", "/api/v1/chat", simple)) == forbidden
    stored = {**lax_model, "input": "Hi", "tool_choice": "none"}
    assert code_of(await people("carol", "POST", "/v1/responses", stored)) == forbidden
    assert (await people("carol", "PATCH", path, brief_model))[0] == 200
    assert (await people("carol", "POST", "/api/v1/sessions", brief_model))[0] == 201

    # Nor does it take away what replaces the tools of a preset.
    none = {"tool_settings": {"tools": []}}
    assert (await people("root", "PATCH", path, {**lax_model, **none}))[0] == 200
    assert code_of(await people("carol", "PATCH", path, {"tool_settings": None})) == forbidden
    assert (await people("carol", "PATCH", path, {**lax_model, "title": "Mine"}))[0] == 200
    assert (await people("root", "PATCH", path, {"tool_settings": None}))[0] == 200
    assert code_of(await people("carol", "PATCH", path, none)) == forbidden
    _, log = await people("root", "GET", "/api/v1/audit?limit=1")
    (entry,) = log["entries"]
    assert (entry["who"], entry["action"]) == ("root", "change tools of session")
    assert entry["target"] == {"session_id": session, "execution_policy": "never_confirm"}

    alice = await people.session("alice", **lax_model)
    path = f"/api/v1/sessions/{alice}"
    for each in (brief_model, lax_model):
        assert (await people("alice", "PATCH", path, each))[0] == 200
    # Where a preset is gone, it may come back: what replaces its tools stays.
    kept = await people.session("carol")
    path = f"/api/v1/sessions/{kept}"
    assert (await people("root", "PATCH", path, {**lax_model, **none}))[0] == 200
    assert (await people("root", "DELETE", "/api/v1/presets/lax"))[0] == 204
    assert code_of(await people("carol", "PATCH", path, {"tool_settings": None})) == forbidden
    # A preset that is gone can be left by everybody.
    own = await people.session("carol", **brief_model)
    assert (await people("root", "DELETE", "/api/v1/presets/brief"))[0] == 204
    path = f"/api/v1/sessions/{own}"
    assert (await people("carol", "PATCH", path, {"model": "qwen3:14b"}))[0] == 200


@pytest.mark.parametrize("model", ["preset/lax", "preset/missing"])
async def test_without_the_right_to_tools_nobody_imports_a_session_of_a_preset_that_has_some(
    people: People, model: str
) -> None:
    lax = {"model": "qwen3:14b", "tools": ["write"], "policy": "never_confirm"}
    assert (await people("root", "PUT", "/api/v1/presets/lax", lax))[0] in {200, 201}
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]
    head = {"session_id": "one", "model": model, "format_version": "1.3"}
    time = "2026-11-24T16:40:00Z"
    file = {"metadata": {**head, "created_at": time, "updated_at": time}, "messages": messages}
    other = {"messages": messages}
    for query, body in [("", file), (f"?model={model}", other)]:
        path = f"/api/v1/sessions/import{query}"
        refused = await people("carol", "POST", path, body)
        assert code_of(refused)[1] == "CANNOT_IMPORT"
        assert "'tools'" in refused[1]["error"]["message"]
        assert (await people("carol", "GET", "/api/v1/sessions"))[1]["sessions"] == []
        status, result = await people("alice", "POST", path, body)
        assert (status, len(result["imported"])) == (200, 1), result


async def test_without_the_right_to_tools_nobody_decides(
    people: People, ollama: FakeOllama
) -> None:
    session, run, confirmation = await waiting_run(people, ollama, "alice")
    yes = {"confirmation_id": confirmation, "approved": True}
    for path in (f"/api/v1/confirmations/{confirmation}", f"/api/v1/chat/{session}/confirm-tool"):
        assert code_of(await people("carol", "POST", path, yes)) == (403, "FORBIDDEN")
        assert code_of(await people("bob", "POST", path, yes)) == (404, "CONFIRMATION_NOT_FOUND")
    # A rule for all sessions is for those who see all.
    path = f"/api/v1/confirmations/{confirmation}"
    everywhere = {"approved": True, "remember": "tool"}
    assert code_of(await people("alice", "POST", path, everywhere)) == (403, "FORBIDDEN")
    ollama.reply(["Done."])
    status, body = await people("alice", "POST", path, {"approved": True, "remember": "session"})
    assert status == 200, body
    rule = body["rule_id"]
    assert code_of(await people("alice", "DELETE", f"/api/v1/policies/{rule}")) == (
        403,
        "FORBIDDEN",
    )
    path = "/api/v1/confirmations/history"
    status, history = await until(
        lambda: people("root", "GET", path), lambda answer: answer[1]["history"]
    )
    assert (status, history["history"][0]["decision"]["decided_by"]) == (200, "alice")
    _, log = await people("root", "GET", "/api/v1/audit?limit=2")
    refused, entry = log["entries"]
    assert (refused["who"], refused["action"], refused["outcome"]) == (
        "alice",
        "delete policy",
        "refused",
    )
    assert (entry["who"], entry["action"]) == ("alice", "allow call")
    assert entry["target"] == {
        "confirmation_id": confirmation,
        "session_id": session,
        "run_id": run,
        "tool": "write",
        "remember": "session",
        "rule_id": rule,
    }


BODIES: dict[str, Any] = {
    "POST api/v1/sessions/<session_id>/fork": {},
    "PATCH api/v1/sessions/<session_id>": {"title": "Mine"},
    "PUT api/v1/sessions/<session_id>/messages/<message_index>": {"content": "x"},
    "PUT api/v1/sessions/<session_id>/system-prompt": {"content": "x"},
    "POST api/v1/sessions/<session_id>/summarize": {},
    "POST api/v1/chat/<session_id>": {"message": "x"},
    "POST api/v1/chat/<session_id>/stream": {"message": "x"},
    "POST api/v1/chat/<session_id>/runs": {"message": "x"},
    "POST v1/conversations/<conversation_id>": {"metadata": {}},
    "POST v1/conversations/<conversation_id>/items": {
        "items": [{"type": "message", "role": "user", "content": "x"}]
    },
}
NOT_HERE = {404, 400, 405, 422, 501}


OTHER_PARTS = {
    "<message_index>": "0",
    "<message_id>": "0123456789",
    "<path:file>": "a.txt",
    "<attachment_id>": "0" * 64,
    "<rule_id>": "rule_0123456789abcdef",
}


async def answer_to(people: People, operation: str, ids: dict[str, str]) -> tuple[int, str]:
    """What bob is answered to a request with these ids, which are left out of it."""
    method, _, route = operation.partition(" ")
    path = f"/{route}"
    for name, value in {**ids, **OTHER_PARTS}.items():
        path = path.replace(name, value)
    body = BODIES.get(operation, {"approved": True})
    if "confirm" in route:
        body = {**body, "confirmation_id": ids["<confirmation_id>"]}
    has_body = method in {"POST", "PUT", "PATCH"}
    status, answer = await people("bob", method, path, body if has_body else None)
    text = json.dumps(answer)
    assert SECRET not in text, operation
    for name, value in ids.items():
        text = text.replace(value, name)
    return status, text


@pytest.fixture
async def with_workspaces(tmp_path: Path, ollama: FakeOllama) -> AsyncIterator[People]:
    async with people_of(tmp_path, ollama, workspace_enabled=True, sandbox="process") as found:
        yield found


async def test_no_route_tells_of_another_ones_session(
    with_workspaces: People, ollama: FakeOllama
) -> None:
    people = with_workspaces
    session, run, confirmation = await waiting_run(people, ollama, "alice")
    ids = {
        "<session_id>": session,
        "<run_id>": run,
        "<confirmation_id>": confirmation,
        "<conversation_id>": f"conv_{session}",
        "<response_id>": f"resp_{session}_{run.removeprefix('run_')}",
    }
    unknown = {
        "<session_id>": "abcdef0123",
        "<run_id>": "run_0123456789abcdef",
        "<confirmation_id>": "conf_0123456789abcdef",
        "<conversation_id>": "conv_abcdef0123",
        "<response_id>": "resp_abcdef0123_0123456789abcdef",
    }
    operations = [each for each in ROUTES if any(name in each for name in ids)]
    assert len(operations) > 35
    for operation in operations:
        foreign = await answer_to(people, operation, ids)
        assert foreign == await answer_to(people, operation, unknown), operation
        if "confirmations" not in operation:
            assert foreign[0] in NOT_HERE, (operation, foreign)

    for path in (
        "/api/v1/sessions",
        "/api/v1/sessions?limit=10",
        "/api/v1/sessions?query=treasure",
        "/api/v1/runs",
        f"/api/v1/runs?session_id={session}",
        "/api/v1/confirmations",
        f"/api/v1/confirmations?session_id={session}",
        "/api/v1/agents/chats",
    ):
        status, answer = await people("bob", "GET", path)
        assert status == 200, path
        assert session not in json.dumps(answer), path
        if "agents" not in path:
            assert session in json.dumps((await people("alice", "GET", path))[1]), path
            assert session in json.dumps((await people("root", "GET", path))[1]), path
    # By names in bodies: the id is taken, and that is not told either.
    hi = {"message": "x", "model": "qwen3:14b"}
    messages = {"model": "qwen3:14b", "messages": [{"role": "user", "content": "x"}]}
    named = {"X-Mochi-Session": session}
    answer_of = {"model": "qwen3:14b", "input": "x"}
    for path, body, headers in [
        ("/api/v1/chat", {**hi, "session_id": session}, {}),
        ("/api/v1/chat/stream", {**hi, "session_id": session}, {}),
        ("/v1/chat/completions", messages, named),
        ("/ollama/api/chat", messages, named),
        ("/v1/responses", {**answer_of, "conversation": f"conv_{session}"}, {}),
        (
            "/v1/responses",
            {**answer_of, "previous_response_id": ids["<response_id>"]},
            {},
        ),
        (f"/api/v1/policies?session_id={session}", None, {}),
    ]:
        method = "GET" if body is None else "POST"
        status, answer = await people("bob", method, path, body, headers=headers)
        assert status in NOT_HERE, (path, status, answer)
        assert SECRET not in json.dumps(answer)
    status, mine = await people("alice", "GET", f"/api/v1/sessions/{session}")
    assert (status, mine["title"], len(mine["messages"])) == (200, SECRET, 2), "it is unchanged"


async def test_a_session_file_that_names_the_run_of_somebody_else_opens_nothing(
    people: People, ollama: FakeOllama
) -> None:
    _, run, confirmation = await waiting_run(people, ollama, "alice")

    async def answers(session: str, run: str, confirmation: str) -> list[Any]:
        """Answer, without ids, what depends on a run that the file of a session names."""
        time = "2026-11-24T16:40:00Z"
        question = {"role": "user", "content": "Hi", "message_id": session, "timestamp": time}
        metadata = {"session_id": session, "model": "qwen3:14b", "format_version": "1.3"}
        metadata |= {"created_at": time, "updated_at": time, "run": {"id": run, "number": 1}}
        document = {
            "metadata": metadata,
            "messages": [{**question, "response": {"run_id": run, "model": "qwen3:14b"}}],
        }
        imported = json.dumps(document).encode()
        status, report = await people("bob", "POST", "/api/v1/sessions/import", data=imported)
        assert status == 200, report
        response = f"/v1/responses/resp_{session}_{run.removeprefix('run_')}"
        decision = {
            "type": "mcp_approval_response",
            "approval_request_id": f"mcpr_{confirmation}_3",
            "approve": True,
        }
        turn = f"/api/v1/chat/{session}"
        ollama.reply(["Hello."])
        found = [
            await people("bob", "GET", f"{turn}/stream"),
            await people("bob", "POST", f"{turn}/stop"),
            await people("bob", "GET", response),
            await people("bob", "POST", "/v1/responses", {"model": "m", "input": [decision]}),
            (await people("bob", "POST", turn, {"message": "Hi", "when_busy": "interrupt"}))[0],
        ]
        for known in (run, run.removeprefix("run_"), session, confirmation):
            found = json.loads(json.dumps(found).replace(known, "ID"))
        return found

    with anyio.fail_after(30):
        foreign = await answers("aaaaaaaaaa", run, confirmation)
    unknown = ("run_0123456789abcdef", "conf_0123456789abcdef")
    assert foreign == await answers("bbbbbbbbbb", *unknown)
    assert SECRET not in json.dumps(foreign)
    _, status = await people("alice", "GET", f"/api/v1/runs/{run}")
    assert status["state"] == "waiting"


async def test_what_a_token_makes_belongs_to_it(
    people: People, ollama: FakeOllama, tmp_path: Path
) -> None:
    session = await people.session("alice", title="one", tags=["garden"])
    ids = [session]
    _, fork = await people("alice", "POST", f"/api/v1/sessions/{session}/fork")
    ids.append(fork["session_id"])
    ollama.reply(["Hello."])
    named = {"message": "Hi", "model": "qwen3:14b", "session_id": "mine"}
    assert (await people("alice", "POST", "/api/v1/chat/stream", named))[0] == 200
    ids.append("mine")
    _, conversation = await people("alice", "POST", "/v1/conversations", {})
    ids.append(conversation["id"].removeprefix("conv_"))
    exported = (await people("root", "GET", f"/api/v1/sessions/{session}/export?format=json"))[1]
    content = json.dumps(exported).encode()
    as_file = {"Content-Type": "application/octet-stream"}
    path = "/api/v1/sessions/import"
    status, _ = await people("alice", "POST", path, data=content, headers=as_file)
    assert status == 400, "the id of the file is taken"
    status, report = await people("bob", "POST", path, data=content, headers=as_file)
    assert status == 200, f"that it is taken is not told: {report}"
    owners = {}
    for path in (tmp_path / "chat_sessions").glob("*.json"):
        owners[path.stem] = json.loads(path.read_text())["metadata"].get("owner")
    assert {owners[each] for each in ids} == {"alice"}
    assert sorted(filter(None, owners.values())) == ["alice"] * 4 + ["bob"]
    _, page = await people("alice", "GET", "/api/v1/sessions?limit=3")
    _, rest = await people("alice", "GET", f"/api/v1/sessions?limit=3&cursor={page['next_cursor']}")
    listed = [each["session_id"] for each in page["sessions"] + rest["sessions"]]
    assert sorted(listed) == sorted(ids)
    for who, count in (("alice", 2), ("bob", 1), ("root", 3)):
        tags = [{"tag": "garden", "session_count": count}]
        assert await people(who, "GET", "/api/v1/tags") == (200, {"tags": tags})
    assert await people("carol", "GET", "/api/v1/tags") == (200, {"tags": []})
    # What belongs to nobody is seen by those who see all.
    (tmp_path / "chat_sessions" / "old.json").write_text(
        json.dumps({"metadata": {"session_id": "old", "model": "m"}, "messages": []})
    )
    (tmp_path / "chat_sessions" / "broken.json").write_text("{")
    for name in ("old", "broken"):
        path = f"/api/v1/sessions/{name}"
        assert code_of(await people("alice", "GET", path)) == (404, "SESSION_NOT_FOUND")
    assert (await people("root", "GET", "/api/v1/sessions/old"))[0] == 200
    assert (
        code_of(await people("root", "GET", "/api/v1/sessions/broken"))[1] == "SESSION_UNREADABLE"
    )


async def test_a_socket_does_what_its_token_may(people: People, ollama: FakeOllama) -> None:
    session, run, _ = await waiting_run(people, ollama, "alice")
    async with ready_socket(people.server, token=people.tokens["bob"]) as socket:
        for event, data in [
            ("session:switch", {"session_id": session}),
            ("resume", {"run_id": run}),
            ("stop", {"run_id": run}),
        ]:
            answer = await socket.ask(event, data)
            assert answer["data"]["code"] in {"SESSION_NOT_FOUND", "RUN_NOT_FOUND"}, answer
        answer = await socket.ask("session:switch", {"session_id": session, "model": "qwen3:14b"})
        answer = await socket.ask("message", {"message": "x"})
        assert answer["data"]["code"] == "SESSION_NOT_FOUND", answer
    async with ready_socket(people.server, token=people.tokens["dave"]) as socket:
        for event, data, right in [
            ("message", {"message": "x"}, "chat"),
            ("stop", {"run_id": run}, "chat"),
            ("tool:approval", {"call_id": "x", "approved": True}, "tools"),
        ]:
            answer = await socket.ask(event, data)
            assert (answer["data"]["code"], answer["data"]["details"]) == (
                "FORBIDDEN",
                {"right": right},
            )
    for who, event, data in [("carol", "message", {"message": "x"}), ("dave", "ping", {})]:
        async with ready_socket(people.server, token=people.tokens[who]) as socket:
            people.file.revoke(who)
            await socket.send(event, data)
            with pytest.raises(ConnectionClosed, match="UNAUTHORIZED"):
                await socket.next()


async def test_a_revoked_token_ends_with_its_stream(people: People, ollama: FakeOllama) -> None:
    session = await people.session("alice")
    gate = asyncio.Event()
    ollama.reply(["Hel", "lo."], gate=gate, pause_after=1)
    async with people.server.http.post(
        f"{people.server.api}/chat/{session}/stream",
        json={"message": "Hi"},
        headers=people.headers("alice"),
    ) as answer:
        text = b""
        while b'"Hel"' not in text:
            text += await answer.content.readany()
        people.file.revoke("alice")
        status, body = await people("alice", "GET", "/api/v1/sessions")
        assert (status, body["error"]["code"]) == (401, "UNAUTHORIZED")
        gate.set()
        text += await answer.read()
    assert b'"lo."' in text
    assert b"event: done" in text
    people.file.path.write_text("{")
    assert code_of(await people("root", "GET", "/api/v1/sessions")) == (401, "UNAUTHORIZED")
    await people.server.saw("tokens.json: no token of it is accepted: it is not JSON")
    assert (await people("root", "GET", "/api/v1/health"))[0] == 200


@pytest.mark.parametrize("era", ERAS)
async def test_an_mcp_client_does_what_its_token_may(
    people: People, ollama: FakeOllama, era: str
) -> None:
    session, _, _ = await waiting_run(people, ollama, "alice")
    url = f"{people.server.url}/mcp"
    for who, sees, runs in [("alice", True, True), ("bob", False, True), ("dave", False, False)]:
        async with (
            create_mcp_http_client(people.headers(who)) as http,
            Client(streamable_http_client(url, http_client=http), mode=era) as client,
        ):
            listed = await client.list_resources()
            assert (session in str(listed)) is sees, who
            result = await client.call_tool("write", {"path": "x"})
            assert ("FORBIDDEN" in str(result.structured_content)) is not runs, (who, result)
            asked = await client.call_tool("ask", {"message": "x", "session_id": session})
            assert asked.is_error
            expected = "SESSION_BUSY" if sees else "SESSION_NOT_FOUND" if runs else "FORBIDDEN"
            assert expected in str(asked.structured_content), (who, asked)


async def test_changes_are_on_record_and_secrets_are_not(
    people: People, ollama: FakeOllama, tmp_path: Path
) -> None:
    session = await people.session("alice")
    text = {"content": SECRET}
    prompt = {"filename": "x.md", **text}
    assert (await people("root", "POST", "/api/v1/system-prompts", prompt))[0] == 201
    assert code_of(await people("bob", "DELETE", "/api/v1/system-prompts/x.md"))[0] == 403
    add = {"name": "time", "config": {"command": "true", "env": {"KEY": SECRET}}}
    status, _ = await people("root", "POST", "/api/mcp/add", add)
    assert status == 201
    path = f"/api/v1/sessions/{session}"
    policy = {"tool_settings": {"tools": ["write"], "execution_policy": "never_confirm"}}
    assert (await people("alice", "PATCH", path, policy))[0] == 200
    headers = {"X-Request-Id": "my-request"}
    assert (await people("alice", "DELETE", path, headers=headers))[0] == 204
    _, log = await people("root", "GET", "/api/v1/audit?limit=3")
    _, rest = await people("root", "GET", f"/api/v1/audit?cursor={log['next_cursor']}")
    entries = [
        (each["who"], each["action"], each["outcome"], each["target"])
        for each in reversed(log["entries"] + rest["entries"])
    ]
    changed = {"session_id": session, "execution_policy": "never_confirm"}
    assert entries == [
        ("root", "create prompt", "done", {"filename": "x.md"}),
        ("bob", "delete prompt", "refused", {"filename": "x.md"}),
        ("root", "add MCP server", "done", {"name": "time"}),
        ("alice", "change tools of session", "done", changed),
        ("alice", "delete session", "done", {"session_id": session}),
    ]
    assert log["entries"][0]["request_id"] == "my-request"
    assert log["entries"][0]["address"] == "127.0.0.1"
    assert SECRET not in (tmp_path / "audit.jsonl").read_text()


@pytest.mark.parametrize(
    ("trusted", "addresses"),
    [("", ["127.0.0.1"]), ("127.0.0.1", ["10.1.2.3", "10.1.2.4", "127.0.0.1"])],
)
async def test_refused_tokens_are_on_record_but_do_not_fill_it(
    tmp_path: Path, ollama: FakeOllama, trusted: str, addresses: list[str]
) -> None:
    """Only a proxy that is trusted says whose request it is."""
    async with people_of(tmp_path, ollama, trusted_proxies=trusted) as people:
        for address in ("10.1.2.3", "10.1.2.4", "10.1.2.3", None):
            headers = {"Authorization": "Bearer guessed"}
            headers |= {} if address is None else {"X-Forwarded-For": address}
            for _ in range(3):
                answer = await people("root", "GET", "/api/v1/sessions", headers=headers)
                assert code_of(answer) == (401, "UNAUTHORIZED")
        _, log = await people("root", "GET", "/api/v1/audit")
    entries = log["entries"][::-1]
    assert [each["address"] for each in entries] == addresses
    told = {"route": "GET /api/v1/sessions", "token": "wrong", "requests": 1}
    for each in entries:
        found = (each["who"], each["action"], each["outcome"], each["target"])
        assert found == ("nobody", "refuse token", "refused", told)


async def test_it_is_on_record_which_arguments_a_person_has_changed(
    people: People, ollama: FakeOllama
) -> None:
    _, _, confirmation = await waiting_run(people, ollama, "alice")
    ollama.reply(["Done."])
    path = f"/api/v1/confirmations/{confirmation}"
    decision = {"approved": True, "arguments": {"path": f"{SECRET}.txt"}}
    assert (await people("alice", "POST", path, decision))[0] == 200
    _, log = await people("root", "GET", "/api/v1/audit?limit=1")
    target = log["entries"][0]["target"]
    assert target["changed_arguments"] == "path"
    assert SECRET not in str(target)


async def test_without_owners_all_see_all_sessions(tmp_path: Path, ollama: FakeOllama) -> None:
    async with people_of(tmp_path, ollama, session_owners=False, audit_log=False) as people:
        session = await people.session("alice")
        assert (await people("bob", "GET", f"/api/v1/sessions/{session}"))[0] == 200
        assert (await people("bob", "DELETE", f"/api/v1/sessions/{session}"))[0] == 204
        status, log = await people("root", "GET", "/api/v1/audit")
        assert (status, log["entries"]) == (200, [])
        for headers in ({}, {"Authorization": "Bearer mochi_x"}):
            async with people.server.http.get(
                f"{people.server.api}/sessions", headers=headers
            ) as answer:
                assert answer.status == 401
    assert not (tmp_path / "audit.jsonl").exists()
