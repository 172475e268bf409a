"""Turns the bodies of requests into what the library stores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ninja.errors import ValidationError
from pydantic import BaseModel

from mochi_project.schemas import PromptArguments
from mochi_server.errors import JSONObject
from mochi_server.protocol.messages import now
from mochi_server.protocol.options import NO_OPTIONS
from mochi_server.services.context_window import HISTORY_LENGTH
from mochi_server.services.system_prompts import SystemPromptService
from mochi_server.sessions.types import (
    TOOL_POLICIES,
    AgentSettings,
    ContextWindowConfig,
    SessionMetadata,
    ToolExecutionPolicy,
    ToolSettings,
)

from .schemas import (
    MAX_NAMES,
    AgentSettingsBody,
    ContextWindowPatch,
    SessionPatch,
    ToolSettingsBody,
)

KNOWN = [policy.value for policy in ToolExecutionPolicy]
NOT_A_POLICY = f"Must be one of {', '.join(KNOWN)}."


_OPTIONAL = ToolSettingsBody.model_fields.keys() - ToolSettings.model_fields.keys()
"""Keys that a session has only where they are set."""


async def prompt_text(
    prompts: SystemPromptService,
    content: str | None,
    source_file: str | None,
    arguments: PromptArguments | None,
) -> str | None:
    """Return the text of a system prompt; without ``content``, the text of the named prompt."""
    if content is None and source_file is not None:
        return await prompts.text_for_session(source_file, arguments)
    return content


def tools_of(
    body: ToolSettingsBody | None, stored: ToolSettings | None = None
) -> ToolSettings | None:
    """Return the settings as they are stored.

    Unknown keys and policies are accepted if the session has them already, so that a client can
    send back what it got.
    """
    if body is None:
        return None
    old = {} if stored is None else stored.model_dump(mode="json")
    _refuse("tool_settings", [*_unknown_keys(body, old), *_unknown_policies(body, old)])
    return ToolSettings(**body.model_dump(exclude=_OPTIONAL - body.model_fields_set))


def agents_of(
    body: AgentSettingsBody | None, stored: AgentSettings | None = None
) -> AgentSettings | None:
    if body is None:
        return None
    old = {} if stored is None else stored.model_dump()
    _refuse("agent_settings", list(_unknown_keys(body, old)))
    return AgentSettings(**body.model_dump())


SettingsProblem = tuple[tuple[str, ...], str, str]
"""Path in the settings, pydantic's name for the error, and its message."""


def _unknown_keys(body: BaseModel, old: JSONObject) -> Iterator[SettingsProblem]:
    for key in body.model_extra or {}:
        if key not in old:
            yield (key,), "extra_forbidden", "unknown field"


def _unknown_policies(body: ToolSettingsBody, old: JSONObject) -> Iterator[SettingsProblem]:
    if body.execution_policy not in KNOWN and body.execution_policy != old.get("execution_policy"):
        yield ("execution_policy",), "enum", NOT_A_POLICY
    policies, old_policies = body.tool_policies, old.get(TOOL_POLICIES)
    if policies is None or policies == old_policies:
        return
    if not isinstance(policies, dict):
        yield (TOOL_POLICIES,), "dict_type", "Must be an object with a policy for each name."
        return
    if len(policies) > MAX_NAMES:
        yield (TOOL_POLICIES,), "too_long", f"At most {MAX_NAMES:,} names."
        return
    known = old_policies if isinstance(old_policies, dict) else {}
    for tool, policy in policies.items():
        if policy not in KNOWN and not (tool in known and policy == known[tool]):
            yield (TOOL_POLICIES, tool), "enum", NOT_A_POLICY


def _refuse(field: str, problems: Sequence[SettingsProblem]) -> None:
    if problems:
        raise ValidationError(
            [
                {"loc": ("body", "payload", field, *path), "type": kind, "msg": message}
                for path, kind, message in problems
            ]
        )


CALLS = {"model", "tool_settings", "agent_settings"}
"""Fields on which depends what the model of a session may call, and with which policy."""


def apply_patch(metadata: SessionMetadata, patch: SessionPatch) -> None:
    named = patch.model_fields_set
    if patch.model:
        metadata.model = patch.model
    metadata.label(**patch.labels())
    if "tool_settings" in named:
        metadata.tool_settings = tools_of(patch.tool_settings, metadata.tool_settings)
    if "agent_settings" in named:
        metadata.agent_settings = agents_of(patch.agent_settings, metadata.agent_settings)
    if "options" in named:
        metadata.options = patch.options or NO_OPTIONS
    if "compaction" in named:
        metadata.compaction = patch.compaction
    if "summary_model" in named:
        metadata.summary_model = patch.summary_model
    if patch.context_window is not None:
        metadata.context_window_config = override(
            metadata.context_window_config, patch.context_window
        )


def override(config: ContextWindowConfig | None, patch: ContextWindowPatch) -> ContextWindowConfig:
    """Return the configuration with the window that a person has chosen, or without it."""
    changed = config.model_copy(deep=True) if config else ContextWindowConfig()
    changed.manual_override = patch.manual_override
    if patch.manual_override and patch.current_window != changed.current_window:
        entry = {
            "timestamp": now(),
            "window_size": patch.current_window,
            "reason": "manual_override",
        }
        history = [*changed.adjustment_history, entry]
        changed.adjustment_history = history[-HISTORY_LENGTH:]
        changed.last_adjustment = "manual_override"
        changed.current_window = patch.current_window
    return changed
