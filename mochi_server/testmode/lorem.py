"""Lorem ipsum of a given length, and texts in pieces of a few words: the same for the same seed.

Neither Python's ``hash`` nor ``random`` is used: both may differ between starts or versions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import sha256
from typing import Final

SHORTEST: Final = 5
LONGEST: Final = 500
"""Words of a text without a given length, at most."""

FEWEST: Final = 3
MOST: Final = 10
"""Words of a piece, at most; the last one of a text may have fewer than ``FEWEST``."""

SENTENCE: Final = 8  # words

_TEXT = """
lorem ipsum dolor sit amet consectetur adipiscing elit sed do eiusmod tempor incididunt ut labore et
dolore magna aliqua enim ad minim veniam quis nostrud exercitation ullamco laboris nisi aliquip ex
ea commodo consequat duis aute irure in reprehenderit voluptate velit esse cillum fugiat nulla
pariatur excepteur sint occaecat cupidatat non proident sunt culpa qui officia deserunt mollit anim
id est laborum
"""
VOCABULARY: Final = tuple(_TEXT.split())

_WORD = re.compile(r"\s*\S+|\s+$")
"""A word with the space before it."""


def stable_hash(text: str) -> int:
    """Return a 64-bit hash that is the same on every machine and in every version."""
    return int.from_bytes(sha256(text.encode("utf-8", "surrogatepass")).digest()[:8], "big")


def numbers(seed: str) -> Iterator[int]:
    """Yield endless numbers below 2**31 that depend on the seed alone."""
    state = stable_hash(seed)
    while True:
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        yield state >> 33


def length_of(message: str) -> int:
    """Return how many words of lorem ipsum answer a message: 5 to 500."""
    return SHORTEST + stable_hash(message) % (LONGEST - SHORTEST + 1)


def lorem(words: int, seed: str) -> str:
    """Return so many words of lorem ipsum, in sentences."""
    row = numbers(seed)
    chosen = [VOCABULARY[next(row) % len(VOCABULARY)] for _ in range(words)]
    sentences = [chosen[at : at + SENTENCE] for at in range(0, words, SENTENCE)]
    return " ".join(f"{' '.join(sentence).capitalize()}." for sentence in sentences)


def words_of(text: str) -> list[str]:
    """Split a text into words, each with the space before it."""
    return _WORD.findall(text)


def pieces(text: str, seed: str) -> Iterator[tuple[str, int]]:
    """Yield the text in pieces of 3 to 10 words, each with its number of words."""
    words, sizes, at = words_of(text), numbers(seed), 0
    while at < len(words):
        size = FEWEST + next(sizes) % (MOST - FEWEST + 1)
        piece = words[at : at + size]
        yield "".join(piece), len(piece)
        at += size
