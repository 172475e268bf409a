"""Which models there are by provider, and which providers answer."""

from __future__ import annotations

import asyncio
import json
import sys
import time

import pytest

from chat.survey import LIMIT_SECONDS, ask, probe, survey_of
from mochi_server.config import load_settings
from mochi_server.providers.builtin.provider import LocalProvider
from mochi_server.providers.ollama.provider import OllamaProvider
from mochi_server.providers.openai.provider import OpenAICompatibleProvider
from mochi_server.runtime import Runtime
from mochi_server.testmode.provider import ScriptedProvider
from tests.support.fake_ollama import FakeOllama
from tests.support.fake_openai import JSON, Answer, delta, error, finished, running_fake, stream


class KeylessProvider(OllamaProvider):
    """One whose key nobody has set."""

    @property
    def configured(self):
        return False


class SlowPackageProvider(OpenAICompatibleProvider):
    """One whose package takes long to import."""

    module = "slow_vendor_package"


class BrokenProvider(OllamaProvider):
    """One with a mistake in it."""

    async def check(self):
        raise ZeroDivisionError


def provider(alias, host, kind=OllamaProvider):
    return kind(alias, host=host, idle_timeout=60, first_byte_timeout=60)


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


@pytest.fixture
async def runtime_of(tmp_path):
    """Runtimes of these providers."""
    made = []

    def make(*providers):
        settings = load_settings(data_dir=tmp_path, summarization_enabled=False)
        made.append(Runtime(settings, providers={one.alias: one for one in providers}))
        return made[-1]

    yield make
    for one in made:
        await one.aclose()


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
    assert 0 < one["latency_ms"] < LIMIT_SECONDS * 1000
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


async def test_an_answer_is_kept_for_a_while_however_many_ask(runtime_of, ollama):
    runtime = runtime_of(provider("ollama", ollama.url))
    survey = survey_of(runtime)
    found = await asyncio.gather(*(survey.read() for _ in range(20)))
    assert all(one is found[0] for one in found)
    assert sum(request.path == "/api/tags" for request in ollama.requests) == 1
    ollama.add_model("new:1b")
    assert await survey.read() is found[0]
    again = await ask(runtime)
    assert "new:1b" in [model.name for model in again.providers["ollama"].models]


@pytest.mark.timing
async def test_one_that_hangs_holds_up_nobody_for_longer_than_the_limit(runtime_of, ollama, silent):
    away = [f"away{number}" for number in range(20)]
    runtime = runtime_of(
        provider("ollama", ollama.url), *(provider(alias, silent) for alias in away)
    )
    begin = time.monotonic()
    survey = await ask(runtime, limit=3)
    assert time.monotonic() - begin < 30, "and not 60: they are asked at once"
    first, *others = survey.providers.values()
    assert first.reachable
    assert first.models
    for one, alias in zip(others, away, strict=True):
        assert (one.reachable, one.latency_ms, one.models) == (False, None, None)
        assert one.problem == {
            "provider": alias,
            "code": "PROVIDER_UNREACHABLE",
            "message": "No answer within 3 s.",
        }


async def test_one_that_is_not_configured_is_named_and_not_asked(runtime_of, ollama):
    async with FakeOllama() as other:
        keyless = provider("keyless", other.url, KeylessProvider)
        runtime = runtime_of(provider("ollama", ollama.url), keyless)
        one = (await ask(runtime)).providers["keyless"]
        assert (one.configured, one.reachable, one.models, one.problem) == (
            False,
            False,
            None,
            None,
        )
        assert other.requests == []


async def test_one_that_lacks_what_it_needs_is_not_configured(runtime_of, ollama, tmp_path):
    local = LocalProvider("local", models_path=tmp_path / "models", idle_seconds=1)
    survey = await ask(runtime_of(provider("ollama", ollama.url), local))
    one = survey.providers["local"]
    assert one.problem["code"] == "PROVIDER_NOT_CONFIGURED"
    assert "mochi-server pull" in one.problem["message"]
    assert (one.configured, one.reachable, one.models) == (False, False, None)


async def test_a_provider_without_its_package_says_how_to_install_it(
    runtime_of, ollama, monkeypatch
):
    monkeypatch.setitem(sys.modules, "openai", None)
    scripted = ScriptedProvider("test", listed=False)
    own = OpenAICompatibleProvider("openai", api_key="key", base_url=None)
    survey = await ask(runtime_of(provider("ollama", ollama.url), scripted, own))
    for alias in ("test", "openai"):
        one = survey.providers[alias]
        assert (one.configured, one.reachable) == (False, False)
        assert one.problem["code"] == "PROVIDER_NOT_CONFIGURED"
        assert "[openai]" in one.problem["message"]


async def test_a_package_that_takes_long_to_import_takes_nothing_off_the_limit(
    runtime_of, ollama, tmp_path, monkeypatch
):
    limit = 4.0
    code = f"import sys, time, openai\ntime.sleep({limit + 0.5})\nsys.modules[__name__] = openai\n"
    (tmp_path / "slow_vendor_package.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    listed = {"object": "list", "data": [{"id": "m", "object": "model", "created": 1}]}
    async with running_fake() as fake:
        answer = Answer(pieces=[json.dumps(listed).encode()], content_type=JSON)
        fake.answers = [answer]
        slow = SlowPackageProvider("openai", api_key=None, base_url=fake.base_url)
        survey = await ask(runtime_of(provider("ollama", ollama.url), slow), limit=limit)
        assert len(fake.paths) == 1, "a list is answer enough, and costs a key's quota"
    one = survey.providers["openai"]
    assert (one.reachable, one.problem) == (True, None)
    assert one.latency_ms < limit * 1000
    assert [model.name for model in one.models] == ["openai/m"]


async def test_models_of_other_providers_have_their_full_names(runtime_of, ollama):
    runtime = runtime_of(provider("ollama", ollama.url), provider("second", ollama.url))
    survey = await ask(runtime)
    first, second = (one.models for one in survey.providers.values())
    assert [model.name for model in second] == [f"second/{model.name}" for model in first]
    assert {model.provider for model in second} == {"second"}


async def test_one_that_is_away_says_why(runtime_of, ollama):
    await ollama.__aexit__(None, None, None)
    survey = await ask(runtime_of(provider("ollama", ollama.url)))
    one = survey.providers["ollama"]
    assert (one.reachable, one.models) == (False, None)
    assert one.problem["code"] == "OLLAMA_UNREACHABLE"


async def test_a_mistake_in_a_provider_is_logged_and_hides_no_other(runtime_of, ollama, caplog):
    broken = provider("broken", ollama.url, BrokenProvider)
    survey = await ask(runtime_of(provider("ollama", ollama.url), broken))
    assert survey.providers["ollama"].models
    assert survey.providers["broken"].problem["code"] == "INTERNAL_ERROR"
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.timing
async def test_a_hanging_ollama_delays_the_route_by_the_limit_only(api, silent, settings):
    settings.MOCHI_PROVIDERS["ollama"]["OPTIONS"]["host"] = silent
    begin = time.monotonic()
    response = await api.get("/models/available")
    assert time.monotonic() - begin < LIMIT_SECONDS * 5, "and not 30"
    assert response.status_code == 200
    assert response.json()["providers"]["ollama"] == []
    assert response.json()["problems"][0]["provider"] == "ollama"


LISTED = Answer(
    pieces=[b'{"object": "list", "data": [{"id": "m", "object": "model", "created": 1}]}'],
    content_type=JSON,
)


@pytest.mark.parametrize("place", ["/api/v1/models", "/api/models"])
async def test_each_model_is_listed_and_asked_where_that_is_wanted(api, ollama, place):
    listed = [model["name"] for model in (await api.get("/models")).json()["models"]]
    unasked = (await api.client.get(f"{place}/check")).json()["providers"]["ollama"]
    assert unasked["model_status"] == {
        name: {"available": True, "latency_ms": None, "problem": None} for name in listed
    }
    ollama.play_body(
        b'{"error": "model not found"}',
        status=404,
        content_type="application/json",
        path="/api/show",
    )
    asked = (await api.client.get(f"{place}/check?probe=true")).json()["providers"]["ollama"]
    (gone,) = [name for name, one in asked["model_status"].items() if not one["available"]]
    others = [one for name, one in asked["model_status"].items() if name != gone]
    assert all(one["available"] and one["latency_ms"] > 0 for one in others)
    problem = asked["model_status"][gone]["problem"]
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
    found = (await api.get("/models/available?probe=true")).json()
    (problem,) = [problem for problem in found["problems"] if "model" in problem]
    left = [model["name"] for model in found["providers"]["ollama"]]
    assert sorted([*left, problem["model"]]) == sorted(listed)
    whole = (await api.get("/models/available?probe=true")).json()
    assert [model["name"] for model in whole["providers"]["ollama"]] == listed
    assert (await api.get("/models/available?probe=yes")).status_code == 422


async def test_a_vendors_model_is_asked_for_the_beginning_of_a_reply(runtime_of):
    async with running_fake() as fake:
        vendor = OpenAICompatibleProvider("openai", api_key="k", base_url=fake.base_url, attempts=1)
        runtime = runtime_of(vendor)
        fake.answers = [LISTED, stream(delta(content="Hello"), finished())]
        good = (await probe(runtime)).providers["openai"].model_status
        fake.answers = [LISTED, error(403, message="not for this key")]
        bad = (await probe(runtime)).providers["openai"].model_status
        fake.answers = [LISTED, Answer(pieces=[], then="hold")]
        silent = (await probe(runtime, limit=1)).providers["openai"].model_status
    assert [path.partition(" ")[2] for path in fake.paths[:2]] == [
        "/v1/models",
        "/v1/chat/completions",
    ]
    (one,) = good.values()
    assert (one.available, one.problem) == (True, None)
    assert one.latency_ms > 0
    (one,) = bad.values()
    assert (one.available, one.latency_ms) == (False, None)
    assert "not for this key" in one.problem["message"]
    (one,) = silent.values()
    assert one.problem["message"] == "No answer within 1 s."
