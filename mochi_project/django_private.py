"""Private names of Django that we use, as it has no public way; all were seen in Django 5.2.

The overridden methods of its caches are in :mod:`chat.confirmations.cache`.
tests/stories/test_private_names.py says which one a new version has changed.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from django.core.handlers.base import BaseHandler
from django.http import HttpRequest
from django.http.response import HttpResponseBase


def run_middleware(handler: BaseHandler, request: HttpRequest) -> Awaitable[HttpResponseBase]:
    """Call the middleware and the view.

    ``get_response_async`` does it as well, and takes a thread to log each answer from 400 on.
    """
    chain: Any = handler._middleware_chain  # type: ignore[attr-defined]  # noqa: SLF001
    response: Awaitable[HttpResponseBase] = chain(request)
    return response


def release_body(request: HttpRequest) -> None:
    """Free the bytes of the body: a turn that is answered in one piece can take minutes."""
    request._stream.close()  # noqa: SLF001
    request._body = b""  # noqa: SLF001
