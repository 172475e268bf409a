"""Traces for OpenTelemetry: a turn, its requests to models, its tool calls and agents, as spans.

The spans and their attributes are those of OpenTelemetry's conventions for generative AI. No text
of a conversation is among them: no messages, arguments, results, nor words of errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import anyio
from opentelemetry import context, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from ..chat.journal.records import RunHead, RunState
from ..chat.runs.observer import CANCELLED, ObservedRequest, RunObserver
from ..core.aio import in_daemon_thread
from ..core.logs import request_id, trace_context
from ..errors import MochiError, ToolExecutionFailed
from ..protocol.events import (
    AgentComplete,
    AgentStart,
    ConfirmationDecided,
    ConfirmationRequired,
    Event,
    ToolCallStarted,
    ToolResultReady,
)
from .names import clean, provider_name

FLUSH_SECONDS: Final = 2.0
"""Longest wait at the end for a collector to take the last spans."""

# OpenTelemetry's names; its package has all of them only in its latest versions.
AGENT_NAME: Final = "gen_ai.agent.name"
CONVERSATION_ID: Final = "gen_ai.conversation.id"
OPERATION_NAME: Final = "gen_ai.operation.name"
PROVIDER_NAME: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_STREAM: Final = "gen_ai.request.stream"
RESPONSE_FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
RESPONSE_TIME_TO_FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_TYPE: Final = "gen_ai.tool.type"
USAGE_INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
USAGE_OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
ERROR_TYPE: Final = "error.type"

RUN_ID: Final = "mochi.run.id"
RUN_STATE: Final = "mochi.run.state"
REQUEST_ID: Final = "mochi.request.id"

_Attributes = dict[str, str | int | float | Sequence[str]]


@dataclass(slots=True)
class _RunSpans:
    """The spans of a run that have not ended."""

    turn: Span
    calls: dict[tuple[str | None, str], Span] = field(default_factory=dict)
    """By agent and tool call: ids of calls of different agents may be the same."""
    agents: dict[str, Span] = field(default_factory=dict)
    """By id of the call that started the agent."""
    agent_of: dict[str, str] = field(default_factory=dict)
    """That id by the session of the agent."""


class Tracing(RunObserver):
    """Makes the spans, and hands them to the exporter."""

    def __init__(self, version: str) -> None:
        """Use the provider that the process has, as under ``opentelemetry-instrument``.

        If it has none, make one, which the variables ``OTEL_*`` configure.
        """
        self._provider: TracerProvider | None = None
        if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
            self._provider = TracerProvider(resource=_resource(version))
            self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = trace.get_tracer("mochi_server", version, self._provider)
        self._runs: dict[str, _RunSpans] = {}
        self._asking: dict[ObservedRequest, Span] = {}

    def on_accepted(self, head: RunHead) -> None:
        # The request may itself be a span here, if something else traces requests.
        parent = context.get_current()
        if not trace.get_current_span(parent).get_span_context().is_valid:
            parent = TraceContextTextMapPropagator().extract(trace_context(), context=parent)
        attributes: _Attributes = {
            OPERATION_NAME: "invoke_agent",
            CONVERSATION_ID: head.session_id,
            REQUEST_MODEL: clean(head.request.model or head.model),
            RUN_ID: head.run_id,
        }
        kind, _, name = (head.request.model or "").partition("/")
        if kind == "agent":
            attributes[AGENT_NAME] = clean(name)
        if identity := request_id():
            attributes[REQUEST_ID] = identity
        span = self._tracer.start_span("invoke_agent", context=parent, attributes=attributes)
        self._runs[head.run_id] = _RunSpans(span)

    def on_events(self, head: RunHead, events: Sequence[Event]) -> None:
        if (spans := self._runs.get(head.run_id)) is None:
            return
        for event in events:
            match event:
                case ToolCallStarted() | ConfirmationDecided(approved=True):
                    self._begin_call(spans, event)
                case ToolResultReady():
                    _end_call(spans, event)
                case AgentStart():
                    self._begin_agent(spans, event)
                case AgentComplete():
                    if (span := spans.agents.pop(event.agent_call_id, None)) is not None:
                        _end(span, None if event.success else "agent_failed")
                case _:
                    pass
            if isinstance(event, ConfirmationRequired | ConfirmationDecided):
                _parent(spans, event.agent_call_id).add_event(
                    f"mochi.{event.type}", {TOOL_NAME: clean(event.tool_name)}
                )

    def _begin_call(self, spans: _RunSpans, event: ToolCallStarted | ConfirmationDecided) -> None:
        spans.calls[event.agent_call_id, event.tool_call_id] = self._start(
            f"execute_tool {clean(event.tool_name)}",
            _parent(spans, event.agent_call_id),
            {
                OPERATION_NAME: "execute_tool",
                TOOL_NAME: clean(event.tool_name),
                TOOL_CALL_ID: clean(event.tool_call_id),
                TOOL_TYPE: "function",
            },
        )

    def _begin_agent(self, spans: _RunSpans, event: AgentStart) -> None:
        call_id, outer = event.agent_call_id, event.parent_call_id
        spans.agent_of[event.session_id] = call_id
        spans.agents[call_id] = self._start(
            f"invoke_agent {event.agent_name}",
            spans.calls.get((outer, call_id)) or _parent(spans, outer),
            {
                OPERATION_NAME: "invoke_agent",
                AGENT_NAME: event.agent_name,
                CONVERSATION_ID: event.session_id,
                REQUEST_MODEL: clean(event.model),
            },
        )

    def on_asked(self, call: ObservedRequest) -> None:
        if (spans := self._runs.get(call.head.run_id)) is None:
            return
        self._asking[call] = self._start(
            f"chat {clean(call.model)}",
            _parent(spans, spans.agent_of.get(call.session_id)),
            {
                OPERATION_NAME: "chat",
                PROVIDER_NAME: provider_name(call.provider),
                REQUEST_MODEL: clean(call.model),
                REQUEST_STREAM: True,
                CONVERSATION_ID: call.session_id,
            },
            SpanKind.CLIENT,
        )

    def on_answered(self, call: ObservedRequest) -> None:
        if (span := self._asking.pop(call, None)) is None:
            return
        if call.first_chunk_at is not None:
            seconds = call.first_chunk_at - call.began_at
            span.set_attribute(RESPONSE_TIME_TO_FIRST_CHUNK, seconds)
        if (finish := call.finish) is not None:
            span.set_attribute(RESPONSE_FINISH_REASONS, [clean(finish.reason)])
            if finish.prompt_eval_count is not None:
                span.set_attribute(USAGE_INPUT_TOKENS, finish.prompt_eval_count)
            if finish.eval_count is not None:
                span.set_attribute(USAGE_OUTPUT_TOKENS, finish.eval_count)
        _end(span, call.error_type)

    def on_ended(self, head: RunHead, state: RunState, error: MochiError | None) -> None:
        if (spans := self._runs.pop(head.run_id, None)) is None:
            return
        for span in (*spans.agents.values(), *spans.calls.values()):
            _end(span, CANCELLED)
        spans.turn.set_attribute(RUN_STATE, state)
        _end(spans.turn, None if error is None else error.code)

    def _start(
        self, name: str, parent: Span, attributes: _Attributes, kind: SpanKind = SpanKind.INTERNAL
    ) -> Span:
        within = trace.set_span_in_context(parent)
        return self._tracer.start_span(name, context=within, kind=kind, attributes=attributes)

    async def aclose(self) -> None:
        """Hand over the spans that have ended, as far as a collector takes them at once."""
        provider = self._provider
        if provider is None:
            return
        with anyio.move_on_after(FLUSH_SECONDS):
            await in_daemon_thread(provider.shutdown)


def _parent(spans: _RunSpans, agent_call_id: str | None) -> Span:
    return spans.turn if agent_call_id is None else spans.agents.get(agent_call_id, spans.turn)


def _end_call(spans: _RunSpans, event: ToolResultReady) -> None:
    if (span := spans.calls.pop((event.agent_call_id, event.tool_call_id), None)) is not None:
        _end(span, None if event.success else event.code or ToolExecutionFailed.code)


def _end(span: Span, error_type: str | None) -> None:
    if error_type is not None:
        span.set_attribute(ERROR_TYPE, error_type)
        span.set_status(Status(StatusCode.ERROR))
    span.end()


def _resource(version: str) -> Resource:
    """Return what the variables say of this service, with its own name where they name none."""
    resource = Resource.create({"service.version": version})
    if str(resource.attributes["service.name"]).startswith("unknown_service"):
        resource = resource.merge(Resource({"service.name": "mochi-server"}))
    return resource
