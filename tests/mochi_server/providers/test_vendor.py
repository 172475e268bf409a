"""How vendors' services are connected to: many streams at once, silence, connections that go."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from mochi_server.errors import ModelNotFound, ProviderBusy, ProviderError, ProviderUnreachable
from mochi_server.providers import vendor as vendors
from mochi_server.providers.anthropic import provider as anthropic
from mochi_server.providers.base import ContentDelta, ModelRequest
from mochi_server.providers.chat_completions import provider as chat_completions
from mochi_server.providers.gemini import provider as gemini
from tests.support.exact_vendors import HELLO, JSON, PROVIDERS, VENDORS, OpenAI, Vendor, serving
from tests.support.http_wire import Connection, Request

MANY = 130


@pytest.fixture(scope="module", autouse=True)
def packages() -> None:
    """Imported before anything is timed: a busy machine makes half a minute of it."""
    for kind in PROVIDERS:
        import_module(kind.module)


@pytest.fixture(params=VENDORS)
async def vendor(request: pytest.FixtureRequest) -> AsyncIterator[Vendor]:
    async with serving(request.param) as found:
        yield found


async def test_more_than_a_hundred_streams_run_at_once(vendor: Vendor) -> None:
    """The HTTP libraries' limit of 100 connections would let the next one wait, for minutes."""
    async with AsyncExitStack() as stack:
        for _ in range(MANY):
            vendor.answers([vendor.says("Yes")], then="hold")
            chunks = await stack.enter_async_context(
                aclosing(vendor.provider.stream(vendor.request()))
            )
            with anyio.fail_after(30):
                assert await chunks.__anext__() == ContentDelta("Yes")


async def test_closing_a_stream_closes_the_connection_at_once(vendor: Vendor) -> None:
    vendor.answers([vendor.says("Yes")], then="hold")
    chunks = vendor.provider.stream(vendor.request())
    assert await chunks.__anext__() == ContentDelta("Yes")
    with anyio.fail_after(30):
        await chunks.aclose()
        await vendor.left()


async def test_cancelling_the_reader_closes_the_connection(vendor: Vendor) -> None:
    vendor.answers([vendor.says("Yes")], then="hold")
    has_begun = asyncio.Event()

    async def read() -> None:
        async with aclosing(vendor.provider.stream(vendor.request())) as chunks:
            async for _ in chunks:
                has_begun.set()

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(read)
            await has_begun.wait()
            group.cancel_scope.cancel()
        await vendor.left()


async def test_a_busy_service_is_asked_three_times(vendor: Vendor) -> None:
    busy = {"status": 503, "kind": JSON, "headers": {"Retry-After": "0"}}
    refusal = b'{"error": {"message": "Full", "code": 503, "status": "UNAVAILABLE"}}'
    for _ in range(2):
        vendor.answers([refusal], **busy)
    vendor.answers([vendor.reply("Yes")])
    assert (await vendor.ask())[0] == ContentDelta("Yes")
    for _ in range(3):
        vendor.answers([refusal], **busy)
    vendor.answers([vendor.reply("Yes")])
    assert type(await vendor.failure()) is ProviderBusy


@asynccontextmanager
async def listening(answer: bytes | None) -> AsyncIterator[str]:
    """The address of a server that gives every request this answer, or none."""
    open_ones: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_ones.add(writer)
        await reader.readuntil(b"\r\n\r\n")
        if answer is not None:
            head = f"HTTP/1.1 200 OK\r\nContent-Type: {JSON}\r\nContent-Length: {len(answer)}\r\n"
            writer.write(f"{head}Connection: close\r\n\r\n".encode() + answer)
            await writer.drain()
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for writer in open_ones:
            writer.close()


def set_proxy(monkeypatch: Any, url: str) -> None:
    for name in ("HTTP_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv(name.lower(), "" if name == "NO_PROXY" else url)


@pytest.mark.parametrize(
    ("name", "proxy"),
    [
        *((name, "http://127.0.0.1:9") for name in VENDORS),
        ("openai", "socks5://127.0.0.1:9"),  # the other SDKs set theirs up in any case
    ],
)
async def test_a_server_on_this_machine_is_not_sought_behind_a_proxy(
    name: str, proxy: str, monkeypatch: Any
) -> None:
    """Few people think of ``NO_PROXY``, and the proxy's ``localhost`` is another machine."""
    set_proxy(monkeypatch, proxy)
    async with serving(name) as vendor:
        vendor.answers([vendor.reply("Yes")])
        assert (await vendor.ask())[0] == ContentDelta("Yes")


@pytest.mark.parametrize("kind", PROVIDERS)
async def test_other_services_are_reached_through_the_proxy(kind: Any, monkeypatch: Any) -> None:
    body = {"data": [{"id": "a"}], "models": [{"name": "a"}]}
    async with listening(json.dumps(body).encode()) as url:
        set_proxy(monkeypatch, url)
        provider = kind("it", api_key="k", base_url="http://vendor.example")
        with anyio.fail_after(30):
            assert [model.name for model in await provider.list_models()] == ["a"]
        await provider.aclose()


@pytest.mark.parametrize("kind", PROVIDERS)
async def test_no_address_but_ours_is_asked(kind: Any, monkeypatch: Any) -> None:
    """The SDKs know variables of their own; a key goes where our settings say."""
    body = {"data": [{"id": "a"}], "models": [{"name": "a"}]}
    async with listening(json.dumps(body).encode()) as url:
        for name in ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "GOOGLE_GEMINI_BASE_URL"):
            monkeypatch.setenv(name, url)
        set_proxy(monkeypatch, "http://127.0.0.1:9")  # on the way to the real services
        provider = kind("it", api_key="k")
        with anyio.fail_after(30), pytest.raises(ProviderUnreachable):
            await provider.list_models()
        await provider.aclose()


@asynccontextmanager
async def answering(
    answer: Callable[[Request, Connection], Awaitable[None]],
) -> AsyncIterator[str]:
    """The address of a server that answers so."""
    made: list[Connection] = []

    def connect() -> Connection:
        made.append(Connection(answer))
        return made[-1]

    server = await asyncio.get_running_loop().create_server(connect, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for connection in made:
            connection.stop()


@pytest.mark.parametrize("kind", PROVIDERS)
async def test_a_redirect_is_told_and_not_followed(kind: Any) -> None:
    """The HTTP libraries would carry the conversation, and most headers with keys, elsewhere."""
    asked: list[Request] = []

    async def there(request: Request, connection: Connection) -> None:
        asked.append(request)
        connection.send(200, b"{}", JSON)

    async def here(request: Request, connection: Connection) -> None:
        target = f"{elsewhere.replace('://', '://me:pass-word@')}/moved{request.path}?key=tok-en"
        connection._head(307, {"Location": target, "Content-Length": "0"})

    async with answering(there) as elsewhere, answering(here) as url:
        provider = kind("it", api_key="very-secret", base_url=url)
        for ask in (
            provider.list_models,
            lambda: provider.show_model("some-model"),
            provider.stream(ModelRequest(model="some-model", messages=HELLO)).__anext__,
        ):
            with anyio.fail_after(60), pytest.raises(ProviderError) as caught:
                await ask()
            assert f"redirects to {elsewhere}/moved/" in caught.value.message
            assert caught.value.details["upstream_status"] == 307
            for secret in ("very-secret", "pass-word", "tok-en"):
                assert secret not in str(caught.value.as_json())
        await provider.aclose()
    assert asked == []


@pytest.mark.parametrize("kind", PROVIDERS)
async def test_models_that_do_not_come_are_given_up(kind: Any, monkeypatch: Any) -> None:
    """A list needs no model: who waits for it must not wait as long as for a reply."""
    monkeypatch.setattr(vendors, "ANSWER_SECONDS", 0.2)
    async with listening(None) as url:
        provider = kind("it", api_key="k", base_url=url)
        with anyio.fail_after(30):
            with pytest.raises(ProviderUnreachable, match=r"gives no answer within 0\.2 s"):
                await provider.list_models()
            with pytest.raises(ProviderUnreachable, match=r"gives no answer within 0\.2 s"):
                await provider.show_model("some-model")
        await provider.aclose()


async def test_a_service_that_falls_silent_is_said_to_have(
    vendor: Vendor, monkeypatch: Any
) -> None:
    for module in (chat_completions, anthropic, gemini):
        monkeypatch.setattr(module, "IDLE_SECONDS", 0.3)
    vendor.answers([vendor.says("Yes")], then="hold")
    found = await vendor.failure()
    assert type(found) is ProviderUnreachable
    assert "sent nothing for too long" in found.message


async def test_a_server_too_busy_to_list_its_models_is_believed_to_have_them(
    monkeypatch: Any,
) -> None:
    """Small servers answer nothing else while they generate."""
    monkeypatch.setattr(chat_completions, "LIST_CACHE_SECONDS", -1)
    async with serving("openai") as vendor:
        vendor.answers([b'{"data": [{"id": "a"}]}'], kind=JSON)
        assert (await vendor.provider.show_model("a")).name == "a"
        monkeypatch.setattr(vendors, "ANSWER_SECONDS", 0.2)
        for _ in range(2):
            vendor.answers([], kind=JSON, then="hold")
        assert (await vendor.provider.show_model("a")).name == "a"
        with pytest.raises(ModelNotFound):
            await vendor.provider.show_model("b")


async def test_a_server_too_busy_to_list_its_models_is_not_asked_at_once_again(
    monkeypatch: Any,
) -> None:
    """Each question would wait for the list as long as the first one, and in vain."""
    now = 1000.0
    monkeypatch.setattr(chat_completions, "time", SimpleNamespace(monotonic=lambda: now))
    async with serving("openai") as vendor:
        assert isinstance(vendor, OpenAI)
        vendor.answers([b'{"data": [{"id": "a"}]}'], kind=JSON)
        assert (await vendor.provider.show_model("a")).name == "a"
        monkeypatch.setattr(vendors, "ANSWER_SECONDS", 0.2)
        vendor.answers([], kind=JSON, then="hold")
        for seconds in (31, 20):
            now += seconds
            assert (await vendor.provider.show_model("a")).name == "a"
        assert len(vendor.fake.paths) <= 2, "the second may be given up before it arrives"


ODD_LISTS: list[Any] = [
    None,
    [{"id": "a"}],
    {"data": [7], "models": [7]},
    {"data": "odd", "models": "odd"},
    {"data": [{"id": "a", "capabilities": {}}], "models": [{"name": "a", "thinking": "odd"}]},
]


@pytest.mark.parametrize("kind", PROVIDERS)
@pytest.mark.parametrize("body", ODD_LISTS, ids=str)
async def test_a_list_of_models_that_cannot_be_read_is_an_error_with_a_name(
    kind: Any, body: Any
) -> None:
    """Else one odd gateway would hide the models of all other providers."""
    async with listening(json.dumps(body).encode()) as url:
        provider = kind("it", api_key="k", base_url=url)
        with anyio.fail_after(30):
            with suppress(ProviderError):
                assert all(model.name for model in await provider.list_models())
        await provider.aclose()


@pytest.mark.parametrize("name", ["openai", "anthropic"])
async def test_a_wait_may_be_told_in_milliseconds(name: str) -> None:
    async with serving(name) as vendor:
        body = b'{"error": {"message": "slow down"}}'
        wait = {"Retry-After-Ms": "20500"}
        vendor.answers([body], status=429, kind=JSON, headers=wait)
        found = await vendor.failure()
        assert isinstance(found, ProviderBusy)
        assert found.retry_after == 21
        both = {"Retry-After": "30", "Retry-After-Ms": "odd"}
        vendor.answers([body], status=429, kind=JSON, headers=both)
        found = await vendor.failure()
        assert isinstance(found, ProviderBusy)
        assert found.retry_after == 30


@pytest.mark.parametrize("then", ["reset", "drop"])
async def test_a_connection_without_a_response_is_tried_once_more(then: str) -> None:
    """A server that closes a kept connection may do so when the next request has been sent."""
    async with serving("openai") as vendor:
        assert isinstance(vendor, OpenAI)
        vendor.answers([], then=then)
        vendor.answers([vendor.reply("Yes")])
        assert (await vendor.ask())[0] == ContentDelta("Yes")
        vendor.answers([], then=then)
        vendor.answers([], then=then)
        assert type(await vendor.failure()) is ProviderUnreachable
        assert len(vendor.fake.paths) == 4
