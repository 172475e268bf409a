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
