"""Whether a text fits a pattern such as ``notes/*``: surely, or possibly.

A tool may take a text for another one: ``notes/../x``, ``NOTES/x``, ``notes%2Fx``. So there are two
questions. Does it fit, whatever a tool makes of it? A rule that allows needs that. Might it fit?
For a rule that denies that is enough.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from pathlib import Path

from ...core.shown_text import is_hidden
from .glob_patterns import Glob, read_pattern
from .text_forms import OPEN_FILES, collapse, decode, fold, is_strange, normal_path, resolved_paths

MAX_TEXT = 4096
"""Characters of the longest text that is compared; a longer one possibly fits every pattern."""

_COMMANDS = re.compile(r"[;|&`()<>\n]+")
_UNKNOWN = re.compile(r"\$[A-Za-z_{']|^\s*~")
"""A variable or a home folder: what it stands for is not known here."""
_EXPANDED = re.compile(r"[*\[{]|^(?!\w+:/).*\?", re.DOTALL)
"""What a tool may expand to the names of several files."""
_EXPANDED_COMMAND = re.compile(r"^(?!\[+(\s|$))\S*[*?\[]|\{(?=[^\s{}]*\})[^\s{}]*?(,|\.\.)")
"""What a shell may expand to the name of a command, or to its words: ``r?``, ``{rm,-rf}``."""
_NEXT_ARGUMENT = re.compile(r"[\s,](?=[\"'/~.@]|-\S|[^\s,]*[:=]/)")
"""Where another path, address or option seems to begin."""
_ADDRESS = re.compile(r"^([a-z][a-z0-9+.-]*):/*(?:[^/?#]*@)?([^/?#:]*)(?::\d*)?/*")
_AUTHORITY = re.compile(r"[A-Za-z][\w+.-]*://[A-Za-z0-9.:-]*(?=/|$)")
ROUTING = "@%!:"
_ROUTED = re.compile(r"(?:([^\s@!%]+)!)?([^\s@!%]+)(?:%([^\s@%]+))?@[^\s@]+")
"""An address that a mail server may send on to another host: ``a%host@relay``, ``host!a@relay``."""
_HOME = re.compile(r"(^|[\s=:,])~")


def surely_fits(pattern: str, text: str) -> bool:
    """Return whether the text fits, whatever a tool makes of it."""
    glob = read_pattern(pattern)
    if len(text) > MAX_TEXT or any(map(is_hidden, text)):
        return False
    if glob.is_literal:
        return text == glob.literal
    readings = {text, decode(text)}
    return all(
        is_direct(reading) and not _is_list(reading, pattern) and glob.matches(reading)
        for reading in readings
    )


def may_fit(pattern: str, forms: Iterable[Glob], readings: Iterable[str] | None) -> bool:
    """Return whether a tool may take a text for one that fits, or for a folder around it.

    ``forms`` are the ``denied_forms`` of the pattern, ``readings`` the ``readings_of`` the text.
    """
    if readings is None:
        return True
    is_path = "/" in pattern
    return any(_reading_fits(glob, each, is_path=is_path) for glob in forms for each in readings)


def path_fits(glob: Glob, path: str, *, anywhere: bool) -> bool:
    """Return whether a folded path fits, taken from where the server runs or from any folder."""
    is_absolute = path.startswith("/")
    texts = [path] if is_absolute else [path, f"/{path}"]
    if glob.literal.startswith("/") and not is_absolute:
        texts.append(posixpath.normpath(f"{fold(str(Path.cwd()))}/{path}"))
        anywhere = False
    return any(glob.matches_loosely(each, anywhere=anywhere) for each in texts)


def holds(folder: str, literal: str) -> bool:
    """Return whether a pattern that begins with this text is about what is in the folder."""
    return folder in ("", ".", "/") or literal.startswith(folder.rstrip("/") + "/")


def _reading_fits(glob: Glob, reading: str, *, is_path: bool) -> bool:
    is_outside = reading == ".." or reading.startswith("../")
    if _UNKNOWN.search(reading) or (is_path and (is_outside or _EXPANDED.search(reading))):
        return True
    if not is_path and glob.literal and _EXPANDED_COMMAND.search(reading):
        return True
    anywhere = not glob.literal.startswith("/") and (reading.startswith("/") or not is_path)
    if path_fits(glob, reading, anywhere=anywhere):
        return True
    return is_path and (holds(reading, glob.literal) or holds(f"/{reading}", glob.literal))


def is_direct(text: str) -> bool:
    """Return whether a text, taken for a path or an address, leads where it seems to."""
    if any(map(is_hidden, text)) or _HOME.search(text):
        return False
    path = text.removeprefix("/")
    if "://" in text:
        if (authority := _AUTHORITY.match(text)) is None:
            return False
        path = text[authority.end() :].removeprefix("/").removesuffix("/") or "index"
    return all(part.strip(" .?") for part in path.split("/"))


def _is_list(text: str, pattern: str) -> bool:
    """Return whether a text may be several arguments or addresses for a pattern of one."""
    if "@" in pattern and any(text.count(sign) != pattern.count(sign) for sign in ROUTING):
        return True
    if re.search(r"[\s,]", pattern):
        return False
    separator = re.compile(r"[\s,]") if "@" in pattern else _NEXT_ARGUMENT
    return separator.search(text) is not None


def readings_of(text: str) -> frozenset[str] | None:
    """Return what a tool may take a text for, folded; None: anything."""
    both = text + decode(text)
    if len(text) > MAX_TEXT or any(map(is_strange, both)) or OPEN_FILES.search(both):
        return None
    folded = {fold(text), fold(decode(text))}
    folded |= {fold(path) for each in (text, decode(text)) for path in resolved_paths(each)}
    folded |= {each.replace("\\", "/") for each in folded}
    folded |= {re.sub(r"\\\n|[\"'\\]", "", each) for each in folded}
    commands = {" ".join(part.split()) for each in folded for part in _COMMANDS.split(each)}
    arguments = {part for each in commands for part in _NEXT_ARGUMENT.split(each)}
    folded |= {re.sub(r"[\t\r\n]", "", each) for each in folded}
    folded |= {each for each in commands | arguments if each}
    folded |= {_ADDRESS.sub(_without_user_and_port, each) for each in folded}
    folded |= {host for each in folded for host in _routed_to(each)}
    collapsed = {collapse(re.sub("^file:/*", "/", each)) for each in folded}
    return frozenset(collapsed | {normal_path(each) for each in collapsed})


def _routed_to(text: str) -> list[str]:
    """Return the addresses at other hosts to which mail for an address may be sent on."""
    routed = _ROUTED.fullmatch(text)
    return [f"{routed[2]}@{host}" for host in (routed[1], routed[3]) if host] if routed else []


def _without_user_and_port(address: re.Match[str]) -> str:
    host = address[2].replace("\u3002", ".")  # as internationalised names have it
    return f"{address[1]}://{host}/"
