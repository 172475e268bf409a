"""Images without metadata: no place, no camera, no comment, no colour profile.

They are decoded and encoded again by Pillow, an extra.
"""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from typing import Any

from ...core.media import GIF, JPEG, PNG, WEBP
from ...protocol.attachments import MAX_PIXELS

FORMATS: dict[str, tuple[str, dict[str, Any]]] = {
    JPEG: ("JPEG", {"quality": 92}),
    PNG: ("PNG", {}),
    GIF: ("GIF", {}),
    WEBP: ("WEBP", {"quality": 92}),
}
"""Pillow's names of the formats, and how they are written."""


class CannotStrip(Exception):
    """Why an image cannot be encoded again."""


def without_metadata(content: bytes, media_type: str) -> bytes:
    """Return the same image without metadata, turned as its metadata say; of several the first.

    Raises:
        CannotStrip: it cannot be decoded, or Pillow is not installed.
    """
    try:
        import PIL.Image  # noqa: F401, PLC0415 - an extra
    except ImportError as error:
        raise CannotStrip(
            "MOCHI_STRIP_IMAGES is set, and the package pillow is missing on the server"
        ) from error
    try:
        return _encoded_again(content, *FORMATS[media_type])
    except CannotStrip:
        raise
    except Exception as error:  # the decoders raise whatever comes of rubbish
        raise CannotStrip("the image is damaged") from error


def _encoded_again(content: bytes, name: str, options: Mapping[str, Any]) -> bytes:
    from PIL import Image, ImageOps  # noqa: PLC0415

    stripped = BytesIO()
    # No other decoder may run, whatever the content looks like.
    with Image.open(BytesIO(content), formats=[name]) as image:
        if image.width * image.height > MAX_PIXELS:  # its first header may say something else
            raise CannotStrip("the image has too many pixels")
        upright = ImageOps.exif_transpose(image)
        kept = upright.info.get("transparency")
        upright.info = {} if kept is None else {"transparency": kept}
        upright.save(stripped, name, **options)
    return stripped.getvalue()
