"""The real built-in model for tests: pulled once into the user's cache, used through a link."""

from __future__ import annotations

import io
from pathlib import Path

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
