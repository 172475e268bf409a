"""Load a folder of the user's functions; whatever is wrong in it becomes a problem.

docs/reference/tools.md says what a folder may hold. This runs in the server's process or in one
of its own, and raises nothing because of the user's code.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from ..errors import JSONObject
from .arguments import Arguments
from .base import FolderDescription, FolderSpec, Problem, ToolDescription
from .callables import check_kind, is_async, runnable, where
from .folders import candidates, line_of, unexported
from .imports import ImportedFolder, ImportFailed
from .marks import read_marks
from .results import clean, reason_of
from .schema import ToolSchemaService
from .signatures import Unsupported

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What the services of models take as the name of a function."""


@dataclass(frozen=True, slots=True)
class PythonTool:
    """A function that was loaded."""

    description: ToolDescription
    function: Callable[..., Any]
    """To be called with what :meth:`bind` gives, as keywords; in a thread unless it is async."""
    arguments: Arguments
    exported: object
    """What the package has under the name: the function, most often."""

    @property
    def is_async(self) -> bool:
        """Whether calling the function gives something to await."""
        return self.description.is_async

    def validate(self, arguments: JSONObject) -> JSONObject:
        """What was given, coerced, in JSON form.

        Raises:
            InvalidArguments: it does not fit.
        """
        return self.arguments.validate(arguments)

    def bind(self, arguments: JSONObject) -> dict[str, object]:
        """What was given, coerced, as Python values.

        Raises:
            InvalidArguments: it does not fit.
        """
        return self.arguments.bind(arguments)


class LoadedPackage:
    """What a folder had when it was loaded."""

    def __init__(
        self,
        description: FolderDescription,
        functions: dict[str, PythonTool],
        folder: ImportedFolder | None = None,
    ) -> None:
        self.description = description
        self.functions = functions
        self._folder = folder

    def forget(self) -> None:
        """Take its modules out of ``sys.modules``: once nothing of it runs any more."""
        if self._folder is not None:
            self._folder.forget()


def load_package(spec: FolderSpec, *, generation: str) -> LoadedPackage:
    """Import a folder under a fresh name and describe its tools.

    A folder that does not exist is empty. Never raises because of what is in the folder.
    """
    path = spec.path.absolute()
    if not path.exists():
        return LoadedPackage(FolderDescription(folder=str(path)), {})
    path = path.resolve()
    folder = ImportedFolder(path, generation)
    found = _Found(spec.taken)
    try:
        _load(folder, found, subfolders=spec.subfolders)
    except BaseException as error:  # noqa: BLE001 - modules of the user's can raise anywhere
        found.problems.append(folder.cause(error, path))
    return LoadedPackage(found.description(path), found.tools, folder)


@dataclass
class _Found:
    """What has been found so far."""

    taken: frozenset[str]
    """Names that no tool may have."""
    tools: dict[str, PythonTool] = field(default_factory=dict)
    groups: dict[str, list[str]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    schemas: ToolSchemaService = field(default_factory=ToolSchemaService)

    def description(self, path: Path) -> FolderDescription:
        """All of it; names of files may hold what UTF-8 cannot say."""
        problems = [
            replace(
                each,
                file=clean(each.file),
                reason=clean(each.reason),
                tool=None if each.tool is None else clean(each.tool),
            )
            for each in self.problems
        ]
        return FolderDescription(
            folder=str(path),
            tools=tuple(tool.description for tool in self.tools.values()),
            groups={clean(name): tuple(dict.fromkeys(all_)) for name, all_ in self.groups.items()},
            problems=tuple(dict.fromkeys(problems)),
        )


def _load(folder: ImportedFolder, found: _Found, *, subfolders: bool) -> None:
    path = folder.path
    if not path.is_dir():
        found.problems.append(Problem(file=str(path), line=None, reason="is not a folder"))
        return
    inner, problems = candidates(path) if subfolders else ([], [])
    found.problems += problems
    exporting = set()
    if (path / "__init__.py").is_file():
        exporting |= _load_one(folder.import_root, path, None, folder, found)
    for each in inner:
        if (each / "__init__.py").is_file():
            run = partial(folder.import_sub, each.name)
            exporting |= _load_one(run, each, each.name, folder, found)
    for each in (path, *inner):
        if each not in exporting:
            found.problems += unexported(each, folder.is_loaded)


def _load_one(
    run: Callable[[], ModuleType],
    path: Path,
    group: str | None,
    folder: ImportedFolder,
    found: _Found,
) -> set[Path]:
    """Import one package; gives its path when what it exports is known (or why it is not)."""
    file = path / "__init__.py"
    try:
        module = run()
    except ImportFailed as failed:
        found.problems.append(failed.problem)
        return {path}
    try:
        return {path} if _Package(module, file, group, found).collect() else set()
    except BaseException as error:  # noqa: BLE001 - hooks of the module, like __getattr__
        found.problems.append(folder.cause(error, file))
        return {path}


class _Package:
    """One imported package whose tools are being looked at."""

    def __init__(self, module: ModuleType, file: Path, group: str | None, found: _Found) -> None:
        self.module = module
        self.file = file
        self.found = found
        self.marks, problems = read_marks(module, group)
        for variable, reason in problems:
            self._problem(reason, variable=variable)

    def collect(self) -> bool:
        """Take the tools over; gives whether the package exports anything."""
        if not hasattr(self.module, "__all__"):
            self._miss_all()
        own = [name for name in self.marks.exported if self._take(name)]
        for variable, names in self.marks.named():
            for name in names:
                if name not in self.marks.exported:
                    self._problem(
                        f"{variable} names {name!r}, which __all__ does not export",
                        variable=variable,
                    )
        for group, names in self.marks.groups_of(own):
            self.found.groups.setdefault(group, []).extend(names)
        return bool(self.marks.exported)

    def _miss_all(self) -> None:
        """Say so when the package has functions of its own and exports none."""
        package = self.module.__name__
        names = [
            name
            for name, thing in vars(self.module).items()
            if inspect.isfunction(thing) and name[0] != "_" and thing.__module__.startswith(package)
        ]
        if names:
            self._problem(f"exports no tools; to offer them: __all__ = {names!r}")

    def _problem(self, reason: str, *, variable: str = "__all__", tool: str | None = None) -> None:
        line = line_of(self.file, variable)
        self.found.problems.append(
            Problem(file=str(self.file), line=line, reason=reason, tool=tool)
        )

    def _take(self, name: str) -> bool:
        """Make a tool of one exported name; gives whether there is one now."""
        if not hasattr(self.module, name):
            self._problem(
                f"__all__ names {name!r}, which does not exist here; import it first",
                tool=name,
            )
            return False
        function = getattr(self.module, name)
        known = self.found.tools.get(name)
        if known is not None:
            return self._same(known, function, name)
        try:
            self.found.tools[name] = self._tool(function, name)
        except Unsupported as error:
            self._refuse(function, name, str(error))
        except BaseException as error:  # noqa: BLE001 - objects of the user's
            self._refuse(function, name, reason_of(error))
        return name in self.found.tools

    def _refuse(self, function: object, name: str, reason: str) -> None:
        file, line, _ = where(function, self.file)
        self.found.problems.append(
            Problem(file=file, line=line, reason=f"{name!r} {reason}", tool=name)
        )

    def _same(self, known: PythonTool, function: object, name: str) -> bool:
        """Whether the name stands for the function that it stood for before."""
        if known.exported is not function:
            self._refuse(function, name, f"is taken already, by {known.description.file}")
            return False
        said, marks = known.description, self.marks
        safe = marks.is_destructive(name) if said.destructive is None else said.destructive
        merged = replace(
            said,
            destructive=safe,
            sequential=said.sequential or name in marks.sequential,
            timeout=said.timeout or marks.timeouts.get(name),
        )
        self.found.tools[name] = replace(known, description=merged)
        return True

    def _tool(self, function: Any, name: str) -> PythonTool:  # noqa: ANN401 - any object
        check_kind(function)
        if not NAME.fullmatch(name):
            raise Unsupported("is no name that models can call: letters of ASCII, digits, _ and -")
        if name in self.found.taken:
            raise Unsupported("is a name that the server uses itself; choose another one")
        schema = self.found.schemas.describe(function, name)
        file, line, source = where(function, self.file)
        description = ToolDescription(
            name=name,
            description=schema.description,
            parameters=schema.parameters,
            short_parameters=schema.short_parameters,
            file=file,
            line=line or 1,
            source=source,
            is_async=is_async(function),
            destructive=self.marks.is_destructive(name),
            sequential=name in self.marks.sequential,
            timeout=self.marks.timeouts.get(name),
        )
        return PythonTool(description, runnable(function), schema.arguments, function)
