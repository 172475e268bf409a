"""What a dataclass of the protocol is on the wire."""

from __future__ import annotations

from dataclasses import Field, fields
from typing import Any, ClassVar

from ..errors import JSONObject


class FieldPayload:
    """A dataclass whose payload is its fields, in their order.

    A field that has a default is left out while it has it; what is always there has none.
    """

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def payload(self) -> JSONObject:
        return fields_of(self)


def fields_of(instance: Any) -> JSONObject:  # noqa: ANN401 - any dataclass
    """Return the fields of a dataclass that do not have their defaults, in their order."""
    return {
        each.name: value
        for each in fields(instance)
        if (value := getattr(instance, each.name)) is not each.default
    }
