"""What a folder of tools names for itself when its processes run in a sandbox: ``__sandbox__``."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Any

from ...core.tokens import TOKENS
from ...sandbox import Sandbox, SandboxFolder, SandboxLimits, SandboxSpec
from ..base import ToolFailed
from ..folder.metadata import SANDBOX, find_subfolders, statements_in
from ..loading import FolderSpec

KEYS = {"writable", "readable", "network"}
LIMITS = SandboxLimits(processes=256, open_files=1024, file_mb=None, disk_mb=None, tmp_mb=256)
OTHERS = frozenset({"HOME", "TMPDIR", "COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG"})
"""Variables of paths that are not in the sandbox."""
HIDDEN = (".*", "mcp*.json", TOKENS, "audit.jsonl*")
"""Names in the data folder that may hold secrets: ``.env``, the server's state, MCP servers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxNeeds:
    """What the packages of a folder need, together: they run in the same processes."""

    writable: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    network: bool = False

    def __or__(self, other: SandboxNeeds) -> SandboxNeeds:
        return SandboxNeeds(
            writable=self.writable + other.writable,
            readable=self.readable + other.readable,
            network=self.network or other.network,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolConfinement:
    """The sandbox of tools, and the data folder that they see read-only."""

    sandbox: Sandbox
    data: Path
    secret_files: Callable[[], Sequence[Path]] = tuple
    """Returns files that tools do not see, wherever they are."""

    def spec(
        self,
        folder: FolderSpec,
        *,
        working_dir: Path,
        environment: Mapping[str, str],
        keep_fds: Sequence[int],
        memory: int,
    ) -> SandboxSpec:
        """Return what the processes of a folder may do; reads its files, makes missing folders.

        Raises:
            ToolFailed: ``__sandbox__`` cannot be understood, or names a folder that is not there.
        """
        needs = read_needs(folder.path, subfolders=folder.subfolders)
        secret = [path.resolve() for path in self.secret_files()]
        with contextlib.suppress(OSError):  # entering it says why
            working_dir.mkdir(parents=True, exist_ok=True)
        covered = [self.data] if self.data.is_dir() else []
        shown = [_resolved(path) for path in (folder.path, working_dir) if path.is_dir()]
        shown += [*self._shown(), *(self._place(name, secret) for name in needs.readable)]
        folders = [inner for each in shown for inner in self._without(secret, each, covered)]
        folders += [self._place(name, secret, make=True) for name in needs.writable]
        return SandboxSpec(
            folders=folders,
            covered=covered,
            workdir=PurePosixPath("/"),
            environment={name: value for name, value in environment.items() if name not in OTHERS},
            network=needs.network,
            keep_fds=keep_fds,
            limits=replace(LIMITS, memory_mb=memory / 1_000_000),
        )

    def _shown(self) -> Iterator[SandboxFolder]:
        """Yield what is shown of the data folder: what is not named is not there for tools."""
        with contextlib.suppress(FileNotFoundError):
            for path in sorted(self.data.iterdir()):
                folder = _resolved(path)
                is_inside = folder.path.is_relative_to(self.data.resolve())
                if is_inside and not (self._is_hidden(path) or self._is_hidden(folder.path)):
                    yield folder

    def _without(
        self, secret: Sequence[Path], folder: SandboxFolder, covered: list[Path]
    ) -> Iterator[SandboxFolder]:
        """Yield a folder; or, where something secret lies in it, cover it and yield what else does.

        So a secret file is not seen either when it is replaced.
        """
        real, path = folder.path, Path(folder.target)
        if real in secret or real == self.data.resolve():
            return
        if not any(each.is_relative_to(real) for each in secret):
            yield folder
            return
        covered.append(path)
        for inner in sorted(path.iterdir()):
            if (resolved := _resolved(inner)).path.is_relative_to(real):
                yield from self._without(secret, resolved, covered)

    def _is_hidden(self, path: Path) -> bool:
        """Tell whether a path is, or is below, what may hold secrets in the data folder."""
        for data in (self.data, self.data.resolve()):
            if path.is_relative_to(data) and path != data:
                name = path.relative_to(data).parts[0]
                return any(fnmatch(name, pattern) for pattern in HIDDEN)
        return False

    def _place(self, name: str, secret: Sequence[Path], *, make: bool = False) -> SandboxFolder:
        """Return the folder of a name; a relative one is in the data folder, also through links."""
        path = self.data / Path(name).expanduser()
        is_inside = not Path(name).expanduser().is_absolute()
        real = path.resolve()
        if is_inside and not real.is_relative_to(self.data.resolve()):
            raise ToolFailed(f"{SANDBOX}: {name!r} leads out of the data folder")
        if make and is_inside:
            with contextlib.suppress(OSError):
                real.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            raise ToolFailed(f"{SANDBOX}: {name!r} is not there")
        if make and real == self.data.resolve():
            raise ToolFailed(f"{SANDBOX}: {name!r} is the whole data folder")
        if self._is_hidden(real) or real in secret:
            raise ToolFailed(f"{SANDBOX}: {name!r} is not for tools")
        if make and any(each.is_relative_to(real) for each in secret):
            raise ToolFailed(f"{SANDBOX}: {name!r} has files that are not for tools")
        return SandboxFolder(path=real, inside=PurePosixPath(path), writable=make)


def _resolved(path: Path) -> SandboxFolder:
    """Return what a path leads to now: what is checked is what will be mounted, or nothing."""
    return SandboxFolder(path=path.resolve(), inside=PurePosixPath(path))


def read_needs(folder: Path, *, subfolders: bool) -> SandboxNeeds:
    """Read ``__sandbox__`` of a folder's packages without running them.

    Raises:
        ToolFailed: It cannot be understood.
    """
    inner = find_subfolders(folder)[0] if subfolders else []
    needs = SandboxNeeds()
    for package in (folder, *inner):
        for value in _values(package / "__init__.py"):
            needs |= _needs_of(value, package.name)
    return needs


def _values(file: Path) -> Iterator[ast.expr]:
    try:
        statements = statements_in(file)
    except SyntaxError:
        return  # loading it says why
    for node in statements:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name == SANDBOX:
                yield value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value) if (
                name == SANDBOX
            ):
                yield value


def _needs_of(value: ast.expr, package: str) -> SandboxNeeds:
    try:
        given = ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        given = None
    if not isinstance(given, dict) or not given.keys() <= KEYS:
        raise ToolFailed(
            f"{SANDBOX} of {package} is not a dict of constants with the keys "
            "'writable', 'readable' and 'network'"
        )
    network = given.get("network", False)
    if not isinstance(network, bool):
        raise ToolFailed(f"{SANDBOX} of {package}: 'network' is neither True nor False")
    return SandboxNeeds(
        writable=_names(given.get("writable", ()), package),
        readable=_names(given.get("readable", ()), package),
        network=network,
    )


def _names(value: Any, package: str) -> tuple[str, ...]:  # noqa: ANN401 - the user's
    if isinstance(value, list | tuple) and all(isinstance(each, str) and each for each in value):
        return tuple(value)
    raise ToolFailed(f"{SANDBOX} of {package}: a list of folders is not a list of texts")
