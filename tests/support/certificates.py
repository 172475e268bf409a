"""Whom this process and its children trust in TLS: one certificate, and all only where needed.

Reading all the world's costs each client of a vendor's SDK, and each process with aiohttp, 30 to
60 ms; only the tests that fetch the built-in model and those marked ``e2e`` speak TLS.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ONE = Path(__file__).parent.parent / "data" / "one-certificate.pem"
"""Nobody's: the key was never kept."""

_FEW = {"SSL_CERT_FILE": str(ONE), "SSL_CERT_DIR": str(ONE.parent)}
_OWN = {name: os.environ.get(name) for name in _FEW}
"""What the machine has set."""


def trust_one() -> None:
    """From now on, one certificate."""
    os.environ.update(_FEW)


@contextmanager
def trusting_all() -> Iterator[None]:
    """Within it, those that the machine trusts."""
    before = {name: os.environ.pop(name, None) for name in _FEW}
    _set(_OWN)
    try:
        yield
    finally:
        _set(before)


def _set(values: dict[str, str | None]) -> None:
    for name, value in values.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
