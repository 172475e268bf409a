"""Contents of replies: lorem ipsum, the same for the same seed, and examples of JSON schemas.

Neither Python's ``hash`` nor ``random`` is used: both may differ between starts or versions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from itertools import islice
from typing import Any, Final

MIN_WORDS: Final = 5
MAX_WORDS: Final = 500
"""Words of a text without a given length, at most."""

MIN_PIECE: Final = 3
MAX_PIECE: Final = 10
"""Words of a piece, at most; the last one of a text may have fewer than ``MIN_PIECE``."""

SENTENCE: Final = 8  # words

DIMENSIONS: Final = 64
"""Numbers of a vector, at most."""

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


def vector_of(text: str, dimensions: int = 0) -> list[float]:
    """Return a vector of length 1 that follows from the text; 0 for all of its numbers."""
    size = dimensions if 0 < dimensions < DIMENSIONS else DIMENSIONS
    parts = [number / 2**30 - 1 for number in islice(numbers(text), size)]
    length = math.sqrt(sum(part * part for part in parts))
    return [round(part / length, 9) for part in parts]


def length_of(message: str) -> int:
    """Return how many words of lorem ipsum answer a message: 5 to 500."""
    return MIN_WORDS + stable_hash(message) % (MAX_WORDS - MIN_WORDS + 1)


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
        size = MIN_PIECE + next(sizes) % (MAX_PIECE - MIN_PIECE + 1)
        piece = words[at : at + size]
        yield "".join(piece), len(piece)
        at += size


DEEPEST: Final = 32
"""Levels of nesting after which a value is null."""

DEEP: Final = (8, 4, 2, 0)
"""Levels after which null is preferred among alternatives and optional fields are left out, since a
schema may contain itself. The first of them that gives a small enough value counts."""

MAX_PARTS: Final = 10_000
"""Parts of a value; ``PART`` characters of a text count as one."""

PART: Final = 20

TEXT: Final = "Lorem ipsum"

_NULL: Final = {"type": "null"}


class NoExample(ValueError):
    """The schema is invalid, or asks for a value that is too large."""


def example_of(schema: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any JSON
    """Return a small value that fits the schema's types, enums and references.

    Patterns and formats are ignored.

    Raises:
        NoExample: There is none.
    """
    examples = (_example(schema, deep) for deep in DEEP)
    small = next((value for value in examples if value is not None), None)
    if small is None:
        raise NoExample("The schema is none, or asks for too much.")
    return small[0]


def _example(schema: Mapping[str, Any], deep: int) -> tuple[Any] | None:
    """Return the value in a tuple, since it may be null itself; None where there is none."""
    try:
        return (_Examples(schema, deep).of(schema, 0),)
    except (_TooMuch, AttributeError, LookupError, TypeError):  # a keyword of the wrong type
        return None


class _TooMuch(Exception):
    pass


class _Examples:
    def __init__(self, root: Mapping[str, Any], deep: int) -> None:
        self.root = root
        self._deep = deep
        self._left = MAX_PARTS

    def _spend(self, parts: int) -> None:
        self._left -= parts
        if self._left < 0:
            raise _TooMuch

    def of(self, schema: Any, depth: int) -> Any:  # noqa: ANN401
        self._spend(1)
        if not isinstance(schema, Mapping) or depth > DEEPEST:
            return None
        if "$ref" in schema:
            return self.of(self._target(str(schema["$ref"])), depth + 1)
        for word in ("const", "default"):
            if word in schema:
                return schema[word]
        for word in ("enum", "examples"):
            if schema.get(word):
                return schema[word][0]
        for word in ("anyOf", "oneOf", "allOf"):
            if schema.get(word):
                ends = depth > self._deep and _NULL in schema[word]
                return self.of(_NULL if ends else schema[word][0], depth + 1)
        return self._of_type(schema, depth)

    def _target(self, reference: str) -> Any:  # noqa: ANN401
        target: Any = self.root
        for name in reference.removeprefix("#").split("/")[1:]:
            target = target.get(name) if isinstance(target, Mapping) else None
        return target

    def _of_type(self, schema: Mapping[str, Any], depth: int) -> Any:  # noqa: ANN401
        kind = schema.get("type", "object" if "properties" in schema else None)
        kind = kind[0] if isinstance(kind, list) and kind else kind
        if kind == "object":
            fields, required = schema.get("properties", {}), schema.get("required", ())
            names = fields if depth <= self._deep else [name for name in fields if name in required]
            return {name: self.of(fields[name], depth + 1) for name in names}
        if kind == "array":
            count, left = max(schema.get("minItems", 1), 1), self._left
            item = self.of(schema.get("items"), depth + 1)
            self._spend((count - 1) * (left - self._left))
            return [item] * count
        return self._of_scalar(kind, schema)

    def _of_scalar(self, kind: object, schema: Mapping[str, Any]) -> Any:  # noqa: ANN401
        if kind == "string":
            length = schema.get("minLength", 0)
            self._spend(length // PART)
            text = TEXT.ljust(length, ".")
            return text[: schema.get("maxLength", len(text))]
        if kind in {"integer", "number"}:
            return schema.get("minimum", schema.get("exclusiveMinimum", 0) + 1)
        return False if kind == "boolean" else None
