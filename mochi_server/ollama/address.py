"""The address of an Ollama server, apart from the user and password that may stand in it."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field
from urllib.parse import unquote


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is, and how to log in there."""

    url: str
    """Without user and password, and without a slash at the end: it may be shown to anybody."""
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    """``Authorization``, where the address had a user."""


def address_of(host: str) -> Address:
    """Split an address such as ``http://user:password@host:11434``; the scheme may be missing."""
    scheme, slashes, rest = host.partition("//")
    if not slashes:
        scheme, rest = "", host
    netloc, slash, path = rest.partition("/")
    login, _, place = netloc.rpartition("@")
    url = f"{scheme}{slashes}{place}{slash}{path}".rstrip("/")
    if not login:
        return Address(url)
    user, _, password = login.partition(":")
    token = b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()
    return Address(url, {"Authorization": f"Basic {token}"})
