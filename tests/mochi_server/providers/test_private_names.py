"""Private names of other packages, each with the version that it was seen in.

A new version without the name fails here first: look for another way to do the same.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import Any

import ollama
import pytest
from ollama import _utils

from mochi_server.ollama.async_client import _Instructor
from mochi_server.providers.vendor import drop_environment_headers


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
