"""Requests of Anthropic's Messages API: what a model takes, its limits, thinking and schemas."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ...errors import ThinkingNotSupported
from ..base import ModelRequest, Think
from ..common.history import Names, system_of
from .wire import REPLY_TOOL, may_think, to_wire, tools_of

if TYPE_CHECKING:
    from anthropic.types import ModelInfo as VendorsModel

DEFAULT_MAX_TOKENS: Final = 8192
"""Longest reply where nothing limits it: the API wants a limit."""

BUDGETS: Final[dict[Think, int]] = {
    False: 0,
    "low": 2048,
    True: 8192,
    "medium": 8192,
    "high": 16384,
    "max": 32768,
}
"""Tokens of thinking, on top of the reply's."""

SMALLEST_BUDGET: Final = 1024


@dataclass(frozen=True, slots=True)
class Traits:
    """What differs between the models."""

    most_tokens: int | None = None
    """Longest reply."""
    adaptive: bool = False
    enabled: bool = False
    disabled: bool = False
    """Which kinds of ``thinking`` it takes."""
    efforts: frozenset[str] = frozenset()
    schema: bool = False

    @classmethod
    def of(cls, model: VendorsModel) -> Traits:
        """As the list of models has it."""
        can = model.capabilities
        if can is None:
            return cls(most_tokens=model.max_tokens)
        kinds = can.thinking.types
        levels = ("low", "medium", "high", "max")
        return cls(
            most_tokens=model.max_tokens,
            adaptive=can.thinking.supported and kinds.adaptive.supported,
            enabled=can.thinking.supported and kinds.enabled.supported,
            disabled=can.thinking.supported and kinds.disabled.supported,
            efforts=frozenset(
                level
                for level in levels
                if can.effort.supported and getattr(can.effort, level).supported
            ),
            schema=can.structured_outputs.supported,
        )


Strict = Callable[[dict[str, Any]], dict[str, Any]]
"""Makes a JSON schema one that the API takes."""


def payload_of(
    request: ModelRequest, traits: Traits, names: Names, *, most: int | None, strict: Strict
) -> dict[str, Any]:
    """The fields of the request; ``most`` is the longest reply that the settings allow.

    Raises:
        ThinkingNotSupported: the reply may not be long enough for any.
    """
    messages = to_wire(request.messages, request.model, names)
    payload: dict[str, Any] = {"model": request.model, "messages": messages, "stream": True}
    payload |= tools_of(request, messages, names)
    if system := system_of(request.messages):
        payload["system"] = system
    if request.schema is not None:
        payload |= _schema(request.schema, traits, strict)
    think = request.think if may_think(messages) and not is_forced(payload) else False
    limit = _limit(request, traits, think, most)
    payload["max_tokens"] = limit
    if request.temperature is not None and traits.enabled and not think:
        # Models that think as they like take none, and the SDK has no word for it any more.
        payload["extra_body"] = {"temperature": request.temperature}
    return _merged(payload, _thinking(request.model, traits, think, limit))


def is_forced(payload: Mapping[str, Any]) -> bool:
    """Whether the reply comes as a call of ``REPLY_TOOL``."""
    return "name" in payload.get("tool_choice", {})


def _limit(request: ModelRequest, traits: Traits, think: Think, most: int | None) -> int:
    # A model that cannot be kept from thinking needs the room in any case.
    unasked = BUDGETS[True] if traits.adaptive and not traits.disabled and not think else 0
    wanted = request.max_tokens + unasked if request.max_tokens else None
    bounds = (most or DEFAULT_MAX_TOKENS + BUDGETS[think] + unasked, wanted, traits.most_tokens)
    return min(bound for bound in bounds if bound)


def _schema(schema: dict[str, Any], traits: Traits, strict: Strict) -> dict[str, Any]:
    if traits.schema:
        return {"output_config": {"format": {"type": "json_schema", "schema": strict(schema)}}}
    tool = {"name": REPLY_TOOL, "description": "Give the reply.", "input_schema": schema}
    return {"tools": [tool], "tool_choice": {"type": "tool", "name": REPLY_TOOL}}


def _thinking(model: str, traits: Traits, think: Think, limit: int) -> dict[str, Any]:
    """The fields on thinking.

    Raises:
        ThinkingNotSupported: the reply may not be long enough for any.
    """
    if not think:
        return {"thinking": {"type": "disabled"}} if traits.disabled else {}
    if traits.adaptive:
        effort = {"output_config": {"effort": think}} if think in traits.efforts else {}
        return {"thinking": {"type": "adaptive", "display": "summarized"}, **effort}
    budget = min(BUDGETS[think], limit // 2)
    if budget < SMALLEST_BUDGET:
        raise ThinkingNotSupported(
            f"Model {model!r} cannot think within {limit} tokens of output.",
            details={"model": model, "max_tokens": limit},
        )
    return {"thinking": {"type": "enabled", "budget_tokens": budget}}


def _merged(payload: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Both; a schema and an effort share one field."""
    config = {**payload.get("output_config", {}), **more.get("output_config", {})}
    return {**payload, **more, **({"output_config": config} if config else {})}
