"""Which providers and models answer; asked side by side, once for all who ask, not for long."""

from __future__ import annotations

import asyncio
import json
import sys

import anyio
import pytest

from mochi_server.config import load_settings
from mochi_server.providers import status
from mochi_server.providers.builtin.provider import LocalProvider
from mochi_server.providers.ollama import OllamaProvider
from mochi_server.providers.openai import OpenAICompatibleProvider
from mochi_server.runtime import Runtime
from mochi_server.testmode.provider import ScriptedProvider
from tests.support.fake_ollama import FakeOllama
from tests.support.fake_openai import JSON, Answer, delta, error, finished, running_fake, stream


async def status_of(runtime, **options):
    return await runtime.provider_checks.check_providers(**options)


async def status_of_models(runtime, **options):
    return await runtime.provider_checks.check_models(**options)


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


LISTED = Answer(
    pieces=[b'{"object": "list", "data": [{"id": "m", "object": "model", "created": 1}]}'],
    content_type=JSON,
)


async def test_an_answer_is_kept_for_a_while_however_many_ask(runtime_of, ollama):
    runtime = runtime_of(provider("ollama", ollama.url))
    status = runtime.provider_checks.status
    reports = await asyncio.gather(*(status.read() for _ in range(20)))
    assert all(one is reports[0] for one in reports)
    assert sum(request.path == "/api/tags" for request in ollama.requests) == 1
    ollama.add_model("new:1b")
    assert await status.read() is reports[0]
    again = await status_of(runtime)
    assert "new:1b" in [model.name for model in again.providers["ollama"].models]


async def test_one_that_hangs_holds_up_nobody_for_longer_than_the_limit(runtime_of, silent):
    runtime = runtime_of(ScriptedProvider("test"), provider("away", silent))
    report = await status_of(runtime, limit=3)
    test, away = report.providers.values()
    assert test.reachable
    assert test.models
    assert (away.reachable, away.latency_ms, away.models) == (False, None, None)
    assert away.problem == {
        "provider": "away",
        "code": "PROVIDER_UNREACHABLE",
        "message": "No answer within 3 s.",
    }


async def test_all_are_asked_at_once(runtime_of):
    """A server that answers nobody before everybody has asked."""
    number, asking, all_ask = 20, 0, asyncio.Event()

    async def answer(reader, writer):
        nonlocal asking
        asking += 1
        if asking == number:
            all_ask.set()
        await all_ask.wait()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        host = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        runtime = runtime_of(*(provider(f"away{one}", host) for one in range(number)))
        await status_of(runtime, limit=60)
        assert all_ask.is_set()


async def test_one_that_is_not_configured_is_named_and_not_asked(runtime_of, ollama):
    async with FakeOllama() as other:
        keyless = provider("keyless", other.url, KeylessProvider)
        runtime = runtime_of(provider("ollama", ollama.url), keyless)
        one = (await status_of(runtime)).providers["keyless"]
        assert (one.configured, one.reachable, one.models, one.problem) == (
            False,
            False,
            None,
            None,
        )
        assert other.requests == []


async def test_one_that_lacks_what_it_needs_is_not_configured(runtime_of, ollama, tmp_path):
    local = LocalProvider("local", models_path=tmp_path / "models", idle_seconds=1)
    report = await status_of(runtime_of(provider("ollama", ollama.url), local))
    one = report.providers["local"]
    assert one.problem["code"] == "PROVIDER_NOT_CONFIGURED"
    assert "mochi-server pull" in one.problem["message"]
    assert (one.configured, one.reachable, one.models) == (False, False, None)


async def test_a_provider_without_its_package_says_how_to_install_it(
    runtime_of, ollama, monkeypatch
):
    monkeypatch.setitem(sys.modules, "openai", None)
    scripted = ScriptedProvider("test", listed=False)
    own = OpenAICompatibleProvider("openai", api_key="key", base_url=None)
    report = await status_of(runtime_of(provider("ollama", ollama.url), scripted, own))
    for alias in ("test", "openai"):
        one = report.providers[alias]
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
        report = await status_of(runtime_of(provider("ollama", ollama.url), slow), limit=limit)
        assert len(fake.paths) == 1, "a list is answer enough, and costs a key's quota"
    one = report.providers["openai"]
    assert (one.reachable, one.problem) == (True, None)
    assert one.latency_ms < limit * 1000
    assert [model.name for model in one.models] == ["openai/m"]


async def test_models_of_other_providers_have_their_full_names(runtime_of, ollama):
    runtime = runtime_of(provider("ollama", ollama.url), provider("second", ollama.url))
    report = await status_of(runtime)
    first, second = (one.models for one in report.providers.values())
    assert [model.name for model in second] == [f"second/{model.name}" for model in first]
    assert {model.provider for model in second} == {"second"}


async def test_one_that_is_away_says_why(runtime_of, ollama):
    await ollama.__aexit__(None, None, None)
    report = await status_of(runtime_of(provider("ollama", ollama.url)))
    one = report.providers["ollama"]
    assert (one.reachable, one.models) == (False, None)
    assert one.problem["code"] == "OLLAMA_UNREACHABLE"


async def test_a_mistake_in_a_provider_is_logged_and_hides_no_other(runtime_of, ollama, caplog):
    broken = provider("broken", ollama.url, BrokenProvider)
    report = await status_of(runtime_of(provider("ollama", ollama.url), broken))
    assert report.providers["ollama"].models
    assert report.providers["broken"].problem["code"] == "INTERNAL_ERROR"
    assert "ZeroDivisionError" in caplog.text


async def test_a_vendors_model_is_asked_for_the_beginning_of_a_reply(runtime_of):
    async with running_fake() as fake:
        vendor = OpenAICompatibleProvider("openai", api_key="k", base_url=fake.base_url)
        runtime = runtime_of(vendor)
        fake.answers = [LISTED, stream(delta(content="Hello"), finished())]
        good = (await status_of_models(runtime)).providers["openai"].model_status
        fake.answers = [LISTED, error(403, message="not for this key")]
        bad = (await status_of_models(runtime)).providers["openai"].model_status
        fake.answers = [LISTED, Answer(pieces=[], then="hold")]
        silent = (await status_of_models(runtime, limit=3)).providers["openai"].model_status
    assert [path.partition(" ")[2] for path in fake.paths[:2]] == [
        "/v1/models",
        "/v1/chat/completions",
    ]
    assert fake.bodies[1]["max_tokens"] == 1
    (one,) = good.values()
    assert (one.available, one.asked, one.problem) == (True, True, None)
    assert one.latency_ms > 0
    (one,) = bad.values()
    assert (one.available, one.latency_ms) == (False, None)
    assert "not for this key" in one.problem["message"]
    (one,) = silent.values()
    assert one.problem["message"] == "No answer within 3 s."


async def test_a_model_that_has_only_begun_to_think_can_be_used(runtime_of):
    words = (
        "Could not finish the message because max_tokens or model output limit was reached. "
        "Please try again with higher max_tokens."
    )
    async with running_fake() as fake:
        vendor = OpenAICompatibleProvider("openai", api_key="k", base_url=fake.base_url)
        fake.answers = [LISTED, error(400, message=words)]
        report = await status_of_models(runtime_of(vendor))
    (one,) = report.providers["openai"].model_status.values()
    assert (one.available, one.asked, one.problem) == (True, True, None)


async def test_models_of_ollama_are_asked_one_after_the_other_if_they_are_loaded(
    runtime_of, ollama
):
    for name in ("one:latest", "two:latest"):
        ollama.add_model(name, loaded=8192)
    gate = asyncio.Event()
    ollama.reply(["Well"], gate=gate)
    ollama.reply(["Well"])
    check = asyncio.create_task(status_of_models(runtime_of(provider("ollama", ollama.url))))
    await ollama.requested(1)
    assert len(ollama.chats) == 1
    gate.set()
    found = (await check).providers["ollama"].model_status
    assert {name for name, model in found.items() if model.asked} == {"one:latest", "two:latest"}
    assert all(model.available and model.latency_ms > 0 for model in found.values())
    assert len(found) > 2
    options = [chat["options"] for chat in ollama.chats]
    assert [(each["num_predict"], each["num_ctx"]) for each in options] == [(1, 8192)] * 2
    assert (ollama.loads, ollama.reloads) == (0, 0)


async def test_a_vendor_that_has_answered_is_not_asked_again_for_a_minute(
    tmp_path, ollama, monkeypatch
):
    monkeypatch.setattr(status, "REACHABLE_SECONDS", 60.0)
    settings = load_settings(data_dir=tmp_path, summarization_enabled=False)
    answer = Answer(pieces=[b'{"object": "list", "data": []}'], content_type=JSON)
    async with running_fake() as fake:
        vendor = OpenAICompatibleProvider("openai", api_key="wrong", base_url=fake.base_url)
        own = OllamaProvider("ollama", host=ollama.url, idle_timeout=60, first_byte_timeout=60)
        runtime = Runtime(settings, providers={"ollama": own, "openai": vendor})

        async def reachable() -> bool:
            with anyio.fail_after(120):
                found = await runtime.provider_checks.check_reachability()
            assert found.providers["ollama"]
            return found.providers["openai"]

        fake.answers = [error(401, message="Incorrect key"), answer, error(500, message="away")]
        assert not await reachable(), "and is asked again at once"
        assert [await reachable() for _ in range(3)] == [True] * 3
        assert len(fake.paths) == 2
        assert len(ollama.requests) >= 4, "what is one's own is looked at each time"
        runtime.provider_checks._believed_until.clear()
        assert not await reachable()
        await runtime.aclose()
