"""Reading the header of a model file."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from mochi_server.providers.builtin.catalogue import weights_in
from mochi_server.providers.builtin.gguf import NotGGUF, read_header
from tests.support.local_model import weights


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def header(pairs: list[tuple[str, int, bytes]], tensors: list[list[int]]) -> bytes:
    data = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs))
    for key, kind, value in pairs:
        data += text(key) + struct.pack("<I", kind) + value
    for number, shape in enumerate(tensors):
        data += text(f"t{number}") + struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        data += struct.pack("<IQ", 0, 0)
    return data


LLAMA = header(
    [
        ("general.architecture", 8, text("qwen9")),
        ("general.file_type", 4, struct.pack("<I", 15)),
        ("tokens", 9, struct.pack("<IQ", 8, 2) + text("a") + text("b")),
        ("scores", 9, struct.pack("<IQ", 6, 3) + struct.pack("<3f", 1, 2, 3)),
        ("nested", 9, struct.pack("<IQ", 9, 1) + struct.pack("<IQ", 0, 2) + b"xy"),
        ("qwen9.context_length", 10, struct.pack("<Q", 32768)),
        ("flag", 7, b"\x01"),
        ("tokenizer.chat_template", 8, text("{% if tools %}")),
    ],
    [[1000, 1000, 500], [1000, 1000, 1000]],
)


def test_the_header_of_the_default_model_is_read():
    found = read_header(weights())
    assert found.architecture == "llama"
    assert found.context_length == 8192
    assert found.parameters == 134_515_008
    assert found.quantization == "Q4_1"
    assert "<|im_start|>" in found.chat_template


def test_every_kind_of_value_is_read_or_skipped(tmp_path):
    path = tmp_path / "a.gguf"
    path.write_bytes(LLAMA)
    found = read_header(path)
    assert (found.architecture, found.context_length) == ("qwen9", 32768)
    assert (found.parameter_size, found.quantization) == ("1.50B", "Q4_K_M")
    assert found.chat_template == "{% if tools %}"
    assert found.can_chat


def test_a_model_that_only_embeds_cannot_chat(tmp_path):
    path = tmp_path / "a.gguf"
    path.write_bytes(header([("general.architecture", 8, text("nomic-bert"))], []))
    found = read_header(path)
    assert not found.can_chat
    assert (found.context_length, found.quantization, found.parameter_size) == (None, None, "0.00M")


@pytest.mark.parametrize("size", [0, 3, 8, 20, 30, len(LLAMA) - 30])
def test_a_cut_header_is_an_error(tmp_path: Path, size: int):
    path = tmp_path / "a.gguf"
    path.write_bytes(LLAMA[:size])
    with pytest.raises(NotGGUF):
        read_header(path)


@pytest.mark.parametrize(
    "data",
    [
        b"%PDF-1.7 something else entirely",
        b"GGUF" + struct.pack("<IQQ", 99, 0, 0),
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 60),
        header([("a", 77, b"")], []),
    ],
)
def test_other_files_and_damaged_headers_are_errors(tmp_path: Path, data: bytes):
    path = tmp_path / "a.gguf"
    path.write_bytes(data)
    with pytest.raises(NotGGUF):
        read_header(path)


def test_files_of_the_folder_go_by_the_catalogues_name_or_their_stem(tmp_path):
    for name in ("smollm2-135m.gguf", "mine.gguf", "notes.txt"):
        (tmp_path / name).write_bytes(b"")
    assert sorted(weights_in(tmp_path)) == ["mine", "smollm2:135m"]
    assert weights_in(tmp_path / "missing") == {}
