"""Images without metadata."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import pytest
from PIL import ExifTags, Image, ImageCms, PngImagePlugin

from mochi_server.core.media import image_size, image_type
from mochi_server.errors import AttachmentUnsupported
from mochi_server.sessions.attachments import AttachmentReader
from tests.support.images import PDF, png

SECRET = b"52 Secret Lane"
READER = AttachmentReader(max_bytes=10_000_000, strip_images=True)


def image(kind: str, *, mode: str = "RGB", **fields: Any) -> bytes:
    """Return an image of 20 by 10 pixels, red at the top left, with metadata."""
    picture = Image.new("RGB", (20, 10))
    picture.paste((255, 0, 0), (0, 0, 5, 5))
    picture = picture.convert(mode)
    written = BytesIO()
    picture.save(written, kind, **fields)
    return written.getvalue()


def exif(orientation: int = 1) -> Image.Exif:
    found = Image.Exif()
    found[ExifTags.Base.Orientation] = orientation
    found[ExifTags.Base.Artist] = SECRET.decode()
    found.get_ifd(ExifTags.IFD.GPSInfo)[ExifTags.GPS.GPSLatitudeRef] = "N"
    return found


def png_with_text() -> bytes:
    text = PngImagePlugin.PngInfo()
    text.add_text("Comment", SECRET.decode())
    return image("PNG", pnginfo=text, exif=exif(), mode="RGBA")


PROFILE = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes() + SECRET
IMAGES = {
    "jpeg": image("JPEG", exif=exif(), comment=SECRET, icc_profile=PROFILE),
    "png": png_with_text(),
    "png profile": image("PNG", icc_profile=PROFILE, mode="P"),
    "gif": image("GIF", comment=SECRET, mode="P"),
    "webp": image("WEBP", exif=exif(), xmp=SECRET, icc_profile=PROFILE),
}


@pytest.mark.parametrize("kind", IMAGES)
async def test_an_image_loses_its_metadata_and_stays_the_same_image(kind: str) -> None:
    content = IMAGES[kind]
    attachment = await READER.read(content)
    assert (
        attachment.media_type
        == image_type(attachment.content)
        == f"image/{kind.split(maxsplit=1)[0]}"
    )
    assert image_size(attachment.content) == (20, 10)
    with Image.open(BytesIO(attachment.content)) as stripped:
        assert not stripped.getexif()
        assert set(stripped.info) <= {"jfif", "jfif_version", "jfif_unit", "jfif_density"} | {
            *("version", "background", "loop", "duration", "timestamp")
        }
        red, green, blue = stripped.convert("RGB").getpixel((1, 1))
        assert red > 200
        assert max(green, blue) < 50
    assert SECRET not in attachment.content
    assert (await READER.read(content, is_kept=True)).content == content


async def test_an_image_is_turned_as_its_metadata_say() -> None:
    attachment = await READER.read(image("JPEG", exif=exif(orientation=6)))
    assert image_size(attachment.content) == (10, 20)


async def test_transparency_stays() -> None:
    attachment = await READER.read(image("PNG", mode="P", transparency=0))
    with Image.open(BytesIO(attachment.content)) as stripped:
        assert stripped.convert("RGBA").getpixel((19, 9))[3] == 0


async def test_of_an_animation_the_first_image_stays() -> None:
    later = [Image.new("RGB", (20, 10), "blue")]
    attachment = await READER.read(image("GIF", save_all=True, append_images=later))
    with Image.open(BytesIO(attachment.content)) as stripped:
        assert getattr(stripped, "n_frames", 1) == 1


async def test_other_files_stay_as_they_are() -> None:
    for content in (PDF, b"Rice"):
        assert (await READER.read(content)).content == content


@pytest.mark.parametrize("kind", IMAGES)
async def test_a_damaged_image_is_refused_whatever_is_wrong_with_it(kind: str) -> None:
    content = IMAGES[kind]
    for place in range(12, len(content), max(1, len(content) // 60)):
        wrong = bytearray(content)
        wrong[place] ^= 0xFF
        for damaged in (bytes(wrong), content[:place]):
            try:
                attachment = await READER.read(damaged)
            except AttachmentUnsupported:
                continue
            assert SECRET not in attachment.content


async def test_a_second_header_cannot_declare_a_bomb() -> None:
    small, large = png(3, 4), png(3, 4, declared=(9_000, 9_000))
    content = small[:33] + large[8:]  # both have their sizes in the first 33 bytes
    with pytest.raises(AttachmentUnsupported):
        await READER.read(content)


async def test_without_the_package_images_are_refused_and_other_files_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "PIL.Image", None)
    with pytest.raises(AttachmentUnsupported, match="the package pillow is missing"):
        await READER.read(png(), name="cat.png")
    assert (await READER.read(b"Rice")).content == b"Rice"
