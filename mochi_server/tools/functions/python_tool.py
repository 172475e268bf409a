"""A function as a tool, in the process in which it runs."""

from __future__ import annotations

import inspect
import re
import traceback
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ...errors import JSONObject
from ..base import InvalidArguments, ToolDescription, ToolFailed
from .model import FunctionArguments
from .results import as_text, clean, reason_of
from .schema_arguments import SchemaArguments
from .signature import Function, Unsupported, unwrapped

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What the services of models take as the name of a function."""
MAX_REASON = 2_000
MAX_TRACEBACK = 10_000
MAX_RESULT = 16 * 1024 * 1024
"""Bytes of UTF-8; far more than any model reads, and still quick to hand over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonTool(ToolDescription):
    """A described function, with the function."""

    function: Callable[..., Any]
    """Takes what :meth:`bind` returns, as keywords; in a thread unless it is async."""
    arguments: FunctionArguments
    exported: object = None
    """The object that the package has under the name: the function, most often."""

    def validate(self, arguments: JSONObject) -> JSONObject:
        """Return the arguments as a call does: coerced, in JSON form; raises InvalidArguments."""
        fitted = SchemaArguments(self.parameters, self.unchecked).validate(arguments)
        self.bind(fitted)
        return fitted

    def bind(self, arguments: JSONObject) -> dict[str, object]:
        return self.arguments.bind(arguments)


def call(tool: PythonTool, arguments: JSONObject) -> str | InvalidArguments | ToolFailed:
    """Call the function, here and now, and return its result as text.

    Errors are returned: nothing that the user's code raises may end or cancel the caller.
    """
    try:
        return _result(tool.function(**tool.bind(arguments)))
    except BaseException as error:  # noqa: BLE001 - the user's own code
        return failure(error)


async def call_async(
    tool: PythonTool, arguments: JSONObject
) -> str | InvalidArguments | ToolFailed:
    """Do the same with an ``async def``. Being cancelled is a result too: give it its own task."""
    try:
        awaitable: Awaitable[object] = tool.function(**tool.bind(arguments))
        return _result(await awaitable)
    except BaseException as error:  # noqa: BLE001 - the user's own code
        return failure(error)


def _result(value: object) -> str:
    text = as_text(value)
    if len(text) > MAX_RESULT or len(text.encode()) > MAX_RESULT:
        raise ToolFailed(f"The result is larger than {MAX_RESULT // 2**20} MiB.")
    return text


def failure(error: BaseException) -> InvalidArguments | ToolFailed:
    if type(error) is InvalidArguments:
        return InvalidArguments(str(error)[:MAX_REASON])
    if type(error) is ToolFailed:
        return ToolFailed(str(error)[:MAX_REASON])
    return ToolFailed(reason_of(error)[:MAX_REASON], traceback=_traceback(error))


def _traceback(error: BaseException) -> str:
    try:
        lines = traceback.format_exception(type(error), error, error.__traceback__)
    except BaseException:  # noqa: BLE001 - the user's own __str__
        return "(no traceback: the error cannot be printed)"
    return clean("".join(lines)[-MAX_TRACEBACK:])


def function_of(thing: Any) -> Any:  # noqa: ANN401 - any object
    """Return the function within a tool of LangChain or smolagents; anything else as it is.

    They are known by their attributes, so neither package is imported. The description of a tool
    stands in for the docstring that its function does not have.
    """
    if isinstance(thing, type) or inspect.isroutine(thing):
        return thing
    if not all(isinstance(getattr(thing, name, None), str) for name in ("name", "description")):
        return thing
    if hasattr(thing, "args_schema"):  # LangChain's StructuredTool and Tool
        function = getattr(thing, "func", None) or getattr(thing, "coroutine", None)
    elif isinstance(getattr(thing, "inputs", None), dict):  # smolagents' Tool
        function = getattr(thing, "forward", None)
        function = getattr(function, "__wrapped__", function)  # @tool adds a parameter ``self``
    else:
        return thing
    if not inspect.isroutine(function):
        return thing
    if inspect.getdoc(function):
        return function
    described = partial(function)
    described.__doc__ = thing.description
    return described


def check_name(name: str, reserved: Collection[str]) -> None:
    if not NAME.fullmatch(name):
        raise Unsupported("is no name that models can call: letters of ASCII, digits, _ and -")
    if name in reserved:
        raise Unsupported("is a name that the server uses itself; choose another one")


def check_callable(thing: object) -> None:
    if isinstance(thing, type):
        raise Unsupported("is a class; export a function that makes use of it")
    if inspect.ismodule(thing):
        raise Unsupported("is a module; import the function from it")
    if not callable(thing):
        raise Unsupported(f"is not callable, but of type {type(thing).__name__}")
    source = unwrapped(thing)
    if inspect.isgeneratorfunction(source) or inspect.isasyncgenfunction(source):
        raise Unsupported("is a generator; return the whole text instead of yielding it")


def is_async(function: Function) -> bool:
    """Tell whether a call returns a coroutine, as far as the function shows it."""
    while isinstance(function, partial):
        function = function.func
    if inspect.isroutine(function):
        return inspect.iscoroutinefunction(function)
    return inspect.iscoroutinefunction(type(function).__call__)


def runnable(function: Function) -> Function:
    """Return the function; a sync wrapper of an async one runs it in a loop of its own."""
    if is_async(function) or not inspect.iscoroutinefunction(unwrapped(function)):
        return function

    def run(**arguments: Any) -> Any:  # noqa: ANN401 - the user's values
        import asyncio  # noqa: PLC0415 - most folders have no async tool

        made = function(**arguments)
        return asyncio.run(made) if inspect.iscoroutine(made) else made

    return run


def source_of(thing: Any, fallback: Path) -> tuple[str, int | None, str]:  # noqa: ANN401
    """Return file, first line and text of the source; the fallback's file for what has none."""
    try:
        thing = unwrapped(thing) if callable(thing) else type(thing)
        file = inspect.getsourcefile(thing)
        lines, start = inspect.getsourcelines(thing)
    except BaseException:  # noqa: BLE001 - the user's objects answer as they like
        return str(fallback), None, ""
    return clean(file or str(fallback)), max(start, 1), clean("".join(lines))
