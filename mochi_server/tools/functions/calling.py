"""How a call of the user's code ended, as a value: nothing it raises may end or cancel ours."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ...errors import JSONObject
from ..base import InvalidArguments, ToolFailed
from .results import as_text, clean, reason_of

if TYPE_CHECKING:
    from ..folder.package import PythonTool  # not at run time: the server's side needs none of it

logger = logging.getLogger(__name__)

LONGEST_REASON = 2_000
LONGEST_TRACE = 10_000
LONGEST_RESULT = 16 * 1024 * 1024
"""Bytes of UTF-8; far more than any model reads, and still quick to hand over."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of it."""

    kind: Literal["done", "invalid", "failed"]
    value: Any = None
    """The result, where it is done: text of a call, arguments of a validation."""
    text: str = ""
    """Else why there is none."""
    trace: str = ""
    """The traceback, where the user's code raised."""

    def result(self, tool: str) -> Any:  # noqa: ANN401 - text, or arguments
        """The value; what the user's code raised is logged under the tool's name.

        Raises:
            InvalidArguments, ToolFailed.
        """
        if self.kind == "done":
            return self.value
        if self.kind == "invalid":
            raise InvalidArguments(self.text)
        if self.trace:
            logger.warning("The tool %s failed: %s\n%s", tool, self.text, self.trace.rstrip())
        raise ToolFailed(self.text)


def failed(error: BaseException) -> Outcome:
    """The outcome of what was raised."""
    if isinstance(error, ToolFailed):
        return Outcome(kind="failed", text=str(error)[:LONGEST_REASON])
    return Outcome(kind="failed", text=reason_of(error)[:LONGEST_REASON], trace=_trace(error))


def _trace(error: BaseException) -> str:
    try:
        lines = traceback.format_exception(type(error), error, error.__traceback__)
    except BaseException:  # noqa: BLE001 - the user's own __str__
        return "(no traceback: the error cannot be printed)"
    return clean("".join(lines)[-LONGEST_TRACE:])


def attempt(step: Callable[[], T]) -> Outcome:
    """The outcome of a step that looks at arguments."""
    try:
        return Outcome(kind="done", value=step())
    except InvalidArguments as error:
        return Outcome(kind="invalid", text=str(error)[:LONGEST_REASON])
    except BaseException as error:  # noqa: BLE001 - the user's own types and validators
        return failed(error)


def call(tool: PythonTool, arguments: JSONObject) -> Outcome:
    """Call the function, here and now; its result as text."""
    bound = attempt(lambda: tool.bind(arguments))
    if bound.kind != "done":
        return bound
    try:
        return _done(tool.function(**bound.value))
    except BaseException as error:  # noqa: BLE001 - the user's own code
        return failed(error)


def _done(value: object) -> Outcome:
    text = as_text(value)
    if len(text) > LONGEST_RESULT or len(text.encode()) > LONGEST_RESULT:
        raise ToolFailed(f"The result is larger than {LONGEST_RESULT // 2**20} MiB.")
    return Outcome(kind="done", value=text)


async def call_async(tool: PythonTool, arguments: JSONObject) -> Outcome:
    """The same of an ``async def``. Being cancelled is an outcome too: give it its own task."""
    bound = attempt(lambda: tool.bind(arguments))
    if bound.kind != "done":
        return bound
    try:
        awaitable: Awaitable[object] = tool.function(**bound.value)
        return _done(await awaitable)
    except BaseException as error:  # noqa: BLE001 - the user's own code
        return failed(error)
