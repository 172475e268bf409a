"""The pydantic model of a function's parameters: it gives a call its Python values."""

from __future__ import annotations

from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from ...errors import JSONObject
from .arguments import Arguments, check_encodable
from .checkable import uncheckable
from .results import reason_of
from .signature import EMPTY, Parameter, Unsupported, accepts_none, shown

CONFIG = ConfigDict(
    extra="forbid", coerce_numbers_to_str=True, allow_inf_nan=False, protected_namespaces=()
)


class FunctionArguments(Arguments[BaseModel]):
    """Makes arguments what a function's hints ask for.

    Raises:
        Unsupported: (when it is made) no schema can be made of a hint.
    """

    def __init__(self, parameters: tuple[Parameter, ...]) -> None:
        super().__init__([each.name for each in parameters])
        self.model = _build_model(parameters)
        self._without_default = {
            f"p{at}" for at, each in enumerate(parameters) if each.default is EMPTY
        }

    def bind(self, arguments: JSONObject) -> dict[str, object]:
        """Return the values of the hinted types by name; what has a default may be absent.

        Raises:
            InvalidArguments: the arguments do not fit.
        """
        model = self._fit(arguments)[0]
        passed = self._passed(model)
        return {
            name: getattr(model, field)
            for field, name in zip(type(model).model_fields, self._names, strict=True)
            if field in passed
        }

    def unchecked(self) -> list[str]:
        """Return the names of parameters that only the function's own code can check."""
        names = dict(zip(self.model.model_fields, self._names, strict=True))
        return [names[field] for field in uncheckable(self.model.__pydantic_core_schema__)]

    def _passed(self, model: BaseModel) -> set[str]:
        return model.model_fields_set | self._without_default

    def _parse(self, arguments: JSONObject) -> BaseModel:
        return self.model.model_validate(arguments)

    def _dump(self, parsed: BaseModel) -> JSONObject:
        return parsed.model_dump(
            mode="json", by_alias=True, include=self._passed(parsed), warnings=False
        )

    def _settle(self, parsed: BaseModel, dumped: JSONObject, given: JSONObject) -> JSONObject:
        """Return what was given where the JSON form does not make the same values (a secret's)."""
        try:
            if self.model.model_validate(dumped) == parsed:
                return dumped
        except BaseException:  # noqa: BLE001, S110 - types of the user's own
            pass
        check_encodable(given)
        return given


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
