"""Which models there are by provider, and which providers answer."""

from __future__ import annotations

import asyncio
import time

import pytest

from mochi_server.providers.status import STATUS_SECONDS


@pytest.fixture
async def silent():
    """A server that accepts connections and never says anything."""
    leave = asyncio.Event()

    async def hold(reader, writer):
        await leave.wait()
        writer.close()

    async with await asyncio.start_server(hold, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
        leave.set()


@pytest.mark.parametrize("place", ["/api/v1/models", "/api/models"])
async def test_both_routes_answer_below_both_paths(api, ollama, place):
    available = (await api.client.get(f"{place}/available")).json()
    check = (await api.client.get(f"{place}/check")).json()
    listed = (await api.get("/models")).json()["models"]
    names = [model["name"] for models in available["providers"].values() for model in models]
    assert names == [model["name"] for model in listed]
    assert next(iter(available["providers"])) == next(iter(check["providers"])) == "ollama"
    assert set(available["providers"]["ollama"][0]) == set(listed[0])
    one = check["providers"]["ollama"]
    assert (one["configured"], one["reachable"], one["problem"]) == (True, True, None)
    assert one["models"] == len(available["providers"]["ollama"])
    assert 0 < one["latency_ms"] < STATUS_SECONDS * 1000
    assert available["checked_at"] < check["checked_at"]
    again = (await api.client.get(f"{place}/available")).json()
    assert again["checked_at"] == check["checked_at"]


async def test_the_check_sees_at_once_that_a_provider_has_gone(api, ollama):
    before = (await api.client.get("/api/v1/models/check")).json()["providers"]["ollama"]
    ollama.play("err_runner_gone", path="/api/version")
    ollama.play("err_runner_gone", path="/api/tags")
    after = (await api.client.get("/api/v1/models/check")).json()["providers"]["ollama"]
    assert (before["reachable"], after["reachable"]) == (True, False)
    assert after["problem"]["code"] == "OLLAMA_ERROR"


@pytest.mark.parametrize("name", ["available", "check"])
async def test_other_methods_are_refused_and_other_names_are_not_there(api, name):
    for place in ("/api/v1/models", "/api/models"):
        response = await api.client.post(f"{place}/{name}")
        assert response.status_code == 405
        assert response.json()["error"]["code"] == "METHOD_NOT_ALLOWED"
    assert (await api.client.get(f"/api/models/{name}/more")).status_code == 404
    assert (await api.client.get(f"/api/models/{name}%0A")).status_code == 404


@pytest.mark.timing
async def test_a_hanging_ollama_delays_the_route_by_the_limit_only(api, silent, settings):
    settings.MOCHI_PROVIDERS["ollama"]["OPTIONS"]["host"] = silent
    begin = time.monotonic()
    response = await api.get("/models/available")
    assert time.monotonic() - begin < STATUS_SECONDS * 5, "and not 30"
    assert response.status_code == 200
    assert response.json()["providers"]["ollama"] == []
    assert response.json()["problems"][0]["provider"] == "ollama"


@pytest.mark.parametrize("place", ["/api/v1/models", "/api/models"])
async def test_each_model_is_listed_and_asked_where_that_is_wanted(api, ollama, place):
    listed = [model["name"] for model in (await api.get("/models")).json()["models"]]
    unasked = (await api.client.get(f"{place}/check")).json()["providers"]["ollama"]
    assert unasked["model_status"] == {
        name: {"available": True, "asked": False, "latency_ms": None, "problem": None}
        for name in listed
    }
    ollama.play_body(
        b'{"error": "model not found"}',
        status=404,
        content_type="application/json",
        path="/api/show",
    )
    checked = (await api.client.get(f"{place}/check?probe=true")).json()["providers"]["ollama"]
    (gone,) = [name for name, one in checked["model_status"].items() if not one["available"]]
    others = [one for name, one in checked["model_status"].items() if name != gone]
    assert all(one["available"] and one["latency_ms"] > 0 for one in others)
    problem = checked["model_status"][gone]["problem"]
    assert (problem["provider"], problem["model"]) == ("ollama", gone)
    assert problem["code"] == "MODEL_NOT_FOUND"
    assert ollama.chats == [], "a reply would load each model"


async def test_a_model_that_does_not_answer_is_not_available(api, ollama):
    listed = [model["name"] for model in (await api.get("/models")).json()["models"]]
    ollama.play_body(
        b'{"error": "model not found"}',
        status=404,
        content_type="application/json",
        path="/api/show",
    )
    available = (await api.get("/models/available?probe=true")).json()
    (problem,) = [problem for problem in available["problems"] if "model" in problem]
    left = [model["name"] for model in available["providers"]["ollama"]]
    assert sorted([*left, problem["model"]]) == sorted(listed)
    whole = (await api.get("/models/available?probe=true")).json()
    assert [model["name"] for model in whole["providers"]["ollama"]] == listed
    assert (await api.get("/models/available?probe=yes")).status_code == 422
