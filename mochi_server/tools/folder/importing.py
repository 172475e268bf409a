"""Import a folder of the user's under a name of its own, every time from its sources."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import module_from_spec
from itertools import count
from pathlib import Path
from types import CodeType, ModuleType

from ..base import Problem
from ..functions.results import reason_of

PREFIX = "mochi_tools_"
_numbers = count(1)


class ImportFailed(Exception):
    """A package of the user's could not be imported."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.reason)
        self.problem = problem


class FreshLoader(SourceFileLoader):
    """Compiles what the file says now.

    Files of byte code are neither read nor written: they are taken for current when size and
    second of change are equal, so an edit right after another one would not be seen.
    """

    def get_code(self, fullname: str) -> CodeType:
        """Compile the file; a SyntaxError names it in every case."""
        path = self.get_filename(fullname)
        try:
            code: CodeType = self.source_to_code(self.get_data(path), path)
        except SyntaxError as error:
            error.filename = error.filename or path
            raise
        except ValueError as error:  # a null byte, before Python 3.12
            raise SyntaxError(str(error), (path, None, None, None)) from None
        return code


class FreshFinder:
    """Finds the modules inside such folders, and nothing else."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find what Python would, to be loaded by :class:`FreshLoader`."""
        if not fullname.startswith(PREFIX) or path is None:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and type(spec.loader) is SourceFileLoader and spec.origin:
            spec.loader = FreshLoader(fullname, spec.origin)
            spec.cached = None
        return spec


_finder = FreshFinder()


class ImportedFolder:
    """A folder as a package; its modules stay importable until :meth:`forget`.

    Tools may import lazily, when they are called, so the names must stay as long as they run.
    """

    def __init__(self, path: Path, generation: str) -> None:
        self.path = path
        tag = "".join(letter if letter.isalnum() else "_" for letter in generation)
        self.name = f"{PREFIX}{tag}_{next(_numbers)}"
        if _finder not in sys.meta_path:
            sys.meta_path.insert(0, _finder)
        importlib.invalidate_caches()  # the clock of a folder may be coarse
        self.root = self._blank()
        sys.modules[self.name] = self.root

    def _blank(self) -> ModuleType:
        module = ModuleType(self.name)
        module.__path__ = [str(self.path)]
        module.__package__ = self.name
        module.__file__ = str(self.path / "__init__.py")
        return module

    def import_root(self) -> ModuleType:
        """Run the folder's ``__init__.py``; after an ImportFailed sub-folders can be imported."""
        file = self.path / "__init__.py"
        loader = FreshLoader(self.name, str(file))
        spec = ModuleSpec(self.name, loader, origin=str(file), is_package=True)
        spec.submodule_search_locations = [str(self.path)]
        spec.has_location = True
        module = sys.modules[self.name] = module_from_spec(spec)
        try:
            loader.exec_module(module)
        except BaseException as error:
            sys.modules[self.name] = self.root
            raise ImportFailed(self.cause(error, file)) from error
        self.root = module
        return module

    def import_file(self, file: Path) -> ModuleType:
        try:
            return importlib.import_module(self._dotted(file))
        except BaseException as error:
            raise ImportFailed(self.cause(error, file)) from error

    def loaded(self, file: Path) -> ModuleType | None:
        """Return a module of the folder, if it has been imported by now."""
        return sys.modules.get(self._dotted(file))

    def _dotted(self, file: Path) -> str:
        parts = file.relative_to(self.path).with_suffix("").parts
        return ".".join([self.name, *(part for part in parts if part != "__init__")])

    def forget(self) -> None:
        """Take the modules out of ``sys.modules``; functions go on, lazy imports do not."""
        for name in list(sys.modules):
            if name == self.name or name.startswith(f"{self.name}."):
                del sys.modules[name]

    def cause(self, error: BaseException, file: Path) -> Problem:
        """Say where in the folder an error comes from, and why."""
        where, line = self._place(error, file)
        reason = reason_of(error).replace(self.name, self.path.name)
        if isinstance(error, ModuleNotFoundError) and error.name:
            reason += self._relative_hint(error.name)
        return Problem(file=where, line=line, reason=reason)

    def _place(self, error: BaseException, file: Path) -> tuple[str, int | None]:
        """Return the line of a syntax error, else the innermost line of the folder."""
        if isinstance(error, SyntaxError) and self._is_inside(error.filename):
            return str(error.filename), error.lineno
        where, line = str(file), None
        for frame, number in traceback.walk_tb(error.__traceback__):
            if self._is_inside(frame.f_code.co_filename):
                where, line = frame.f_code.co_filename, number
        return where, line

    def _is_inside(self, filename: str | None) -> bool:
        return filename is not None and Path(filename).is_relative_to(self.path)

    def _relative_hint(self, missing: str) -> str:
        name = missing.split(".", maxsplit=1)[0]
        if (self.path / f"{name}.py").is_file() or (self.path / name).is_dir():
            return f" (inside the folder, import it as `from .{name} import …`)"
        return ""
