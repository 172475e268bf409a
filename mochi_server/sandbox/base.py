"""What a sandbox is: it turns a command into one that is confined."""

from __future__ import annotations

import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

WORKSPACE = PurePosixPath("/workspace")
"""Where the folder of a session is, inside its sandbox."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxFolder:
    """A folder or file of this machine that a confined command sees."""

    path: Path
    """Absolute; must exist, and be reached through no link, when the command starts."""
    inside: PurePosixPath | None = None
    """Its path inside; None for the same path as outside."""
    writable: bool = False

    @property
    def target(self) -> PurePosixPath:
        return self.inside if self.inside is not None else PurePosixPath(self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxLimits:
    """What a command and all its processes may use; megabytes are 10**6 bytes."""

    memory_mb: float = 512
    cpus: float = 0.5
    """Share of the processors, where the driver can limit it."""
    processes: int = 64
    """Processes and threads at the same time."""
    open_files: int = 256
    """Of each process."""
    file_mb: float | None = 100
    """Size of one file."""
    disk_mb: float | None = 512
    """Size of the writable folders, together; None: neither it nor their files are counted."""
    files: int = 50_000
    """Files and folders in the writable folders and those in memory, together."""
    tmp_mb: float = 64
    """Size of ``/tmp``, and of ``/var/tmp`` if there is one: empty at first, gone at the end."""
    cpu_seconds: int | None = None
    """Of each process."""
    seconds: float | None = None
    """From start to end."""
    output_mb: float | None = None
    """Of standard output and error, together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSpec:
    """What a command may see and do; everything else of the machine is not there."""

    folders: Sequence[SandboxFolder] = ()
    """Beside the read-only system and the interpreter with its packages. A later one may lie in an
    earlier one, and is then seen in its place."""
    covered: Sequence[Path] = ()
    """Folders that are empty but for those ``folders`` that lie below them, where the driver can;
    what is put there later is not seen either."""
    workdir: PurePosixPath | None = None
    """Working directory, as the command sees it; None for ``/tmp``."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Its variables, beside ``PATH``, ``HOME`` (``/tmp``) and ``LANG`` where they are not named."""
    network: bool = False
    keep_fds: Sequence[int] = ()
    """Open file descriptors that it inherits beside the standard three; starting it must pass
    them on (``pass_fds``)."""
    limits: SandboxLimits = SandboxLimits()

    @classmethod
    def of_workspace(cls, folder: Path, *, limits: SandboxLimits | None = None) -> SandboxSpec:
        """Return what a command of a session may: one writable folder at ``/workspace``."""
        return cls(
            folders=[SandboxFolder(path=folder.resolve(), inside=WORKSPACE, writable=True)],
            workdir=WORKSPACE,
            environment={"HOME": str(WORKSPACE)},
            limits=limits or SandboxLimits(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxCommand:
    """A command to start instead of the one that is to be confined.

    Start it with exactly this environment. Its standard input, output and error are those of the
    confined command. Killing its process, or the process group of it, ends all that runs inside.
    """

    argv: Sequence[str]
    env: Mapping[str, str]


class Sandbox(ABC):
    """A way to confine commands."""

    name: str
    """As ``MOCHI_SANDBOX`` has it."""
    confines: bool = True
    """Whether a command sees only what it is given; else there are limits alone."""

    @abstractmethod
    async def problem(self) -> str | None:
        """Try it; return why it does not work on this machine, or None."""

    @abstractmethod
    def command(self, argv: Sequence[str], spec: SandboxSpec) -> SandboxCommand:
        """Return what to start instead of ``argv``.

        ``argv[0]`` is a name in ``PATH`` or an absolute path; ``sys.executable`` stands for the
        interpreter that the sandbox offers. A program that cannot be started gives an exit code
        other than 0 and a line on standard error. A command that was ended for its limits has exit
        code 125 and its last line on standard error says so; one that was killed by a signal has
        128 and the signal's number.
        """


def run_trial(argv: Sequence[str], env: Mapping[str, str], *, seconds: float) -> str | None:
    """Run a command, and return the last line of what it says if it fails.

    Raises:
        OSError: it cannot be started.
        subprocess.TimeoutExpired: it takes longer.
    """
    done = subprocess.run(  # noqa: S603 - our own
        argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False
    )
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    return [f"exit code {done.returncode}", *lines][-1] if done.returncode else None
