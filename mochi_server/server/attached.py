"""A server that another program starts and that ends with it, also when that one is killed."""

from __future__ import annotations

from typing import Final

ATTACHED_SERVER: Final = """
import os, runpy, signal, threading

def end_with_the_starter():
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGTERM)

threading.Thread(target=end_with_the_starter, daemon=True).start()
runpy.run_module("mochi_server", run_name="__main__", alter_sys=True)
"""
"""Code for ``python -c``: the command, which ends when its standard input is closed."""
