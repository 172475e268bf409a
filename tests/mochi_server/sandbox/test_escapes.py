"""What a confined command tries in order to get out; docs/explanation/sandbox.md lists it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from mochi_server.sandbox import SandboxFolder, SandboxSpec
from mochi_server.sandbox.host import PACKAGE
from mochi_server.sandbox.process import ProcessSandbox
from tests.support import escape_attempts
from tests.support.escape_attempts import ATTEMPTS, NEEDS_CONFINEMENT
from tests.support.sandboxes import SandboxUser, as_ordinary_user, bubblewrap_or_skip

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")

SECRET = "the secret of the server"
SCRIPT = Path(escape_attempts.__file__)


@dataclass
class Outside:
    """What is to be got: files, sockets and a process outside of the sandbox."""

    facts: dict[str, Any]
    outside: Path
    victim: subprocess.Popen[bytes]
    datagrams: socket.socket
    open_file: int
    hostname: str = field(default_factory=socket.gethostname)

    def changes(self) -> list[str]:
        """Return what was changed outside."""
        self.datagrams.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            return [f"a datagram: {self.datagrams.recv(100)!r}"]
        changes = [str(path) for path in self.outside.rglob("written")]
        if self.victim.poll() is not None:
            changes.append("the process outside was ended")
        if socket.gethostname() != self.hostname:
            changes.append("the machine has another name")
        shared = Path("/dev/shm", self.facts["victim_name"])
        return [*changes, *([str(shared)] if shared.exists() else [])]


@contextlib.contextmanager
def made_outside(place: Path, user: SandboxUser) -> Iterator[Outside]:
    place.chmod(0o755)
    outside, readonly, home = place / "outside", place / "readonly", place / "home"
    for folder in (outside, readonly, home):
        folder.mkdir()
        folder.chmod(0o777)
    (home / "letters").write_text(SECRET)
    secret = outside / "secret.txt"
    secret.write_text(SECRET)
    name = f"outside-{os.getpid()}-{time.monotonic_ns()}"
    with contextlib.ExitStack() as stack:
        in_tmp = Path(stack.enter_context(tempfile.NamedTemporaryFile(prefix="outside-")).name)
        in_tmp.write_text(SECRET)
        in_tmp.chmod(0o644)
        listeners = listen(stack, outside / "socket", name)
        victim = stack.enter_context(
            subprocess.Popen(
                [shutil.which("sh") or "sh", "-c", "read line", name],
                stdin=subprocess.PIPE,
                env={"SERVER_SECRET": SECRET},
                **(user.options or {}),
            )
        )
        stack.callback(victim.kill)
        open_file = os.open(secret, os.O_RDONLY)
        stack.callback(os.close, open_file)
        fill(user.folder, secret)
        facts = {
            "confined": user.sandbox.confines,
            "outside": str(outside),
            "secret": str(secret),
            "readonly": str(readonly),
            "in_tmp": str(in_tmp),
            "home": str(home),
            "site_packages": sysconfig.get_paths()["purelib"],
            "package": str(PACKAGE),
            "server_secret": SECRET,
            "victim": victim.pid,
            "victim_name": name,
            "disk": [os.major(Path("/").stat().st_dev), os.minor(Path("/").stat().st_dev)],
            "abstract": name,
            **listeners,
        }
        yield Outside(facts, outside, victim, listeners.pop("datagrams"), open_file)


def listen(stack: contextlib.ExitStack, path: Path, name: str) -> dict[str, Any]:
    def server(family: int, address: Any) -> socket.socket:
        listener = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
        listener.bind(address)
        listener.listen()
        return listener

    server(socket.AF_UNIX, str(path))
    path.chmod(0o777)
    server(socket.AF_UNIX, f"\0{name}")
    datagrams = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    datagrams.bind(("127.0.0.1", 0))
    everywhere = server(socket.AF_INET, ("0.0.0.0", 0))
    addresses = {row[4][0] for row in _own_addresses()}
    facts: dict[str, Any] = {
        "port": server(socket.AF_INET, ("127.0.0.1", 0)).getsockname()[1],
        "port_everywhere": everywhere.getsockname()[1],
        "addresses": sorted(addresses),
        "udp_port": datagrams.getsockname()[1],
        "socket_path": str(path),
        "datagrams": datagrams,
        "port6": 0,
    }
    with contextlib.suppress(OSError):  # a machine without IPv6
        facts["port6"] = server(socket.AF_INET6, ("::1", 0)).getsockname()[1]
    return facts


def _own_addresses() -> list[Any]:
    with contextlib.suppress(OSError):
        return socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)
    return []


def fill(folder: Path, secret: Path) -> None:
    """Put into the writable folder what makes attempts possible."""
    shutil.copy(SCRIPT, folder / "attempts.py")
    (folder / "link-to-secret").symlink_to(secret)
    (folder / "link-to-outside").symlink_to(secret.parent)
    hooks = folder / ".git" / "hooks"
    hooks.mkdir(parents=True)
    (folder / ".git" / "config").write_text("[core]\n")
    program = folder / "setuid-id"
    shutil.copy(shutil.which("id") or "/usr/bin/id", program)
    owner = folder.stat()
    for path in (folder / ".git", hooks, folder / ".git" / "config"):
        os.chown(path, owner.st_uid, owner.st_gid)
    if os.getuid() == 0:
        os.chown(program, 4242, 4242)
    program.chmod(0o4755)


def tried(user: SandboxUser, outside: Outside, **facts: Any) -> dict[str, list[str]]:
    folders = [
        SandboxFolder(path=user.folder, inside=None, writable=True),
        SandboxFolder(path=Path(outside.facts["readonly"])),
    ]
    spec = SandboxSpec(folders=folders, workdir=folders[0].target, environment={"HOME": "/tmp"})
    facts = {key: value for key, value in {**outside.facts, **facts}.items() if key != "datagrams"}
    done = user.run(
        [user.python, "attempts.py", json.dumps(facts)], spec, pass_fds=[outside.open_file]
    )
    assert done.returncode == 0, done.stderr
    outcomes: dict[str, list[str]] = json.loads(done.stdout)
    return outcomes


MakeUser = Callable[[Path], SandboxUser]


def _root_or_whoever(place: Path) -> SandboxUser:
    folder = place / "folder"
    folder.mkdir()
    return SandboxUser(bubblewrap_or_skip(), folder)


def _ordinary(place: Path) -> SandboxUser:
    bubblewrap_or_skip()
    return as_ordinary_user(place)


@pytest.fixture(scope="module", params=[_root_or_whoever, _ordinary], ids=["root", "ordinary"])
def outcomes(request: pytest.FixtureRequest) -> Iterator[tuple[dict[str, list[str]], list[str]]]:
    """The outcome of every attempt under bubblewrap, and what was changed outside."""
    with tempfile.TemporaryDirectory(prefix="mochi-escapes-") as folder:
        user = request.param(Path(folder))
        with made_outside(Path(folder), user) as outside:
            yield tried(user, outside), outside.changes()


@pytest.mark.parametrize("name", ATTEMPTS)
def test_a_confined_command_does_not_get_out(
    outcomes: tuple[dict[str, list[str]], list[str]], name: str
) -> None:
    assert outcomes[0][name][0] == "held", outcomes[0][name]


def test_nothing_outside_was_changed(outcomes: tuple[dict[str, list[str]], list[str]]) -> None:
    assert outcomes[1] == []


def test_the_attempts_succeed_where_nothing_is_confined(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    user = SandboxUser(ProcessSandbox(), folder)
    with made_outside(tmp_path, user) as outside:
        results = tried(user, outside, only=sorted(NEEDS_CONFINEMENT))
    assert {name: text for name, (kind, text) in results.items() if kind != "ESCAPED"} == {}


def test_the_page_lists_every_attempt() -> None:
    root = Path(__file__).parents[3]
    page = (root / "docs" / "explanation" / "sandbox.md").read_text("utf-8")
    suite = (root / "tests" / "contracts" / "test_sandboxes.py").read_text("utf-8")
    listed = set(re.findall(r"`([a-z_0-9]+)`", page.partition("## Attempts")[2]))
    tests = {name for name in listed if name.startswith("test_")}
    assert {name for name in ATTEMPTS if name not in listed} == set()
    assert {name for name in tests if f"def {name}(" not in suite} == set()
    assert {
        name for name in listed - tests - {"no_new_privs", "nosuid"} if name not in ATTEMPTS
    } <= {"bubblewrap"}
