"""Secrets of MCP servers, taken out of texts and logs."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from urllib.parse import quote, unquote
from weakref import WeakSet

from ...providers.common.values import REDACTED, secrets_pattern
from .redaction import MIN_SECRET

_LOGGERS = (
    *("client", "httpx2", "mcp.client.client", "mcp.client.sse", "mcp.client.streamable_http"),
    *("mcp.shared.dispatcher", "mcp.shared.jsonrpc_dispatcher"),
    *(f"{__package__}.servers.connection", f"{__package__}.servers.facts"),
    *("mochi_server.core.aio", "mochi_server.tools.execution"),
    *(f"httpcore2.{name}" for name in ("connection", "http11", "http2", "proxy", "socks")),
)
"""Loggers of the SDK's client, of what it uses, and of what logs its errors."""


class SecretValues:
    """The secrets of one server, and texts without them."""

    def __init__(self) -> None:
        self._values: set[str] = set()
        self._pattern = secrets_pattern(())
        _ALL.add(self)

    def add(self, values: Iterable[str]) -> None:
        new = {form for value in values for form in _forms(value)} - self._values
        if new:
            self._values |= new
            self._pattern = secrets_pattern(self._values)

    def redacted(self, text: str, most: int | None = None) -> str:
        """Return a text with ``…`` for each secret, and of a long one the beginning.

        Args:
            text: The text.
            most: Characters of it that count; a secret that begins among them is found as a whole.
        """
        for match in self._pattern.finditer(text):
            if most is not None and match.start() < most < match.end():
                most = match.end()
        return self._pattern.sub(REDACTED, text[:most])


_ALL: WeakSet[SecretValues] = WeakSet()


class _SecretsFilter(logging.Filter):
    """Takes the secrets of all servers out of records: a logger does not know whose they are."""

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        if (shown := _redacted_by_all(message)) != message:
            record.msg, record.args = shown, None
        if record.exc_info:
            trace = logging.Formatter().formatException(record.exc_info)
            if (shown := _redacted_by_all(trace)) != trace:
                record.exc_info, record.exc_text = None, shown
        return True


_FILTER = _SecretsFilter()


def redact_logs() -> None:
    """Let no logger write secrets that the SDK hands to it; may be called again."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_FILTER)


def _redacted_by_all(text: str) -> str:
    for secrets in list(_ALL):
        text = secrets.redacted(text)
    return text


def _forms(value: str) -> Iterator[str]:
    """Yield a secret, its lines if it has several, and both as they stand in addresses and JSON."""
    for text in (value.strip(), *map(str.strip, value.splitlines())):
        if len(text) >= MIN_SECRET:
            yield from (text, quote(text), quote(text, safe=""), unquote(text))
            yield from (json.dumps(text)[1:-1], repr(text)[1:-1])
