"""Our own services behind providers: test mode, the built-in model."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack, aclosing
from pathlib import Path

import anyio

from mochi_server.providers.base import ModelRequest
from mochi_server.providers.builtin.provider import LocalProvider
from mochi_server.testmode import script
from mochi_server.testmode.provider import ScriptedProvider

from .local_model import MODEL, folder_with_model
from .model_services import Calls, Service


class TestMode(Service):
    """The provider ``test``: the replies stand in the first message, and last for all."""

    __test__ = False
    model = "lorem"

    def __init__(self) -> None:
        self._replies: list[list[script.Step]] = []

    async def open(self, stack: AsyncExitStack) -> None:
        del stack
        self.provider = ScriptedProvider("it", words_per_second=0)

    def asked(self, message: str) -> str:
        """The message with a block of all that was queued since the last one."""
        if not self._replies:
            return message
        first, *then = self._replies
        self._replies = []
        return f"{message}\n{script.instructions(*first, then=then, lasting=True)}"

    def says(self, thinking: Sequence[str], text: Sequence[str], calls: Calls = ()) -> None:
        reply = [script.text(exactly="".join(text), reasoning="".join(thinking))] if text else []
        self._replies.append([*reply, script.calls(*calls)] if calls else reply)

    def writes_badly(self, name: str, arguments: str) -> None:
        self._replies.append([script.malformed_call(name, arguments)])

    def breaks(self, text: str, error: str | None) -> None:
        end = script.error(500, message=error) if error else script.cut("disconnect")
        self._replies.append([script.text(exactly=text), end])

    def is_busy(self) -> None:
        self._replies.append([script.error(429, retry_after=30, message="slow down")])


class BuiltIn(Service):
    """The smallest model, with its real weights: nobody tells it what to say."""

    model = MODEL
    tools = ()

    async def open(self, stack: AsyncExitStack) -> None:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        models = folder_with_model(folder)
        self.provider = LocalProvider("it", models_path=models, idle_seconds=300)

    async def load(self) -> None:
        """Load the model, which takes longer than a turn of a test may."""
        hello = [{"role": "user", "content": "Hi"}]
        request = ModelRequest(model=self.model, messages=hello, max_tokens=1)
        with anyio.fail_after(60):
            async with aclosing(self.provider.stream(request)) as chunks:
                assert [chunk async for chunk in chunks]

    def says(self, thinking: Sequence[str], text: Sequence[str], calls: Calls = ()) -> None:
        """It says what it likes, and neither thinks nor calls."""
        assert not thinking, "the model does not think"
        assert not calls, "the model has no tools"

    def writes_badly(self, name: str, arguments: str) -> None:
        raise NotImplementedError

    def breaks(self, text: str, error: str | None) -> None:
        raise NotImplementedError

    def is_busy(self) -> None:
        raise NotImplementedError
