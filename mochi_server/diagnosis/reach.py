"""Who can reach the server, and what keeps others out."""

from __future__ import annotations

from collections.abc import Iterator

from ..config import MochiServerSettings
from ..runtime import Runtime
from ..server.startup import is_public
from .findings import Finding, note, ok, warning

SHORT_TOKEN = 16
"""Characters; shorter ones can be guessed."""

PROXY = "See docs/how-to/behind-a-proxy.md."


async def look_at_reach(runtime: Runtime) -> list[Finding]:
    """Address, token, names and origins."""
    return list(reach_findings(runtime.settings))


def reach_findings(settings: MochiServerSettings) -> Iterator[Finding]:
    """What follows from the settings; the token itself is never shown."""
    yield _address(settings)
    token = settings.api_token
    if token is not None and len(token.get_secret_value()) < SHORT_TOKEN:
        yield warning(
            f"MOCHI_API_TOKEN has fewer than {SHORT_TOKEN} characters.",
            'python3 -c "import secrets; print(secrets.token_urlsafe(32))" makes a good one.',
        )
    if "*" in settings.allowed_hosts:
        text = "MOCHI_ALLOWED_HOSTS is *: the server answers to every name."
        suggestion = "Name the hosts: a web page elsewhere can let its name lead to this server."
        yield note(text, suggestion) if token is not None else warning(text, suggestion)
    yield from (_unsafe(origin) for origin in settings.cors_origins if _is_plain(origin))


def _address(settings: MochiServerSettings) -> Finding:
    text = f"The server listens on {settings.host}"
    if not is_public(settings.host):
        token = "asks for a token" if settings.api_token is not None else "asks for no token"
        return ok(f"{text}: programs of this machine alone reach it; it {token}.")
    if settings.api_token is None:
        return warning(
            f"{text}, and MOCHI_API_TOKEN is not set: whoever reaches it can read every session "
            "and run every tool.",
            "Set MOCHI_API_TOKEN, or listen on 127.0.0.1.",
        )
    return note(
        f"{text} and asks for a token; there is no TLS, so that travels in clear text.",
        f"Let a proxy with TLS stand before it. {PROXY}",
    )


def _is_plain(origin: str) -> bool:
    """Whether whoever is on the way can change the pages of an origin."""
    scheme, _, host = origin.partition("://")
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    return scheme == "http" and is_public(name)


def _unsafe(origin: str) -> Finding:
    return note(
        f"MOCHI_CORS_ORIGINS has {origin}: whoever is on the way can change its pages, which may "
        "use this server.",
        "Serve these pages by https.",
    )
