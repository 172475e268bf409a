"""The actions of ``manage.py sessions``, a module each."""

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
