"""Decides how large a context window a turn gets.

A session's need follows from its usage; what is *sent* is one size for each model's weights,
because each change of it makes Ollama load them again. The size grows along powers of two, is
shared by all sessions of all models of these weights, and never shrinks while they are in use
(docs/explanation/context-window.md).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from ..constants import CHARACTERS_PER_TOKEN
from ..errors import ProviderError, ProviderUnreachable
from ..protocol.messages import now
from ..providers.base import ModelInfo, Provider, Weights
from ..sessions.types import ContextWindowConfig

INITIAL_WINDOW = 8192
"""Tokens for a new conversation, where the model has that many."""
SMALLEST_WINDOW = 2048
"""Tokens of the smallest step of the ladder."""
MAX_UNKNOWN = 262_144
"""Most tokens that a person may set for a model whose longest context is unknown."""
SAFE_SHARE = 0.9
"""Share of the model's longest context that is used at most."""
HEADROOM = 1.5
"""A window that grows holds this many times the present usage."""
MAX_RESERVE = 4096
"""Most tokens kept free for the reply."""
FEW_TOOLS = 2_000
"""Tokens of about sixteen tools."""
IDLE_SECONDS = 900
"""Seconds after which an unused model counts as unloaded, and its window may start small again."""
LOOK_SECONDS = 10.0
"""Seconds between checks of what is loaded: other programs use the same Ollama."""
HISTORY_LENGTH = 10
"""Number of adjustments kept in the session file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The decision for one request."""

    size: int | None
    """Tokens of the session's window; None if the server does not choose it and it is unknown."""
    num_ctx: int | None
    """Tokens that are sent: at least ``size``; None if no size is sent."""
    reason: str
    """``initial_setup``, ``usage_threshold``, ``model_change``, ``manual_override``, …"""

    @property
    def budget(self) -> int | None:
        """Tokens for the history, without a reserve for the reply."""
        return None if self.size is None else budget_of(self.size)


def budget_of(size: int) -> int:
    return size - min(size // 4, MAX_RESERVE)


def room_for_tools(size: int) -> int:
    """Return how many tokens of a window schemas of tools may take: a quarter.

    In a small window it is up to a half, as small models use a dozen tools that they see, and
    hardly ever search for one.
    """
    return max(size // 4, min(FEW_TOOLS, size // 2))


@dataclass(slots=True)
class _ModelState:
    window: int = 0
    ratio: float = CHARACTERS_PER_TOKEN
    last_used: float = 0.0
    looked_at: float = -math.inf


class DynamicContextWindowService:
    """Remembers one window and one calibration of the token estimate for each model's weights."""

    def __init__(
        self,
        *,
        enabled: bool = True,
        beyond_modelfile: bool = False,
        look_seconds: float = LOOK_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Set up without any model.

        Args:
            enabled: Whether sizes are decided at all.
            beyond_modelfile: Whether windows may grow beyond ``num_ctx`` of a Modelfile.
            look_seconds: Seconds until it is checked again how a model is loaded; 0 if other
                processes share the model server.
            clock: Seconds of a monotonic clock.
        """
        self.enabled = enabled
        self._beyond_modelfile = beyond_modelfile
        self._look_seconds = look_seconds
        self._clock = clock
        self._states: dict[str, _ModelState] = {}
        """By the key of the weights, which is the model's name until it is known."""
        self._weights: dict[str, Weights] = {}

    def weights_key(self, model: str) -> str:
        """Return the key of the model's weights; its name until they are known."""
        weights = self._weights.get(model)
        return weights.key if weights else model

    def _state(self, model: str) -> _ModelState:
        return self._states.setdefault(self.weights_key(model), _ModelState())

    def knows(self, model: str) -> bool:
        """Return whether the loaded window was checked just now."""
        return self._clock() - self._state(model).looked_at < self._look_seconds

    def identify(self, model: str, weights: Weights) -> None:
        self._weights[model] = weights

    def loaded(self, model: str, window: int | None) -> None:
        """Note the window with which the provider has loaded the model, if it has."""
        state = self._state(model)
        if self._clock() - state.last_used >= IDLE_SECONDS:
            state.window = 0
        state.window = max(state.window, window or 0)
        state.last_used = state.looked_at = self._clock()

    def ratio(self, model: str) -> float:
        return self._state(model).ratio

    def calibrate(self, model: str, characters: int, tokens: int) -> None:
        """Adjust the ratio to the tokens that a provider counted for a prompt."""
        if tokens < 64 or characters < 256:  # noqa: PLR2004 - the template would dominate
            return
        state = self._state(model)
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
        """Decide the window for ``usage`` tokens; it is ``ours`` to choose, or the provider's."""
        config = config or ContextWindowConfig()
        if not ours:
            size, num_ctx = info.context_length, None
        elif config.manual_override and config.current_window:
            limit = info.context_length or MAX_UNKNOWN
            size = min(config.current_window, limit)
            return Window(
                size=size,
                num_ctx=self._enlarge(model, ladder(size, limit)),
                reason="manual_override",
            )
        elif not (self.enabled and config.dynamic_enabled):
            size, num_ctx = self._state(model).window or None, None
        else:
            first, limit = self._bounds(model, info)
            begun = (None if model_changed else config.current_window) or first
            size = first if begun == first else ladder(begun, limit)
            num_ctx = self._enlarge(model, _need(size, limit, usage))
            size = num_ctx if self._set_by_modelfile(model) is None else min(num_ctx, limit)
        reason = _reason(config.current_window, size, model_changed=model_changed)
        return Window(size=size, num_ctx=num_ctx, reason=reason)

    def largest(
        self, model: str, info: ModelInfo, config: ContextWindowConfig | None, *, ours: bool
    ) -> int | None:
        """Return the largest window that ``decide`` may choose for a session; None: not known."""
        config = config or ContextWindowConfig()
        if not ours:
            return info.context_length
        if config.manual_override and config.current_window:
            return min(config.current_window, info.context_length or MAX_UNKNOWN)
        if not (self.enabled and config.dynamic_enabled):
            return self._state(model).window or None
        return self._bounds(model, info)[1]

    def _set_by_modelfile(self, model: str) -> int | None:
        weights = self._weights.get(model)
        return weights.window if weights else None

    def _bounds(self, model: str, info: ModelInfo) -> tuple[int, int]:
        safe = safe_limit(info)
        preset = self._set_by_modelfile(model)
        if preset is None:
            return min(safe, INITIAL_WINDOW), safe
        first = min(preset, info.context_length or preset)
        return first, max(first, safe) if self._beyond_modelfile else first

    def _enlarge(self, model: str, size: int) -> int:
        """Make the shared window at least so large, and return it."""
        state = self._state(model)
        state.last_used = self._clock()
        state.window = max(state.window, size)
        return state.window

    def grow(self, model: str, info: ModelInfo, needed: int) -> int | None:
        """Return a larger window after an overflow; None if the model has no larger one."""
        state = self._state(model)
        _, limit = self._bounds(model, info)
        size = ladder(max(math.ceil(needed * HEADROOM), state.window + 1), limit)
        if size <= state.window:
            return None
        state.window = size
        return size


def _need(size: int, limit: int, usage: int) -> int:
    if usage <= budget_of(size):
        return size
    return max(size, ladder(math.ceil(usage * HEADROOM), limit))


def _reason(current: int | None, size: int | None, *, model_changed: bool) -> str:
    if size is None:
        return "no_adjustment"
    if current is None:
        return "initial_setup"
    if model_changed or size < current:  # less is left of a model only where it is another one
        return "model_change"
    return "usage_threshold" if size > current else "no_adjustment"


async def learn_window(
    windows: DynamicContextWindowService, model: str, provider: Provider, name: str
) -> None:
    """Note with which window the provider has loaded the model, unless it was checked just now.

    A request with a window up to that size does not make the provider load the model again.

    Raises:
        ProviderUnreachable: the provider is not there.
    """
    if not provider.capabilities.context_size or windows.knows(model):
        return
    window = None
    try:
        weights = await provider.weights_of(name)
        windows.identify(model, replace(weights, key=f"{provider.alias}/{weights.key}"))
        window = await provider.loaded_window(name)
    except ProviderUnreachable:
        raise
    except ProviderError:  # a server that does not tell costs a reload, not the turn
        pass
    windows.loaded(model, window)


async def window_beside(
    windows: DynamicContextWindowService,
    model: str,
    provider: Provider,
    name: str,
    config: ContextWindowConfig | None,
) -> Window:
    """Return the window for a question that is not of a chat, which does not make it larger.

    Raises:
        ProviderError: the model, of this name at its provider, cannot be asked.
    """
    info = await provider.show_model(name)
    await learn_window(windows, model, provider, name)
    ours = provider.capabilities.context_size
    return windows.decide(model, info, config, usage=0, ours=ours)


def safe_limit(info: ModelInfo) -> int:
    """Return the most tokens of a model to use; the initial window if they are unknown."""
    if not info.context_length:
        return INITIAL_WINDOW
    return max(int(info.context_length * SAFE_SHARE), min(info.context_length, SMALLEST_WINDOW))


def ladder(size: int, limit: int) -> int:
    """Return the next power of two that holds ``size``, but no more than the limit."""
    step = SMALLEST_WINDOW
    while step < size:
        step *= 2
    return min(step, limit)


def record(config: ContextWindowConfig | None, window: Window) -> ContextWindowConfig:
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
