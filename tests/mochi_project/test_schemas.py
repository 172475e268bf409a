from __future__ import annotations

from typing import Annotated

import orjson
import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from mochi_project.schemas import EncodedAs


class Inner(BaseModel):
    """A described type."""

    name: str


class Outer(BaseModel):
    """An answer with a part that is encoded already."""

    inner: Annotated[orjson.Fragment, EncodedAs(list[Inner])]


def test_encoded_json_is_sent_as_it_is():
    answer = Outer(inner=orjson.Fragment(b'[{"name" : "a", "other": 1}]'))
    assert orjson.dumps(answer.model_dump()) == b'{"inner":[{"name" : "a", "other": 1}]}'


@pytest.mark.parametrize("mode", ["validation", "serialization"])
def test_encoded_json_is_described_by_its_type(mode):
    schema = Outer.model_json_schema(mode=mode)
    assert schema["properties"]["inner"]["items"] == {"$ref": "#/$defs/Inner"}
    assert schema["$defs"]["Inner"]["required"] == ["name"]


@pytest.mark.parametrize("value", [[{"name": "a"}], "[]", None])
def test_what_is_not_encoded_is_refused(value):
    with pytest.raises(ValidationError):
        Outer(inner=value)


def test_a_whole_answer_is_bytes():
    answers = TypeAdapter(Annotated[bytes, EncodedAs(Inner)])
    assert answers.dump_python(answers.validate_python(b'{"name":"a"}')) == b'{"name":"a"}'
    with pytest.raises(ValidationError):
        answers.validate_python("{}")
