"""OAuth of MCP servers over HTTP by the SDK, with the tokens of ``TokenFile``."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthRegistrationError, OAuthTokenError
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)
from pydantic import AnyUrl, ValidationError

from ....constants import LOOPBACK_HOSTS
from ....core.aio import in_thread
from ....errors import JSONObject
from ..config.entry import McpServerConfig
from ..secret_values import SecretValues
from ..transports.http import LimitedClient
from .addresses import AddressGuard
from .tokens import AuthorizationNeeded

if TYPE_CHECKING:
    from .authorizations import McpAuthorizations

# It logs tracebacks, which may quote an answer with tokens in it; failures are shown without.
logging.getLogger("mcp.client.auth").setLevel(logging.CRITICAL + 1)

PING: JSONObject = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
HEADERS = {
    "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": "2025-06-18",
}
_ERROR_CODE = re.compile(
    r'"error":\s*"((?:invalid|unauthorized|unsupported|unapproved|access|temporarily|server)_[a-z_]+)"'
)


class NotAuthorized(Exception):
    """A person or a server did not allow it; the text says why, and has no secret."""


class _OtherTokens(Exception):
    """Others have got tokens since those of a request were read."""


class _Storage:
    """What the SDK keeps of one server."""

    def __init__(
        self, url: str, authorizations: McpAuthorizations, secrets: SecretValues, *, is_new: bool
    ) -> None:
        self._url = url
        self._secrets = secrets
        self._tokens = authorizations.tokens
        self._redirect_url = authorizations.redirect_url
        self._is_new = is_new
        """Whether a token that is there is not used: another is to be got."""
        self._known: str | None = None
        """The access token that was read or stored last."""
        self.signing = asyncio.Lock()
        """Held until a request is answered: another one may renew the tokens that were read."""

    async def read(self) -> JSONObject:
        return await in_thread(self._tokens.read, self._url)

    async def get_tokens(self) -> OAuthToken | None:
        tokens = None if self._is_new else _tokens(await self.read())
        self._known = None if tokens is None else tokens.access_token
        if tokens is not None:
            self._secrets.add([tokens.access_token, tokens.refresh_token or ""])
        return tokens

    async def check_unchanged(self) -> None:
        """Make sure that the tokens are still those that were read or stored last.

        Raises:
            _OtherTokens: They are not.
        """
        known = self._known
        await self.get_tokens()
        if self._known != known:
            raise _OtherTokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._known = tokens.access_token
        self._secrets.add([tokens.access_token, tokens.refresh_token or ""])
        expires_at = None if tokens.expires_in is None else time.time() + tokens.expires_in
        values = tokens.model_dump(mode="json", exclude_none=True)
        await in_thread(self._tokens.update, self._url, tokens=values, expires_at=expires_at)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        client = _client(await self.read(), self._redirect_url)
        if client is not None:
            self._secrets.add([client.client_secret or ""])
        return client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._secrets.add([client_info.client_secret or ""])
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


class _Provider(OAuthClientProvider):
    """The SDK's, which sends requests wherever a server says, and shows what it is answered."""

    def __init__(
        self,
        url: str,
        authorizations: McpAuthorizations,
        storage: _Storage,
        show: Callable[[str], Awaitable[None]],
        wait: Callable[[], Awaitable[AuthorizationCodeResult]],
    ) -> None:
        super().__init__(url, _metadata(authorizations), storage, show, wait)
        self.guard = AddressGuard(url)
        self.storage = storage

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        flow = super().async_auth_flow(request)
        status = 0
        try:
            outgoing = await flow.__anext__()
            while True:
                await self.guard.check_request(outgoing)
                response = yield outgoing
                status = response.status_code
                outgoing = await flow.asend(response)
        except StopAsyncIteration:
            return
        except (OAuthTokenError, OAuthRegistrationError) as error:
            what = "token" if isinstance(error, OAuthTokenError) else "registration"
            raise NotAuthorized(
                f"the answer to its {what} request is none that can be used"
                f" ({_error_code(str(error))}HTTP {status})"
            ) from None
        finally:
            await flow.aclose()


def _error_code(text: str) -> str:
    """Return the code of RFC 6749 or RFC 7591 in a text with the body of an answer."""
    match = _ERROR_CODE.search(text)
    return "" if match is None else f"{match[1]}, "


class _Signer(_Provider):
    """Signs requests, also with tokens that another process has got since."""

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        async with self.storage.signing:
            while True:
                await self._read_tokens()
                flow = super().async_auth_flow(request)
                try:
                    outgoing = await flow.__anext__()
                    while True:
                        outgoing = await flow.asend((yield outgoing))
                except StopAsyncIteration:
                    return
                except _OtherTokens:
                    continue
                finally:
                    await flow.aclose()

    async def _read_tokens(self) -> None:
        stored = await self.storage.read()
        expires_at = stored.get("expires_at")
        self.context.current_tokens = await self.storage.get_tokens()
        self.context.token_expiry_time = expires_at if isinstance(expires_at, float) else None


def sign(
    config: McpServerConfig, authorizations: McpAuthorizations, secrets: SecretValues
) -> httpx2.Auth:
    """Return what signs the requests of a connection; see ``McpAuthorizations.auth``."""

    async def need(url: str) -> None:
        await storage.check_unchanged()
        scope = parse_qs(urlsplit(url).query).get("scope", [None])[0]
        authorizations.begin(config, secrets, scope)
        raise AuthorizationNeeded("it needs an authorization")

    async def never() -> AuthorizationCodeResult:
        raise AuthorizationNeeded("it needs an authorization")

    storage = _Storage(str(config.url), authorizations, secrets, is_new=False)
    return _Signer(str(config.url), authorizations, storage, need, never)


async def authorize(
    config: McpServerConfig,
    authorizations: McpAuthorizations,
    secrets: SecretValues,
    scope: str | None,
) -> None:
    """Get new tokens of a server with the help of a person, and keep them.

    Raises:
        NotAuthorized: There are none.
        AddressRefused: The server names an address that it may not name.
        OAuthFlowError: The servers do not follow the protocol.
        httpx2.HTTPError: One of them cannot be reached.
    """
    state = ""

    async def show(url: str) -> None:
        nonlocal state
        url = _with_scope(url, scope)
        if not _may_be_shown(url):
            raise NotAuthorized("its page for that has no https address")
        await provider.guard.check(httpx2.URL(url))
        state = parse_qs(urlsplit(url).query)["state"][0]
        await authorizations.show(config.name, url, state)

    async def wait() -> AuthorizationCodeResult:
        answer = await authorizations.answer(state)
        secrets.add([str(answer.get("code", ""))])
        if "error" in answer:
            raise NotAuthorized(str(answer["error"]))
        return AuthorizationCodeResult.model_validate({**answer, "state": state})

    storage = _Storage(str(config.url), authorizations, secrets, is_new=True)
    provider = _Provider(str(config.url), authorizations, storage, show, wait)
    method, body = ("GET", None) if config.transport == "sse" else ("POST", PING)
    async with (
        LimitedClient({**config.headers, **HEADERS}, auth=provider) as client,
        client.stream(method, str(config.url), json=body) as response,
    ):
        if not state:
            raise NotAuthorized(f"it does not offer OAuth (HTTP {response.status_code})")


def _may_be_shown(url: str) -> bool:
    """Return whether an address may be shown to a person: with TLS, or on this machine."""
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK_HOSTS)


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
