"""Authorizations of MCP servers over HTTP, which a person gives in a browser (OAuth).

A process that needs one shows an address and waits. The browser comes back to whichever process
serves, so the two meet in files of the state folder, as the codes are for one use.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from ....core.aio import BackgroundTasks, in_thread
from ....core.files import make_folder, replace_file
from ....core.logs import one_line
from ....errors import JSONObject, McpAuthorizationInvalid
from ..config.entry import McpServerConfig, McpServerUnusable
from ..failures import reason_of
from ..secret_values import SecretValues
from .tokens import TokenFile, key_of

if TYPE_CHECKING:
    import httpx2

WAIT_SECONDS = 600.0
"""How long a person has for an authorization."""
POLL_SECONDS = 0.5
MAX_ANSWER = 8192
"""Characters of what a browser may bring back."""


@dataclass(frozen=True, slots=True)
class PendingAuthorization:
    """What a person has to do for a server."""

    url: str
    expires_at: float
    """Seconds since the epoch."""


class McpAuthorizations:
    """The authorizations that this process waits for, and the tokens of all.

    Args:
        folder: State folder; ``mcp-oauth.json`` is in it.
        redirect_url: Where browsers come back to.
    """

    def __init__(self, folder: Path, *, redirect_url: str) -> None:
        self.redirect_url = redirect_url
        self.tokens = TokenFile(folder / "mcp-oauth.json")
        self.on_authorized: Callable[[str], None] = lambda _: None
        """Is called with the name of a server that can be used now."""
        self._codes = folder / "mcp-oauth"
        self._tasks = BackgroundTasks()
        self._pending: dict[str, PendingAuthorization] = {}
        self._failures: dict[str, str] = {}
        self._running: set[str] = set()
        """Names of servers for which an authorization is under way."""

    def pending(self, name: str) -> PendingAuthorization | None:
        """Return what a person has to do for a server; None: nothing now."""
        return self._pending.get(name)

    def is_under_way(self, name: str) -> bool:
        """Tell whether an authorization of a server has begun and not ended."""
        return name in self._running

    def failure(self, name: str) -> str | None:
        """Return why the last authorization of a server has failed."""
        return self._failures.get(name)

    def auth(self, config: McpServerConfig, secrets: SecretValues) -> httpx2.Auth | None:
        """Return what signs the requests to a server; None: its headers do.

        A request raises ``AuthorizationNeeded`` where there is no token; what a person has to do
        is ``pending`` soon afterwards. Tokens are added to the secrets.
        """
        if config.url is None or any(name.lower() == "authorization" for name in config.headers):
            return None
        from .client import sign  # noqa: PLC0415 - an extra, and slow

        return sign(config, self, secrets)

    def begin(self, config: McpServerConfig, secrets: SecretValues, scope: str | None) -> None:
        """Let a person authorize, unless that is under way.

        Args:
            config: Of the server, expanded.
            secrets: Those of the server, which no error shows.
            scope: What is needed, if it is known.
        """
        from .client import authorize  # noqa: PLC0415 - see above

        if config.name in self._running:
            return
        self._running.add(config.name)
        self._failures.pop(config.name, None)

        async def run() -> None:
            is_authorized = False
            try:
                with anyio.fail_after(WAIT_SECONDS):
                    await authorize(config, self, secrets, scope)
                is_authorized = True
            except TimeoutError:
                self._failures[config.name] = "nobody has authorized it in time"
            except Exception as error:  # noqa: BLE001 - of the SDK and of the server
                reason = one_line(secrets.redacted(reason_of(error)))
                self._failures[config.name] = f"it was not authorized: {reason}"
            finally:
                self._pending.pop(config.name, None)
                self._running.discard(config.name)
            if is_authorized:
                self.on_authorized(config.name)

        self._tasks.spawn(run(), name=f"authorization of MCP server {config.name}")

    async def show(self, name: str, url: str, state: str) -> None:
        """Show a person where to authorize, and accept the answer with this state once."""
        expires_at = time.time() + WAIT_SECONDS
        await in_thread(self._expect, name, state, expires_at)
        self._pending[name] = PendingAuthorization(url, expires_at)

    async def answer(self, state: str) -> JSONObject:
        """Wait for what the browser brings back: ``{"code", "iss"}`` or ``{"error"}``."""
        path = self._codes / key_of(state)
        try:
            while True:
                with suppress(OSError):
                    answer = json.loads(await in_thread(path.with_suffix(".answer").read_bytes))
                    return answer if isinstance(answer, dict) else {}
                await anyio.sleep(POLL_SECONDS)
        finally:
            for suffix in (".expected", ".answer"):
                path.with_suffix(suffix).unlink(missing_ok=True)

    async def complete(self, state: str, answer: JSONObject) -> str:
        """Hand what a browser has brought to the process that waits for it.

        Returns:
            The name of the server.

        Raises:
            McpAuthorizationInvalid: Nobody waits for it, it came before, or it is too long.
        """
        return await in_thread(self._complete, state, answer)

    async def forget(self, config: McpServerConfig) -> None:
        """Remove the tokens of a server that is no longer configured."""
        with suppress(McpServerUnusable, OSError):  # then there are none
            url = (await in_thread(config.expanded)).url
            if url is not None:
                await in_thread(self.tokens.forget, url)

    async def aclose(self) -> None:
        """Wait for nobody any more; may be called again."""
        await self._tasks.drain(0)

    def _expect(self, name: str, state: str, expires_at: float) -> None:
        make_folder(self._codes, private=True)
        for path in self._codes.iterdir():  # of processes that were killed
            if time.time() - path.lstat().st_mtime > WAIT_SECONDS:
                path.unlink(missing_ok=True)
        path = (self._codes / key_of(state)).with_suffix(".expected")
        content = json.dumps({"server": name, "expires_at": expires_at})
        replace_file(path, [content.encode()], private=True)

    def _complete(self, state: str, answer: JSONObject) -> str:
        path = self._codes / key_of(state)
        expected, answered = path.with_suffix(".expected"), path.with_suffix(".answer")
        content = json.dumps(answer)
        try:
            waiting = json.loads(expected.read_text())
            if time.time() > waiting["expires_at"] or len(content) > MAX_ANSWER:
                raise McpAuthorizationInvalid
            replace_file(answered, [content.encode()], new=True, private=True)
        except (OSError, ValueError) as error:
            raise McpAuthorizationInvalid from error
        if not expected.exists():  # the one that waited has ended meanwhile
            answered.unlink(missing_ok=True)
            raise McpAuthorizationInvalid
        return str(waiting["server"])
