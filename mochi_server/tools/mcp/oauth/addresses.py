"""Addresses that an MCP server may name for its OAuth: none of networks that it is not in itself.

A server somewhere could otherwise let us send requests to programs of this machine, of the local
network, or to the service of a cloud that hands out credentials.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Any, Literal

import anyio
import httpx2

Kind = Literal["public", "private", "loopback", "special"]

_WITH_IPV4 = tuple(map(IPv6Network, ("::/96", "::ffff:0:0:0/96", "64:ff9b::/96")))
"""Networks whose addresses end with the IPv4 address that is meant: compatible ones, translated
ones and those of NAT64. (Mapped ones, and those of 6to4, are known to ``ipaddress``.)"""
_LOCAL_NAT64 = IPv6Network("64:ff9b:1::/48")
"""The same, but where the IPv4 address stands in them is known to their network alone."""
_METADATA = frozenset(
    map(ip_address, ("fd00:ec2::254", "fd20:ce::254", "168.63.129.16", "192.0.0.192"))
)
"""Where clouds (Amazon, Google, Azure, Oracle) hand out credentials, beside link-local ones."""
TRY_SECONDS = 5.0
"""Longest wait for a connection to one of several addresses."""


class AddressRefused(Exception):
    """A server has named an address that it may not name; the text says which."""


class AddressGuard:
    """Checks the requests that a server makes us send to other addresses than its own ``url``.

    Public addresses are allowed; those of private networks, if all of the server's own addresses
    are private; those of this machine, if the server is configured with one (a name may point
    anywhere tomorrow). Link-local addresses and the like are never allowed.
    """

    def __init__(self, url: str) -> None:
        self._url = httpx2.URL(url)
        self._own: set[Kind] = set()
        """Kinds of the addresses that the server has, and that connections to it went to."""

    async def check_request(self, request: httpx2.Request) -> None:
        """Check where a request goes, and let it go to an address that was checked.

        Raises:
            AddressRefused: The server may not name this address.
        """
        url = request.url
        host = url.raw_host.decode()
        if _origin(url) == _origin(self._url):
            request.extensions["trace"] = _Connecting(host, [], self._own.add)
            return
        addresses = await self.check(url)

        def check(kind: Kind) -> None:
            self._check(url.host, {kind})

        request.extensions["trace"] = _Connecting(host, addresses, check)

    async def check(self, url: httpx2.URL) -> Sequence[str]:
        """Check where an address leads, and return what its name stands for at this moment.

        Raises:
            AddressRefused: The server may not name this address.
        """
        self._own |= set(map(_kind, await _addresses(self._url.host)))
        addresses = await _addresses(url.host)
        self._check(url.host, set(map(_kind, addresses)))
        return addresses

    def _check(self, host: str, kinds: set[Kind]) -> None:
        allowed: set[Kind] = {"public"}
        if self._own == {"private"} or (self._own == {"loopback"} and _is_here(self._url.host)):
            allowed |= self._own
        if not kinds <= allowed:
            raise AddressRefused(
                f"it names {host!r} for its OAuth, which is an address of this machine, or of a"
                " network that the server itself is not in"
            )


class _Connecting:
    """What httpx calls when a request connects: it goes to an address that was checked.

    A proxy finds addresses by itself.

    Args:
        host: To which the request goes.
        addresses: What it stood for when it was checked; none: the library looks it up.
        check: Gets the kind of the address of a connection, before anything is sent there.
    """

    def __init__(self, host: str, addresses: Sequence[str], check: Callable[[Kind], None]) -> None:
        self._host = host
        self._addresses = addresses
        self._check = check
        self._is_direct = False

    async def __call__(self, event: str, info: dict[str, Any]) -> None:
        if event == "connection.connect_tcp.started":
            self._is_direct = info["host"] == self._host
            if self._is_direct and self._addresses:
                # The very arguments of the connection; TLS goes on to ask for the name.
                info["host"] = await _reachable(self._addresses, info["port"])
        elif event == "connection.connect_tcp.complete" and self._is_direct:
            stream = info["return_value"]
            try:
                self._check(_kind(stream.get_extra_info("server_addr")[0]))
            except AddressRefused:
                await stream.aclose()
                raise


async def _reachable(addresses: Sequence[str], port: int) -> str:
    """Return the first address where something listens; the last one if none does."""
    for address in addresses[:-1]:
        with suppress(OSError), anyio.move_on_after(TRY_SECONDS):
            async with await anyio.connect_tcp(address, port):
                return address
    return addresses[-1]


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return (url.scheme, url.host, url.port)


def _is_here(host: str) -> bool:
    """Tell whether a host is written as an address, or as this machine."""
    try:
        ip_address(host)
    except ValueError:
        return host == "localhost"
    return True


async def _addresses(host: str) -> Sequence[str]:
    """Return a host's addresses; none if it has none, or only a proxy knows them."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def _kind(address: str) -> Kind:
    ip = _meant(address)
    if ip.is_loopback or ip.is_unspecified:
        return "loopback"
    if ip.is_link_local or ip.is_multicast or ip in _METADATA or ip in _LOCAL_NAT64:
        return "special"
    if isinstance(ip, IPv6Address) and ip.is_site_local:
        return "private"
    if ip.is_global:
        return "public"
    return "private" if ip.is_private else "special"


def _meant(address: str) -> IPv4Address | IPv6Address:
    """Return the IPv4 address that stands in an IPv6 address, else the address itself."""
    ip = ip_address(address.partition("%")[0])
    if isinstance(ip, IPv4Address) or ip.is_loopback or ip.is_unspecified:
        return ip
    if any(ip in network for network in _WITH_IPV4):
        return IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip.ipv4_mapped or ip.sixtofour or ip
