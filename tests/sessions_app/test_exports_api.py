"""``GET /sessions/{session_id}/export``."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    ("to", "kind", "start"),
    [
        ("json", "application/json", '{\n  "metadata": {'),
        ("markdown", "text/markdown; charset=utf-8", "# Sums\n"),
        ("jsonl", "application/jsonl", '{"messages":[{"role":"system","content":"Be brief."}]}\n'),
        ("html", "text/html; charset=utf-8", "<!doctype html>"),
        ("zip", "application/zip", "PK"),
    ],
)
async def test_a_session_is_downloaded_as_a_file_that_no_browser_runs(api, to, kind, start):
    session_id = await api.new_session(title="Sums", system_prompt="Be brief.")
    response = await api.get(f"/sessions/{session_id}/export?format={to}")
    assert response.status_code == 200
    assert response["Content-Type"] == kind
    suffix = "md" if to == "markdown" else to
    assert response["Content-Disposition"] == f'attachment; filename="{session_id}.{suffix}"'
    assert response["Content-Security-Policy"] == "sandbox; default-src 'none'"
    assert response.content.startswith(start.encode())


async def test_the_session_file_is_the_default_and_other_formats_are_refused(api):
    session_id = await api.new_session()
    response = await api.get(f"/sessions/{session_id}/export")
    assert response.json()["metadata"]["session_id"] == session_id
    response = await api.get(f"/sessions/{session_id}/export?format=pdf")
    assert (response.status_code, response.json()["error"]["code"]) == (422, "VALIDATION_ERROR")
    assert (await api.get("/sessions/nobody/export")).status_code == 404
