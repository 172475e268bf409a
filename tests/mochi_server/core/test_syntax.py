"""Python source code that is read in several threads."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from mochi_server.core.syntax import parse_python

SOURCE = "\n".join(f"x{number} = f(a=[1, {{'k': (3, [4])}}], b=g(h(i())))" for number in range(300))


@pytest.fixture
def often_interrupted() -> Iterator[None]:
    """Threads take turns in the middle of their work, as they do when objects are collected."""
    interval, thresholds = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(50)

    def collected(phase: str, info: dict[str, int]) -> None:
        sum(range(200))

    gc.callbacks.append(collected)
    yield
    gc.callbacks.remove(collected)
    gc.set_threshold(*thresholds)
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("often_interrupted")
def test_source_code_is_read_by_several_threads_at_once() -> None:
    with ThreadPoolExecutor(4) as threads:
        counts = [len(statements) for statements in threads.map(parse_python, [SOURCE] * 24)]
    assert counts == [300] * 24
