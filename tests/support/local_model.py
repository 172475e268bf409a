"""The real built-in model for tests: pulled once into the user's cache, used through a link."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import anyio

from mochi_server.config import load_settings
from mochi_server.core.progress import Progress
from mochi_server.providers.builtin.pull import pull

from .certificates import trusting_all

MODEL = "smollm2:135m"


def weights() -> Path:
    """The verified file in the user's cache; fetched when it is missing."""
    folder = load_settings(models_dir=None).models_path
    with trusting_all():
        return pull(MODEL, folder, Progress(io.StringIO()))


def folder_with_model(parent: Path) -> Path:
    """A models folder of its own, so that no running server's child is met."""
    folder = parent / "models"
    folder.mkdir(parents=True)
    source = weights()
    (folder / source.name).symlink_to(source)
    return folder


async def until(condition: Callable[[], bool], seconds: float = 30) -> None:
    """Wait until it holds; TimeoutError when it does not in time."""
    with anyio.fail_after(seconds):
        while not condition():  # noqa: ASYNC110 - other processes set no events
            await anyio.sleep(0.02)
