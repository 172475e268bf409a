"""The presets: files that cannot be used, and what they name that does not exist."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio

from ..core.progress import counted
from ..errors import MochiError, ModelNotFound
from ..runtime import Runtime
from ..services.models.resolver import ModelSetup
from ..sessions.types import ToolSettings
from .findings import Finding, note, ok, shortened, warning

ANSWER_SECONDS = 5.0
"""Longest wait for what the providers say of the models."""


async def check_presets(runtime: Runtime) -> list[Finding]:
    try:
        entries = await runtime.presets.entries()
    except MochiError as error:
        return [warning(error.message, "Correct the rights of the folder.")]
    if not entries:
        return []
    setups = [each.preset.setup(each.name) for each in entries if each.preset is not None]
    findings = [
        warning(f"{runtime.presets.folder}/{each.error_message}", "Correct the file.")
        for each in entries
        if each.error_message is not None
    ]
    findings += [each for setup in setups async for each in _unknown(runtime, setup)]
    findings += await _unfit_models(runtime, setups)
    return [
        ok(f"{counted(len(setups), 'preset')} for sessions."),
        *shortened(findings, lambda count: note(f"{count} problems of presets more.")),
    ]


async def _unknown(runtime: Runtime, setup: ModelSetup) -> AsyncIterator[Finding]:
    """Name the tools and agents of a preset that cannot be used."""
    advice = f"Correct {runtime.presets.folder / setup.name}.md, or add what is missing."
    tools = setup.tool_settings or ToolSettings()
    for text in await runtime.tools.warnings(tools, agents=True):
        yield warning(f"Preset {setup.name!r}: {text}", advice)
    agents = await runtime.agent_source.offer(setup.agent_settings)
    for name in [*agents.unknown, *agents.invalid]:
        yield warning(f"Preset {setup.name!r}: there is no usable agent {name!r}.", advice)


async def _unfit_models(runtime: Runtime, setups: list[ModelSetup]) -> list[Finding]:
    """Name presets whose model a provider that answers does not have, or that cannot think."""
    findings: list[Finding] = []
    with anyio.move_on_after(ANSWER_SECONDS):
        for setup in setups:
            findings += await _unfit_model(runtime, setup)
    return findings


async def _unfit_model(runtime: Runtime, setup: ModelSetup) -> list[Finding]:
    try:
        model = await runtime.chat.conversations.find_model(setup.model)
    except ModelNotFound:
        text = f"Preset {setup.name!r}: there is no model {setup.model!r}."
        return [warning(text, "Name another model in it, or add this one.")]
    except MochiError:  # the check of the providers says why
        return []
    if setup.think and not model.may_think:
        text = f"Preset {setup.name!r}: the model {setup.model!r} cannot think."
        return [warning(text, "Leave think out, or name another model in it.")]
    return []
