"""The kinds of files, told by their content."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable

PDF = "application/pdf"
PLAIN_TEXT = "text/plain"
JPEG, PNG, GIF, WEBP = "image/jpeg", "image/png", "image/gif", "image/webp"
IMAGES = frozenset({JPEG, PNG, GIF, WEBP})
"""The images that models can see."""

_SIGNATURES = {b"\x89PNG\r\n\x1a\n": PNG, b"\xff\xd8\xff": JPEG, b"GIF87a": GIF, b"GIF89a": GIF}
_MEDIA_TYPE = re.compile(r"[\w.+-]{1,64}/[\w.+-]{1,64}(; ?[\w.+-]{1,64}=[\w.+-]{1,64})?", re.ASCII)
"""Type, subtype, and a parameter such as ``charset``."""
_BINARY = re.compile(r"(image/(?!svg)|audio/|video/|application/(pdf|octet-stream))", re.IGNORECASE)


def image_type(content: bytes) -> str | None:
    """Return the media type of an image; None if it is no image that models can see."""
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return WEBP
    return next((kind for start, kind in _SIGNATURES.items() if content.startswith(start)), None)


def as_text(content: bytes) -> str | None:
    """Return the text of a file; None if it is no text."""
    if b"\0" in content:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


def media_type_of(content: bytes) -> str | None:
    """Return the media type of a file that models can read; None if they cannot."""
    if (image := image_type(content)) is not None:
        return image
    if content.startswith(b"%PDF-"):
        return PDF
    return None if as_text(content) is None else PLAIN_TEXT


def text_type(named: str | None) -> str:
    """Return the media type that somebody names for a text; plain text if it cannot be that."""
    is_possible = named and _MEDIA_TYPE.fullmatch(named) and not _BINARY.match(named)
    return named if named and is_possible else PLAIN_TEXT


def image_size(content: bytes) -> tuple[int, int] | None:
    """Return width and height of an image in pixels, as its header says; None if it says none."""
    kind = image_type(content)
    try:
        size = None if kind is None else _SIZES[kind](content)
    except struct.error:  # it ends within its header
        return None
    return size if size is not None and all(size) else None


def _size_of_png(content: bytes) -> tuple[int, int] | None:
    name, width, height = struct.unpack_from(">4sII", content, 12)
    return (width, height) if name == b"IHDR" else None


def _size_of_gif(content: bytes) -> tuple[int, int]:
    width, height = struct.unpack_from("<HH", content, 6)
    return width, height


def _size_of_webp(content: bytes) -> tuple[int, int] | None:
    match content[12:16]:
        case b"VP8X":
            parts = struct.unpack_from("<HBHB", content, 24)
            return parts[0] + (parts[1] << 16) + 1, parts[2] + (parts[3] << 16) + 1
        case b"VP8L":
            (bits,) = struct.unpack_from("<I", content, 21)
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8 ":
            width, height = struct.unpack_from("<HH", content, 26)
            return width & 0x3FFF, height & 0x3FFF
    return None


def _size_of_jpeg(content: bytes) -> tuple[int, int] | None:
    """Find the segment that begins a frame; the segments before it say their lengths."""
    place = 2
    while True:
        mark, kind = struct.unpack_from(">BB", content, place)
        if mark != 0xFF:  # noqa: PLR2004 - as the format has it
            return None
        if kind == 0xFF:  # noqa: PLR2004 - a byte that fills
            place += 1
            continue
        (length,) = struct.unpack_from(">H", content, place + 2)
        if 0xC0 <= kind <= 0xCF and kind not in {0xC4, 0xC8, 0xCC}:  # noqa: PLR2004
            height, width = struct.unpack_from(">HH", content, place + 5)
            return width, height
        place += 2 + max(length, 2)


_SIZES: dict[str, Callable[[bytes], tuple[int, int] | None]] = {
    PNG: _size_of_png,
    GIF: _size_of_gif,
    WEBP: _size_of_webp,
    JPEG: _size_of_jpeg,
}
