"""What the kernel knows of the other end of a connection; nothing where it is not Linux."""

from __future__ import annotations

import socket
import sys
from asyncio import BaseTransport

if sys.platform == "linux":
    from fcntl import ioctl
    from termios import TIOCOUTQ

_ACKED = slice(120, 128)
"""``tcpi_bytes_acked`` in ``struct tcp_info`` of linux/tcp.h (Linux 4.1)."""


class TakenBytes:
    """Tells from look to look whether the other machine takes what it is sent.

    A client that reads slowly takes some now and then, long before our buffers have room again.
    """

    def __init__(self, transport: BaseTransport | None) -> None:
        """Look for the first time."""
        self._transport = transport
        self._count = _taken_bytes(transport)

    def have_grown(self) -> bool:
        """Look again, and return whether it has taken some since the last look."""
        before, self._count = self._count, _taken_bytes(self._transport)
        return self._count != before


def waiting_bytes(transport: BaseTransport) -> int:
    """Return how many bytes the other machine has not taken of what the kernel was given."""
    sock = transport.get_extra_info("socket")
    if sock is None or sys.platform != "linux":
        return 0
    try:
        left = ioctl(sock.fileno(), TIOCOUTQ, bytes(4))
    except (OSError, ValueError):  # it is closed
        return 0
    return int.from_bytes(left, sys.byteorder)


def _taken_bytes(transport: BaseTransport | None) -> int:
    """Return how many bytes of what was sent the other machine has taken so far; 0 if unknown."""
    sock = None if transport is None else transport.get_extra_info("socket")
    if sock is None or sys.platform != "linux":
        return 0
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _ACKED.stop)
    except (OSError, ValueError):  # a socket of another kind, or it is closed
        return 0
    return int.from_bytes(info[_ACKED], sys.byteorder)
