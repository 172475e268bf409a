"""Who has sent the request that is served: a token with rights, or whoever uses the library."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal, get_args

from ..errors import Forbidden

Right = Literal["read", "chat", "tools", "admin"]

RIGHTS: tuple[Right, ...] = get_args(Right)

LIBRARY, LOOPBACK, SETTING, COMMAND = "library", "loopback", "token", "command"
"""Names of callers without a token of their own: a user of the library, any program where no token
is demanded, the token of ``MOCHI_API_TOKEN``, and a command."""

RESERVED_NAMES = frozenset({LIBRARY, LOOPBACK, SETTING, COMMAND, "nobody", "mcp", "policy"})
"""Names that no token may have: the audit log and the history of confirmations use them."""


def rights_of(*rights: Right) -> frozenset[Right]:
    """Return the rights and what they include: ``admin`` all rights, each other one ``read``."""
    return frozenset(RIGHTS) if "admin" in rights else frozenset({*rights, "read"})


ALL_RIGHTS = rights_of("admin")


def _always() -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks for something, and what it may do."""

    name: str
    """Name of the token, or one of ``RESERVED_NAMES``."""
    rights: frozenset[Right] = ALL_RIGHTS
    owner: str | None = None
    """Owner of the sessions that it makes; it sees no others. None: it sees all sessions, and those
    that it makes have no owner."""
    address: str | None = None
    """Address of the client."""
    is_valid: Callable[[], bool] = _always
    """Returns whether its token is still accepted; feeds and sockets ask again and again."""

    @property
    def slot_holder(self) -> str:
        """Its name in ``Slots``: its token or address; "" where there is neither."""
        return self.address or "" if self.name in RESERVED_NAMES else f"token {self.name}"

    @property
    def is_confined(self) -> bool:
        """Whether it lacks a right."""
        return self.rights != ALL_RIGHTS

    def sees(self, owner: str | None) -> bool:
        """Return whether it sees what has this owner; None: what has no owner."""
        return self.owner in (None, owner)


SERVER = Caller(name=LIBRARY)
"""The server itself, or who uses the library: it may do everything."""

_caller: ContextVar[Caller] = ContextVar("mochi_caller", default=SERVER)


def current_caller() -> Caller:
    """Return the caller for whom this task works."""
    return _caller.get()


def set_caller(caller: Caller) -> None:
    """Set the caller for whom this task, and those that it starts, work."""
    _caller.set(caller)


@contextmanager
def serving(caller: Caller) -> Iterator[None]:
    """Work for a caller within the block."""
    token = _caller.set(caller)
    try:
        yield
    finally:
        _caller.reset(token)


def act_for_owner(owner: str | None) -> None:
    """Let the task of a run work for the owner of its session, whoever has started it."""
    if owner is not None:
        _caller.set(Caller(name=owner, rights=rights_of("chat", "tools"), owner=owner))


def require(right: Right) -> None:
    """Make sure that the current caller has a right.

    Raises:
        Forbidden: it has not.
    """
    if right not in _caller.get().rights:
        raise Forbidden(right=right)


def may_see(owner: str | None) -> bool:
    """Return whether the current caller sees what has this owner; None: what has no owner."""
    return _caller.get().sees(owner)
