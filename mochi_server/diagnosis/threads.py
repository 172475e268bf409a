"""Blocking looks that may hang for ever, such as one at a network drive that is gone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def in_daemon_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run it in a thread that neither a cancellation nor the end of the process waits for."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(function(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - handed on to who waits
            future.set_exception(error)

    threading.Thread(target=run, daemon=True, name="mochi-diagnosis").start()
    return await asyncio.wrap_future(future)
