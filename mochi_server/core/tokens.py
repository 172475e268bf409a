"""Tokens with names and rights: a file of their hashes, which people may read and edit.

A token has 160 random bits, so nobody can guess one from its hash, and a plain SHA-256 is enough.
The file is checked at each request; a change holds at once, in all processes.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from ..errors import JSONObject
from .caller import RESERVED_NAMES, Caller, Right, rights_of
from .files import NotUTF8, locked, make_folder, read_plain, replace_file, text_of
from .parsed_file import ParsedFile
from .problems import first_problem

logger = logging.getLogger(__name__)

TOKENS = "tokens.json"
"""Name of the file in the data folder."""

PREFIX = "mochi_"
"""How every token begins, so that people and scanners for secrets recognise it."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")

MAX_BYTES = 1_000_000
USE_SECONDS = 60.0
"""How exactly the last use of a token is known."""

_OTHERS_MAY_WRITE = 0o022


class TokensUnusable(Exception):
    """The file cannot be used; the text says why, and nothing of what is in it."""


class StoredToken(BaseModel):
    """A token as the file has it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    """Of the whole token, in hexadecimal digits."""
    rights: tuple[Right, ...] = Field(min_length=1)
    created_at: datetime | None = None
    expires_at: datetime | None = None

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        check_name(name)
        return name

    @field_validator("created_at", "expires_at")
    @classmethod
    def _in_utc(cls, moment: datetime | None) -> datetime | None:
        try:
            # A time that was written by hand may have no zone: it is local time.
            return None if moment is None else moment.astimezone(timezone.utc)
        except OverflowError as error:
            raise ValueError("it must be a time of the years 1 to 9999 in UTC") from error

    @property
    def is_expired(self) -> bool:
        return self.expires_at is not None and self.expires_at <= datetime.now(timezone.utc)

    def shown(self, last_used: datetime | None) -> JSONObject:
        """Return what people are told of it: everything but the hash."""
        return {
            "name": self.name,
            "rights": [*self.rights],
            "created_at": _written(self.created_at),
            "expires_at": _written(self.expires_at),
            "last_used_at": _written(last_used),
            "expired": self.is_expired,
        }

    def stored(self) -> JSONObject:
        times = {name: _written(getattr(self, name)) for name in ("created_at", "expires_at")}
        given = {name: time for name, time in times.items() if time is not None}
        return {"name": self.name, "sha256": self.sha256, "rights": [*self.rights], **given}


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid")

    tokens: list[StoredToken]

    @field_validator("tokens")
    @classmethod
    def _check_names(cls, tokens: list[StoredToken]) -> list[StoredToken]:
        names = [token.name for token in tokens]
        if len({*names}) < len(names):
            raise ValueError("two tokens have one name")
        return tokens


def check_name(name: str) -> None:
    """Raise a ValueError unless a token may have the name."""
    if NAME.fullmatch(name) is None:
        raise ValueError("a name has 1 to 64 letters, digits and ._@-, a letter or digit first")
    if name in RESERVED_NAMES:
        raise ValueError(f"{name!r} is what the server itself is called in logs")


def digest(token: bytes) -> str:
    return hashlib.sha256(token).hexdigest()


class AccessTokenFile:
    """The tokens of a data folder."""

    def __init__(self, path: Path, use_folder: Path) -> None:
        """Take the paths; no file is read.

        In ``use_folder`` empty files tell when each token was used last.
        """
        self.path = path
        self._use_folder = use_folder
        self._file = ParsedFile(path, _parse)
        self._was_there = False
        self._logged = ""
        self._used: dict[str, float] = {}

    # What the server asks

    @property
    def is_demanding(self) -> bool:
        """Whether requests need a token: there is a file, or there was one since the start.

        A file without any token demands one as well: who revokes the last one opens nothing.
        """
        tokens = self._read()
        return tokens is None or self._was_there

    def find(self, presented: Sequence[bytes]) -> StoredToken | None:
        """Return the token that one of the texts is; None if it is none, or is expired.

        How long it takes may tell something about hashes, but nothing about a token.
        """
        digests = {digest(text) for text in presented}
        for token in self._read() or ():
            if token.sha256 in digests and not token.is_expired:
                self._note_use(token.name)
                return token
        return None

    def has(self, token: StoredToken) -> bool:
        """Return whether a token is still accepted, with the same rights and times."""
        return not token.is_expired and token in (self._read() or ())

    def caller(self, token: StoredToken, *, address: str | None, owns: bool) -> Caller:
        """Return who sends requests with a token.

        ``owns``: sessions belong to tokens.
        """
        rights = rights_of(*token.rights)
        return Caller(
            name=token.name,
            rights=rights,
            owner=token.name if owns and "admin" not in rights else None,
            address=address,
            is_valid=partial(self.has, token),
        )

    def _read(self) -> Sequence[StoredToken] | None:
        """Return the tokens as they are now; none where there is no file; None if unusable."""
        try:
            tokens = self._file.load()
        except OSError as error:
            tokens = _reason_of(error)
        if tokens is None:
            if not self._was_there:
                return ()
            tokens = "it has gone; start the server again if no token is to be demanded"
        self._was_there = True
        reason = tokens if isinstance(tokens, str) else ""
        if reason and reason != self._logged:
            logger.error("%s: no token of it is accepted: %s", self.path, reason)
        self._logged = reason
        return None if isinstance(tokens, str) else tokens

    # What commands do

    def load(self) -> list[StoredToken]:
        """Return the tokens; none where there is no file.

        Raises:
            TokensUnusable: the file cannot be used.
        """
        try:
            return _load(self.path) if os.path.lexists(self.path) else []
        except OSError as error:
            raise TokensUnusable(_reason_of(error)) from error

    def add(self, name: str, rights: Sequence[Right], *, lifetime: timedelta | None = None) -> str:
        """Store the hash of a new token, and return the token, which is stored nowhere.

        Raises:
            ValueError: the name is taken, or no token may have it.
            TokensUnusable: the file cannot be used.
            OSError: it cannot be written.
        """
        check_name(name)
        token = PREFIX + secrets.token_hex(20)
        time = datetime.now(timezone.utc)
        new = StoredToken(
            name=name,
            sha256=digest(token.encode()),
            rights=tuple(rights),
            created_at=time,
            expires_at=None if lifetime is None else time + lifetime,
        )
        with self._changing() as tokens:
            if any(each.name == name for each in tokens):
                raise ValueError(f"there is a token {name!r} already")
            tokens.append(new)
        with suppress(OSError):
            (self._use_folder / name).unlink(missing_ok=True)
        return token

    def revoke(self, name: str) -> int | None:
        """Remove a token, and return how many are left; None if there is none of the name.

        Raises:
            TokensUnusable: the file cannot be used.
            OSError: it cannot be written.
        """
        with self._changing() as tokens:
            left = [token for token in tokens if token.name != name]
            if len(left) == len(tokens):
                return None
            tokens[:] = left
        return len(left)

    @contextmanager
    def _changing(self) -> Iterator[list[StoredToken]]:
        """Yield the tokens, and store them at the end if they were changed."""
        make_folder(self._use_folder, private=True)
        with locked(self._use_folder / ".lock"):
            tokens = self.load()
            before = [*tokens]
            yield tokens
            if tokens != before:
                document = {"tokens": [token.stored() for token in tokens]}
                content = orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n"
                replace_file(self.path, [content], private=True)

    # The last use of each

    def _note_use(self, name: str) -> None:
        now = time.monotonic()
        if now - self._used.get(name, -USE_SECONDS) < USE_SECONDS:
            return
        self._used[name] = now
        with suppress(OSError):  # a read-only disk, for example
            make_folder(self._use_folder, private=True)
            (self._use_folder / name).touch(0o600)

    def last_used(self, name: str) -> datetime | None:
        """Return when a token was used last, to the minute; None if never."""
        try:
            moment = (self._use_folder / name).lstat().st_mtime
        except OSError:
            return None
        return datetime.fromtimestamp(moment, timezone.utc)


def _parse(path: Path) -> list[StoredToken] | str:
    """Return the tokens, or why there are none that can be used."""
    try:
        return _load(path)
    except TokensUnusable as error:
        return str(error)


def _load(path: Path) -> list[StoredToken]:
    """Read and check the file.

    Raises:
        TokensUnusable: it must be changed.
        OSError: it cannot be read.
    """
    content, status = read_plain(path, MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise TokensUnusable(f"it is larger than {MAX_BYTES:,} bytes")
    if stat.S_IMODE(status.st_mode) & _OTHERS_MAY_WRITE:
        raise TokensUnusable("others than its owner may write it; run chmod 600 on it")
    try:
        return _Document.model_validate(orjson.loads(text_of(content))).tokens
    except NotUTF8 as error:
        raise TokensUnusable(str(error)) from error
    except orjson.JSONDecodeError as error:
        raise TokensUnusable(f"it is not JSON (line {error.lineno})") from error
    except ValidationError as error:
        raise TokensUnusable(first_problem(error, whole="the file")) from error


def _reason_of(error: OSError) -> str:
    return f"it cannot be read: {error.strerror}"


def _written(moment: datetime | None) -> str | None:
    return None if moment is None else f"{moment.astimezone(timezone.utc):%Y-%m-%dT%H:%M:%SZ}"
