"""Whether a text that is still arriving may yet turn out to be calls, and nothing else."""

from __future__ import annotations

import json
import re
from typing import Final

from ...core.json_text import DECODER
from .marks import ARGUMENTS, BETWEEN, CLOSING, FENCES, MARK, XML, begins_mark
from .offers import Offers
from .reading import ALSO, ARGUMENT_KEYS, NAMES, WRAPPERS, calls_of_value, is_imagined_result

_KEYS: Final = (*NAMES, *ARGUMENT_KEYS, *WRAPPERS, *ALSO)
_OPENING: Final = re.compile(r"(?:\[\s*){0,3}")
_FIRST_KEY: Final = re.compile(r"\{\s*\{?\s*[\"']?(\w*)")
_WRITTEN_NAME: Final = re.compile(rf'[\[{{\s]*"(?:{"|".join(NAMES)})"\s*:\s*"([^"\\]*)"')
_XML_NAME: Final = re.compile(r"<(?:function=|invoke name=\")([^>\"\n]*)([>\"]?)")
_XML_END: Final = re.compile(r"</(?:function|invoke)>")
_NAME: Final = re.compile(r"[\w.:/-]{0,128}")
_BEHIND_NAME: Final = ("(", "{", "\n", "<arg_key>", "```", "[CALL_ID]", *ARGUMENTS)


def may_be_calls(text: str, offers: Offers, *, with_results: bool = False) -> bool:
    """Return whether what has come can be the beginning, or all, of calls of offered tools.

    Args:
        text: From a mark, a fence, or a brace on.
        offers: The tools.
        with_results: Whether objects that are no calls may follow a call.
    """
    if not _may_be_fence(text):
        return False
    is_marked, has_value = False, False
    while True:
        between = BETWEEN.match(text)
        assert between is not None  # noqa: S101 - it fits nothing as well
        is_marked |= MARK.search(between[0]) is not None
        text = text[between.end() :]
        if not text or (has_value and CLOSING.fullmatch(text)):
            return True
        if text.startswith(XML):
            rest = _behind_xml(text, offers)
        elif begins_mark(text) or text[0] == "`":
            return _may_be_fence(text)
        elif text[0] in "{[":
            rest = _behind_json(text, offers, is_result=with_results and has_value)
        else:
            return is_marked and _may_be_name(text, offers)
        if isinstance(rest, bool):
            return rest
        text, has_value = rest, True


def _may_be_fence(text: str) -> bool:
    """Return whether a text begins with no fence, or with one that may have calls."""
    if not text.startswith("`"):
        return True
    if not text.startswith("```"):
        return "```".startswith(text)
    line, newline, _ = text[3:].partition("\n")
    language = line.strip().lower()
    return language in FENCES if newline else any(each.startswith(language) for each in FENCES)


def _behind_xml(text: str, offers: Offers) -> str | bool:
    name = _XML_NAME.match(text)
    if name is None or not name[2]:
        return len(text) < len("<function=") + 128
    if offers.name_of(name[1]) is None:
        return False
    end = _XML_END.search(text)
    return True if end is None else text[end.end() :]


def _behind_json(text: str, offers: Offers, *, is_result: bool) -> str | bool:
    if not is_result and not _may_be_json(text, offers):
        return False
    try:
        value, end = DECODER.raw_decode(text)
        if is_result and is_imagined_result(value, offers.name_of):
            return text[end:]
        calls = list(calls_of_value(value))
    except RecursionError:
        return False
    except json.JSONDecodeError:
        return True
    except ValueError:
        return False
    return all(offers.name_of(call.name) for call in calls) and text[end:]


def _may_be_json(text: str, offers: Offers) -> bool:
    opening = _OPENING.match(text)
    head = text[opening.end() if opening else 0 :]
    if not head:
        return True
    if not head.startswith("{"):
        name = _NAME.match(head)
        return text.startswith("[") and name is not None and offers.may_begin(name[0] or head)
    if (named := _WRITTEN_NAME.match(text)) and offers.name_of(named[1]) is None:
        return False
    key = _FIRST_KEY.match(head)
    if key is None:
        return False
    if key.end() == len(head):
        return any(each.startswith(key[1]) for each in _KEYS)
    return key[1] in _KEYS


def _may_be_name(text: str, offers: Offers) -> bool:
    name = _NAME.match(text)
    if name is None or name.end() == len(text):
        return True
    rest = text[name.end() :].lstrip(" ")
    if not rest or any(each.startswith(rest) for each in _BEHIND_NAME):
        return True
    is_name = name[0] in ("function", "print") or offers.name_of(name[0].removesuffix(".call"))
    return bool(is_name) and rest.startswith(_BEHIND_NAME)
