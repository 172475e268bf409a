"""Which refused tokens the audit log tells of: whoever guesses does not fill it."""

from __future__ import annotations

import math
import time
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Final

PAUSE_SECONDS: Final = 60.0
"""Shortest time between two entries about one address."""

MOST_ENTRIES: Final = 100
"""Most entries in ``PERIOD_SECONDS`` about all addresses: the log has room for months of them."""

PERIOD_SECONDS: Final = 3600.0

MOST_ADDRESSES: Final = 1000
"""Addresses that are remembered."""

MAX_ADDRESS: Final = 100
"""Characters of one that are remembered: a proxy may pass on any text as one."""


class Refusals:
    """Counts the refused requests of addresses; a network of IPv6 (/64) is one."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, int]] = {}
        """When an entry told of an address last, and how many refusals came since."""
        self._began, self._entries = -math.inf, 0

    def count(self, address: str | None) -> int | None:
        """Count a refusal; return how many the log is to tell of now, None if it is too soon."""
        key, now = _key(address), time.monotonic()
        told_at, count = self._seen.pop(key, (-math.inf, 0))
        is_due = now - told_at >= PAUSE_SECONDS and self._has_room(now)
        self._seen[key] = (now, 0) if is_due else (told_at, count + 1)
        if len(self._seen) > MOST_ADDRESSES:
            del self._seen[next(iter(self._seen))]
        return count + 1 if is_due else None

    def _has_room(self, now: float) -> bool:
        if now - self._began >= PERIOD_SECONDS:
            self._began, self._entries = now, 0
        self._entries += 1
        return self._entries <= MOST_ENTRIES


def _key(address: str | None) -> str:
    try:
        found = ip_address(address or "")
    except ValueError:
        return (address or "")[:MAX_ADDRESS]
    if isinstance(found, IPv6Address) and found.ipv4_mapped is None:
        return str(ip_network((found, 64), strict=False))
    return str(found)
