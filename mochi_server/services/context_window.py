"""How large a context window a turn gets.

What a session needs follows from its usage; what is *sent* is one size per model, because each
change of it makes Ollama load the model again. The size grows along powers of two, is shared by
all sessions of the model, and never shrinks while the model is in use
(docs/explanation/context-window.md).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from ..constants import CHARACTERS_PER_TOKEN
from ..errors import ProviderError, ProviderUnreachable
from ..messages import now
from ..providers.base import ModelInfo, Provider
from ..sessions.types import ContextWindowConfig

INITIAL_WINDOW = 8192
"""Tokens for a new conversation, where the model has that many."""
SMALLEST_WINDOW = 2048
"""Tokens below which no step of the ladder lies."""
LARGEST_UNKNOWN = 262_144
"""Most tokens that a person may set for a model whose longest context is unknown."""
SAFE_SHARE = 0.9
"""Share of the model's longest context that is used at most."""
HEADROOM = 1.5
"""A window holds this many times the present usage."""
LONGEST_RESERVE = 4096
"""Most tokens kept free for the reply when the history is cut."""
IDLE_SECONDS = 900
"""Unused for so long, a model counts as unloaded, and its window may start small again."""
LOOK_SECONDS = 10.0
"""How often a single process looks at what is loaded: other programs use the same Ollama."""
HISTORY_LENGTH = 10
"""Adjustments remembered in the session file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The decision for one request."""

    size: int | None
    """Tokens of the session's window; None when it is not ours to choose and unknown."""
    num_ctx: int | None
    """What is sent: at least ``size``; None when nothing is."""
    reason: str
    """``initial_setup``, ``usage_threshold``, ``model_change``, ``manual_override``, …"""

    @property
    def budget(self) -> int | None:
        """Tokens that the history may have, a reserve for the reply taken off."""
        if self.size is None:
            return None
        return self.size - min(self.size // 4, LONGEST_RESERVE)


@dataclass(slots=True)
class _ModelState:
    window: int = 0
    ratio: float = CHARACTERS_PER_TOKEN
    last_used: float = 0.0
    looked_at: float = -math.inf


class DynamicContextWindowService:
    """Remembers one window and one calibration of the token estimate for each model."""

    def __init__(
        self,
        *,
        enabled: bool = True,
        look_seconds: float = LOOK_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin with no model.

        Args:
            enabled: Whether windows are sized by need at all.
            look_seconds: How long what is loaded counts as known; 0 where other processes of ours
                use the same models.
            clock: Seconds that never go back.
        """
        self.enabled = enabled
        self._look_seconds = look_seconds
        self._clock = clock
        self._models: dict[str, _ModelState] = {}

    def knows(self, model: str) -> bool:
        """Whether it was seen just now what window is loaded; if not, ask: others use it too."""
        state = self._models.get(model)
        return state is not None and self._clock() - state.looked_at < self._look_seconds

    def loaded(self, model: str, window: int | None) -> None:
        """Note the window that the provider has loaded the model with, if any."""
        state = self._models.setdefault(model, _ModelState())
        if self._clock() - state.last_used >= IDLE_SECONDS:
            state.window = 0
        state.window = max(state.window, window or 0)
        state.last_used = state.looked_at = self._clock()

    def ratio(self, model: str) -> float:
        """Characters a token, as far as this model has been measured."""
        state = self._models.get(model)
        return state.ratio if state else CHARACTERS_PER_TOKEN

    def calibrate(self, model: str, characters: int, tokens: int) -> None:
        """Learn from what the provider counted for a prompt of so many characters."""
        if tokens < 64 or characters < 256:  # noqa: PLR2004 - the template would dominate
            return
        state = self._models.setdefault(model, _ModelState())
        measured = min(max(characters / tokens, 1.0), 6.0)
        state.ratio += 0.3 * (measured - state.ratio)

    def decide(
        self,
        model: str,
        info: ModelInfo,
        config: ContextWindowConfig | None,
        *,
        usage: int,
        ours: bool,
        model_changed: bool = False,
    ) -> Window:
        """The window of the next request.

        Args:
            model: Full name of the model, by which its window is shared.
            info: What is known of it.
            config: The session's configuration so far.
            usage: Tokens that the conversation has now.
            ours: Whether the provider lets us choose the size.
            model_changed: Whether the session's last turn had another model.
        """
        limit = info.context_length
        if not ours:
            return Window(size=limit, num_ctx=None, reason="no_adjustment")
        config = config or ContextWindowConfig()
        if config.manual_override and config.current_window:
            limit = limit or LARGEST_UNKNOWN
            size = min(config.current_window, limit)
            return self._shared(model, size, limit, "manual_override")
        if not (self.enabled and config.dynamic_enabled):
            state = self._models.get(model)
            loaded = (state.window if state else 0) or None
            return Window(size=loaded, num_ctx=None, reason="no_adjustment")
        size, reason = self._need(config, safe_limit(info), usage, model_changed=model_changed)
        return self._shared(model, size, safe_limit(info), reason)

    def _need(
        self, config: ContextWindowConfig, safe: int, usage: int, *, model_changed: bool
    ) -> tuple[int, str]:
        """What the session needs by itself, and why."""
        wanted = math.ceil(usage * HEADROOM)
        current = config.current_window
        if current is None or model_changed:
            size = ladder(max(wanted, min(safe, INITIAL_WINDOW)), safe)
            return size, "model_change" if current is not None else "initial_setup"
        if wanted > min(current, safe):
            size = ladder(wanted, safe)
            return size, "usage_threshold" if size > current else "no_adjustment"
        return min(current, safe), "no_adjustment"

    def _shared(self, model: str, size: int, limit: int | None, reason: str) -> Window:
        """Raise the model's window where the session needs more, and use what is there."""
        state = self._models.setdefault(model, _ModelState())
        state.last_used = self._clock()
        state.window = max(state.window, ladder(size, limit or size))
        shown = size if reason == "manual_override" else state.window
        return Window(size=shown, num_ctx=state.window, reason=reason)

    def grow(self, model: str, info: ModelInfo, needed: int) -> int | None:
        """Make room after an overflow: the larger window; None when the model has no more."""
        state = self._models.setdefault(model, _ModelState())
        size = ladder(max(math.ceil(needed * HEADROOM), state.window + 1), safe_limit(info))
        if size <= state.window:
            return None
        state.window = size
        return size


async def learn_window(
    windows: DynamicContextWindowService, model: str, provider: Provider, name: str
) -> None:
    """See how large the model is loaded, if that is not known: so much costs no reload.

    Args:
        windows: Where it is noted.
        model: The full name.
        provider: Whose model it is.
        name: The provider's own name.

    Raises:
        ProviderUnreachable: the provider is not there.
    """
    if not provider.capabilities.context_size or windows.knows(model):
        return
    try:
        window = await provider.loaded_window(name)
    except ProviderUnreachable:
        raise
    except ProviderError:  # a server that does not tell costs a reload, not the turn
        window = None
    windows.loaded(model, window)


def safe_limit(info: ModelInfo) -> int:
    """Most tokens of the model that are used; unknown models get the initial window."""
    if not info.context_length:
        return INITIAL_WINDOW
    return max(int(info.context_length * SAFE_SHARE), min(info.context_length, SMALLEST_WINDOW))


def ladder(size: int, limit: int) -> int:
    """The next power of two that holds ``size``, but no more than the limit."""
    step = SMALLEST_WINDOW
    while step < size:
        step *= 2
    return min(step, limit)


def record(config: ContextWindowConfig | None, window: Window) -> ContextWindowConfig:
    """The session's configuration after a turn with this window."""
    config = config.model_copy(deep=True) if config else ContextWindowConfig()
    size, reason = window.size, window.reason
    last = config.adjustment_history[-1:] or [{}]
    known = (last[0].get("window_size"), last[0].get("reason")) == (size, reason)
    moved = config.current_window != size and not config.manual_override
    if size is not None and (moved or (reason != "no_adjustment" and not known)):
        entry = {"timestamp": now(), "window_size": size, "reason": reason}
        config.adjustment_history = [*config.adjustment_history, entry][-HISTORY_LENGTH:]
    if moved and size is not None:
        config.current_window = size
    config.last_adjustment = reason
    return config
