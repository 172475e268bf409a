"""Who may let the server start programs, beyond what the gate checks of every request."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest

from mochi_server.constants import LOOPBACK_HOSTS
from mochi_server.errors import InvalidRequest, McpChangeNotAllowed

from .gate import as_address, split_host

_FORWARDED = ("Forwarded", "X-Real-IP", "Via")
_FORWARDED_PREFIX = "x-forwarded-"


def check_may_start_programs(request: HttpRequest, *, has_body: bool = True) -> None:
    """Let only those pass who have the token, or without one those on this machine.

    The gate has refused pages of other origins and wrong tokens. A host that is not loopback may be
    a name that a web page made to point here, and a proxy lets others seem to be on this machine.

    Raises:
        McpChangeNotAllowed: The client is elsewhere, and no token is set.
        InvalidRequest: The body is one that a form of any web page can send.
    """
    if has_body and request.content_type != "application/json":
        raise InvalidRequest("Send it with the header 'Content-Type: application/json'.")
    if settings.MOCHI.demands_token:  # the gate has accepted the one of this request
        return
    client = as_address(request.META.get("REMOTE_ADDR") or "")
    host = split_host(request.headers.get("Host", ""))
    if (
        client is None
        or not client.is_loopback
        or host is None
        or host[0] not in LOOPBACK_HOSTS
        or any(name in request.headers for name in _FORWARDED)
        or any(name.lower().startswith(_FORWARDED_PREFIX) for name in request.headers)
    ):
        raise McpChangeNotAllowed
