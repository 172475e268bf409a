"""Arguments: what models may send a function, what it gets, and what the server checks of it."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import json
import typing
import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import orjson
import pytest
import typing_extensions
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    StringConstraints,
    WithJsonSchema,
    WrapValidator,
    field_validator,
    model_validator,
)

from mochi_server.tools.base import InvalidArguments
from mochi_server.tools.functions.python_tool import PythonTool, call
from mochi_server.tools.functions.schema_arguments import SchemaArguments
from mochi_server.tools.schema import ToolSchemaService

from .hints import Colour, Options, Point, Size, tool_of


class Marked(typing.TypedDict):
    a: typing_extensions.Required[int]
    b: typing_extensions.NotRequired[Options]


class Unspeakable(ValueError):
    def __str__(self) -> str:
        raise SystemExit


class Odd(BaseModel):
    value: int

    @field_validator("value")
    @classmethod
    def refuse(cls, value: int) -> int:
        raise {
            0: KeyError,
            1: SystemExit,
            2: KeyboardInterrupt,
            3: RecursionError,
            5: Unspeakable,
        }.get(value, ValueError)("odd")


@pytest.mark.parametrize(
    ("hint", "given", "value"),
    [
        (int, "7", 7),
        (int, 7.0, 7),
        (float, "7.5", 7.5),
        (bool, "true", True),
        (str, 7, "7"),
        (str, 1.5, "1.5"),
        (list[str], [1, 2], ["1", "2"]),
        (list[int], "[1, 2]", [1, 2]),
        (list[int], '[1, "2"]', [1, 2]),
        (list[list[int]], '["[1]", [2]]', [[1], [2]]),
        (list[int] | None, "[1]", [1]),
        (int | None, "null", None),
        (dict[str, int], '{"a": "1"}', {"a": 1}),
        (str | list[int], "[1]", "[1]"),
        (Literal[1, 2], "2", 2),
        (Colour, "red", Colour.RED),
        (Point, '{"x": "1"}', Point(x=1)),
        (Size, {"width": 2}, Size(2, 1)),
        (Options, {"size": '{"width": 2}'}, {"size": Size(2, 1)}),
        (list[Options], '[{"depth": "1"}]', [{"depth": 1}]),
        (Annotated[dict[str, Options | None], "by name"], {"a": None}, {"a": None}),
        (typing.List[Options], [{"depth": "1"}], [{"depth": 1}]),  # noqa: UP006
        (Marked, {"a": "1", "b": {"depth": "2"}}, {"a": 1, "b": {"depth": 2}}),
        (dt.date, "2024-02-29", dt.date(2024, 2, 29)),
        (
            uuid.UUID,
            "12345678123456781234567812345678",
            uuid.UUID(int=0x12345678 * 0x1000000010000000100000001),
        ),
        (Path, "a/b", Path("a/b")),
        (Decimal, "1.10", Decimal("1.10")),
        (set[int], [1, 1], {1}),
        (tuple[int, str], [1, "a"], (1, "a")),
    ],
)
def test_arguments_are_fitted_to_the_hint(hint: Any, given: Any, value: Any) -> None:
    arguments = tool_of(hint)
    bound = arguments.bind({"value": given})["value"]
    assert bound == value
    assert type(bound) is type(value)
    shown = arguments.validate({"value": given})
    assert json.loads(orjson.dumps(shown)) == shown
    assert arguments.bind(shown)["value"] == value


def with_optional(
    a: int,
    note: str = "none",
    plain: Annotated[str, AfterValidator(str.strip)] = "x",
    maybe: int | None = 7,
    options: Options | None = None,
) -> str:
    """Do it."""
    return f"{a}:{note}:{plain}:{maybe}:{options}"


@pytest.mark.parametrize(
    ("given", "result"),
    [
        ({"a": 1, "note": None}, "1:none:x:7:None"),
        ({"a": 1, "plain": None}, "1:none:x:7:None"),
        ({"a": "1", "note": None, "plain": None, "maybe": None}, "1:none:x:None:None"),
        ({"a": 1, "options": {"depth": None}}, "1:none:x:7:{}"),
        (
            {"a": 1, "options": '{"size": {"width": 2, "height": null}}'},
            "1:none:x:7:{'size': Size(width=2, height=1)}",
        ),
        ({"a": 1, "options": {"size": {"width": None}}}, None),
        ({"a": None}, None),
    ],
)
def test_null_stands_for_an_optional_value_that_is_absent(given: Any, result: str | None) -> None:
    described = ToolSchemaService().describe(with_optional, "with_optional")
    if result is None:
        with pytest.raises(InvalidArguments):
            described.validate(given)
    else:
        assert call(described, described.validate(given)) == result


@pytest.mark.parametrize(
    ("hint", "given", "said"),
    [
        (int, "x", "value: Input should be a valid integer"),
        (int, True, "got True"),
        (int, "true", "got True"),
        (float, False, "got False"),
        (list[int], [1, True], "value.1: "),
        (int, 1.5, "value: "),
        (int, "9" * 30, "64 bits"),
        (int, "9" * 9000, "value: "),
        (float, "NaN", "finite"),
        (float, "1e999", "finite"),
        (str, "\ud800", "lone surrogates"),
        (Any, "\ud800", "lone surrogates"),
        (str, None, "value: "),
        (Colour, "green", "'red' or 'blue'"),
        (list[int], "[1", "value: "),
        (list[int], "[" * 20000, "value: "),
        (list, "[" * 100 + "]" * 100, "deeper than 64"),
        (Odd, {"value": 0}, "KeyError"),
        (Odd, {"value": 1}, "SystemExit"),
        (Odd, {"value": 2}, "KeyboardInterrupt"),
        (Odd, {"value": 3}, "RecursionError"),
        (Odd, {"value": 4}, "odd"),
        (Odd, {"value": 5}, "refused"),
        (Marked, {}, "Field required"),
    ],
)
def test_what_does_not_fit_is_said_in_few_words(hint: Any, given: Any, said: str) -> None:
    arguments = tool_of(hint)
    for method in (arguments.validate, arguments.bind):
        with pytest.raises(InvalidArguments) as caught:
            method({"value": given})
        assert said in str(caught.value)
        assert len(str(caught.value)) < 400
        assert str(caught.value).encode()


def test_names_are_told_when_some_are_missing_or_unknown() -> None:
    def tool(a: int, b: int, c: int = 1) -> str:
        """Do it."""

    described = ToolSchemaService().describe(tool, "tool")
    for method in (described.validate, described.bind):
        with pytest.raises(InvalidArguments) as caught:
            method({"a": 1, "d": 1})
        assert str(caught.value) == "Missing: b. Unknown: d; the names are: a, b, c."


def test_a_secret_is_not_lost_on_its_way() -> None:
    arguments = tool_of(SecretStr)
    shown = arguments.validate({"value": "word"})
    assert arguments.bind(shown)["value"].get_secret_value() == "word"


def test_a_secret_that_json_cannot_carry_is_refused() -> None:
    with pytest.raises(InvalidArguments):
        tool_of(SecretStr).validate({"value": "\ud800"})


def test_what_was_given_is_not_changed() -> None:
    given = {"value": ["[1]"]}
    assert tool_of(list[list[int]]).bind(given) == {"value": [[1]]}
    assert given == {"value": ["[1]"]}


def test_a_refusal_is_short_however_long_the_names_in_it_are() -> None:
    """Models make up keys of any length."""
    with pytest.raises(InvalidArguments) as refused:
        tool_of(dict[str, float]).bind({"value": {"9" * 5000: False}})
    assert len(str(refused.value)) < 200


# Any JSON against any signature: values or a refusal in words, never anything else.


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


class Keys(typing_extensions.TypedDict, total=False):
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


EACH = [make([hint], []) for hint in HINTS]


@given(schema=st.sampled_from(EACH), value=VALUES)
@example(schema=EACH[HINTS.index(set[int])], value=[False, False])
def test_any_json_for_one_parameter_gives_a_value_or_a_refusal(
    schema: PythonTool, value: Any
) -> None:
    check(schema, {"a": value})


@given(schema=signatures())
def test_every_signature_has_a_schema_that_can_be_sent(schema: PythonTool) -> None:
    assert orjson.dumps([schema.parameters, schema.short_parameters])
    assert schema.parameters["properties"].keys() == schema.short_parameters.keys()  # type: ignore[union-attr]


# The schema alone, in the server, and what the function itself says of the same arguments.


def tool(  # noqa: PLR0917
    a: int,
    b: list[int],
    c: dict[str, int] | None = None,
    d: dt.date | None = None,
    e: Annotated[str, Field(pattern="^[^x]*$", max_length=3)] = "",
    f: Annotated[float, Field(gt=0)] | bool = 1,
) -> str:
    """Do it."""
    return ""


@pytest.mark.parametrize(
    "arguments",
    [
        {"a": "x", "b": "[1"},
        {"b": 1, "z": 2},
        {"a": True, "b": []},
        {"a": 1.5, "b": [1, True]},
        {"a": 1, "b": [], "c": {"x": "y"}, "d": "no"},
        {"a": 1, "b": [], "e": "abcd"},
        {"a": 1, "b": "[1, 2]", "f": -1},
        {"a": "\ud800", "b": []},
        [],
    ],
)
def test_a_refusal_has_the_words_of_the_function(arguments: Any) -> None:
    described = ToolSchemaService().describe(tool, "tool")
    messages = []
    for check in (described.bind, SchemaArguments(described.parameters).validate):
        with pytest.raises(InvalidArguments) as caught:
            check(arguments)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


@pytest.mark.parametrize("number", [0, 1.5, 1e22])
def test_a_number_is_not_taken_for_bytes(number: float) -> None:
    with pytest.raises(InvalidArguments, match="Input should be a valid"):
        make([bytes], []).validate({NAMES[0]: number})
    assert make([bytes], []).bind({NAMES[0]: "text"})[NAMES[0]] == b"text"


def test_what_fits_is_given_in_json_form_without_defaults() -> None:
    checker = SchemaArguments(ToolSchemaService().describe(tool, "tool").parameters)
    fitted = checker.validate({"a": "7", "b": '[1, "2"]', "d": "2024-02-29", "e": "abc"})
    assert fitted == {"a": 7, "b": [1, 2], "d": "2024-02-29", "e": "abc"}


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"type": "integer", "minimum": "low"}}},
        {"properties": {"a": {"$ref": "#/$defs/missing"}}},
        {"properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": {"$ref": "#/$defs/b"}}},
        {"properties": {"a": {"type": "nonsense"}, "b": {"anyOf": []}, "c": {"enum": []}}},
        {"properties": {"a": True, "b": {"type": ["string", "null"]}}, "required": "a"},
        {"properties": {"a": {"type": "string", "pattern": "("}}},
    ],
)
def test_what_a_schema_says_in_no_known_way_is_left_to_the_function(schema: Any) -> None:
    checker = SchemaArguments(schema)
    assert checker.validate({"a": "x"}) == {"a": "x"}
    with pytest.raises(InvalidArguments, match="Unknown: z"):
        checker.validate({"a": "x", "z": 1})


class Shade(enum.Enum):
    """Found in any case."""

    RED = "red"

    @classmethod
    def _missing_(cls, value: object) -> Shade | None:
        return cls.RED if str(value).lower() == "red" else None


class Rights(enum.IntFlag):
    """Can be combined."""

    READ = 1
    WRITE = 2


class Alias(BaseModel):
    """Takes two names."""

    model_config = ConfigDict(populate_by_name=True)
    size: int = Field(alias="theSize")


class AnyAlias(BaseModel):
    """Takes one of two names."""

    model_config = ConfigDict(extra="forbid")
    size: int = Field(validation_alias=AliasChoices("size", "length"))


class Prepared(BaseModel):
    """Takes a text as well."""

    size: int

    @model_validator(mode="before")
    @classmethod
    def from_text(cls, value: Any) -> Any:
        """Count the letters of a text."""
        return {"size": len(value)} if isinstance(value, str) else value


class Tidy(BaseModel):
    """Strips its texts."""

    model_config = ConfigDict(str_strip_whitespace=True, str_max_length=3)
    name: str


class Noted(BaseModel):
    """Has a schema with words of its author's."""

    model_config = ConfigDict(json_schema_extra={"additionalProperties": False})
    size: int = 0


class Defaulting(NamedTuple):
    one: int
    other: str = "b"


def _split(value: Any) -> Any:
    return value.split(",") if isinstance(value, str) else value


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (Shade, "RED"),
        (Rights, 3),
        (list[Shade], ["Red"]),
        (Annotated[list[str], BeforeValidator(_split)], "a,b"),
        (Annotated[int, WrapValidator(lambda value, _: len(value))], "abc"),
        (Annotated[str, Field(json_schema_extra={"format": "date"})], "tomorrow"),
        (Annotated[str, Field(json_schema_extra={"enum": ["a", "b"]})], "c"),
        (Annotated[str, WithJsonSchema({"type": "integer"})], "many"),
        (Annotated[str, StringConstraints(strip_whitespace=True, max_length=3)], " abc "),
        (Annotated[set[int], Field(max_length=2)], [1, 1, 1]),
        (Alias, {"size": 1}),
        (dict[str, AnyAlias], {"a": {"length": 1}}),
        (Prepared, "abc"),
        (Tidy, {"name": " abc "}),
        (Noted, {"size": 1, "more": 2}),
        (Defaulting, [1]),
        (Defaulting | None, {"one": 1}),
        (Decimal, 9007199254740993),
    ],
)
def test_what_only_the_code_of_a_type_can_check_is_left_to_it(hint: Any, value: Any) -> None:
    """The schema says less of such a type than it takes."""
    described = make([hint], [])
    checker = SchemaArguments(described.parameters, described.unchecked)
    taken = described.bind({"a": value})
    assert described.bind(checker.validate({"a": value})) == taken
    with pytest.raises(InvalidArguments, match="Unknown: z"):
        checker.validate({"a": value, "z": 1})


@pytest.mark.parametrize(
    "hint",
    [
        int,
        float,
        bytes,
        Any,
        set[int],
        tuple[int, ...],
        int | str | None,
        Literal[1, "a"],
        dt.date,
        uuid.UUID,
        Level,
        Node,
        Box,
        Keys,
        Annotated[int, Field(ge=1, description="How many", examples=[3])],
        Annotated[str, Field(json_schema_extra={"examples": ["a"]})],
        list[dict[str, int]] | None,
    ],
)
def test_other_types_are_checked(hint: Any) -> None:
    assert make([hint], []).unchecked == []


FUNCTIONS = [make([hint], []) for hint in HINTS]
CHECKERS = [SchemaArguments(each.parameters) for each in FUNCTIONS]


@given(at=st.integers(0, len(HINTS) - 1), value=VALUES)
def test_the_server_refuses_nothing_that_the_function_takes(at: int, value: Any) -> None:
    try:
        FUNCTIONS[at].bind({"a": value})
    except InvalidArguments:
        return
    if HINTS[at] == set[int] and not {True, False}.isdisjoint(value):
        return  # the function takes flags for numbers only where its set hides how many there were
    FUNCTIONS[at].bind(CHECKERS[at].validate({"a": value}))
