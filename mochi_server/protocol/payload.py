"""JSON of dataclasses, as their fields say it."""

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
        """The fields by name."""
        return {
            each.name: value
            for each in fields(self)
            if (value := getattr(self, each.name)) is not each.default
        }
