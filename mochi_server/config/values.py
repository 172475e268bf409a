"""Types of the values of settings."""

from __future__ import annotations

import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr
from pydantic_settings import NoDecode

_PORT = re.compile(r"(.*@)?(\[[^]]*\]|[^:]*)(:\d{1,5})?")
"""A network location with a port or without; the standard library's error would show what else is
there, which may be a part of a password with a slash in it."""

_DURATION = re.compile(r"-?([0-9]+|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h))+)")


def _split(value: object) -> object:
    if isinstance(value, str):
        return [item.strip() for item in value.split(",") if item.strip()]
    return value


def _are_origins(value: list[str]) -> list[str]:
    for origin in value:
        parts = urlsplit(origin)
        if "*" in origin:
            raise ValueError(f"{origin!r} has a wildcard: name each origin, with its port")
        if (
            parts.scheme not in {"http", "https"}
            or not parts.hostname
            or parts.path
            or not _PORT.fullmatch(parts.netloc)
        ):
            raise ValueError(f"{origin!r} is not an origin such as http://localhost:3000")
    return value


def _upper(value: object) -> object:
    return value.upper() if isinstance(value, str) else value


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _complete(value: str) -> str:
    text = value.rstrip("/")
    if re.fullmatch(r":\d+", text):  # Ollama's own programs take a port alone
        text = f"127.0.0.1{text}"
    if "//" not in text:
        text = f"http://{text}"
    parts = urlsplit(text)
    if (
        parts.scheme not in {"http", "https"}
        or not parts.hostname
        or parts.query
        or parts.fragment
        or not _PORT.fullmatch(parts.netloc)
    ):
        raise ValueError("must be an address such as http://localhost:11434")
    if parts.port is None and parts.scheme == "http" and "//" not in value:
        text = f"{text}:11434"
    return text


def _is_redis(value: str) -> str:
    parts = urlsplit(value)
    where = parts.path if parts.scheme == "unix" else parts.hostname
    schemes = {"redis", "rediss", "unix"}
    if parts.scheme not in schemes or not where or not _PORT.fullmatch(parts.netloc):
        raise ValueError("must be an address such as redis://localhost:6379/0")
    return value


def _is_duration(value: str) -> str:
    if _DURATION.fullmatch(value):
        return value
    raise ValueError("must be seconds (300), or a duration such as 5m, 1h, -1m")


def _or_none(value: SecretStr | None) -> SecretStr | None:
    if value is not None and not value.get_secret_value().strip():
        return None
    return value


CommaList = Annotated[list[str], NoDecode, BeforeValidator(_split)]
"""Texts separated by commas."""

Origins = Annotated[CommaList, AfterValidator(_are_origins)]
"""Origins of web pages, separated by commas."""

LogLevel = Annotated[
    Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"], BeforeValidator(_upper)
]

Environment = Annotated[Literal["production", "test"], BeforeValidator(_lower)]

OllamaAddress = Annotated[str, Field(min_length=1), AfterValidator(_complete)]
"""An address; a missing scheme or port is added."""

RedisAddress = Annotated[str, AfterValidator(_is_redis)]

Duration = Annotated[str, AfterValidator(_is_duration)]
"""Whole seconds, or a duration in the notation of Go."""

Megabytes = Annotated[float, Field(gt=0, allow_inf_nan=False)]
"""Millions of bytes."""

Token = Annotated[SecretStr | None, AfterValidator(_or_none)]
"""A secret; blanks alone are no secret."""
