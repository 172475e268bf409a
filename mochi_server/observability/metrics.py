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
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Final, Literal

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    values,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.process_collector import ProcessCollector

from ..chat.confirmations.confirmation import moment_of
from ..chat.confirmations.store import ConfirmationStore
from ..chat.journal.records import RunHead, RunState
from ..chat.runs.observer import CANCELLED, ObservedRequest, RunObserver
from ..chat.runs.registry import RunRegistry
from ..core.aio import in_thread
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

# Each number would have a second one: when it began.
disable_created_metrics()  # type: ignore[no-untyped-call]

_MODEL = ("gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model")
_CHAT = "chat"
_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
"""Buckets of durations, as OpenTelemetry's conventions have them."""
_RUN_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
_TOKENS = tuple(4**power for power in range(14))
_RATES = (1, 2, 5, 10, 20, 30, 50, 75, 100, 150, 200, 300, 500, 1000)
_LAGS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)


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
        self._registry = registry = CollectorRegistry()
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
        self._process_gauges: dict[str, Gauge] = {}
        self._cpu_seconds = 0.0

        def counter(name: str, text: str, labels: Sequence[str] = ()) -> Counter:
            return Counter(name, text, labels, registry=registry)

        def histogram(
            name: str, text: str, labels: Sequence[str] = (), *, buckets: Sequence[float]
        ) -> Histogram:
            return Histogram(name, text, labels, buckets=buckets, registry=registry)

        self._started = counter("mochi_runs_started_total", "Runs that have begun.")
        self._ended = counter("mochi_runs_ended_total", "Runs that have ended.", ["state"])
        self._run_seconds = histogram(
            "mochi_run_duration_seconds",
            "Time from the begin of a run to its end.",
            ["state"],
            buckets=_RUN_SECONDS,
        )
        self._first_token = histogram(
            "mochi_run_time_to_first_token_seconds",
            "Time from the begin of a run to the first piece of the model's reply.",
            buckets=_SECONDS,
        )
        self._states = self._gauge("mochi_runs", "Runs that have not ended.", ["state"])
        self._events = counter("mochi_events_total", "Events of runs.", ["type"])
        self._duration = histogram(
            "gen_ai_client_operation_duration_seconds",
            "Time that a request to a model took.",
            [*_MODEL, "error_type"],
            buckets=_SECONDS,
        )
        self._first_chunk = histogram(
            "gen_ai_client_operation_time_to_first_chunk_seconds",
            "Time from a request to a model to the first piece of its reply.",
            _MODEL,
            buckets=_SECONDS,
        )
        self._usage = histogram(
            "gen_ai_client_token_usage",
            "Tokens of a request to a model, as its provider has counted them.",
            [*_MODEL, "gen_ai_token_type"],
            buckets=_TOKENS,
        )
        self._rate = histogram(
            "mochi_reply_tokens_per_second",
            "Speed of a reply of a model after its first piece.",
            _MODEL[1:],
            buckets=_RATES,
        )
        self._errors = counter(
            "mochi_provider_errors_total",
            "Errors of providers, also of those that were only asked for their models.",
            ["gen_ai_provider_name", "error_type"],
        )
        self._tool_calls = counter(
            "mochi_tool_calls_total", "Tool calls by outcome.", ["gen_ai_tool_name", "outcome"]
        )
        self._tool_seconds = histogram(
            "mochi_tool_call_duration_seconds",
            "Time that a tool call took, a wait for a process included.",
            ["gen_ai_tool_name"],
            buckets=_SECONDS,
        )
        self._agents = counter("mochi_agents_total", "Work of agents by outcome.", ["outcome"])
        self._confirmed = counter(
            "mochi_confirmations_total", "Confirmations of tool calls by outcome.", ["outcome"]
        )
        self._waiting = self._gauge(
            "mochi_confirmations_waiting",
            "Confirmations that wait for a person, in all processes.",
            mode="livemostrecent",
        )
        self._oldest = self._gauge(
            "mochi_confirmations_oldest_seconds",
            "How long the oldest of them has been waiting.",
            mode="livemostrecent",
        )
        self._lag = histogram(
            "mochi_event_loop_lag_seconds",
            "How late the event loop was, looked at twice a second.",
            buckets=_LAGS,
        )
        info = self._gauge(
            "mochi_build_info", "The version of the server.", ["version"], mode="livemax"
        )
        info.labels(version).set(1)
        self._cpu = counter("process_cpu_seconds_total", "CPU time of all processes.")
        for name, text in (
            ("process_resident_memory_bytes", "Memory of all processes."),
            ("process_virtual_memory_bytes", "Virtual memory of all processes."),
            ("process_open_fds", "Open files of all processes."),
        ):
            self._process_gauges[name] = self._gauge(name, text)
        for name, text in (
            ("process_max_fds", "Most open files of a process."),
            ("process_start_time_seconds", "When the oldest process started."),
        ):
            self._process_gauges[name] = self._gauge(name, text, mode="livemin")
        self.add_gauge("mochi_processes", "Processes that serve.", lambda: 1)
        self.add_gauge(
            "mochi_tool_calls_running", "Tool calls that run now.", lambda: len(self._calls_began)
        )

    def _gauge(
        self, name: str, text: str, labels: Sequence[str] = (), *, mode: _Mode = "livesum"
    ) -> Gauge:
        return Gauge(name, text, labels, registry=self._registry, multiprocess_mode=mode)

    def add_gauge(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Make a gauge of what ``value`` returns; the metrics have the sum of all processes."""
        self._computed_gauges.append((self._gauge(name, text), value))

    # What happens

    def on_events(self, head: RunHead, events: Sequence[Event]) -> None:
        for event in events:
            self._events.labels(event.type).inc()
            match event:
                case RunStart():
                    self._started.inc()
                    self._run_began[head.run_id] = time.perf_counter()
                    self._without_token.add(head.run_id)
                case ToolCallStarted():
                    self._calls_began[_key_of(head, event)] = time.perf_counter()
                case ConfirmationRequired():
                    self._confirmed.labels("asked").inc()
                case ConfirmationDecided():
                    self._confirmed.labels(_outcome_of(event)).inc()
                    if event.approved:
                        self._calls_began[_key_of(head, event)] = time.perf_counter()
                case ToolResultReady():
                    self._count_call(head, event)
                case AgentComplete():
                    self._agents.labels("success" if event.success else "failed").inc()
                case _:
                    pass

    def _count_call(self, head: RunHead, event: ToolResultReady) -> None:
        name = self._tools.bounded(event.tool_name) if event.code != ToolNotFound.code else OTHER
        outcome = "success" if event.success else (event.code or ToolExecutionFailed.code).lower()
        self._tool_calls.labels(name, outcome).inc()
        began = self._calls_began.pop(_key_of(head, event), None)
        if began is not None:
            self._tool_seconds.labels(name).observe(time.perf_counter() - began)

    def on_answered(self, call: ObservedRequest) -> None:
        assert call.ended_at is not None  # noqa: S101
        provider = provider_name(call.provider)
        labels = (_CHAT, provider, self._models.bounded(call.model))
        self._events.labels("delta").inc(call.chunks)
        self._duration.labels(*labels, call.error_type or "").observe(call.ended_at - call.began_at)
        if call.error_type not in {None, CANCELLED}:
            self._errors.labels(provider, call.error_type).inc()
        if call.first_chunk_at is None:
            return
        self._first_chunk.labels(*labels).observe(call.first_chunk_at - call.began_at)
        run_id = call.head.run_id
        if run_id in self._without_token:
            self._without_token.discard(run_id)
            self._first_token.observe(call.first_chunk_at - self._run_began[run_id])
        if call.finish is not None:
            self._count_tokens(call, labels)

    def _count_tokens(self, call: ObservedRequest, labels: tuple[str, str, str]) -> None:
        assert call.finish is not None and call.ended_at is not None  # noqa: S101, PT018
        read, made = call.finish.prompt_eval_count, call.finish.eval_count
        if read is not None:
            self._usage.labels(*labels, "input").observe(read)
        if made is None:
            return
        self._usage.labels(*labels, "output").observe(made)
        seconds = call.ended_at - (call.first_chunk_at or call.began_at)
        if seconds >= SHORTEST_REPLY:
            self._rate.labels(*labels[1:]).observe((made - 1) / seconds)

    def on_provider_error(self, alias: str, error: MochiError) -> None:
        """Count an error of a provider."""
        self._errors.labels(provider_name(alias), error.code).inc()

    def on_ended(self, head: RunHead, state: RunState, error: MochiError | None) -> None:
        del error
        began = self._run_began.pop(head.run_id, None)
        self._without_token.discard(head.run_id)
        for key in [key for key in self._calls_began if key[0] == head.run_id]:
            del self._calls_began[key]
        if state == "waiting":
            return
        self._ended.labels(state).inc()
        if began is not None:
            self._run_seconds.labels(state).observe(time.perf_counter() - began)

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
        self._lag.observe(max(now - due, 0.0))
        if self._lags % LAGS_PER_UPDATE == 0:
            self._update_gauges()
        self._lags += 1
        now = time.perf_counter()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(LAG_SECONDS, self._measure_lag, now + LAG_SECONDS)

    def _update_gauges(self) -> None:
        states = self._runs.states()
        for state in ("queued", "running", "waiting"):
            self._states.labels(state).set(states[state])
        for gauge, current in self._computed_gauges:
            gauge.set(current())
        for family in self._process.collect():
            value = family.samples[0].value
            if family.name in self._process_gauges:
                self._process_gauges[family.name].set(value)
            elif family.name == "process_cpu_seconds":
                self._cpu.inc(max(value - self._cpu_seconds, 0.0))
                self._cpu_seconds = value

    async def _update_confirmations(self) -> None:
        try:
            stored = await self._confirmations.stored()
        except ConfirmationUnavailable:
            return  # Redis is away; the last values stay
        asked = [each.confirmation.asked_at for each in stored if each.decision is None]
        self._waiting.set(len(asked))
        age = 0.0
        if asked:
            oldest = moment_of(min(asked))
            age = max((datetime.now(timezone.utc) - oldest).total_seconds(), 0.0)
        self._oldest.set(age)

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
        MultiProcessCollector(merged, str(self._folder))  # type: ignore[no-untyped-call]
        return merged


def _key_of(
    head: RunHead, event: ToolCallStarted | ConfirmationDecided | ToolResultReady
) -> tuple[str, str | None, str]:
    return head.run_id, event.agent_call_id, event.tool_call_id


def _outcome_of(event: ConfirmationDecided) -> str:
    if event.approved:
        return "approved"
    return "expired" if event.code == ToolConfirmationTimeout.code else "denied"


_Mode = Literal["livesum", "livemin", "livemax", "livemostrecent"]

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
