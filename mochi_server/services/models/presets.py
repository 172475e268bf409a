"""The presets of one folder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ...core.aio import in_thread
from ...core.files import NOT_PLAIN, check_plain, replace_file
from ...core.front_matter import FrontMatterError, parse_front_matter
from ...core.parsed_file import ParsedFile
from ...errors import InvalidRequest, PresetInvalid, PresetNotFound, StorageError
from .preset_file import PRESET_NAME, SUFFIX, Preset, preset_text, read_preset_file
from .resolver import ModelSetup


@dataclass(frozen=True, slots=True, kw_only=True)
class PresetEntry:
    """One preset file, usable or not."""

    name: str
    preset: Preset | None
    """None if it cannot be used."""
    error_message: str | None = None
    """Why it cannot be used: ``brief.md:3: …``."""


class PresetService:
    """Reads and writes the preset files of one folder, which is made when the first is written.

    Every call sees the files as they are then; one that is as it was is not parsed again. A file is
    replaced whole: whoever reads meanwhile sees the old or the new one.

    Raises:
        PresetNotFound: there is no such preset, or it could not be a preset's name.
        PresetInvalid: its file cannot be used.
        InvalidRequest: no preset can have the name, or be so long.
        StorageError: the folder or a file cannot be listed, written or deleted.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files: dict[Path, ParsedFile[Preset]] = {}

    async def entries(self) -> list[PresetEntry]:
        """Return all presets by name, with those that cannot be used."""
        return await in_thread(self._list)

    async def read(self, name: str) -> Preset:
        return await in_thread(self._read, name)

    async def write(self, name: str, preset: Preset) -> None:
        """Create or replace a preset."""
        if PRESET_NAME.fullmatch(name) is None:
            raise InvalidRequest(
                f"{name!r} is not a name for a preset: letters, digits, '.', '_' and '-', a letter "
                "or digit first, at most 64 characters.",
                details={"field": "name"},
            )
        await in_thread(self._write, self._path(name), preset_text(preset).encode())

    async def delete(self, name: str) -> None:
        await in_thread(self._delete, name)

    async def setup(self, name: str, *, wait: bool) -> ModelSetup:  # noqa: ARG002 - see ModelSource
        return (await self.read(name)).setup(name)

    async def setups(self) -> Sequence[ModelSetup]:
        return [each.preset.setup(each.name) for each in await self.entries() if each.preset]

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}{SUFFIX}"

    def _list(self) -> list[PresetEntry]:
        try:
            with os.scandir(self.folder) as entries:
                names = [each.name for each in entries if not each.is_dir(follow_symlinks=False)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _storage_error(self.folder.name, error) from error
        shown = [name for name in names if name.endswith(SUFFIX) and not name.startswith(".")]
        return [self._entry(self.folder / name) for name in sorted(shown)]

    def _read(self, name: str) -> Preset:
        if PRESET_NAME.fullmatch(name) is None:
            raise PresetNotFound(preset=name)
        path = self._path(name)
        try:
            check_plain(path)
            return self._parse(path)
        except FrontMatterError as error:
            raise PresetInvalid(preset=name, reason=_message(path, error)) from error
        except OSError as error:
            if error.errno in NOT_PLAIN:
                raise PresetNotFound(preset=name) from error
            raise _storage_error(path.name, error) from error

    def _entry(self, path: Path) -> PresetEntry:
        name = path.stem.encode("utf-8", "replace").decode()
        try:
            return PresetEntry(name=name, preset=self._parse(path))
        except FrontMatterError as error:
            return PresetEntry(name=name, preset=None, error_message=_message(path, error))

    def _parse(self, path: Path) -> Preset:
        file = self._files.setdefault(path, ParsedFile(path, read_preset_file))
        with suppress(OSError):
            if (preset := file.load()) is not None:
                return preset
        return read_preset_file(path)  # which says what is wrong

    def _write(self, path: Path, content: bytes) -> None:
        try:
            parse_front_matter(content)
        except FrontMatterError as error:
            raise InvalidRequest(f"The preset cannot be stored: {error.reason}.") from error
        try:
            replace_file(path, [content])
        except OSError as error:
            raise _storage_error(path.name, error) from error

    def _delete(self, name: str) -> None:
        if PRESET_NAME.fullmatch(name) is None:
            raise PresetNotFound(preset=name)
        path = self._path(name)
        self._files.pop(path, None)
        try:
            check_plain(path)
            path.unlink()
        except OSError as error:
            if error.errno in NOT_PLAIN:
                raise PresetNotFound(preset=name) from error
            raise _storage_error(path.name, error) from error


def _message(path: Path, error: FrontMatterError) -> str:
    name = path.name.encode("utf-8", "replace").decode()
    return f"{name}:{error.line}: {error.reason}"


def _storage_error(name: str, error: OSError) -> StorageError:
    text = f"Preset {name!r} cannot be stored or read: {error.strerror or error}"
    return StorageError.because(error, text, filename=name)
