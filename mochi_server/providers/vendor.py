"""What the adapters of the vendors' SDKs share: a client opened once, retries, named errors."""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from importlib import import_module
from operator import attrgetter
from traceback import format_exception
from typing import Any, ClassVar, Final, Generic, TypeVar

import anyio
from pydantic import SecretStr

from ..core.aio import in_thread
from ..errors import MochiError, ProviderError, ProviderNotConfigured, ProviderUnreachable
from ..protocol.messages import ToolCall
from .base import Chunk, ModelRequest, Provider
from .common.errors import Refusal, not_installed
from .common.http import UnexpectedBody, http_errors, split_address, without_login
from .common.retry import ATTEMPTS, retry_when_busy
from .common.values import REDACTED, WholeCharacters, error_text, redaction

logger = logging.getLogger(__name__)

ANSWER_SECONDS: Final = 30.0
"""Longest wait for a list of models, or for what the service tells of one."""
MODEL_CACHE_SECONDS: Final = 300.0
"""How long what the API tells of a model is believed."""
NO_ROUTE: Final = frozenset({404, 405, 501})
"""Statuses of a service that has no list of models."""
CALLS_AT_ONCE: Final = 100
EVERYTHING: Final = ("completion", "tools", "thinking", "vision")
"""Capabilities of a model of which nothing is known; the service refuses what it lacks."""
MAX_CHARACTERS: Final = 1000
"""Characters of a service's text in an error: it may send a page, or the whole request."""
_SILENCE: Final = {
    "ReadTimeout": "it sent nothing for too long",
    "ConnectTimeout": "there was no connection in time",
}
"""The HTTP libraries' errors that say nothing but their name."""

ClientT = TypeVar("ClientT")


def unconverted(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a request whose messages the SDK sends as they are.

    It would convert each, which holds the event loop for seconds where there are thousands.
    """
    body = {**payload.get("extra_body", {}), "messages": payload["messages"]}
    return {**payload, "messages": (), "extra_body": body}


class VendorProvider(Provider, Generic[ClientT]):
    """The models of one key at one address.

    A subclass names the SDK's ``package`` and the ``module`` to import, our ``extra`` that installs
    it, the ``variable`` that a person must set, the ``service`` to show without an address, and the
    ``sdk_error``.
    """

    check_costs_request = True
    service: ClassVar[str]
    module: ClassVar[str]
    package: ClassVar[str]
    extra: ClassVar[str]
    variable: ClassVar[str]
    sdk_error: ClassVar[str]
    """Dotted name, within the package, of the base class of its errors."""
    attempts: int = ATTEMPTS
    """How often a busy service is asked before the first token."""

    def __init__(
        self, alias: str, *, api_key: SecretStr | str | None, base_url: str | None
    ) -> None:
        super().__init__(alias)
        key = api_key.get_secret_value() if isinstance(api_key, SecretStr) else api_key
        self._api_key = (key or "").strip() or None
        self._base_url = (base_url or "").strip() or None
        self._redact = redaction(self._api_key, split_address(self._base_url or ""))
        self._sdk: Any = None
        self._sdk_client: ClientT | None = None
        self._client_lock = anyio.Lock()

    @property
    def configured(self) -> bool:
        return self._api_key is not None

    async def prepare(self) -> None:
        await self._client()

    async def _client(self) -> ClientT:
        async with self._client_lock:
            if self._sdk_client is None:
                self._sdk_client = await in_thread(self._import_and_connect)
            return self._sdk_client

    def _import_and_connect(self) -> ClientT:
        """Import the SDK, which takes a second, and make its client.

        Raises:
            ProviderNotConfigured: there is no key, no package, or they are of no use.
        """
        if not self.configured:
            raise self._not_usable(
                f"Provider {self.alias!r} is not configured: set {self.variable}."
            )
        if self._api_key and not (self._api_key.isascii() and self._api_key.isprintable()):
            raise self._not_usable(
                f"The key of provider {self.alias!r} has characters that no key has: "
                f"check {self.variable}."
            )
        if self._base_url and split_address(self._base_url) is None:
            raise self._not_usable(
                f"The address of provider {self.alias!r} is none such as http://localhost:8000/v1."
            )
        try:
            self._sdk = import_module(self.module)
        except ImportError as error:
            raise not_installed(self.alias, self.package, self.extra) from error
        try:
            return self._connect()
        except Exception as error:  # an address, a proxy of the environment, a file with roots
            raise self._not_usable(
                f"Provider {self.alias!r} cannot be set up: {self._shown(str(error))}"
            ) from error

    def _not_usable(self, message: str) -> ProviderNotConfigured:
        return ProviderNotConfigured(message, details={"provider": self.alias})

    @abstractmethod
    def _connect(self) -> ClientT:
        """Make the SDK's client, which connects to nothing yet."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        tries = retry_when_busy(lambda: self._stream(request), attempts=self.attempts)
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
        """Yield the reply to one request."""

    async def check(self) -> bool:
        with suppress(MochiError):
            await self.list_models()
            return True
        return False

    def describe(self) -> str:
        if self._base_url is None:
            return self.service
        parts = split_address(self._base_url)
        return "its address" if parts is None else without_login(parts)

    async def aclose(self) -> None:
        client, self._sdk_client = self._sdk_client, None
        if client is not None:
            await self._close(client)

    async def _close(self, client: Any) -> None:  # noqa: ANN401 - most SDKs call it so
        await client.close()

    @contextmanager
    def _translated(self, model: str | None) -> Iterator[None]:
        """Raise the SDK's errors as ours."""
        try:
            yield
        except Exception as error:
            if (translated := self._error_of(error, model)) is None:
                raise
            raise translated from error

    @contextmanager
    def _metadata_request(self, model: str | None) -> Iterator[None]:
        """Raise the SDK's errors as ours; no model runs for the answer: wait ``ANSWER_SECONDS``."""
        try:
            with self._translated(model), anyio.fail_after(ANSWER_SECONDS):
                yield
        except TimeoutError as error:
            raise ProviderUnreachable(
                f"Provider {self.alias!r} at {self.describe()} gives no answer within "
                f"{ANSWER_SECONDS:g} s."
            ) from error

    def _error_of(self, error: Exception, model: str | None) -> MochiError | None:
        """Return our error for one of the SDK's; None for one that is not."""
        if isinstance(error.__cause__, MochiError):  # of a limit, which the SDK took for a failure
            return error.__cause__
        if isinstance(error, (getattr(self._sdk, "APIConnectionError", ()), *http_errors())):
            cause = error.__cause__ or error
            kind = type(cause).__name__
            reason = _SILENCE.get(kind) or self._shown(str(cause)) or kind
            return ProviderUnreachable(
                f"Provider {self.alias!r} at {self.describe()} cannot be reached: {reason}"
            )
        if (refusal := self._refusal_of(error)) is not None:
            refusal = refusal.naming_redirect(getattr(error, "response", None))
            return refusal.redacted(self._shown).as_error(self.alias, model)
        # What is not of the protocol's shape fails in the SDK, or where we read what it made of it.
        is_sdk_error = isinstance(error, attrgetter(self.sdk_error)(self._sdk))
        if not is_sdk_error and not isinstance(error, (ValueError, TypeError, AttributeError)):
            return None
        if not is_sdk_error:  # it may be a mistake of ours
            trace = self._redact("".join(format_exception(error)))
            logger.warning("An answer of provider %r cannot be read\n%s", self.alias, trace)
        return ProviderError(f"Provider {self.alias!r}: {self._shown(str(error))}")

    @abstractmethod
    def _refusal_of(self, error: Exception) -> Refusal | None:
        """Return what the service said; None where the error is not its answer."""

    @asynccontextmanager
    async def _reading(self, stream: Any, model: str) -> AsyncGenerator[UnexpectedBody, None]:  # noqa: ANN401
        """Close an SDK's stream at the end of the block, which notes in the body what has come.

        Raises:
            MochiError: there was no event, but an error or a page.
        """
        body = UnexpectedBody(stream.response)
        try:
            yield body
        finally:
            await stream.close()
        if not body.has_events and (content := body.content) is not None:
            raise self._error_without_events(content, body.content_type, model)

    def _error_without_events(self, content: object, kind: str, model: str) -> MochiError:
        error = content.get("error") if isinstance(content, dict) else None
        if not error:
            text = self._shown(error_text(content)) or "nothing that could be shown"
            return ProviderError(
                f"Provider {self.alias!r} answered with {kind or 'something'} instead of a stream: "
                f"{text}"
            )
        codes = (error.get("code"), error.get("type")) if isinstance(error, dict) else ()
        refusal = Refusal(text=error_text(error) or error_text(content), codes=codes)
        return refusal.redacted(self._shown).as_error(self.alias, model)

    def _shown(self, text: str) -> str:
        """Return the text without secrets, which some services repeat, and not too long."""
        text = self._redact(text)
        return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}{REDACTED}"


def drop_environment_headers(client: Any, headers: dict[str, str] | None = None) -> None:  # noqa: ANN401
    """Replace the headers that an SDK's client has read in the environment.

    The private name is that of ``openai`` 3.54 and ``anthropic`` 2.12; there is no other way.
    """
    client._custom_headers = headers or {}  # noqa: SLF001
