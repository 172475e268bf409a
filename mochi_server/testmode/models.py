"""The models of test mode: some that are listed; every other name works as well."""

from __future__ import annotations

from typing import Final

from ..protocol.completions import ModelInfo

CONTEXT: Final = 32_768
"""Tokens; no reply is ever refused for being too long."""

_EVERYTHING = ["completion", "tools", "thinking"]
_LISTED: Final = {
    "lorem": (CONTEXT, _EVERYTHING),
    "lorem-small": (4096, _EVERYTHING),
    "lorem-plain": (CONTEXT, ["completion"]),
}


def model_info(name: str, alias: str = "test") -> ModelInfo:
    """Describe a model of any name."""
    context, capabilities = _LISTED.get(name, (CONTEXT, _EVERYTHING))
    return ModelInfo(
        name=name,
        size_mb=1.0,
        format="gguf",
        family="lorem",
        parameter_size="0",
        quantization_level="F16",
        capabilities=list(capabilities),
        context_length=context,
        provider=alias,
    )


def listed_models(alias: str = "test") -> list[ModelInfo]:
    """Return the models that a list shows."""
    return [model_info(name, alias) for name in _LISTED]
