"""Files that clients send, and what is taken out of images."""

from __future__ import annotations

import base64
from io import BytesIO
from typing import Any

import pytest
from PIL import ExifTags, Image, ImageCms, PngImagePlugin

from mochi_server.core.media import image_size, image_type, text_type
from mochi_server.errors import AttachmentTooLarge, AttachmentUnsupported, InvalidRequest
from mochi_server.protocol.messages import UserMessage
from mochi_server.sessions.attachments import AttachmentReader, AttachmentStore, attach
from tests.support.images import GIF, JPEG, PDF, WEBP_EXTENDED, WEBP_LOSSLESS, WEBP_LOSSY, png

READER = AttachmentReader(max_bytes=2_000_000)


def base64_of(content: bytes) -> str:
    return base64.b64encode(content).decode()


@pytest.mark.parametrize(
    ("content", "named", "kind"),
    [
        (png(), "text/html", "image/png"),
        (base64_of(JPEG), "image/png", "image/jpeg"),
        (f"data:image/png;base64,{base64_of(GIF)}", None, "image/gif"),
        (f"\n{base64_of(PDF)[:20]}\n{base64_of(PDF)[20:]}\n", None, "application/pdf"),
        ("data:text/csv;charset=utf-8;base64,YSxi", None, "text/csv"),
        (b"<script>alert(1)</script>", "image/png", "text/plain"),
        (b"", None, "text/plain"),
    ],
)
async def test_the_type_is_found_by_the_content(content, named, kind):
    assert (await READER.read(content, media_type=named)).media_type == kind


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("cat.png", "cat.png"),
        ("/home/me/cat.png", "cat.png"),
        ("C:\\cats\\cat.png", "cat.png"),
        ("a\nb\u202ec.png", "a b c.png"),
        ("folder/", None),
        ("", None),
        (None, None),
    ],
)
async def test_only_the_last_part_of_a_name_is_kept(name, kept):
    assert (await READER.read(png(), name=name)).name == kept


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (bytes(2_000_001), AttachmentTooLarge),
        (base64_of(png() + bytes(2_000_000)), AttachmentTooLarge),
        ("A" * 4_000_000, AttachmentTooLarge),
        (b"x" * 1_000_001, AttachmentTooLarge),
        (b"\0\1", AttachmentUnsupported),
        ("Grüße".encode("latin-1"), AttachmentUnsupported),
        (b"\x89PNG\r\n\x1a\n", AttachmentUnsupported),
        (png(declared=(50_000, 50_000)), AttachmentUnsupported),
        ("not base64!", AttachmentUnsupported),
        ("data:image/png,abc", AttachmentUnsupported),
        ("ünsinn", AttachmentUnsupported),
        ("A", AttachmentUnsupported),
    ],
)
async def test_what_no_model_can_read_is_refused(content, error):
    with pytest.raises(error):
        await READER.read(content, name="cat.png")


async def test_a_message_says_what_is_attached_and_the_store_has_it(tmp_path):
    store = AttachmentStore(tmp_path)
    attachments = [await READER.read(png(), name="cat.png"), await READER.read(b"Rice")]
    message = UserMessage(content="What is this?")
    attach(message, attachments)
    await store.keep("a1", attachments)
    image, text = message.as_stored()["attachments"]
    assert image == {
        "attachment_id": image["attachment_id"],
        "media_type": "image/png",
        "size": len(png()),
        "name": "cat.png",
    }
    assert await store.read("a1", image["attachment_id"]) == png()
    assert await store.read("a1", text["attachment_id"]) == b"Rice"
    with pytest.raises(InvalidRequest, match="at most 20"):
        attach(message, attachments * 11)


# Images without metadata


SECRET = b"52 Secret Lane"
STRIPPING = AttachmentReader(max_bytes=10_000_000, strip_images=True)


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
async def test_an_image_loses_its_metadata_and_stays_the_same_image(kind):
    content = IMAGES[kind]
    attachment = await STRIPPING.read(content)
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
    assert (await STRIPPING.read(content, is_kept=True)).content == content


async def test_an_image_is_turned_as_its_metadata_say():
    attachment = await STRIPPING.read(image("JPEG", exif=exif(orientation=6)))
    assert image_size(attachment.content) == (10, 20)


async def test_transparency_stays():
    attachment = await STRIPPING.read(image("PNG", mode="P", transparency=0))
    with Image.open(BytesIO(attachment.content)) as stripped:
        assert stripped.convert("RGBA").getpixel((19, 9))[3] == 0


async def test_of_an_animation_the_first_image_stays():
    later = [Image.new("RGB", (20, 10), "blue")]
    attachment = await STRIPPING.read(image("GIF", save_all=True, append_images=later))
    with Image.open(BytesIO(attachment.content)) as stripped:
        assert getattr(stripped, "n_frames", 1) == 1


async def test_other_files_stay_as_they_are():
    for content in (PDF, b"Rice"):
        assert (await STRIPPING.read(content)).content == content


@pytest.mark.parametrize("kind", IMAGES)
async def test_a_damaged_image_is_refused_whatever_is_wrong_with_it(kind):
    content = IMAGES[kind]
    for place in range(12, len(content), max(1, len(content) // 60)):
        wrong = bytearray(content)
        wrong[place] ^= 0xFF
        for damaged in (bytes(wrong), content[:place]):
            try:
                attachment = await STRIPPING.read(damaged)
            except AttachmentUnsupported:
                continue
            assert SECRET not in attachment.content


async def test_a_second_header_cannot_declare_a_bomb():
    small, large = png(3, 4), png(3, 4, declared=(9_000, 9_000))
    content = small[:33] + large[8:]  # both have their sizes in the first 33 bytes
    with pytest.raises(AttachmentUnsupported):
        await STRIPPING.read(content)


async def test_without_the_package_images_are_refused_and_other_files_are_not(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "PIL.Image", None)
    with pytest.raises(AttachmentUnsupported, match="the package pillow is missing"):
        await STRIPPING.read(png(), name="cat.png")
    assert (await STRIPPING.read(b"Rice")).content == b"Rice"


# The kinds of files


KINDS = {
    "png": png(),
    "gif": GIF,
    "jpeg": JPEG,
    "webp": WEBP_LOSSY,
    "webp ": WEBP_LOSSLESS,
    "webp  ": WEBP_EXTENDED,
}


@pytest.mark.parametrize("kind", KINDS)
def test_an_image_tells_its_kind_and_its_size(kind):
    content = KINDS[kind]
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
