"""Letters as the index sees them: one form for each, no accents, scripts without spaces apart."""

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


def normal(text: str) -> str:
    """One form for what looks the same (NFKC), and nothing that SQLite would stumble over."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", _SURROGATES.sub("\ufffd", text))
    return text.replace("\0", " ").replace(JOINT, " ")


def apart(text: str) -> str:
    """The text with each character of an unspaced script a word of its own."""
    return text if text.isascii() else _RUN.sub(_split, text)


def _split(run: re.Match[str]) -> str:
    return f"{JOINT}{JOINT.join(run[0])}{JOINT}"


def together(text: str) -> str:
    """What ``apart`` was given."""
    return text.replace(JOINT, "")


_LAST_WITH_ACCENTS = 0x2000
"""Behind it, in Japanese and Korean, taking marks away would make other letters."""


class _Folding(dict[int, str]):
    """One character for each, so that places in the folded text are places in the text."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        if code < _LAST_WITH_ACCENTS:
            character = unicodedata.normalize("NFD", character)[0]
        self[code] = character.lower()[0]
        return self[code]


_folding = _Folding()


def fold(text: str) -> str:
    """Small letters without accents, as many characters as before."""
    # Most texts have no accents, and are folded a hundred times faster.
    if unicodedata.is_normalized("NFD", text) and len(small := text.lower()) == len(text):
        return small
    return text.translate(_folding)
