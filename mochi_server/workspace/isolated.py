"""``python -I -S isolated.py PROGRAM ARGUMENT…``: run a program that cannot signal the server.

A command in a sandbox has the same user as the server that runs it. A Landlock domain (Linux 6.12)
keeps signals of the command and of all that it starts among themselves. It is made only where
``no_new_privs`` is set, as in a sandbox, and none is made where the kernel has no such domains.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_GET_NO_NEW_PRIVS = 39
_CREATE_RULESET, _RESTRICT_SELF = 444, 446
"""System calls, on all machines."""
_SCOPE_SIGNAL = 2


class _Ruleset(ctypes.Structure):
    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


def keep_signals_inside() -> None:
    """Restrict this process, and those that it starts, to signals among themselves."""
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None)
    if libc.prctl(_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1:
        return
    rules = _Ruleset(scoped=_SCOPE_SIGNAL)
    handle = libc.syscall(_CREATE_RULESET, ctypes.byref(rules), ctypes.sizeof(rules), 0)
    if handle >= 0:
        libc.syscall(_RESTRICT_SELF, handle, 0)
        os.close(handle)


if __name__ == "__main__":
    keep_signals_inside()
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by the interpreter
        signal.signal(ignored, signal.SIG_DFL)
    os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606
