"""Where rules are kept: in the data folder for all sessions, and in a session for itself."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Container, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol

from ...core.aio import run_to_completion
from ...errors import MochiError, PoliciesInvalid
from ...sessions import ChatSession, SessionManager
from ...sessions.types import SESSION_RULES
from .rule import CallRule, RuleSet, let_hold, read_rules

logger = logging.getLogger(__name__)


class RuleStore(Protocol):
    """The rules that hold for all sessions."""

    async def load(self) -> RuleSet:
        """Return the rules as they are now."""

    def adding(self, rule: CallRule) -> AbstractAsyncContextManager[None]:
        """Add a rule, which holds when what is done within is done, and is gone if that fails.

        Raises:
            ConfirmationUnavailable: it cannot be stored.
        """

    async def remove(self, rule_id: str) -> bool:
        """Remove a rule; return False if there is none of this id. Raises as ``adding``."""


@dataclass(slots=True)
class MemoryRuleStore:
    """Rules of one process, which end with it."""

    _rules: tuple[CallRule, ...] = field(default=())

    async def load(self) -> RuleSet:
        return RuleSet(self._rules)

    @asynccontextmanager
    async def adding(self, rule: CallRule) -> AsyncIterator[None]:
        self._rules += (rule,)
        try:
            yield
        except BaseException:
            await self.remove(rule.id)
            raise
        self._rules = tuple(let_hold(self._rules, rule.id))

    async def remove(self, rule_id: str) -> bool:
        before = self._rules
        self._rules = tuple(rule for rule in before if rule.id != rule_id)
        return len(self._rules) < len(before)


@dataclass(frozen=True, slots=True)
class RulePlaces:
    """The rules of the data folder and those of sessions."""

    shared: RuleStore
    sessions: SessionManager

    async def load(
        self, session_id: str | None = None, decided: Container[str] = ()
    ) -> list[RuleSet]:
        """Return the rules that hold in a session.

        Args:
            session_id: The session; None: those of the data folder alone.
            decided: Ids of rules that hold already: the decision with them is known.
        """
        rule_sets = [await self.shared.load()]
        if session_id is not None:
            rule_sets.append(await self._of_session(session_id))
        return [each.holding(decided) for each in rule_sets]

    async def _of_session(self, session_id: str) -> RuleSet:
        try:
            return _rule_set_of(await self.sessions.get(session_id))
        except MochiError as error:  # nobody knows what it would have denied
            return RuleSet(problem=error.message)

    @asynccontextmanager
    async def adding(self, rule: CallRule) -> AsyncIterator[None]:
        """Add a rule, to its session if it is of one.

        It holds when what is done within is done, and is gone if that fails.

        Raises:
            ConfirmationUnavailable: rules that are there cannot be read, or it cannot be stored.
            SessionNotFound, SessionUnreadable, StorageError: it cannot be added to its session.
        """
        if rule.session_id is None:
            async with self.shared.adding(rule):
                yield
            return

        def add(session: ChatSession) -> None:
            _set_rules(session, [*_readable(session), rule])

        await self.sessions.update(rule.session_id, add)
        try:
            yield
        except BaseException:
            try:
                await self.remove(rule.id, rule.session_id)
            except MochiError as error:
                logger.warning("The rule %s must be removed by hand: %s", rule.id, error.message)
            raise
        await run_to_completion(self._let_hold(rule.id, rule.session_id))

    async def _let_hold(self, rule_id: str, session_id: str) -> None:
        def change(session: ChatSession) -> None:
            _set_rules(session, let_hold(_readable(session), rule_id))

        try:
            await self.sessions.update(session_id, change)
        except MochiError as error:
            logger.warning("The rule %s does not hold: %s", rule_id, error.message)

    async def remove(self, rule_id: str, session_id: str | None = None) -> bool:
        """Remove a rule of the data folder, or of a session; return whether it was there.

        Raises:
            As ``adding``.
        """
        if session_id is None:
            return await self.shared.remove(rule_id)
        removed = False

        def remove(session: ChatSession) -> None:
            nonlocal removed
            rules = _readable(session)
            others = [each for each in rules if each.id != rule_id]
            removed = len(others) < len(rules)
            if removed:
                _set_rules(session, others)

        await self.sessions.update(session_id, remove)
        return removed


def _rule_set_of(session: ChatSession) -> RuleSet:
    stored = session.metadata.optional(SESSION_RULES)
    rule_set = RuleSet() if stored is None else read_rules(stored)
    if rule_set.problem is not None:
        return RuleSet(problem=f"session {session.session_id}: {rule_set.problem}")
    return RuleSet(tuple(_own_rules(rule_set.rules, session.session_id)))


def _own_rules(rules: Sequence[CallRule], session_id: str) -> Iterator[CallRule]:
    """Yield the rules that hold in a session, of those in its file.

    The file may be a copy of another session's: then a rule may name that session. What it denies,
    or asks about, holds in the copy as well; what it allows does not.
    """
    for rule in rules:
        if rule.session_id in (None, session_id):
            yield rule
        elif rule.action != "allow":
            yield replace(rule, session_id=session_id)


def _readable(session: ChatSession) -> tuple[CallRule, ...]:
    rule_set = _rule_set_of(session)
    if rule_set.problem is not None:
        raise PoliciesInvalid(reason=rule_set.problem)
    return rule_set.rules


def _set_rules(session: ChatSession, rules: Sequence[CallRule]) -> None:
    session.metadata.set_optional(SESSION_RULES, [each.payload() for each in rules] or None)
