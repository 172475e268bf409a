"""The forms that a text takes on the way to what a tool uses: decoded, folded, as a path."""

from __future__ import annotations

import os
import posixpath
import re
import unicodedata
from pathlib import Path
from urllib.parse import unquote

from ...core.shown_text import is_hidden

MAX_LAYERS = 8
"""Encodings within each other that are undone."""

UNDECODABLE = "\0"
"""What ``decode`` makes of a text with more layers than that; no tool takes it."""

OPEN_FILES = re.compile(r"/proc/[^/]+(/task/[^/]+)?/fd/|/dev/fd/")
"""Links of Linux to what a process has opened, which may be anything."""

_PROC = re.compile(r"/proc/[^/]+(?:/task/[^/]+)?/(root|cwd)(?=/|$)")
"""Links of Linux to the root folder, and to where a process runs."""


def decode(text: str) -> str:
    """Return what is left when nothing is encoded any more, nor hidden in forms of characters."""
    for _ in range(MAX_LAYERS):
        decoded = unquote(unicodedata.normalize("NFKC", without_joiners(text)))
        if decoded == text:
            return text
        text = decoded
    return UNDECODABLE


def fold(text: str) -> str:
    """Return a text without case, accents apart, and without what has no shape."""
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFKD", without_joiners(text))
    return unicodedata.normalize("NFKD", decomposed.casefold())


def without_joiners(text: str) -> str:
    if text.isascii():
        return text
    return "".join(each for each in text if not is_hidden(each) or is_strange(each))


def is_strange(character: str) -> bool:
    """Return whether it is hidden, and neither white space nor a joiner within words and emoji."""
    if character in "\t\n\r" or not is_hidden(character):
        return False
    return unicodedata.category(character) not in ("Cf", "Mn")


def collapse(text: str) -> str:
    """Return a path without doubled ``/`` and without ``.`` in it."""
    return re.sub(r"(^|/)(\./)+", r"\1", re.sub("/+", "/", text))


def normal_path(text: str) -> str:
    """Return a path without ``..`` where it can be told, and blanks at the ends of names."""
    parts = [part.rstrip(" .") or part.strip() for part in text.split("/")]
    return posixpath.normpath("/".join(parts))


def resolved_paths(text: str) -> set[str]:
    """Return where a path leads by links that can be followed here; none: where it seems to."""
    path = text
    for _ in range(MAX_LAYERS):
        target = _PROC.search(path)
        if target is None:
            break
        path = path[target.end() :] if target[1] == "root" else f".{path[target.end() :]}"
        path = path or "/"
    paths = {path} - {text}
    if len(text) < os.pathconf("/", "PC_PATH_MAX") and "\0" not in text and text:
        whole = posixpath.normpath(Path.cwd() / path)
        paths |= {os.path.realpath(Path.cwd() / path)} - {whole}
    return paths
