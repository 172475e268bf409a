"""The settings: who can reach the server, and variables that nothing reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..config import MochiServerSettings, UnknownVariable, unknown_variables, variable_of
from ..runtime import Runtime
from ..server.startup import is_public
from .findings import Finding, note, ok, warning

SHORT_TOKEN = 16
"""Characters; shorter ones can be guessed."""

OTHER_PROVIDERS = ("openai", "anthropic", "gemini")
PROMPTS = ("planning_prompt_path", "execution_prompt_path")


async def check_reach(runtime: Runtime) -> list[Finding]:
    """Check address, token, names and origins."""
    return list(reach_findings(runtime.settings))


def reach_findings(settings: MochiServerSettings) -> Iterator[Finding]:
    """Say what follows from the settings; the token itself is never shown."""
    yield _address(settings)
    token = settings.api_token
    if token is not None and len(token.get_secret_value()) < SHORT_TOKEN:
        yield warning(
            f"MOCHI_API_TOKEN has fewer than {SHORT_TOKEN} characters.",
            'python3 -c "import secrets; print(secrets.token_urlsafe(32))" makes a good one.',
        )
    if "*" in settings.allowed_hosts:
        text = "MOCHI_ALLOWED_HOSTS is *: the server answers to every name."
        suggestion = "Name the hosts: a web page elsewhere can let its name lead to this server."
        yield note(text, suggestion) if token is not None else warning(text, suggestion)
    for origin in settings.cors_origins:
        if _is_unencrypted(origin):
            yield note(
                f"MOCHI_CORS_ORIGINS has {origin}: whoever is on the way can change its pages, "
                "which may use this server.",
                "Serve these pages by https.",
            )


def _address(settings: MochiServerSettings) -> Finding:
    text = f"The server listens on {settings.host}"
    if not is_public(settings.host):
        token = "asks for a token" if settings.api_token is not None else "asks for no token"
        return ok(f"{text}: programs of this machine alone reach it; it {token}.")
    if settings.api_token is None:
        return warning(
            f"{text}, and MOCHI_API_TOKEN is not set: whoever reaches it can read every session "
            "and run every tool.",
            "Set MOCHI_API_TOKEN, or listen on 127.0.0.1.",
        )
    return note(
        f"{text} and asks for a token; there is no TLS, so that travels in clear text.",
        "Let a proxy with TLS stand before it. See docs/how-to/behind-a-proxy.md.",
    )


def _is_unencrypted(origin: str) -> bool:
    """Return whether the pages of an origin come over the network without TLS."""
    scheme, _, host = origin.partition("://")
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    return scheme == "http" and is_public(name)


async def check_variables(runtime: Runtime) -> list[Finding]:
    """Find misspelt variables, and settings that have no effect here."""
    findings = [*unknown_findings(unknown_variables()), *_without_effect(runtime)]
    return findings or [ok("Every MOCHI_ variable is a setting.")]


def unknown_findings(variables: list[UnknownVariable]) -> Iterator[Finding]:
    """Name each variable with the setting that was most likely meant; values are never shown."""
    for variable in variables:
        meant = variable.suggestion
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
