"""Plain HTTP manners that neither Django nor ninja has: HEAD, OPTIONS, 405, trailing slashes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase, HttpResponseNotAllowed
from django.utils.decorators import async_only_middleware

from .errors import method_not_allowed
from .responses import no_content

NO_CONTENT = 204

GetResponse = Callable[[HttpRequest], Awaitable[HttpResponseBase]]


@async_only_middleware
def plain_http(get_response: GetResponse) -> GetResponse:
    """HEAD is GET without its body (the server drops that), OPTIONS tells the methods."""

    async def middleware(request: HttpRequest) -> HttpResponseBase:
        method = request.method or ""
        if method == "HEAD":
            request.method = "GET"
        if request.path_info != "/" and (not request.path_info or request.path_info[-1] == "/"):
            request.path_info = request.path_info.rstrip("/") or "/"
        response = await get_response(request)
        request.method = method
        if isinstance(response, HttpResponseNotAllowed):
            response = _not_allowed(method, response)
        if isinstance(response, HttpResponse) and response.status_code != NO_CONTENT:
            response["Content-Length"] = str(len(response.content))
        return response

    return middleware


def _not_allowed(method: str, response: HttpResponseNotAllowed) -> HttpResponse:
    allowed = {name.strip() for name in response["Allow"].split(",")} | {"OPTIONS"}
    if "GET" in allowed:
        allowed.add("HEAD")
    if method == "OPTIONS":
        answer = no_content()
        answer["Allow"] = ", ".join(sorted(allowed))
        return answer
    return method_not_allowed(method, allowed)
