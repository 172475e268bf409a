"""``python -I json_schema.py``: check a JSON schema, or whether a text fits it.

A program of its own, with little CPU time and memory: a regular expression, or alternatives that
refer to each other, may take for ever, and cannot be interrupted in a thread.

It reads ``{"schema", "text"}`` from standard input and writes ``{"place", "reason"}`` to standard
output: where and why the text does not fit or, if it is null, the schema cannot be used; null if
nothing is wrong. References must lead to places within the schema: nothing is fetched.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

SECONDS = 2
"""CPU time of a check, the start of the program included."""
MEMORY = 512 * 2**20
"""Bytes of data of the process."""
CALLS = 10_000
"""Depth of Python's calls; a schema takes some for each level of the text."""
REASON_CHARACTERS = 500

Problem = dict[str, str]


def problem_of_schema(schema: dict[str, Any]) -> Problem | None:
    """Return where and why a schema cannot be used."""
    from jsonschema.exceptions import best_match  # noqa: PLC0415 - after the limits are set

    if not isinstance(schema.get("$schema", ""), str):
        return _problem("$schema", "it is no text")
    draft = _draft_of(schema)
    meta = draft(draft.META_SCHEMA, format_checker=draft.FORMAT_CHECKER)
    if (error := best_match(meta.iter_errors(schema))) is not None:
        return _problem(_dotted(error.absolute_path), error.message)
    return _problem_of_references(schema)


def _problem_of_references(schema: dict[str, Any]) -> Problem | None:
    from referencing import Resource  # noqa: PLC0415
    from referencing.exceptions import Unresolvable  # noqa: PLC0415
    from referencing.jsonschema import DRAFT202012, EMPTY_REGISTRY  # noqa: PLC0415

    root = Resource.from_contents(schema, default_specification=DRAFT202012)
    todo: list[Any] = [(root, EMPTY_REGISTRY.resolver_with_root(root))]
    while todo:
        part, resolver = todo.pop()
        for keyword in ("$ref", "$dynamicRef"):
            reference = part.contents.get(keyword) if isinstance(part.contents, dict) else None
            try:
                if reference is not None:
                    resolver.lookup(reference)
            except (Unresolvable, ValueError):
                path = next(_paths_to(part.contents, schema), ())
                reason = f"{reference!r} leads to no place within the schema"
                return _problem(_dotted([*path, keyword]), reason)
        todo += [(each, resolver.in_subresource(each)) for each in part.subresources()]
    return None


def _paths_to(part: object, value: Any) -> Iterator[tuple[Any, ...]]:  # noqa: ANN401 - JSON
    if value is part:
        yield ()
    children: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict | list):
        children = value.items() if isinstance(value, dict) else enumerate(value)
    for name, child in children:
        for path in _paths_to(part, child):
            yield (name, *path)


def problem_of_text(text: str, schema: dict[str, Any]) -> Problem | None:
    """Return where and why a text is no JSON that fits a schema."""
    from jsonschema.exceptions import best_match  # noqa: PLC0415
    from referencing.jsonschema import EMPTY_REGISTRY  # noqa: PLC0415

    try:
        value = json.loads(text, parse_constant=_refuse)
    except ValueError as error:
        return _problem("", f"it is not JSON ({error})")
    validator = _draft_of(schema)(schema, registry=EMPTY_REGISTRY)
    if (wrong := best_match(validator.iter_errors(value))) is None:
        return None
    return _problem(wrong.json_path, wrong.message)


def _draft_of(schema: dict[str, Any]) -> Any:  # noqa: ANN401 - a class
    from jsonschema import Draft202012Validator  # noqa: PLC0415
    from jsonschema.validators import validator_for  # noqa: PLC0415

    return validator_for(schema, default=Draft202012Validator)


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is no word of JSON")


def _dotted(path: Iterable[object]) -> str:
    return ".".join(map(str, path))


def _problem(place: str, reason: str) -> Problem:
    if len(reason) > REASON_CHARACTERS:
        half = REASON_CHARACTERS // 2
        reason = f"{reason[:half]} … {reason[-half:]}"
    return {"place": place, "reason": reason}


def main() -> None:
    """Check what standard input has."""
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.setrecursionlimit(CALLS)
    query = json.load(sys.stdin)
    schema, text = query["schema"], query["text"]
    try:
        problem = problem_of_schema(schema) if text is None else problem_of_text(text, schema)
    except RecursionError:
        problem = _problem("", "it refers to itself without end, or is nested too deeply")
    json.dump(problem, sys.stdout)


if __name__ == "__main__":
    main()
