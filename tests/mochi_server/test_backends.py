"""One table of backends for the library and for its Django face."""

from __future__ import annotations

from pathlib import Path

import pytest

from mochi_project.runtime import ProviderHandler, StorageHandler
from mochi_server import Runtime
from mochi_server.backends import (
    NotABackend,
    build_provider,
    build_storage,
    default_providers,
    default_storages,
)
from mochi_server.config import load_settings
from mochi_server.sessions import JSONFileStorage, MemoryStorage
from mochi_server.testmode.provider import ScriptedProvider

MEMORY = {"BACKEND": "mochi_server.sessions.storage.memory.MemoryStorage"}


@pytest.mark.parametrize("storage", ["json", "memory"])
async def test_the_library_and_the_face_build_the_same(tmp_path: Path, storage: str) -> None:
    settings = load_settings(data_dir=tmp_path, session_storage=storage)
    runtime = Runtime(settings)
    providers = ProviderHandler(default_providers(settings))
    storages = StorageHandler(default_storages(settings))

    assert runtime.providers.all_aliases == list(providers)
    for alias in providers:
        mine, theirs = runtime.providers.get(alias), providers[alias]
        assert (type(mine), mine.describe()) == (type(theirs), theirs.describe())
    for manager, alias in ((runtime.sessions, "default"), (runtime.agent_sessions, "agent_chats")):
        kind = JSONFileStorage if storage == "json" else MemoryStorage
        assert type(manager.storage) is type(storages[alias]) is kind
        if storage == "json":
            assert repr(manager.storage) == repr(storages[alias])
    await runtime.aclose()


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("", "not the dotted path"),
        ("nowhere", "not the dotted path"),
        ("no.such.Module", "cannot be imported"),
        ("mochi_server.errors.NoSuch", "is not a Provider"),
        ("math.pi", "is not a Provider"),
        (MEMORY["BACKEND"], "is not a Provider"),
    ],
)
def test_what_is_no_backend_is_named(path: str, why: str) -> None:
    with pytest.raises(NotABackend, match=why):
        build_provider("x", {"BACKEND": path})


def test_options_are_optional(tmp_path: Path) -> None:
    assert isinstance(build_storage(MEMORY), MemoryStorage)
    files = {
        "BACKEND": "mochi_server.sessions.storage.json_files.JSONFileStorage",
        "OPTIONS": {"folder": tmp_path},
    }
    built = build_storage(files)
    assert isinstance(built, JSONFileStorage)
    assert built.folder == tmp_path


class FailingProvider(ScriptedProvider):
    """A provider of somebody's that cannot even end."""

    async def aclose(self) -> None:
        """Fail."""
        raise OSError("It broke.")


class NotingStorage(MemoryStorage):
    """A storage of somebody's that knows whether it was closed."""

    closed = False

    async def aclose(self) -> None:
        """Note it."""
        self.closed = True


async def test_a_part_that_cannot_be_closed_keeps_no_other_open(tmp_path: Path) -> None:
    storages = {"default": NotingStorage(), "agent_chats": NotingStorage()}
    runtime = Runtime(
        load_settings(data_dir=tmp_path, session_storage="memory"),
        providers={"test": FailingProvider("test")},
        storages=storages,
    )
    with pytest.raises(OSError, match=r"It broke\."):
        await runtime.aclose()
    assert [storage.closed for storage in storages.values()] == [True, True]
