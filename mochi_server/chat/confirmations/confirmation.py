"""A call that waits for a person, and the decision on it."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Literal

from pydantic import JsonValue, TypeAdapter

from ...core.clock import moment_of
from ...core.shown_text import shown_arguments
from ...errors import (
    ConfirmationNotFound,
    ConfirmationUnavailable,
    JSONObject,
    ToolConfirmationTimeout,
    ToolExecutionDenied,
)
from ...protocol.payload import FieldPayload

MAX_RECORDED = 8_000
"""Bytes of JSON of arguments in the history: else a few calls with long ones take all its place."""

MAX_RECORDED_NAMES = 20
"""Arguments in the history, of which some are long."""

DENIED = "the user denied this call."


def dump(fields: JSONObject) -> bytes:
    """Encode what is stored of a confirmation or a decision."""
    # Not orjson, which refuses what arguments may have: whole numbers beyond 64 bits, for example.
    return json.dumps(fields, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation(FieldPayload):
    """A call that waits for a person; its payload is an entry of ``/confirmations``."""

    confirmation_id: str
    run_id: str
    session_id: str
    """Session of the person's conversation."""
    tool_name: str
    tool_source: str
    """``Tool.source`` of the tool, which validates changed arguments."""
    arguments: JSONObject
    """Arguments that will run: coerced, with the defaults of what the model left out."""
    call_index: int
    tool_call_id: str
    queue_position: int
    queue_total: int
    asked_at: str
    """As ``timestamp`` writes it."""
    expires_at: str | None
    """None: it waits without limit."""
    agent_name: str | None = None
    agent_call_id: str | None = None
    """Call that started the agent, if an agent makes this call."""
    elicitation: JSONObject | None = None
    """``Elicitation.payload`` of the tool, which runs and asks; the answer are arguments."""
    owner: str | None = None
    """To whom its session belongs."""
    notice: str = ""
    """Why a person is asked whatever policies and rules allow, for a person to read."""
    suggestions: Sequence[JSONObject] = ()
    """Payloads of ``RuleSuggestion``: what an approval may be remembered as."""
    session_kept: bool = True
    """Whether its session is kept, so that an approval can be remembered for it."""

    def __post_init__(self) -> None:
        """Check the times, which may come from a file.

        Raises:
            ValueError: one is none.
        """
        for each in (self.asked_at, self.expires_at):
            if each is not None:
                moment_of(each)

    @property
    def conversation(self) -> tuple[str, str | None, str | None]:
        """The conversation that makes the call: that of the run, or one of an agent in it."""
        return self.run_id, self.agent_name, self.agent_call_id

    @property
    def shown(self) -> str:
        """What a person decides about, with nothing hidden."""
        return shown_arguments(self.arguments if self.elicitation is None else self.elicitation)

    @property
    def timeout_seconds(self) -> float:
        """Time between asking and expiry; 0: it waits without limit."""
        if self.expires_at is None:
            return 0.0
        return (moment_of(self.expires_at) - moment_of(self.asked_at)).total_seconds()

    def payload(self) -> JSONObject:
        """Return the fields by name, and ``shown``; those who see them know the owner."""
        return {**replace(self, owner=None).fields(), "shown": self.shown}

    def fields(self) -> JSONObject:
        """Return the fields by name, as they are stored."""
        return FieldPayload.payload(self)

    def shortened(self) -> Confirmation:
        """Return it as the history keeps it."""
        asked = self.elicitation
        return replace(
            self,
            arguments=shortened(self.arguments),
            elicitation=None if asked is None else shortened(asked),
            suggestions=(),
        )

    def seconds_left(self, now: datetime) -> float:
        """Return the seconds in which it can be decided: at most those that it had at first."""
        if self.expires_at is None:
            return math.inf
        asked_at, expires_at = moment_of(self.asked_at), moment_of(self.expires_at)
        return (expires_at - max(now, asked_at)).total_seconds()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmationDecision(FieldPayload):
    """The answer of a person or a rule, or the reason why there is none."""

    approved: bool
    reason: str | None = None
    arguments: JSONObject | None = None
    """Arguments that replace all of the model's; None keeps those."""
    code: str | None = None
    """Error code when nobody decided."""
    decided_by: str | None = None
    """Name of a token, ``token``, ``loopback``, ``mcp``, ``library`` or ``policy``; None when
    nobody decided."""
    decided_at: str | None = None
    """As ``timestamp`` writes it; the store sets it."""
    remember: Literal["session", "tool"] | None = None
    """Where a rule was kept that decides such calls from now on."""
    rule_id: str | None = None
    """The rule that decided, or that was kept."""

    @property
    def is_expired(self) -> bool:
        return self.code == ToolConfirmationTimeout.code

    @property
    def reason_for_model(self) -> str | None:
        """Why the call does not run, in words for the model."""
        if self.approved or self.code is not None:
            return self.reason
        return f"{DENIED} Reason: {self.reason}" if self.reason else DENIED


EXPIRED = ConfirmationDecision(
    approved=False,
    reason="nobody confirmed the call in time.",
    code=ToolConfirmationTimeout.code,
)
LOST = ConfirmationDecision(
    approved=False,
    reason="the confirmation is gone from the store.",
    code=ConfirmationUnavailable.code,
)
"""The decision for those who wait when a confirmation has vanished from the store."""

RUN_ENDED = ConfirmationDecision(
    approved=False,
    reason="the run has ended.",
    code=ToolExecutionDenied.code,
)
"""The decision when the run ends for another reason, such as a stop, before anybody decides."""


@dataclass(frozen=True, slots=True)
class StoredConfirmation:
    """A confirmation and its decision."""

    confirmation: Confirmation
    decision: ConfirmationDecision | None = None
    """None while it is pending."""


@dataclass(frozen=True, slots=True)
class ConfirmationChange:
    """What happened to a confirmation, in this process or another."""

    kind: Literal["asked", "decided", "expired"]
    confirmation: Confirmation
    decision: ConfirmationDecision | None = None

    def payload(self) -> JSONObject:
        """Return ``{"confirmation", "decision"}``; the decision is null while there is none."""
        decision = None if self.decision is None else self.decision.payload()
        return {"confirmation": self.confirmation.payload(), "decision": decision}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmationRecord:
    """An entry of the history: what was asked, who decided, and what ran.

    Long arguments are ``shortened``, but not those in the decision, which a person has written.
    """

    confirmation: Confirmation
    decision: ConfirmationDecision
    ran: JSONObject | None
    """Arguments with which the tool ran; None if it did not run."""
    recorded_at: str

    def payload(self) -> JSONObject:
        """Return ``{"confirmation", "decision", "ran", "recorded_at"}``."""
        return {**self.fields(), "confirmation": self.confirmation.payload()}

    def fields(self) -> JSONObject:
        """Return the same as it is stored."""
        return {
            "confirmation": self.confirmation.fields(),
            "decision": self.decision.payload(),
            "ran": self.ran,
            "recorded_at": self.recorded_at,
        }


def not_found(confirmation_id: str, session_id: str | None = None) -> ConfirmationNotFound:
    """Return the error for a confirmation that does not wait, or that the caller does not see."""
    if session_id is not None:
        return ConfirmationNotFound(confirmation_id=confirmation_id, session_id=session_id)
    text = f"No confirmation {confirmation_id!r} is pending."
    return ConfirmationNotFound(text, confirmation_id=confirmation_id)


def shortened(arguments: JSONObject) -> JSONObject:
    """Return arguments as the history keeps them: at most about ``MAX_RECORDED`` bytes of JSON.

    Of a long value the beginning of its text, or of its JSON, is kept with a note of its length.
    """
    if len(json.dumps(arguments)) <= MAX_RECORDED:
        return arguments
    most = min(len(arguments), MAX_RECORDED_NAMES)
    short = {
        str(_cut(name, MAX_RECORDED // most // 4)): _cut(value, MAX_RECORDED // most)
        for name, value in islice(arguments.items(), most)
    }
    if len(arguments) > most:
        short["\u2026"] = f"({len(arguments):,} arguments)"
    return short


def _cut(value: JsonValue, limit: int) -> JsonValue:
    if len(json.dumps(value)) <= limit:
        return value
    text = value if isinstance(value, str) else json.dumps(value)
    kept = text[:limit]
    while len(json.dumps(kept)) > limit:  # of escapes, six or twelve characters each
        kept = kept[: len(kept) // 2]
    return f"{kept}\u2026 ({len(text):,} characters)"


CONFIRMATION = TypeAdapter(Confirmation)
DECISION = TypeAdapter(ConfirmationDecision)
RECORD = TypeAdapter(ConfirmationRecord)
