"""From a request's body to what the library keeps."""

from __future__ import annotations

from mochi_server.messages import now
from mochi_server.services.context_window import HISTORY_LENGTH
from mochi_server.services.system_prompts import SystemPromptService
from mochi_server.sessions.types import (
    AgentSettings,
    ContextWindowConfig,
    SessionMetadata,
    ToolSettings,
)

from .schemas import ContextWindowPatch, SessionPatch, StrictAgentSettings, StrictToolSettings


async def prompt_text(
    prompts: SystemPromptService, content: str | None, source_file: str | None
) -> str | None:
    """The text of a system prompt; the named file's where only that is given.

    Raises:
        InvalidRequest: the file's text is empty or too long.
        PromptNotFound: there is no such file.
        StorageError: it cannot be read.
    """
    if content is None and source_file is not None:
        return await prompts.text_for_session(source_file)
    return content


def tools_of(given: StrictToolSettings | None) -> ToolSettings | None:
    """The settings as they are stored."""
    return None if given is None else ToolSettings(**given.model_dump())


def agents_of(given: StrictAgentSettings | None) -> AgentSettings | None:
    """The settings as they are stored."""
    return None if given is None else AgentSettings(**given.model_dump())


def apply_patch(metadata: SessionMetadata, patch: SessionPatch) -> None:
    """Change what the patch names."""
    named = patch.model_fields_set
    if patch.model:
        metadata.model = patch.model
    metadata.label(**patch.labels())
    if "tool_settings" in named:
        metadata.tool_settings = tools_of(patch.tool_settings)
    if "agent_settings" in named:
        metadata.agent_settings = agents_of(patch.agent_settings)
    if "summary_model" in named:
        metadata.summary_model = patch.summary_model
    if patch.context_window is not None:
        metadata.context_window_config = override(
            metadata.context_window_config, patch.context_window
        )


def override(config: ContextWindowConfig | None, patch: ContextWindowPatch) -> ContextWindowConfig:
    """The configuration with a window that a person chose, or with the choice taken back."""
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
