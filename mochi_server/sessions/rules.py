"""A session's own rules about tool calls, as far as its copies have them."""

from __future__ import annotations

from pydantic import JsonValue


def without_allowing(rules: JsonValue) -> JsonValue:
    """Return a session's rules without those that allow calls.

    Those were given for that session alone. What is no rule stays: with it every call is asked
    about.
    """
    if not isinstance(rules, list):
        return rules
    return [each for each in rules if not isinstance(each, dict) or each.get("action") != "allow"]
