"""Reads calls that a model has written as text, in the forms that models learn."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from ...core.json_text import DECODER, repair_json
from ...core.syntax import parse_python
from ...errors import JSONObject
from .marks import ARGUMENTS, BETWEEN, CLOSING, MARK

NAMES: Final = ("name", "function", "tool", "tool_name", "function_name")
ARGUMENT_KEYS: Final = ("arguments", "parameters", "args", "input", "tool_input", "params")
WRAPPERS: Final = ("tool_calls", "function_call", "tool_call", "function_calls")
ALSO: Final = ("id", "type", "index", "call_id", "tool_call_id")
"""Keys that a call may have beside its name and arguments."""

IsTool: TypeAlias = Callable[[str], object]
"""Tells whether a name is that of an offered tool, also as models garble it."""

_BROKEN: Final = (ValueError, TypeError, RecursionError, MemoryError, SyntaxError)

_NAME: Final = re.compile(
    rf"(?:function)?\s*(?:{'|'.join(map(re.escape, ARGUMENTS))})?\s*([\w.:/-]+)\s*"
    rf"(?:\[CALL_ID\]\s*[\w-]+\s*)?(?:{'|'.join(map(re.escape, ARGUMENTS))}|```(?i:json))?\s*"
)
_FUNCTION: Final = re.compile(r"<function=([^>\n]+)>(.*?)(?:</function>|$)", re.DOTALL)
_PARAMETER: Final = re.compile(
    r"<parameter=([^>\n]+)>\n?(.*?)\n?(?:</parameter>|(?=\n\s*<parameter=)|$)", re.DOTALL
)
_INVOKE: Final = re.compile(r'<invoke name="([^"\n]+)">(.*?)(?:</invoke>|$)', re.DOTALL)
_INVOKE_PARAMETER: Final = re.compile(
    r'<parameter name="([^"\n]+)"[^>\n]*>(.*?)(?:</parameter>|(?=\n\s*<parameter )|$)', re.DOTALL
)
_BEGINS_ARGUMENT: Final = re.compile(r"<parameter[ =]|<arg_key>")
_PAIR: Final = re.compile(
    r"\s*<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)(?:</arg_value>|$)", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class WrittenCall:
    """A call as the model wrote it."""

    name: str
    arguments: JSONObject
    are_texts: bool = False
    """Whether all values are texts, as in XML, whatever is meant."""


def read_calls(
    text: str, *, in_full: bool = True, results_unless: IsTool | None = None
) -> list[WrittenCall] | None:
    """Return the calls of a text that has nothing else, or None.

    Args:
        text: From a mark, a fence, or a brace to the end of the reply.
        in_full: Whether the model has ended its reply; what was cut off is not completed.
        results_unless: Tells names of tools, where objects that are no calls may follow a call:
            small models go on with the result that they imagine.
    """
    reader = _CallReader(text, in_full=in_full, results_unless=results_unless)
    try:
        return reader.calls() or None
    except _BROKEN:
        return None


class _CallReader:
    def __init__(self, text: str, *, in_full: bool, results_unless: IsTool | None) -> None:
        self._text = text
        self._results_unless = results_unless
        self._at = 0
        self._in_full = in_full
        self._is_marked = False

    def calls(self) -> list[WrittenCall]:
        """Return all calls.

        Raises:
            ValueError, SyntaxError, RecursionError, MemoryError: there is something else.
        """
        found: list[WrittenCall] = []
        while not self._is_over(found):
            found += self._next(is_first=not found)
        return found

    def _is_over(self, found: list[WrittenCall]) -> bool:
        between = BETWEEN.match(self._text, self._at)
        assert between is not None  # noqa: S101 - it fits nothing as well
        self._is_marked |= MARK.search(between[0]) is not None
        self._at = between.end()
        if found and (closing := CLOSING.fullmatch(self._text, self._at)):
            self._at = closing.end()
        return self._at == len(self._text)

    def _next(self, *, is_first: bool) -> list[WrittenCall]:
        for form, pattern in ((_FUNCTION, _PARAMETER), (_INVOKE, _INVOKE_PARAMETER)):
            if match := form.match(self._text, self._at):
                self._at = match.end()
                self._check_end(is_there=match[0].endswith(("</function>", "</invoke>")))
                return [_of_xml(match, pattern)]
        if self._text[self._at] in "{[":
            return self._of_json_or_python(is_first=is_first)
        if not self._is_marked:
            raise ValueError
        return self._of_name()

    def _of_json_or_python(self, *, is_first: bool) -> list[WrittenCall]:
        try:
            value, self._at = DECODER.raw_decode(self._text, self._at)
        except ValueError:
            piece = self._piece()
            if re.match(r"\[\s*[A-Za-z_][\w.]*\(", piece):
                return list(_of_python(piece))
            value = self._repaired(piece)
        is_tool = None if is_first else self._results_unless
        if is_tool is not None and is_imagined_result(value, is_tool):
            return []
        return list(calls_of_value(value))

    def _check_end(self, *, is_there: bool) -> None:
        """Refuse what has no end of its own where the reply was cut off."""
        if not (self._in_full or is_there):
            raise ValueError

    def _piece(self) -> str:
        """Take the text up to the next mark or the end of the fence."""
        ends = [MARK.search(self._text, self._at), re.compile(r"```").search(self._text, self._at)]
        end = min((match.start() for match in ends if match), default=len(self._text))
        piece, self._at = self._text[self._at : end], end
        return piece.strip()

    def _repaired(self, piece: str) -> object:
        """Read what is nearly JSON, such as with single quotes or without the last brace."""
        if not self._in_full:
            raise ValueError
        if piece.startswith("{{") and piece.endswith("}}"):
            piece = piece[1:-1]  # braces of a template
        if (value := repair_json(piece)) is None:
            raise ValueError
        return value

    def _of_name(self) -> list[WrittenCall]:
        match = _NAME.match(self._text, self._at)
        if match is None:
            raise ValueError
        if self._text.startswith("{", match.end()):
            self._at = match.end()
            try:
                value, self._at = DECODER.raw_decode(self._text, self._at)
            except ValueError:
                value = self._repaired(self._piece())
            return [WrittenCall(match[1], as_object(value))]
        if self._text.startswith("<arg_key>", match.end()):
            self._at = match.end()
            arguments: JSONObject = {}
            while pair := _PAIR.match(self._text, self._at):
                self._at = pair.end()
                _add_text(arguments, *pair.groups())
            self._check_end(is_there=bool(MARK.match(self._text[self._at :].lstrip())))
            return [WrittenCall(match[1], arguments, are_texts=True)]
        return list(_of_python(self._piece()))


def _of_xml(match: re.Match[str], parameter: re.Pattern[str]) -> WrittenCall:
    name, body = match[1].strip(), match[2].strip()
    if body.startswith("{"):
        return WrittenCall(name, as_object(DECODER.decode(body)))
    arguments: JSONObject = {}
    for key, value in parameter.findall(match[2]):
        _add_text(arguments, key, value)
    if parameter.sub("", match[2]).strip():
        raise ValueError
    return WrittenCall(name, arguments, are_texts=True)


def _add_text(arguments: JSONObject, key: str, text: str) -> None:
    """Add an argument; a second one of its name, or one within it, may be a quotation."""
    if key.strip() in arguments or _BEGINS_ARGUMENT.search(text):
        raise ValueError
    arguments[key.strip()] = text


def calls_of_value(value: object) -> Iterator[WrittenCall]:
    """Yield the calls of a JSON value.

    Raises:
        ValueError: it has something else.
    """
    if isinstance(value, list) and value:
        for each in value:
            yield from calls_of_value(each)
        return
    if not isinstance(value, dict):
        raise ValueError  # noqa: TRY004 - as all that is no call
    for wrapper in WRAPPERS:
        if wrapper in value and len(value) == 1:
            yield from calls_of_value(value[wrapper])
            return
    yield _of_object(value)


def _of_object(value: Mapping[str, Any]) -> WrittenCall:
    function = value.get("function")
    if isinstance(function, dict) and not value.keys() - {"function", *ALSO}:
        return _of_object(function)
    names = [key for key in NAMES if isinstance(value.get(key), str)]
    arguments = [key for key in ARGUMENT_KEYS if key in value]
    is_whole = len(names) == 1 and len(arguments) == 1
    if not is_whole or value.keys() - {names[0], arguments[0], *ALSO}:
        raise ValueError
    return WrittenCall(value[names[0]], as_object(value[arguments[0]]))


def is_imagined_result(value: object, is_tool: IsTool) -> bool:
    """Return whether a value behind a call is an object that is no call, also no part of one."""
    if not isinstance(value, dict) or {*ARGUMENT_KEYS, *WRAPPERS} & value.keys():
        return False
    return not any(isinstance(value.get(key), str) and is_tool(value[key]) for key in NAMES)


def as_object(value: object) -> JSONObject:
    """Return arguments, which may be a JSON text, or stand in a list."""
    if isinstance(value, str):
        value = DECODER.decode(value) if value.strip() else {}
    if isinstance(value, list) and len(value) == 1:
        [value] = value
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError  # noqa: TRY004 - as all that is no call
    return value


def _of_python(text: str) -> Iterator[WrittenCall]:
    """Read ``name(key=value)``, several of them in lines or in a list, also within ``print()``."""
    for statement in parse_python(text):
        if not isinstance(statement, ast.Expr):
            raise ValueError  # noqa: TRY004
        value = statement.value
        for each in value.elts if isinstance(value, ast.List) else [value]:
            yield _of_expression(each)


def _of_expression(node: ast.expr) -> WrittenCall:
    if not isinstance(node, ast.Call):
        raise ValueError  # noqa: TRY004
    name = ast.unparse(node.func)
    if name == "print" and len(node.args) == 1 and not node.keywords:
        return _of_expression(node.args[0])
    if node.args or any(each.arg is None for each in node.keywords):
        raise ValueError
    arguments = {str(each.arg): _literal(each.value) for each in node.keywords}
    return WrittenCall(name.removesuffix(".call"), arguments)


def _literal(node: ast.expr) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(node, ast.Name) and node.id in {"true", "false", "null"}:
        return {"true": True, "false": False, "null": None}[node.id]
    value = ast.literal_eval(node)
    json.dumps(value)
    return value
