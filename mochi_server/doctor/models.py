"""Whether providers answer, how fast, which models they have, and their context windows."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio

from ..config.installation import own_command
from ..core.aio import in_daemon_thread
from ..core.progress import counted
from ..errors import InternalError, MochiError, ProviderUnreachable
from ..providers.base import Provider
from ..providers.builtin.catalogue import CATALOGUE, weights_in
from ..providers.builtin.gguf import NotGGUF, read_header
from ..providers.builtin.provider import LocalProvider
from ..providers.ollama.provider import OllamaProvider
from ..providers.status import PREPARE_SECONDS, NoAnswerInTime, ask_providers
from ..runtime import Runtime
from ..services.context_window import INITIAL_WINDOW, ladder, safe_limit
from .findings import Finding, error, note, ok, warning

ANSWER_SECONDS = 4.0
MAX_SECONDS = PREPARE_SECONDS + ANSWER_SECONDS + 2.0
NAME_SECONDS = 2.0
SLOW_SECONDS = 1.0

FIRST_WITH_TRUNCATE = (0, 12, 4)
"""Ollama before this version does not know ``truncate``, and cuts conversations silently."""

BUILT_IN = frozenset({"local", "test"})

START = {
    "ollama": "Start Ollama (https://ollama.com), or correct MOCHI_OLLAMA_HOST.",
    "local": "It needs no Ollama: docs/explanation/built-in-model.md.",
    "test": "Only test mode needs it: docs/reference/test-mode.md.",
}


@dataclass(slots=True, kw_only=True)
class ProviderReport:
    """What is known of one provider."""

    alias: str
    where: str
    models: int = 0
    version: str | None = None
    seconds: float | None = None
    """Until it answered, the sooner of two times; None where it tells no version."""
    problem: str | None = None
    """Why there is no model, as far as that is known."""
    more: list[Finding] = field(default_factory=list)


async def check_providers(runtime: Runtime) -> list[Finding]:
    registry = runtime.providers
    reports = {
        alias: ProviderReport(alias=alias, where=registry.get(alias).describe())
        for alias in registry.aliases
    }
    errors = await ask_providers(
        registry,
        lambda alias: _complete(reports[alias], registry.get(alias)),
        aliases=registry.aliases,
        tasks=runtime.background,
        limit=ANSWER_SECONDS,
    )
    for alias, failure in errors.items():
        if failure is not None:
            reports[alias].problem = _text_of(failure, reports[alias])
    return list(provider_findings(list(reports.values())))


async def _complete(report: ProviderReport, provider: Provider) -> None:
    """Write down each answer as it comes: it stays when the time is over."""
    if isinstance(provider, OllamaProvider):
        await _resolve(report.where)
        began = time.monotonic()
        report.version = await provider.version()
        report.seconds = time.monotonic() - began
    began = time.monotonic()
    report.models = len(await provider.list_models())
    if report.seconds is not None:
        report.seconds = min(report.seconds, time.monotonic() - began)
    if isinstance(provider, LocalProvider):
        report.more += await in_daemon_thread(_damaged_weights, provider)
    if not report.models:
        empty = "it has no model." if report.version is not None else None
        report.problem = await provider.problem() or empty


async def _resolve(url: str) -> None:
    """Look the name up in a thread that nobody waits for: some resolvers take half a minute.

    Whether it exists, the request says.
    """
    with anyio.move_on_after(NAME_SECONDS) as scope:
        try:
            await in_daemon_thread(socket.getaddrinfo, urlsplit(url).hostname, None)
        except OSError:
            return
    if scope.cancelled_caught:
        raise ProviderUnreachable(f"The name in {url} was not found within {NAME_SECONDS:g} s.")


def _text_of(failure: MochiError, report: ProviderReport) -> str:
    if isinstance(failure, NoAnswerInTime):
        return f"{report.where} does not answer within {ANSWER_SECONDS:g} s."
    if isinstance(failure, InternalError) and (mistake := failure.__cause__) is not None:
        return f"{type(mistake).__name__}: {mistake}"
    return failure.message


def _damaged_weights(provider: LocalProvider) -> list[Finding]:
    damaged = []
    for name, path in weights_in(Path(provider.describe())).items():
        known = CATALOGUE.get(name)
        try:
            size = path.stat().st_size
            if path.is_file():  # opening a pipe would wait
                read_header(path)
        except (NotGGUF, OSError) as failed:
            damaged.append(warning(f"local: {path} cannot be used: {failed}", "Remove it."))
            continue
        if known is not None and size != known.size:
            text = f"local: {path} has {size:,} bytes, and should have {known.size:,}."
            damaged.append(warning(text, f"Remove it, then: {own_command()} pull {name}"))
    return damaged


def provider_findings(reports: Sequence[ProviderReport]) -> Iterator[Finding]:
    """Judge the reports together: where one provider has models, another may be missing."""
    has_model = any(report.models for report in reports)
    for report in reports:
        yield from _findings(report, has_model=has_model)
    if not has_model:
        yield error(
            "There is no model to talk to.",
            f"ollama pull qwen3:8b, or without Ollama: {own_command()} pull",
        )


def _findings(report: ProviderReport, *, has_model: bool) -> Iterator[Finding]:
    if report.problem is not None:
        yield _problem(report, has_model=has_model)
    elif report.models:
        yield _success(report)
    elif report.alias not in BUILT_IN:  # ``test`` is not meant to be seen
        yield note(
            f"{report.alias} at {report.where} lists no model.",
            "Use its models by their names, or correct its address.",
        )
    if report.version is not None and _numbers(report.version) < FIRST_WITH_TRUNCATE:
        yield warning(
            f"{report.alias} {report.version} cuts long conversations without a word.",
            "Update it to 0.12.4 or later.",
        )
    yield from report.more


def _success(report: ProviderReport) -> Finding:
    name = f"{report.alias} {report.version}" if report.version else report.alias
    text = f"{name} at {report.where}: {counted(report.models, 'model')}"
    if report.seconds is None:
        return ok(f"{text}.")
    text += f", answers in {report.seconds * 1000:.0f} ms."
    if report.seconds > SLOW_SECONDS:
        return warning(text, "Look at its network and load.")
    return ok(text)


def _problem(report: ProviderReport, *, has_model: bool) -> Finding:
    text = f"{report.alias}: {report.problem}"
    suggestion = START.get(
        report.alias, "Make it work, or take it out: of MOCHI_PROVIDERS, or its package."
    )
    if report.version is not None:
        suggestion = "ollama pull qwen3:8b"
    # What is built in is an offer: nothing is wrong without it.
    is_spare = report.alias == "test" or (has_model and report.alias in BUILT_IN)
    return note(text, suggestion) if is_spare else warning(text, suggestion)


def _numbers(version: str) -> tuple[int, ...]:
    """Return a version to compare by; one that is unknown counts as the newest."""
    match = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    if match is None or version.startswith("0.0.0"):
        return (999,)
    return tuple(map(int, match.groups()))


async def check_windows(runtime: Runtime) -> list[Finding]:
    """Check the context windows of every Ollama that answers; the built-in model's is fixed."""
    findings: list[Finding] = []
    sized = runtime.settings.dynamic_context_window_enabled
    for alias in runtime.providers.aliases:
        provider = runtime.providers.get(alias)
        if isinstance(provider, OllamaProvider):
            with anyio.move_on_after(ANSWER_SECONDS):
                findings += await _windows_of(provider, sized=sized)
    return findings


async def _windows_of(provider: OllamaProvider, *, sized: bool) -> list[Finding]:
    try:
        loaded = await provider.running()
    except MochiError:  # the check of the providers says why
        return []
    findings: list[Finding] = []
    for entry in loaded:
        least = await _least_window(provider, _name_of(entry)) if sized else 0
        findings += window_findings(entry, least)
    return findings or [ok(f"{provider.alias} has no model loaded; the first chat loads one.")]


async def _least_window(provider: OllamaProvider, name: str) -> int:
    """Return the tokens that the first turn of a session asks for; 0 if the model cannot chat."""
    try:
        safe = safe_limit(await provider.show_model(name))
        window = (await provider.weights_of(name)).window
        return window or ladder(min(safe, INITIAL_WINDOW), safe)
    except MochiError:
        return 0


def _name_of(entry: Mapping[str, Any]) -> str:
    return str(entry.get("name") or entry.get("model") or "a model without a name")


def window_findings(entry: Mapping[str, Any], least: int) -> Iterator[Finding]:
    """Compare the window of a loaded model with the ``least`` tokens that chats ask for."""
    name, window = _name_of(entry), entry.get("context_length")
    size, fast = entry.get("size") or 0, entry.get("size_vram") or 0
    loaded = f"{name} is loaded"
    if not isinstance(window, int):
        yield note(f"{loaded}; its window is not told.", "Update Ollama to 0.10 or later.")
    elif window < least:
        yield note(
            f"{loaded} with a window of {window:,} tokens. The next chat asks for {least:,}: "
            f"Ollama then loads its {size / 1e9:.1f} GB again.",
            f"Set OLLAMA_CONTEXT_LENGTH={least} for Ollama, so that other programs load it alike.",
        )
    else:
        yield ok(
            f"{loaded} with a window of {window:,} tokens; for a larger one Ollama loads its "
            f"{size / 1e9:.1f} GB again."
        )
    if 0 < fast < size:
        yield note(
            f"{1 - fast / size:.0%} of {name} is not in the graphics memory: it is slow.",
            "Take a smaller model, or a smaller window (PATCH /api/v1/sessions/{id}).",
        )
