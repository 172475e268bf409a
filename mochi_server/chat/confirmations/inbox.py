"""The confirmations of all sessions, for those who decide: lists, decisions, rules, history."""

from __future__ import annotations

import base64
import binascii
from bisect import bisect_right
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from ...core.aio import in_thread
from ...core.audit import NO_AUDIT_LOG, AuditLog
from ...core.caller import current_caller, may_see, require
from ...core.clock import timestamp
from ...errors import InvalidRequest, JSONObject, PolicyNotFound, SessionNotFound
from ...tools.base import InvalidArguments, ToolFailed
from ...tools.catalogue import ToolCatalogue
from ...tools.functions.results import object_or_empty
from ...tools.functions.schema_arguments import SchemaArguments
from ..rules.places import RulePlaces
from ..rules.rule import CallFacts, CallRule, RuleSet, rule_of
from ..session_agents import SessionAgents
from .confirmation import (
    Confirmation,
    ConfirmationDecision,
    ConfirmationRecord,
    StoredConfirmation,
    dump,
    not_found,
)
from .store import ConfirmationStore

PAGE = 100
"""Entries of a page."""

_Key = tuple[str, int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmationFilter:
    """Which confirmations are listed; None: all."""

    session_id: str | None = None
    agent: str | None = None
    """Name of the agent whose call it is."""
    tool: str | None = None
    older_than: timedelta | None = None


@dataclass(frozen=True, slots=True)
class ConfirmationPage:
    """A part of what waits for a decision, the oldest first."""

    confirmations: list[Confirmation]
    next_cursor: str | None
    """The cursor of the next page; None on the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmationInbox:
    """What a person does with confirmations."""

    store: ConfirmationStore
    rule_places: RulePlaces
    tools: ToolCatalogue
    agents: SessionAgents
    resume: Callable[[str], None]
    """Called with the id of a run about which was decided, which may wait without a process."""
    audit: AuditLog = NO_AUDIT_LOG

    async def page(
        self,
        chosen: ConfirmationFilter | None = None,
        *,
        limit: int = PAGE,
        cursor: str | None = None,
    ) -> ConfirmationPage:
        """Return what waits for a decision, the oldest first.

        Raises:
            InvalidRequest: the cursor is none of this list.
            ConfirmationUnavailable: the store cannot be reached.
        """
        chosen = chosen or ConfirmationFilter()
        after = None if cursor is None else _key_in(cursor)
        pending = await self.pending(chosen)
        begin = 0 if after is None else bisect_right(pending, after, key=_key_of)
        page, rest = pending[begin : begin + limit], pending[begin + limit :]
        return ConfirmationPage(page, _cursor(page[-1]) if rest else None)

    async def pending(self, chosen: ConfirmationFilter) -> list[Confirmation]:
        """Return what waits for a decision, the oldest first."""
        pending = await self.store.pending(
            session_id=chosen.session_id,
            agent=chosen.agent,
            tool=chosen.tool,
            older_than=chosen.older_than,
        )
        return [each for each in pending if may_see(each.owner)]

    async def find(self, confirmation_id: str) -> StoredConfirmation | None:
        """Return what is stored; None if it is unknown, consumed, or of somebody else."""
        stored = await self.store.find(confirmation_id)
        return stored if stored is not None and may_see(stored.confirmation.owner) else None

    async def decide(
        self,
        confirmation_id: str,
        *,
        approved: bool,
        reason: str | None = None,
        arguments: JSONObject | None = None,
        remember: Literal["session", "tool"] | None = None,
        patterns: Mapping[str, str] | None = None,
        session_id: str | None = None,
    ) -> JSONObject:
        """Decide about a call, whichever process waits for it; the first decision counts.

        Args:
            confirmation_id: What is decided.
            approved: Whether the call may run.
            reason: Told to the model when the call is denied.
            arguments: With an approval, what the tool gets instead of the model's arguments, or
                the answer to a tool that asks while it runs.
            remember: With an approval, where a rule is kept that allows such calls from now on.
            patterns: Patterns of the rule by the name of an argument; none: every call of the tool.
            session_id: The session whose confirmation it must be; None: any.

        Returns:
            ``{"confirmation_id", "approved"}``, and ``rule_id`` if a rule was kept.

        Raises:
            Forbidden: the caller lacks the right ``tools``; or ``admin``, for a rule that would
                hold in sessions of others.
            ConfirmationNotFound, ToolConfirmationTimeout: nothing waits for this decision.
            InvalidRequest: the changed arguments do not fit the tool, the patterns do not fit the
                call, or its session is not kept and can remember nothing; it still waits.
            ConfirmationUnavailable: the store cannot be reached, or the rule not be kept.
        """
        require("tools")
        if remember == "tool":
            _check_rules_of_all()
        if (remember is not None and not approved) or (patterns and remember is None):
            raise InvalidRequest(
                "Only an approval can be remembered; only then there are patterns."
            )
        pending = await self._pending(confirmation_id, session_id)
        changed = rule = None
        if not approved:
            arguments = None
        elif pending is not None:
            arguments, changed = await self._arguments(pending, arguments)
            if remember is not None:
                rule = await self._rule(pending, arguments, remember, patterns or {})
        decision = ConfirmationDecision(
            approved=approved,
            reason=reason,
            arguments=arguments,
            decided_by=current_caller().name,
            remember=remember,
            rule_id=None if rule is None else rule.id,
        )
        # The rule is there first, but does not hold before: another decision may be quicker.
        async with nullcontext() if rule is None else self.rule_places.adding(rule):
            decided = await self.store.decide(confirmation_id, decision, session_id=session_id)
        self.resume(decided.run_id)
        await self.audit.record(
            "allow call" if approved else "deny call",
            confirmation_id=confirmation_id,
            session_id=decided.session_id,
            run_id=decided.run_id,
            tool=decided.tool_name,
            changed_arguments=changed,
            remember=remember,
            rule_id=decision.rule_id,
        )
        answer: JSONObject = {"confirmation_id": confirmation_id, "approved": approved}
        return answer if rule is None else {**answer, "rule_id": rule.id}

    async def history(
        self, *, limit: int = PAGE, before: str | None = None
    ) -> list[ConfirmationRecord]:
        """Return what was decided and acted on, the latest first; see ``ConfirmationStore``."""
        return await self.store.history(limit=limit, before=before, caller=current_caller())

    async def rules(self, session_id: str | None = None) -> list[RuleSet]:
        """Return the rules of the data folder, then those of a session.

        Raises:
            SessionNotFound: there is no such session.
        """
        if session_id is not None:
            await self.rule_places.sessions.check_exists(session_id)
        return await self.rule_places.load(session_id)

    async def remove_rule(self, rule_id: str, session_id: str | None = None) -> None:
        """Remove a rule of the data folder, or of a session.

        Raises:
            PolicyNotFound: there is no such rule.
            SessionNotFound, SessionUnreadable, StorageError: the session cannot be changed.
            ConfirmationUnavailable: the rules cannot be read or written.
            Forbidden: the rule holds in sessions of others.
        """
        if session_id is None:
            _check_rules_of_all()
        if not await self.rule_places.remove(rule_id, session_id):
            raise PolicyNotFound(rule_id=rule_id)

    async def _pending(self, confirmation_id: str, session_id: str | None) -> Confirmation | None:
        """Return a confirmation that waits; None if the store would refuse a decision.

        Raises:
            ConfirmationNotFound: it is of a session that the caller does not see.
        """
        stored = await self.store.find(confirmation_id)
        if stored is None:
            return None
        confirmation = stored.confirmation
        if not may_see(confirmation.owner):
            raise not_found(confirmation_id, session_id)
        is_of_session = session_id in (None, confirmation.session_id)
        return confirmation if is_of_session and stored.decision is None else None

    async def _arguments(
        self, confirmation: Confirmation, arguments: JSONObject | None
    ) -> tuple[JSONObject | None, str | None]:
        """Return what the tool gets instead of its arguments, if that differs, and where it does.

        Raises:
            InvalidRequest: they do not fit.
        """
        if confirmation.elicitation is not None:
            return _answer_to(confirmation.elicitation, arguments or {}), None
        if arguments is None:
            return None, None
        arguments = await self._completed(confirmation, arguments)
        if dump(arguments) == dump(confirmation.arguments):
            return None, None
        return arguments, _differing(confirmation.arguments, arguments)

    async def _completed(self, confirmation: Confirmation, arguments: JSONObject) -> JSONObject:
        """Return changed arguments as the tool gets them.

        Raises:
            InvalidRequest: they do not fit.
        """
        tool = await self.agents.tool_of(confirmation.tool_source, confirmation.tool_name)
        if tool is None:
            tool = (await self.tools.inventory()).tools.get(confirmation.tool_name)
        if tool is None or tool.source != confirmation.tool_source:
            return arguments  # gone meanwhile; the waiting run still has it, and validates
        try:
            return await tool.complete(arguments)
        except (InvalidArguments, ToolFailed) as error:
            text = f"The arguments do not fit {confirmation.tool_name!r}: {error}"
            raise InvalidRequest(text, details={"tool": confirmation.tool_name}) from error

    async def _rule(
        self,
        confirmation: Confirmation,
        arguments: JSONObject | None,
        remember: Literal["session", "tool"],
        patterns: Mapping[str, str],
    ) -> CallRule:
        """Return the rule that allows such calls, with the arguments of a person if there are.

        Raises:
            InvalidRequest: this cannot be remembered.
        """
        if confirmation.elicitation is not None:
            raise InvalidRequest("An answer to a tool cannot be remembered.")
        if remember == "session":
            await self._check_kept(confirmation.session_id)
        call = CallFacts(
            confirmation.tool_name,
            confirmation.arguments if arguments is None else arguments,
            confirmation.tool_source,
            confirmation.session_id if remember == "session" else None,
        )
        now, name = timestamp(self.store.clock()), current_caller().name
        try:  # not in the event loop: texts are compared
            return await in_thread(
                rule_of,
                call,
                patterns,
                created_at=now,
                created_by=name,
                waits_for=confirmation.confirmation_id,
            )
        except ValueError as error:
            raise InvalidRequest(f"This cannot be remembered: {error}") from error

    async def _check_kept(self, session_id: str) -> None:
        """Check that a session is kept, so that it can have rules.

        Raises:
            InvalidRequest: it is not: a conversation of a client, or a call without one.
        """
        try:
            await self.rule_places.sessions.check_exists(session_id)
        except SessionNotFound as error:
            text = (
                "This cannot be remembered for the session, which is not kept: approve the call "
                'without "remember", or for all sessions.'
            )
            raise InvalidRequest(text, details={"session_id": session_id}) from error


def _check_rules_of_all() -> None:
    """Let only those change the rules of the data folder who see all sessions.

    Raises:
        Forbidden: the caller sees its own alone.
    """
    if current_caller().owner is not None:
        require("admin")


def _answer_to(elicitation: JSONObject, content: JSONObject) -> JSONObject:
    """Return the answer to a tool that asks, as its schema wants it; with defaults for the rest.

    Raises:
        InvalidRequest: it does not fit.
    """
    schema = object_or_empty(elicitation.get("requested_schema"))
    defaults = {
        name: field["default"]
        for name, field in object_or_empty(schema.get("properties")).items()
        if isinstance(field, dict) and "default" in field
    }
    try:
        return SchemaArguments(schema).validate({**defaults, **content})
    except InvalidArguments as error:
        raise InvalidRequest(f"The answer does not fit what is asked: {error}") from error


def _key_of(confirmation: Confirmation) -> _Key:
    return confirmation.asked_at, confirmation.queue_position, confirmation.confirmation_id


def _cursor(confirmation: Confirmation) -> str:
    asked_at, position, confirmation_id = _key_of(confirmation)
    return base64.urlsafe_b64encode(f"{asked_at} {position} {confirmation_id}".encode()).decode()


def _key_in(cursor: str) -> _Key:
    try:
        text = base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True).decode()
        asked_at, position, confirmation_id = text.split(" ")
        return asked_at, int(position), confirmation_id
    except (binascii.Error, UnicodeError, ValueError) as error:
        raise InvalidRequest(
            "The cursor is none of this list.", details={"cursor": cursor}
        ) from error


def _differing(before: JSONObject, after: JSONObject) -> str | None:
    """Return the names of the arguments that a person has changed, for the audit log."""
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return ", ".join(names) or None
