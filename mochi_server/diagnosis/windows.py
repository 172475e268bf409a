"""The context windows of loaded models, and what it costs to change them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import anyio

from ..errors import MochiError
from ..protocol.completions import ModelInfo
from ..providers.ollama import OllamaProvider
from ..runtime import Runtime
from ..services.context_window import INITIAL_WINDOW, ladder, safe_limit
from .findings import Finding, note, ok
from .providers import ANSWER_SECONDS


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
