"""Clocks of a process, or of an event loop, that are not those of the machine."""

from __future__ import annotations

import asyncio
import selectors
import shutil
import subprocess
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

_SHIFTED = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile const long long *seconds;

__attribute__((constructor)) static void begin(void) {
    int file = open(getenv("TIME_OF_DAY"), O_RDONLY | O_CLOEXEC);
    seconds = mmap(NULL, sizeof *seconds, PROT_READ, MAP_SHARED, file, 0);
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *result) {
    int failed = syscall(SYS_clock_gettime, clock, result);
    if (!failed && seconds && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        result->tv_sec += *seconds;
    return failed;
}

int gettimeofday(struct timeval *restrict result, void *restrict zone) {
    struct timespec now;
    int failed = clock_gettime(CLOCK_REALTIME, &now);
    result->tv_sec = now.tv_sec;
    result->tv_usec = now.tv_nsec / 1000;
    return failed;
}

time_t time(time_t *result) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (result)
        *result = now.tv_sec;
    return now.tv_sec;
}
"""
"""A library that adds seconds, which a file has, to the time of day. (libfaketime also changes
sleeps, and lets those of Python fail.)"""


def lack_of_jumps() -> str | None:
    """Return why no time of day can jump, or None."""
    return None if shutil.which("cc") is not None else "there is no C compiler"


def lack_of_offsets() -> str | None:
    """Return why no process can have a monotonic clock of its own, or None."""
    if shutil.which("unshare") is None:
        return "there is no program `unshare`"
    command = ["unshare", "--time", "--monotonic", "1", "true"]
    ended = subprocess.run(command, check=False, capture_output=True, timeout=100)
    return None if ended.returncode == 0 else "this container may make no time namespaces"


class TimeOfDay:
    """The time of day of a server, which jumps; its other clocks are those of the machine.

    The times of files stay those of the machine, as on a network drive.
    """

    def __init__(self, folder: Path) -> None:
        self._seconds, self._library = folder / "time-of-day", folder / "time-of-day.so"
        self._seconds.write_bytes(bytes(8))
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-O1", "-o", self._library, "-x", "c", "-"],
            input=_SHIFTED.encode(),
            check=True,
            timeout=100,
        )

    def jump(self, *, hours: int) -> None:
        """Set it to so many hours after the machine's."""
        with self._seconds.open("r+b", buffering=0) as file:
            file.write((hours * 3600).to_bytes(8, sys.byteorder, signed=True))

    @property
    def command(self) -> tuple[str, ...]:
        """Arguments of Python that start a server with it."""
        variables = {"LD_PRELOAD": str(self._library), "TIME_OF_DAY": str(self._seconds)}
        words = [sys.executable, "-m", "mochi_server", "--port", "0"]
        start = f"os.execve({sys.executable!r}, {words!r}, {{**os.environ, **{variables!r}}})"
        return ("-c", f"import os; {start}")


def with_monotonic_clock(seconds: int) -> tuple[str, ...]:
    """Arguments of Python that start a server whose monotonic clocks are so far ahead."""
    words = ["unshare", "--time", "--monotonic", str(seconds), "--boottime", str(seconds)]
    words += [sys.executable, "-m", "mochi_server", "--port", "0"]
    return ("-c", f"import os; os.execvp('unshare', {words!r})")


class _SkippingSelector(selectors.DefaultSelector):
    """Waits for nothing but input and output; the time that it should wait is added up."""

    skipped = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            return super().select()
        ready = super().select(0)
        if not ready:
            self.skipped += max(timeout, 0)
        return ready


class _SkippingLoop(asyncio.SelectorEventLoop):
    """An event loop whose time stands still while anything can run, and else skips."""

    def __init__(self) -> None:
        self._clock = _SkippingSelector()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.skipped


def run_skipping(coroutine: Coroutine[Any, Any, T]) -> tuple[T, float]:
    """Run what waits for timers alone; return its result and the seconds that it would take.

    Threads, processes and sockets would find that timers are over at once.
    """
    loop = _SkippingLoop()
    try:
        return loop.run_until_complete(coroutine), loop.time()
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
