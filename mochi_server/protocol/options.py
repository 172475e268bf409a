"""Options of a model: how it chooses its words, how much it may say, how long it stays loaded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    field_validator,
)
from typing_extensions import Self

from ..constants import DURATION
from ..errors import JSONObject

MAX_STOPS: Final = 16
MAX_STOP_CHARACTERS: Final = 1_000
MAX_DURATION_CHARACTERS: Final = 100
MAX_EXTRA: Final = 50
"""Providers in ``extra``, and fields of one of them."""

RESERVED: Final = frozenset(
    {
        *("model", "messages", "contents", "system", "systeminstruction", "stream"),
        *("streamoptions", "tools", "toolchoice", "toolconfig", "functions", "functioncall"),
        *("numctx", "numpredict", "npredict", "n", "candidatecount"),
        *("maxtokens", "maxcompletiontokens", "maxoutputtokens"),
    }
)
"""Fields of requests that the server sets itself, in small letters without ``_``."""
GENERATION: Final = "generationconfig"
"""The field in which Gemini has more of them."""

_Stop = Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARACTERS)]
_Duration = Annotated[str, Field(max_length=MAX_DURATION_CHARACTERS, pattern=DURATION)]
_Seconds = Annotated[float, Field(strict=True, allow_inf_nan=False)]
_Fields = Annotated[dict[str, JsonValue], Field(max_length=MAX_EXTRA)]


def _number(**limits: Any) -> Any:  # noqa: ANN401 - as pydantic's Field
    return Field(default=None, strict=True, **limits)


def _whole(value: object) -> object:
    """Take ``7.0`` for the whole number that it is in JSON Schema."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


_TopK = Annotated[int, Field(strict=True, ge=0, le=1_000_000), BeforeValidator(_whole)]
_Seed = Annotated[int, Field(strict=True, ge=-(2**31), le=2**31 - 1), BeforeValidator(_whole)]
_Tokens = Annotated[int, Field(strict=True, ge=1, le=16_777_216), BeforeValidator(_whole)]


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _names_in(fields: JSONObject) -> Iterator[str]:
    for name, value in fields.items():
        yield name
        if _plain(name) == GENERATION and isinstance(value, dict):
            yield from value


class ModelOptions(BaseModel):
    """Options of a session, or of one turn; what is null or absent is the model's own.

    A provider sends those that it knows, and names the others.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        json_schema_extra={"example": {"temperature": 0.2, "seed": 7, "max_tokens": 500}},
    )

    temperature: float | None = _number(ge=0, le=100, allow_inf_nan=False)
    top_p: float | None = _number(ge=0, le=1)
    top_k: _TopK | None = None
    min_p: float | None = _number(ge=0, le=1)
    seed: _Seed | None = None
    stop: Annotated[list[_Stop], Field(max_length=MAX_STOPS)] | _Stop | None = Field(
        default=None, description="A text or several, before which the reply ends."
    )
    max_tokens: _Tokens | None = None
    repeat_penalty: float | None = _number(ge=0, le=100, allow_inf_nan=False)
    presence_penalty: float | None = _number(ge=-100, le=100, allow_inf_nan=False)
    frequency_penalty: float | None = _number(ge=-100, le=100, allow_inf_nan=False)
    keep_alive: _Duration | _Seconds | None = Field(
        default=None,
        description="How long the model stays loaded: seconds, or a text such as `10m`; negative: "
        "for ever.",
    )
    extra: Annotated[dict[str, _Fields], Field(max_length=MAX_EXTRA)] | None = Field(
        default=None,
        description="More fields of a request, by the alias of the provider that knows them.",
        examples=[{"ollama": {"mirostat": 1}}],
    )

    @field_validator("extra")
    @classmethod
    def _check_extra(cls, extra: dict[str, JSONObject] | None) -> dict[str, JSONObject] | None:
        named = {name for fields in (extra or {}).values() for name in _names_in(fields)}
        if reserved := sorted(name for name in named if _plain(name) in RESERVED):
            raise ValueError(f"the server itself sets {', '.join(reserved)}")
        return extra

    @classmethod
    def read(cls, stored: object) -> Self:
        """Return what can be understood of stored options, which others may have written."""
        values = dict(stored) if isinstance(stored, dict) else {}
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            wrong = {str(problem["loc"][0]) for problem in error.errors(include_url=False)}
            return cls.model_validate({key: values[key] for key in values.keys() - wrong})

    @property
    def stops(self) -> list[JsonValue]:
        return [self.stop] if isinstance(self.stop, str) else [*(self.stop or [])]

    def as_stored(self) -> JSONObject:
        """Return the options that were named, also those that are null."""
        return self.model_dump(mode="json", exclude_unset=True)

    def with_changes(self, changes: ModelOptions | None) -> ModelOptions:
        """Return these options with those that ``changes`` names in their place."""
        if changes is None:
            return self
        return ModelOptions.model_validate({**self.as_stored(), **changes.as_stored()})

    def names(self) -> list[str]:
        """Return the names of the options that have a value."""
        return [name for name in type(self).model_fields if getattr(self, name) is not None]


NO_OPTIONS: Final = ModelOptions()
