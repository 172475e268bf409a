"""Backends, runtime and checks."""

from __future__ import annotations

import os

import pytest
from django.core.checks import run_checks

from mochi_project.runtime import (
    InvalidBackend,
    ProviderHandler,
    StorageHandler,
    forget_runtime,
    get_runtime,
    shared_problems,
)
from mochi_server.backends import default_storages
from mochi_server.chat.confirmations.state import StateConfirmationStore
from mochi_server.config import load_settings
from mochi_server.sessions.storage.json_files import JSONFileStorage
from mochi_server.sessions.storage.memory import MemoryStorage
from tests.support.tools import function, noting, write_tools

MEMORY = "mochi_server.sessions.storage.memory.MemoryStorage"


def ids():
    return {message.id for message in run_checks()}


def test_an_alias_is_built_once(mochi):
    storages = StorageHandler()
    assert isinstance(storages["default"], JSONFileStorage)
    assert storages["default"] is storages["default"]
    assert storages["default"] is not storages["agent_chats"]
    assert set(storages) == {"default", "agent_chats"}
    assert len(storages) == 2


def test_options_reach_the_backend(mochi):
    assert ProviderHandler()["ollama"].describe().startswith(("http", "ollama", "Ollama"))
    assert ProviderHandler()["local"].alias == "local"


def test_memory_is_a_setting(settings):
    settings.MOCHI_SESSION_STORAGES = {"default": {"BACKEND": MEMORY}}
    assert isinstance(StorageHandler()["default"], MemoryStorage)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "nowhere",
        "no.such.Module",
        "mochi_server.errors.NoSuch",
        "mochi_server.errors.NotFound",
        "math.pi",
    ],
)
def test_a_backend_that_cannot_be_is_named(path):
    handler = StorageHandler({"default": {"BACKEND": path}})
    with pytest.raises(InvalidBackend, match="default"):
        _ = handler["default"]


def test_an_alias_that_is_not_there_is_a_key_error():
    with pytest.raises(KeyError):
        _ = StorageHandler({})["default"]


def test_a_changed_setting_gets_a_new_runtime(mochi, settings):
    first = get_runtime()
    assert get_runtime() is first
    settings.MOCHI_SESSION_STORAGES = {
        "default": {"BACKEND": MEMORY},
        "agent_chats": {"BACKEND": MEMORY},
    }
    second = get_runtime()
    assert second is not first
    assert isinstance(second.sessions.storage, MemoryStorage)
    settings.USE_TZ = True
    assert get_runtime() is second
    forget_runtime()


def test_good_settings_pass_the_checks(mochi):
    assert run_checks() == []


def test_a_folder_that_cannot_be_written_is_an_error(settings, tmp_path):
    (tmp_path / "file").write_text("")
    settings.MOCHI = load_settings(data_dir=tmp_path / "file" / "below")
    settings.MOCHI_SESSION_STORAGES = default_storages(settings.MOCHI)
    assert "mochi.E001" in ids()
    memory = load_settings(data_dir=tmp_path / "file", session_storage="memory")
    settings.MOCHI_SESSION_STORAGES = default_storages(memory)
    assert "mochi.E001" not in ids()


def test_only_folders_that_a_storage_writes_to_are_checked(settings, tmp_path):
    (tmp_path / "file").write_text("")
    settings.MOCHI = load_settings(data_dir=tmp_path / "data")
    storages = default_storages(settings.MOCHI)
    settings.MOCHI_SESSION_STORAGES = storages
    assert "mochi.E001" not in ids()
    storages["default"]["OPTIONS"]["folder"] = tmp_path / "file" / "of_our_own"
    assert "mochi.E001" in ids()
    storages["default"] = {"BACKEND": MEMORY}
    assert "mochi.E001" not in ids()


def test_a_wrong_backend_is_an_error(mochi, settings):
    settings.MOCHI_PROVIDERS = {"ollama": {"BACKEND": MEMORY}}
    assert ids() == {"mochi.E002"}


def test_a_missing_alias_is_an_error(mochi, settings):
    settings.MOCHI_SESSION_STORAGES = {"default": {"BACKEND": MEMORY}}
    assert ids() == {"mochi.E003"}


@pytest.mark.parametrize(
    ("host", "token", "warned"),
    [
        ("0.0.0.0", None, True),
        ("192.168.1.5", None, True),
        ("mochi.lan", None, True),
        ("0.0.0.0", "s3cret", False),
        ("127.0.0.1", None, False),
        ("localhost", None, False),
        ("::1", None, False),
    ],
)
def test_a_public_address_without_a_token_is_a_warning(settings, tmp_path, host, token, warned):
    settings.MOCHI = load_settings(host=host, api_token=token, data_dir=tmp_path)
    assert ("mochi.W002" in ids()) == warned


def test_a_prompt_that_is_too_long_is_a_warning(mochi):
    mochi.system_prompts_path.mkdir(parents=True)
    (mochi.system_prompts_path / "short.md").write_text("x" * 9_999)
    assert ids() == set()
    (mochi.system_prompts_path / "long.md").write_text("x" * 10_000)
    (mochi.system_prompts_path / "long.py").write_text("x" * 10_000)
    assert ids() == {"prompts.W001"}


def test_a_pipe_or_a_huge_file_among_the_prompts_holds_up_no_check(mochi):
    mochi.system_prompts_path.mkdir(parents=True)
    os.mkfifo(mochi.system_prompts_path / "pipe.md")
    assert ids() == set()
    with (mochi.system_prompts_path / "huge.md").open("wb") as file:
        file.truncate(50 * 1024**3)
    assert ids() == {"prompts.W001"}


# Several processes

STORE = "mochi_server.chat.confirmations.state.StateConfirmationStore"


def serve(settings, folder, **values):
    """Django's settings for these settings of ours."""
    settings.MOCHI = load_settings(data_dir=folder, **values)
    settings.MOCHI_SESSION_STORAGES = default_storages(settings.MOCHI)
    settings.MOCHI_CONFIRMATIONS = {}


@pytest.mark.parametrize(
    ("values", "wrong"),
    [
        ({}, False),
        ({"workers": 4}, False),
        ({"session_storage": "memory"}, False),
        ({"session_storage": "memory", "workers": 2}, True),
        ({"redis_url": "redis://localhost:6379/0", "workers": 2}, False),
        ({"redis_url": "redis://localhost", "session_storage": "memory", "workers": 2}, True),
    ],
)
def test_what_our_settings_choose_fits_the_number_of_processes(settings, tmp_path, values, wrong):
    serve(settings, tmp_path, **values)
    assert ("mochi.E004" in ids()) == wrong


@pytest.mark.parametrize(
    ("setting", "path"),
    [
        ("MOCHI_CONFIRMATIONS", STORE),
        ("MOCHI_SESSION_STORAGES", MEMORY),
    ],
)
def test_own_settings_of_one_process_are_an_error_for_several(settings, tmp_path, setting, path):
    serve(settings, tmp_path, workers=2)
    setattr(settings, setting, getattr(settings, setting) | {"default": {"BACKEND": path}})
    (problem,) = shared_problems()
    assert problem.startswith(f"{setting}['default'] is {path}")
    settings.MOCHI = load_settings(data_dir=tmp_path)
    assert shared_problems() == []


def test_a_store_of_ones_own_is_taken(settings, tmp_path):
    serve(settings, tmp_path)
    settings.MOCHI_CONFIRMATIONS = {"default": {"BACKEND": STORE}}
    assert isinstance(get_runtime().confirmations, StateConfirmationStore)
    settings.MOCHI_CONFIRMATIONS = {"default": {"BACKEND": MEMORY}}
    assert ids() == {"mochi.E002"}
    forget_runtime()


# Tools


GOOD = function("add") + "\n__all__ = ['add']\n"


def warnings():
    return [message for message in run_checks() if message.id == "tools.W001"]


def test_each_problem_of_the_folder_is_a_warning_with_its_place(mochi):
    folder = write_tools(mochi.tools_path, init=GOOD)
    assert warnings() == []
    write_tools(folder / "text", init="x = 1\ndef broken(:\n")
    write_tools(folder / "music", init=function("play") + "\n__all__ = ['play', 'sing']\n")
    found = [message.msg for message in warnings()]
    assert len(found) == 2
    assert any(text.startswith(f"{folder / 'text' / '__init__.py'}:2: ") for text in found)
    assert any("'sing'" in text for text in found)


def test_functions_that_are_left_out_are_no_warning(mochi):
    write_tools(mochi.tools_path, init=GOOD, helper=function("place"))
    assert warnings() == []


def test_a_folder_that_is_not_there_is_no_warning(mochi):
    assert warnings() == []
    mochi.tools_path.mkdir(parents=True)
    assert warnings() == []


def test_code_that_ends_its_process_ends_no_check(mochi):
    write_tools(mochi.tools_path, init="import os\nos._exit(3)\n")
    [message] = warnings()
    assert str(mochi.tools_path) in message.msg


async def test_a_server_imports_no_tool_before_it_needs_one(server_of, tmp_path):
    write_tools(tmp_path / "tools", init=noting(tmp_path / "log") + GOOD)
    async with server_of() as server:
        await server.get("/health")
        await server.get("/sessions")
        assert not (tmp_path / "log").exists()
        assert list((await server.get("/tools"))[1]["tools"]) == ["add"]
        assert (tmp_path / "log").exists()
