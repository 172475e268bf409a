"""The ids that the server gives to sessions, messages, tool calls and confirmations."""

from __future__ import annotations

import random
from uuid import UUID

_numbers: random.Random = random.SystemRandom()


def start_ids(*, repeatable: bool) -> None:
    """Set whether each start gives the same ids in the same order, or ids that nobody can guess."""
    global _numbers  # noqa: PLW0603 - one for all: messages are made in many places
    _numbers = random.Random(0) if repeatable else random.SystemRandom()  # noqa: S311 - repeatable


def new_session_id() -> str:
    """Return ten lower-case hexadecimal digits, which may be taken by another session."""
    return f"{_numbers.getrandbits(40):010x}"


def new_message_id() -> str:
    """Return ten lower-case hexadecimal digits."""
    return f"{_numbers.getrandbits(40):010x}"


def new_run_id() -> str:
    return f"run_{_numbers.getrandbits(64):016x}"


def new_call_id() -> str:
    """Return an id for a tool call whose model gave none."""
    return f"call_{_numbers.getrandbits(32):08x}"


def new_confirmation_id() -> str:
    return f"conf_{_numbers.getrandbits(64):016x}"


def new_uuid() -> str:
    """Return a UUID of version 4, for a session that a first message makes."""
    return str(UUID(int=_numbers.getrandbits(128), version=4))
