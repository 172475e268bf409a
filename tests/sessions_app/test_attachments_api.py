"""``/sessions/{session_id}/attachments``."""

from __future__ import annotations

from mochi_project.runtime import get_runtime

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
