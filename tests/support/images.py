"""Small image files."""

from __future__ import annotations

import struct
import zlib

GIF = b"GIF89a" + struct.pack("<HH", 3, 4) + b"\x00\x00\x00;"
JPEG = (
    b"\xff\xd8\xff\xe0\x00\x04\x00\x00\xff"  # a segment, and a byte that fills
    b"\xff\xc2\x00\x0b\x08" + struct.pack(">HH", 4, 3) + b"\x01\x01\x11\x00\xff\xd9"
)
WEBP_LOSSY = b"RIFF\x00\x00\x00\x00WEBPVP8 \x00\x00\x00\x00\x00\x00\x00\x9d\x01\x2a\x03\x40\x04\x00"
WEBP_LOSSLESS = b"RIFF\x00\x00\x00\x00WEBPVP8L\x00\x00\x00\x00\x2f\x02\xc0\x00\x00"
WEBP_EXTENDED = (
    b"RIFF\x00\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x03\x00\x00"
)
PDF = b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\ntrailer\n<</Root 1 0 R>>\n%%EOF\n"


def png(width: int = 3, height: int = 4, *, declared: tuple[int, int] | None = None) -> bytes:
    """Return a grey image; its header may declare another size."""
    header = struct.pack(">IIBBBBB", *(declared or (width, height)), 8, 0, 0, 0, 0)
    rows = zlib.compress((b"\0" + b"\x80" * width) * height)
    chunks = ((b"IHDR", header), (b"IDAT", rows), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*each) for each in chunks)


def _chunk(name: bytes, data: bytes) -> bytes:
    checksum = struct.pack(">I", zlib.crc32(name + data))
    return struct.pack(">I", len(data)) + name + data + checksum
