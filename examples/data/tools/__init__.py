"""Tools that models may call: every function in ``__all__``, in groups.

Change, add and delete as you like: the server notices changed files by itself. A function needs
hints, a docstring, and a result in words.
"""

from __future__ import annotations

from .calculator import calculate
from .chance import choose, roll_dice, shuffle
from .clock import add_to_date, convert_time, current_time, days_between
from .text import (
    count_text,
    extract_from_text,
    format_json,
    pick_from_json,
    replace_in_text,
    sort_lines,
)
from .units import convert_units

__all__ = [
    "add_to_date",
    "calculate",
    "choose",
    "convert_time",
    "convert_units",
    "count_text",
    "current_time",
    "days_between",
    "extract_from_text",
    "format_json",
    "pick_from_json",
    "replace_in_text",
    "roll_dice",
    "shuffle",
    "sort_lines",
]

# A session enables a whole group by its name: {"tool_settings": {"tool_group": "math"}}.
__math__ = ["calculate", "convert_units"]
__time__ = ["current_time", "convert_time", "days_between", "add_to_date"]
__text__ = [
    "count_text",
    "replace_in_text",
    "sort_lines",
    "extract_from_text",
    "format_json",
    "pick_from_json",
]
__chance__ = ["roll_dice", "choose", "shuffle"]

# None of these changes anything: with the policy confirm_destructive nobody is asked about them.
# Without this list every tool of this file would count as destructive.
__destructive__: list[str] = []
