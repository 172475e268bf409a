from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mochi_server.server.initialise import initialise
from mochi_server.tools.folder.package import LoadedPackage, load_package
from mochi_server.tools.loading import FolderSpec


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder as ``mochi-server init`` writes it."""
    folder = tmp_path_factory.mktemp("data")
    initialise(folder)
    return folder


@pytest.fixture(scope="session")
def package(data: Path) -> Iterator[LoadedPackage]:
    loaded = load_package(FolderSpec(path=data / "tools"), generation="examples")
    yield loaded
    loaded.forget()


@pytest.fixture(scope="session")
def call(package: LoadedPackage) -> Callable[..., str]:
    """Call a tool as the server does: arguments as JSON, checked against its schema."""

    def called(name: str, /, **arguments: Any) -> str:
        tool = package.functions[name]
        result = tool.function(**tool.bind(arguments))
        assert isinstance(result, str)
        return result

    return called
