"""Who may let the server start programs."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import pytest
from django.core.handlers.asgi import ASGIRequest
from pydantic import SecretStr

from mochi_project.http.local import check_may_start_programs
from mochi_server.errors import InvalidRequest, McpChangeNotAllowed

JSON = {"content-type": "application/json"}


def request(client: str | None, host: str, **headers: str) -> ASGIRequest:
    named = {"host": host, **JSON, **headers}
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/",
        "headers": [
            (name.replace("_", "-").encode(), value.encode()) for name, value in named.items()
        ],
        "client": None if client is None else (client, 1),
    }
    return ASGIRequest(scope, BytesIO())


@pytest.mark.parametrize(
    ("client", "host"),
    [
        ("127.0.0.1", "localhost:8000"),
        ("127.0.0.1", "127.0.0.1"),
        ("127.8.8.8", "LOCALHOST"),
        ("::1", "[::1]:8000"),
    ],
)
def test_this_machine_may(mochi: Any, client: str, host: str) -> None:
    check_may_start_programs(request(client, host))


@pytest.mark.parametrize(
    ("client", "host", "headers"),
    [
        ("192.168.1.5", "localhost", {}),
        ("", "localhost", {}),
        (None, "localhost", {}),
        ("localhost", "localhost", {}),
        ("127.0.0.1", "evil.example", {}),
        ("127.0.0.1", "localhost.evil.example", {}),
        ("127.0.0.1", "192.168.1.4", {}),
        ("127.0.0.1", "0.0.0.0", {}),
        ("127.0.0.1", "", {}),
        ("127.0.0.1", "localhost", {"x_forwarded_for": "127.0.0.1"}),
        ("127.0.0.1", "localhost", {"forwarded": "for=192.168.1.5"}),
        ("127.0.0.1", "localhost", {"via": "1.1 proxy"}),
        ("127.0.0.1", "localhost", {"x_forwarded_proto": "https"}),
    ],
)
def test_nobody_else_may_without_a_token(
    mochi: Any, client: str | None, host: str, headers: dict[str, str]
) -> None:
    with pytest.raises(McpChangeNotAllowed):
        check_may_start_programs(request(client, host, **headers))


def test_with_a_token_that_the_gate_has_checked_everybody_may(mochi: Any, settings: Any) -> None:
    settings.MOCHI = mochi.model_copy(update={"api_token": SecretStr("x")})
    check_may_start_programs(request("192.168.1.5", "mochi.example", via="1.1 proxy"))


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_a_body_that_a_form_can_send_is_refused(mochi: Any, kind: str) -> None:
    sent = request("127.0.0.1", "localhost", **{"content-type": kind})
    with pytest.raises(InvalidRequest):
        check_may_start_programs(sent)
    check_may_start_programs(sent, has_body=False)
