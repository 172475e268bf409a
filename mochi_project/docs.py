"""The page at ``/api/v1/docs``: Swagger UI as django-ninja ships it, so it works offline."""

from __future__ import annotations

import json
from functools import lru_cache
from html import escape
from pathlib import Path

import ninja
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from ninja import NinjaAPI
from ninja.openapi.docs import DocsBase

from mochi_server.core.aio import in_thread

from .http.errors import not_found

FOLDER = Path(ninja.__file__).parent / "static" / "ninja"

ASSETS = {
    "swagger-ui.css": "text/css; charset=utf-8",
    "swagger-ui-bundle.js": "text/javascript; charset=utf-8",
    "swagger-ui-init.js": "text/javascript; charset=utf-8",
    "favicon.svg": "image/svg+xml",
    "favicon.png": "image/png",
}

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="stylesheet" href="{up}docs/swagger-ui.css">
<link rel="icon" href="{up}docs/favicon.svg" type="image/svg+xml">
</head>
<body data-csrf-token="" data-api-csrf="">
<script type="application/json" id="swagger-settings">{settings}</script>
<div id="swagger-ui"></div>
<script src="{up}docs/swagger-ui-bundle.js"></script>
<script src="{up}docs/swagger-ui-init.js"></script>
</body>
</html>
"""


NOT_FRAMED = {
    "Content-Security-Policy": "frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
}
"""No other site may show the page in a frame: its buttons send requests."""


class OfflineSwagger(DocsBase):
    """Swagger UI, loaded from this server."""

    def render_page(self, request: HttpRequest, api: NinjaAPI, **kwargs: object) -> HttpResponse:  # noqa: ARG002
        """Render the page; its links work behind any prefix and with slashes at the end."""
        up = "../" * (len(request.path) - len(request.path.rstrip("/")))
        settings = {"url": f"{up}openapi.json", "layout": "BaseLayout", "deepLinking": True}
        return HttpResponse(
            PAGE.format(title=escape(api.title), up=up, settings=json.dumps(settings)),
            headers=NOT_FRAMED,
        )


@lru_cache(maxsize=len(ASSETS))
def _content(name: str) -> bytes:
    return (FOLDER / name).read_bytes()


async def asset(request: HttpRequest, name: str) -> HttpResponseBase:
    """Send one of the files in ``ASSETS``."""
    if name not in ASSETS or not (FOLDER / name).is_file():
        return not_found(request)
    content = await in_thread(_content, name)
    headers = {"Cache-Control": "public, max-age=86400"}
    return HttpResponse(content, content_type=ASSETS[name], headers=headers)
