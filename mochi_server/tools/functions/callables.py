"""Kinds of callable things, and where they are written."""

from __future__ import annotations

import asyncio
import inspect
from functools import partial
from pathlib import Path
from typing import Any

from .results import clean
from .signature import Function, Unsupported, unwrapped


def function_of(thing: Any) -> Any:  # noqa: ANN401 - any object
    """The function within a tool of LangChain or smolagents; anything else as it is.

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


def check_kind(thing: object) -> None:
    """Hold that it can be called for a result.

    Raises:
        Unsupported: it cannot.
    """
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
    """Whether a call gives a coroutine, by its looks."""
    while isinstance(function, partial):
        function = function.func
    if inspect.isroutine(function):
        return inspect.iscoroutinefunction(function)
    return inspect.iscoroutinefunction(type(function).__call__)


def runnable(function: Function) -> Function:
    """The function; an async one in the clothes of a sync one is run by a loop of its own."""
    if is_async(function) or not inspect.iscoroutinefunction(unwrapped(function)):
        return function

    def run(**arguments: Any) -> Any:  # noqa: ANN401 - the user's values
        made = function(**arguments)
        return asyncio.run(made) if inspect.iscoroutine(made) else made

    return run


def where(thing: Any, fallback: Path) -> tuple[str, int | None, str]:  # noqa: ANN401
    """File, first line and text of the source; the fallback's file for what has none."""
    try:
        thing = unwrapped(thing) if callable(thing) else type(thing)
        file = inspect.getsourcefile(thing)
        lines, start = inspect.getsourcelines(thing)
    except BaseException:  # noqa: BLE001 - objects of the user's answer as they like
        return str(fallback), None, ""
    return clean(file or str(fallback)), max(start, 1), clean("".join(lines))
