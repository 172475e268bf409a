"""The checks of the doctor one by one, as values and on real servers."""

from __future__ import annotations

import asyncio
import resource
import signal
import socket
import threading
import time
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest
import pytest_asyncio

from mochi_server.config import load_settings
from mochi_server.core.aio import in_daemon_thread
from mochi_server.doctor import data as data_checks
from mochi_server.doctor.data import (
    DataFolder,
    DiskSpace,
    SessionFiles,
    check_sessions,
    folder_findings,
    read_session_files,
    session_findings,
    space_finding,
)
from mochi_server.doctor.extensions import check_mcp, check_tool_sandbox, check_tools
from mochi_server.doctor.findings import (
    MAX_SHOWN,
    Check,
    Finding,
    Level,
    note,
    ok,
    shortened,
    warning,
)
from mochi_server.doctor.models import (
    ProviderReport,
    check_providers,
    check_windows,
    provider_findings,
    window_findings,
)
from mochi_server.doctor.presets import check_presets
from mochi_server.doctor.run import diagnose
from mochi_server.doctor.server import check_redis, files_finding, reach_findings, unknown_findings
from mochi_server.protocol.completions import Chunk, ModelInfo, ModelRequest
from mochi_server.providers.base import Provider
from mochi_server.providers.builtin.catalogue import CATALOGUE
from mochi_server.runtime import Runtime
from mochi_server.server.startup import place_of_redis
from tests.support.sandboxes import bubblewrap_or_skip
from tests.support.tools import function, write_tools

GB = 1_000_000_000


def levels(findings: list[Finding]) -> list[Level]:
    return [finding.level for finding in findings]


@pytest.fixture
def settings(ollama, tmp_path):
    return load_settings(
        ollama_host=ollama.url, data_dir=tmp_path / "data", models_dir=tmp_path / "models"
    )


@pytest_asyncio.fixture
async def runtime(settings):
    runtime = Runtime(settings)
    yield runtime
    await runtime.aclose()


# The machine


@pytest.mark.parametrize(
    ("free", "inodes", "level"),
    [
        (50 * GB, 1_000_000, "ok"),
        (50 * GB, None, "ok"),
        (GB - 1, 1_000_000, "warning"),
        (GB // 10 - 1, 1_000_000, "error"),
        (50 * GB, 9_999, "warning"),
        (50 * GB, 999, "error"),
        (0, None, "error"),
    ],
)
def test_little_room_is_a_warning_and_none_an_error(free, inodes, level):
    space = DiskSpace(path=Path("/data"), free=free, inodes=inodes)
    finding = space_finding(space)
    assert finding.level == level


@pytest.mark.parametrize(
    ("hard", "level"), [(1024, "warning"), (4096, "ok"), (resource.RLIM_INFINITY, "ok")]
)
def test_few_open_files_are_a_warning(hard, level):
    assert files_finding(hard).level == level


def test_a_folder_that_is_a_file_or_lies_below_one_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        [finding] = folder_findings(
            DataFolder(name="sessions", path=path, setting="MOCHI_SESSIONS_DIR")
        )
        assert finding.level == "error"
        assert f"{tmp_path / 'file'} is not a folder" in finding.what
        assert "MOCHI_SESSIONS_DIR" in str(finding.suggestion)


# Settings and security


def test_a_variable_without_a_likely_meaning_gets_the_list_of_all():
    near, far = unknown_findings({"MOCHI_HSOT": "MOCHI_HOST", "MOCHI_XYZZY_PLUGH": None})
    assert near.suggestion == "Perhaps MOCHI_HOST was meant."
    assert "--help" in str(far.suggestion)


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ({}, ["ok"]),
        ({"host": "::1"}, ["ok"]),
        ({"host": "0.0.0.0"}, ["warning"]),
        ({"host": "0.0.0.0", "api_token": "a" * 32}, ["note"]),
        ({"api_token": "short"}, ["ok", "warning"]),
        ({"allowed_hosts": ["*"]}, ["ok", "warning"]),
        ({"allowed_hosts": ["*"], "api_token": "a" * 32}, ["ok", "note"]),
        ({"cors_origins": ["https://app.example"]}, ["ok"]),
        ({"cors_origins": ["http://localhost:3000", "http://[::1]:3000"]}, ["ok"]),
        ({"cors_origins": ["http://app.example:80"]}, ["ok", "note"]),
    ],
)
def test_what_opens_the_server_is_told(values, found):
    assert levels(list(reach_findings(load_settings(**values)))) == found


def test_a_file_of_tokens_that_cannot_be_used_is_an_error(tmp_path):
    settings = load_settings(data_dir=tmp_path)
    settings.tokens_path.write_text("{")
    (_, finding) = reach_findings(settings)
    assert finding.level == "error"
    assert "tokens.json is accepted: it is not JSON" in finding.what


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://localhost:6379/0", "localhost:6379/0"),
        ("rediss://me:s3@cret@redis.lan:6379/1?password=s3cret", "redis.lan:6379/1"),
        ("unix:///run/redis.sock?password=s3cret", "/run/redis.sock"),
    ],
)
def test_the_place_of_a_redis_has_no_password(url, shown):
    assert place_of_redis(url) == shown


# Models


async def test_a_window_that_the_next_chat_must_change_is_told_with_its_cost(ollama, runtime):
    ollama.models["qwen3:14b"].loaded = 4096
    [finding] = await check_windows(runtime)
    assert finding.level == "note"
    assert finding.what == (
        "qwen3:14b is loaded with a window of 4,096 tokens. The next chat asks for 8,192: "
        "Ollama then loads its 9.3 GB again."
    )
    assert "OLLAMA_CONTEXT_LENGTH=8192" in str(finding.suggestion)


async def test_a_loaded_window_is_fine_where_none_is_asked_for(ollama, settings):
    ollama.models["qwen3:14b"].loaded = 4096
    settings.dynamic_context_window_enabled = False
    runtime = Runtime(settings)
    assert levels(await check_windows(runtime)) == ["ok"]
    await runtime.aclose()


async def test_a_model_that_only_embeds_asks_for_no_window(ollama, runtime):
    model = ollama.add_model("embed:latest", capabilities=["embedding"], context_length=512)
    model.loaded = 512
    assert levels(await check_windows(runtime)) == ["ok"]


def test_a_model_outside_of_the_graphics_memory_is_told():
    entry = {"name": "m", "context_length": 8192, "size": 10 * GB, "size_vram": 6 * GB}
    _, finding = window_findings(entry, 8192)
    assert finding.what.startswith("40% of m is not in the graphics memory")
    assert levels(list(window_findings({**entry, "size_vram": 0}, 8192))) == ["ok"]
    assert levels(list(window_findings({"name": "m"}, 8192))) == ["note"]


async def test_an_ollama_that_cuts_silently_is_a_warning(ollama, runtime):
    for version, warned in [("0.12.3", True), ("0.12.4-rc1", False), ("0.0.0", False)]:
        ollama.version = version
        texts = [each.what for each in await check_providers(runtime)]
        assert any("without a word" in text for text in texts) is warned, version


async def test_damaged_weights_are_told_one_by_one(settings, runtime):
    settings.models_path.mkdir()
    (settings.models_path / "odd.gguf").write_bytes(b"nothing")
    known = CATALOGUE["smollm2:135m"]
    (settings.models_path / known.file_name).write_bytes(b"GGUF")
    found = [each.what for each in await check_providers(runtime) if each.level == "warning"]
    assert len(found) == 2
    assert all("cannot be used" in text for text in found)


async def test_an_ollama_that_was_slow_once_is_not_called_slow(ollama, runtime):
    version = b'{"version": "0.33.0"}'
    ollama.play_raw([version], path="/api/version", first_byte_ms=1100)
    [found] = [each for each in await check_providers(runtime) if "0.33.0" in each.what]
    assert found.level == "ok"


def test_without_any_model_there_is_an_error_and_with_one_a_warning():
    gone = ProviderReport(alias="ollama", where="http://a", problem="does not answer")
    none = ProviderReport(alias="local", where="/models", problem="no model")
    has = ProviderReport(alias="local", where="/models", models=1)
    assert levels(list(provider_findings([gone, none]))) == ["warning", "warning", "error"]
    assert levels(list(provider_findings([gone, has]))) == ["warning", "ok"]
    slow = ProviderReport(alias="ollama", where="http://a", models=2, version="0.33.0", seconds=1.5)
    assert levels(list(provider_findings([slow, none]))) == ["warning", "note"]
    unlisted = ProviderReport(alias="openai", where="http://a/v1")
    hidden = ProviderReport(alias="test", where="test")
    found = list(provider_findings([unlisted, hidden, has]))
    assert levels(found) == ["note", "ok"]
    assert found[0].what == "openai at http://a/v1 lists no model."


def test_the_provider_of_test_mode_is_missed_by_nobody_who_has_no_use_for_it():
    unusable = ProviderReport(alias="test", where="test", problem="it needs the package openai")
    gone = ProviderReport(alias="ollama", where="http://a", problem="does not answer")
    found = list(provider_findings([gone, unusable]))
    assert levels(found) == ["warning", "note", "error"]
    assert found[1].suggestion == "Only test mode needs it: docs/reference/test-mode.md."


class Faulty(Provider):
    """Somebody's provider, with a mistake in it."""

    async def list_models(self) -> list[ModelInfo]:
        raise ZeroDivisionError("a mistake")

    async def show_model(self, name: str) -> ModelInfo:
        raise NotImplementedError

    def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        raise NotImplementedError

    async def check(self) -> bool:
        return False


class Late(Faulty):
    """Needs long before its first question, and answers at once."""

    prepared = False

    async def prepare(self) -> None:
        if not self.prepared:
            await asyncio.sleep(1)
            self.prepared = True

    async def list_models(self) -> list[ModelInfo]:
        await self.prepare()
        return [ModelInfo(name="one")]


async def test_mcp_servers_that_cannot_be_started_are_named(runtime, monkeypatch):
    monkeypatch.delenv("UNSET", raising=False)
    assert await check_mcp(runtime) == []
    file = runtime.settings.mcp_config_path
    file.parent.mkdir(exist_ok=True)
    servers = (
        '"good": {"command": "sh"}, "bad": 1, "none": {"command": "no-such-program"},\n'
        '"web": {"url": "http://${UNSET}/"}, "off": {"command": "x", "disabled": true}'
    )
    file.write_text(f'{{"mcpServers": {{\n{servers}\n}}}}')
    file.chmod(0o644)
    findings = await check_mcp(runtime)
    assert [(each.level, each.what) for each in findings] == [
        ("ok", "3 MCP servers."),
        ("warning", f"{file}:2: The server 'bad' cannot be used: it is no object."),
        ("warning", "The MCP server 'none' cannot be started: there is no 'no-such-program'."),
        (
            "warning",
            "The MCP server 'web' cannot be started: needs the variable UNSET, which is not set.",
        ),
        ("note", f"{file}, which may have keys in it, can be read by every user of this machine."),
    ]


async def test_the_sandboxes_of_mcp_servers_are_tried(runtime, monkeypatch, tmp_path):
    file = runtime.settings.mcp_config_path
    file.parent.mkdir(exist_ok=True)
    file.touch(0o600)
    entry = '"{0}": {{"command": "/bin/sh", "mochi": {{"sandbox": "{0}"}}}}'
    servers = ", ".join(map(entry.format, ("process", "docker")))
    file.write_text(f'{{"mcpServers": {{{servers}}}}}')
    monkeypatch.setenv("PATH", str(tmp_path))
    _, process, docker = await check_mcp(runtime)
    assert levels([process, docker]) == ["warning", "warning"]
    assert process.what == (
        "The sandbox 'process' of the MCP server 'process' confines nothing: "
        "it can do what you can."
    )
    assert docker.what == (
        "The MCP server 'docker' cannot be started: the sandbox 'docker' does not work here: "
        "neither docker nor podman is installed."
    )
    assert docker.suggestion.startswith("Install it, or name another sandbox in ")


async def test_who_has_bubblewrap_is_not_told_to_install_it(settings, monkeypatch, tmp_path):
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho 'bwrap: No permissions to create a namespace' >&2; exit 1")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    settings.tool_sandbox = "bubblewrap"
    [found] = await check_tool_sandbox(Runtime(settings))
    assert "No permissions to create a namespace" in found.what
    assert found.suggestion.startswith("Allow ")
    assert found.suggestion.endswith(", or remove the variable: tools then run without one.")


async def test_a_mistake_in_a_provider_is_its_problem(settings):
    [found, _] = await check_providers(Runtime(settings, providers={"mine": Faulty("mine")}))
    assert found.what == "mine: ZeroDivisionError: a mistake"


async def test_what_a_provider_needs_once_is_no_wait_for_its_answer(settings, monkeypatch):
    monkeypatch.setattr("mochi_server.doctor.models.ANSWER_SECONDS", 0.5)
    [found] = await check_providers(Runtime(settings, providers={"late": Late("late")}))
    assert (found.level, "1 model" in found.what) == ("ok", True)


# Tools


async def test_what_is_left_out_of_the_tools_is_a_note(settings):
    """A helper module is no fault; a function that was exported and lacks something is one."""
    init = function("add") + "__all__ = ['add', 'gone']\n"
    write_tools(settings.tools_path, init=init, helper=function("place"))
    runtime = Runtime(settings)
    found = await check_tools(runtime)
    await runtime.aclose()
    assert levels(found) == ["ok", "warning", "note"]
    assert "left out: place" in found[2].what


async def test_the_sandbox_of_tools_is_tried(settings, monkeypatch, tmp_path):
    bubblewrap_or_skip()
    assert await check_tool_sandbox(Runtime(settings)) == []
    settings.tool_sandbox = "bubblewrap"
    [found] = await check_tool_sandbox(Runtime(settings))
    assert found.level == "ok", found.what
    monkeypatch.setenv("PATH", str(tmp_path))
    [found] = await check_tool_sandbox(Runtime(settings))
    assert found.level == "warning"
    assert found.what.startswith(
        "MOCHI_TOOL_SANDBOX=bubblewrap: no tool is offered, as the program"
    )


# Sessions


async def test_the_sessions_of_any_storage_are_counted(settings):
    settings.session_storage = "memory"
    runtime = Runtime(settings)
    await runtime.sessions.create("qwen3:14b")
    people, agents = await check_sessions(runtime)
    assert people == ok("1 session of people can be read.")
    assert agents == ok("0 sessions of agents can be read.")
    await runtime.aclose()


async def test_a_folder_counts_versions_and_names_problems(settings, runtime):
    session = await runtime.sessions.create("qwen3:14b")
    folder = settings.sessions_path
    # Longer than what is read at first, and torn behind it.
    long = (folder / f"{session.session_id}.json").read_bytes()
    (folder / "long.json").write_bytes(long[:-20] + b'[{"a": "' + b"x" * 20_000)
    (folder / "old.json").write_bytes(b'{"metadata": {"model": "m"}, "messages": []}')
    files = read_session_files(folder, 60)
    assert files.versions == {"1.3": 1, "1.0": 1}
    assert list(files.problems) == ["long.json"]
    assert files.left == 0


def test_a_folder_without_time_says_what_is_left(tmp_path):
    for number in range(3):
        (tmp_path / f"{number}.json").write_text('{"metadata": {"model": "m"}}')
    files = read_session_files(tmp_path, -1)
    assert (files.left, files.versions) == (3, {})
    texts = [finding.what for finding in session_findings(files, "of people")]
    assert "3 files were not looked at, for want of time." in texts


def test_a_folder_that_cannot_be_listed_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    files = read_session_files(tmp_path / "file", 1)
    assert levels(list(session_findings(files, "of people"))) == ["error"]
    assert read_session_files(tmp_path / "nothing", 1) == SessionFiles()


# All together


def test_of_many_findings_the_first_are_shown_and_the_rest_counted():
    many = [warning(str(number), "Correct it.") for number in range(MAX_SHOWN + 5)]
    assert shortened(many[:MAX_SHOWN], lambda left: note(str(left))) == many[:MAX_SHOWN]
    assert shortened(many, lambda left: note(f"{left} more")) == [*many[:MAX_SHOWN], note("5 more")]


async def test_a_check_that_hangs_is_given_up_and_hides_no_other(runtime):
    async def hang(_: Runtime) -> list[Finding]:
        await anyio.sleep_forever()
        raise AssertionError

    async def block(_: Runtime) -> list[Finding]:
        with socket.create_server(("127.0.0.1", 0)) as server:
            # Nobody ever connects; the end of the block frees the thread.
            await in_daemon_thread(server.accept)
        raise AssertionError

    more = (
        Check(topic="hangs", run=hang, seconds=0.05),
        Check(topic="blocks", run=block, seconds=0.05),
    )
    with anyio.fail_after(60):
        report = await diagnose(runtime, more)
    found = {finding.topic: finding.level for finding in report.findings}
    assert (found["hangs"], found["blocks"]) == ("error", "error")
    assert found["sessions"] == "ok"


async def test_a_signal_that_wakes_nobody_is_heard_while_a_thread_hangs():
    """As one that comes when the loop is about to wait: here another thread takes it."""
    heard = threading.Event()

    def hang() -> bool:
        for _ in range(3):
            heard.clear()
            signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
            if not heard.wait(20):
                return False
        return True

    before = signal.signal(signal.SIGUSR1, lambda *_: heard.set())
    try:
        assert await in_daemon_thread(hang)
    finally:
        signal.signal(signal.SIGUSR1, before)


async def test_what_may_not_be_looked_at_is_a_finding(runtime, tmp_path):
    async def run(_: Runtime) -> list[Finding]:
        (tmp_path / "nothing").stat()
        raise AssertionError

    report = await diagnose(runtime, (Check(topic="broken disk", run=run),))
    assert report.findings[-1].level == "error"
    assert str(tmp_path / "nothing") in report.findings[-1].what


async def test_a_redis_address_with_a_wrong_option_is_a_finding(settings):
    settings.redis_url = "redis://:secret@127.0.0.1:1/0?socket_timeout=soon"
    runtime = Runtime(settings.model_copy(update={"redis_url": None}))
    runtime.settings = settings
    findings = await check_redis(runtime)
    await runtime.aclose()
    assert levels(findings) == ["ok", "error"]
    assert "secret" not in findings[1].what


async def test_both_folders_of_sessions_are_looked_at_within_one_time(runtime, monkeypatch):
    """Else two slow ones take longer than the check may, and all that was found is lost."""
    given = []

    def slow(folder: Path, seconds: float) -> SessionFiles:
        given.append(seconds)
        time.sleep(seconds)
        return read_session_files(folder, 60)

    monkeypatch.setattr(data_checks, "READ_SECONDS", 0.2)
    monkeypatch.setattr(data_checks, "read_session_files", slow)
    await check_sessions(runtime)
    assert len(given) == 2
    assert sum(given) <= 0.2, "the second has what the first has left"


async def test_findings_of_one_topic_stand_together(runtime):
    async def run(_: Runtime) -> list[Finding]:
        return [note("one more thing")]

    report = await diagnose(runtime, (Check(topic="security", run=run),))
    topics = [finding.topic for finding in report.findings]
    assert topics == sorted(topics, key=list(dict.fromkeys(topics)).index)
    assert Finding("note", "one more thing", topic="security") in report.findings


async def test_presets_and_what_they_name_are_checked(tmp_path, ollama):
    runtime = Runtime(load_settings(data_dir=tmp_path, ollama_host=ollama.url))
    assert await check_presets(runtime) == []
    folder = tmp_path / "presets"
    folder.mkdir()
    (folder / "good.md").write_text("---\nmodel: qwen3:14b\n---\nBe brief.")
    (folder / "bad.md").write_text("---\nmodell: qwen3:14b\n---\n")
    front = "model: nothing:1b\ntools: [nothing]\nagents: [nobody]"
    (folder / "empty.md").write_text(f"---\n{front}\n---\n")
    (folder / "thinker.md").write_text("---\nmodel: gemma3:4b\nthink: true\n---\n")
    async with runtime:
        first, *others = await check_presets(runtime)
    assert first == ok("3 presets for sessions.")
    texts = [finding.what for finding in others if finding.level == "warning"]
    assert texts[0] == f"{folder}/bad.md:2: there is no key 'modell'"
    assert [text.partition(": ")[2] for text in texts[1:]] == [
        "There is no tool 'nothing'.",
        "there is no usable agent 'nobody'.",
        "there is no model 'nothing:1b'.",
        "the model 'gemma3:4b' cannot think.",
    ]
