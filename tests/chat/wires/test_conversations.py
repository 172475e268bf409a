"""``POST /v1/conversations``."""

from __future__ import annotations

from typing import Any

from mochi_server.backends import default_providers
from tests.support.server import NOBODY


async def test_a_conversation_needs_no_model(api: Any, mochi: Any, settings: Any) -> None:
    """A response names one: that no provider answers is no reason to refuse it."""
    settings.MOCHI_PROVIDERS = default_providers(mochi.model_copy(update={"ollama_host": NOBODY}))
    assert (await api.get("/models")).status_code == 502
    made = await api.client.post("/v1/conversations", data={}, content_type="application/json")
    assert (made.status_code, made.json()["object"]) == (200, "conversation")
