"""Arguments as text for a person who decides: what looks alike or is not seen is written as escape.

The text is JSON, and what it says is exactly what runs: reading it gives the arguments back.
"""

from __future__ import annotations

import json
import re
import unicodedata
from functools import lru_cache

import orjson

from ..errors import JSONObject

_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})

_HIDDEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\ufffd"
    "\U000e0100-\U000e01ef]"
)
"""Characters without a shape whose category does not tell, and the mark of unreadable bytes."""

_WORDS = re.compile(r"\\u[0-9a-f]{4}|\\.|[^\W\d_]+|[^\x20-\x7e\n]", re.DOTALL)
"""An escape of JSON, a word, or a single character that is neither ASCII nor a letter."""

_PLAIN = re.compile("[ -~]*")

_LATIN_LOOKALIKES = frozenset(
    "\u0430\u0441\u0435\u043e\u0440\u0445\u0443\u0456\u0458\u0455\u04bb\u0501\u051b\u051d\u04cf"
    "\u0410\u0412\u0421\u0415\u041d\u041a\u041c\u041e\u0420\u0422\u0425\u0423\u0406\u0408\u0405"
    "\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7"
    "\u03bf\u03bd\u03c1\u03b9\u03ba\u03c5\u03c7\u03b1\u03f3\u0261\u0251\u0578\u057d\u0585"
)
"""Cyrillic, Greek, Armenian and phonetic letters that look like Latin ones."""

_SCRIPTS = re.compile("CYRILLIC |GREEK |ARMENIAN ")

_SIGN_LOOKALIKES = frozenset(
    "\u2010\u2011\u2012\u2013\u2212\u02d7\u2215\u2044\u29f8\u2571\u2216\u29f5\u2223\u01c0\u01c3"
    "\u2217\u2236\ua789\u0589\u05c3\u201a\u02b9\u02bc\u2032\u0701\u0702\u05f4\u3003\u2768\u2769"
)
"""Signs that look like ASCII ones and are not made the same by NFKC."""

_CJK_PUNCTUATION = frozenset("\uff0c\uff01\uff1f\uff1a\uff1b\uff08\uff09")
_CJK = re.compile("[\u3041-\u30ff\u3400-\u9fff\uac00-\ud7a3]")


def is_hidden(character: str) -> bool:
    """Return whether a character has no shape of its own, or changes how others are shown."""
    return unicodedata.category(character) in _HIDDEN_CATEGORIES or bool(_HIDDEN.match(character))


def shown_arguments(arguments: JSONObject) -> str:
    r"""Return the arguments as indented JSON in which nothing is hidden.

    Control, bidirectional and zero-width characters, letters and signs that look like ASCII, and
    accents that are apart from their letter are written as ``\uXXXX``.
    """
    try:
        text = orjson.dumps(arguments, option=orjson.OPT_INDENT_2).decode()
    except TypeError:  # whole numbers beyond 64 bits, half characters
        text = "null"
    if "null" in text:  # orjson writes numbers that are none as null
        text = json.dumps(arguments, ensure_ascii=False, indent=2)
    if text.isascii() and "\x7f" not in text:
        return text
    return "\n".join(line if _PLAIN.fullmatch(line) else _shown(line) for line in text.split("\n"))


def shown_text(text: str) -> str:
    """Return a text of others, such as the description of a tool, in which nothing is hidden."""
    return "\n".join(line if _PLAIN.fullmatch(line) else _shown(line) for line in text.split("\n"))


def _shown(line: str) -> str:
    """Return a line of JSON, which has one value at most, with its escapes."""
    letters = set(line) - _LATIN_LOOKALIKES
    is_foreign = any(_passes_for_latin(each) for each in letters)
    harmless = _CJK_PUNCTUATION if _CJK.search(line) else frozenset[str]()

    def show(match: re.Match[str]) -> str:
        word = match[0]
        if _PLAIN.fullmatch(word):
            return word
        is_mixed = any(each.isascii() for each in word)
        shown = ""
        for each, before in zip(word, line[match.start() - 1] + word, strict=False):
            passes = each in _LATIN_LOOKALIKES and not is_foreign
            passes = passes or (is_mixed and _passes_for_latin(each))
            hides = each not in harmless and (passes or _misleads(each, before))
            shown += _escape(each) if hides else each
        return shown

    return _WORDS.sub(show, line)


@lru_cache(maxsize=8192)
def _passes_for_latin(letter: str) -> bool:
    """Return whether it is a letter of a script that has look-alikes of Latin letters."""
    if letter.isascii() or not letter.isalpha():
        return False
    return letter in _LATIN_LOOKALIKES or _SCRIPTS.match(unicodedata.name(letter, "")) is not None


@lru_cache(maxsize=8192)
def _misleads(character: str, before: str) -> bool:
    """Return whether a person cannot see which character it is, wherever it stands."""
    if " " <= character <= "~":
        return False
    if is_hidden(character) or character in _SIGN_LOOKALIKES:
        return True
    if unicodedata.normalize("NFKC", character).isascii():
        return True
    if len(unicodedata.normalize("NFC", before + character)) == 1:
        return True
    is_mark = unicodedata.category(character) in ("Mn", "Me")
    return is_mark and unicodedata.category(before)[0] not in "LM"


def _escape(character: str) -> str:
    return r"\u007f" if character == "\x7f" else json.dumps(character)[1:-1]
