"""Small promises of the OpenAPI document which random requests found broken."""

from __future__ import annotations

from typing import Any

import pytest


async def schema_of(api: Any, name: str) -> dict[str, Any]:
    document = (await api.get("/openapi.json")).json()
    found: dict[str, Any] = document["components"]["schemas"][name]
    return found


async def test_a_whole_list_has_the_keys_that_the_document_requires(api: Any) -> None:
    whole = (await api.get("/sessions")).json()
    page = (await api.get("/sessions?limit=1")).json()
    schema = await schema_of(api, "SessionList")
    assert set(schema["required"]) == set(whole)
    assert set(schema["properties"]) == set(page)


@pytest.mark.parametrize("value", [0, 1, "true", "yes", "on", 0.0])
async def test_what_only_looks_like_a_boolean_is_refused(api: Any, value: object) -> None:
    one = await api.new_session()
    asked = await api.post(f"/chat/{one}", {"message": "Hello", "think": value})
    window = {"manual_override": value, "current_window": 8192}
    changed = await api("PATCH", f"/sessions/{one}", {"context_window": window})
    assert (asked.status_code, changed.status_code) == (422, 422)


@pytest.mark.parametrize("value", ["8192", True, 8192.5])
async def test_what_only_looks_like_a_number_is_refused(api: Any, value: object) -> None:
    one = await api.new_session()
    window = {"manual_override": True, "current_window": value}
    changed = await api("PATCH", f"/sessions/{one}", {"context_window": window})
    assert changed.status_code == 422
