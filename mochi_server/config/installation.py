"""Commands for a person that start and extend this installation."""

from __future__ import annotations

import importlib.util
import json
import shlex
import shutil
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import unquote, urlsplit

NAME = "mochi-server"
"""Name of the program and of its distribution."""
SHORT_NAME = "mochi"
"""Other name of the command."""


def command_name() -> str:
    """Return the name by which the command was called, for what it says of itself."""
    name = Path(sys.argv[0]).stem
    return name if name == SHORT_NAME else NAME


def own_command() -> str:
    """Return the command that starts this program: its name if it is on PATH, else its path."""
    name = command_name()
    script = Path(sys.executable).parent / name
    on_path = shutil.which(name)
    if on_path is not None and Path(on_path).resolve() == script.resolve():
        return name
    if script.is_file():
        return _quoted(script)
    return f"{_quoted(Path(sys.executable))} -m mochi_server"


def install_command(extra: str) -> str:
    """Return the command that adds an extra, such as ``local``, to this installation.

    It names the source of this installation, which need not be on a package index.
    """
    return f"{_installer()} {_requirement(extra)}"


def _installer() -> str:
    python = Path(sys.executable)
    pip = shutil.which("pip")
    if pip is not None and Path(pip).parent == python.parent:
        return "pip install"
    if importlib.util.find_spec("pip") is not None:
        return f"{_quoted(python)} -m pip install"
    if shutil.which("uv") is not None:
        return f"uv pip install --python {_quoted(python)}"
    return f"pip --python {_quoted(python)} install"


def _requirement(extra: str) -> str:
    try:
        source = json.loads(distribution(NAME).read_text("direct_url.json") or "{}")
    except PackageNotFoundError:  # a clone on PYTHONPATH
        source = {"url": Path(__file__).parents[2].as_uri()}
    address = urlsplit(source.get("url", ""))
    if address.scheme == "file":
        editable = "-e " if source.get("dir_info", {}).get("editable") else ""
        return editable + _quoted(Path(unquote(address.path)), f"[{extra}]")
    if address.scheme:
        tool = source.get("vcs_info", {}).get("vcs")
        return shlex.quote(f"{NAME}[{extra}] @ {f'{tool}+' if tool else ''}{address.geturl()}")
    return shlex.quote(f"{NAME}[{extra}]")


def _quoted(path: Path, extra: str = "") -> str:
    """Quote a path for a shell, relative to the working directory if it is below."""
    here = Path.cwd()
    shown = path.relative_to(here) if path.is_relative_to(here) else path
    # pip would look up a bare name on a package index.
    text = f"./{shown}" if extra and not shown.is_absolute() and shown.parts else str(shown)
    return shlex.quote(text + extra)
