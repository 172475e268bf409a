"""``/sessions/{session_id}/attachments``."""

from __future__ import annotations

import base64
import json

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test.client import BOUNDARY, MULTIPART_CONTENT, encode_multipart

from mochi_project.runtime import get_runtime
from mochi_server.backends import default_providers
from mochi_server.errors import SpaceUsedUp
from tests.support.images import PDF, png

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)


async def test_an_attachment_is_downloaded_as_what_it_is_and_ends_with_its_session(api):
    session_id = await api.new_session()
    store = get_runtime().attachments
    picture = await store.put(session_id, PNG, "text/html")
    page = await store.put(session_id, b"<script>alert(1)</script>", "text/html")
    url = f"/sessions/{session_id}/attachments"
    response = await api.get(f"{url}/{picture.attachment_id}")
    assert (response.status_code, response["Content-Type"]) == (200, "image/png")
    assert b"".join([part async for part in response]) == PNG
    response = await api.get(f"{url}/{page.attachment_id}")
    assert response["Content-Type"] == "text/plain; charset=utf-8"
    assert response["Content-Security-Policy"] == "sandbox; default-src 'none'"
    response.close()
    for name in ("0" * 64, "..", "x"):
        answer = await api.get(f"{url}/{name}")
        assert answer.status_code == 404
    assert (await api.get(f"{url}/{'0' * 64}")).json()["error"]["code"] == "ATTACHMENT_NOT_FOUND"
    other = await api.new_session()
    answer = await api.get(f"/sessions/{other}/attachments/{picture.attachment_id}")
    assert answer.json()["error"]["code"] == "ATTACHMENT_NOT_FOUND"
    assert (await api.delete(f"/sessions/{session_id}")).status_code == 204
    answer = await api.get(f"{url}/{picture.attachment_id}")
    assert answer.json()["error"]["code"] == "SESSION_NOT_FOUND"
    assert list(get_runtime().settings.attachments_path.iterdir()) == []


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


async def post_form(api, session_id, content_type=MULTIPART_CONTENT, **fields):
    body = encode_multipart(BOUNDARY, fields)
    url = f"/api/v1/sessions/{session_id}/attachments"
    return await api.client.generic("POST", url, body, content_type=content_type)


async def test_files_are_uploaded_kept_once_and_listed(api):
    session_id = await api.new_session()
    url = f"/sessions/{session_id}/attachments"
    assert (await api.get(url)).json() == {"attachments": []}
    large = png() + bytes(3_000_000)  # Django keeps it in a file of its own
    form = SimpleUploadedFile("C:\\cats\\cat.png", large, content_type="text/html")
    image = await post_form(api, session_id, file=form)
    assert (image.status_code, image.json()) == (
        201,
        {
            "attachment_id": image.json()["attachment_id"],
            "media_type": "image/png",
            "size": len(large),
            "name": "cat.png",
        },
    )
    data = {"data": encoded(PDF), "name": "paper.pdf", "media_type": "text/plain"}
    paper = (await api.post(url, data)).json()
    assert (paper["media_type"], paper["name"]) == ("application/pdf", "paper.pdf")
    assert (await api.post(url, data)).json() == paper
    listed = (await api.get(url)).json()["attachments"]
    assert sorted((each["media_type"], each["size"], each["name"]) for each in listed) == [
        ("application/pdf", len(PDF), "paper.pdf"),
        ("image/png", len(large), "cat.png"),
    ]
    response = await api.get(f"{url}/{paper['attachment_id']}")
    assert b"".join([part async for part in response]) == PDF
    assert response["Content-Disposition"].startswith("attachment;")


def line(text: str) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": text}]}


LONG = "word " * 4_000
CALL = json.dumps({"a": LONG})
NEW: dict[str, tuple[str, object, int]] = {
    "an upload": ("/api/v1/sessions/{full}/attachments", {"data": encoded(LONG.encode())}, 201),
    "a session": ("/api/v1/sessions", {"model": "qwen3:14b", "system_prompt": LONG[:9_999]}, 201),
    "a message": ("/api/v1/chat/{full}", {"message": LONG}, 200),
    "a file of a message": (
        "/api/v1/chat/{full}",
        {"message": "Hi", "attachments": [{"data": encoded(LONG.encode())}]},
        200,
    ),
    "an import": ("/api/v1/sessions/import", line(LONG), 200),
    "a session file": (
        "/api/v1/sessions/import",
        {
            "metadata": {"session_id": "one", "model": "m"},
            "messages": [{"role": "user", "content": LONG}],
        },
        200,
    ),
    "a fork": ("/api/v1/sessions/{full}/fork", {}, 201),
    "a conversation": (
        "/v1/conversations", {"items": [{"role": "user", "content": LONG}]}, 200
    ),
    "items": (
        "/v1/conversations/conv_{full}/items",
        {"items": [{"role": "user", "content": LONG}]},
        200,
    ),
    "items of calls": (
        "/v1/conversations/conv_{full}/items",
        {"items": [
            {"type": "function_call", "call_id": "a", "name": "f", "arguments": CALL},
            {"type": "function_call_output", "call_id": "a", "output": "done"},
        ]},
        200,
    ),
}  # fmt: skip


async def post_json(api, path, body):
    return await api.client.post(path, json.dumps(body), content_type="application/json")


@pytest.mark.parametrize("new", NEW.values(), ids=NEW)
@pytest.mark.usefixtures("mochi")
async def test_one_owner_fills_the_disk_no_more_than_the_limit_says(api, settings, ollama, new):
    path, body, status = new
    settings.MOCHI = settings.MOCHI.model_copy(update={"max_owner_mb": 0.064})
    settings.MOCHI_PROVIDERS = default_providers(settings.MOCHI)
    full, other = [await api.new_session() for _ in range(2)]
    for session_id, text in ((full, LONG), (other, "x" * 20_000)):
        file = {"data": encoded(text.encode())}
        upload = await api.post(f"/sessions/{session_id}/attachments", file)
        assert upload.status_code == 201
        if session_id == full:  # a fork has a copy of it
            message = {"message": "Read", "attachments": [upload.json()]}
            ollama.reply(["Read."])
            assert (await api.post(f"/chat/{full}", message)).status_code == 200
    sessions = (await api.get("/sessions")).json()
    messages = (await api.get(f"/sessions/{full}")).json()["messages"]
    refused = await post_json(api, path.format(full=full), body)
    error = refused.json()["error"]
    assert (refused.status_code, error["code"]) == (413, "SPACE_USED_UP"), error
    assert "MOCHI_MAX_OWNER_MB" in error["message"]
    assert (await api.get("/sessions")).json() == sessions
    assert (await api.get(f"/sessions/{full}")).json()["messages"] == messages
    assert (await api.delete(f"/sessions/{other}")).status_code == 204
    ollama.reply(["Hello."])
    answer = await post_json(api, path.format(full=full), body)
    assert answer.status_code == status, answer.content


async def test_small_files_take_what_they_take_on_a_disk(api, mochi, settings):
    settings.MOCHI = mochi.model_copy(update={"max_owner_mb": 0.05})
    settings.MOCHI_PROVIDERS = default_providers(settings.MOCHI)
    session_id = await api.new_session(model="test/lorem")
    store = get_runtime().attachments
    for number in range(5):
        await store.put(session_id, b"%d" % number, "text/plain", "a.txt")
    with pytest.raises(SpaceUsedUp):
        await store.put(session_id, bytes(8_000), "text/plain", "b.txt")


async def test_short_sessions_take_what_they_take_on_a_disk(api, mochi, settings):
    settings.MOCHI = mochi.model_copy(update={"max_owner_mb": 0.03})
    settings.MOCHI_PROVIDERS = default_providers(settings.MOCHI)
    body = {"model": "test/lorem"}
    found = [(await api.post("/sessions", body)).status_code for _ in range(8)]
    assert found == [201] * 7 + [413]


async def test_metadata_of_images_are_removed_once_if_the_settings_say_so(api, mochi, settings):
    settings.MOCHI = mochi.model_copy(update={"strip_images": True})
    settings.MOCHI_PROVIDERS = default_providers(settings.MOCHI)
    session_id = await api.new_session(model="test/lorem")
    image = {"data": encoded(png() + b"Secret Lane"), "name": "cat.png"}
    upload = (await api.post(f"/sessions/{session_id}/attachments", image)).json()
    body = {"message": "Look", "attachments": [upload, image]}
    assert (await api.post(f"/chat/{session_id}", body)).status_code == 200
    [listed] = (await api.get(f"/sessions/{session_id}/attachments")).json()["attachments"]
    assert listed == upload
    response = await api.get(f"/sessions/{session_id}/attachments/{upload['attachment_id']}")
    assert b"Secret" not in b"".join([part async for part in response])


async def test_an_upload_that_cannot_be_used_is_refused_and_not_kept(api, mochi, settings):
    settings.MOCHI = mochi.model_copy(update={"max_body_mb": 0.001})
    session_id = await api.new_session()
    url = f"/sessions/{session_id}/attachments"
    for body, status, code in (
        ({"data": encoded(bytes(900))}, 415, "ATTACHMENT_UNSUPPORTED"),
        ({"data": encoded(b"x" * 1_001)}, 413, "ATTACHMENT_TOO_LARGE"),
        ({"data": "?"}, 415, "ATTACHMENT_UNSUPPORTED"),
        ({"data": 1}, 422, "VALIDATION_ERROR"),
        ({"data": "", "nam": "x"}, 422, "VALIDATION_ERROR"),
        ([], 422, "VALIDATION_ERROR"),
        (None, 422, "VALIDATION_ERROR"),
    ):
        answer = await api.post(url, body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), body
    named = (await api.post(url, {"data": "", "nam": "x"})).json()["error"]
    assert named["details"]["errors"][0]["field"] == "nam"
    file = SimpleUploadedFile("a.txt", b"x")
    for answer, code in (
        (await post_form(api, session_id), "VALIDATION_ERROR"),
        (await post_form(api, session_id, file="text"), "VALIDATION_ERROR"),
        (await post_form(api, session_id, other=file), "VALIDATION_ERROR"),
        (await post_form(api, session_id, file=[file, file]), "VALIDATION_ERROR"),
        (await post_form(api, session_id, "multipart/form-data", file=file), "VALIDATION_ERROR"),
    ):
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, code)
    assert (await post_form(api, "nobody", file=file)).json()["error"]["code"] == (
        "SESSION_NOT_FOUND"
    )
    assert (await api.get("/sessions/nobody/attachments")).status_code == 404
    assert not mochi.attachments_path.exists()
