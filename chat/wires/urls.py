"""The paths of the wires; each wire is imported when one of its paths is asked for first."""

from __future__ import annotations

from functools import partial
from importlib import import_module

from django.conf import settings
from django.urls import URLPattern, URLResolver, include, path

from mochi_project.http.lazy_urls import LazyUrls, Patterns
from mochi_project.http.wires import OLLAMA_AT_ROOT, WIRES, Wire


def _load(wire: Wire) -> Patterns:
    patterns: Patterns = import_module(wire.routes_module).api.patterns(wire)
    return patterns


def _wires() -> list[URLPattern | URLResolver]:
    parts = {wire.name: LazyUrls(partial(_load, wire), wire.name, *wire.segments) for wire in WIRES}
    prefixes = dict.fromkeys(prefix for wire in WIRES for prefix in wire.prefixes)
    if not settings.MOCHI.ollama_at_root:
        del prefixes[OLLAMA_AT_ROOT]
    below = {
        prefix: [parts[wire.name] for wire in WIRES if prefix in wire.prefixes]
        for prefix in prefixes
    }
    return [path(prefix, include((below[prefix], f"wires of {prefix}"))) for prefix in prefixes]


urlpatterns = _wires()
