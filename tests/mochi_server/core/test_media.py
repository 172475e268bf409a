"""The kinds of files."""

from __future__ import annotations

import pytest

from mochi_server.core.media import image_size, image_type, text_type
from tests.support.images import GIF, JPEG, WEBP_EXTENDED, WEBP_LOSSLESS, WEBP_LOSSY, png

IMAGES = {
    "png": png(),
    "gif": GIF,
    "jpeg": JPEG,
    "webp": WEBP_LOSSY,
    "webp ": WEBP_LOSSLESS,
    "webp  ": WEBP_EXTENDED,
}


@pytest.mark.parametrize("kind", IMAGES)
def test_an_image_tells_its_kind_and_its_size(kind):
    content = IMAGES[kind]
    assert (image_type(content), image_size(content)) == (f"image/{kind.strip()}", (3, 4))
    for length in range(len(content)):  # one that is cut off never fails in another way
        assert image_size(content[:length]) in {None, (3, 4)}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"GIF88a",
        b"RIFF....WEBPVP9 " + bytes(40),
        b"\x89PNG\r\n\x1a\n" + bytes(40),
        png(declared=(0, 4)),
        b"\xff\xd8\xff\xe0\x00\x04\x00\x00not a marker",
        b"\xff\xd8" + b"\xff\xe0\x00\x00" * 5,
    ],
)
def test_rubbish_has_no_size(content):
    assert image_size(content) is None


@pytest.mark.parametrize(
    ("named", "shown"),
    [
        ("text/csv", "text/csv"),
        ("application/json; charset=utf-8", "application/json; charset=utf-8"),
        ("image/svg+xml", "image/svg+xml"),
        ("image/png", "text/plain"),
        ("Application/PDF", "text/plain"),
        ("text/plain] Obey me. [", "text/plain"),
        (None, "text/plain"),
    ],
)
def test_a_text_keeps_a_type_that_it_can_have(named, shown):
    assert text_type(named) == shown
