"""The ids that the server gives to sessions, messages, calls and questions."""

from __future__ import annotations

import random
from uuid import UUID

_numbers: random.Random = random.SystemRandom()


def start_ids(*, repeatable: bool) -> None:
    """Say how this process makes ids from now on.

    Args:
        repeatable: The same ones in the same order at each start, for test mode; else none that
            anybody could guess.
    """
    global _numbers  # noqa: PLW0603 - one for all: messages are made in many places
    _numbers = random.Random(0) if repeatable else random.SystemRandom()  # noqa: S311 - as told


def new_session_id() -> str:
    """Ten lower-case hexadecimal digits; whoever creates the session sees whether it is taken."""
    return f"{_numbers.getrandbits(40):010x}"


def new_message_id() -> str:
    """Ten lower-case hexadecimal digits."""
    return f"{_numbers.getrandbits(40):010x}"


def new_run_id() -> str:
    """Make an id for a turn."""
    return f"run_{_numbers.getrandbits(64):016x}"


def new_call_id() -> str:
    """An id for a tool call whose model gave none."""
    return f"call_{_numbers.getrandbits(32):08x}"


def new_confirmation_id() -> str:
    """An id for a question."""
    return f"conf_{_numbers.getrandbits(64):016x}"


def new_uuid() -> str:
    """An id for a session that a first message makes: a UUID of version 4."""
    return str(UUID(int=_numbers.getrandbits(128), version=4))
