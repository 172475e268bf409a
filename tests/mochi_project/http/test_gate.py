from __future__ import annotations

import importlib
import json
import re
from urllib.parse import urljoin

import pytest

import mochi_project.urls  # noqa: F401 - wires name their paths
from mochi_project.http.gate import Gate, origin_key, split_host
from mochi_server.config import load_settings

TOKEN = "s3cret"


@pytest.fixture(autouse=True)
def _data_folder(tmp_path, monkeypatch):
    """Refused tokens are written to its audit log."""
    monkeypatch.chdir(tmp_path)


async def inner(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"inside"})


async def knock(
    *, settings=None, path="/api/v1/models", method="GET", kind="http", scheme=None, query=b"",
    server=("127.0.0.1", 8000), extensions=None, host="localhost:8000", headers=(), root_path="",
):  # fmt: skip
    """Status, JSON and headers of one request to the gate; 200 means that it went through."""
    sent = []

    async def send(message):
        sent.append(message)

    async def receive():
        raise AssertionError("the gate must not read the body")

    pairs = [(b"host", host.encode("latin-1"))] if host is not None else []
    pairs += [(name.encode(), value.encode("latin-1")) for name, value in headers]
    scope = {
        "type": kind,
        "path": path,
        "root_path": root_path,
        "scheme": scheme or ("http" if kind == "http" else "ws"),
        "query_string": query,
        "server": server,
        "headers": pairs,
    }
    if kind == "http":
        scope["method"] = method
    if extensions is not None:
        scope["extensions"] = extensions
    gate = Gate(inner, load_settings(_env_file=None, **(settings or {})))
    await gate(scope, receive, send)
    if sent[0]["type"] == "websocket.close":
        return sent[0], None, {}
    start, body = sent
    content = body["body"]
    data = None if content == b"inside" else json.loads(content)
    return start["status"], data, dict(start["headers"])


@pytest.mark.parametrize(
    ("settings", "host", "passes"),
    [
        ({}, "localhost", True),
        ({}, "localhost:8000", True),
        ({}, "LOCALHOST:1", True),
        ({}, "localhost.", True),
        ({}, "127.0.0.1:8000", True),
        ({}, "127.8.8.8", True),
        ({}, "[::1]:8000", True),
        ({}, "evil.example", False),
        ({}, "evil.example:8000", False),
        ({}, "localhost.evil.example", False),
        ({}, "192.168.1.5", False),
        ({}, "localhost@evil.example", False),
        ({}, "localhost:80x", False),
        ({}, "[::1", False),
        ({}, "[::1]x", False),
        ({}, "[localhost]", False),
        ({}, "", False),
        ({}, None, False),
        ({}, "loc\xe4lhost", False),
        ({"allowed_hosts": ["mochi.lan"]}, "mochi.lan:8000", True),
        ({"allowed_hosts": ["mochi.lan"]}, "a.mochi.lan", False),
        ({"allowed_hosts": [".mochi.lan"]}, "a.mochi.lan", True),
        ({"allowed_hosts": [".mochi.lan"]}, "mochi.lan", True),
        ({"allowed_hosts": [".mochi.lan"]}, "evilmochi.lan", False),
        ({"allowed_hosts": ["*"]}, "anything.example", True),
        ({"host": "192.168.1.5"}, "192.168.1.5:8000", True),
        ({"host": "192.168.1.5"}, "192.168.1.6:8000", False),
        ({"host": "0.0.0.0"}, "192.168.1.5", True),
        ({"host": "::"}, "[fe80::1]:8000", True),
        ({"host": "0.0.0.0"}, "evil.example", False),
    ],
)
async def test_only_our_own_hosts_are_answered_for(settings, host, passes):
    status, body, _ = await knock(settings=settings, host=host)
    assert status == (200 if passes else 403)
    if not passes:
        assert body["error"]["code"] == "HOST_NOT_ALLOWED"


async def test_two_host_headers_are_refused():
    status, body, _ = await knock(headers=[("host", "localhost:8000")])
    assert (status, body["error"]["code"]) == (403, "HOST_NOT_ALLOWED")


async def test_the_address_that_was_connected_to_is_ours():
    status, _, _ = await knock(host="10.0.0.7:8000", server=("10.0.0.7", 8000))
    assert status == 200


CORS = {"cors_origins": ["https://app.example", "http://localhost:3000"]}


@pytest.mark.parametrize(
    ("settings", "origin", "passes"),
    [
        ({}, "http://localhost:8000", True),
        ({}, "HTTP://LOCALHOST:8000", True),
        ({}, "http://localhost", False),
        ({}, "http://localhost:3000", False),
        ({}, "https://localhost:8000", False),
        ({}, "http://127.0.0.1:8000", False),
        ({}, "https://evil.example", False),
        ({}, "null", False),
        ({}, "", False),
        ({}, "http://localhost:8000/path", False),
        ({}, "http://localhost:8000@evil.example", False),
        ({}, "file://", False),
        ({}, "chrome-extension://abc", False),
        ({}, "localhost:8000", False),
        ({}, "http://localhost:8000, http://evil.example", False),
        (CORS, "https://app.example", True),
        (CORS, "https://app.example:443", True),
        (CORS, "http://app.example", False),
        (CORS, "https://app.example.evil.example", False),
        (CORS, "http://localhost:3000", True),
        (CORS, "null", False),
    ],
)
async def test_only_same_and_allowed_origins_may_drive_the_server(settings, origin, passes):
    for kind in ("http", "websocket"):
        extensions = {"websocket.http.response": {}}
        status, body, _ = await knock(
            settings=settings, kind=kind, headers=[("origin", origin)], extensions=extensions
        )
        assert status == (200 if passes else 403)
        if not passes:
            assert body["error"]["code"] == "ORIGIN_NOT_ALLOWED"


FRAME = {"sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"}
WINDOW = {"sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
IMAGE = {"sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}


@pytest.mark.parametrize(
    ("site", "path", "more", "passes"),
    [
        ("same-origin", "/api/v1/sessions", IMAGE, True),
        ("none", "/api/v1/sessions", WINDOW, True),
        ("same-site", "/api/v1/sessions", IMAGE, False),
        ("same-site", "/api/v1/sessions", WINDOW, False),
        ("same-site", "/api/v1/docs", WINDOW, True),
        ("cross-site", "/api/v1/sessions", IMAGE, False),
        ("cross-site", "/api/v1/health", IMAGE, False),
        ("cross-site", "/api/v1/sessions", {}, False),
        ("cross-site", "/api/v1/sessions", WINDOW, False),
        ("cross-site", "/", WINDOW, True),
        ("cross-site", "/api/v1/docs", WINDOW, True),
        ("cross-site", "/api/v1/docs/", WINDOW, True),
        ("cross-site", "/api/v1/docs", FRAME, False),
        ("cross-site", "/api/v1/docs", IMAGE, False),
        ("cross-site", "/api/v1/docs/favicon.svg", IMAGE, False),
        ("cross-site, same-origin", "/api/v1/sessions", IMAGE, False),
    ],
)
async def test_a_page_of_another_site_gets_no_answer(site, path, more, passes):
    headers = [("sec-fetch-site", site), *more.items()]
    status, body, _ = await knock(path=path, headers=headers)
    assert status == (200 if passes else 403)
    if not passes:
        assert body["error"]["code"] == "ORIGIN_NOT_ALLOWED"


async def test_a_page_of_another_site_sends_nothing_by_navigation():
    for method in ("POST", "DELETE"):
        headers = [("sec-fetch-site", "cross-site"), *WINDOW.items()]
        assert (await knock(path="/api/v1/docs", method=method, headers=headers))[0] == 403


async def test_an_allowed_origin_may_be_another_site():
    headers = [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "cors")]
    allowed = [*headers, ("origin", "https://app.example")]
    assert (await knock(settings=CORS, headers=allowed))[0] == 200
    assert (await knock(settings=CORS, headers=headers))[0] == 403


async def test_two_headers_that_say_the_site_are_refused():
    headers = [("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")]
    assert (await knock(headers=headers))[0] == 403


async def test_a_refusal_is_not_taken_for_another_type():
    _, _, headers = await knock(host="evil.example")
    assert headers[b"x-content-type-options"] == b"nosniff"


async def test_a_default_port_is_the_same_as_none():
    status, _, _ = await knock(host="localhost", headers=[("origin", "http://localhost:80")])
    assert status == 200


async def test_two_origins_are_refused():
    origin = ("origin", "http://localhost:8000")
    status, body, _ = await knock(headers=[origin, origin])
    assert (status, body["error"]["code"]) == (403, "ORIGIN_NOT_ALLOWED")


@pytest.mark.parametrize(
    ("given", "passes"),
    [
        (f"Bearer {TOKEN}", True),
        (f"bearer  {TOKEN} ", True),
        (f"Basic {TOKEN}", False),
        ("Bearer wrong", False),
        (f"Bearer {TOKEN}x", False),
        ("Bearer ", False),
        (TOKEN, False),
        ("Bearer \xe4", False),
        (None, False),
    ],
)
async def test_the_token_is_asked_for(given, passes):
    headers = [("authorization", given)] if given is not None else []
    status, body, sent = await knock(settings={"api_token": TOKEN}, headers=headers)
    assert status == (200 if passes else 401)
    if not passes:
        assert body["error"]["code"] == "UNAUTHORIZED"
        assert sent[b"www-authenticate"].startswith(b"Bearer")
        assert TOKEN not in json.dumps(body)


@pytest.mark.parametrize(
    ("name", "is_anthropics"),
    [("authorization", False), ("x-api-key", True), ("anthropic-version", True)],
)
async def test_on_a_path_of_two_vendors_the_headers_tell_whose_error_it_is(name, is_anthropics):
    importlib.import_module("mochi_project.urls")  # the wires say how their errors look
    for path in ("/v1/models", "/v1/models/lorem"):
        settings = {"api_token": TOKEN}
        status, body, _ = await knock(settings=settings, path=path, headers=[(name, "wrong")])
        assert status == 401
        assert (body.get("type") == "error") is is_anthropics
        assert body["error"]["type"] == "authentication_error"


async def test_health_needs_no_token_and_its_neighbours_do():
    settings = {"api_token": TOKEN}
    assert (await knock(settings=settings, path="/api/v1/health"))[0] == 200
    for path in ("/api/v1/health/x", "/api/v1/docs/x", "/api/v1/openapi", "/api/v1", "/nowhere"):
        assert (await knock(settings=settings, path=path))[0] == 401


async def test_health_needs_no_token_where_the_application_is_mounted():
    settings = {"api_token": TOKEN}
    for root, path, status in (
        ("/mochi", "/mochi/api/v1/health", 200),
        ("/mochi", "/mochi/api/v1/sessions", 401),
        ("/mochi", "/other/api/v1/health", 401),
        ("", "/mochi/api/v1/health", 401),
    ):
        assert (await knock(settings=settings, path=path, root_path=root))[0] == status


async def test_a_socket_may_show_its_token_in_the_query_and_a_request_may_not():
    settings = {"api_token": TOKEN}
    query = f"token={TOKEN}".encode()
    extensions = {"websocket.http.response": {}}
    common = {"settings": settings, "extensions": extensions}
    assert (await knock(kind="websocket", query=query, **common))[0] == 200
    assert (await knock(kind="websocket", query=b"token=wrong", **common))[0] == 401
    assert (await knock(kind="websocket", query=b"token=%ff", **common))[0] == 401
    assert (await knock(kind="http", query=query, **common))[0] == 401


async def test_a_refused_socket_is_closed_where_no_answer_can_be_given():
    message, _, _ = await knock(kind="websocket", headers=[("origin", "https://evil.example")])
    assert message == {"type": "websocket.close", "code": 1008, "reason": "ORIGIN_NOT_ALLOWED"}


async def test_a_preflight_of_an_allowed_origin_needs_no_token():
    asks = ("access-control-request-method", "POST")
    allowed = ("origin", "https://app.example")
    settings = {**CORS, "api_token": TOKEN}
    assert (await knock(settings=settings, method="OPTIONS", headers=[allowed, asks]))[0] == 200
    assert (await knock(settings=settings, method="OPTIONS", headers=[allowed]))[0] == 401
    assert (await knock(settings=settings, method="POST", headers=[allowed, asks]))[0] == 401
    assert (await knock(settings=settings, method="OPTIONS", headers=[asks]))[0] == 401
    evil = ("origin", "https://evil.example")
    assert (await knock(settings=settings, method="OPTIONS", headers=[evil, asks]))[0] == 403


async def test_an_allowed_page_can_read_why_it_was_refused():
    settings = {**CORS, "api_token": TOKEN}
    status, _, headers = await knock(settings=settings, headers=[("origin", "https://app.example")])
    assert status == 401
    assert headers[b"access-control-allow-origin"] == b"https://app.example"
    assert headers[b"vary"] == b"origin"


async def test_a_foreign_page_is_not_told_that_it_may_read():
    _, _, headers = await knock(settings=CORS, headers=[("origin", "https://evil.example")])
    assert b"access-control-allow-origin" not in headers


@pytest.mark.parametrize(
    ("length", "passes"), [("1000000", True), ("1000001", False), ("9" * 60, False), ("x", True)]
)
async def test_a_body_that_is_too_large_is_refused_unread(length, passes):
    status, body, headers = await knock(
        settings={"max_body_mb": 1}, method="POST", headers=[("content-length", length)]
    )
    assert status == (200 if passes else 413)
    if not passes:
        assert body["error"]["code"] == "PAYLOAD_TOO_LARGE"
        assert headers[b"connection"] == b"close"


@pytest.mark.parametrize(
    ("path", "length", "limit"),
    [
        ("/v1/chat/completions", 32 * 10**6, None),
        ("/v1/messages", 32 * 10**6 + 1, 32),
        ("/api/v1/sessions", 10 * 10**6 + 1, 10),
        ("/api/v1/sessions/import", 10**9, None),
        ("/api/v1/sessions/import/", 10**9 + 1, 1000),
    ],
)
async def test_a_body_with_a_whole_history_may_be_larger(path, length, limit):
    status, body, _ = await knock(
        path=path, method="POST", headers=[("content-length", str(length))]
    )
    assert status == (200 if limit is None else 413)
    if limit is not None:
        assert body["error"]["message"] == f"The request body is larger than {limit} MB."


async def test_a_query_of_odd_bytes_is_refused():
    status, body, _ = await knock(query=b"limit=\xff")
    assert (status, body["error"]["code"]) == (422, "VALIDATION_ERROR")


async def test_the_page_of_the_documentation_opens_without_the_token(server_of):
    async with server_of(api_token=TOKEN) as server:
        for place in ("/api/v1/docs", "/api/v1/docs/"):
            async with server.http.get(server.url + place) as page:
                assert page.status == 200
                text = await page.text()
            (settings,) = re.findall(r'id="swagger-settings">(.*?)</script>', text)
            links = [*re.findall(r'(?:src|href)="([^"]+)"', text), json.loads(settings)["url"]]
            for link in links:
                async with server.http.get(urljoin(server.url + place, link)) as part:
                    assert part.status == 200, link
        for path in ("/sessions", "/docs/nothing.js", "/docs/../sessions", "/models", "/openapi"):
            assert (await server.get(path))[0] == 401, path


async def test_lifespan_passes_the_gate():
    seen = []

    async def app(scope, receive, send):
        seen.append(scope["type"])

    await Gate(app, load_settings(_env_file=None))({"type": "lifespan"}, None, None)
    assert seen == ["lifespan"]


def test_hosts_and_origins_are_compared_by_their_parts():
    assert split_host("Example.COM:80") == ("example.com", "80")
    assert split_host("[::1]") == ("::1", "")
    assert split_host("a b") is None
    assert origin_key("https://a.example") == origin_key("https://A.example:443")
    assert origin_key("http://a.example") != origin_key("https://a.example")
