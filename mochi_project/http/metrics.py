"""``/metrics``, for Prometheus."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed

from mochi_server.errors import NotFound

from ..runtime import get_runtime
from .errors import error_response


async def metrics(request: HttpRequest) -> HttpResponse:
    """Answer with the metrics of all processes of this server."""
    known = get_runtime().metrics
    if known is None:
        return error_response(NotFound(path=request.path), request.path_info)
    if request.method != "GET":
        return HttpResponseNotAllowed(["GET"])
    text, media_type = await known.scrape(request.headers.get("Accept", ""))
    return HttpResponse(text, content_type=media_type, headers={"Cache-Control": "no-store"})
