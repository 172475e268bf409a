"""Our URLs are under ``/api/v1``, those of vendors' wires where their clients look for them."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import URLPattern, get_script_prefix, include, path, re_path, resolve

from . import api
from .http import errors, page
from .http.gate import METRICS_PATH
from .http.metrics import metrics
from .openapi import asset

handler400 = errors.bad_request
handler404 = errors.not_found
handler500 = errors.server_error


async def root(request: HttpRequest) -> HttpResponseBase:
    """Answer a browser with the page, or lead it to the documentation where there is none."""
    if settings.MOCHI.ollama_at_root and "text/html" not in request.headers.get("Accept", ""):
        return await ollama_runs(request)
    if settings.MOCHI.playground:
        return await page.index(request)
    return HttpResponse(status=302, headers={"Location": f"{get_script_prefix()}api/v1/docs"})


async def ollama_runs(request: HttpRequest) -> HttpResponseBase:
    """Say what Ollama says at its root: its clients look for it."""
    return HttpResponse("Ollama is running", content_type="text/plain; charset=utf-8")


async def nowhere(request: HttpRequest) -> HttpResponseBase:
    """Answer 404 without Django's detour through a thread."""
    return errors.not_found(request)


async def same_as_v1(request: HttpRequest, name: str) -> HttpResponseBase:
    route = resolve(f"/api/v1/{name}")
    response: HttpResponseBase = await route.func(request, *route.args, **route.kwargs)
    return response


MOCHI = settings.MOCHI


def pages() -> list[URLPattern]:
    if not MOCHI.playground:
        return []
    if MOCHI.public_path is not None:
        return [path("<path:name>", page.public_file)]
    return [path(f"{page.PREFIX}<str:version>/<path:name>", page.own_file)]


urlpatterns = [
    path("", root),
    *([path(METRICS_PATH[1:], metrics)] if MOCHI.metrics else ()),
    re_path(r"^api/(?P<name>models/(available|check)|mcp/(health|add))\Z", same_as_v1),
    path("api/v1/docs/<str:name>", asset),
    path("", include("chat.wires.urls")),
    path("api/v1/", include((api.urlpatterns, "ninja"), namespace="api")),
    path("ollama", ollama_runs),
    *pages(),
    re_path("", nowhere),
]
