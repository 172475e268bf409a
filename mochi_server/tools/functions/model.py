"""The pydantic model of a function's parameters: it gives a call its Python values.

It also tells which parameters a JSON Schema describes as their function takes them. Validators,
enums with ``_missing_``, aliases and the like are code or settings that no JSON Schema shows: only
pydantic, in the process of the function, can tell what such a parameter takes.
https://docs.pydantic.dev/latest/api/pydantic_core_schema/
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from ...errors import JSONObject
from .arguments import Arguments
from .results import reason_of
from .signature import EMPTY, Parameter, Unsupported, accepts_none, shown

CONFIG = ConfigDict(
    extra="forbid", coerce_numbers_to_str=True, allow_inf_nan=False, protected_namespaces=()
)


class FunctionArguments(Arguments):
    """Makes arguments what a function's hints ask for; raises Unsupported for a bad hint."""

    def __init__(self, parameters: tuple[Parameter, ...]) -> None:
        super().__init__(dict.fromkeys((each.name for each in parameters), ""))
        self.model = _build_model(parameters)
        self._without_default = {
            f"p{at}" for at, each in enumerate(parameters) if each.default is EMPTY
        }
        """Fields that the function always gets: ``x: int | None`` may be absent, and is None."""
        self._with_default = {each.name for each in parameters if each.default is not EMPTY}

    def bind(self, arguments: JSONObject) -> dict[str, object]:
        """Return values by name, or raise InvalidArguments; what has a default may be absent."""
        model = self._fit(arguments)[0]
        passed = self._fields_to_pass(model)
        return {
            name: getattr(model, field)
            for field, name in zip(type(model).model_fields, self._names, strict=True)
            if field in passed
        }

    def unchecked(self) -> list[str]:
        names = dict(zip(self.model.model_fields, self._names, strict=True))
        return [names[field] for field in uncheckable(self.model.__pydantic_core_schema__)]

    def _fields_to_pass(self, model: BaseModel) -> set[str]:
        return model.model_fields_set | self._without_default

    def _parse(self, arguments: JSONObject) -> BaseModel:
        try:
            return self.model.model_validate(arguments)
        except ValidationError as error:
            refused = {each["loc"][0] for each in error.errors(include_url=False)}
            given = {
                name: value
                for name, value in arguments.items()
                if value is not None or name not in refused & self._with_default
            }
            if len(given) == len(arguments):
                raise
            return self.model.model_validate(given)

    def _dump(self, parsed: BaseModel) -> JSONObject:
        return parsed.model_dump(
            mode="json", by_alias=True, include=self._fields_to_pass(parsed), warnings=False
        )


def _build_model(parameters: tuple[Parameter, ...]) -> type[BaseModel]:
    """Make a model with the fields ``p0``, ``p1``, …, each known by its parameter's name."""
    fields = {f"p{at}": (each.hint, _field(each)) for at, each in enumerate(parameters)}
    try:
        return create_model("Arguments", __config__=CONFIG, **fields)  # type: ignore[call-overload,no-any-return]
    except BaseException as error:  # also the user's own hooks for pydantic
        raise Unsupported(culprit(parameters) or reason_of(error)) from error


def _field(parameter: Parameter) -> Any:  # noqa: ANN401 - as pydantic has it
    name = parameter.name
    default: Any = PydanticUndefined
    if parameter.default is not EMPTY:
        default = parameter.default
    elif accepts_none(parameter.hint) and not _has_own_default(parameter.hint):
        default = None
    return Field(default=default, alias=name, validation_alias=name, serialization_alias=name)


def _has_own_default(hint: Any) -> bool:  # noqa: ANN401
    extras = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return any(isinstance(each, FieldInfo) and not each.is_required() for each in extras)


def culprit(parameters: tuple[Parameter, ...]) -> str | None:
    """Name the parameter that no schema can be made of; None when each alone has one."""
    for each in parameters:
        try:
            TypeAdapter(each.hint).json_schema()
        except BaseException:  # noqa: BLE001, PERF203 - hooks of the user's own types
            return f"parameter {each.name!r}: no JSON schema can be made of {shown(each.hint)}"
    return None


_EXACT_TYPES = re.compile(
    "any|none|bool|int|float|str|bytes|date|time|datetime|timedelta|literal|enum|uuid|url"
    "|multi-host-url|list|tuple|set|frozenset|dict|nullable|union|tagged-union|lax-or-strict"
    "|json-or-python|is-instance|default|function-after|definitions|definition-ref"
    "|model(-fields?)?|typed-dict(-field)?|dataclass(-args|-field)?"
)
"""Types of pydantic's core whose JSON Schema refuses nothing that they take."""
_INEXACT_SETTINGS = re.compile(
    "strict|(str_)?(strip_whitespace|to_lower|to_upper)|(populate|validate)_by_name"
    "|val_temporal_unit"
)
_VALUES = frozenset({"metadata", "serialization", "cls", "default", "expected", "members"})
_REMARKS = frozenset({"title", "description", "examples", "example", "deprecated"})


def uncheckable(model_schema: Any) -> list[str]:  # noqa: ANN401 - a schema of pydantic's core
    """Return the fields of a model that only its own code can check, by the names in the schema."""
    definitions: dict[str, Any] = {}
    if model_schema["type"] == "definitions":
        definitions = {each["ref"]: each for each in model_schema["definitions"]}
        model_schema = model_schema["schema"]
        if model_schema["type"] == "definition-ref":
            model_schema = definitions[model_schema["schema_ref"]]
    fields = model_schema["schema"]["fields"]
    return [
        name
        for name, field in fields.items()
        if not _is_exact(field["schema"], definitions) or _is_changed(field)
    ]


def _is_exact(schema: Any, definitions: Mapping[str, Any]) -> bool:  # noqa: ANN401
    """Tell whether a schema, with all in it, says in JSON all that it takes."""
    todo, seen = [schema], set[str]()
    while todo:
        each = todo.pop()
        if isinstance(each, list | tuple):
            todo += each
        if not isinstance(each, dict):
            continue
        if _is_inexact(each):
            return False
        ref = each.get("schema_ref")
        if isinstance(ref, str) and ref not in seen:
            seen.add(ref)
            todo.append(definitions.get(ref))
        todo += [value for key, value in each.items() if key not in _VALUES]
    return True


def _is_inexact(schema: Mapping[str, Any]) -> bool:
    kind = schema.get("type")
    return (
        (isinstance(kind, str) and not _EXACT_TYPES.fullmatch(kind))
        or any(value and _INEXACT_SETTINGS.fullmatch(str(name)) for name, value in schema.items())
        or isinstance(schema.get("validation_alias"), list)
        # Equal values count once, but only after the server has counted them.
        or (kind in {"set", "frozenset"} and schema.get("max_length") is not None)
        or _has_own_values(schema.get("cls"))
        or _is_changed(schema)
    )


def _has_own_values(cls: object) -> bool:
    return (
        isinstance(cls, type)
        and issubclass(cls, Enum)
        and getattr(cls._missing_, "__func__", None) is not Enum.__dict__["_missing_"].__func__
    )


def _is_changed(schema: Mapping[str, Any]) -> bool:
    """Tell whether the author has put words of their own into the JSON Schema."""
    metadata = schema.get("metadata") or {}
    cls = schema.get("cls")
    config = getattr(cls, "model_config", None) or getattr(cls, "__pydantic_config__", None) or {}
    return (
        bool(metadata.get("pydantic_js_annotation_functions"))
        or any(map(_is_own, metadata.get("pydantic_js_functions", ())))
        or not _is_remark(metadata.get("pydantic_js_extra"))
        or not _is_remark(config.get("json_schema_extra"))
    )


def _is_own(function: object) -> bool:
    return not str(getattr(function, "__module__", "")).startswith("pydantic.")


def _is_remark(extra: object) -> bool:
    return extra is None or (isinstance(extra, dict) and extra.keys() <= _REMARKS)
