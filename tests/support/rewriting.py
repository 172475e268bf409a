"""Rewriting the assertions of all test files once, not once in each worker of pytest.

In a fresh clone this takes each worker longer than collecting the tests does. All workers begin at
the same time, and so each would rewrite every file, as none finds what another one has written.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from _pytest.assertion import rewrite


def rewrite_share(config: pytest.Config) -> None:
    """Write the rewritten bytecode of every n-th test file, where this is one of n workers."""
    worker = getattr(config, "workerinput", None)
    rewrites = rewrite.assertstate_key in config.stash
    if worker is None or not rewrites or sys.dont_write_bytecode:
        return
    first, step = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
    for file in sorted(_files_below(config.args))[first::step]:
        with suppress(OSError, SyntaxError, ValueError):  # collecting it says what is wrong
            _rewrite(file, config)


def _files_below(arguments: Iterable[str]) -> Iterator[Path]:
    for argument in arguments:
        path = Path(argument.partition("::")[0]).absolute()
        yield from path.rglob("test_*.py") if path.is_dir() else [path]


def _rewrite(file: Path, config: pytest.Config) -> None:
    """Do for a file what the import of a test module does first."""
    folder = rewrite.get_cache_dir(file)
    bytecode = folder / f"{file.stem}{rewrite.PYC_TAIL}"
    if rewrite._read_pyc(file, bytecode) is None and rewrite.try_makedirs(folder):
        source_hash, code = rewrite._rewrite_test(file, config)
        rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, source_hash, bytecode)
