"""A network of a server's own, as another machine has it, whose cable can be cut."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass


def _ip(*arguments: str) -> bool:
    command = ["ip", *arguments]
    return subprocess.run(command, check=False, capture_output=True, timeout=100).returncode == 0


def lack() -> str | None:
    """Return why no network can be made, or None."""
    if shutil.which("ip") is None:
        return "there is no program `ip`"
    if os.geteuid() != 0:
        return "only root may make networks"
    name = f"mochi-{secrets.token_hex(4)}"
    if not _ip("netns", "add", name):
        return "this container may make no networks"
    _ip("netns", "del", name)
    return None


@dataclass
class Network:
    """A namespace, joined to this one by a pair of interfaces."""

    name: str
    here: str
    """Address of this machine, as the other one sees it."""
    there: str

    @property
    def command(self) -> tuple[str, ...]:
        """Arguments of Python that start a server there."""
        words = ["ip", "netns", "exec", self.name, sys.executable, "-m", "mochi_server"]
        start = f"import os, sys; os.execvp('ip', [*{words!r}, *sys.argv[1:]])"
        return ("-c", start, "--host", self.there, "--port", "0")

    def cut(self) -> None:
        assert _ip("link", "set", self.name, "down")

    def mend(self) -> None:
        assert _ip("link", "set", self.name, "up")


@contextlib.contextmanager
def network() -> Iterator[Network]:
    """A network until the block ends; its processes must have ended before."""
    octets = secrets.token_bytes(2)
    prefix = f"10.{octets[0]}.{octets[1]}"
    made = Network(f"mochi-{secrets.token_hex(4)}", f"{prefix}.1", f"{prefix}.2")
    name, peer = made.name, f"peer-{made.name[6:]}"
    assert _ip("netns", "add", name)
    try:
        assert _ip("link", "add", name, "type", "veth", "peer", "name", peer, "netns", name)
        assert _ip("address", "add", f"{made.here}/30", "dev", name)
        assert _ip("link", "set", name, "up")
        inside = ("-netns", name)
        assert _ip(*inside, "address", "add", f"{made.there}/30", "dev", peer)
        assert _ip(*inside, "link", "set", peer, "up")
        assert _ip(*inside, "link", "set", "lo", "up")
        yield made
    finally:
        _ip("link", "del", name)
        _ip("netns", "del", name)
