"""What a session file's ``metadata`` holds (docs/reference/session-file.md)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timezone
from enum import Enum
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError
from typing_extensions import TypedDict

from ..constants import FORMAT_VERSION, TITLE_CHARACTERS
from ..protocol.options import ModelOptions

LABELS = ("title", "tags", "pinned", "archived")
"""What a person writes on a session; in its file only what is set, behind all other keys."""

MAX_CONFIRMATION_SECONDS = 1e9
"""About 30 years."""

_SENTENCE_END = re.compile("[.!?]+(?=\\s+[^\\sa-z]|\\s*$)|[\u3002\uff01\uff1f]")


_METADATA = ConfigDict(extra="allow", json_schema_serialization_defaults_required=True)
"""Unknown keys are kept; every known one is in what is written."""


class ToolExecutionPolicy(str, Enum):
    """When a person is asked before a tool runs."""

    ALWAYS_CONFIRM = "always_confirm"
    NEVER_CONFIRM = "never_confirm"
    CONFIRM_DESTRUCTIVE = "confirm_destructive"


ALWAYS_CONFIRM = ToolExecutionPolicy.ALWAYS_CONFIRM
TOOL_POLICIES = "tool_policies"
CONFIRMATION_TIMEOUT = "confirmation_timeout"
FORKED_FROM = "forked_from"
"""Key of the metadata, of format 1.5: which session a fork is of; there only in forks."""
IMPORTED_FROM = "imported_from"
"""Key of the metadata, of format 1.5: the conversation of another program that a session was made
of; there only in imported sessions."""
RUN = "run"
"""Key of the metadata, of format 1.5: the present or last run, ``{"id", "number"}``."""
OWNER = "owner"
"""Key of the metadata, of format 1.5: the name of the token that a session belongs to; there only
where sessions belong to tokens."""
OPTIONS = "options"
"""Key of the metadata, of format 1.5: options of the model; there only where some are set."""
SESSION_RULES = "policies"
"""Key of the metadata, of format 1.5: rules about tool calls; there only while it has some."""


class ToolSettings(BaseModel):
    """Which tools a session offers to its model."""

    model_config = _METADATA

    tools: list[str] = Field(default_factory=list)
    tool_group: str | None = None
    execution_policy: Annotated[ToolExecutionPolicy | str, Field(union_mode="left_to_right")] = (
        ALWAYS_CONFIRM
    )
    """A text is a policy of another program: it is kept, and asks about every call."""

    @property
    def policy_in_force(self) -> ToolExecutionPolicy:
        """The policy of the session, as far as single tools have no stricter one."""
        policy = self.execution_policy
        return policy if isinstance(policy, ToolExecutionPolicy) else ALWAYS_CONFIRM

    @property
    def tools_with_policies(self) -> list[str]:
        policies = (self.model_extra or {}).get(TOOL_POLICIES)
        return [*policies] if isinstance(policies, dict) else []

    @property
    def seconds_to_confirm(self) -> float | None:
        """Seconds in which a person can decide about a call, 0 for no limit; None if not set.

        ``confirmation_timeout`` is a key of format 1.5, which is in a file only where it was set.
        """
        match (self.model_extra or {}).get(CONFIRMATION_TIMEOUT):
            case bool():
                return None
            case int() | float() as seconds if 0 <= seconds <= MAX_CONFIRMATION_SECONDS:
                return seconds
        return None

    def policies_of(self, tool: str) -> list[JsonValue]:
        """Return all policies for a tool of this name; each of them can require a confirmation.

        ``tool_policies`` is a key of format 1.4, ``{name: policy}``, which is in a file only where
        it was set.
        """
        match (self.model_extra or {}).get(TOOL_POLICIES):
            case None:
                return [self.execution_policy]
            case dict() as policies:
                own = [policies[tool]] if tool in policies else []
                return [self.execution_policy, *own]
            case unknown:
                return [self.execution_policy, unknown]


class AgentSettings(BaseModel):
    """Which agents a session may call."""

    model_config = _METADATA

    enabled_agents: list[str] = Field(default_factory=list)
    selection_metadata: dict[str, Any] | None = None


class SessionCreationOptions(TypedDict, total=False):
    """Keyword arguments of ``SessionManager.create``."""

    system_prompt: str | None
    source_file: str | None
    tool_settings: ToolSettings | None
    agent_settings: AgentSettings | None
    session_id: str | None
    labels: Mapping[str, JsonValue] | None
    options: ModelOptions


class ConversationSummary(BaseModel):
    """What a conversation was about."""

    model_config = _METADATA

    summary: str
    topics: list[str] = Field(default_factory=list)

    @property
    def title(self) -> str | None:
        """The first sentence without its full stop, at most 80 characters; None without text."""
        text = " ".join(self.summary.split())
        if end := _SENTENCE_END.search(text):
            text = text[: end.start()] + end[0].strip(".\u3002")
        if len(text) > TITLE_CHARACTERS:
            text = text[: TITLE_CHARACTERS - 3].rstrip() + "..."
        return text or None


class ContextWindowConfig(BaseModel):
    """The context window of a session, and how it came about."""

    model_config = _METADATA

    dynamic_enabled: bool = True
    current_window: int | None = None
    last_adjustment: str | None = None
    """``initial_setup``, ``usage_threshold``, ``model_change``, ``no_adjustment``, …"""
    adjustment_history: list[dict[str, Any]] = Field(default_factory=list)
    """The last ten changes: ``{"timestamp", "window_size", "reason"}``; old writers differ."""
    manual_override: bool = False


class SessionMetadata(BaseModel):
    """The head of a session file, keys in the file's order; unknown ones are kept behind them.

    The labels (:data:`LABELS`) are among those behind: a file has them only when they are set, and
    one of another type, which another program wrote, counts as not set and is kept.
    """

    model_config = ConfigDict(extra="allow")

    session_id: str
    model: str
    created_at: str
    updated_at: str
    message_count: int = 0
    summary: ConversationSummary | None = None
    summary_model: str | None = None
    format_version: str = FORMAT_VERSION
    tool_settings: ToolSettings | None = None
    agent_settings: AgentSettings | None = None
    context_window_config: ContextWindowConfig | None = None

    @property
    def title(self) -> str | None:
        """The title that a person set, else the beginning of the summary; None without either."""
        match self._label("title"):
            case str() as title if title.strip():
                return title
        return None if self.summary is None else self.summary.title

    @property
    def tags(self) -> list[str]:
        match self._label("tags"):
            case [*tags]:
                return [tag for tag in tags if isinstance(tag, str)]
        return []

    @property
    def pinned(self) -> bool:
        return self._label("pinned") is True

    @property
    def archived(self) -> bool:
        return self._label("archived") is True

    @property
    def labels(self) -> dict[str, Any]:
        """All four labels, as responses show them."""
        return {name: getattr(self, name) for name in LABELS}

    @property
    def options(self) -> ModelOptions:
        """The options of its model; what cannot be understood counts as not set."""
        return ModelOptions.read((self.model_extra or {}).get(OPTIONS))

    @options.setter
    def options(self, options: ModelOptions) -> None:
        extra = self.model_extra if self.model_extra is not None else {}
        if stored := options.as_stored():
            extra[OPTIONS] = stored
        else:
            extra.pop(OPTIONS, None)

    @property
    def owner(self) -> str | None:
        """The name of the token that it belongs to; None: to nobody."""
        owner = (self.model_extra or {}).get(OWNER)
        return owner if isinstance(owner, str) else None

    @owner.setter
    def owner(self, owner: str | None) -> None:
        extra = self.model_extra if self.model_extra is not None else {}
        if owner is None:
            extra.pop(OWNER, None)
        else:
            extra[OWNER] = owner

    @property
    def last_run_id(self) -> str | None:
        """The id of the run that was begun last, which may go on."""
        run = (self.model_extra or {}).get(RUN)
        run_id = run.get("id") if isinstance(run, dict) else None
        return run_id if isinstance(run_id, str) else None

    @property
    def run_number(self) -> int:
        """Which one of the session's runs was begun last, from 1; 0: none."""
        run = (self.model_extra or {}).get(RUN)
        number = run.get("number") if isinstance(run, dict) else None
        return number if isinstance(number, int) else 0

    def begin_run(self, run_id: str) -> int:
        """Note the session's present run, and return which one it is, from 1."""
        extra = self.model_extra if self.model_extra is not None else {}
        number = self.run_number + 1
        extra[RUN] = {"id": run_id, "number": number}
        return number

    def _label(self, name: str) -> JsonValue:
        return (self.model_extra or {}).get(name)

    def label(self, **labels: JsonValue) -> None:
        """Set the named labels; None, False and an empty value remove one."""
        if unknown := labels.keys() - set(LABELS):
            raise TypeError(f"no labels of a session: {', '.join(sorted(unknown))}")
        extra = self.model_extra if self.model_extra is not None else {}
        for name, value in labels.items():
            if value:
                extra[name] = value
            else:
                extra.pop(name, None)


# Metadata of all versions; docs/reference/session-file.md lists all writers. No file is changed: a
# session is written in the present version at its next change.

LEGACY_FLAG = "confirmation_necessary"
"""The key of ``tool_settings`` in format 1.1: true asks about every call, false about none."""

OLD_VERSIONS = ("1.0", "1.1", "1.2")
"""Later versions added keys; a ``context_window`` number of 1.0 stays and is ignored."""

_WINDOW_DEFAULTS = {"dynamic_enabled", "adjustment_history", "manual_override"}


class NotMetadata(ValueError):
    """The metadata fit no version of the format; the text says where."""


def version_of(head: dict[str, Any]) -> str:
    return str(head.get("format_version") or "1.0")


def read_metadata(head: dict[str, Any], session_id: str | None = None) -> SessionMetadata:
    """Read metadata of any version; without ``session_id``, the id in the file is used.

    A newer version stays as it is, unknown keys included.

    Raises:
        NotMetadata: they are of a shape that no version has.
    """
    values = _tolerate(head)
    if session_id is not None:
        values["session_id"] = session_id
    try:
        return SessionMetadata.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, ("metadata", *first["loc"])))
        raise NotMetadata(f"{where}: {first['msg']}") from error


def _tolerate(head: dict[str, Any]) -> dict[str, Any]:
    """Return a copy as of today, without what programs of several versions wrote differently."""
    head = {**head, "format_version": head.get("format_version") or FORMAT_VERSION}
    if head["format_version"] in OLD_VERSIONS:
        head["format_version"] = FORMAT_VERSION
    if isinstance(summary := head.get("summary"), str):
        head["summary"] = {"summary": summary, "topics": []} if summary else None
    elif isinstance(summary, dict):
        head["summary"] = {"summary": "", **_without_nulls(summary, {"summary", "topics"})}
    if isinstance(settings := head.get("tool_settings"), dict):
        head["tool_settings"] = _policy(_without_nulls(settings, {"tools", "execution_policy"}))
    if isinstance(settings := head.get("agent_settings"), dict):
        head["agent_settings"] = _without_nulls(settings, {"enabled_agents"})
    if isinstance(config := head.get("context_window_config"), dict):
        head["context_window_config"] = _without_nulls(config, _WINDOW_DEFAULTS)
    # With an empty time, the file's own decides about the order.
    created, updated = head.get("created_at"), head.get("updated_at")
    head["created_at"] = created or updated or ""
    head["updated_at"] = updated or created or ""
    head["model"] = head.get("model") or ""
    if not isinstance(head.get("message_count"), int):
        head["message_count"] = 0
    return head


def _without_nulls(values: dict[str, Any], keys: set[str]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None or key not in keys}


def _policy(settings: dict[str, Any]) -> dict[str, Any]:
    """Set the policy that the legacy flag means, unless there is a policy."""
    necessary = settings.pop(LEGACY_FLAG, None)
    if necessary is not None and "execution_policy" not in settings:
        settings["execution_policy"] = "always_confirm" if necessary else "never_confirm"
    return settings


_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d)(:\d\d)?(?:[.,](\d+))?\s*([Zz]|[+-]\d\d:?\d\d)?"
)


def instant(text: object) -> datetime:
    """Parse a stored time; return it in UTC.

    A time without zone is local time: that is how mochi-coco wrote them.

    Raises:
        ValueError: it is no ISO 8601 time.
    """
    match = _TIME.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"not a time: {text!r}")
    day, minute, second, fraction, zone = match.groups()
    micro = f"{fraction or '0':0<6.6}"
    if zone is None:
        zone = ""
    elif zone in "Zz":
        zone = "+00:00"
    elif ":" not in zone:
        zone = f"{zone[:3]}:{zone[3:]}"
    try:
        moment = datetime.fromisoformat(f"{day}T{minute}{second or ':00'}.{micro}{zone}")
        return moment.astimezone(timezone.utc)
    except (OverflowError, OSError) as error:
        raise ValueError(f"not a time on this machine: {text!r}") from error


def is_before(text: object, moment: datetime) -> bool:
    """Return whether a stored time is earlier; False if it cannot be parsed."""
    try:
        return instant(text) < moment
    except ValueError:
        return False


def microseconds(text: object, *, otherwise: int) -> int:
    """Return a stored time in microseconds since 1970, or ``otherwise`` if it cannot be parsed."""
    try:
        moment = instant(text)
    except ValueError:
        return otherwise
    since = moment - datetime(1970, 1, 1, tzinfo=timezone.utc)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
