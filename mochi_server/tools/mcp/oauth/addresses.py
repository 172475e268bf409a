"""Addresses that an MCP server may name for its OAuth: none of networks that it is not in itself.

A server somewhere could otherwise let us send requests to programs of this machine, of the local
network, or to the service of a cloud that hands out credentials.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from ipaddress import IPv6Address, IPv6Network, ip_address
from typing import Any, Literal

import httpx2

Kind = Literal["public", "private", "loopback", "special"]

_NAT64 = IPv6Network("64:ff9b::/96")
_METADATA = IPv6Address("fd00:ec2::254")
"""Where Amazon's cloud hands out credentials; in IPv4 it is a link-local address."""


class AddressRefused(Exception):
    """A server has named an address that it may not name; the text says which."""


class AddressGuard:
    """Checks the requests that a server makes us send to other addresses than its own.

    Public addresses are allowed; those of private networks, if the server has one itself; those of
    this machine, if the server is configured with one (a name may point anywhere tomorrow).
    Link-local addresses and the like are never allowed.

    Args:
        url: Address of the server.
    """

    def __init__(self, url: str) -> None:
        self._url = httpx2.URL(url)
        self._allowed: frozenset[Kind] | None = None

    async def check_request(self, request: httpx2.Request) -> None:
        """Check where a request goes, now and again when it is connected.

        Raises:
            AddressRefused: The server may not name this address.
        """
        url = request.url
        if _origin(url) == _origin(self._url):
            return
        await self.check(url)
        request.extensions["trace"] = self._check_of(url.raw_host.decode())

    async def check(self, url: httpx2.URL) -> None:
        """Check an address. Raises AddressRefused as ``check_request``."""
        if self._allowed is None:
            own = await _kinds(self._url.host)
            if _is_literal(self._url.host):
                self._allowed = frozenset[Kind]({"public", *own} - {"special"})
            else:
                self._allowed = frozenset[Kind]({"public", *own} - {"special", "loopback"})
        self._check(url.host, await _kinds(url.host))

    def _check(self, host: str, kinds: set[Kind]) -> None:
        assert self._allowed is not None  # noqa: S101 - see ``check``
        if not kinds <= self._allowed:
            raise AddressRefused(
                f"it names {host!r} for its OAuth, which is an address of this machine, or of a"
                " network that the server itself is not in"
            )

    def _check_of(self, host: str) -> Callable[[str, dict[str, Any]], Awaitable[None]]:
        """Return a hook that checks which address a name has turned out to have.

        It fails before anything is sent there. A proxy finds addresses by itself.
        """
        is_direct = False

        async def check(event: str, info: dict[str, Any]) -> None:
            nonlocal is_direct
            if event == "connection.connect_tcp.started":
                is_direct = info["host"] == host
            elif event == "connection.connect_tcp.complete" and is_direct:
                stream = info["return_value"]
                try:
                    self._check(host, {_kind(stream.get_extra_info("server_addr")[0])})
                except AddressRefused:
                    await stream.aclose()
                    raise

        return check


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return (url.scheme, url.host, url.port)


def _is_literal(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return host == "localhost"
    return True


async def _kinds(host: str) -> set[Kind]:
    """Return the kinds of a host's addresses; none if it has none, or only a proxy knows them."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return set()
    return {_kind(str(address[0])) for *_, address in found}


def _kind(address: str) -> Kind:
    ip = ip_address(address.partition("%")[0])
    if isinstance(ip, IPv6Address):
        if ip in _NAT64:
            ip = ip_address(int(ip) & 0xFFFFFFFF)
        else:
            ip = ip.ipv4_mapped or ip.sixtofour or ip
    if ip.is_loopback or ip.is_unspecified:
        return "loopback"
    if ip.is_link_local or ip.is_multicast or ip == _METADATA:
        return "special"
    if ip.is_global:
        return "public"
    return "private" if ip.is_private else "special"
