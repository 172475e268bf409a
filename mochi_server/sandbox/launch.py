"""Makes the command that starts the launcher with a plan."""

from __future__ import annotations

import marshal
from binascii import b2a_base64
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..errors import JSONObject
from .base import SandboxCommand, SandboxLimits, SandboxSpec

LAUNCHER = Path(__file__).resolve().with_name("launcher.py")
_RUN = "import sys; sys.path.append(sys.argv[1]); import launcher; launcher.main()"
"""The code of the launcher's process; a script would be compiled anew at each start."""

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def launch(
    driver: str, argv: Sequence[str], spec: SandboxSpec, *, interpreter: str, **fields: object
) -> SandboxCommand:
    """Return the command that runs ``argv`` through a driver of :mod:`.launcher`.

    The plan is in a variable: other users can read arguments, and a variable of the command, such
    as ``LD_PRELOAD``, has no effect on the launcher itself.
    """
    measured = spec.limits.disk_mb is not None
    plan = {
        "driver": driver,
        "argv": list(argv),
        "environment": environment_of(spec),
        "client_environment": {},
        "limits": _limits(spec.limits),
        "watched": [str(folder.path) for folder in spec.folders if folder.writable and measured],
        "keep_fds": list(spec.keep_fds),
        **fields,
    }
    return SandboxCommand(
        argv=[interpreter, "-I", "-S", "-c", _RUN, str(LAUNCHER.parent), driver, *argv],
        env={"MOCHI_SANDBOX_PLAN": b2a_base64(marshal.dumps(plan, 2), newline=False).decode()},
    )


def environment_of(spec: SandboxSpec) -> Mapping[str, str]:
    return {"PATH": PATH, "HOME": "/tmp", "LANG": "C.UTF-8", **spec.environment}  # noqa: S108


def _limits(limits: SandboxLimits) -> JSONObject:
    def in_bytes(megabytes: float | None) -> int | None:
        return None if megabytes is None else int(megabytes * 1_000_000)

    return {
        "memory_bytes": in_bytes(limits.memory_mb),
        "processes": limits.processes,
        "open_files": limits.open_files,
        "file_bytes": in_bytes(limits.file_mb),
        "disk_bytes": in_bytes(limits.disk_mb),
        "files": limits.files,
        "cpu_seconds": limits.cpu_seconds,
        "seconds": limits.seconds,
        "output_bytes": in_bytes(limits.output_mb),
    }
