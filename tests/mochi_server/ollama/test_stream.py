"""The stream of a reply, over a real socket and without one: framing, limits, drops, closing."""

from __future__ import annotations

import asyncio
import json
import socket
import zlib
from contextlib import aclosing
from dataclasses import replace

import anyio
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mochi_server.errors import MochiError, OllamaError, OllamaUnreachable
from mochi_server.ollama import stream as module
from mochi_server.ollama.stream import LineSplitter, ReplyReader
from mochi_server.protocol.completions import ContentDelta, Finish, ModelRequest, ThinkingDelta
from mochi_server.protocol.messages import ToolCall
from mochi_server.providers.ollama.provider import OllamaProvider
from tests.support.fake_ollama import FakeOllama
from tests.support.redis import free_port

REQUEST = ModelRequest(model="qwen3:14b", messages=[{"role": "user", "content": "hi"}])
FINAL = b'{"message":{"role":"assistant","content":""},"done":true,"done_reason":"stop"}\n'


def line(content: str, **more: object) -> bytes:
    return orjson.dumps({"message": {"content": content, **more}, "done": False}) + b"\n"


@pytest.fixture
async def provider(ollama):
    made = OllamaProvider("ollama", host=ollama.url)
    yield made
    await made.aclose()


async def collect(provider, request=REQUEST):
    return [chunk async for chunk in provider.stream(request)]


async def text_of(provider, request=REQUEST):
    chunks = await collect(provider, request)
    assert isinstance(chunks[-1], Finish)
    return "".join(chunk.content for chunk in chunks if isinstance(chunk, ContentDelta))


async def failure(provider):
    """The text before the error, and the error."""
    texts = []
    try:
        async for chunk in provider.stream(REQUEST):
            texts.append(chunk.content)  # noqa: PERF401 - those before the error count
    except MochiError as error:
        return texts, error
    pytest.fail(f"no error after {texts}")


async def test_a_message_of_several_megabytes_is_sent(provider, ollama):
    text = "word " * 500_000
    messages = [{"role": "user", "content": text}]
    ollama.add_model("large:1b", context_length=1_000_000)
    ollama.reply(["Fine."])
    request = replace(REQUEST, model="large:1b", messages=messages, num_ctx=1_000_000)
    await collect(provider, request)
    assert ollama.chats[-1]["messages"][0]["content"] == text


@pytest.mark.parametrize("size", [40_000, 4_000_000])
async def test_a_long_line_arrives_whole(ollama, provider, size):
    arguments = {"path": "a.txt", "content": "x" * size}
    calls = [{"id": "call_1", "function": {"name": "write_file", "arguments": arguments}}]
    ollama.play_raw([line("", tool_calls=calls), FINAL])
    call, _ = await collect(provider)
    assert call == ToolCall(id="call_1", name="write_file", arguments=arguments)


@pytest.mark.parametrize("sign", ["\x85", "\u2028", "\x0b", "\x0c", "\x1c", "\r"])
async def test_only_a_line_feed_ends_a_line(ollama, provider, sign):
    """Go escapes none of U+0085 and its like."""
    escaped = orjson.dumps(sign) if sign < " " else f'"{sign}"'.encode()
    ollama.play_raw([b'{"message":{"content":%b}}\n' % escaped, FINAL])
    assert await text_of(provider) == sign


async def test_repeated_indexes_and_ids_are_two_calls(ollama, provider):
    same = {"id": "call_1", "function": {"index": 0, "name": "a", "arguments": {}}}
    ollama.play_raw([line("", tool_calls=[same]), line("", tool_calls=[same]), FINAL])
    first, second, _ = await collect(provider)
    assert (first.id, first.name, second.name) == ("call_1", "a", "a")
    assert second.id not in ("", "call_1")


@pytest.mark.parametrize(
    ("last", "words"),
    [
        (b'{"error parsing tool call":"raw=x"}\n', "error parsing tool call: raw=x"),
        (b'{"error":"{\\"error\\":{\\"code\\":500,\\"message\\":\\"deep\\"}}"}\n', "deep"),
        (b'{"error":{"message":"object"}}\n', "object"),
        (b'{"error":"{broken"}\n', "{broken"),
        (b'{"error":""}\n', "Ollama answered with an error."),
        (b'{"done":false}\n', "done: False"),
        (b'{"message":"text","done":false}\n', "message: text"),
        (b'"500"\n', 'not an object: "500"'),
        (b'{"message":{"content":"cut', "ended within a line"),
        (b"", "ended without finishing"),
    ],
)
async def test_a_wrong_last_line_is_an_error_after_the_text(ollama, provider, last, words):
    ollama.play_raw([line("The"), *([last] if last else [])])
    texts, error = await failure(provider)
    assert (texts, type(error)) == (["The"], OllamaError)
    assert words in error.message
    assert error.details["incomplete"] is True


async def test_an_overflow_in_mid_stream_is_known_by_its_type(ollama, provider):
    """A text alone may be one that Ollama quotes; only with the status 400 it is its own."""
    told = "the prompt is longer than the context length currently available"
    typed = orjson.dumps({"error": {"message": told, "type": "exceed_context_size_error"}})
    for words, code in ((typed.decode(), "CONTEXT_OVERFLOW"), (told, "OLLAMA_ERROR")):
        ollama.reply(["The"], error=words)
        texts, error = await failure(provider)
        assert (texts, error.code) == (["The"], code)


async def test_a_page_of_a_proxy_is_not_ollama(ollama, provider):
    page = b"<html><body>Bad gateway</body></html>"
    ollama.play_body(page, status=502, content_type="text/html")
    _, error = await failure(provider)
    assert "does not answer as Ollama does (status 502)" in error.message
    ollama.play_body(page, content_type="text/html")
    _, error = await failure(provider)
    assert error.code == "OLLAMA_ERROR"


async def test_the_server_may_say_when_to_try_again(ollama, provider):
    ollama.play_raw(
        [b'{"error":"busy"}'],
        status=503,
        headers={"Content-Type": "application/json", "Retry-After": "17"},
    )
    _, error = await failure(provider)
    assert (error.code, error.retry_after) == ("PROVIDER_BUSY", 17)


async def test_no_server_at_the_address_is_unreachable():
    host = f"http://127.0.0.1:{free_port()}"
    provider = OllamaProvider("ollama", host=host)
    _, error = await failure(provider)
    assert (type(error), error.details) == (OllamaUnreachable, {"host": host})
    assert host in error.message
    await provider.aclose()


async def test_a_connection_that_is_not_accepted_says_how_long_it_was_waited_for():
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        address = deaf.getsockname()
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(address)
        host = f"http://127.0.0.1:{address[1]}"
        provider = OllamaProvider("ollama", host=host, connect_timeout=0.1)
        _, error = await failure(provider)
        assert error.message.endswith(" within 0.1 s.")
        await provider.aclose()
        for filler in fillers:
            filler.close()


async def test_silence_before_the_first_byte_names_the_setting(ollama):
    provider = OllamaProvider("ollama", host=ollama.url, first_byte_timeout=0.1)
    ollama.reply(["never"], gate=asyncio.Event())
    _, error = await failure(provider)
    assert type(error) is OllamaUnreachable
    assert "0.1 s (MOCHI_OLLAMA_FIRST_BYTE_TIMEOUT_SECONDS)" in error.message
    await ollama.disconnected()
    await provider.aclose()


async def test_silence_within_a_reply_names_the_setting(ollama):
    provider = OllamaProvider("ollama", host=ollama.url, idle_timeout=0.5)
    ollama.play("stall_for_ever")
    texts, error = await failure(provider)
    assert (texts, type(error)) == (["The"], OllamaUnreachable)
    assert "0.5 s (MOCHI_OLLAMA_IDLE_TIMEOUT_SECONDS)" in error.message
    assert error.details["incomplete"] is True
    await ollama.disconnected()
    await provider.aclose()


async def test_many_short_pauses_are_no_silence(ollama):
    provider = OllamaProvider("ollama", host=ollama.url, idle_timeout=5)
    ollama.reply(["x"] * 12, delay=0.5)
    assert await text_of(provider) == "x" * 12
    await provider.aclose()


async def test_a_consumer_that_takes_its_time_is_not_blamed_on_the_server(ollama):
    provider = OllamaProvider("ollama", host=ollama.url, idle_timeout=5)
    gate = asyncio.Event()
    ollama.reply(["a", "b"], gate=gate, pause_after=1)
    async with aclosing(provider.stream(REQUEST)) as chunks:
        assert (await anext(chunks)).content == "a"
        await asyncio.sleep(5.2)  # the consumer's own work, longer than the limit
        gate.set()
        assert (await anext(chunks)).content == "b"
    await provider.aclose()


async def test_closing_a_stream_without_end_closes_the_connection(ollama, provider):
    ollama.play("endless")
    async with aclosing(provider.stream(REQUEST)) as chunks:
        async for _ in chunks:
            break
    await ollama.disconnected()
    assert await text_of(provider) == "You said: hi"


async def test_cancelling_a_waiting_consumer_closes_the_connection(ollama, provider):
    ollama.reply(["never"], gate=asyncio.Event())
    task = asyncio.ensure_future(text_of(provider))
    await ollama.requested()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await ollama.disconnected()


async def test_nothing_is_sent_before_the_first_chunk_is_asked_for(ollama, provider):
    stream = provider.stream(REQUEST)
    await stream.aclose()
    assert ollama.requests == []


async def test_150_streams_at_once_all_begin(provider, ollama):
    """More than the 100 connections that HTTP clients allow by default."""
    ollama.one_at_a_time = False
    gate = asyncio.Event()
    for _ in range(150):
        ollama.reply(["a", "b"], gate=gate, pause_after=1)
    streams = [provider.stream(REQUEST) for _ in range(150)]
    with anyio.fail_after(30):
        first = await asyncio.gather(*(anext(stream) for stream in streams))
    assert first == [ContentDelta("a")] * 150
    gate.set()
    for stream in streams:
        assert [type(chunk) for chunk in [chunk async for chunk in stream]] == [
            ContentDelta,
            Finish,
        ]


async def test_a_connection_is_used_again_and_after_an_error(ollama, provider):
    ollama.play("plain", "err_busy", "plain")
    await text_of(provider)
    assert (await failure(provider))[1].code == "PROVIDER_BUSY"
    assert await text_of(provider) == "The capital of France is Paris."
    assert ollama.connections == 1


async def test_an_error_line_leaves_nothing_behind(ollama, provider):
    ollama.play("mid_error")
    await failure(provider)
    assert await text_of(provider) == "You said: hi"


def test_two_event_loops_one_after_the_other_share_a_provider():
    provider = OllamaProvider("ollama", host="http://127.0.0.1:1")

    async def talk():
        async with FakeOllama() as ollama:
            provider._transport.host = ollama.url
            text = await text_of(provider)
            await provider.aclose()
            return text

    assert asyncio.run(talk()) == asyncio.run(talk()) == "You said: hi"


async def test_a_compressed_stream_is_read(ollama, provider):
    """Not Ollama itself, but a proxy before it may compress."""
    packer = zlib.compressobj(wbits=31)
    data = packer.compress(line("Hi") + FINAL) + packer.flush()
    headers = {"Content-Type": "application/x-ndjson", "Content-Encoding": "gzip"}
    ollama.play_raw([data[:10], data[10:]], headers=headers)
    assert await text_of(provider) == "Hi"


@pytest.mark.parametrize(
    ("body", "words"),
    [(b"", "status 500"), (b"the runner is g", "the runner is g")],
)
async def test_a_refusal_that_falls_silent_is_told_with_what_came(body, words):
    head = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 100\r\n\r\n"
    gone = asyncio.Event()

    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head + body)
        while await reader.read(2**16):
            pass
        writer.close()
        gone.set()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    host = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    provider = OllamaProvider("ollama", host=host, idle_timeout=0.5)
    with anyio.fail_after(30), pytest.raises(OllamaError, match=words) as caught:
        await collect(provider)
    assert caught.value.details["status"] == 500
    with anyio.fail_after(30):
        await gone.wait()
    await provider.aclose()
    server.close()


async def test_of_an_endless_refusal_only_the_beginning_is_read(ollama, provider):
    ollama.play_raw([b"x" * 4096], status=500, end="repeat")
    with anyio.fail_after(30), pytest.raises(OllamaError, match="status 500"):
        await collect(provider)
    await ollama.disconnected()


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@st.composite
def replies(draw):
    """Chunks, and the bytes of a stream that means them; line ends as Go or a proxy makes them."""
    chunks, lines = [], []
    for number in range(draw(st.integers(0, 8))):
        kind = draw(st.sampled_from(["text", "thought", "call"]))
        text = draw(TEXT.filter(bool))
        message: dict[str, object] = {"role": "assistant", "content": ""}
        if kind == "text":
            message["content"] = text
            chunks.append(ContentDelta(text))
        elif kind == "thought":
            message["thinking"] = text
            chunks.append(ThinkingDelta(text))
        else:
            call = ToolCall(id=f"call_{number}", name="f", arguments={"x": text})
            function = {"index": 0, "name": "f", "arguments": call.arguments}
            message["tool_calls"] = [{"id": call.id, "function": function}]
            chunks.append(call)
        lines.append(json.dumps({"message": message}, ensure_ascii=draw(st.booleans())))
    lines.append('{"message":{"role":"assistant","content":""},"done":true}')
    chunks.append(Finish(reason="stop"))
    ends = draw(st.sampled_from(["\n", "\r\n", "\n\n"]))
    return chunks, (ends.join(lines) + draw(st.sampled_from(["", ends]))).encode()


def read(pieces):
    reader = ReplyReader("m")
    chunks = []
    for piece in pieces:
        chunks += reader.feed(piece)
    if not reader.finished:
        chunks += reader.close()
    assert reader.error is None
    return chunks


def cut(data, places):
    at = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[at[i] : at[i + 1]] for i in range(len(at) - 1)]


@given(replies(), st.lists(st.integers(0, 10_000), max_size=30))
def test_how_the_bytes_are_cut_does_not_matter(reply, places):
    chunks, data = reply
    assert read(cut(data, places)) == chunks


@given(st.binary(max_size=300), st.lists(st.integers(0, 10_000), max_size=30))
def test_lines_end_at_line_feeds_only(data, places):
    splitter = LineSplitter()
    lines = [line for piece in cut(data, places) for line in splitter.feed(piece)]
    assert [*lines, splitter.rest()] == data.split(b"\n")
    assert splitter.pending == len(splitter.rest())


@given(st.lists(st.binary(max_size=60), max_size=10))
def test_no_bytes_make_it_raise(pieces):
    reader = ReplyReader("m")
    for piece in pieces:
        reader.feed(piece)
        if reader.finished or reader.error:
            return
    reader.close()
    assert reader.finished or isinstance(reader.error, OllamaError)


LEAVES = st.none() | st.booleans() | st.integers() | TEXT
FIELDS = st.sampled_from(
    ["message", "error", "done", "content", "thinking", "tool_calls", "function", "name", "id"]
)
JSON = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner), max_leaves=8
)


@given(JSON)
@settings(max_examples=60)
def test_no_json_makes_it_raise(value):
    reader = ReplyReader("m")
    chunks = reader.feed(json.dumps(value).encode() + b"\n")
    assert reader.error or all(
        isinstance(chunk, (ContentDelta, ThinkingDelta, ToolCall, Finish)) for chunk in chunks
    )


def test_a_line_without_end_is_given_up(monkeypatch):
    monkeypatch.setattr(module, "MAX_LINE", 1000)
    reader = ReplyReader("m")
    for _ in range(11):
        reader.feed(b"x" * 100)
    assert "more than 1000 bytes" in str(reader.error)


@pytest.mark.parametrize("levels", [101, 260, 900])
def test_arguments_nested_without_end_are_replaced(levels):
    """They could be neither stored nor sent; the call is still answered."""
    deep = "[" * levels + "]" * levels
    call = f'{{"function":{{"name":"f","arguments":{{"x":{deep}}}}}}}'
    chunks = read([f'{{"message":{{"tool_calls":[{call}]}},"done":true}}\n'.encode()])
    assert chunks[0].arguments == {"input": "(nested more than 100 levels deep)"}


@pytest.mark.parametrize("as_text", [False, True])
def test_arguments_of_too_many_values_are_replaced(as_text):
    """To read, compare and store them would keep all others waiting."""
    arguments = {"x": [{}] * 10_001}
    told = json.dumps(arguments) if as_text else arguments
    line = json.dumps({"message": {"tool_calls": [{"function": {"name": "f", "arguments": told}}]}})
    call = read([line.encode(), b'\n{"message":{},"done":true}\n'])[0]
    assert call.arguments == {"input": "(more than 10,000 values)"}


def test_a_line_of_too_many_values_is_not_parsed():
    """The interpreter would do nothing else meanwhile."""
    reader = ReplyReader("m")
    line = b'{"message":{"content":"a"},"x":[' + b"{}," * 300_000 + b"1]}"
    assert reader.feed(line + b"\n") == []
    assert "more than 200000 values" in reader.error.message
