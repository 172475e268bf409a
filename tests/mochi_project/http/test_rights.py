"""Every route has a right, and a token without it is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.urls import URLPattern, URLResolver, get_resolver
from ninja.operation import PathView

from mochi_project.http.rights import ADMIN, ROUTES, access_to
from mochi_project.http.wires import WIRES, Wire
from mochi_server.core.caller import RIGHTS, rights_of

OF_NINJA = {"api/v1/", "v1/", "ollama/api/"}
"""Roots of Ninja's that answer 404."""


def patterns(
    found: list[URLPattern | URLResolver], prefix: str = ""
) -> Iterator[tuple[str, URLPattern]]:
    for pattern in found:
        route = f"{prefix}{pattern.pattern}"
        if isinstance(pattern, URLResolver):
            yield from patterns(pattern.url_patterns, route)
        else:
            yield route, pattern


def view_of(pattern: URLPattern) -> PathView | None:
    callback: Any = pattern.callback
    cells = [cell.cell_contents for cell in getattr(callback, "__closure__", None) or ()]
    return next((each for each in cells if isinstance(each, PathView)), None)


def operations() -> set[str]:
    """All operations, as the table writes them."""
    found = set()
    for route, pattern in patterns(get_resolver("mochi_project.urls").url_patterns):
        if route in OF_NINJA or route.startswith(("^", "ollama/v1/")):
            continue
        view = view_of(pattern)
        methods = {"GET"} if view is None else {m for o in view.operations for m in o.methods}
        found |= {f"{method} {route}" for method in methods}
    return found


def test_every_route_is_in_the_table_and_no_other() -> None:
    switched_on = {"GET <path:name>", "GET metrics"}  # by MOCHI_PUBLIC_DIR and MOCHI_METRICS
    assert operations() ^ set(ROUTES) <= switched_on


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
def test_a_wire_with_a_route_without_a_right_is_not_loaded(wire: Wire) -> None:
    *others, forgotten = wire.routes
    short = replace(wire, routes={name: wire.routes[name] for name in others})
    api = import_module(wire.routes_module).api
    assert api.patterns(wire)
    with pytest.raises(ImproperlyConfigured, match=forgotten):
        api.patterns(short)


def test_what_is_not_in_the_table_needs_all_rights() -> None:
    assert access_to("GET", "api/v1/tomorrow") == ADMIN
    assert access_to("PUT", "api/v1/sessions") == ADMIN


def test_a_route_of_ollama_needs_the_same_at_the_root() -> None:
    assert access_to("POST", "api/pull") == access_to("POST", "ollama/api/pull") == ADMIN
    assert access_to("POST", "api/chat").right == "chat"


def test_a_route_below_v1_needs_the_same_below_that_of_ollama() -> None:
    for name in ("POST v1/responses", "DELETE v1/conversations/<conversation_id>"):
        method, _, route = name.partition(" ")
        assert access_to(method, f"ollama/{route}") == access_to(method, route) == ROUTES[name]


@pytest.mark.parametrize("right", RIGHTS)
def test_every_right_includes_reading(right: Any) -> None:
    assert "read" in rights_of(right)


def test_nothing_that_changes_is_open_or_for_readers() -> None:
    changing = {
        operation: access.right
        for operation, access in ROUTES.items()
        if not operation.startswith("GET ") and access.right in {None, "read"}
    }
    assert changing == {
        "POST ollama/api/show": "read",  # Ollama reads with POST
        "POST api/v1/sessions/export": "read",  # it may name many
    }
