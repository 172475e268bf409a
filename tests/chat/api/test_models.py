"""``/models``: which there are, which providers answer, and what can be fetched."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from mochi_project.runtime import get_runtime
from mochi_server.backends import default_providers
from mochi_server.config.installation import own_command
from mochi_server.providers.builtin import pull as pulling
from mochi_server.providers.builtin.catalogue import CATALOGUE
from mochi_server.providers.status import STATUS_SECONDS
from tests.support.api import error_of
from tests.support.model_hub import CONTENT, MODEL, NAME, Hub, running_hub
from tests.support.server import NOBODY
from tests.support.sse import events


async def test_models_that_can_chat_are_listed_with_all_fields(api):
    body = (await api.get("/models")).json()
    names = [model["name"] for model in body["models"]]
    assert "qwen3:14b" in names
    assert "nomic-embed-text:latest" not in names
    first = body["models"][names.index("qwen3:14b")]
    assert {"name", "size_mb", "format", "family", "parameter_size", "quantization_level",
            "capabilities", "context_length", "provider"} <= set(first)  # fmt: skip
    assert first["context_length"] == 40960
    assert first["size_mb"] == round(first["size_mb"], 1)


async def test_a_model_is_shown_by_its_name_with_colon_and_slash(api, ollama):
    ollama.add_model("hf.co/someone/model-GGUF:Q4_K_M")
    for name in ("qwen3:14b", "qwen3%3A14b", "hf.co/someone/model-GGUF:Q4_K_M"):
        response = await api.get(f"/models/{name}")
        assert response.status_code == 200, name
        assert response.json()["name"] == name.replace("%3A", ":")


async def test_an_unknown_model_is_not_found(api):
    assert error_of(await api.get("/models/nobody:1b")) == (404, "MODEL_NOT_FOUND")


async def test_a_model_that_cannot_chat_is_not_there(api):
    name = "nomic-embed-text:latest"
    assert error_of(await api.get(f"/models/{name}")) == (404, "MODEL_NOT_FOUND")
    assert error_of(await api.post("/sessions", {"model": name})) == (404, "MODEL_NOT_FOUND")


NO_MODEL = {
    "provider": "local",
    "code": "PROVIDER_NOT_CONFIGURED",
    "message": f"no model (run: {own_command()} pull)",
}


async def test_a_provider_without_a_model_says_why(api):
    assert (await api.get("/models")).json()["problems"] == [NO_MODEL]


async def test_a_models_folder_that_cannot_be_read_is_a_problem_and_no_crash(api, mochi):
    mochi.models_path.write_text("not a folder")
    body = (await api.get("/models")).json()
    assert "qwen3:14b" in [model["name"] for model in body["models"]]
    assert body["problems"][0]["message"].endswith("cannot be read: Not a directory")
    health = await api.get("/health")
    assert health.status_code == 200
    assert health.json()["providers"]["local"] == {"reachable": False}


async def test_where_nobody_answers_the_list_is_an_error_that_names_every_problem(api, ollama):
    await ollama.__aexit__(None, None, None)
    response = await api.get("/models")
    assert error_of(response) == (502, "OLLAMA_UNREACHABLE")
    problems = response.json()["error"]["details"]["problems"]
    assert [problem["provider"] for problem in problems] == ["ollama", "local"]
    assert problems[1] == NO_MODEL
    assert error_of(await api.get("/models/qwen3:14b")) == (502, "OLLAMA_UNREACHABLE")


async def test_what_another_provider_fails_with_is_documented_at_each_route(api, settings):
    settings.MOCHI_PROVIDERS["openai"]["OPTIONS"] |= {
        "api_key": "sk-test",
        "base_url": "http://127.0.0.1:9/v1",
    }
    session = await api.new_session()
    document = (await api.get("/openapi.json")).json()
    body = {"model": "openai/gpt"}
    for method, path, route in (
        ("GET", "/models/openai/gpt", "/models/{model_name}"),
        ("POST", "/sessions", "/sessions"),
        ("PATCH", f"/sessions/{session}", "/sessions/{session_id}"),
    ):
        response = await api(method, path, None if method == "GET" else body)
        assert error_of(response) == (502, "PROVIDER_UNREACHABLE")
        responses = document["paths"][f"/api/v1{route}"][method.lower()]["responses"]
        assert "PROVIDER_UNREACHABLE" in responses["502"]["description"], route


async def test_a_conversation_of_openai_needs_no_model(api: Any, mochi: Any, settings: Any) -> None:
    """A response names one: that no provider answers is no reason to refuse it."""
    settings.MOCHI_PROVIDERS = default_providers(mochi.model_copy(update={"ollama_host": NOBODY}))
    assert (await api.get("/models")).status_code == 502
    made = await api.client.post("/v1/conversations", data={}, content_type="application/json")
    assert (made.status_code, made.json()["object"]) == (200, "conversation")


# ---- which providers answer -------------------------------------------------------------------


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


async def test_a_hanging_ollama_delays_the_route_by_the_limit_only(api, silent, settings):
    settings.MOCHI_PROVIDERS["ollama"]["OPTIONS"]["host"] = silent
    response = await api.get("/models/available")
    assert response.status_code == 200
    assert response.json()["providers"]["ollama"] == []
    problem = response.json()["problems"][0]
    assert problem["provider"] == "ollama"
    assert problem["message"] == f"No answer within {STATUS_SECONDS:.0f} s."


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


# ---- what can be fetched ----------------------------------------------------------------------


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setitem(CATALOGUE, MODEL.name, MODEL)
    with running_hub() as hub:
        monkeypatch.setitem(pulling.pull.__kwdefaults__, "hub", hub.url)
        yield hub


async def entry(api):
    models = (await api.get("/models/pull")).json()["models"]
    return next(model for model in models if model["name"] == NAME)


async def until_half(stream):
    async for event in stream:
        if event.data.get("completed"):
            return event.data
    raise AssertionError("the stream has ended")


async def test_a_model_is_fetched_once_for_all_who_follow_it(api, mochi, hub):
    about = {"name": NAME, "size_mb": 1.0, "capabilities": ["completion", "tools"]}
    assert await entry(api) == {**about, "present": False, "pulling": False}
    first = await api.post("/models/pull", {"model": NAME})
    assert first["Content-Type"].startswith("text/event-stream")
    one = events(first.streaming_content)
    half = await until_half(one)
    assert half["total"] == len(CONTENT)
    assert 0 < half["completed"] < len(CONTENT)
    assert (await entry(api))["pulling"]
    two = events((await api.post("/models/pull", {"model": NAME})).streaming_content)
    hub.rest.set()
    for stream in (one, two):
        *_, whole, last = [event async for event in stream]
        assert (whole.data["completed"], whole.data["total"]) == (len(CONTENT), len(CONTENT))
        assert (last.event, last.data) == ("done", {"model": NAME})
    assert len(hub.requests) == 1
    assert await entry(api) == {**about, "present": True, "pulling": False}
    assert (mochi.models_path / "tiny-1m.gguf").read_bytes() == CONTENT


async def test_a_pull_goes_on_when_its_client_leaves(api, mochi, hub):
    response = await api.post("/models/pull", {"model": NAME})
    stream = events(response.streaming_content)
    await until_half(stream)
    await response.streaming_content.aclose()
    again = events((await api.post("/models/pull", {"model": NAME})).streaming_content)
    hub.rest.set()
    assert [event async for event in again][-1].event == "done"
    assert len(hub.requests) == 1


async def test_what_is_wrong_is_an_error_before_the_end(api, mochi, hub):
    mochi.models_path.write_text("not a folder")
    response = await api.post("/models/pull", {"model": NAME})
    *_, error, done = [event async for event in events(response.streaming_content)]
    assert (error.event, error.data["code"]) == ("error", "PROVIDER_ERROR")
    assert "cannot be used" in error.data["message"]
    assert done.event == "done"


@pytest.mark.parametrize("name", ["local/nobody", "qwen3:14b", "local/../../etc/passwd.gguf", ""])
async def test_nothing_else_can_be_pulled(api, mochi, name):
    response = await api.post("/models/pull", {"model": name})
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "MODEL_NOT_FOUND"
    assert not mochi.models_path.exists()


async def test_the_end_of_the_server_ends_the_stream(api, mochi, hub):
    response = await api.post("/models/pull", {"model": NAME})
    stream = events(response.streaming_content)
    await until_half(stream)
    get_runtime().stop()
    assert [event async for event in stream if event.event == "done"] == []
