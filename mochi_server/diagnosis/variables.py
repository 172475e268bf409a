"""Variables of the environment that nothing reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..config import UnknownVariable, unknown_variables, variable_of
from ..runtime import Runtime
from .findings import Finding, ok, warning

OTHER_PROVIDERS = ("openai", "anthropic", "gemini")
PROMPTS = ("planning_prompt_path", "execution_prompt_path")


async def look_at_variables(runtime: Runtime) -> list[Finding]:
    """Misspelt variables, and settings that have no effect here."""
    found = [*unknown_findings(unknown_variables()), *_without_effect(runtime)]
    return found or [ok("Every MOCHI_ variable is a setting.")]


def unknown_findings(variables: list[UnknownVariable]) -> Iterator[Finding]:
    """One for each, with the setting that was most likely meant; values are never shown."""
    for variable in variables:
        meant = variable.meant
        suggestion = f"Perhaps {meant} was meant." if meant else "mochi-server --help lists all."
        yield warning(f"{variable.name} is not a setting.", suggestion)


def _without_effect(runtime: Runtime) -> Iterator[Finding]:
    settings = runtime.settings
    for name in OTHER_PROVIDERS:
        field = f"{name}_api_key"
        if name not in runtime.providers.aliases and getattr(settings, field) is not None:
            yield warning(
                f"{variable_of(field)} is set, and this server has no provider {name!r}.",
                "Remove it, or add such a provider: docs/how-to/add-a-provider.md.",
            )
    for field in PROMPTS:
        path: Path = settings.within_data(getattr(settings, field))
        if field in settings.model_fields_set and not path.is_file():
            yield warning(
                f"{variable_of(field)} names {path}, which is no file: the built-in one is used.",
                "Write the file, or remove the variable.",
            )
