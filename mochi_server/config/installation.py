"""How this installation is started and extended: commands that work where they are printed."""

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
"""Of the program and of its distribution."""


def own_command() -> str:
    """Return what a shell starts this program by: its name if PATH leads to it, else its path."""
    script = Path(sys.executable).parent / NAME
    found = shutil.which(NAME)
    if found is not None and Path(found).resolve() == script.resolve():
        return NAME
    if script.is_file():
        return _quoted(script)
    return f"{_quoted(Path(sys.executable))} -m mochi_server"


def install_command(extra: str) -> str:
    """Return the command that installs an optional part, such as ``local``, beside what is there.

    It names where this installation came from: no index of packages has to know it.
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
    """The path as a shell reads it, from the working directory if it lies below."""
    here = Path.cwd()
    shown = path.relative_to(here) if path.is_relative_to(here) else path
    # A name alone would be looked up on an index.
    text = f"./{shown}" if extra and not shown.is_absolute() and shown.parts else str(shown)
    return shlex.quote(text + extra)
