"""``/models/pull``: what can be fetched, and how far it is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mochi_project.runtime import get_runtime
from mochi_server.providers.builtin import pull as pulling
from mochi_server.providers.builtin.catalogue import CATALOGUE
from tests.support.model_hub import CONTENT, MODEL, NAME, Hub, running_hub
from tests.support.sse import events


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
    assert await entry(api) == {"name": NAME, "size_mb": 1.0, "present": False, "pulling": False}
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
    assert hub.requests == 1
    assert await entry(api) == {"name": NAME, "size_mb": 1.0, "present": True, "pulling": False}
    assert (mochi.models_path / "tiny-1m.gguf").read_bytes() == CONTENT


async def test_a_pull_goes_on_when_its_client_leaves(api, mochi, hub):
    response = await api.post("/models/pull", {"model": NAME})
    stream = events(response.streaming_content)
    await until_half(stream)
    await response.streaming_content.aclose()
    again = events((await api.post("/models/pull", {"model": NAME})).streaming_content)
    hub.rest.set()
    assert [event async for event in again][-1].event == "done"
    assert hub.requests == 1


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
