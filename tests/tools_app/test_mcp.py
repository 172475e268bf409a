"""``/mcp`` over HTTP."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest
from pydantic import SecretStr

from mochi_server.config import load_settings
from mochi_server.core.tokens import AccessTokenFile
from tests.support.guarded import guarded
from tests.support.mcp import SECONDS, Wire, tool, write_config
from tests.support.redis import free_port
from tests.support.waiting import until

READ = tool("read", annotations={"readOnlyHint": True})


@pytest.fixture
def data(mochi: Any, settings: Any) -> Path:
    """The data folder of a server with a token, which the gate has checked."""
    settings.MOCHI = mochi.model_copy(update={"api_token": SecretStr("token")})
    folder: Path = mochi.data_dir
    folder.mkdir()
    return folder


@pytest.fixture
def wire(tmp_path: Path) -> Wire:
    return Wire(tmp_path / "wire.json", tools=[READ], calls={"read": {"text": "it"}})


async def until_state(api: Any, name: str, state: str) -> dict[str, Any]:
    def servers(answer: Any) -> dict[str, Any]:
        found: dict[str, Any] = answer.json()["servers"]
        return found

    answer = await until(
        lambda: api.get("/mcp/servers"), lambda answer: servers(answer)[name]["state"] == state
    )
    return servers(answer)[name]


async def test_servers_are_listed_without_their_secrets(api, data):
    write_config(
        data,
        off={"command": "x", "env": {"KEY": "secret"}, "disabled": True},
        bad={"command": 1},
        remote={
            "url": "https://me:secret@a.example/mcp",
            "headers": {"X-Key": "secret"},
            "mochi": {"scope": "session"},
        },
    )
    response = await api.get("/mcp/servers")
    assert "secret" not in response.content.decode()
    listed = response.json()
    assert listed["servers"] == {
        "off": {
            "name": "off",
            "state": "disabled",
            "transport": "stdio",
            "scope": "shared",
            "config": {"command": "x", "env": {"KEY": "…"}, "disabled": True},
            "tools": [],
            "unusable": {},
            "last_error": None,
            "authorization_url": None,
        },
        "remote": {
            "name": "remote",
            "state": "stopped",
            "transport": "http",
            "scope": "session",
            "config": {
                "url": "https://…@a.example/mcp",
                "headers": {"X-Key": "…"},
                "mochi": {"scope": "session"},
            },
            "tools": [],
            "unusable": {},
            "last_error": None,
            "authorization_url": None,
        },
    }
    [problem] = listed["problems"]
    assert problem["reason"].startswith("The server 'bad' cannot be used: command: ")


@pytest.mark.parametrize("place", ["/api/v1/mcp", "/api/mcp"])
async def test_a_server_that_is_added_can_be_used_at_once(api, data, wire, place):
    response = await api.client.post(
        f"{place}/add",
        json.dumps({"name": "wire", "config": wire.entry(trusted=True)}),
        content_type="application/json",
    )
    assert response.status_code == 201, response.content
    assert response.json()["name"] == "wire"
    assert response.json()["config"]["mochi"] == {"trusted": True}
    await until_state(api, "wire", "ready")
    assert "wire__read" in (await api.get("/tools")).json()["tools"]
    health = (await api.client.get(f"{place}/health")).json()
    latency = health["servers"]["wire"].pop("latency_ms")
    assert 0 < latency < 60_000
    assert health == {
        "status": "ok",
        "summary": {
            "total": 1,
            "ready": 1,
            "starting": 0,
            "stopped": 0,
            "failed": 0,
            "needs_authorization": 0,
            "disabled": 0,
            "tools": 1,
            "problems": 0,
        },
        "servers": {
            "wire": {
                "name": "wire",
                "state": "ready",
                "transport": "stdio",
                "tools": 1,
                "last_error": None,
                "restarts": 0,
                "connections": 1,
                "protocol_version": "2025-06-18",
                "server_info": {"name": "wire", "version": "1"},
                "authorization_url": None,
            }
        },
    }


async def test_a_server_that_fails_makes_the_health_worse_and_has_a_log(api, data, tmp_path):
    wire = Wire(tmp_path / "wire.json", start="exit")
    write_config(data, wire=wire.entry(), bad=1)
    await api.get("/tools")
    failed = await until_state(api, "wire", "failed")
    assert failed["last_error"]
    health = (await api.get("/mcp/health")).json()
    assert (health["status"], health["summary"]["failed"], health["summary"]["problems"]) == (
        "degraded",
        1,
        1,
    )
    log = (await api.get("/mcp/wire/log")).json()
    assert log["name"] == "wire"
    assert "no, I am not" in log["lines"]


async def test_a_server_is_changed_restarted_and_removed(api, data, wire):
    path = write_config(data, wire={**wire.entry(), "env": {"KEY": "secret"}})
    await api.get("/tools")
    shown = (await until_state(api, "wire", "ready"))["config"]
    changed = await api.patch("/mcp/wire", {"config": {**shown, "mochi": {"prefix": "w"}}})
    assert changed.status_code == 200, changed.content
    assert changed.json()["config"] == {**shown, "mochi": {"prefix": "w"}}
    assert json.loads(path.read_text())["mcpServers"]["wire"]["env"] == {"KEY": "secret"}
    await until(lambda: api.get("/tools"), lambda answer: "w__read" in answer.json()["tools"])

    restarted = await api.post("/mcp/wire/restart")
    assert restarted.json()["state"] in ("starting", "ready")
    await until_state(api, "wire", "ready")
    assert (await api.get("/mcp/health")).json()["servers"]["wire"]["restarts"] == 1

    await api.patch("/mcp/wire", {"config": {"disabled": True}})
    refused = await api.post("/mcp/wire/restart")
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "MCP_SERVER_INVALID")
    assert (await api.get("/mcp/wire/log")).json()["lines"] == []

    assert (await api.delete("/mcp/wire")).status_code == 204
    assert (await api.get("/mcp/servers")).json() == {"servers": {}, "problems": []}
    assert json.loads(path.read_text()) == {"mcpServers": {}}


ENTRY = {"command": "x", "disabled": True}


async def test_what_cannot_be_added_has_its_status(api, data):
    async def status(name: Any, config: Any) -> tuple[int, str | None]:
        response = await api.post("/mcp/add", {"name": name, "config": config})
        return response.status_code, response.json().get("error", {}).get("code")

    assert await status("a", ENTRY) == (201, None)
    assert await status("a", ENTRY) == (409, "MCP_SERVER_EXISTS")
    assert await status("a b", ENTRY) == (400, "MCP_SERVER_INVALID")
    assert await status("b", {"type": "http", "command": "x"}) == (400, "MCP_SERVER_INVALID")
    assert await status("b", "npx") == (422, "VALIDATION_ERROR")
    (data / "mcp.json").write_text("{")
    assert await status("b", ENTRY) == (500, "MCP_CONFIG_UNAVAILABLE")
    assert (data / "mcp.json").read_text() == "{"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PATCH", "/mcp/none"),
        ("DELETE", "/mcp/none"),
        ("POST", "/mcp/none/restart"),
        ("GET", "/mcp/none/log"),
    ],
)
async def test_a_server_that_is_not_there_is_not_found(api, data, method, path):
    body = {"config": {}} if method == "PATCH" else None
    response = await api(method, path, body)
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "MCP_SERVER_NOT_FOUND"


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "x"]
)
async def test_a_form_of_a_web_page_cannot_add_a_server(api, data, content_type):
    change = {"config": ENTRY}
    for method, path, body in (("POST", "add", {"name": "b", **change}), ("PATCH", "a", change)):
        response = await api.client.generic(
            method, f"/api/v1/mcp/{path}", json.dumps(body), content_type=content_type
        )
        assert response.status_code == 422
        assert "application/json" in response.json()["error"]["message"]
    assert not (data / "mcp.json").exists()


async def test_the_gate_keeps_other_pages_and_names_away(server_of, tmp_path):
    body = json.dumps({"name": "b", "config": ENTRY})
    kind = {"Content-Type": "application/json"}
    async with server_of() as server, aiohttp.ClientSession() as http:
        for headers, code in (
            ({"Origin": "https://evil.example"}, "ORIGIN_NOT_ALLOWED"),
            ({"Origin": "null"}, "ORIGIN_NOT_ALLOWED"),
            ({"Sec-Fetch-Site": "cross-site"}, "ORIGIN_NOT_ALLOWED"),
            ({"Host": "evil.example"}, "HOST_NOT_ALLOWED"),
            ({"X-Forwarded-For": "192.168.1.5"}, "MCP_CHANGE_NOT_ALLOWED"),
        ):
            for kinds in (kind, {"Content-Type": "text/plain"}):
                url = f"{server.api}/mcp/add"
                async with http.post(url, data=body, headers={**headers, **kinds}) as response:
                    assert response.status in (403, 422)
                    if kinds is kind or code != "MCP_CHANGE_NOT_ALLOWED":
                        assert (await response.json())["error"]["code"] == code
        assert not (tmp_path / "mcp.json").exists()
        async with http.post(f"{server.api}/mcp/add", data=body, headers=kind) as response:
            assert response.status == 201
    assert (tmp_path / "mcp.json").stat().st_mode & 0o777 == 0o600


async def test_with_a_token_it_decides(server_of, tmp_path):
    token = {"Authorization": "Bearer geheim"}
    proxied = {"X-Forwarded-For": "192.168.1.5"}
    async with (
        server_of(api_token="geheim") as server,
        aiohttp.ClientSession() as http,
    ):
        for headers, status in ((proxied, 401), ({**proxied, **token}, 201)):
            url = f"{server.api}/mcp/add"
            body = {"name": "b", "config": ENTRY}
            async with http.post(url, json=body, headers=headers) as response:
                assert response.status == status


async def test_a_browser_that_comes_back_completes_an_authorization(server_of, tmp_path):
    port = free_port()
    async with (
        guarded() as other,
        server_of(command=("-m", "mochi_server", "--port", str(port)), api_token="x") as server,
        aiohttp.ClientSession() as http,
    ):
        token = {"headers": {"Authorization": "Bearer x"}}
        body = {"name": "guarded", "config": {"url": other.url}}
        async with http.post(f"{server.api}/mcp/add", json=body, **token) as response:
            assert response.status == 201

        async def until(state: str) -> dict[str, Any]:
            found: dict[str, Any] = {"state": None}
            with anyio.fail_after(SECONDS):
                while found["state"] != state:
                    await anyio.sleep(0.05)
                    async with http.get(f"{server.api}/mcp/health", **token) as response:
                        found = (await response.json())["servers"]["guarded"]
            return found

        page = (await until("needs_authorization"))["authorization_url"]
        settings = load_settings(data_dir=tmp_path)
        file = AccessTokenFile(settings.tokens_path, settings.token_use_path)
        reader = {"headers": {"Authorization": f"Bearer {file.add('reader', ['read'])}"}}
        for path in ("servers", "health"):
            shown = []
            for rights in (token, reader):
                async with http.get(f"{server.api}/mcp/{path}", **rights) as response:
                    text = await response.text()
                    shown.append(json.loads(text)["servers"]["guarded"]["authorization_url"])
            assert shown == [page, None]
            assert "state=" not in text
        async with http.get(page, allow_redirects=False) as response:
            back = response.headers["Location"]
        assert back.startswith(f"http://127.0.0.1:{port}/api/v1/mcp/oauth/callback?")
        guess = back.replace("state=", "state=x")
        browser = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
        browser["Sec-Fetch-Dest"] = "document"
        for address, status in ((guess, 400), (back, 200), (back, 400)):
            async with http.get(address, headers=browser) as response:
                assert response.status == status
                assert "code-" not in await response.text()
        assert (await until("ready"))["authorization_url"] is None
        async with http.get(f"{server.api}/audit", **token) as response:
            entries = (await response.json())["entries"]
        [authorized] = [each for each in entries if each["action"] == "authorize MCP server"]
        assert (authorized["target"], authorized["outcome"]) == ({"name": "guarded"}, "done")
        assert authorized["address"] == "127.0.0.1"
        async with http.get(f"{server.api}/tools", **token) as response:
            assert "guarded__whisper" in (await response.json())["tools"]
    secrets = (tmp_path / ".mochi" / "mcp-oauth.json").read_text()
    assert json.loads(secrets)
    for secret in re.findall(r"(?:access|refresh)-[0-9a-f]{32}", secrets):
        assert secret not in server.log
