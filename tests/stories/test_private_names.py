"""The private names of other packages that we use; a version without one needs another way."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import Any

import ollama
import pytest
from django.core.handlers.base import BaseHandler
from django.http import HttpRequest
from ollama import _utils
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from mochi_server.ollama.async_client import _Instructor
from mochi_server.providers.vendor import drop_environment_headers

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
        ("uvicorn", WebSocketsSansIOProtocol, "handle_parser_exception"),
        ("uvicorn", WebSocketsSansIOProtocol, "keepalive_timeout"),
        ("uvicorn", WebSocketsSansIOProtocol, "send_keepalive_ping"),
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


# Private names of other packages, each with the version that it was seen in


@pytest.mark.parametrize(
    ("package", "client", "seen"),
    [("openai", "AsyncOpenAI", "3.54.0"), ("anthropic", "AsyncAnthropic", "2.12.0")],
)
def test_the_headers_of_an_sdk_can_be_replaced(
    monkeypatch: Any, package: str, client: str, seen: str
) -> None:
    monkeypatch.setenv(f"{package.upper()}_CUSTOM_HEADERS", "X-Secret: 1")
    made = getattr(import_module(package), client)(api_key="key")
    where = f"_custom_headers was seen in {package} {seen}; this is {version(package)}"
    assert made._custom_headers == {"X-Secret": "1"}, where
    drop_environment_headers(made, {"X-Own": "2"})
    assert "X-Secret" not in made.default_headers, where
    assert made.default_headers["X-Own"] == "2", where


def test_every_request_of_the_library_of_ollama_goes_through_one_method() -> None:
    where = f"_request was seen in ollama 0.6.3; this is {version('ollama')}"
    assert "_request" in vars(ollama.AsyncClient), where
    assert "_request" in vars(_Instructor), where
    assert "_request" in ollama.AsyncClient.chat.__code__.co_names, where


def test_a_function_can_be_described_as_the_library_of_ollama_does() -> None:
    def add(x: int, y: int = 1) -> int:
        """Add two numbers.

        Args:
            x: The first one.
            y: The second one.
        """
        return x + y

    where = f"_utils was seen in ollama 0.6.3; this is {version('ollama')}"
    function = _utils.convert_function_to_tool(add).function
    assert function is not None, where
    assert (function.name, function.description) == ("add", "Add two numbers.")
    assert function.parameters is not None
    assert function.parameters.properties is not None
    assert function.parameters.properties["x"].description == "The first one."
