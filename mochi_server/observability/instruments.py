"""The metrics there are, by what they tell of; docs/reference/metrics.md has each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

# Each number would have a second one: when it began.
disable_created_metrics()  # type: ignore[no-untyped-call]

Mode = Literal["livesum", "livemin", "livemax", "livemostrecent"]
"""What the gauges of several processes come to."""

_MODEL = ("gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model")
_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
"""Buckets of durations, as OpenTelemetry's conventions have them."""
_RUN_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
_TOKENS = tuple(4**power for power in range(14))
_RATES = (1, 2, 5, 10, 20, 30, 50, 75, 100, 150, 200, 300, 500, 1000)
_LAGS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)

_PROCESS_GAUGES: Final[Mapping[str, tuple[str, Mode]]] = {
    "process_resident_memory_bytes": ("Memory of all processes.", "livesum"),
    "process_virtual_memory_bytes": ("Virtual memory of all processes.", "livesum"),
    "process_open_fds": ("Open files of all processes.", "livesum"),
    "process_max_fds": ("Most open files of a process.", "livemin"),
    "process_start_time_seconds": ("When the oldest process started.", "livemin"),
}


class Maker:
    """Makes metrics of one registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

    def counter(self, name: str, text: str, labels: Sequence[str] = ()) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def histogram(
        self, name: str, text: str, labels: Sequence[str] = (), *, buckets: Sequence[float]
    ) -> Histogram:
        return Histogram(name, text, labels, buckets=buckets, registry=self.registry)

    def gauge(
        self, name: str, text: str, labels: Sequence[str] = (), *, mode: Mode = "livesum"
    ) -> Gauge:
        return Gauge(name, text, labels, registry=self.registry, multiprocess_mode=mode)


class RunMetrics:
    """Of runs and their events."""

    def __init__(self, make: Maker) -> None:
        self.started = make.counter("mochi_runs_started_total", "Runs that have begun.")
        self.ended = make.counter("mochi_runs_ended_total", "Runs that have ended.", ["state"])
        self.seconds = make.histogram(
            "mochi_run_duration_seconds",
            "Time from the begin of a run to its end.",
            ["state"],
            buckets=_RUN_SECONDS,
        )
        self.first_token = make.histogram(
            "mochi_run_time_to_first_token_seconds",
            "Time from the begin of a run to the first piece of the model's reply.",
            buckets=_SECONDS,
        )
        self.states = make.gauge("mochi_runs", "Runs that have not ended.", ["state"])
        self.events = make.counter("mochi_events_total", "Events of runs.", ["type"])


class ModelMetrics:
    """Of requests to models."""

    def __init__(self, make: Maker) -> None:
        self.duration = make.histogram(
            "gen_ai_client_operation_duration_seconds",
            "Time that a request to a model took.",
            [*_MODEL, "error_type"],
            buckets=_SECONDS,
        )
        self.first_chunk = make.histogram(
            "gen_ai_client_operation_time_to_first_chunk_seconds",
            "Time from a request to a model to the first piece of its reply.",
            _MODEL,
            buckets=_SECONDS,
        )
        self.usage = make.histogram(
            "gen_ai_client_token_usage",
            "Tokens of a request to a model, as its provider has counted them.",
            [*_MODEL, "gen_ai_token_type"],
            buckets=_TOKENS,
        )
        self.rate = make.histogram(
            "mochi_reply_tokens_per_second",
            "Speed of a reply of a model after its first piece.",
            _MODEL[1:],
            buckets=_RATES,
        )
        self.errors = make.counter(
            "mochi_provider_errors_total",
            "Errors of providers, also of those that were only asked for their models.",
            ["gen_ai_provider_name", "error_type"],
        )


class CallMetrics:
    """Of tool calls, agents and confirmations."""

    def __init__(self, make: Maker) -> None:
        self.calls = make.counter(
            "mochi_tool_calls_total", "Tool calls by outcome.", ["gen_ai_tool_name", "outcome"]
        )
        self.seconds = make.histogram(
            "mochi_tool_call_duration_seconds",
            "Time that a tool call took, a wait for a process included.",
            ["gen_ai_tool_name"],
            buckets=_SECONDS,
        )
        self.agents = make.counter("mochi_agents_total", "Work of agents by outcome.", ["outcome"])
        self.confirmed = make.counter(
            "mochi_confirmations_total", "Confirmations of tool calls by outcome.", ["outcome"]
        )
        self.waiting = make.gauge(
            "mochi_confirmations_waiting",
            "Confirmations that wait for a person, in all processes.",
            mode="livemostrecent",
        )
        self.oldest = make.gauge(
            "mochi_confirmations_oldest_seconds",
            "How long the oldest of them has been waiting.",
            mode="livemostrecent",
        )


class ProcessMetrics:
    """Of the processes that serve."""

    def __init__(self, make: Maker, version: str) -> None:
        self.lag = make.histogram(
            "mochi_event_loop_lag_seconds",
            "How late the event loop was, looked at twice a second.",
            buckets=_LAGS,
        )
        info = make.gauge(
            "mochi_build_info", "The version of the server.", ["version"], mode="livemax"
        )
        info.labels(version).set(1)
        self.cpu = make.counter("process_cpu_seconds_total", "CPU time of all processes.")
        self.gauges = {
            name: make.gauge(name, text, mode=mode)
            for name, (text, mode) in _PROCESS_GAUGES.items()
        }
        """By the name that ``prometheus_client`` has for what the system says."""
