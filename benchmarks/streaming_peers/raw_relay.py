"""Peer (a): the least a correct relay can be. Raw ASGI, aiohttp, orjson, no framework.

It does the same job, whole turns: the question is on disk before the model is asked, the answer
before the stream ends; each write is a temporary file, fsync and rename, in a thread.
"""

import asyncio
import os
import uuid
from datetime import datetime, timezone
from pathlib import Path

import aiohttp
import orjson

UPSTREAM = os.environ["BENCH_UPSTREAM"]
FOLDER = Path(os.environ["BENCH_FOLDER"])
HEADERS = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
http: aiohttp.ClientSession


def now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="microseconds")


def read(session: str) -> dict:
    return orjson.loads((FOLDER / f"{session}.json").read_bytes())


def write(session: dict) -> None:
    """Durable and never torn."""
    path = FOLDER / f"{session['metadata']['session_id']}.json"
    temporary = path.with_suffix(".tmp")
    with temporary.open("wb") as file:
        file.write(orjson.dumps(session, option=orjson.OPT_INDENT_2))
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def begin(name: str, message: str) -> dict:
    session = read(name)
    append(session, {"role": "user", "content": message})
    return session


def append(session: dict, message: dict) -> None:
    session["messages"].append({**message, "message_id": uuid.uuid4().hex[:10], "timestamp": now()})
    session["metadata"]["message_count"] = len(session["messages"])
    session["metadata"]["updated_at"] = now()
    write(session)


async def body_of(receive) -> dict:
    body, more = b"", True
    while more:
        event = await receive()
        body += event.get("body", b"")
        more = event.get("more_body", False)
    return orjson.loads(body)


async def create(receive, send) -> None:
    request = await body_of(receive)
    name = uuid.uuid4().hex[:10]
    metadata = {
        "session_id": name,
        "model": request["model"],
        "created_at": now(),
        "updated_at": now(),
        "message_count": 0,
        "format_version": "1.3",
    }
    await asyncio.to_thread(write, {"metadata": metadata, "messages": []})
    body = orjson.dumps({"session_id": name})
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 201, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def frame(number: int, event: bytes, data: dict) -> bytes:
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (number, event, orjson.dumps(data))


async def chat(name: str, receive, send) -> None:
    request = await body_of(receive)
    session = await asyncio.to_thread(begin, name, request["message"])
    model = session["metadata"]["model"]
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    messages = [{"role": m["role"], "content": m["content"]} for m in session["messages"]]
    ask = {"model": model, "messages": messages, "stream": True}
    parts: list[str] = []
    final: dict = {}
    number, rest = 0, b""
    async with http.post(f"{UPSTREAM}/api/chat", data=orjson.dumps(ask)) as reply:
        reply.raise_for_status()
        async for data in reply.content.iter_any():
            *lines, rest = (rest + data).split(b"\n")
            frames = []
            for line in lines:
                chunk = orjson.loads(line)
                if chunk["done"]:
                    final = chunk
                    continue
                text = chunk["message"]["content"]
                parts.append(text)
                number += 1
                content = {"content": text, "role": "assistant"}
                frames.append(frame(number, b"content_delta", content))
            if frames:
                body = b"".join(frames)
                await send({"type": "http.response.body", "body": body, "more_body": True})
    counts = {key: final[key] for key in ("eval_count", "prompt_eval_count")}
    message = {"role": "assistant", "content": "".join(parts), "model": model, **counts}
    await asyncio.to_thread(append, session, message)
    body = frame(number + 1, b"message_complete", {"model": model, **counts})
    body += frame(number + 2, b"done", {"session_id": name})
    await send({"type": "http.response.body", "body": body})


async def lifespan(receive, send) -> None:
    global http  # noqa: PLW0603
    await receive()
    http = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
    )
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await http.close()
    await send({"type": "lifespan.shutdown.complete"})


async def app(scope, receive, send) -> None:
    """Two routes: create a session, stream a turn."""
    if scope["type"] == "lifespan":
        return await lifespan(receive, send)
    path = scope["path"].split("/")
    if path[3] == "sessions":
        return await create(receive, send)
    return await chat(path[4], receive, send)
