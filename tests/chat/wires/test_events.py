"""The stream as it is on the wire of a real server: headers, frames, heartbeats, errors."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
import pytest_asyncio

from chat.wires.events import encode
from chat.wires.socket.frames import RunEncoder
from mochi_server.protocol.events import ContentDelta, ThinkingDelta
from tests.support.raw import RawClient, events_of, frames_of
from tests.support.site import Site, running_site

pytestmark = pytest.mark.asyncio(loop_scope="module")

FRAME = re.compile(r"id: (\d+)\nevent: ([a-z_]+)\ndata: (.*)")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    folder = tmp_path_factory.mktemp("frames")
    async with running_site(folder, one_at_a_time=False, heartbeat_seconds=0.1) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def site(shared: Site) -> AsyncIterator[Site]:
    async with shared.lent():
        yield shared
    assert "ASGI callable" not in shared.server.log, shared.server.log


async def stream(site: Site, session: str, body: Any = None, **headers: str) -> Any:
    """Status, headers and the whole answer of the stream route."""
    path = f"{site.server.api}/chat/{session}/stream"
    async with site.server.http.post(path, json=body or {}, headers=headers) as response:
        return response.status, response.headers, (await response.read()).decode()


@pytest.mark.parametrize(
    "delta", [ContentDelta('one "two"\n'), ThinkingDelta("%b \u2028 \U0001f600")]
)
async def test_the_data_of_a_delta_is_the_same_in_every_stream_of_ours(delta: Any) -> None:
    """Deltas are encoded without calling ``payload`` for each."""
    number, kind, data = encode(7, delta).decode().rstrip().split("\n")
    assert (number, kind) == ("id: 7", f"event: {delta.type}")
    assert json.loads(data.removeprefix("data: ")) == delta.payload()
    frame = json.loads(RunEncoder("run_1")(7, delta))
    assert frame == {"event": delta.type, "data": delta.payload(), "run_id": "run_1", "id": 7}


async def test_every_frame_has_the_documented_form(site: Site) -> None:
    """Retry first; then id, event and one line of data; ids grow; exactly one done, and last."""
    site.ollama.play("tool_two")
    site.ollama.reply(["Line one\n\nline", " two\r\n", "data: not a field"])
    session = await site.server.new_session()
    status, _, text = await stream(site, session, {"message": "Go."})
    assert status == 200
    retry, *frames = frames_of(text)
    assert retry == "retry: 3000"
    matches = [FRAME.fullmatch(frame) for frame in frames if not frame.startswith(":")]
    assert all(matches), frames
    numbers = [int(match[1]) for match in matches if match]
    assert numbers == sorted(set(numbers))
    kinds = [match[2] for match in matches if match]
    assert kinds.count("done") == 1
    assert kinds[-2:] == ["message_complete", "done"]
    data = [json.loads(match[3]) for match in matches if match]
    text = "".join(
        d["content"] for d, kind in zip(data, kinds, strict=True) if kind == "content_delta"
    )
    assert text == "Line one\n\nline two\r\ndata: not a field"
    assert data[-1] == {"session_id": session}


@pytest.mark.parametrize("accept", ["*/*", "application/json", "text/event-stream", "image/png"])
async def test_headers_keep_caches_proxies_and_compression_away(site: Site, accept: str) -> None:
    """The same for every ``Accept`` and ``Accept-Encoding``."""
    session = await site.server.new_session()
    status, headers, text = await stream(
        site, session, {"message": "Hi"}, Accept=accept, **{"Accept-Encoding": "gzip, br"}
    )
    assert status == 200
    assert headers["Content-Type"].startswith("text/event-stream")
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Accel-Buffering"] == "no"
    assert headers["Content-Encoding"] == "identity"
    assert "Content-Length" not in headers
    assert events_of(text)[-1].event == "done"


async def test_silence_is_filled_with_heartbeats(site: Site) -> None:
    """Also before the first token, and without an event of their own."""
    gate = asyncio.Event()
    site.ollama.reply(["At last."], gate=gate)
    session = await site.server.new_session()
    client = await RawClient.post(
        site.server.url, f"/chat/{session}/stream", {"message": "Hi"}, Connection="close"
    )
    status, _ = await client.head()
    assert status == 200
    got = b""
    with anyio.fail_after(30):
        while got.count(b": ping\n\n") < 3:
            got += await client.reader.read(1000)
    gate.set()
    got += await client.rest()
    client.hang_up()
    assert b"event: ping" not in got
    assert b"At last." in got
    assert b"event: done" in got


async def test_a_stream_that_speaks_carries_no_heartbeats(site: Site) -> None:
    """The heartbeat counts silence, not time."""
    reply = site.ollama.reply([f"{n} " for n in range(100)], delay=0.02)
    session = await site.server.new_session()
    clock = asyncio.get_running_loop().time
    times = [clock()]
    _, _, text = await stream(site, session, {"message": "Hi"})
    times += [*reply.sent, clock()]
    # Twenty would be due in all, and one for each 0.1 s in which this busy process sent nothing.
    silences = [after - before for before, after in itertools.pairwise(times)]
    due = sum(silence for silence in silences if silence > 0.1) / 0.1
    assert text.count(": ping") < 10 + due
    text = "".join(e.data["content"] for e in events_of(text) if e.event == "content_delta")
    assert text == "".join(f"{n} " for n in range(100))


async def test_an_error_after_the_first_byte_is_an_event_and_done_follows(site: Site) -> None:
    """With the code that the plain answer has."""
    for fixture, code in (("mid_error", "OLLAMA_ERROR"), ("err_busy", "PROVIDER_BUSY")):
        site.ollama.play(fixture, fixture)
        session = await site.server.new_session()
        _, _, text = await stream(site, session, {"message": "Hi"})
        events = events_of(text)
        assert [event.event for event in events][-2:] == ["error", "done"]
        assert [event.event for event in events].count("done") == 1
        assert events[-2].data["code"] == code
        status, answer = await site.server.post(f"/chat/{session}", {"message": "Hi"})
        assert status in {502, 503}
        assert answer["error"]["code"] == code
        assert answer["error"]["message"] == events[-2].data["message"]


async def test_every_character_arrives_as_it_was_sent(site: Site) -> None:
    """Emoji split over chunks, line separators, control characters, both directions."""
    odd = '\u2028 \u2029 \x85 \x00 \x1f \ufeff \u202e 👩‍👩‍👧 \U0010ffff \\ " </script> \r\n\n'
    family = "👩‍👩‍👧".encode()
    lines = [
        b'{"model":"qwen3:14b","message":{"role":"assistant","content":"',
        family[:3],
        family[3:9],
        family[9:] + b'"},"done":false}\n',
        json.dumps({"message": {"content": odd}, "done": False}, ensure_ascii=False).encode(),
        b"\n",
        b'{"message":{"content":""},"done":true,"done_reason":"stop"}\n',
    ]
    site.ollama.play_raw(lines, delay_ms=2)
    session = await site.server.new_session()
    _, _, text = await stream(site, session, {"message": odd})
    text = "".join(e.data["content"] for e in events_of(text) if e.event == "content_delta")
    assert text == "👩‍👩‍👧" + odd
    stored = site.stored(session)
    assert [m["content"] for m in stored] == [odd, text]
    assert site.ollama.chats[-1]["messages"][-1]["content"] == odd
    _, answer = await site.server.get(f"/sessions/{session}/messages")
    assert odd in str(answer) or any(
        odd in str(m.get("content")) for m in answer.get("messages", [])
    )


async def test_a_hundred_streams_at_once_all_complete(site: Site) -> None:
    """Each with its own text, in one process."""
    sessions = await asyncio.gather(*(site.server.new_session() for _ in range(100)))

    async def one(session: str) -> str:
        _, _, text = await stream(site, session, {"message": f"I am {session}"})
        events = events_of(text)
        assert events[-1].event == "done"
        return "".join(e.data["content"] for e in events if e.event == "content_delta")

    texts = await asyncio.gather(*map(one, sessions))
    assert texts == [f"You said: I am {session}" for session in sessions]
    assert all(len(site.stored(session)) == 2 for session in sessions)


async def test_streaming_and_plain_routes_store_the_same(site: Site) -> None:
    """The two routes are two ways to read one turn."""
    stored = []
    for route in ("", "/stream"):
        site.ollama.play("thinking")
        session = await site.server.new_session()
        body = {"message": "Why?", "think": True}
        async with site.server.http.post(
            f"{site.server.api}/chat/{session}{route}", json=body
        ) as response:
            assert response.status == 200
            await response.read()
        keep = ("role", "content", "thinking", "model", "eval_count", "prompt_eval_count")
        stored.append([{k: m.get(k) for k in keep} for m in site.stored(session)])
    assert stored[0] == stored[1]
    assert stored[0][1]["thinking"]
