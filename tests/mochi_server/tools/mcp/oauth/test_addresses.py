"""Addresses that servers name for their OAuth, without any network but that of this machine."""

from __future__ import annotations

import asyncio

import httpx2
import pytest

from mochi_server.tools.mcp.oauth import addresses
from mochi_server.tools.mcp.oauth.addresses import AddressGuard, AddressRefused


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


async def test_a_name_that_points_here_afterwards_is_not_followed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    received, closed = [], asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.read())
        writer.close()
        closed.set()

    async def public(_: str) -> set[addresses.Kind]:
        return {"public"}

    monkeypatch.setattr(addresses, "_kinds", public)  # the first answer of a name server
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
