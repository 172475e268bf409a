"""What ``manage.py sessions`` can do: a module for each action, and a line here."""

from __future__ import annotations

from . import exports, imports, listing, searching, showing
from .action import Action

ACTIONS: dict[str, Action] = {
    "list": listing.ACTION,
    "search": searching.ACTION,
    "show": showing.ACTION,
    "export": exports.ACTION,
    "import": imports.ACTION,
}
