"""Rules that decide about calls in the place of a person.

Deny wins over ask, and ask over allow; where no rule matches, the session's execution policy says
what to do. In doubt a rule that allows does not match a call, and one that asks or denies does.

Files and the API call rules *policies*: ``policies.json``, ``GET /policies``, and ``policy`` in
``decided_by``.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
import sys
from collections.abc import AsyncIterator, Callable, Container, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import ConfigDict, JsonValue, TypeAdapter, ValidationError

from ...core.aio import in_thread, in_thread_to_completion
from ...core.files import (
    locked_file,
    read_plain,
    replace_file,
    restored_on_failure,
)
from ...core.files import text_of as text_of_file
from ...core.parsed_file import ParsedFile
from ...core.problems import first_problem
from ...errors import ConfirmationUnavailable, JSONObject, PoliciesInvalid
from ...protocol.payload import FieldPayload
from .commands import Fit
from .comparer import Comparer, is_command
from .glob_patterns import check_pattern, pattern_of

logger = logging.getLogger(__name__)

RuleAction = Literal["allow", "ask", "deny"]

EVERY_TOOL = "*"
MAX_BYTES = 1_000_000
_NAME = re.compile(r"[^\s*?\[\]{}]+")
"""What may be the name of a tool: other patterns than ``*`` would never fit."""

STRICTEST_FIRST: tuple[RuleAction, ...] = ("deny", "ask", "allow")


@dataclass(frozen=True, slots=True)
class CallFacts:
    """What rules know of a call."""

    tool: str
    """Name of the tool."""
    arguments: JSONObject
    """Arguments with which it would run, with defaults."""
    source: str
    """``Tool.source`` of the tool."""
    session_id: str | None = None
    """Session of the person's conversation."""
    comparer: Comparer = field(default_factory=Comparer, repr=False, compare=False)
    """Remembers what was compared, also for other calls of the reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRule(FieldPayload):
    """What happens to calls of a tool, or to those whose arguments fit patterns."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    id: str = ""
    """Made of the rest where somebody wrote the rule by hand without one."""
    tool: str
    """Name of the tool, or ``*``."""
    action: RuleAction
    tool_source: str | None = None
    """``Tool.source`` of the tool; None: every tool of the name."""
    arguments: Mapping[str, str] = field(default_factory=dict)
    """Patterns by the name of an argument; all of them must fit."""
    created_at: str | None = None
    created_by: str | None = None
    session_id: str | None = None
    """The session in which alone it holds."""
    waits_for: str | None = None
    """Confirmation about which is being decided: until then it allows nothing."""

    def __post_init__(self) -> None:
        if self.tool != EVERY_TOOL and not _NAME.fullmatch(self.tool):
            raise ValueError(f"{self.tool!a} is no name of a tool, and only * stands for all")
        for pattern in self.arguments.values():
            check_pattern(pattern)
        if not self.id:
            text = json.dumps(self.payload(), sort_keys=True).encode()
            object.__setattr__(self, "id", f"rule_{hashlib.sha256(text).hexdigest()[:16]}")

    def action_for(self, call: CallFacts) -> RuleAction | None:
        """Return what the rule says about a call: ``ask`` where it is in doubt; None: nothing."""
        is_allowing = self.action == "allow"
        names = (self.tool, call.tool)
        if not is_allowing:
            names = (self.tool.casefold(), call.tool.casefold())
        if (
            self.session_id not in (None, call.session_id)
            or self.tool_source not in (None, call.source)
            or (self.tool != EVERY_TOOL and names[0] != names[1])
        ):
            return None
        fit = Fit.YES
        for name, pattern in self.arguments.items():
            value = call.arguments.get(name)
            if isinstance(value, str):
                runs = is_command(call.tool, name, call.arguments)
                found = call.comparer.fit(pattern, value, is_command=runs, is_allowing=is_allowing)
                fit = min(fit, found)
            elif is_allowing and pattern != pattern_of(text_of(value)):  # in doubt: no text
                fit = Fit.NO
            if fit is Fit.NO:
                return None
        return self.action if fit is Fit.YES else "ask"


def text_of(value: JsonValue) -> str:
    """Return a text as it is, and what is none as JSON: an argument that is missing as null."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


_RULES = TypeAdapter(list[CallRule])
_FORM = 'the rules must be a list of objects, each with "tool" and "action"'


@dataclass(frozen=True, slots=True)
class RuleSet:
    """The rules of one place, as far as they can be read."""

    rules: tuple[CallRule, ...] = ()
    problem: str | None = None
    """Why they cannot be read: then every call is asked about."""

    def holding(self, decided: Container[str]) -> RuleSet:
        """Return it without the rules that allow nothing yet, unless they have one of these ids."""
        rules = (
            each
            for each in self.rules
            if each.action != "allow" or each.waits_for is None or each.id in decided
        )
        return replace(self, rules=tuple(rules))


@dataclass(frozen=True, slots=True)
class RuleMatch:
    """What the rules say about a call."""

    action: RuleAction
    rule: CallRule | None = None
    """None: rules cannot be read."""


def match_rules(rule_sets: Sequence[RuleSet], call: CallFacts) -> RuleMatch | None:
    """Return what the rules of several places say about a call; None if none matches."""
    asks = RuleMatch("ask") if any(each.problem is not None for each in rule_sets) else None
    doubt: RuleMatch | None = None
    rules = [rule for each in rule_sets for rule in each.rules]
    for strictest in STRICTEST_FIRST:
        for rule in rules:
            if rule.action != strictest:
                continue
            action = rule.action_for(call)
            if action == strictest and (asks is None or action == "deny"):
                return RuleMatch(action, rule)
            if action == "ask" and doubt is None:
                doubt = RuleMatch("ask", rule)
        if strictest != "allow":
            asks = asks or doubt
    if asks is None and doubt is None:
        return _allow_together([rule for rule in rules if rule.action == "allow"], call)
    return asks or doubt


def _allow_together(rules: Sequence[CallRule], call: CallFacts) -> RuleMatch | None:
    """Return a match with the first of several rules, if each simple command fits one of them."""

    def rule_for(name: str, command: str) -> CallRule | None:
        simple = replace(call, arguments={**call.arguments, name: command})
        return next((rule for rule in rules if rule.action_for(simple) == "allow"), None)

    for name, value in call.arguments.items() if len(rules) > 1 else ():
        if isinstance(value, str) and is_command(call.tool, name, call.arguments):
            used = [rule_for(name, command) for command in call.comparer.parts_of(value)]
            if used and None not in used:
                return RuleMatch("allow", used[0])
    return None


def read_rules(stored: JsonValue) -> RuleSet:
    """Read a list of rules, of ``policies.json`` or of a session's metadata."""
    if not isinstance(stored, list) or not all(isinstance(rule, dict) for rule in stored):
        return RuleSet(problem=_FORM)
    try:
        return RuleSet(tuple(_RULES.validate_python(stored)))
    except ValidationError as error:
        return RuleSet(problem=first_problem(error))


def rule_of(
    call: CallFacts,
    patterns: Mapping[str, str],
    *,
    created_at: str,
    created_by: str | None,
    waits_for: str | None = None,
) -> CallRule:
    """Return the rule by which calls like this one are allowed from now on.

    Args:
        call: The call that was approved; of a session, if the rule holds in that alone.
        patterns: Patterns by the name of an argument; none: all calls of the tool.
        created_at: When it was approved.
        created_by: Who approved it.
        waits_for: Id of the confirmation whose decision it waits for.

    Raises:
        ValueError: a text is no pattern, or the rule would not have allowed this call.
    """
    rule = CallRule(
        tool=call.tool,
        action="allow",
        tool_source=call.source,
        arguments=dict(patterns),
        created_at=created_at,
        created_by=created_by,
        session_id=call.session_id,
        waits_for=waits_for,
    )
    if rule.action_for(call) != "allow":
        raise ValueError("The patterns do not surely fit the arguments of this call.")
    return rule


def let_hold(rules: Sequence[CallRule], rule_id: str) -> list[CallRule]:
    """Return the rules, of which this one waits for no decision any more."""
    return [replace(each, waits_for=None) if each.id == rule_id else each for each in rules]


class RuleFile:
    """The rules of a data folder, which people may edit and several processes share."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = asyncio.Lock()
        """Held also while a thread waits for the lock of the file: the others are needed within."""
        self._file = ParsedFile(path, _read)

    async def load(self) -> RuleSet:
        """Return the rules as they are now; a file that is not there has none."""
        return await in_thread(self._load)

    @asynccontextmanager
    async def adding(self, rule: CallRule) -> AsyncIterator[None]:
        """Add a rule, which holds when what is done within is done.

        If that fails, the file is again what it was.

        Raises:
            ConfirmationUnavailable: the file cannot be written, or not be understood.
        """
        held = ExitStack()
        async with self._lock:
            try:
                change = self._changed(lambda rules: [*rules, rule])
                await in_thread_to_completion(held.enter_context, change)
                yield
            except BaseException:
                try:
                    await in_thread_to_completion(held.__exit__, *sys.exc_info())
                except OSError as error:
                    logger.warning("The rule %s must be removed by hand: %s", rule.id, error)
                raise
            held.callback(self._let_hold, rule.id)
            await in_thread_to_completion(held.close)

    async def remove(self, rule_id: str) -> bool:
        """Remove a rule; return False if there is none of this id. Raises as ``adding``."""
        async with self._lock:
            return await in_thread_to_completion(self._remove, rule_id)

    def _remove(self, rule_id: str) -> bool:
        with self._changed(lambda rules: [each for each in rules if each.id != rule_id]) as changed:
            return changed

    def _let_hold(self, rule_id: str) -> None:
        try:
            self._write(let_hold(self._readable(), rule_id))
        except (OSError, PoliciesInvalid) as error:
            logger.warning("The rule %s does not hold: %s", rule_id, error)

    def _load(self) -> RuleSet:
        try:
            return self._file.load() or RuleSet()
        except OSError as error:
            return RuleSet(problem=f"{self._path.name} cannot be read: {error.strerror or error}")

    @contextmanager
    def _changed(self, change: Callable[[Sequence[CallRule]], list[CallRule]]) -> Iterator[bool]:
        """Write the changed rules and hold the lock; give whether a rule was added or removed."""
        with ExitStack() as held:
            try:
                held.enter_context(locked_file(self._path))
                before = self._readable()
                rules = change(before)
                is_changed = len(rules) != len(before)
                if is_changed:
                    held.enter_context(restored_on_failure(self._path))
                    self._write(rules)
            except OSError as error:
                reason = error.strerror or str(error)
                raise ConfirmationUnavailable.because(error, reason=reason) from error
            yield is_changed

    def _readable(self) -> tuple[CallRule, ...]:
        rule_set = self._load()
        if rule_set.problem is not None:
            raise PoliciesInvalid(reason=rule_set.problem)
        return rule_set.rules

    def _write(self, rules: Sequence[CallRule]) -> None:
        stored = [each.payload() for each in rules]
        content = f"{json.dumps(stored, ensure_ascii=False, indent=2)}\n".encode()
        if len(content) > MAX_BYTES:
            text = f"{self._path.name} would have more than {MAX_BYTES:,} bytes"
            raise PoliciesInvalid(reason=text)
        replace_file(self._path, [content], private=True)


def _read(path: Path) -> RuleSet:
    content = read_plain(path, MAX_BYTES + 1)[0]
    if len(content) > MAX_BYTES:
        return RuleSet(problem=f"{path.name} has more than {MAX_BYTES:,} bytes")
    try:
        stored = json.loads(text_of_file(content), object_pairs_hook=_unique_keys)
        json.dumps(stored, ensure_ascii=False).encode()  # no response has half a surrogate pair
    except (ValueError, RecursionError) as error:
        return RuleSet(problem=f"{path.name} cannot be read: {error}")
    rule_set = read_rules(stored)
    if rule_set.problem is not None:
        return RuleSet(problem=f"{path.name}: {rule_set.problem}")
    return rule_set


def _unique_keys(pairs: list[tuple[str, JsonValue]]) -> JSONObject:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("a key stands twice in one object")
    return fields
