"""The tokens of MCP servers, and that there is none."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from pydantic import JsonValue

from ....core.files import locked_file, read_plain, replace_file
from ....core.json_text import parse_json
from ....core.parsed_file import ParsedFile
from ....errors import JSONObject

MAX_BYTES = 1_000_000


class AuthorizationNeeded(Exception):
    """A person has to authorize; the address to go to is shown."""


class TokenFile:
    """Tokens and registrations of all servers, for the owner alone; blocks.

    They are kept by the address of the server: one that gets another address gets no old token.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = ParsedFile(path, _read)

    def read(self, url: str) -> JSONObject:
        """Return what is known of a server: ``tokens``, ``expires_at``, ``client``."""
        kept = self._read().get(key_of(url))
        return kept if isinstance(kept, dict) else {}

    def update(self, url: str, **values: JsonValue) -> None:
        """Store some values of a server.

        Raises:
            OSError: The file cannot be written.
        """
        with locked_file(self._path):
            stored = self._read()
            old = stored.get(key_of(url))
            stored[key_of(url)] = {**(old if isinstance(old, dict) else {}), **values}
            self._write(stored)

    def forget(self, url: str) -> None:
        """Remove everything about a server. Raises as ``update``."""
        if not self._path.exists():
            return
        with locked_file(self._path):
            stored = self._read()
            if stored.pop(key_of(url), None) is not None:
                self._write(stored)

    def _read(self) -> JSONObject:
        try:
            return dict(self._file.load() or {})
        except (OSError, ValueError):  # without it a person authorizes again
            return {}

    def _write(self, stored: JSONObject) -> None:
        replace_file(self._path, [json.dumps(stored).encode()], private=True)


def _read(path: Path) -> JSONObject:
    stored = parse_json(read_plain(path, MAX_BYTES)[0])
    return stored if isinstance(stored, dict) else {}


def key_of(text: str) -> str:
    """Return a name for what may be secret, or has other characters than names of files."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:40]
