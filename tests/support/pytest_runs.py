"""Runs of pytest in folders of other people's: of the pages and of the examples."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from .server import environment

SECONDS = 100
"""More than such a run needs on a busy machine, less than a test may take."""


def pytest_in(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pytest there, as other people would: without the plugins of this suite.

    Its temporary folders lie beside the folder: in the usual place it would begin by tidying
    what earlier runs of this suite left, which is tens of thousands of files.

    Raises:
        subprocess.TimeoutExpired: It did not end; with what it printed so far.
    """
    command = [sys.executable, "-X", "faulthandler", "-m", "pytest", "-q"]
    without = ["cacheprovider", "randomly", "schemathesis"]
    command += [word for plugin in without for word in ("-p", f"no:{plugin}")]
    command += ["-o", f"faulthandler_timeout={SECONDS / 2}"]
    command += [f"--basetemp={folder.with_name(folder.name + '-temporary')}", *arguments]
    return subprocess.run(
        command,
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
