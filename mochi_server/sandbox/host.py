"""What a confined command sees of this machine: programs, libraries, the interpreter."""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

SYSTEM_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")
"""Read-only; links among them stay links."""

SYSTEM_FILES = tuple(
    f"/etc/{name}"
    for name in (
        *("alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "timezone"),
        *("ssl/certs", "ssl/openssl.cnf", "ca-certificates", "pki/tls/certs", "pki/ca-trust"),
        *("nsswitch.conf", "host.conf", "gai.conf", "protocols", "services", "networks"),
        *("mime.types", "magic", "os-release", "debian_version", "terminfo", "locale.alias"),
        *("bash.bashrc", "profile", "inputrc", "shells", "fonts", "perl", "java-17-openjdk"),
        *("python3", f"python3.{sys.version_info.minor}"),
    )
)
NETWORK_FILES = ("/etc/resolv.conf", "/etc/hosts")

PACKAGE = Path(__file__).resolve().parent.parent
"""The package ``mochi_server``, which may lie outside of the folders of installed packages."""


@cache
def interpreter_folders() -> tuple[Path, ...]:
    """Return the folders of this interpreter and of its packages, those in others left out."""
    packages = site.getsitepackages()
    if site.ENABLE_USER_SITE:
        packages.append(site.getusersitepackages())
    real = os.path.realpath(sys.executable)
    candidates = [
        *(sys.base_prefix, sys.base_exec_prefix, sys.prefix, sys.exec_prefix),
        *(os.path.realpath(sys.base_prefix), os.path.dirname(os.path.dirname(real))),
        *packages,
        str(PACKAGE),
    ]
    return tuple(_outermost(Path(each) for each in candidates))


def _outermost(paths: Iterator[Path]) -> Iterator[Path]:
    kept = [Path("/usr")]
    for path in sorted({path for path in paths if path.is_dir()}):
        if not any(path.is_relative_to(other) for other in kept):
            kept.append(path)
            yield path
