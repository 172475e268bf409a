"""Normalize texts for the index: one form of each letter, words also in scripts without spaces."""

from __future__ import annotations

import re
import unicodedata

JOINT = "\x1f"
"""Between characters that belong together in the text and are words of their own in the index."""

UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3100-\u312f\u31a0-\u31bf"
    "\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Thai, Lao, Burmese, Khmer, Japanese, Chinese, and Korean, whose endings stick to the words."""

_RUN = re.compile(f"[{UNSPACED}]+")
_SURROGATES = re.compile("[\ud800-\udfff]")


def normalize(text: str) -> str:
    """Return the text in normal form (NFKC), without characters that SQLite cannot store."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", _SURROGATES.sub("\ufffd", text))
    return text.replace("\0", " ").replace(JOINT, " ")


def split_unspaced(text: str) -> str:
    """Make each character of a script without spaces a separate word."""
    return text if text.isascii() else _RUN.sub(_split, text)


def _split(run: re.Match[str]) -> str:
    return f"{JOINT}{JOINT.join(run[0])}{JOINT}"


def join_unspaced(text: str) -> str:
    """Undo ``split_unspaced``."""
    return text.replace(JOINT, "")


_LAST_WITH_ACCENTS = 0x2000
"""In Japanese and Korean, which come after it, removing marks would make other letters."""


class _Folding(dict[int, str]):
    """A table with one character for each, so that positions stay the same."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        if code < _LAST_WITH_ACCENTS:
            character = unicodedata.normalize("NFD", character)[0]
        self[code] = character.lower()[0]
        return self[code]


_folding = _Folding()


def fold(text: str) -> str:
    """Return lower-case letters without accents; the number of characters stays the same."""
    # Most texts have no accents, and are folded a hundred times faster.
    if unicodedata.is_normalized("NFD", text) and len(small := text.lower()) == len(text):
        return small
    return text.translate(_folding)
