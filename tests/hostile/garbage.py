"""Hostile requests of many kinds, the same in each run."""

from __future__ import annotations

import base64
import json
from random import Random
from urllib.parse import quote

from tests.hostile.raw_http import Hostile, request
from tests.hostile.targets import (
    BODIES,
    BUSY,
    METHODS,
    NAMES,
    NOT_FOUND,
    ONE,
    ROUTES,
    WITH_BODY,
    WITH_NAME,
)

TOO_LONG = frozenset({431})
SEED = 20261122


def encodings(name: str) -> set[str]:
    """A name in the ways in which filters are passed by."""
    once = quote(name, safe="")
    dots = once.replace(".", "%2e")
    return {once, dots, quote(dots, safe=""), dots.replace("%2F", "%c0%af"), dots.upper()}


def traversals() -> list[Hostile]:
    """Every odd name in every place of a path."""
    rng = Random(SEED)
    found = []
    for method, place in WITH_NAME:
        spelt = [e for name in NAMES for e in sorted(encodings(name))]
        body = BODIES.get(method)
        statuses = NOT_FOUND | {BUSY} if ONE in place.split("/") else NOT_FOUND
        requests = [request(method, place.format(name), body) for name in rng.sample(spelt, 32)]
        found += [Hostile(data, statuses=statuses) for data in requests]
    raw = [b"/system-prompts/../../secret.md", b"/sessions/\xff\xfe", b"/sessions/%ff", b"/%zz"]
    raw += [b"/sessions/" + b"a" * 15_000, b"/sessions/./../sessions/x", b"/docs/..%5c..%5cx"]
    found += [Hostile(request("GET", path), statuses=NOT_FOUND) for path in raw]
    return [*found, Hostile(request("GET", "/sessions/" + "a" * 60_000), statuses=TOO_LONG)]


def names_in_bodies() -> list[Hostile]:
    """The same names where a body names a file or a model."""
    found = []
    for name in NAMES:
        bodies = (
            ("POST", "/system-prompts", {"filename": name, "content": "hacked"}),
            ("POST", "/sessions", {"model": "qwen3:14b", "system_prompt_source_file": name}),
            ("POST", "/sessions", {"model": name}),
            ("POST", "/sessions", {"model": f"local/{name}"}),
            ("PUT", f"/sessions/{ONE}/system-prompt", {"source_file": name}),
        )
        allowed = NOT_FOUND | {424, 502}
        for method, path, body in bodies:
            data = request(method, path, json.dumps(body).encode())
            found.append(Hostile(data, statuses=allowed))
    return found


def methods() -> list[Hostile]:
    """Every method on every route, without a body."""
    return [Hostile(request(method, path)) for path in ROUTES for method in METHODS]


def bodies() -> list[Hostile]:
    """Bodies that are hard to read."""
    deep = 100_000
    texts = [
        b"[" * deep,
        b"[" * deep + b"]" * deep,
        b'{"a":' * deep + b"1" + b"}" * deep,
        b'{"message":' + b"[" * deep,
        b"",
        b" ",
        b"null",
        b"true",
        b"[]",
        b'"text"',
        b"1e999999",
        b"9" * 100_000,
        b'{"message": ' + b"9" * 5000 + b"}",
        b'{"think": 1e400, "message": "x"}',
        b'{"message": NaN}',
        b'{"message": -Infinity}',
        b'{"message": "a", "message": 7}',
        b'{"content": 7, "content": "b", "content": null}',
        b'{"message": "\\ud800"}',
        b'{"message": "\\udc00\\ud800", "content": "\\ud800"}',
        b'{"message": "\xff\xfe"}',
        b'{"message": "\xed\xa0\x80"}',
        b"\xef\xbb\xbf{}",
        '{"message": "x"}'.encode("utf-16"),
        b'{"message": "\x00"}',
        b'{"message": "\\u0000", "content": "\\u0000"}',
        b"\x00" * 1000,
        b"{'message': 'x'}",
        b'{"message": "x"} {"message": "y"}',
        b'{"__proto__": {"x": 1}, "__class__": "x"}',
        b'{"model": "\\u0000", "system_prompt": "\\u0000"}',
        b'{"model": {"$ne": null}, "filename": ["x"], "content": {"a": 1}}',
        b'{"context_window": {"manual_override": true, "current_window": 1e308}}',
        b'{"context_window": {"manual_override": true, "current_window": ' + b"9" * 400 + b"}}",
        b'{"tool_settings": {"tools": [' + b'"a",' * 20_000 + b'"a"]}}',
        b"message=x&think=1",
    ]
    return [Hostile(request(method, path, text)) for method, path in WITH_BODY for text in texts]


def queries() -> list[Hostile]:
    """Queries of the list that do not mean anything."""
    limits = ["0", "-1", "1e3", "9" * 400, "NaN", "%00", "", "1&limit=2", "٣", "0x10", "[]", "1.0"]
    cursors = [b"", b"\x00", b"[]", b"[1]", b'["x", 7]', b"[NaN, null]", b"{}", b"-1e309", b"\xff"]
    cursors += [b"-1779000000", b"1" * 300, b'[9e999,"../../x"]', b"inf,x", b"nan,x", b"1,../x"]
    coded = [base64.urlsafe_b64encode(text).decode() for text in cursors]
    plain = [quote(text) for text in cursors]
    found = [f"/sessions?limit={limit}" for limit in limits]
    found += [f"/sessions?limit=1&cursor={cursor}" for cursor in coded + plain]
    found += [f"/sessions?limit=1&cursor={cursor.rstrip('=')}" for cursor in coded]
    found += ["/sessions?" + "a=1&" * 5000, "/sessions?%", "/sessions?limit[]=1", "/health?\xff"]
    return [Hostile(request("GET", path)) for path in found]


def heads() -> list[Hostile]:
    """Headers that contradict themselves or are too much; some never come to an end."""
    get = request("GET", "/health")
    start, rest = get.split(b"\r\n", 1)
    extras = [
        b"X-Big: " + b"a" * 100_000,
        b"\r\n".join(b"X-%d: y" % number for number in range(3000)),
        b"X-Nul: a\x00b",
        b"X Space: 1",
        b"X-Fold: 1\r\n  2",
        b"X-Bytes: \xff\xfe\x80",
        b": no name",
        b"no colon",
        b"Content-Length: -1",
        b"Content-Length: 1x",
        b"Content-Length: 99999999999999999999999",
        b"Content-Length: 0\r\nContent-Length: 5",
        b"Content-Length: 5\r\nTransfer-Encoding: chunked",
        b"Transfer-Encoding: chunked, gzip",
        b"Transfer-Encoding: \x0bchunked",
        b"Content-Encoding: gzip",
        b"Host: localhost",
        b"Host: evil.example",
        b"Origin: null",
        b"Origin: http://localhost\r\nOrigin: http://evil.example",
        b"Origin: http://[::1",
        b"Origin: http://localhost:99999999999999999999",
        b"Authorization: Bearer \xff",
        b"Cookie: " + b"a=b;" * 10_000,
        b"Accept: " + b"*/*," * 5000,
        b"Accept-Language: \xc3\x28",
        b"X-Forwarded-For: ' OR 1=1",
        b"Range: bytes=0-9999999999",
        b"Expect: 200-maybe",
        b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: x",
    ]
    found = [b"\r\n".join([start, extra, rest]) for extra in extras]
    hosts = [
        b"",
        b"[",
        b"[::1",
        b"a" * 5000,
        b"localhost:x",
        b"evil@localhost",
        b"localhost/..",
        b"\xff",
    ]
    found += [request("GET", "/health", host=host) for host in hosts]
    found.append(request("GET", "/health", host=None))
    return [Hostile(data, whole=False) for data in found]


def broken_http() -> list[Hostile]:
    """What is hardly HTTP, or another protocol."""
    body = b'{"model": "qwen3:14b"}'
    chunked = request("POST", "/sessions", headers=[b"Transfer-Encoding: chunked"])
    socket = request("GET", "/health", headers=[b"Upgrade: websocket", b"Sec-WebSocket-Key: x"])
    found = [
        b"\r\n" * 1000,
        b"GET\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET / HTTP/0.9\r\n\r\n",
        b"GET /api/v1/health HTTP/1.0\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
        b"GET  /api/v1/health  HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET api/v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET http://evil.example/api/v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET //evil.example/api/v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 200,
        b"GET /api/v1/health HTTP/1.1\nHost: localhost\n\n",
        b"GET /api/v1/\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"A" * 200_000,
        request("POST", "/sessions", body)[:-5],
        request("POST", "/sessions", body) + b"and more",
        request("POST", "/sessions", body).replace(b": 22", b": 5"),
        chunked + b"zz\r\n",
        chunked + b"-5\r\nhello\r\n0\r\n\r\n",
        chunked + b"ffffffffffffffffff\r\nhello",
        chunked + b"5\r\nhelloXX0\r\n\r\n",
        chunked + b"5;" + b"x" * 70_000 + b"\r\nhello\r\n0\r\n\r\n",
        chunked + b"16\r\n" + body + b"\r\n0\r\nTrailer: x\r\n\r\n",
        chunked + b"16\r\n" + body,
        socket,
        socket.replace(b"Connection: close", b"Connection: Upgrade"),
        socket.replace(b"Connection: close", b"Connection: Upgrade, close"),
    ]
    return [Hostile(data, whole=False) for data in found]


def random_bytes(count: int = 80) -> list[Hostile]:
    """Noise."""
    rng = Random(SEED)
    return [Hostile(rng.randbytes(rng.randrange(1, 3000)), whole=False) for _ in range(count)]


def mutations(count: int = 240) -> list[Hostile]:
    """Right requests with a few wrong bytes."""
    rng = Random(SEED)
    right = [request(method, path, b'{"message": "x"}') for method, path in WITH_BODY]
    right += [request("GET", path) for path in ROUTES]
    found = []
    for _ in range(count):
        data = bytearray(rng.choice(right))
        for _ in range(rng.randrange(1, 6)):
            _mutate(data, rng)
        found.append(Hostile(bytes(data), whole=False))
    return found


def _mutate(data: bytearray, rng: Random) -> None:
    place = rng.randrange(len(data) or 1)
    match rng.randrange(4):
        case 0:
            data[place : place + 1] = rng.randbytes(1)
        case 1:
            del data[place : place + rng.randrange(1, 8)]
        case 2:
            data[place:place] = rng.choice([b"\r\n", b"\x00", b" ", b":", b"%", b"\xff" * 9])
        case _:
            data[place:place] = data[place : place + rng.randrange(1, 40)]
