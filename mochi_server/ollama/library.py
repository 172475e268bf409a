"""What our clients over the ``ollama`` library share: its options, and its errors as ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import orjson
from ollama import ListResponse, ResponseError, ShowResponse

from ..core.http_limits import httpx_limits
from ..errors import MochiError, OllamaError, OllamaUnreachable
from ..protocol.completions import ModelInfo
from .address import Address
from .failures import failure_of_answer, failure_of_line, incomplete
from .transport import Limits
from .types import info_of

CONNECTIONS_KEPT = 20


def client_options(address: Address, limits: Limits, *, is_async: bool = True) -> dict[str, Any]:
    """Arguments for httpx: login, time limits, size limits, any number of connections, no proxies.

    By default httpx waits in silence for one of 100 connections, and would send requests for
    localhost to ``HTTP_PROXY``.
    """
    bounds = httpx_limits(is_async=is_async, has_events=False)
    return {
        **bounds,
        "headers": {**bounds["headers"], **address.headers},
        "timeout": httpx.Timeout(limits.first_byte, connect=limits.connect, pool=None),
        "limits": httpx.Limits(max_connections=None, max_keepalive_connections=CONNECTIONS_KEPT),
        "trust_env": False,
    }


@contextmanager
def translated(host: str, *, model: str | None = None) -> Iterator[None]:
    """Turn what the library raises into this project's errors.

    Raises:
        ModelNotFound, ThinkingNotSupported, ContextOverflow, ProviderBusy, OllamaError,
        OllamaUnreachable.
    """
    try:
        yield
    except MochiError:
        raise
    except ResponseError as error:
        raise _of_response(error, host, model) from error
    except (httpx.ConnectError, httpx.ConnectTimeout, ConnectionError) as error:
        raise OllamaUnreachable(host=host) from error
    except httpx.TimeoutException as error:
        text = f"Ollama at {host} did not answer in time."
        raise OllamaUnreachable(text, details={"host": host}) from error
    except httpx.HTTPError as error:
        raise incomplete("broke off: the connection was lost") from error
    except (ValueError, AttributeError, TypeError) as error:
        # The library raises these for lines that are not JSON, or not objects.
        raise OllamaError(f"{host} does not answer as Ollama does: {error}") from error


def _of_response(error: ResponseError, host: str, model: str | None) -> MochiError:
    told: Any = error.error
    if error.status_code < 0:
        return failure_of_line({"error": told}, model=model)
    plain = isinstance(told, str) and (not told or told.startswith("<"))
    body = told.encode() if plain else orjson.dumps({"error": told})
    return failure_of_answer(error.status_code, body, model=model, host=host)


def info_from_library(
    name: str, shown: ShowResponse, listed: ListResponse.Model | None = None
) -> ModelInfo:
    """A model from the library's objects."""
    return info_of(
        name,
        listed=None if listed is None else listed.model_dump(exclude_none=True),
        shown={**shown.model_dump(exclude_none=True), "model_info": shown.modelinfo or {}},
    )
