"""Load a folder of the user's functions; whatever is wrong in it becomes a problem.

docs/reference/tools.md says what a folder may hold. This runs in the server's process or in one
of its own, and raises nothing because of the user's code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from ...errors import JSONObject
from ..base import FolderDescription, FolderSpec, Problem, ToolDescription
from ..functions.arguments import Arguments
from ..functions.callables import check_kind, function_of, is_async, runnable, where
from ..functions.results import clean, reason_of
from ..functions.signature import Unsupported
from ..schema import ToolSchemaService
from .importing import ImportedFolder, ImportFailed
from .metadata import DESTRUCTIVE, Marks, names_of, read_marks
from .scan import candidates, line_of, modules, public_functions

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
    unclear: set[str] = field(default_factory=set)
    """Names of tools of a package that says in a wrong way which of them are destructive."""
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
    if (path / "__init__.py").is_file():
        _load_one(folder.import_root, path, None, folder, found)
    else:
        _load_one(lambda: folder.root, path, None, folder, found)
    for each in inner:
        init = each / "__init__.py"
        if init.is_file():
            _load_one(partial(folder.import_file, init), each, each.name, folder, found)
        else:
            found.problems += _without_init(each)


def _load_one(
    run: Callable[[], ModuleType],
    path: Path,
    group: str | None,
    folder: ImportedFolder,
    found: _Found,
) -> None:
    """Import one package and take over its tools."""
    try:
        _Package(run(), path, group, folder, found).collect()
    except ImportFailed as failed:
        found.problems.append(failed.problem)
    except BaseException as error:  # noqa: BLE001 - hooks of the module, like __getattr__
        found.problems.append(folder.cause(error, path / "__init__.py"))


def _without_init(path: Path) -> Iterator[Problem]:
    """A hint for each file with functions in a sub-folder that is no package."""
    for file in modules(path):
        try:
            names = public_functions(file)
        except SyntaxError as error:
            yield _left_out(file, reason_of(error), error.lineno)
            continue
        if names:
            how = "the folder has no __init__.py; with one, which may be empty, they can be tools"
            yield _left_out(file, f"{', '.join(names)} ({how})")


def _left_out(file: Path, reason: str, line: int | None = None) -> Problem:
    return Problem(file=str(file), line=line, reason=f"left out: {reason}", severity="hint")


class _Package:
    """One imported package whose tools are being looked at."""

    def __init__(
        self,
        module: ModuleType,
        path: Path,
        group: str | None,
        folder: ImportedFolder,
        found: _Found,
    ) -> None:
        self.module = module
        self.path = path
        self.file = path / "__init__.py"
        self.folder = folder
        self.found = found
        self.marks, problems = read_marks(module, group)
        self.is_unclear = any(variable == DESTRUCTIVE for variable, _ in problems)
        for variable, reason in problems:
            self._problem(reason, variable=variable)

    def collect(self) -> None:
        """Take the tools over: what ``__all__`` names, or without it what the files define."""
        if hasattr(self.module, "__all__"):
            self._check_lists("which __all__ does not export")
            own = [name for name in self.marks.exported if self._take_exported(name)]
            self.found.problems += self._not_exported()
        else:
            own = self._take_public()
        for group, names in self.marks.groups_of(own):
            self.found.groups.setdefault(group, []).extend(names)

    def _check_lists(self, otherwise: str) -> None:
        """Name what the lists have and the package has not.

        A wrong name among the destructive tools may stand for any of the others.
        """
        wrong: set[str] = set()
        for variable, names in self.marks.named():
            for name in names:
                if name not in self.marks.exported:
                    wrong.add(variable)
                    self._problem(f"{variable} names {name!r}, {otherwise}", variable=variable)
        if DESTRUCTIVE in wrong or self._is_contradicted():
            self.is_unclear = True
            self.marks = replace(self.marks, destructive=None)

    def _is_contradicted(self) -> bool:
        """Whether a file calls tools destructive that the package's list does not."""
        if self.marks.destructive is None:
            return False
        contradicted = False
        for file in modules(self.path):
            listed = getattr(self.folder.loaded(file), DESTRUCTIVE, ())
            names = names_of(listed)
            if names is None or not set(names) <= set(self.marks.destructive):
                contradicted = True
                reason = f"{DESTRUCTIVE} counts in __init__.py only, which has another one"
                line = line_of(file, DESTRUCTIVE)
                self.found.problems.append(Problem(file=str(file), line=line, reason=reason))
        return contradicted

    def _problem(self, reason: str, *, variable: str = "__all__", tool: str | None = None) -> None:
        line = line_of(self.file, variable)
        self.found.problems.append(
            Problem(file=str(self.file), line=line, reason=reason, tool=tool)
        )

    def _take_exported(self, name: str) -> bool:
        """Make a tool of one exported name; gives whether there is one now."""
        if not hasattr(self.module, name):
            self._problem(
                f"__all__ names {name!r}, which does not exist here; import it first",
                tool=name,
            )
            return False
        thing = getattr(self.module, name)
        reason = self._add(thing, name)
        if reason is not None:
            file, line = self._place_of(thing, name)
            self.found.problems.append(
                Problem(file=file, line=line, reason=f"{name!r} {reason}", tool=name)
            )
        return reason is None

    def _place_of(self, thing: object, name: str) -> tuple[str, int | None]:
        """Where it is written; of what is not of this folder, where the package gets it from."""
        file, line, _ = where(thing, self.file)
        if Path(file).is_relative_to(self.folder.path):
            return file, line
        return str(self.file), line_of(self.file, name) or line_of(self.file, "__all__")

    def _not_exported(self) -> Iterator[Problem]:
        """A hint for each file that has functions which ``__all__`` does not name.

        In a file that the package imports, those that could be tools count; in any other, all.
        """
        exported = {id(getattr(self.module, name, None)) for name in self.marks.exported}
        for file in modules(self.path):
            module = self.folder.loaded(file)
            try:
                functions = public_functions(file)
            except SyntaxError as error:
                yield _left_out(file, reason_of(error), error.lineno)
                continue
            names = [
                name
                for name, lack in functions.items()
                if (lack is None or module is None)
                and id(getattr(module, name, functions)) not in exported
            ]
            if names:
                how = "__all__ in __init__.py does not name"
                yield _left_out(file, f"{', '.join(names)} ({how} {'them' if names[1:] else 'it'})")

    def _take_public(self) -> list[str]:
        """Make tools of the public functions of all files; gives their names."""
        functions = [(file, *self._functions_of(file)) for file in (self.file, *modules(self.path))]
        exported = [name for _, things, _ in functions for name in things]
        self.marks = replace(self.marks, exported=tuple(dict.fromkeys(exported)))
        self._check_lists("which is no tool of this package")
        own: list[str] = []
        for file, things, lacks in functions:
            for name, thing in things.items():
                reason = self._add(thing, name)
                if reason is None:
                    own.append(name)
                else:
                    lacks[name] = reason
            if lacks:
                reasons = "; ".join(f"{name!r} {lack}" for name, lack in lacks.items())
                self.found.problems.append(_left_out(file, reasons))
        return own

    def _functions_of(self, file: Path) -> tuple[dict[str, object], dict[str, str]]:
        """What a file has that can be a tool, by name; and why its other functions can not.

        Only a file that seems to have tools is imported.
        """
        try:
            functions = public_functions(file)
            lacks = {name: lack for name, lack in functions.items() if lack is not None}
            if len(lacks) == len(functions):
                return {}, lacks
            module = self.module if file == self.file else self.folder.import_file(file)
        except SyntaxError as error:
            problem = Problem(file=str(file), line=error.lineno, reason=reason_of(error))
            self.found.problems.append(problem)
            return {}, {}
        except ImportFailed as failed:
            self.found.problems.append(failed.problem)
            return {}, {}
        names = getattr(module, "__all__", functions)
        able = [name for name in functions if name not in lacks and name in names]
        return {name: getattr(module, name) for name in able if hasattr(module, name)}, lacks

    def _add(self, thing: Any, name: str) -> str | None:  # noqa: ANN401 - any object
        """Make a tool of it; gives why that cannot be, or None."""
        known = self.found.tools.get(name)
        if self.is_unclear and (known is None or known.exported is thing):
            self.found.unclear.add(name)
        try:
            if known is None:
                self.found.tools[name] = self._tool(thing, name)
            elif known.exported is thing:
                self.found.tools[name] = self._merged(known, name)
            else:
                return f"is taken already, by {known.description.file}"
        except Unsupported as error:
            return str(error)
        except BaseException as error:  # noqa: BLE001 - objects of the user's
            return reason_of(error)
        return None

    def _merged(self, known: PythonTool, name: str) -> PythonTool:
        """A tool that another package exports too, with what both say of it."""
        said, marks = known.description, self.marks
        both = {said.destructive, marks.is_destructive(name)}
        is_harmless = False in both and name not in self.found.unclear
        merged = replace(
            said,
            destructive=True if True in both else False if is_harmless else None,
            sequential=said.sequential or name in marks.sequential,
            timeout=said.timeout or marks.timeouts.get(name),
        )
        return replace(known, description=merged)

    def _tool(self, thing: object, name: str) -> PythonTool:
        found = self.found
        return python_tool(
            thing,
            name,
            marks=self.marks,
            schemas=found.schemas,
            taken=found.taken,
            fallback=self.file,
        )


def python_tool(
    thing: object,
    name: str,
    *,
    marks: Marks,
    schemas: ToolSchemaService,
    taken: Collection[str],
    fallback: Path,
) -> PythonTool:
    """Make a tool of a function, or of an object that is one for others.

    Args:
        thing: The function, or the object.
        name: What models call it.
        marks: What is said of it elsewhere than in its code.
        schemas: Makes its schema.
        taken: Names that it may not have.
        fallback: The file of what has no source.

    Raises:
        Unsupported: it cannot be a tool.
    """
    function = function_of(thing)
    check_kind(function)
    if not NAME.fullmatch(name):
        raise Unsupported("is no name that models can call: letters of ASCII, digits, _ and -")
    if name in taken:
        raise Unsupported("is a name that the server uses itself; choose another one")
    schema = schemas.describe(function, name)
    file, line, source = where(function, fallback)
    description = ToolDescription(
        name=name,
        description=schema.description,
        parameters=schema.parameters,
        short_parameters=schema.short_parameters,
        file=file,
        line=line or 1,
        source=source,
        is_async=is_async(function),
        destructive=marks.is_destructive(name),
        sequential=name in marks.sequential,
        timeout=marks.timeouts.get(name),
    )
    return PythonTool(description, runnable(function), schema.arguments, thing)
