"""How large a window gets, and when."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mochi_server.providers.base import ModelInfo, Weights
from mochi_server.services.context_window import (
    DynamicContextWindowService,
    Window,
    budget_of,
    ladder,
    record,
    safe_limit,
)
from mochi_server.sessions.types import ContextWindowConfig

BIG = ModelInfo(name="big", context_length=131_072)
USAGES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 200_000)), max_size=30)


def decide(
    service: DynamicContextWindowService,
    usage: int = 0,
    config: ContextWindowConfig | None = None,
    info: ModelInfo = BIG,
    **options: bool,
) -> Window:
    return service.decide(info.name, info, config, usage=usage, **{"ours": True, **options})


@pytest.mark.parametrize(
    ("length", "safe", "initial"),
    [(131_072, 117_964, 8192), (8192, 7372, 7372), (4096, 3686, 3686), (2048, 2048, 2048),
     (None, 8192, 8192)],
)  # fmt: skip
def test_a_new_conversation_starts_with_8192_or_what_is_safe(
    length: int | None, safe: int, initial: int
) -> None:
    """At most nine tenths of the model's longest context; unknown models get the initial size."""
    info = ModelInfo(name="m", context_length=length)
    window = decide(DynamicContextWindowService(), info=info)
    assert safe_limit(info) == safe
    assert (window.size, window.num_ctx, window.reason) == (initial, initial, "initial_setup")


@given(USAGES, st.sampled_from([2048, 8192, 40_960, 131_072]))
def test_one_window_for_a_model_that_only_grows_along_powers_of_two(
    uses: list[tuple[int, int]], length: int
) -> None:
    """All sessions share it; it holds what each needs, as far as the model can."""
    service, info = DynamicContextWindowService(), ModelInfo(name="m", context_length=length)
    configs: dict[int, ContextWindowConfig | None] = {}
    sent: list[int] = []
    for session, usage in uses:
        window = decide(service, usage, configs.get(session), info)
        configs[session] = record(configs.get(session), window)
        assert window.num_ctx is not None
        sent.append(window.num_ctx)
        assert window.budget is not None
        assert window.budget >= min(usage, budget_of(safe_limit(info)))
        assert 0 < window.budget < window.num_ctx
    assert sent == sorted(sent)
    assert all(size == safe_limit(info) or size & (size - 1) == 0 for size in sent)
    assert len(set(sent)) <= 5


def test_a_window_grows_when_the_next_prompt_and_the_reserve_for_the_reply_do_not_fit() -> None:
    """A quarter is kept for the reply; once it grows, half as much again as is used."""
    service = DynamicContextWindowService()
    config = record(None, decide(service))
    assert decide(service, 6144, config).reason == "no_adjustment"
    window = decide(service, 6145, config)
    assert (window.size, window.reason) == (16_384, "usage_threshold")
    config = record(config, window)
    assert decide(service, 16_384 - 4096, config).num_ctx == 16_384


def test_a_window_that_another_session_has_made_larger_is_no_window_as_it_was() -> None:
    service = DynamicContextWindowService()
    config = record(None, decide(service))
    decide(service, 10_000)
    window = decide(service, 10, config)
    assert (window.size, window.reason) == (16_384, "usage_threshold")
    assert decide(service, 10, record(config, window)).reason == "no_adjustment"


@pytest.mark.parametrize("ours", [True, False])
@pytest.mark.parametrize(
    ("before", "changed", "reason"),
    [
        (None, False, "initial_setup"),
        (8192, True, "model_change"),
        (8192, False, "no_adjustment"),
        (4096, False, "usage_threshold"),
        (16_384, False, "model_change"),
    ],
)
def test_every_change_of_size_has_a_reason(
    ours: bool, before: int | None, changed: bool, reason: str
) -> None:
    """Also where the provider decides, or what is loaded."""
    service = DynamicContextWindowService(enabled=not ours)
    service.loaded("big", 8192)
    config = ContextWindowConfig(current_window=before)
    info = ModelInfo(name="big", context_length=8192)
    window = decide(service, config=config, info=info, ours=ours, model_changed=changed)
    assert (window.size, window.num_ctx, window.reason) == (8192, None, reason)


def test_the_window_of_a_modelfile_is_the_first_and_the_last_one() -> None:
    """More memory than its maker wanted is for a person to give, not for a long conversation."""
    service = DynamicContextWindowService()
    service.identify("big", Weights(key="w", window=3000))
    window = decide(service)
    assert (window.size, window.num_ctx, window.reason) == (3000, 3000, "initial_setup")
    config = record(None, window)
    window = decide(service, 50_000, config)
    assert (window.size, window.num_ctx, window.reason) == (3000, 3000, "no_adjustment")
    assert service.grow("big", BIG, 9000) is None
    by_hand = ContextWindowConfig(current_window=16_384, manual_override=True)
    assert decide(service, 0, by_hand).num_ctx == 16_384
    window = decide(service, 50_000, config)
    assert (window.size, window.num_ctx) == (3000, 16_384), "what is loaded anyhow is not reloaded"


def test_a_modelfile_cannot_have_more_than_the_model() -> None:
    service = DynamicContextWindowService()
    service.identify("big", Weights(key="w", window=1_000_000))
    assert decide(service).num_ctx == 131_072


def test_a_manual_window_is_kept_within_what_the_model_has() -> None:
    """The person decides, up to the model's own limit; the usage does not move it."""
    service = DynamicContextWindowService()
    config = ContextWindowConfig(current_window=16_384, manual_override=True)
    window = decide(service, 100_000, config)
    assert (window.size, window.num_ctx, window.reason) == (16_384, 16_384, "manual_override")
    over = ContextWindowConfig(current_window=1_000_000, manual_override=True)
    assert decide(service, 0, over).num_ctx == 131_072
    assert record(config, window).current_window == 16_384


def test_a_manual_window_of_an_unknown_model_cannot_ask_for_anything() -> None:
    """The size is shared: one session's slip would be every session's memory."""
    config = ContextWindowConfig(current_window=16_777_216, manual_override=True)
    unknown = ModelInfo(name="m", context_length=None)
    window = decide(DynamicContextWindowService(), config=config, info=unknown)
    assert (window.size, window.num_ctx) == (262_144, 262_144)


def test_a_small_manual_window_makes_nobody_reload() -> None:
    """The shared size is sent; the smaller one only bounds the history."""
    service = DynamicContextWindowService()
    shared = decide(service, 20_000).num_ctx
    config = ContextWindowConfig(current_window=2048, manual_override=True)
    window = decide(service, 0, config)
    assert (window.size, window.num_ctx) == (2048, shared)
    assert window.budget is not None
    assert window.budget < 2048


@pytest.mark.parametrize("everywhere", [True, False])
def test_switched_off_nothing_is_sent(everywhere: bool) -> None:
    """For all sessions by the setting, or for one by its file; what is loaded is the bound."""
    service = DynamicContextWindowService(enabled=not everywhere)
    service.loaded("big", 4096)
    config = ContextWindowConfig(dynamic_enabled=everywhere)
    window = decide(service, 100_000, config)
    assert (window.size, window.num_ctx, window.reason) == (4096, None, "initial_setup")


def test_a_provider_that_sizes_itself_is_sent_nothing() -> None:
    window = decide(DynamicContextWindowService(), 5, ours=False)
    assert (window.size, window.num_ctx, window.reason) == (131_072, None, "initial_setup")


def test_what_is_loaded_already_is_reused_until_it_is_long_unused() -> None:
    """A larger window costs nothing while it is loaded; after idle time Ollama has unloaded it."""
    now = [0.0]
    service = DynamicContextWindowService(clock=lambda: now[0])
    assert not service.knows("big")
    service.loaded("big", 32_768)
    assert service.knows("big")
    assert decide(service).num_ctx == 32_768
    now[0] += 100_000
    assert not service.knows("big")
    service.loaded("big", None)
    assert decide(service).num_ctx == 8192


def test_after_an_overflow_there_is_more_room_or_a_clear_no() -> None:
    """Growing ends at the safe limit."""
    service = DynamicContextWindowService()
    decide(service)
    assert service.grow("big", BIG, 9_000) == 16_384
    assert decide(service).num_ctx == 16_384
    while service.grow("big", BIG, 0):
        assert (decide(service).num_ctx or 0) <= 117_964
    assert decide(service).num_ctx == 117_964


@pytest.mark.parametrize("ratio", [1.5, 3.0, 5.5])
def test_the_estimate_learns_from_what_is_counted(ratio: float) -> None:
    """Some languages and models need far more tokens than others."""
    service = DynamicContextWindowService()
    assert service.ratio("big") == 4.0
    for _ in range(20):
        service.calibrate("big", int(1000 * ratio), 1000)
    assert service.ratio("big") == pytest.approx(ratio, rel=0.02)
    assert service.ratio("other") == 4.0
    service.calibrate("big", 10, 3)
    service.calibrate("big", 10_000_000, 100)
    assert 1.0 <= service.ratio("big") <= 6.0


def test_the_last_ten_adjustments_are_remembered() -> None:
    """Only changes count; the newest is last."""
    config: ContextWindowConfig | None = None
    for number in range(1, 15):
        config = record(config, Window(size=number, num_ctx=number, reason="usage_threshold"))
    assert config is not None
    assert [entry["window_size"] for entry in config.adjustment_history] == list(range(5, 15))
    again = record(config, Window(size=14, num_ctx=14, reason="no_adjustment"))
    assert again.adjustment_history == config.adjustment_history
    assert (again.current_window, again.last_adjustment) == (14, "no_adjustment")
    assert set(again.adjustment_history[-1]) == {"timestamp", "window_size", "reason"}


@given(st.integers(1, 10**7), st.integers(1, 10**7))
def test_the_ladder_holds_what_is_asked_within_the_limit(size: int, limit: int) -> None:
    step = ladder(size, limit)
    assert step <= limit
    assert step >= min(size, limit)
