"""Metrics for Prometheus; docs/reference/metrics.md has each of them.

What happens in runs is counted when it happens; what there is of something (runs, streams) is a
gauge: each process updates its own now and then, and the one that is scraped at once. Where several
processes serve, their numbers are in files that all of them can read: one answer has them all, also
those of a process that was killed.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, Gauge, Metric, values
from prometheus_client.exposition import choose_encoder
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.process_collector import ProcessCollector

from ..chat.confirmations.store import ConfirmationStore
from ..chat.journal.records import RunHead, RunState
from ..chat.runs.observer import CANCELLED, ObservedRequest, RunObserver
from ..chat.runs.registry import RunRegistry
from ..core.aio import in_thread
from ..core.clock import moment_of
from ..core.leases import FileLock
from ..errors import (
    ConfirmationUnavailable,
    MochiError,
    ToolConfirmationTimeout,
    ToolExecutionFailed,
    ToolNotFound,
)
from ..protocol.events import (
    AgentComplete,
    ConfirmationDecided,
    ConfirmationRequired,
    Event,
    RunStart,
    ToolCallStarted,
    ToolResultReady,
)
from .instruments import CallMetrics, Maker, ModelMetrics, ProcessMetrics, RunMetrics
from .names import clean, provider_name

LAG_SECONDS: Final = 0.5
"""Seconds between two measurements of how late the event loop is."""

LAGS_PER_UPDATE: Final = 10
"""Measurements of the lag from one update of the gauges to the next."""

MOST_NAMES: Final = 100
"""Most values of a label that others choose, such as models; later ones are ``other``."""

OTHER: Final = "other"

SHORTEST_REPLY: Final = 0.1
"""Seconds; what comes faster came at once, and has no speed."""

_CHAT = "chat"


class _Names:
    """The values of a label that others choose: bounded, whatever they choose."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def bounded(self, name: str) -> str:
        name = clean(name)
        if name in self._known:
            return name
        if len(self._known) >= MOST_NAMES:
            return OTHER
        self._known.add(name)
        return name


class Metrics(RunObserver):
    """The metrics of this process, and the answer to who wants those of the server."""

    def __init__(
        self,
        *,
        runs: RunRegistry,
        confirmations: ConfirmationStore,
        version: str,
        folder: Path | None = None,
    ) -> None:
        """Make all metrics, without values.

        Args:
            runs: The runs of this process.
            confirmations: The store of confirmations, which all processes share.
            version: The server's.
            folder: Where several processes keep their numbers; ``prometheus_client`` knows it by
                its variable.
        """
        self._runs = runs
        self._confirmations = confirmations
        self._folder = folder
        self._lock = None if folder is None else _use_files_of_own(folder)
        self._make = make = Maker()
        self._registry = make.registry
        self._of_runs, self._of_models = RunMetrics(make), ModelMetrics(make)
        self._of_calls, self._of_process = CallMetrics(make), ProcessMetrics(make, version)
        self._models, self._tools = _Names(), _Names()
        self._run_began: dict[str, float] = {}
        self._without_token: set[str] = set()
        """Runs of which no token has come."""
        self._calls_began: dict[tuple[str, str | None, str], float] = {}
        """By run, agent and call."""
        self._timer: asyncio.TimerHandle | None = None
        self._lags = 0
        self._computed_gauges: list[tuple[Gauge, Callable[[], float]]] = []
        self._process = ProcessCollector(registry=None)
        self._cpu_seconds = 0.0
        self.add_gauge("mochi_processes", "Processes that serve.", lambda: 1)
        self.add_gauge(
            "mochi_tool_calls_running", "Tool calls that run now.", lambda: len(self._calls_began)
        )

    def add_gauge(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Make a gauge of what ``value`` returns; the metrics have the sum of all processes."""
        self._computed_gauges.append((self._make.gauge(name, text), value))

    # What happens

    def on_events(self, head: RunHead, events: Sequence[Event]) -> None:
        for event in events:
            self._of_runs.events.labels(event.type).inc()
            match event:
                case RunStart():
                    self._of_runs.started.inc()
                    self._run_began[head.run_id] = time.perf_counter()
                    self._without_token.add(head.run_id)
                case ToolCallStarted():
                    self._calls_began[_key_of(head, event)] = time.perf_counter()
                case ConfirmationRequired():
                    self._of_calls.confirmed.labels("asked").inc()
                case ConfirmationDecided():
                    self._of_calls.confirmed.labels(_outcome_of(event)).inc()
                    if event.approved:
                        self._calls_began[_key_of(head, event)] = time.perf_counter()
                case ToolResultReady():
                    self._count_call(head, event)
                case AgentComplete():
                    self._of_calls.agents.labels("success" if event.success else "failed").inc()
                case _:
                    pass

    def _count_call(self, head: RunHead, event: ToolResultReady) -> None:
        name = self._tools.bounded(event.tool_name) if event.code != ToolNotFound.code else OTHER
        outcome = "success" if event.success else (event.code or ToolExecutionFailed.code).lower()
        self._of_calls.calls.labels(name, outcome).inc()
        began = self._calls_began.pop(_key_of(head, event), None)
        if began is not None:
            self._of_calls.seconds.labels(name).observe(time.perf_counter() - began)

    def on_answered(self, call: ObservedRequest) -> None:
        assert call.ended_at is not None  # noqa: S101
        provider = provider_name(call.provider)
        labels = (_CHAT, provider, self._models.bounded(call.model))
        self._of_runs.events.labels("delta").inc(call.chunks)
        self._of_models.duration.labels(*labels, call.error_type or "").observe(
            call.ended_at - call.began_at
        )
        if call.error_type not in {None, CANCELLED}:
            self._of_models.errors.labels(provider, call.error_type).inc()
        if call.first_chunk_at is None:
            return
        self._of_models.first_chunk.labels(*labels).observe(call.first_chunk_at - call.began_at)
        run_id = call.head.run_id
        if run_id in self._without_token:
            self._without_token.discard(run_id)
            self._of_runs.first_token.observe(call.first_chunk_at - self._run_began[run_id])
        if call.finish is not None:
            self._count_tokens(call, labels)

    def _count_tokens(self, call: ObservedRequest, labels: tuple[str, str, str]) -> None:
        assert call.finish is not None and call.ended_at is not None  # noqa: S101, PT018
        read, made = call.finish.prompt_eval_count, call.finish.eval_count
        if read is not None:
            self._of_models.usage.labels(*labels, "input").observe(read)
        if made is None:
            return
        self._of_models.usage.labels(*labels, "output").observe(made)
        seconds = call.ended_at - (call.first_chunk_at or call.began_at)
        if seconds >= SHORTEST_REPLY:
            self._of_models.rate.labels(*labels[1:]).observe((made - 1) / seconds)

    def on_provider_error(self, alias: str, error: MochiError) -> None:
        self._of_models.errors.labels(provider_name(alias), error.code).inc()

    def on_ended(self, head: RunHead, state: RunState, error: MochiError | None) -> None:
        del error
        began = self._run_began.pop(head.run_id, None)
        self._without_token.discard(head.run_id)
        for key in [key for key in self._calls_began if key[0] == head.run_id]:
            del self._calls_began[key]
        if state == "waiting":
            return
        self._of_runs.ended.labels(state).inc()
        if began is not None:
            self._of_runs.seconds.labels(state).observe(time.perf_counter() - began)

    # What there is

    def start(self) -> None:
        """Begin to measure the lag of the event loop, and to update the gauges."""
        self._measure_lag(time.perf_counter())

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._lock is not None:
            self._lock.release()

    def _measure_lag(self, due: float) -> None:
        now = time.perf_counter()
        self._of_process.lag.observe(max(now - due, 0.0))
        if self._lags % LAGS_PER_UPDATE == 0:
            self._update_gauges()
        self._lags += 1
        now = time.perf_counter()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(LAG_SECONDS, self._measure_lag, now + LAG_SECONDS)

    def _update_gauges(self) -> None:
        states = self._runs.states()
        for state in ("queued", "running", "waiting"):
            self._of_runs.states.labels(state).set(states[state])
        for gauge, current in self._computed_gauges:
            gauge.set(current())
        for family in self._process.collect():
            value = family.samples[0].value
            if family.name in self._of_process.gauges:
                self._of_process.gauges[family.name].set(value)
            elif family.name == "process_cpu_seconds":
                self._of_process.cpu.inc(max(value - self._cpu_seconds, 0.0))
                self._cpu_seconds = value

    async def _update_confirmations(self) -> None:
        try:
            stored = await self._confirmations.stored()
        except ConfirmationUnavailable:
            return  # Redis is away; the last values stay
        asked = [each.confirmation.asked_at for each in stored if each.decision is None]
        self._of_calls.waiting.set(len(asked))
        age = 0.0
        if asked:
            oldest = moment_of(min(asked))
            age = max((datetime.now(timezone.utc) - oldest).total_seconds(), 0.0)
        self._of_calls.oldest.set(age)

    async def scrape(self, accept: str = "") -> tuple[bytes, str]:
        """Return the metrics of all processes as text, and its media type.

        Args:
            accept: The header of this name, which chooses between forms of the text.
        """
        self._update_gauges()
        await self._update_confirmations()
        encode, media_type = choose_encoder(accept)
        return await in_thread(lambda: encode(self._merged_registry())), media_type

    def _merged_registry(self) -> CollectorRegistry:
        """Return a registry with the metrics of all processes."""
        if self._folder is None:
            return self._registry
        for path in self._folder.glob(_LOCKS):
            lock = FileLock(path)
            with suppress(OSError):  # it is no file of ours
                if lock.acquire():  # its process has ended
                    mark_process_dead(path.stem, str(self._folder))  # type: ignore[no-untyped-call]
                    lock.release(remove=True)
        merged = CollectorRegistry()
        _AllProcesses(merged, str(self._folder))  # type: ignore[no-untyped-call]
        return merged


class _AllProcesses(MultiProcessCollector):
    """The numbers of all processes, but of those that have made a file and written nothing yet."""

    def collect(self) -> Iterable[Metric]:
        files = [entry.path for entry in os.scandir(self._path) if entry.name.endswith(".db")]
        written: Iterable[Metric] = self.merge([path for path in files if _has_content(path)])  # type: ignore[no-untyped-call]
        return written


def _has_content(path: str) -> bool:
    with suppress(FileNotFoundError):  # its process has ended
        return Path(path).stat().st_size > 0
    return False


def _key_of(
    head: RunHead, event: ToolCallStarted | ConfirmationDecided | ToolResultReady
) -> tuple[str, str | None, str]:
    return head.run_id, event.agent_call_id, event.tool_call_id


def _outcome_of(event: ConfirmationDecided) -> str:
    if event.approved:
        return "approved"
    return "expired" if event.code == ToolConfirmationTimeout.code else "denied"


_LOCKS = "mochi-*.lock"
"""Names of files that a process has locked as long as it lives."""


def _use_files_of_own(folder: Path) -> FileLock:
    """Let this process keep its numbers in files of its own, and return the lock that names them.

    ``prometheus_client`` names them by the process id alone, which processes in containers that
    share the folder may have in common.
    """
    name = f"mochi-{os.getpid()}-{secrets.token_hex(4)}"
    lock = FileLock.create(folder / f"{name}.tmp")
    lock.path = lock.path.rename(folder / f"{name}.lock")  # with this name it is locked
    values.ValueClass = values.MultiProcessValue(lambda: name)  # type: ignore[no-untyped-call]
    return lock
