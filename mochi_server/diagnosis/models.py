"""Whether the sources of models answer, how fast, and what they have."""

from __future__ import annotations

import logging
import re
import socket
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio

from ..config.installation import own_command
from ..core.aio import in_daemon_thread
from ..core.progress import counted
from ..errors import MochiError, ProviderUnreachable
from ..protocol.completions import ModelInfo
from ..providers.base import Provider
from ..providers.builtin.catalogue import CATALOGUE, weights_in
from ..providers.builtin.gguf import NotGGUF, read_header
from ..providers.builtin.provider import LocalProvider
from ..providers.ollama.provider import OllamaProvider
from ..runtime import Runtime
from ..services.context_window import INITIAL_WINDOW, ladder, safe_limit
from .findings import Finding, error, note, ok, warning

logger = logging.getLogger(__name__)

PREPARE_SECONDS = 30.0
ANSWER_SECONDS = 4.0
MOST_SECONDS = PREPARE_SECONDS + ANSWER_SECONDS + 2.0
NAME_SECONDS = 2.0
SLOW_SECONDS = 1.0

CUTS_SILENTLY = (0, 12, 4)
"""Servers before this version do not know ``truncate``."""

BUILT_IN = frozenset({"local", "test"})

START = {
    "ollama": "Start Ollama (https://ollama.com), or correct MOCHI_OLLAMA_HOST.",
    "local": "It needs no Ollama: docs/explanation/built-in-model.md.",
}


@dataclass(slots=True, kw_only=True)
class Answer:
    """What a provider had to say."""

    alias: str
    where: str
    models: int = 0
    version: str | None = None
    seconds: float | None = None
    """Of its shortest answer; None where it has no other side, or gave none."""
    problem: str | None = None
    """Why there is no model, as far as that is known."""
    more: list[Finding] = field(default_factory=list)


async def look_at_providers(runtime: Runtime) -> list[Finding]:
    """One line for each provider, and whether there is a model at all."""
    providers = [runtime.providers.get(alias) for alias in runtime.providers.aliases]
    answers = [Answer(alias=one.alias, where=one.describe()) for one in providers]
    # First all of it: importing an SDK is no wait for an answer, and slows down all others.
    for step, limit in ((_prepare, PREPARE_SECONDS), (_ask, ANSWER_SECONDS)):
        async with anyio.create_task_group() as group:
            for provider, answer in zip(providers, answers, strict=True):
                if answer.problem is None:
                    group.start_soon(_within, limit, step, provider, answer)
    return list(answer_findings(answers))


async def _within(
    limit: float,
    step: Callable[[Provider, Answer], Awaitable[None]],
    provider: Provider,
    answer: Answer,
) -> None:
    """Take a step within so many seconds; raises nothing."""
    with anyio.move_on_after(limit) as scope:
        try:
            await step(provider, answer)
        except MochiError as failed:
            answer.problem = failed.message
        except Exception as failed:  # a provider may be anybody's
            logger.exception("The provider %s failed", provider.alias)
            answer.problem = f"{type(failed).__name__}: {failed}"
    if scope.cancelled_caught:
        answer.problem = f"{answer.where} does not answer within {limit:g} s."


async def _prepare(provider: Provider, _: Answer) -> None:
    await provider.prepare()


async def _ask(provider: Provider, answer: Answer) -> None:
    if isinstance(provider, OllamaProvider):
        await _resolve(answer.where)
        began = time.monotonic()
        answer.version = await provider.version()
        answer.seconds = time.monotonic() - began
    answer.models = len(await provider.list_models())
    if isinstance(provider, LocalProvider):
        answer.more += await in_daemon_thread(_damaged, provider)
    if not answer.models:
        nothing = "it has no model." if answer.version is not None else None
        answer.problem = await provider.problem() or nothing


async def _resolve(url: str) -> None:
    """Look the name up in a thread that nobody waits for: some resolvers take half a minute.

    Whether it is found, the request says.
    """
    with anyio.move_on_after(NAME_SECONDS) as scope:
        try:
            await in_daemon_thread(socket.getaddrinfo, urlsplit(url).hostname, None)
        except OSError:
            return
    if scope.cancelled_caught:
        raise ProviderUnreachable(f"The name in {url} was not found within {NAME_SECONDS:g} s.")


def _damaged(provider: LocalProvider) -> list[Finding]:
    """Files of weights that cannot be used, or are not whole; blocks."""
    found = []
    for name, path in weights_in(Path(provider.describe())).items():
        known = CATALOGUE.get(name)
        try:
            size = path.stat().st_size
            if path.is_file():  # opening a pipe would wait
                read_header(path)
        except (NotGGUF, OSError) as failed:
            found.append(warning(f"local: {path} cannot be used: {failed}", "Remove it."))
            continue
        if known is not None and size != known.size:
            text = f"local: {path} has {size:,} bytes, and should have {known.size:,}."
            found.append(warning(text, f"Remove it, then: {own_command()} pull {name}"))
    return found


def answer_findings(answers: Sequence[Answer]) -> Iterator[Finding]:
    """What the answers mean together: where one provider has models, another may be missing."""
    some = any(answer.models for answer in answers)
    for answer in answers:
        yield from _findings(answer, some=some)
    if not some:
        yield error(
            "There is no model to talk to.",
            f"ollama pull qwen3:8b, or without Ollama: {own_command()} pull",
        )


def _findings(answer: Answer, *, some: bool) -> Iterator[Finding]:
    if answer.problem is not None:
        yield _problem(answer, some=some)
    elif answer.models:
        name = f"{answer.alias} {answer.version}" if answer.version else answer.alias
        text = f"{name} at {answer.where}: {counted(answer.models, 'model')}"
        pace = "" if answer.seconds is None else f", answers in {answer.seconds * 1000:.0f} ms"
        slow = answer.seconds is not None and answer.seconds > SLOW_SECONDS
        yield (
            warning(f"{text}{pace}.", "Look at its network and load.")
            if slow
            else ok(f"{text}{pace}.")
        )
    elif answer.alias not in BUILT_IN:  # ``test`` is not meant to be seen
        yield note(
            f"{answer.alias} at {answer.where} lists no model.",
            "Use its models by their names, or correct its address.",
        )
    if answer.version is not None and _numbers(answer.version) < CUTS_SILENTLY:
        yield warning(
            f"{answer.alias} {answer.version} cuts long conversations without a word.",
            "Update it to 0.12.4 or later.",
        )
    yield from answer.more


def _problem(answer: Answer, *, some: bool) -> Finding:
    """What is built in is an offer: without it nothing is wrong."""
    text = f"{answer.alias}: {answer.problem}"
    suggestion = START.get(answer.alias, "Start it, or take it out of MOCHI_PROVIDERS.")
    if answer.version is not None:
        suggestion = "ollama pull qwen3:8b"
    spare = some and answer.alias in BUILT_IN
    return note(text, suggestion) if spare else warning(text, suggestion)


def _numbers(version: str) -> tuple[int, ...]:
    """To compare by; a version that is none, or unknown, counts as the newest."""
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    if found is None or version.startswith("0.0.0"):
        return (999,)
    return tuple(map(int, found.groups()))


async def look_at_windows(runtime: Runtime) -> list[Finding]:
    """Of every Ollama that answers; the built-in model has one fixed size."""
    found: list[Finding] = []
    for alias in runtime.providers.aliases:
        provider = runtime.providers.get(alias)
        if isinstance(provider, OllamaProvider):
            with anyio.move_on_after(ANSWER_SECONDS):
                found += await _of(provider, sized=runtime.settings.dynamic_context_window_enabled)
    return found


async def _of(provider: OllamaProvider, *, sized: bool) -> list[Finding]:
    try:
        running = await provider.running()
    except MochiError:  # told by the check of the providers
        return []
    if not running:
        return [ok(f"{provider.alias} has no model loaded; the first chat loads one.")]
    found: list[Finding] = []
    for entry in running:
        wanted = await _wanted(provider, name_of(entry)) if sized else 0
        found += window_findings(entry, wanted)
    return found


async def _wanted(provider: OllamaProvider, name: str) -> int:
    """The least window that a chat asks for; 0 of a model that cannot chat."""
    try:
        info = await provider.show_model(name)
        return (await provider.weights_of(name)).window or first_window(info)
    except MochiError:
        return 0


def name_of(entry: Mapping[str, Any]) -> str:
    """Of a loaded model."""
    return str(entry.get("name") or entry.get("model") or "a model without a name")


def first_window(info: ModelInfo) -> int:
    """What the first turn of a session asks for."""
    safe = safe_limit(info)
    return ladder(min(safe, INITIAL_WINDOW), safe)


def window_findings(entry: Mapping[str, Any], wanted: int) -> Iterator[Finding]:
    """What the loaded window means for chats, which want at least ``wanted`` tokens."""
    name, window = name_of(entry), entry.get("context_length")
    size, fast = entry.get("size") or 0, entry.get("size_vram") or 0
    loaded = f"{name} is loaded"
    if not isinstance(window, int):
        yield note(f"{loaded}; its window is not told.", "Update Ollama to 0.10 or later.")
    elif window < wanted:
        yield note(
            f"{loaded} with a window of {window:,} tokens. The next chat asks for {wanted:,}: "
            f"Ollama then loads its {size / 1e9:.1f} GB again.",
            f"Set OLLAMA_CONTEXT_LENGTH={wanted} for Ollama, so that other programs load it alike.",
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
