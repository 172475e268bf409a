"""Models and messages of Ollama in our terms."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..protocol.completions import ModelInfo
from ..protocol.messages import Message as ChatMessage

__all__ = ["ChatMessage", "ModelInfo"]

_WEIGHTS = re.compile(r"^FROM .*sha256-([0-9a-f]{64})\s*$", re.MULTILINE)
_NUM_CTX = re.compile(r"^num_ctx\s+([1-9]\d{0,8})\s*$", re.MULTILINE)
DETAILS = ("format", "family", "parameter_size", "quantization_level")


def full_name(name: str) -> str:
    """Return the name with its tag; one without means ``:latest``."""
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"


def info_of(
    name: str,
    *,
    listed: Mapping[str, Any] | None = None,
    shown: Mapping[str, Any] | None = None,
    provider: str = "ollama",
) -> ModelInfo:
    """Return a model, described by its entry in ``/api/tags``, by ``/api/show``, or by both."""
    listed, shown = listed or {}, shown or {}
    details = {**(shown.get("details") or {}), **_filled(listed.get("details") or {})}
    size = listed.get("size")
    return ModelInfo(
        name=name,
        size_mb=round(size / 1e6, 1) if isinstance(size, (int, float)) else None,
        capabilities=capabilities_of(listed, shown),
        context_length=context_length_of(shown) or details.get("context_length"),
        provider=provider,
        remote_host=listed.get("remote_host") or shown.get("remote_host"),
        **{key: details.get(key) or None for key in DETAILS},
    )


def _filled(details: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in details.items() if value}


def tells_abilities(entry: Mapping[str, Any]) -> bool:
    """Return whether an entry in ``/api/tags`` or ``/api/show`` says what the model can do."""
    return bool(entry.get("capabilities")) and isinstance(entry["capabilities"], list)


def tells_enough(listed: Mapping[str, Any]) -> bool:
    """Return whether the entry in ``/api/tags`` needs no ``/api/show`` (servers since 0.30)."""
    if not tells_abilities(listed):
        return False
    length = (listed.get("details") or {}).get("context_length")
    return bool(length) or "completion" not in listed["capabilities"]


def capabilities_of(listed: Mapping[str, Any], shown: Mapping[str, Any]) -> list[str]:
    """Return what the model can do; servers before 0.6.4 do not say, the template does."""
    for source in (listed, shown):
        if tells_abilities(source):
            return [str(item) for item in source["capabilities"]]
    return ["completion", "tools"] if ".Tools" in (shown.get("template") or "") else ["completion"]


def context_length_of(shown: Mapping[str, Any]) -> int | None:
    """Return the longest context of the weights, in tokens.

    The key begins with the architecture of the weights, which need not be the ``family`` of the
    details.
    """
    info = shown.get("model_info") or {}
    key = f"{info.get('general.architecture')}.context_length"
    candidates = [info.get(key), *(v for k, v in info.items() if k.endswith(".context_length"))]
    return next((value for value in candidates if isinstance(value, int) and value > 0), None)


def weights_in(shown: Mapping[str, Any]) -> str | None:
    """Return the digest of the weights, which all names of the same file have in common."""
    match = _WEIGHTS.search(shown.get("modelfile") or "")
    return match[1] if match else None


def window_in(shown: Mapping[str, Any]) -> int | None:
    """Return the ``PARAMETER num_ctx`` of the Modelfile, in tokens."""
    match = _NUM_CTX.search(shown.get("parameters") or "")
    return int(match[1]) if match else None


def can_chat(model: ModelInfo) -> bool:
    """Return whether the model is one to talk to (not for embeddings or images only)."""
    return "completion" in model.capabilities
