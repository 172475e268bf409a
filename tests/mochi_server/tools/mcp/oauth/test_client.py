"""OAuth of MCP servers, with servers of the SDK in processes of their own."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import anyio
import httpx2
import pytest

from mochi_server.core.aio import in_thread
from mochi_server.core.files import locked
from mochi_server.errors import JSONObject, McpAuthorizationInvalid
from mochi_server.tools.base import ToolFailed
from mochi_server.tools.mcp.config.entry import McpServerConfig
from mochi_server.tools.mcp.oauth import addresses
from mochi_server.tools.mcp.oauth import authorizations as module
from mochi_server.tools.mcp.oauth.addresses import AddressGuard, AddressRefused
from mochi_server.tools.mcp.oauth.authorizations import McpAuthorizations
from mochi_server.tools.mcp.oauth.tokens import TokenFile
from mochi_server.tools.mcp.secret_values import SecretValues
from mochi_server.tools.mcp.servers.server import McpServerStatus
from tests.support.guarded import guarded
from tests.support.mcp import SECONDS, Source, mcp_source, write_config
from tests.support.waiting import until

CALLBACK = "http://127.0.0.1:8000/api/v1/mcp/oauth/callback"


def authorizations(folder: Path) -> McpAuthorizations:
    return McpAuthorizations(folder / "state", redirect_url=CALLBACK)


async def status(source: Source) -> McpServerStatus:
    return (await source.servers.status())[0]


async def until_state(source: Source, *states: str) -> McpServerStatus:
    found: McpServerStatus = await until(
        lambda: status(source), lambda found: found.state in states
    )
    return found


async def browse(url: str | None) -> dict[str, str]:
    """Open a page as a person's browser does, and return what it brings back."""
    assert url is not None
    async with (
        aiohttp.ClientSession() as session,
        session.get(url, allow_redirects=False) as response,
    ):
        location = response.headers["Location"]
    assert location.startswith(CALLBACK)
    return {key: values[0] for key, values in parse_qs(urlsplit(location).query).items()}


async def test_a_person_authorizes_once_and_the_token_is_kept_for_the_owner_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with guarded() as server:
        write_config(tmp_path, guarded={"url": server.url})
        persons = authorizations(tmp_path)
        async with mcp_source(tmp_path, authorizations=persons) as source:
            await source.tools()
            asked = await until_state(source, "needs_authorization")
            brought = await browse(asked.authorization_url)
            await authorizations(tmp_path).complete(brought.pop("state"), {**brought})
            assert (await until_state(source, "ready")).authorization_url is None
            assert await source.call("guarded__whisper") == "the secret"
        assert await server.said(3) == ["register", "authorize", "exchange"]

        async with mcp_source(tmp_path, authorizations=authorizations(tmp_path)) as source:
            assert await source.call("guarded__whisper") == "the secret"
    file = tmp_path / "state" / "mcp-oauth.json"
    assert file.stat().st_mode & 0o777 == 0o600
    (kept,) = json.loads(file.read_text()).values()
    secrets = [kept["tokens"]["access_token"], kept["tokens"]["refresh_token"], brought["code"]]
    secrets.append(kept["client"]["client_secret"])
    assert not [secret for secret in secrets if secret in caplog.text]
    assert list((tmp_path / "state" / "mcp-oauth").iterdir()) == []


async def test_an_expired_token_is_renewed_without_a_person(tmp_path: Path) -> None:
    async with guarded() as server:
        write_config(tmp_path, guarded={"url": server.url})
        persons = authorizations(tmp_path)
        async with mcp_source(tmp_path, authorizations=persons) as source:
            await source.tools()
            asked = await until_state(source, "needs_authorization")
            brought = await browse(asked.authorization_url)
            await persons.complete(brought.pop("state"), {**brought})
            await until_state(source, "ready")
        file = tmp_path / "state" / "mcp-oauth.json"
        stored = json.loads(file.read_text())
        next(iter(stored.values()))["expires_at"] = 1.0
        file.write_text(json.dumps(stored))
        async with mcp_source(tmp_path, authorizations=authorizations(tmp_path)) as source:
            assert await source.call("guarded__whisper") == "the secret"
        assert await server.said(4) == ["register", "authorize", "exchange", "refresh"]


async def test_a_request_beside_a_renewal_does_not_bring_the_old_token_back(
    tmp_path: Path,
) -> None:
    url = "https://mcp.example/mcp"
    persons = McpAuthorizations(tmp_path, redirect_url=CALLBACK)
    old = {"access_token": "old", "token_type": "Bearer", "refresh_token": "again"}
    client: JSONObject = {"client_id": "mochi", "redirect_uris": [CALLBACK]}
    persons.tokens.update(url, tokens={**old}, expires_at=1.0, client=client)
    signer = persons.auth(McpServerConfig(name="a", url=url), SecretValues())
    assert signer is not None
    renewing = asyncio.Event()

    async def signed() -> str | None:
        async with aclosing(signer.async_auth_flow(httpx2.Request("POST", url))) as flow:
            request = await anext(flow)
            if request.url.path == "/token":
                renewing.set()
                new = {"access_token": "new", "token_type": "Bearer", "expires_in": 3600}
                request = await flow.asend(httpx2.Response(200, json=new, request=request))
            return request.headers.get("Authorization")

    with anyio.fail_after(SECONDS):
        with locked(tmp_path / ".mcp-oauth.json.lock"):  # so it is not stored yet
            first = asyncio.create_task(signed())
            await renewing.wait()
            second = asyncio.create_task(signed())
            for _ in range(20):  # as long as files are read
                await in_thread(bool)
        assert [await first, await second] == ["Bearer new", "Bearer new"]


async def test_a_request_that_an_authorization_has_overtaken_asks_for_no_other_one(
    tmp_path: Path,
) -> None:
    url = "https://mcp.example/mcp"
    persons = McpAuthorizations(tmp_path, redirect_url=CALLBACK)
    client: JSONObject = {"client_id": "mochi", "redirect_uris": [CALLBACK]}
    persons.tokens.update(url, client=client)
    signer = persons.auth(McpServerConfig(name="a", url=url), SecretValues())
    assert signer is not None
    async with aclosing(signer.async_auth_flow(httpx2.Request("POST", url))) as flow:
        request = await anext(flow)
        assert "Authorization" not in request.headers
        refused = httpx2.Response(401, request=request)
        persons.tokens.update(url, tokens={"access_token": "new", "token_type": "Bearer"})
        request = await flow.asend(refused)
        while "Authorization" not in request.headers:  # where the server wants authorizations
            request = await flow.asend(httpx2.Response(404, request=request))
        assert (str(request.url), request.headers["Authorization"]) == (url, "Bearer new")
    assert not persons.is_under_way("a")


async def test_an_answer_counts_once_and_only_if_it_is_waited_for(tmp_path: Path) -> None:
    persons = authorizations(tmp_path)
    with pytest.raises(McpAuthorizationInvalid):
        await persons.complete("guessed", {"code": "x"})
    await persons.show("a", "https://a/", "state")
    with pytest.raises(McpAuthorizationInvalid):
        await persons.complete("other", {"code": "x"})
    with pytest.raises(McpAuthorizationInvalid):
        await persons.complete("state", {"code": "x" * 10_000})
    await persons.complete("state", {"code": "x"})
    with pytest.raises(McpAuthorizationInvalid):
        await persons.complete("state", {"code": "y"})
    assert await persons.answer("state") == {"code": "x"}
    with pytest.raises(McpAuthorizationInvalid):
        await persons.complete("state", {"code": "y"})


async def test_an_answer_counts_once_also_if_the_first_is_taken_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    persons = authorizations(tmp_path)
    await persons.show("a", "https://a/", "state")
    write = module.replace_file

    def write_late(path: Path, *arguments: Any, **options: Any) -> Any:
        monkeypatch.undo()
        asyncio.run(persons.complete("state", {"code": "x"}))
        assert asyncio.run(persons.answer("state")) == {"code": "x"}
        return write(path, *arguments, **options)

    monkeypatch.setattr(module, "replace_file", write_late)
    with pytest.raises(McpAuthorizationInvalid):
        await persons.complete("state", {"code": "x"})
    assert list((tmp_path / "state" / "mcp-oauth").iterdir()) == []


async def test_an_answer_that_comes_too_late_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WAIT_SECONDS", -1.0)
    persons = authorizations(tmp_path)
    await persons.show("a", "https://a/", "state")
    with pytest.raises(McpAuthorizationInvalid):
        await persons.complete("state", {"code": "x"})


async def test_nobody_who_authorizes_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WAIT_SECONDS", 6.0)
    async with guarded() as server:
        write_config(tmp_path, guarded={"url": server.url})
        async with mcp_source(tmp_path, authorizations=authorizations(tmp_path)) as source:
            await source.tools()
            await until_state(source, "needs_authorization")
            failed = await until_state(source, "failed")
            assert failed.last_error == "nobody has authorized it in time"
            assert failed.authorization_url is None


async def test_a_person_who_refuses_is_a_failure(tmp_path: Path) -> None:
    async with guarded() as server:
        write_config(tmp_path, guarded={"url": server.url})
        persons = authorizations(tmp_path)
        async with mcp_source(tmp_path, authorizations=persons) as source:
            await source.tools()
            asked = await until_state(source, "needs_authorization")
            state = parse_qs(urlsplit(str(asked.authorization_url)).query)["state"][0]
            await persons.complete(state, {"error": "access_denied"})
            failed = await until_state(source, "failed")
            assert failed.last_error == "it was not authorized: access_denied"


async def test_a_token_is_not_sent_to_another_address(tmp_path: Path) -> None:
    persons = authorizations(tmp_path)
    persons.tokens.update("http://a/mcp", tokens={"access_token": "secret"})
    assert persons.tokens.read("http://b/mcp") == {}
    persons.tokens.forget("http://a/mcp")
    assert persons.tokens.read("http://a/mcp") == {}


class Elsewhere:
    """A web server that notes what it gets, and answers with what it is told to."""

    def __init__(self, head: str) -> None:
        self.head = head
        self.requests: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.requests.append(request)
            writer.write(f"HTTP/1.1 {self.head}\r\nContent-Length: 0\r\n\r\n".encode())
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[int]:
        async with await asyncio.start_server(self.serve, "127.0.0.1", 0) as server:
            yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"[" * 5000])
def test_tokens_in_a_file_that_cannot_be_read_are_none_and_are_written_anew(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "tokens.json"
    path.write_bytes(content)
    tokens = TokenFile(path)
    assert tokens.read("http://a/mcp") == {}
    tokens.update("http://a/mcp", expires_at=1.0)
    assert tokens.read("http://a/mcp") == {"expires_at": 1.0}


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_headers_and_tokens_do_not_follow_a_redirect_to_another_host(
    code: int, transport: str, tmp_path: Path
) -> None:
    thief = Elsewhere("200 OK")
    async with thief.running() as port:
        door = Elsewhere(f"{code} Moved\r\nLocation: http://localhost:{port}/mcp")
        async with door.running() as door_port:
            url = f"http://127.0.0.1:{door_port}/mcp"
            persons = authorizations(tmp_path)
            persons.tokens.update(url, tokens={"access_token": "secret1"})
            entries: dict[str, Any] = {
                "signed": {"type": transport, "url": url},
                "headed": {
                    "type": transport,
                    "url": url,
                    "headers": {"Authorization": "Bearer secret2", "X-Key": "secret3"},
                },
            }
            write_config(tmp_path, **entries)
            async with mcp_source(tmp_path, authorizations=persons) as source:
                await source.tools()
                await until(
                    source.servers.status,
                    lambda servers: {each.state for each in servers} == {"failed"},
                )
                with pytest.raises((ToolFailed, KeyError)):
                    await source.call("signed__x")
    sent = "".join(door.requests)
    assert "Bearer secret1" in sent
    assert "Bearer secret2" in sent
    assert thief.requests == []


@asynccontextmanager
async def naming(registration: str = "", hint: str = "", **addresses: str) -> AsyncIterator[str]:
    """An MCP server that names these addresses for its OAuth.

    Args:
        registration: What it answers when a client registers, as an error; empty: it accepts.
        hint: Where it says that its metadata is.
        addresses: In its metadata.
    """

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        body: Any = None
        status = "401 Unauthorized"
        if hint:
            status += f'\r\nWWW-Authenticate: Bearer resource_metadata="{hint}"'
        if "/.well-known/oauth-authorization-server" in head:
            status = "200 OK"
            body = {
                "issuer": base,
                "authorization_endpoint": f"{base}/authorize",
                "token_endpoint": f"{base}/token",
                "registration_endpoint": f"{base}/register",
                "response_types_supported": ["code"],
                "code_challenge_methods_supported": ["S256"],
                **addresses,
            }
        elif "/register" in head:
            status = "400 Bad Request" if registration else "201 Created"
            body = {"client_id": "c", "redirect_uris": [CALLBACK]}
        elif "/.well-known/" in head:
            status = "404 Not Found"
        content = b"" if body is None else json.dumps(body).encode()
        if registration and "/register" in head:
            content = registration.encode()
        lines = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nConnection: close\r\n"
        writer.write(f"{lines}Content-Length: {len(content)}\r\n\r\n".encode() + content)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield f"{base}/mcp"


async def refusal(folder: Path, url: str) -> str:
    """Why a server cannot be used; a person agrees to whatever is shown."""
    write_config(folder, bad={"url": url})
    persons = authorizations(folder)
    async with mcp_source(folder, authorizations=persons) as source:
        await source.tools()
        await until_state(source, "needs_authorization", "failed")
        shown = None
        with anyio.fail_after(SECONDS):
            while source.servers.is_authorizing("bad"):
                await anyio.sleep(0.02)
                url = (await status(source)).authorization_url
                if url not in (None, shown):
                    shown = url
                    state = parse_qs(urlsplit(str(url)).query)["state"][0]
                    await persons.complete(state, {"code": "x"})
        return str((await status(source)).last_error)


async def test_a_page_for_people_must_be_https(tmp_path: Path) -> None:
    async with naming(authorization_endpoint="http://elsewhere.example/authorize") as url:
        assert "its page for that has no https address" in await refusal(tmp_path, url)


@pytest.mark.parametrize(
    "named",
    [
        {"hint": "http://169.254.169.254/latest/meta-data"},
        {"registration_endpoint": "http://2852039166/register"},
        {"token_endpoint": "http://[::ffff:169.254.169.254]/token"},
        {"authorization_endpoint": "https://10.255.255.1/authorize"},
    ],
)
async def test_addresses_of_other_networks_are_refused(
    named: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = Elsewhere("502 Bad Gateway")  # so that no request of a failing test leaves the machine
    async with proxy.running() as port, naming(**named) as url:
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
            monkeypatch.delenv(name.lower(), raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        assert "of a network that the server itself is not in" in await refusal(tmp_path, url)
    assert proxy.requests == []


async def test_what_an_authorization_server_answers_is_not_shown(tmp_path: Path) -> None:
    answer = json.dumps({"error": "invalid_redirect_uri", "error_description": "a-secret"})
    async with naming(registration=answer) as url:
        reason = await refusal(tmp_path, url)
    assert "registration request" in reason
    assert "(invalid_redirect_uri, HTTP 400)" in reason
    assert "a-secret" not in reason


# Addresses that servers name for their OAuth


@pytest.mark.parametrize(
    ("server", "named", "is_allowed"),
    [
        ("https://8.8.8.8/mcp", "https://1.1.1.1/", True),
        ("https://8.8.8.8/mcp", "http://127.0.0.1/", False),
        ("https://8.8.8.8/mcp", "http://localhost/", False),
        ("https://8.8.8.8/mcp", "http://[::1]/", False),
        ("https://8.8.8.8/mcp", "http://0.0.0.0/", False),
        ("https://8.8.8.8/mcp", "http://10.0.0.1/", False),
        ("https://8.8.8.8/mcp", "http://[64:ff9b::a00:1]/", False),
        ("https://8.8.8.8/mcp", "http://[fd00:ec2::254]/", False),
        ("https://8.8.8.8/mcp", "http://100.100.100.200/", False),
        ("https://8.8.8.8/mcp", "http://[64:ff9b:1::a9fe:a9fe]/", False),
        ("https://8.8.8.8/mcp", "http://[64:ff9b:1:a9fe:a9:fe00::]/", False),
        ("https://8.8.8.8/mcp", "http://[fec0::1]/", False),
        ("https://8.8.8.8/mcp", "http://[::127.0.0.1]/", False),
        ("https://8.8.8.8/mcp", "http://[::10.0.0.1]/", False),
        ("https://8.8.8.8/mcp", "http://[::169.254.169.254]/", False),
        ("https://8.8.8.8/mcp", "http://[::ffff:0:127.0.0.1]/", False),
        ("https://8.8.8.8/mcp", "http://[2002:a9fe:a9fe::1]/", False),
        ("https://8.8.8.8/mcp", "http://168.63.129.16/", False),
        ("https://8.8.8.8/mcp", "http://[64:ff9b::808:808]/", True),
        ("http://10.0.0.1/mcp", "http://192.0.0.192/", False),
        ("http://10.0.0.1/mcp", "http://[fd20:ce::254]/", False),
        ("http://10.0.0.1/mcp", "http://[64:ff9b:1::a9fe:a9fe]/", False),
        ("http://10.0.0.1/mcp", "http://[fec0::1]/", True),
        ("http://10.0.0.1/mcp", "http://10.0.0.2/", True),
        ("http://10.0.0.1/mcp", "http://[fd00:ec2::254]/", False),
        ("http://10.0.0.1/mcp", "http://127.0.0.1/", False),
        ("http://localhost:1/mcp", "http://127.0.0.1:2/", True),
        ("http://127.0.0.1:1/mcp", "https://1.1.1.1/", True),
        ("http://127.0.0.1:1/mcp", "http://10.0.0.1/", False),
        ("http://127.0.0.1:1/mcp", "http://169.254.169.254/", False),
    ],
)
async def test_a_server_names_addresses_of_its_own_network_or_public_ones(
    server: str, named: str, is_allowed: bool
) -> None:
    request = httpx2.Request("GET", named)
    if is_allowed:
        await AddressGuard(server).check_request(request)
    else:
        with pytest.raises(AddressRefused, match="for its OAuth, which is an address of"):
            await AddressGuard(server).check_request(request)


@pytest.mark.parametrize(
    ("own", "named", "is_allowed"),
    [
        (["10.0.0.1"], "http://10.0.0.2/", True),
        (["10.0.0.1", "8.8.8.8"], "http://10.0.0.2/", False),
        (["10.0.0.1", "127.0.0.1"], "http://10.0.0.2/", False),
        (["127.0.0.1"], "http://127.0.0.1:1/", False),
    ],
)
async def test_private_addresses_are_allowed_where_all_of_the_server_are_private(
    own: list[str], named: str, is_allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def found(host: str) -> Sequence[str]:
        return own if host == "server.example" else [host]

    monkeypatch.setattr(addresses, "_addresses", found)
    guard = AddressGuard("https://server.example/mcp")
    request = httpx2.Request("GET", named)
    if is_allowed:
        await guard.check_request(request)
    else:
        with pytest.raises(AddressRefused):
            await guard.check_request(request)


async def test_a_server_is_where_its_connection_went_whatever_its_name_says_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 204 OK\r\nConnection: close\r\n\r\n")
        writer.close()

    async with (
        await asyncio.start_server(answer, "127.0.0.1", 0) as server,
        httpx2.AsyncClient() as client,
    ):
        url = f"http://localhost:{server.sockets[0].getsockname()[1]}/mcp"
        guard = AddressGuard(url)

        async def private(host: str) -> Sequence[str]:
            return ["10.0.0.1"]

        monkeypatch.setattr(addresses, "_addresses", private)
        own = httpx2.Request("GET", url)
        await guard.check_request(own)
        await client.send(own)
        with pytest.raises(AddressRefused):
            await guard.check_request(httpx2.Request("GET", "http://internal.example/"))


async def test_a_request_goes_to_an_address_that_was_checked() -> None:
    """The name is not looked up again: it may stand for another address by then."""
    heads: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 204 OK\r\nConnection: close\r\n\r\n")
        writer.close()

    async with (
        await asyncio.start_server(answer, "127.0.0.1", 0) as server,
        httpx2.AsyncClient() as client,
    ):
        port = server.sockets[0].getsockname()[1]
        request = httpx2.Request("GET", f"http://name.invalid:{port}/")
        checked = ["::1", "127.0.0.1"]
        request.extensions["trace"] = addresses._Connecting("name.invalid", checked, lambda _: None)
        assert (await client.send(request)).status_code == 204
    [head] = heads
    assert f"host: name.invalid:{port}".encode() in head.lower()


async def test_a_name_that_points_here_afterwards_is_not_followed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    received, closed = [], asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.read())
        writer.close()
        closed.set()

    async def unknown(_: str) -> Sequence[str]:
        return []

    monkeypatch.setattr(addresses, "_addresses", unknown)  # the first answer of a name server
    async with (
        await asyncio.start_server(serve, "127.0.0.1", 0) as server,
        httpx2.AsyncClient() as client,
    ):
        request = httpx2.Request("GET", f"http://localhost:{server.sockets[0].getsockname()[1]}/")
        await AddressGuard("https://server.example/mcp").check_request(request)
        with pytest.raises(AddressRefused):
            await client.send(request)
        await asyncio.wait_for(closed.wait(), 30)
    assert received == [b""]
