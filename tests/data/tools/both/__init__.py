"""Both layouts at once: functions of this file's own, and sub-folders."""

from .numbers import add, divide

__all__ = ["add", "divide", "wait"]
__math__ = ["add", "divide"]
__slow__ = ["wait"]
__destructive__ = ["divide"]
__sequential__ = ["wait"]
__timeouts__ = {"wait": 2.5}


async def wait(seconds: int = 1) -> str:
    """Wait a while."""
    return f"waited {seconds}"
