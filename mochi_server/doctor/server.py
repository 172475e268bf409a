"""The server: its programs and limits, its settings and who can reach it, its processes."""

from __future__ import annotations

import os
import platform
import resource
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from ..config import MochiServerSettings, server_processes, unknown_variables, variable_of
from ..core.aio import in_daemon_thread
from ..core.files import max_files
from ..core.processes import processes_in
from ..core.progress import counted
from ..core.tokens import AccessTokenFile, TokensUnusable
from ..runtime import Runtime
from ..server.startup import (
    is_public,
    place_of_redis,
    redis_client,
    redis_package_problem,
    sessions_problem,
)
from ..version import __version__
from .findings import Finding, error, note, ok, warning

if TYPE_CHECKING:
    from redis import Redis

SHORT_TOKEN = 16
"""Characters; shorter ones can be guessed."""

PROMPTS = ("planning_prompt_path", "execution_prompt_path")


async def check_reach(runtime: Runtime) -> list[Finding]:
    return list(reach_findings(runtime.settings))


def reach_findings(settings: MochiServerSettings) -> Iterator[Finding]:
    """Check address, token, names and origins; the token itself is never shown."""
    yield _address(settings)
    token = settings.api_token
    if token is not None and len(token.get_secret_value()) < SHORT_TOKEN:
        yield warning(
            f"MOCHI_API_TOKEN has fewer than {SHORT_TOKEN} characters.",
            'python3 -c "import secrets; print(secrets.token_urlsafe(32))" makes a good one.',
        )
    try:
        AccessTokenFile(settings.tokens_path, settings.token_use_path).load()
    except TokensUnusable as problem:
        yield error(
            f"No token of {settings.tokens_path} is accepted: {problem}.",
            "Correct the file. See docs/reference/tokens.md.",
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
        token = "asks for a token" if settings.demands_token else "asks for no token"
        return ok(f"{text}: programs of this machine alone reach it; it {token}.")
    if not settings.demands_token:
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
    scheme, _, host = origin.partition("://")
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    return scheme == "http" and is_public(name)


async def check_variables(runtime: Runtime) -> list[Finding]:
    findings = [*unknown_findings(unknown_variables()), *_without_effect(runtime)]
    return findings or [ok("Every MOCHI_ variable is a setting.")]


def unknown_findings(variables: Mapping[str, str | None]) -> Iterator[Finding]:
    """Name each variable with the one that was most likely meant; values are never shown."""
    for name, meant in variables.items():
        suggestion = f"Perhaps {meant} was meant." if meant else "mochi-server --help lists all."
        yield warning(f"{name} is not a setting.", suggestion)


def _without_effect(runtime: Runtime) -> Iterator[Finding]:
    settings = runtime.settings
    for field in settings.secret_fields():
        name, _, kind = field.partition("_")
        is_set = kind == "api_key" and getattr(settings, field) is not None
        if is_set and name not in runtime.providers.aliases:
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


FEW_FILES = 4096
FILES_A_STREAM = 3
PACKAGES = ("Django", "uvicorn")

REDIS_SECONDS = 2.0
SLOW_REDIS_SECONDS = 0.1


async def check_machine(runtime: Runtime) -> list[Finding]:  # noqa: ARG001 - like every check
    programs = [f"mochi-server {__version__}", f"Python {platform.python_version()}"]
    programs += [f"{package} {_version_of(package)}" for package in PACKAGES]
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    findings = [ok(", ".join(programs)), files_finding(hard)]
    if os.geteuid() == 0:
        findings.append(
            note(
                "This runs as root, who may write everywhere: what another user may do was not "
                "looked at.",
                "Run it as the user that serves; and serve as a user of its own, because tools "
                "may do what that user may.",
            )
        )
    return findings


def _version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "(not installed)"


def files_finding(hard: int) -> Finding:
    """Judge the hard limit on open files; the server raises its own limit up to it."""
    most = max_files(hard)
    text = f"The server may open {most:,} files; an open stream takes {FILES_A_STREAM}."
    if most >= FEW_FILES:
        return ok(text)
    return warning(text, "Raise the hard limit: ulimit -Hn, or LimitNOFILE= of systemd.")


async def check_processes(runtime: Runtime) -> list[Finding]:
    """Name the versions of the processes that use the data folder now."""
    pids: dict[str, list[str]] = {}
    for process in processes_in(runtime.settings.processes_path):
        pids.setdefault(process.version, []).append(str(process.pid))
    if not pids:
        return [ok("No server uses the data folder now.")]
    named = "; ".join(
        f"mochi-server {version} (process {', '.join(pids[version])})" for version in sorted(pids)
    )
    if pids.keys() == {__version__}:
        return [ok(f"The data folder is used by {named}.")]
    return [
        warning(
            f"Different versions use the data folder: this is {__version__}, and now runs {named}.",
            "For an upgrade that is all right; stop the processes of the old version soon.",
        )
    ]


async def check_redis(runtime: Runtime) -> list[Finding]:
    settings = runtime.settings
    processes = server_processes(settings)
    if (problem := sessions_problem(settings, processes)) is not None:
        return [error(problem, "See docs/how-to/several-workers.md.")]
    count = counted(processes, "worker")
    if settings.redis_url is None:
        return [ok(f"{count}; they look at what they share, no Redis is set.")]
    if (problem := redis_package_problem(settings)) is not None:
        return [error(problem, "Install it, or remove MOCHI_REDIS_URL.")]
    return [ok(f"{count}."), await in_daemon_thread(_redis_finding, settings.redis_url)]


def _redis_finding(url: str) -> Finding:
    from redis import RedisError  # noqa: PLC0415 - an extra

    try:
        with closing(redis_client(url, REDIS_SECONDS)) as client:
            client.ping()
            seconds = min(_time_of(client.ping) for _ in range(3))
            redis_version = _redis_version(client)
    except (RedisError, OSError, ValueError) as failed:
        return error(
            f"Redis at {place_of_redis(url)} cannot be used: {failed}",
            "Start it or correct MOCHI_REDIS_URL: signals come late without it.",
        )
    text = f"Redis{redis_version} at {place_of_redis(url)} answers in {seconds * 1000:.0f} ms."
    if seconds > SLOW_REDIS_SECONDS:
        return warning(text, "Use one that is nearer, or has less to do.")
    return ok(text)


def _time_of(command: Callable[[], object]) -> float:
    began = time.monotonic()
    command()
    return time.monotonic() - began


def _redis_version(client: Redis) -> str:
    """Return the version after a blank; an empty text where the user may not ask for it."""
    from redis import ResponseError  # noqa: PLC0415

    try:
        return f" {client.info('server')['redis_version']}"
    except ResponseError:
        return ""
