"""What a session file's ``metadata`` holds (docs/reference/session-file.md)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError
from typing_extensions import TypedDict

from ..constants import FORMAT_VERSION
from ..protocol.options import ModelOptions

FLAGS = ("pinned", "archived")
"""The labels that are true or false."""
LABELS = ("title", "tags", *FLAGS)
"""What a person writes on a session; in its file only what is set, behind all other keys."""

TITLE_CHARACTERS, TAG_CHARACTERS, MAX_TAGS = 200, 50, 50
SUMMARY_TITLE_CHARACTERS = 80
"""Longest title that is taken from a summary."""

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
TEXT_CALLS = "text_calls"
TOOL_MODE = "tool_mode"
FORKED_FROM = "forked_from"
"""Key of the metadata: which session a fork is of; there only in forks."""
IMPORTED_FROM = "imported_from"
"""Key of the metadata: the conversation of another program that a session was made of; there only
in imported sessions."""
RUN = "run"
"""Key of the metadata: the present or last run, ``{"id", "number"}``."""
SUMMARY_DRAFT = "summary_draft"
"""Key of the metadata: a summary that begins anew, as far as it has come."""
HISTORY_SUMMARY = "history_summary"
"""Key of the metadata: what requests have in the place of the oldest messages."""
COMPACTION = "compaction"
"""Key of the metadata: whether the session's history is compacted; there only where somebody has
set it."""
OWNER = "owner"
"""Key of the metadata: the name of the token that a session belongs to; there only where sessions
belong to tokens."""
OPTIONS = "options"
"""Key of the metadata: options of the model; there only where some are set."""
SESSION_RULES = "policies"
"""Key of the metadata: rules about tool calls; there only while it has some."""


TextCallMode = Literal["on", "ask", "off"]
"""What becomes of calls that a model writes as text: those of tools that are known to be harmless
run as others do and a person is asked about the rest; a person is asked about all; they stay text.
"""


ToolMode = Literal["native", "prompted"]
"""How a model gets its tools: as its provider has them, or described in the system prompt."""


class WithOptionalKeys(BaseModel):
    """What a session file has, with keys beside the fields that are there only where one is set.

    Keys that are not known are kept.
    """

    model_config = _METADATA

    def optional(self, key: str) -> Any:  # noqa: ANN401 - JSON of any writer
        return (self.model_extra or {}).get(key)

    def set_optional(self, key: str, value: JsonValue) -> None:
        """Set a key, or remove it: None."""
        extra = self.model_extra if self.model_extra is not None else {}
        if value is None:
            extra.pop(key, None)
        else:
            extra[key] = value


class ToolSettings(WithOptionalKeys):
    """Which tools a session offers to its model."""

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
        policies = self.optional(TOOL_POLICIES)
        return [*policies] if isinstance(policies, dict) else []

    @property
    def seconds_to_confirm(self) -> float | None:
        """Seconds in which a person can decide about a call, 0 for no limit; None if not set.

        ``confirmation_timeout`` is in a file only where it was set.
        """
        match self.optional(CONFIRMATION_TIMEOUT):
            case bool():
                return None
            case int() | float() as seconds if 0 <= seconds <= MAX_CONFIRMATION_SECONDS:
                return seconds
        return None

    def text_calls_or(self, default: TextCallMode) -> TextCallMode:
        """Return what becomes of calls that the model writes as text.

        ``text_calls`` is in a file only where it was set.
        """
        mode = self.optional(TEXT_CALLS)
        modes: dict[object, TextCallMode] = {"on": "on", "ask": "ask", "off": "off"}
        return modes.get(mode, default) if isinstance(mode, str) else default

    @property
    def is_prompted(self) -> bool:
        """Whether tools are described to the model in the system prompt.

        ``tool_mode`` is in a file only where it was set.
        """
        return bool(self.optional(TOOL_MODE) == "prompted")

    def policies_of(self, tool: str) -> list[JsonValue]:
        """Return all policies for a tool of this name; each of them can require a confirmation.

        ``tool_policies`` is a key of format 1.4, ``{name: policy}``, which is in a file only where
        it was set.
        """
        match self.optional(TOOL_POLICIES):
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


class ConversationSummary(WithOptionalKeys):
    """What a conversation was about."""

    summary: str
    topics: list[str] = Field(default_factory=list)

    @property
    def title(self) -> str | None:
        """The title that an earlier summary has given, else what this one begins with."""
        match self.optional("title"):
            case str() as title if title.strip():
                return title
        return self._first_sentence()

    def _first_sentence(self) -> str | None:
        """Return the first sentence, at most 80 characters; None without text."""
        text = " ".join(self.summary.split())
        if end := _SENTENCE_END.search(text):
            text = text[: end.start()] + end[0].strip(".\u3002")
        if len(text) > SUMMARY_TITLE_CHARACTERS:
            text = text[: SUMMARY_TITLE_CHARACTERS - 3].rstrip() + "..."
        return text or None


class HistorySummary(BaseModel):
    """A summary of the oldest messages, which requests have in their place where all do not fit."""

    model_config = _METADATA

    text: str
    covers: str
    """Digest of the messages that it covers; it counts only for a history that begins so."""
    through_message_id: str | None = None
    """The last of them."""
    model: str | None = None
    """Full name of the model that wrote it."""
    tokens: int = 0
    """Estimate for the text."""
    made_at: str | None = None
    requested: bool = False
    """Whether a person wanted it: then requests have it also where everything would fit."""


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


class SessionMetadata(WithOptionalKeys):
    """The head of a session file, keys in the file's order; unknown ones are kept behind them.

    The labels (:data:`LABELS`) are among those behind: a file has them only when they are set, and
    one of another type, which another program wrote, counts as not set and is kept.
    """

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
        """The title that a person set, else that of the summary; None without either."""
        match self.optional("title"):
            case str() as title if title.strip():
                return title
        return None if self.summary is None else self.summary.title

    @property
    def tags(self) -> list[str]:
        match self.optional("tags"):
            case [*tags]:
                return [tag for tag in tags if isinstance(tag, str)]
        return []

    @property
    def pinned(self) -> bool:
        return self.optional("pinned") is True

    @property
    def archived(self) -> bool:
        return self.optional("archived") is True

    @property
    def labels(self) -> dict[str, Any]:
        """All labels, as responses show them."""
        return {name: getattr(self, name) for name in LABELS}

    @property
    def options(self) -> ModelOptions:
        """The options of its model; what cannot be understood counts as not set."""
        return ModelOptions.read(self.optional(OPTIONS))

    @options.setter
    def options(self, options: ModelOptions) -> None:
        self.set_optional(OPTIONS, options.as_stored() or None)

    @property
    def owner(self) -> str | None:
        """The name of the token that it belongs to; None: to nobody."""
        owner = self.optional(OWNER)
        return owner if isinstance(owner, str) else None

    @owner.setter
    def owner(self, owner: str | None) -> None:
        self.set_optional(OWNER, owner)

    @property
    def summary_draft(self) -> ConversationSummary | None:
        """A summary that begins anew, as far as it has come; the present one is still shown."""
        try:
            return ConversationSummary.model_validate(self.optional(SUMMARY_DRAFT))
        except ValidationError:
            return None

    @summary_draft.setter
    def summary_draft(self, draft: ConversationSummary | None) -> None:
        stored = None if draft is None else draft.model_dump(mode="json")
        self.set_optional(SUMMARY_DRAFT, stored)

    @property
    def history_summary(self) -> HistorySummary | None:
        """A summary of the oldest messages, which may have changed since."""
        try:
            return HistorySummary.model_validate(self.optional(HISTORY_SUMMARY))
        except ValidationError:
            return None

    @history_summary.setter
    def history_summary(self, summary: HistorySummary | None) -> None:
        if summary is None:
            self.set_optional(HISTORY_SUMMARY, None)
        else:
            stored = summary.model_dump(mode="json", exclude_defaults=True)
            self.set_optional(HISTORY_SUMMARY, stored)

    @property
    def compaction(self) -> bool | None:
        """Whether its history is compacted; None: as the preset or the setting says."""
        compaction = self.optional(COMPACTION)
        return compaction if isinstance(compaction, bool) else None

    @compaction.setter
    def compaction(self, compaction: bool | None) -> None:
        self.set_optional(COMPACTION, compaction)

    @property
    def last_run_id(self) -> str | None:
        """The id of the run that was begun last, which may go on."""
        run = self.optional(RUN)
        run_id = run.get("id") if isinstance(run, dict) else None
        return run_id if isinstance(run_id, str) else None

    @property
    def run_number(self) -> int:
        """Which one of the session's runs was begun last, from 1; 0: none."""
        run = self.optional(RUN)
        number = run.get("number") if isinstance(run, dict) else None
        return number if isinstance(number, int) else 0

    def begin_run(self, run_id: str) -> None:
        """Note the session's present run."""
        self.set_optional(RUN, {"id": run_id, "number": self.run_number + 1})

    def label(self, **labels: JsonValue) -> None:
        """Set the named labels; None, False and an empty value remove one."""
        if unknown := labels.keys() - set(LABELS):
            raise TypeError(f"no labels of a session: {', '.join(sorted(unknown))}")
        for name, value in labels.items():
            self.set_optional(name, value or None)
