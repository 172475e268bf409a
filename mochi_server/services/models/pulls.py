"""Pulls that clients ask for: each model is fetched once, however many follow it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from pydantic import JsonValue

from ...core.aio import BackgroundTasks, in_daemon_thread
from ...core.feed import Feed, FeedReader
from ...errors import InternalError, JSONObject, MochiError, ModelNotFound
from ...protocol.events import ErrorEvent
from ...providers.registry import ProviderRegistry

logger = logging.getLogger(__name__)

REPORT_SECONDS: Final = 0.2
"""Least time between two reports of how many bytes there are."""

PullEventKind = Literal["pull_progress", "error", "done"]


@dataclass(frozen=True, slots=True)
class PullEvent:
    """One event of a pull; ``done`` is the last one, also after ``error``."""

    kind: PullEventKind
    data: JSONObject

    def payload(self) -> JSONObject:
        return self.data


class PullReports:
    """Takes the progress of a pull in its thread, and hands it to the event loop."""

    interactive = False

    def __init__(self, model: str, report: Callable[[PullEvent], None]) -> None:
        self._model = model
        self._report = report
        self._loop = asyncio.get_running_loop()
        self._reported_at = 0.0

    def say(self, text: str) -> None:
        self._send(message=text, completed=None, total=None)

    def advance(self, done: int, total: int) -> None:
        now = time.monotonic()
        if done < total and now - self._reported_at < REPORT_SECONDS:
            return
        self._reported_at = now
        self._send(message=None, completed=done, total=total)

    def _send(self, **progress: str | int | None) -> None:
        event = PullEvent("pull_progress", {"model": self._model, **progress})
        self._loop.call_soon_threadsafe(self._report, event)


class Pull(Feed[PullEvent]):
    """A model that is being fetched, and those who follow that."""

    def __init__(self, model: str) -> None:
        super().__init__()
        self._latest = PullEvent(
            "pull_progress", {"model": model, "message": None, "completed": None, "total": None}
        )

    def reader(self) -> FeedReader[PullEvent]:
        """Return a new reader, which first gets the latest report."""
        reader = FeedReader(self._readers)
        reader.add(self._latest)
        return reader

    def report(self, event: PullEvent) -> None:
        self._latest = event
        for reader in [*self._readers]:
            if not reader.add(event):
                reader.end()


class ModelPulls:
    """Fetches the models that providers can pull.

    A pull goes on when its clients leave, and at the end of the server it stops; what has come is
    kept where the next one can continue.
    """

    def __init__(self, providers: ProviderRegistry) -> None:
        self._providers = providers
        self._pulls: dict[str, Pull] = {}
        self._tasks = BackgroundTasks()

    async def start(self, model: str) -> FeedReader[PullEvent]:
        """Fetch a model, and return a reader of that; one that is being fetched is only followed.

        Raises:
            ModelNotFound: no provider can pull it.
        """
        pull = self._pulls.get(model)
        if pull is None:
            known = [one.name for one in await self._providers.pullable_models()]
            if model not in known:
                raise ModelNotFound(model=model, details={"available": list[JsonValue](known)})
            pull = self._pulls.get(model)  # another request may have come meanwhile
        if pull is None:
            pull = self._pulls[model] = Pull(model)
            self._tasks.spawn(self._run(model, pull), name=f"pull of {model}")
        return pull.reader()

    async def _run(self, model: str, pull: Pull) -> None:
        provider, name = self._providers.resolve(model)
        try:
            await in_daemon_thread(provider.pull, name, PullReports(model, pull.report))
        except MochiError as error:
            pull.report(PullEvent("error", ErrorEvent.of(error).payload()))
        except Exception:  # the top of a background task
            logger.exception("The pull of %s failed", model)
            pull.report(PullEvent("error", ErrorEvent.of(InternalError()).payload()))
        finally:
            del self._pulls[model]
            pull.report(PullEvent("done", {"model": model}))
            pull.close()

    def stop(self) -> None:
        """End all readers: the server is stopping."""
        for pull in self._pulls.values():
            pull.close()

    async def aclose(self) -> None:
        """Wait for no pull any more; its thread ends with the process."""
        await self._tasks.drain(0)
