"""Frames between the server and a process of tools."""

import math
from typing import Any

import pytest

from mochi_server.tools.base import Problem, ToolDescription
from mochi_server.tools.loading import FolderDescription
from mochi_server.tools.process.protocol import (
    LENGTH_BYTES,
    MAX_FRAME,
    BadFrame,
    decode_description,
    encode_description,
    length_of,
    pack,
    unpack,
)


@pytest.mark.parametrize(
    "value", ["ä\n\0", "\udc80", 10**40, -1.5, None, [{"a": [True]}], math.inf]
)
def test_a_message_comes_out_as_it_went_in(value: Any):
    frame = pack({"id": 1, "value": value})

    assert length_of(frame[:LENGTH_BYTES]) == len(frame) - LENGTH_BYTES
    assert unpack(frame[LENGTH_BYTES:]) == {"id": 1, "value": value}


def test_what_is_no_message_is_not_sent():
    deep: Any = []
    for _ in range(200_000):
        deep = [deep]
    with pytest.raises(BadFrame, match="no JSON"):
        pack({"value": {1, 2}})  # type: ignore[dict-item]
    with pytest.raises(BadFrame, match="no JSON"):
        pack({"value": deep})
    with pytest.raises(BadFrame, match="larger than 40 MiB"):
        pack({"value": "x" * MAX_FRAME})


@pytest.mark.parametrize("body", [b"", b"hello", b"[1]", b"\xff\xfe", b"[" * 200_000])
def test_what_is_no_message_is_not_taken(body: bytes):
    with pytest.raises(BadFrame):
        unpack(body)


def test_a_length_that_no_frame_has_is_not_waited_for():
    with pytest.raises(BadFrame, match="too long"):
        length_of((MAX_FRAME + 1).to_bytes(LENGTH_BYTES, "big"))


def test_a_description_comes_out_as_it_went_in():
    tool = ToolDescription(
        name="add",
        description="Add.",
        parameters={"type": "object"},
        short_parameters={},
        file="/tools/__init__.py",
        line=3,
        source="def add(): ...",
        timeout=1.5,
    )
    description = FolderDescription(
        folder="/tools",
        tools=(tool,),
        groups={"math": ("add",)},
        problems=(Problem(file="/tools/x.py", line=None, reason="torn", tool="x"),),
    )

    assert (
        decode_description(unpack(pack(encode_description(description))[LENGTH_BYTES:]))
        == description
    )


@pytest.mark.parametrize(
    "value", [None, {}, {"folder": "", "tools": [{}]}, {"folder": 1, "tools": 2}]
)
def test_what_is_no_description_is_not_taken(value: Any):
    with pytest.raises(BadFrame):
        decode_description(value)
