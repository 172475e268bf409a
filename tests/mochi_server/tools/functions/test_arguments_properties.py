"""Any JSON against any signature: values or a refusal in words, never anything else."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import orjson
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, field_validator
from typing_extensions import TypedDict

from mochi_server.tools.base import InvalidArguments
from mochi_server.tools.functions.python_tool import PythonTool
from mochi_server.tools.schema import ToolSchemaService


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Word(enum.Enum):
    YES = "yes"
    ONE = 1
    NOTHING = None


class Node(BaseModel):
    name: str
    size: float = 0.0
    children: list[Node] = []


class Raising(BaseModel):
    value: Any

    @field_validator("value")
    @classmethod
    def look(cls, value: Any) -> Any:
        if isinstance(value, str):
            raise SystemExit(value)
        return 1 / value


@dataclasses.dataclass
class Box:
    width: int
    label: str | None = None


class Keys(TypedDict, total=False):
    a: int
    b: list[str]


class Pair(NamedTuple):
    left: int
    right: str


HINTS: list[Any] = [
    int,
    float,
    str,
    bool,
    bytes,
    Any,
    object,
    list,
    dict,
    list[int],
    list[list[str]],
    dict[str, float],
    dict[int, bool],
    set[int],
    frozenset[str],
    tuple[int, str],
    tuple[float, ...],
    int | None,
    int | str,
    bool | list[int] | None,
    Literal["a", "b", 3, None],
    Level,
    Word,
    Node,
    Node | None,
    list[Box],
    Box,
    Keys,
    Pair,
    Raising,
    dt.datetime,
    dt.date,
    dt.timedelta,
    uuid.UUID,
    Decimal,
    Path,
    Annotated[int, Field(ge=0, le=10)],
    Annotated[str, Field(pattern="^a")],
    Annotated[list[int], Field(max_length=2)],
]
NAMES = ["a", "json", "_b", "model_dump", "self", "ü"]
DEFAULTS: list[Any] = [None, 1, "x", [], object(), float("nan")]


def make(hints: list[Any], defaults: list[Any]) -> PythonTool:
    """A function of these parameters; the last ones have the defaults."""
    required = len(hints) - len(defaults)
    names = NAMES[: len(hints)]
    shown = [
        name if at < required else f"{name}=defaults[{at - required}]"
        for at, name in enumerate(names)
    ]
    space: dict[str, Any] = {"defaults": defaults}
    exec(f"def tool({', '.join(shown)}):\n    'Do it.'\n    return locals()", space)
    tool: Callable[..., Any] = space["tool"]
    tool.__annotations__ = dict(zip(names, hints, strict=True)) | {"return": str}
    return ToolSchemaService().describe(tool, "tool")


@st.composite
def signatures(draw: st.DrawFn) -> PythonTool:
    hints = draw(st.lists(st.sampled_from(HINTS), min_size=0, max_size=4))
    defaults = draw(st.lists(st.sampled_from(DEFAULTS), max_size=len(hints)))
    return make(hints, defaults)


TEXT = st.one_of(
    st.text(alphabet=st.characters(codec=None, exclude_categories=[]), max_size=8),
    st.sampled_from(
        [
            *("7", "true", "null", "[1,2]", '{"name": "x"}', "NaN", "1e999", "9" * 5000),
            *("\ud800", "2024-01-01", "yes", '"', '["[1]"]', "PT1H", "{}", '{"a": NaN}'),
            "[" * 3000,
        ]
    ),
)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([10**400, -(2**63), 2**63, 0, 1]),
    st.floats(),
    TEXT,
)
KEYS = st.one_of(st.sampled_from([*NAMES, "name", "size", "children", "width", "value"]), TEXT)
JSON = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=8,
)


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


VALUES = st.one_of(JSON, st.integers(1, 2000).map(deep))


def outcome(run: Callable[[dict[str, Any]], Any], arguments: dict[str, Any]) -> Any:
    """What it gives, or None when it refuses in words that can be sent."""
    try:
        return run(arguments)
    except InvalidArguments as error:
        said = str(error)
    assert said.encode()
    assert 0 < len(said) < 2000
    return None


def check(schema: PythonTool, arguments: dict[str, Any]) -> None:
    """What is shown to a person can be sent, and is what the function can take.

    A call is shown as it fits the schema, which takes a number for a text at any depth. Pydantic
    alone does not within a dataclass that refers to itself.
    """
    shown = outcome(schema.validate, arguments)
    if shown is None:
        assert outcome(schema.bind, arguments) is None
    else:
        assert orjson.dumps(shown)
        bound = outcome(schema.bind, shown)
        assert set(schema.parameters["required"]) <= set(bound)  # type: ignore[arg-type]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(schema=signatures(), arguments=st.dictionaries(KEYS, VALUES, max_size=4))
def test_any_json_gives_values_or_a_refusal(schema: PythonTool, arguments: dict[str, Any]) -> None:
    check(schema, arguments)


EACH = [make([hint], []) for hint in HINTS]


@settings(max_examples=300, deadline=None)
@given(schema=st.sampled_from(EACH), value=VALUES)
def test_any_json_for_one_parameter_gives_a_value_or_a_refusal(
    schema: PythonTool, value: Any
) -> None:
    check(schema, {"a": value})


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(schema=signatures())
def test_every_signature_has_a_schema_that_can_be_sent(schema: PythonTool) -> None:
    assert orjson.dumps([schema.parameters, schema.short_parameters])
    assert schema.parameters["properties"].keys() == schema.short_parameters.keys()  # type: ignore[union-attr]
