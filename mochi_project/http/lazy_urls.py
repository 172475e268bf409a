"""Parts of the URLconf that are imported when somebody asks for their paths."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from django.urls import URLPattern, URLResolver
from django.urls.exceptions import Resolver404
from django.urls.resolvers import RoutePattern

Patterns = list[URLPattern | URLResolver]


class LazyUrls(URLResolver):
    """URL patterns that are loaded at the first request for a path that begins as theirs do.

    Most servers are asked by few of the clients whose APIs they speak, and building the schemas of
    an API takes tens of milliseconds. Whoever lists all URLs, such as Django's checks, loads them.
    """

    def __init__(self, load: Callable[[], Patterns], name: str, *segments: str) -> None:
        """Make a part.

        Args:
            load: Imports and returns the patterns; called once.
            name: Of the part; ``reverse()`` of what is not in this namespace loads nothing.
            segments: First segments of their paths.
        """
        super().__init__(RoutePattern(""), name, app_name="lazy", namespace=name)
        self._load = load
        self._segments = frozenset(segments)

    @cached_property
    def url_patterns(self) -> Patterns:
        return self._load()

    def resolve(self, path: str) -> Any:  # noqa: ANN401 - as Django's
        if path.partition("/")[0] not in self._segments:
            raise Resolver404({"path": path, "tried": []})
        return super().resolve(path)
