"""What the adapters of the vendors' SDKs share: a client opened once, patience, named errors."""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from importlib import import_module
from traceback import format_exception
from types import ModuleType
from typing import Any, ClassVar, Final, Generic, TypeVar
from urllib.parse import SplitResult, urlsplit, urlunsplit

import anyio
from pydantic import SecretStr

from ..core.aio import in_thread
from ..core.http_limits import httpx_limits
from ..errors import MochiError, ProviderError, ProviderNotConfigured, ProviderUnreachable
from ..protocol.messages import ToolCall
from .base import Chunk, ModelRequest, Provider
from .common.errors import Failure, http_errors, not_configured, not_installed
from .common.http import Overheard, words_of
from .common.redaction import HIDDEN, hiding
from .common.retry import ATTEMPTS, WholeCharacters, patiently

logger = logging.getLogger(__name__)

CONNECT_SECONDS: Final = 10.0
IDLE_SECONDS: Final = 600.0
"""Longest silence, before the first byte (queue, loading, the prompt) and within a reply."""

ANSWER_SECONDS: Final = 30.0
"""Longest wait for a list of models, or for what the service tells of one."""

MODEL_SECONDS: Final = 300.0
"""How long what the API tells of a model is believed."""

KEPT_CONNECTIONS: Final = 100
"""Idle ones; the HTTP libraries close them after five seconds."""

NO_ROUTE: Final = frozenset({404, 405, 501})
"""Statuses of a service that has no list of models."""

CALLS_AT_ONCE: Final = 100
"""Calls of a reply after which others have their turn on the loop."""

EVERYTHING: Final = ("completion", "tools", "thinking")
"""Abilities of a model of which nothing is known; it says so itself where it lacks one."""

_LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")
MOST_LETTERS: Final = 1000
"""Of what a service says, in an error: it may be a page, or the whole request."""

_SILENCE: Final = {
    "ReadTimeout": "it sent nothing for too long",
    "ConnectTimeout": "there was no connection in time",
}
"""The HTTP libraries' errors that say nothing but their name."""

ClientT = TypeVar("ClientT")


def http_options(http: Any, url: str | None) -> dict[str, Any]:  # noqa: ANN401
    """For a client of an HTTP library (``httpx`` or ``httpx2``) that asks the service at ``url``.

    Each stream holds a connection, and none waits for another. A server on this machine is not
    sought behind a proxy of the environment. Redirects would carry keys and texts elsewhere.
    """
    parts = parts_of(url or "")
    here = {host.strip("[]") for host in _LOOPBACK}
    is_here = parts is not None and parts.scheme == "http" and parts.hostname in here
    return {
        **httpx_limits(),
        "limits": http.Limits(max_connections=None, max_keepalive_connections=KEPT_CONNECTIONS),
        "mounts": {f"all://{host}": None for host in _LOOPBACK},
        # With TLS the environment may have certificates, without it nothing but proxies.
        "trust_env": not is_here,
    }


def http_client_of(sdk: Any, url: str | None) -> Any:  # noqa: ANN401 - as above
    """A client for an SDK, made by ourselves: its own complains when it could not be made."""
    return sdk.DefaultAsyncHttpxClient(**http_options(http_library_of(sdk), url))


def http_library_of(sdk: Any) -> ModuleType:  # noqa: ANN401 - as above
    """The HTTP library that an SDK is made for, ``httpx`` or ``httpx2`` by its version."""
    kinds = sdk.DefaultAsyncHttpxClient.__mro__
    names = (kind.__module__.partition(".")[0] for kind in kinds)
    return import_module(next(name for name in names if name.startswith("httpx")))


def parts_of(url: str) -> SplitResult | None:
    """The parts of an address; None for what is none."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        return None
    return parts if usable else None


class VendorProvider(Provider, Generic[ClientT]):
    """The models of one key at one address."""

    lists_to_check = True
    service: ClassVar[str]
    """What it is called where no address is set."""
    module: ClassVar[str]
    package: ClassVar[str]
    extra: ClassVar[str]
    """The package, what it is imported as, and our extra that brings it."""
    variable: ClassVar[str]
    """What a person must set."""

    def __init__(
        self,
        alias: str,
        *,
        api_key: SecretStr | str | None,
        base_url: str | None,
        attempts: int = ATTEMPTS,
    ) -> None:
        super().__init__(alias)
        key = api_key.get_secret_value() if isinstance(api_key, SecretStr) else api_key
        self._api_key = (key or "").strip() or None
        self._base_url = (base_url or "").strip() or None
        self._without_secrets = hiding(self._api_key, parts_of(self._base_url or ""))
        self._attempts = attempts
        self._sdk: Any = None
        self._opened: ClientT | None = None
        self._opening = anyio.Lock()

    @property
    def configured(self) -> bool:
        """Whether there is a key."""
        return self._api_key is not None

    async def prepare(self) -> None:
        """Import the SDK and make its client.

        Raises:
            ProviderNotConfigured: there is no key, no package, or they are of no use.
        """
        await self._client()

    async def _client(self) -> ClientT:
        async with self._opening:
            if self._opened is None:
                self._opened = await in_thread(self._open)
            return self._opened

    def _open(self) -> ClientT:
        """Import the SDK, which takes a second, and make its client.

        Raises:
            ProviderNotConfigured: there is no key, no package, or they are of no use.
        """
        if not self.configured:
            raise not_configured(self.alias, self.variable)
        if self._api_key and not (self._api_key.isascii() and self._api_key.isprintable()):
            raise ProviderNotConfigured(
                f"The key of provider {self.alias!r} has characters that no key has: "
                f"check {self.variable}.",
                details={"provider": self.alias},
            )
        if self._base_url and parts_of(self._base_url) is None:
            raise ProviderNotConfigured(
                f"The address of provider {self.alias!r} is none such as http://localhost:8000/v1.",
                details={"provider": self.alias},
            )
        try:
            self._sdk = import_module(self.module)
        except ImportError as error:
            raise not_installed(self.alias, self.package, self.extra) from error
        try:
            return self._connect()
        except Exception as error:  # an address, a proxy of the environment, a file with roots
            raise ProviderNotConfigured(
                f"Provider {self.alias!r} cannot be set up: {self._hide(str(error))}",
                details={"provider": self.alias},
            ) from error

    @abstractmethod
    def _connect(self) -> ClientT:
        """The SDK's client; connects to nothing yet."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        """The reply; closing the generator closes the connection."""
        tries = patiently(lambda: self._stream(request), attempts=self._attempts)
        characters = WholeCharacters()
        async with aclosing(tries) as chunks:
            calls = 0
            async for chunk in chunks:
                for whole in characters.add(chunk):
                    yield whole
                if isinstance(chunk, ToolCall):  # those of a reply come all at its end
                    calls += 1
                    if calls % CALLS_AT_ONCE == 0:
                        await asyncio.sleep(0)

    @abstractmethod
    def _stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        """The reply of one request."""

    async def check(self) -> bool:
        """Whether the service lists its models now."""
        try:
            await self.list_models()
        except MochiError:
            return False
        return True

    def describe(self) -> str:
        """The address, without what it has of logins."""
        if self._base_url is None:
            return self.service
        parts = parts_of(self._base_url)
        if parts is None:
            return "its address"
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))

    async def aclose(self) -> None:
        """Close the connections."""
        client, self._opened = self._opened, None
        if client is not None:
            await self._close(client)

    async def _close(self, client: Any) -> None:  # noqa: ANN401 - most SDKs call it so
        await client.close()

    @contextmanager
    def _translated(self, model: str | None) -> Iterator[None]:
        """The SDK's errors as ours."""
        try:
            yield
        except Exception as error:
            found = self._error_of(error, model)
            if found is None:
                raise
            raise found from error

    @contextmanager
    def _answered(self, model: str | None) -> Iterator[None]:
        """The same, for what takes no model to answer: within ``ANSWER_SECONDS``."""
        try:
            with self._translated(model), anyio.fail_after(ANSWER_SECONDS):
                yield
        except TimeoutError as error:
            raise ProviderUnreachable(
                f"Provider {self.alias!r} at {self.describe()} gives no answer within "
                f"{ANSWER_SECONDS:g} s."
            ) from error

    def _error_of(self, error: Exception, model: str | None) -> MochiError | None:
        """Our error for one of the SDK's; None for one that is not."""
        if isinstance(error.__cause__, MochiError):  # of a limit, which the SDK took for a failure
            return error.__cause__
        if isinstance(error, (*self._no_connection(), *http_errors())):
            cause = error.__cause__ or error
            kind = type(cause).__name__
            words = _SILENCE.get(kind) or self._hide(str(cause)) or kind
            return ProviderUnreachable(
                f"Provider {self.alias!r} at {self.describe()} cannot be reached: {words}"
            )
        if (failure := self._failure_of(error)) is not None:
            failure = failure.redirecting(getattr(error, "response", None))
            return failure.without(self._hide).as_error(self.alias, model)
        # What is not of the protocol's shape fails in the SDK, or where we read what it made of it.
        if not isinstance(error, (self._any_error(), ValueError, TypeError, AttributeError)):
            return None
        if not isinstance(error, self._any_error()):  # it may be a mistake of ours
            trace = self._without_secrets("".join(format_exception(error)))
            logger.warning("An answer of provider %r cannot be read\n%s", self.alias, trace)
        return ProviderError(f"Provider {self.alias!r}: {self._hide(str(error))}")

    @abstractmethod
    def _failure_of(self, error: Exception) -> Failure | None:
        """What the service said; None where the error is not its answer."""

    @abstractmethod
    def _no_connection(self) -> tuple[type[Exception], ...]:
        """What the SDK raises where no answer came."""

    @abstractmethod
    def _any_error(self) -> type[Exception]:
        """The base class of the SDK's errors."""

    def _instead(self, heard: Overheard, model: str) -> MochiError | None:
        """The error of an answer without an event; None where it said nothing else either."""
        if (body := heard.body) is None:
            return None
        error = body.get("error") if isinstance(body, dict) else None
        if not error:
            said = self._hide(words_of(body)) or "nothing that could be shown"
            what = heard.kind or "something"
            return ProviderError(
                f"Provider {self.alias!r} answered with {what} instead of a stream: {said}"
            )
        codes = (error.get("code"), error.get("type")) if isinstance(error, dict) else ()
        failure = Failure(words=words_of(error) or words_of(body), codes=codes)
        return failure.without(self._hide).as_error(self.alias, model)

    def _hide(self, words: str) -> str:
        """The words without the secrets, which some services repeat, and no more than a few."""
        words = self._without_secrets(words)
        return words if len(words) <= MOST_LETTERS else f"{words[:MOST_LETTERS]}{HIDDEN}"
