"""The declared wires, by which the tables of tests are held to have all of them."""

from __future__ import annotations

from collections.abc import Iterable

from mochi_project.http.wires import WIRES, Wire

WITHOUT_MODEL = {"models", "conversations"}
"""Wires that ask no model anything."""


def paths_of(wire: Wire) -> list[str]:
    """Return the paths of a wire's routes below its first prefix."""
    return [f"/{wire.prefixes[0]}{route.partition(' ')[2]}" for route in wire.routes]


def wires_without(paths: Iterable[str]) -> set[str]:
    """Return the names of the wires of which none of the paths is."""
    known = set(paths)
    return {wire.name for wire in WIRES if known.isdisjoint(paths_of(wire))}
