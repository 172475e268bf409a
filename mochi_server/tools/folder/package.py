"""Load a folder of functions, or a package; whatever is wrong in it becomes a problem.

docs/reference/tools.md says what a folder may hold. This raises nothing because of the user's code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

from ..base import Problem
from ..functions.python_tool import PythonTool, check_name, function_of, source_of
from ..functions.results import clean, reason_of
from ..functions.signature import Unsupported
from ..loading import FolderDescription, FolderSpec, PackageEntry
from ..schema import ToolSchemaService
from .importing import ImportedFolder, ImportFailed
from .metadata import (
    ALL,
    DESTRUCTIVE,
    find_subfolders,
    line_of,
    names_of,
    public_functions,
    read_metadata,
    tool_files,
)

_MISSING = object()


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
        """Take its modules out of ``sys.modules``: once none of its functions runs any more."""
        if self._folder is not None:
            self._folder.forget()


def load_package(spec: FolderSpec, *, generation: str = "") -> LoadedPackage:
    """Import a folder and describe its tools; whatever its code does, this raises nothing."""
    path = spec.path.absolute()
    if spec.is_missing():
        return LoadedPackage(FolderDescription(folder=str(path)), {})
    path = path.resolve()
    folder = ImportedFolder(path, generation)
    contents = _Contents(folder, spec.reserved)
    try:
        if spec.entry is None:
            contents.load(subfolders=spec.subfolders)
        else:
            contents.load_entry(spec.entry)
    except BaseException as error:  # noqa: BLE001 - modules of the user's can raise anywhere
        contents.problems.append(folder.cause(error, path))
    return LoadedPackage(contents.description(), contents.tools, folder)


@dataclass
class _Contents:
    folder: ImportedFolder
    reserved: frozenset[str]
    tools: dict[str, PythonTool] = field(default_factory=dict)
    not_harmless: set[str] = field(default_factory=set)
    """Tools of a package that says in a wrong way which of them are destructive."""
    groups: dict[str, list[str]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def description(self) -> FolderDescription:
        """Describe all of it; names of files may hold what UTF-8 cannot say."""
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
            folder=str(self.folder.path),
            tools=tuple(self.tools.values()),
            groups={clean(name): tuple(dict.fromkeys(all_)) for name, all_ in self.groups.items()},
            problems=tuple(dict.fromkeys(problems)),
        )

    def add_problem(
        self, file: Path | str, reason: str, *, line: int | None = None, tool: str | None = None
    ) -> None:
        self.problems.append(Problem(file=str(file), line=line, reason=reason, tool=tool))

    def add_hint(self, file: Path, reason: str, line: int | None = None) -> None:
        reason = f"left out: {reason}"
        self.problems.append(Problem(file=str(file), line=line, reason=reason, severity="hint"))

    def load_entry(self, entry: PackageEntry) -> None:
        """Import a module of an installed package under its own name, and nothing beside it."""
        module = import_module(entry.module)
        file = Path(module.__file__ or self.folder.path)
        package = _Package(module, file, (), entry.group, self)
        if entry.function:
            package.collect_one(entry.function)
        else:
            package.collect()

    def load(self, *, subfolders: bool) -> None:
        folder, path = self.folder, self.folder.path
        if not path.is_dir():
            self.add_problem(path, "is not a folder")
            return
        inner, problems = find_subfolders(path) if subfolders else ([], [])
        self.problems += problems
        has_init = (path / "__init__.py").is_file()
        self._load_package(folder.import_root if has_init else lambda: folder.root, path, None)
        for each in inner:
            init = each / "__init__.py"
            if init.is_file():
                self._load_package(partial(folder.import_file, init), each, each.name)
                continue
            how = "the folder has no __init__.py; with one, which may be empty, they can be tools"
            for file, functions in self.functions_in(tool_files(each)):
                if functions:
                    self.add_hint(file, f"{', '.join(functions)} ({how})")

    def _load_package(self, run: Callable[[], ModuleType], path: Path, group: str | None) -> None:
        try:
            _Package(run(), path / "__init__.py", tool_files(path), group, self).collect()
        except ImportFailed as failed:
            self.problems.append(failed.problem)
        except BaseException as error:  # noqa: BLE001 - hooks of the module, like __getattr__
            self.problems.append(self.folder.cause(error, path / "__init__.py"))

    def functions_in(self, files: Sequence[Path]) -> Iterator[tuple[Path, dict[str, str | None]]]:
        """Yield each file with its functions and what they lack."""
        for file in files:
            try:
                functions = public_functions(file)
            except SyntaxError as error:  # noqa: PERF203 - each one is reported
                self.add_hint(file, reason_of(error), error.lineno)
            else:
                yield file, functions


class _Package:
    """One imported package whose tools are being collected."""

    def __init__(
        self,
        module: ModuleType,
        file: Path,
        beside: Sequence[Path],
        group: str | None,
        contents: _Contents,
    ) -> None:
        self.module = module
        self.file = file
        self.beside = beside
        """Other files with functions of the package."""
        self.folder = contents.folder
        self.contents = contents
        self.metadata, wrong = read_metadata(module, group)
        self.is_unclear = any(variable == DESTRUCTIVE for variable, _ in wrong)
        """Whether it says in a wrong way which of its tools are destructive."""
        for variable, reason in wrong:
            self._add_problem(reason, variable=variable)

    def collect(self) -> None:
        """Add the tools: what ``__all__`` names, or without it what the files define."""
        if hasattr(self.module, ALL):
            self._check_lists("which __all__ does not export")
            names = [name for name in self.metadata.exported if self._add_exported(name)]
            self._hint_at_others()
        else:
            names = self._add_public()
        self._add_groups(names)

    def collect_one(self, path: str) -> None:
        """Add what a dotted path in the module leads to."""
        name = path.rpartition(".")[2]
        self._add_groups([name] if self._add_thing(attrgetter(path)(self.module), name) else [])

    def _add_groups(self, names: Sequence[str]) -> None:
        for group, members in self.metadata.groups_of(names):
            self.contents.groups.setdefault(group, []).extend(members)

    def _check_lists(self, otherwise: str) -> None:
        """Report names in lists that the package does not have.

        A wrong name among the destructive tools may stand for any of the others.
        """
        wrong: set[str] = set()
        for variable, names in self.metadata.lists():
            for name in names:
                if name not in self.metadata.exported:
                    wrong.add(variable)
                    self._add_problem(f"{variable} names {name!r}, {otherwise}", variable=variable)
        if DESTRUCTIVE in wrong or self._is_contradicted():
            self.is_unclear = True
            self.metadata = replace(self.metadata, destructive=None)

    def _is_contradicted(self) -> bool:
        """Tell whether a file calls tools destructive that the package's list does not."""
        if self.metadata.destructive is None:
            return False
        contradicted = False
        for file in self.beside:
            names = names_of(getattr(self.folder.loaded(file), DESTRUCTIVE, ()))
            if names is None or not set(names) <= set(self.metadata.destructive):
                contradicted = True
                reason = f"{DESTRUCTIVE} counts in __init__.py only, which has another one"
                self.contents.add_problem(file, reason, line=line_of(file, DESTRUCTIVE))
        return contradicted

    def _add_problem(self, reason: str, *, variable: str = ALL, tool: str | None = None) -> None:
        self.contents.add_problem(self.file, reason, line=line_of(self.file, variable), tool=tool)

    def _add_exported(self, name: str) -> bool:
        if not hasattr(self.module, name):
            reason = f"__all__ names {name!r}, which does not exist here; import it first"
            self._add_problem(reason, tool=name)
            return False
        return self._add_thing(getattr(self.module, name), name)

    def _add_thing(self, thing: object, name: str) -> bool:
        lack = self._add(thing, name)
        if lack is not None:
            file, line = self._origin(thing, name)
            self.contents.add_problem(file, f"{name!r} {lack}", line=line, tool=name)
        return lack is None

    def _origin(self, thing: object, name: str) -> tuple[str, int | None]:
        """Return file and line of its definition, or of its import if it is not of this folder."""
        file, line, _ = source_of(thing, self.file)
        if Path(file).is_relative_to(self.folder.path):
            return file, line
        return str(self.file), line_of(self.file, name) or line_of(self.file, ALL)

    def _hint_at_others(self) -> None:
        """Add a hint for each file with functions that ``__all__`` does not name.

        In a file that the package imports, those that could be tools count; in any other, all.
        """
        exported = {id(getattr(self.module, name, None)) for name in self.metadata.exported}
        for file, lacks in self.contents.functions_in(self.beside):
            module, names = self.folder.loaded(file), list(lacks)
            if module is not None:
                names = [
                    name
                    for name, lack in lacks.items()
                    if lack is None and id(getattr(module, name, _MISSING)) not in exported
                ]
            if names:
                them = "them" if names[1:] else "it"
                how = f"__all__ in __init__.py does not name {them}"
                self.contents.add_hint(file, f"{', '.join(names)} ({how})")

    def _add_public(self) -> list[str]:
        """Make tools of the public functions of all files; return their names."""
        functions = [(file, *self._functions_of(file)) for file in (self.file, *self.beside)]
        exported = [name for _, things, _ in functions for name in things]
        self.metadata = replace(self.metadata, exported=tuple(dict.fromkeys(exported)))
        self._check_lists("which is no tool of this package")
        names: list[str] = []
        for file, things, lacks in functions:
            for name, thing in things.items():
                reason = self._add(thing, name)
                if reason is None:
                    names.append(name)
                else:
                    lacks[name] = reason
            if lacks:
                reasons = "; ".join(f"{name!r} {lack}" for name, lack in lacks.items())
                self.contents.add_hint(file, reasons)
        return names

    def _functions_of(self, file: Path) -> tuple[dict[str, object], dict[str, str]]:
        """Return what can be a tool in a file, by name; and why its other functions cannot.

        Only a file that seems to have tools is imported.
        """
        try:
            functions = public_functions(file)
            lacks = {name: lack for name, lack in functions.items() if lack is not None}
            if len(lacks) == len(functions):
                return {}, lacks
            module = self.module if file == self.file else self.folder.import_file(file)
        except SyntaxError as error:
            self.contents.add_problem(file, reason_of(error), line=error.lineno)
            return {}, {}
        except ImportFailed as failed:
            self.contents.problems.append(failed.problem)
            return {}, {}
        names = getattr(module, ALL, functions)
        able = [name for name in functions if name not in lacks and name in names]
        return {name: getattr(module, name) for name in able if hasattr(module, name)}, lacks

    def _add(self, thing: Any, name: str) -> str | None:  # noqa: ANN401 - any object
        """Make a tool of an object; return why that cannot be, or None."""
        tools = self.contents.tools
        known = tools.get(name)
        if known is not None and known.exported is not thing:
            return f"is taken already, by {known.file}"
        if self.is_unclear:
            self.contents.not_harmless.add(name)
        try:
            tools[name] = self._described(thing, name) if known is None else self._merged(known)
        except Unsupported as error:
            return str(error)
        except BaseException as error:  # noqa: BLE001 - objects of the user's
            return reason_of(error)
        return None

    def _described(self, thing: object, name: str) -> PythonTool:
        function = function_of(thing)
        tool = ToolSchemaService().describe(function, name, file=self.file)
        check_name(name, self.contents.reserved)
        return replace(
            tool,
            exported=thing,
            destructive=self.metadata.is_destructive(name),
            sequential=name in self.metadata.sequential,
            timeout=self.metadata.timeouts.get(name),
        )

    def _merged(self, known: PythonTool) -> PythonTool:
        """Add what this package says of a tool that another one exports as well."""
        name = known.name
        destructive = {known.destructive, self.metadata.is_destructive(name)}
        is_harmless = False in destructive and name not in self.contents.not_harmless
        is_destructive: bool | None = None
        if True in destructive:
            is_destructive = True
        elif is_harmless:
            is_destructive = False
        return replace(
            known,
            destructive=is_destructive,
            sequential=known.sequential or name in self.metadata.sequential,
            timeout=known.timeout or self.metadata.timeouts.get(name),
        )
