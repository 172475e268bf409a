"""OAuth of MCP servers over HTTP by the SDK, with the tokens of ``TokenFile``."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)
from pydantic import AnyUrl, ValidationError

from ...core.aio import in_thread
from ...errors import JSONObject
from .authorizations import AuthorizationNeeded, McpAuthorizations
from .config import McpServerConfig
from .http import limited_client

# It logs tracebacks, which may quote an answer with tokens in it; failures are shown without.
logging.getLogger("mcp.client.auth").setLevel(logging.CRITICAL + 1)

PING: JSONObject = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class NotAuthorized(Exception):
    """A person or a server did not allow it; the text says why, and has no secret."""


class _Storage:
    """What the SDK keeps of one server."""

    def __init__(self, url: str, authorizations: McpAuthorizations, *, is_new: bool) -> None:
        self._url = url
        self._tokens = authorizations.tokens
        self._redirect_url = authorizations.redirect_url
        self._is_new = is_new
        """Whether a token that is there is not used: another is to be got."""

    async def read(self) -> JSONObject:
        return await in_thread(self._tokens.read, self._url)

    async def get_tokens(self) -> OAuthToken | None:
        return None if self._is_new else _tokens(await self.read())

    async def set_tokens(self, tokens: OAuthToken) -> None:
        expires_at = None if tokens.expires_in is None else time.time() + tokens.expires_in
        values = tokens.model_dump(mode="json", exclude_none=True)
        await in_thread(self._tokens.update, self._url, tokens=values, expires_at=expires_at)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return _client(await self.read(), self._redirect_url)

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        values = client_info.model_dump(mode="json", exclude_none=True)
        await in_thread(self._tokens.update, self._url, client=values)


def _tokens(stored: JSONObject) -> OAuthToken | None:
    try:
        return OAuthToken.model_validate(stored["tokens"])
    except (KeyError, ValidationError):
        return None


def _client(stored: JSONObject, redirect_url: str) -> OAuthClientInformationFull | None:
    """Return the registration; None if there is none with our present address."""
    try:
        client = OAuthClientInformationFull.model_validate(stored["client"])
    except (KeyError, ValidationError):
        return None
    addresses = [str(url) for url in client.redirect_uris or ()]
    return client if not addresses or redirect_url in addresses else None


class _Signer(OAuthClientProvider):
    """Signs requests, also with tokens that another process has got since."""

    storage: _Storage

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        stored = await self.storage.read()
        expires_at = stored.get("expires_at")
        self.context.current_tokens = await self.storage.get_tokens()
        self.context.token_expiry_time = expires_at if isinstance(expires_at, float) else None
        flow = super().async_auth_flow(request)
        try:
            outgoing = await flow.__anext__()
            while True:
                outgoing = await flow.asend((yield outgoing))
        except StopAsyncIteration:
            return
        finally:
            await flow.aclose()


async def sign(config: McpServerConfig, authorizations: McpAuthorizations) -> httpx2.Auth:
    """Return what signs the requests of a connection; see ``McpAuthorizations.auth``."""

    async def need(url: str) -> None:
        scope = parse_qs(urlsplit(url).query).get("scope", [None])[0]
        authorizations.begin(config, scope)
        raise AuthorizationNeeded("it needs an authorization")

    async def never() -> AuthorizationCodeResult:
        raise AuthorizationNeeded("it needs an authorization")

    storage = _Storage(str(config.url), authorizations, is_new=False)
    metadata = _metadata(authorizations)
    signer = _Signer(str(config.url), metadata, storage, need, never)
    signer.storage = storage
    return signer


async def authorize(
    config: McpServerConfig, authorizations: McpAuthorizations, scope: str | None
) -> None:
    """Get new tokens of a server with the help of a person, and keep them.

    Raises:
        NotAuthorized: There are none.
        OAuthFlowError: The servers do not follow the protocol.
        httpx2.HTTPError: One of them cannot be reached.
    """
    state = ""

    async def show(url: str) -> None:
        nonlocal state
        url = _with_scope(url, scope)
        parts = urlsplit(url)
        if parts.scheme != "https" and (parts.scheme != "http" or parts.hostname not in _LOOPBACK):
            raise NotAuthorized("its page for that has no https address")
        state = parse_qs(parts.query)["state"][0]
        await authorizations.show(config.name, url, state)

    async def wait() -> AuthorizationCodeResult:
        answer = await authorizations.answer(state)
        if "error" in answer:
            raise NotAuthorized(str(answer["error"]))
        return AuthorizationCodeResult.model_validate({**answer, "state": state})

    storage = _Storage(str(config.url), authorizations, is_new=True)
    provider = OAuthClientProvider(str(config.url), _metadata(authorizations), storage, show, wait)
    headers = {
        **config.headers,
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2025-06-18",
    }
    method, body = ("GET", None) if config.transport == "sse" else ("POST", PING)
    async with (
        limited_client(headers, auth=provider) as client,
        client.stream(method, str(config.url), json=body) as response,
    ):
        if not state:
            raise NotAuthorized(f"it does not offer OAuth (HTTP {response.status_code})")


def _metadata(authorizations: McpAuthorizations) -> OAuthClientMetadata:
    return OAuthClientMetadata(
        client_name="mochi-server", redirect_uris=[AnyUrl(authorizations.redirect_url)]
    )


def _with_scope(url: str, scope: str | None) -> str:
    """Return the address with more scopes: a token for one thing must serve for another too."""
    if scope is None:
        return url
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    query["scope"] = " ".join(dict.fromkeys([*query.get("scope", "").split(), *scope.split()]))
    return parts._replace(query=urlencode(query)).geturl()
