from __future__ import annotations

import asyncio
import socket
from urllib.parse import urlsplit

import anyio
import pytest

from mochi_project.runtime import get_runtime
from mochi_server import Runtime, __version__
from mochi_server.backends import default_providers
from mochi_server.config import load_settings
from mochi_server.errors import StorageError
from mochi_server.providers import status
from mochi_server.providers.common.http import without_login
from mochi_server.providers.ollama.provider import OllamaProvider


@pytest.fixture(autouse=True)
def _patient(monkeypatch):
    """What answers is reachable, however slow the machine is."""
    monkeypatch.setattr(status, "REACHABLE_SECONDS", 30)


async def test_health_has_the_documented_fields(api, ollama_url):
    response = await api.get("/health")
    assert response.status_code == 200
    assert response.json() == {
        "status": "ok",
        "ollama_connected": True,
        "ollama_host": ollama_url,
        "redis_connected": None,
        "version": __version__,
        "providers": {
            "ollama": {"reachable": True},
            "local": {"reachable": False},
            "test": {"reachable": True},
        },
    }


async def test_a_process_that_stops_lives_and_is_not_ready(api):
    for probe in ("live", "ready"):
        response = await api.get(f"/health/{probe}")
        assert (response.status_code, response.json()) == (200, {"status": "ok"})
    get_runtime().stop()
    assert (await api.get("/health/live")).status_code == 200
    response = await api.get("/health/ready")
    assert (response.status_code, response.json()["error"]["code"]) == (503, "SHUTTING_DOWN")


async def test_a_server_whose_sessions_cannot_be_reached_is_not_ready(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"redis://127.0.0.1:{taken.getsockname()[1]}"
    runtime = Runtime(load_settings(data_dir=tmp_path, session_storage="redis", redis_url=url))
    with pytest.raises(StorageError):
        await runtime.check_ready()
    await runtime.aclose()


async def test_without_ollama_the_server_is_still_healthy(api, ollama):
    await ollama.__aexit__(None, None, None)
    body = (await api.get("/health")).json()
    assert (body["status"], body["ollama_connected"]) == ("ok", False)


async def test_an_ollama_that_hangs_does_not_hang_health(
    api, settings, mochi, tmp_path, monkeypatch
):
    monkeypatch.setattr(status, "REACHABLE_FRESH_SECONDS", 60)
    monkeypatch.setattr(status, "REACHABLE_SECONDS", 1)
    asked = []

    async def silent(reader, writer):
        asked.append(writer)
        await reader.read()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        settings.MOCHI = load_settings(
            ollama_host=f"http://127.0.0.1:{port}", data_dir=tmp_path, models_dir=tmp_path
        )
        settings.MOCHI_PROVIDERS = default_providers(settings.MOCHI)
        with anyio.fail_after(30):
            body = (await api.get("/health")).json()
        assert body["ollama_connected"] is False
        before = len(asked)
        with anyio.fail_after(30):
            await api.get("/health")
        assert len(asked) == before, "the answer is kept for a while"
        await get_runtime().providers.aclose()


async def test_many_who_ask_cause_one_check(api, ollama):
    health = get_runtime().provider_checks.reachability
    before = len(ollama.requests)
    answers = await asyncio.gather(*(health.read() for _ in range(20)))
    assert all(answer.providers["ollama"] for answer in answers)
    assert len(ollama.requests) - before <= 1


class BrokenProvider(OllamaProvider):
    """One with a mistake in it."""

    async def check(self):
        raise ZeroDivisionError


async def test_a_mistake_in_a_provider_makes_nobody_else_ill(api, settings, caplog):
    settings.MOCHI_PROVIDERS |= {
        "broken": {
            "BACKEND": f"{__name__}.BrokenProvider",
            "OPTIONS": settings.MOCHI_PROVIDERS["ollama"]["OPTIONS"],
        }
    }
    response = await api.get("/health")
    assert response.status_code == 200
    providers = response.json()["providers"]
    assert providers["broken"] == {"reachable": False}
    assert providers["ollama"] == {"reachable": True}
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("http://localhost:11434", "http://localhost:11434"),
        ("http://me:secret@host:1/x", "http://host:1/x"),
    ],
)
def test_an_address_is_shown_without_its_password(address, shown):
    assert without_login(urlsplit(address)) == shown
