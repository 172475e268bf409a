"""What tools return and raise, as text for a language model."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Set
from dataclasses import is_dataclass
from enum import Enum
from inspect import isawaitable, iscoroutine
from math import isfinite
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from ...errors import JSONObject
from ..base import ToolFailed

logger = logging.getLogger(__name__)

NOTHING = "(no result)"
"""What a model reads when a function returned None; of no text, some call again."""

LARGEST = 2**63
"""Integers beyond are carried neither by our JSON nor by most others'."""


def clean(text: str) -> str:
    """Replace what UTF-8 cannot carry (lone surrogates) by ``?``."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def reason_of(error: BaseException) -> str:
    """Return ``TypeName: message`` on one line, also of an error that cannot be printed."""
    name = type(error).__name__
    try:
        text = " ".join(str(error).split())
    except BaseException:  # noqa: BLE001 - the user's own __str__
        text = ""
    return clean(f"{name}: {text}" if text else name)


def log_failure(tool: str, error: Exception) -> None:
    if isinstance(error, ToolFailed) and error.traceback:
        logger.warning("The tool %s failed: %s\n%s", tool, error, error.traceback.rstrip())


def as_text(value: object) -> str:
    """Return what a tool returned as text for the model.

    Text stays as it is, None is :data:`NOTHING`, what has a structure (dict, list, tuple, set,
    dataclass, pydantic model) becomes JSON, anything else its ``str()``.

    Raises:
        ToolFailed: it cannot be made text.
    """
    if isawaitable(value):
        if iscoroutine(value):
            value.close()
        raise ToolFailed("The tool returned something to await instead of a result.")
    try:
        return clean(_text(value))
    except BaseException as error:  # the user's __str__, __iter__ or serializer
        raise ToolFailed(f"The result cannot be made text: {reason_of(error)}") from error


def _text(value: object) -> str:
    if value is None:
        return NOTHING
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "replace")
    if isinstance(value, Enum):
        return _text(value.value)
    if _has_structure(value):
        plain = to_jsonable_python(_cleaned(value), fallback=str, inf_nan_mode="constants")
        return json.dumps(plain, ensure_ascii=False)
    return str(value)


def _has_structure(value: object) -> bool:
    if isinstance(value, type):
        return False
    return isinstance(value, Mapping | list | tuple | Set | BaseModel) or is_dataclass(value)


def _cleaned(value: object) -> object:
    """Replace in plain containers what pydantic refuses to carry: surrogates, bytes of no text."""
    if isinstance(value, str):
        return clean(str.__str__(value))
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "replace")
    if type(value) is dict:
        return {_cleaned(key): _cleaned(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return [_cleaned(item) for item in value]  # type: ignore[attr-defined]
    return value


def encodable(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """Replace in JSON what encoders refuse: lone surrogates, infinite and huge numbers."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(str(key)): encodable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [encodable(item) for item in value]
    huge = isinstance(value, int) and not -LARGEST <= value < LARGEST
    endless = isinstance(value, float) and not isfinite(value)
    return str(value) if huge or endless else value


def object_or_empty(value: object) -> JSONObject:
    return value if isinstance(value, dict) else {}
