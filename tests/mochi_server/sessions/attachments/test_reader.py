"""Files that clients send."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from mochi_server.errors import AttachmentTooLarge, AttachmentUnsupported, InvalidRequest
from mochi_server.protocol.messages import UserMessage
from mochi_server.sessions.attachments import AttachmentReader, AttachmentStore, attach
from tests.support.images import GIF, JPEG, PDF, png

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
async def test_the_type_is_found_by_the_content(
    content: bytes | str, named: str | None, kind: str
) -> None:
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
async def test_only_the_last_part_of_a_name_is_kept(name: str | None, kept: str | None) -> None:
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
async def test_what_no_model_can_read_is_refused(
    content: bytes | str, error: type[Exception]
) -> None:
    with pytest.raises(error):
        await READER.read(content, name="cat.png")


async def test_a_message_says_what_is_attached_and_the_store_has_it(tmp_path: Path) -> None:
    store = AttachmentStore(tmp_path)
    attachments = [await READER.read(png(), name="cat.png"), await READER.read(b"Rice")]
    message = UserMessage(content="What is this?")
    attach(message, attachments)
    await store.keep("a1", attachments)
    image, text = message.as_stored()["attachments"]  # type: ignore[misc, union-attr]
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
