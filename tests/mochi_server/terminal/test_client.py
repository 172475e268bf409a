"""The client of the terminal's commands, at the wire."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from contextlib import asynccontextmanager
from datetime import datetime, timedelta, timezone

import anyio
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from mochi_server.terminal.client import Client, RequestRefused, ServerUnreachable, StreamEvent

HEALTH = b'{"providers": []}'
EVENT = b'id: 1\nevent: run\ndata: {"run_id": "a"}\n\n'
DONE = b"id: 2\nevent: done\ndata: {}\n\n"


def response(status: str, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def chunked(*chunks: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)


@asynccontextmanager
async def answering(*responses: bytes, ssl_context: ssl.SSLContext | None = None):
    """Serve one response on each connection; yields the address and the heads of the requests."""
    left, heads = [*responses], []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(left.pop(0))
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=ssl_context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield f"{'https' if ssl_context else 'http'}://127.0.0.1:{port}", heads


@pytest.fixture
def tls(tmp_path, monkeypatch):
    """Return the context of a server whose certificate this process trusts."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = datetime.now(timezone.utc)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (tmp_path / "key.pem").write_bytes(secret)
    (tmp_path / "certificate.pem").write_bytes(certificate.public_bytes(pem))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "certificate.pem", tmp_path / "key.pem")
    return context


async def test_a_redirect_to_https_is_followed_once_and_for_all(tls):
    with anyio.fail_after(30):
        async with answering(*[response("200 OK", HEALTH)] * 2, ssl_context=tls) as (secure, heads):
            moved = response("308 Permanent Redirect", b"", f"Location: {secure}/api/v1/health")
            async with answering(moved) as (address, _):
                client = Client(address, "t0ken")
                assert await client.answers()
                assert await client.request("POST", "/sessions", {"model": "x"}) == {
                    "providers": []
                }
    assert [head.split(" HTTP")[0] for head in heads] == [
        "GET /api/v1/health",
        "POST /api/v1/sessions",
    ]
    assert all("authorization: bearer t0ken\r\n" in head.lower() for head in heads)


async def test_no_other_redirect_gets_the_token():
    with anyio.fail_after(30):
        async with answering() as (elsewhere, heads):
            moved = response("302 Found", b"", f"Location: {elsewhere}/api/v1/health")
            async with answering(moved, moved) as (address, _):
                assert not await Client(address, "t0ken").answers()
    assert heads == []


async def test_a_name_and_a_password_in_the_address_are_sent():
    with anyio.fail_after(30):
        async with answering(response("200 OK", b"[]")) as (address, heads):
            client = Client(address.replace("//", "//me:s%3A@"), None)
            assert await client.request("GET", "/models", limit=1) == []
    assert "GET /api/v1/models?limit=1 HTTP/1.1" in heads[0]
    assert "basic bwu6czo=\r\n" in heads[0].lower()  # me:s:
    assert "me:s" not in heads[0]


async def test_a_stream_that_breaks_off_goes_on_after_its_last_event(monkeypatch):
    monkeypatch.setattr("mochi_server.terminal.client.RECONNECT_PAUSE_SECONDS", 0)
    responses = [
        chunked(EVENT),
        response("502 Bad Gateway", b"<html>"),
        response("503 Service Unavailable", b'{"error": {"code": "X", "message": "away"}}'),
        chunked(b": comment\n\n" + DONE[:9], DONE[9:]),
    ]
    with anyio.fail_after(30):
        async with answering(*responses) as (address, heads):
            events = [event async for event in Client(address, None).run_events("a")]
    assert events == [
        StreamEvent(number=1, name="run", data={"run_id": "a"}),
        StreamEvent(number=2, name="done", data={}),
    ]
    asked = [head.split(" HTTP")[0].partition("?")[2] for head in heads]
    assert asked == ["after=0", *["after=1"] * 3]


@pytest.mark.parametrize("status", ["502 Bad Gateway", "404 Not Found"])
async def test_a_run_that_a_server_does_not_know_or_never_again_ends_with_the_reason(
    monkeypatch, status
):
    monkeypatch.setattr("mochi_server.terminal.client.RECONNECT_PAUSE_SECONDS", 0)
    monkeypatch.setattr("mochi_server.terminal.client.RECONNECT_SECONDS", -1)
    with anyio.fail_after(30):
        async with answering(response(status)) as (address, _):
            with pytest.raises(RequestRefused, match=status[:3]):
                [event async for event in Client(address, None).run_events("a")]


@pytest.mark.parametrize(
    "answer",
    [b"", b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}"],
    ids=["nothing", "no HTTP", "half"],
)
async def test_what_is_no_whole_response_is_no_server(answer):
    with anyio.fail_after(30):
        async with answering(answer, answer) as (address, _):
            client = Client(address, None)
            with pytest.raises(ServerUnreachable, match="does not answer"):
                await client.request("GET", "/health")
            assert not await client.answers()


async def test_a_reason_without_words_is_named(monkeypatch):
    monkeypatch.setattr("mochi_server.terminal.http1.CONNECT_SECONDS", 0)
    with pytest.raises(ServerUnreachable, match="does not answer: TimeoutError"):
        await Client("http://127.0.0.1:1", None).request("GET", "/health")


@pytest.mark.parametrize(
    "address",
    ["localhost:8000", "ftp://localhost", "http://", "http://[", "http://localhost:port", "x"],
)
async def test_a_wrong_address_is_one_where_nothing_answers(address):
    with anyio.fail_after(30), pytest.raises(ServerUnreachable):
        await Client(address, None).request("GET", "/health")


async def test_a_refusal_has_the_code_and_the_message_of_the_server():
    body = b'{"error": {"code": "BUSY", "message": "Wait."}}'
    with anyio.fail_after(30):
        async with answering(response("409 Conflict", body)) as (address, _):
            with pytest.raises(RequestRefused) as refused:
                await Client(address, None).request("GET", "/models")
    assert (refused.value.status, str(refused.value)) == (409, "BUSY: Wait.")


ENDLESS = b"[" * 5_000
"""JSON that is nested without end."""


async def test_an_answer_that_is_nested_without_end_is_of_no_mochi_server():
    with anyio.fail_after(30):
        async with answering(response("200 OK", ENDLESS)) as (address, _):
            with pytest.raises(ServerUnreachable, match="is not a mochi-server"):
                await Client(address, None).request("GET", "/health")
        async with answering(response("502 Bad Gateway", ENDLESS)) as (address, _):
            with pytest.raises(RequestRefused, match="answers with status 502"):
                await Client(address, None).request("GET", "/health")
        frame = b"event: done\ndata: " + ENDLESS + b"\n\n"
        async with answering(response("200 OK", frame)) as (address, _):
            with pytest.raises(ServerUnreachable, match="nested too deeply"):
                [event async for event in Client(address, None).events("GET", "/runs/a/events")]
