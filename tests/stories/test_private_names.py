"""The private names of other packages that we use; a version without one needs another way."""

from __future__ import annotations

from importlib.metadata import version

import pytest
from django.core.handlers.base import BaseHandler
from django.http import HttpRequest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

SEEN = {"django": "5.2", "uvicorn": "0.54"}


@pytest.mark.parametrize(
    ("package", "owner", "name"),
    [
        ("django", BaseHandler, "_middleware_chain"),
        ("uvicorn", HttpToolsProtocol, "data_received"),
        ("uvicorn", HttpToolsProtocol, "handle_websocket_upgrade"),
        ("uvicorn", HttpToolsProtocol, "on_response_complete"),
        ("uvicorn", HttpToolsProtocol, "on_message_begin"),
        ("uvicorn", HttpToolsProtocol, "on_headers_complete"),
        ("uvicorn", HttpToolsProtocol, "on_message_complete"),
        ("uvicorn", HttpToolsProtocol, "send_400_response"),
        ("uvicorn", WebSocketsSansIOProtocol, "keepalive_timeout"),
        ("uvicorn", WebSocketsSansIOProtocol, "shutdown"),
    ],
)
def test_the_name_is_there(package: str, owner: object, name: str) -> None:
    assert hasattr(owner, name), f"seen in {package} {SEEN[package]}, gone in {version(package)}"


def test_the_body_of_a_request_is_where_it_is_released() -> None:
    names = HttpRequest.body.fget.__code__.co_names
    assert {"_stream", "_body"} <= set(names), f"seen in django {SEEN['django']}"


def test_the_transport_of_a_connection_is_where_it_is_dropped() -> None:
    names = RequestResponseCycle.__init__.__code__.co_varnames
    assert "transport" in names, f"seen in uvicorn {SEEN['uvicorn']}, gone in {version('uvicorn')}"
