"""The types of values of settings, with their checks."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import Annotated, Literal
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr
from pydantic_settings import NoDecode

from ..constants import DURATION
from ..core.logs import LogFormat

_HOST = re.compile(r"[^/:\s]+|\[?[0-9a-fA-F:.]+\]?")
"""A host name, or an address, in brackets or not; without scheme and port."""

_NETLOC = re.compile(r"(.*@)?(\[[^]]*\]|[^:]*)(:\d{1,5})?")
"""A network location whose port, if any, is a number. The standard library's error for another port
would show it, and it may be a part of a password with a slash in it."""

_DURATION = re.compile(DURATION)


def _split_at_commas(value: object) -> object:
    if isinstance(value, str):
        return [item.strip() for item in value.split(",") if item.strip()]
    return value


def _is_http(parts: SplitResult) -> bool:
    is_complete = parts.scheme in {"http", "https"} and bool(parts.hostname)
    return is_complete and _NETLOC.fullmatch(parts.netloc) is not None


def _check_origins(value: list[str]) -> list[str]:
    for origin in value:
        parts = urlsplit(origin)
        if "*" in origin:
            raise ValueError(f"{origin!r} has a wildcard: name each origin, with its port")
        if parts.path or not _is_http(parts):
            raise ValueError(f"{origin!r} is not an origin such as http://localhost:3000")
    return value


def _upper(value: object) -> object:
    return value.upper() if isinstance(value, str) else value


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _complete_address(value: str) -> str:
    text = value.rstrip("/")
    if re.fullmatch(r":\d+", text):  # Ollama's own programs take a port alone
        text = f"127.0.0.1{text}"
    if "//" not in text:
        text = f"http://{text}"
    parts = urlsplit(text)
    if parts.query or parts.fragment or not _is_http(parts):
        raise ValueError("must be an address such as http://localhost:11434")
    if parts.port is None and parts.scheme == "http" and "//" not in value:
        text = f"{text}:11434"
    return text


def _check_hosts(value: list[str]) -> list[str]:
    for name in value:
        if not _HOST.fullmatch(name):
            raise ValueError(f"{name!r} is not a host name such as chat.example.org")
    return value


def _check_http_address(value: str) -> str:
    parts = urlsplit(value)
    if parts.fragment or not _is_http(parts):
        raise ValueError("must be an address such as https://mochi.example/api/v1/…")
    return value


def _check_redis_address(value: str) -> str:
    parts = urlsplit(value)
    where = parts.path if parts.scheme == "unix" else parts.hostname
    schemes = {"redis", "rediss", "unix"}
    if parts.scheme not in schemes or not where or not _NETLOC.fullmatch(parts.netloc):
        raise ValueError("must be an address such as redis://localhost:6379/0")
    return value


def _check_database_address(value: str) -> str:
    """Have dj-database-url read the address, if it is installed; its errors do not show it."""
    scheme, _, rest = value.partition("://")
    if not scheme or not rest:
        raise ValueError("must be an address such as postgres://user:password@localhost/mochi")
    if find_spec("dj_database_url") is None:
        return value
    import dj_database_url  # noqa: PLC0415 - an extra

    if dj_database_url.parse(value).get("NAME") == ":memory:":
        raise ValueError("must name a file: each connection would have a memory of its own")
    return value


def _check_duration(value: str) -> str:
    if _DURATION.fullmatch(value):
        return value
    raise ValueError("must be seconds (300), or a duration such as 5m, 1h, -1m")


def _none_if_blank(value: SecretStr | None) -> SecretStr | None:
    return value if value is not None and value.get_secret_value().strip() else None


CommaList = Annotated[list[str], NoDecode, BeforeValidator(_split_at_commas)]
Origins = Annotated[CommaList, AfterValidator(_check_origins)]
HostNames = Annotated[CommaList, AfterValidator(_check_hosts)]
LogLevel = Annotated[
    Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"], BeforeValidator(_upper)
]
LogForm = Annotated[LogFormat, BeforeValidator(_lower)]
Environment = Annotated[Literal["production", "test"], BeforeValidator(_lower)]
OllamaAddress = Annotated[str, Field(min_length=1), AfterValidator(_complete_address)]
RedisAddress = Annotated[str, AfterValidator(_check_redis_address)]
DatabaseAddress = Annotated[str, AfterValidator(_check_database_address)]
HTTPAddress = Annotated[str, AfterValidator(_check_http_address)]
Duration = Annotated[str, AfterValidator(_check_duration)]
"""Whole seconds, or a duration in the notation of Go."""
Megabytes = Annotated[float, Field(gt=0, allow_inf_nan=False)]
"""Millions of bytes."""
Token = Annotated[SecretStr | None, AfterValidator(_none_if_blank)]
