"""What the header of a GGUF file says about its model, without loading it."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

MAGIC: Final = b"GGUF"

_SCALARS: Final = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}
_STRING: Final = 8
_ARRAY: Final = 9
_LONGEST: Final = 1 << 24
"""More bytes or items than one value of a valid header has."""

# The numbers of llama.cpp's enum llama_ftype.
_FILE_TYPES: Final = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K",
    11: "Q3_K_S", 12: "Q3_K_M", 13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S",
    17: "Q5_K_M", 18: "Q6_K", 32: "BF16",
}  # fmt: skip

_NOT_FOR_CHAT: Final = ("bert", "clip", "t5encoder")


class NotGGUF(ValueError):
    """The file is no GGUF file, or its header is cut or damaged."""


@dataclass(frozen=True, kw_only=True)
class GGUFHeader:
    """A model as its file describes it; None where it does not."""

    architecture: str
    context_length: int | None
    parameters: int
    quantization: str | None
    chat_template: str

    @property
    def can_chat(self) -> bool:
        return not any(word in self.architecture for word in _NOT_FOR_CHAT)

    @property
    def parameter_size(self) -> str:
        """The number of weights as Ollama writes it: ``134.52M``, ``1.54B``."""
        billions = self.parameters / 1e9
        return f"{billions:.2f}B" if billions >= 1 else f"{self.parameters / 1e6:.2f}M"


class _Reader:
    """Reads the little-endian values of a header."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def take(self, size: int) -> bytes:
        data = self._file.read(size)
        if len(data) != size:
            raise NotGGUF("the header is cut")
        return data

    def scalar(self, code: str) -> float | bool:
        (value,) = struct.unpack(f"<{code}", self.take(struct.calcsize(code)))
        return value  # type: ignore[no-any-return]  # struct cannot say

    def number(self, code: str) -> int:
        return int(self.scalar(code))

    def length(self) -> int:
        value = self.number("Q")
        if value > _LONGEST:
            raise NotGGUF("the header is damaged")
        return value

    def string(self) -> str:
        return self.take(self.length()).decode("utf-8", "replace")

    def value(self, kind: int) -> str | float | bool | None:
        """Read a value; None for an array, which is only skipped."""
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            self._skip_array()
            return None
        if kind not in _SCALARS:
            raise NotGGUF(f"unknown type {kind} in the header")
        return self.scalar(_SCALARS[kind])

    def _skip_array(self) -> None:
        kind, count = self.number("I"), self.length()
        if kind in _SCALARS:
            self.take(count * struct.calcsize(_SCALARS[kind]))
        elif kind == _STRING:
            self._skip_strings(count)
        else:
            for _ in range(count):
                self.value(kind)

    def _skip_strings(self, count: int) -> None:
        # A vocabulary has some hundred thousand of them.
        read = self._file.read
        for _ in range(count):
            size = int.from_bytes(read(8), "little")
            if size > _LONGEST or len(read(size)) != size:
                raise NotGGUF("the header is cut or damaged")

    def tensor_elements(self) -> int:
        """Read the next tensor; return its number of weights."""
        self.string()
        elements = 1
        for _ in range(self.number("I")):
            elements *= self.number("Q")
        self.take(12)
        return elements


def read_header(path: Path) -> GGUFHeader:
    """Read a model's header, or raise ``NotGGUF``."""
    with path.open("rb") as file:
        reader = _Reader(file)
        if reader.take(4) != MAGIC or not 2 <= reader.number("I") <= 3:  # noqa: PLR2004 - versions
            raise NotGGUF("not a GGUF file")
        tensors, count = reader.length(), reader.length()
        values: dict[str, str | float | bool | None] = {}
        for _ in range(count):
            key = reader.string()
            values[key] = reader.value(reader.number("I"))
        return _describe(values, sum(reader.tensor_elements() for _ in range(tensors)))


def _describe(values: dict[str, str | float | bool | None], parameters: int) -> GGUFHeader:
    architecture = str(values.get("general.architecture") or "unknown")
    context = values.get(f"{architecture}.context_length")
    file_type = values.get("general.file_type")
    return GGUFHeader(
        architecture=architecture,
        context_length=int(context) if isinstance(context, int | float) else None,
        parameters=parameters,
        quantization=_FILE_TYPES.get(file_type) if isinstance(file_type, int) else None,
        chat_template=str(values.get("tokenizer.chat_template") or ""),
    )
