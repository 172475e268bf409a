"""``doctor`` on real folders and over HTTP: what it prints is held to tests/data/doctor.

After a change that is meant, ``UPDATE_SNAPSHOTS=1`` writes them anew.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import sys
import time
from pathlib import Path
from typing import NamedTuple

import anyio
import pytest
import pytest_asyncio
from pydantic import SecretStr

from mochi_project.management.commands.doctor import Command
from mochi_server.server.initialise import initialise
from tests.support.fake_ollama import FakeOllama
from tests.support.redis import free_port, needs_redis, running_redis
from tests.support.server import ROOT, environment
from tests.support.tools import function, write_tools

DATA = ROOT / "tests" / "data"
SNAPSHOTS = DATA / "doctor"
OLD_SESSIONS = DATA / "sessions"

VOLATILE = [
    (r"mochi-server \S+, Python \S+, Django \S+, uvicorn \S+", "VERSIONS"),
    (r"may open [\d,]+ files", "may open N files"),
    (r"Room for [\d,.]+ .B( and [\d,]+ files)?", "Room for N"),
    (r"answers in \d+ ms", "answers in N ms"),
    (r"127\.0\.0\.1(:|', )\d{4,5}\b", r"127.0.0.1\1PORT"),
    (r"Redis \d[\d.]+ at", "Redis VERSION at"),
    (r"Error \d+ ", "Error N "),
    (r"\S*mochi-server pull", "mochi-server pull"),
]
ROOT_NOTE = re.compile(r"  note     This runs as root.*\n.*\n")
"""Only those who build as root see it."""

SECRETS = ("t0ken-very-secret", "pa55word", "sk-another-secret", "l0gin-secret")


async def doctor(folder: Path, *options: str, **settings: object) -> tuple[int, str]:
    """Exit code and output of the command in a process of its own."""
    settings.setdefault("models_dir", folder / "models")
    done = await anyio.run_process(
        [sys.executable, str(ROOT / "manage.py"), "doctor", *options],
        env=environment(data_dir=folder, **settings),
        cwd=ROOT,
        check=False,
    )
    assert done.stderr.decode() == ""
    return done.returncode, done.stdout.decode()


def masked(text: str, folder: Path) -> str:
    text = text.replace(str(folder), "DATA")
    text = ROOT_NOTE.sub("", text)
    for pattern, shown in VOLATILE:
        text = re.sub(pattern, shown, text)
    return re.sub(r"\d+ notes?\.\n$", "N notes.\n", text)


def check_snapshot(name: str, text: str) -> None:
    path = SNAPSHOTS / f"{name}.txt"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        path.write_text(text, "utf-8")
    assert text == path.read_text("utf-8")


def tree(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Everything below the folder: mode, time of change, content."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        found[str(path)] = (status.st_mode, status.st_mtime_ns, content)
    return found


@pytest.fixture
def healthy(tmp_path: Path) -> Path:
    folder = tmp_path / "healthy"
    initialise(folder)
    sessions = folder / "chat_sessions"
    sessions.mkdir()
    for source in (OLD_SESSIONS / "mochi-server" / "1.3").glob("*.json"):
        shutil.copy(source, sessions)
    (folder / "agents" / "agent_chats").mkdir()
    return folder


def break_all(folder: Path) -> Path:
    """Something wrong wherever something can be wrong."""
    tools = write_tools(folder / "tools", init=function("add") + "\n__all__ = ['add', 'missing']\n")
    write_tools(tools / "network", init="raise RuntimeError('there is no network')\n")
    agent = folder / "agents" / "coder"
    agent.mkdir(parents=True)
    (agent / "SKILL.md").write_text("no front matter")
    (folder / "agents" / "agent_chats").symlink_to(folder / "nowhere")
    prompts = folder / "system_prompts"
    prompts.mkdir()
    (prompts / "good.md").write_text("Be brief.")
    (prompts / "long.md").write_text("x" * 10_000)
    (prompts / "empty.txt").write_text(" \n")
    (prompts / "_odd.md").write_text("Be brief.")
    (prompts / "link.md").symlink_to(prompts / "good.md")
    break_sessions(folder / "chat_sessions")
    (folder / "policies.json").write_text("[]]")
    (folder / ".mochi").mkdir()
    (folder / ".mochi").chmod(0o777)
    return folder


def break_sessions(folder: Path) -> None:
    folder.mkdir()
    for version in ("0.1.0", "0.3.0"):
        for source in (OLD_SESSIONS / "mochi-coco" / version).glob("*.json"):
            shutil.copy(source, folder)
    for source in (OLD_SESSIONS / "mochi-server" / "1.4").glob("*.json"):
        shutil.copy(source, folder)
    (folder / "a-torn-one.json").write_text('{"metadata": ')
    (folder / "a list.json").write_text("[]")
    (folder / "folder.json").mkdir()
    (folder / "strange.json").write_text('{"metadata": {"model": 7}, "messages": []}')
    (folder / ".locks").mkdir()
    (folder / ".locks" / "a.lock").touch()
    left = folder / f".a.{'0' * 16}.tmp"
    left.touch()
    os.utime(left, (0, 0))


def ills() -> dict[str, object]:
    """Settings that make it worse."""
    return {
        "host": "0.0.0.0",
        "allowed_hosts": "*",
        "cors_origins": "http://app.example,http://localhost:3000",
        "ollama_host": f"http://127.0.0.1:{free_port()}",
        "redis_url": f"redis://127.0.0.1:{free_port()}/0",
        "workers": 3,
        "planning_prompt_path": "nowhere.md",
        "openai_api_key": "sk-another-secret",
        "openai_base_url": f"http://127.0.0.1:{free_port()}/v1",
        "prot": 8001,
        "sumarization_enabled": "no",
        "colour_of_the_bicycle_shed": "green",
    }


async def test_a_healthy_folder_is_called_healthy(healthy: Path, ollama: FakeOllama) -> None:
    ollama.models["qwen3:14b"].loaded = 16384
    code, text = await doctor(healthy, ollama_host=ollama.url)
    check_snapshot("healthy", masked(text, healthy))
    assert code == 0


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For all tests that only have it looked at."""
    return break_all(tmp_path_factory.mktemp("ills") / "broken")


class Look(NamedTuple):
    """What one run of the command came to."""

    code: int
    text: str
    before: dict[str, tuple[int, int, bytes]]
    after: dict[str, tuple[int, int, bytes]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def looked(broken: Path) -> Look:
    """One run for all tests that read what it prints or what it leaves."""
    before = tree(broken)
    code, text = await doctor(broken, **ills())
    return Look(code, text, before, tree(broken))


class Told(NamedTuple):
    """The same twice, by two runs with the same settings."""

    as_text: str
    as_json: str
    json_code: int


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def told(broken: Path) -> Told:
    """About settings with secrets in them."""
    settings = ills() | {
        "api_token": "t0ken-very-secret",
        "redis_url": f"redis://me:pa55word@127.0.0.1:{free_port()}/0?password=pa55word",
        "ollama_host": f"http://me:l0gin-secret@127.0.0.1:{free_port()}",
        "openai_api_kye": "sk-another-secret",
    }
    _, text = await doctor(broken, **settings)
    code, answer = await doctor(broken, "--json", **settings)
    return Told(text, answer, code)


def test_everything_that_is_broken_is_named_with_what_to_do(broken: Path, looked: Look) -> None:
    check_snapshot("broken", masked(looked.text, broken))
    assert looked.code == 1


def test_the_same_is_there_as_json(told: Told) -> None:
    report = json.loads(told.as_json)
    assert told.json_code == 1
    assert set(report) == {"errors", "warnings", "notes", "findings"}
    for finding in report["findings"]:
        assert set(finding) == {"topic", "level", "what", "suggestion"}
        assert (finding["suggestion"] is None) <= (finding["level"] in {"ok", "note"})
        # Other figures of a living machine are another matter.
        if "Room for" not in finding["what"]:
            assert f"  {finding['level'].ljust(7)}  {finding['what']}\n" in told.as_text
    levels = [finding["level"] for finding in report["findings"]]
    shown = tuple(report[name] for name in ("errors", "warnings", "notes"))
    assert shown == tuple(map(levels.count, ("error", "warning", "note")))


def test_nothing_is_changed_by_looking(looked: Look) -> None:
    assert looked.after == looked.before


def test_no_secret_is_ever_printed(told: Told) -> None:
    for text in (told.as_text, told.as_json):
        assert "MOCHI_OPENAI_API_KYE" in text
        assert [secret for secret in SECRETS if secret in text] == []


@pytest.mark.slow
async def test_it_ends_in_time_when_ollama_and_a_tool_hang(tmp_path: Path) -> None:
    broken = break_all(tmp_path / "broken")
    write_tools(broken / "tools", init="import time\ntime.sleep(600)\n")
    asked = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(hang, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        began = time.monotonic()
        code, text = await doctor(broken, ollama_host=f"http://127.0.0.1:{port}")
        seconds = time.monotonic() - began
    assert asked.is_set()
    assert code == 1
    assert f"ollama: http://127.0.0.1:{port} does not answer within 4 s." in text
    assert "tools\n  error    This was not looked through within 10 seconds." in text
    assert "1 prompt for sessions" in text
    assert seconds < 100, "and not 600: the machine may be busy"


@needs_redis
async def test_a_redis_that_answers_is_shown_with_its_version(tmp_path: Path) -> None:
    async with running_redis(tmp_path) as redis:
        _, text = await doctor(tmp_path, redis_url=redis.url)
        keys = await redis.keys()
    line = next(line for line in text.splitlines() if "Redis" in line)
    assert re.fullmatch(
        rf"  ok       Redis \d[\d.]+ at 127\.0\.0\.1:{redis.port}/0 answers in \d+ ms\.", line
    )
    assert keys == []


async def test_several_workers_with_sessions_in_memory_are_an_error(tmp_path: Path) -> None:
    code, text = await doctor(tmp_path, workers=2, session_storage="memory")
    assert code == 1
    assert (
        "  error    MOCHI_SESSION_STORAGE=memory is for one process, and 2 were asked for" in text
    )
    assert "(mochi.E004)" in text


async def test_backends_that_cannot_be_built_are_named_and_the_rest_is_looked_at(
    healthy: Path,
) -> None:
    module = healthy / "odd_settings.py"
    module.write_text(
        "from mochi_project.settings import *\n"
        "MOCHI_PROVIDERS = {'ollama': {'BACKEND': 'nowhere.Provider'}}\n"
        "CORS_ALLOW_ALL_ORIGINS = True\n"
        "DEBUG = True\n"
    )
    done = await anyio.run_process(
        [sys.executable, str(ROOT / "manage.py"), "doctor"],
        env={
            **environment(data_dir=healthy, models_dir=healthy / "models"),
            "DJANGO_SETTINGS_MODULE": "odd_settings",
            "PYTHONPATH": f"{ROOT}:{healthy}",
        },
        cwd=ROOT,
        check=False,
    )
    text = done.stdout.decode()
    assert done.returncode == 1
    assert "MOCHI_PROVIDERS['ollama']: nowhere.Provider cannot be imported" in text
    assert "(mochi.E002)" in text
    assert "warning  CORS_ALLOW_ALL_ORIGINS is set" in text
    assert "warning  DEBUG is set" in text
    assert "2 agents, 2 of them usable" in text


# GET /doctor


async def test_the_doctor_says_what_its_command_says(api, mochi, capsys):
    write_tools(mochi.tools_path, init="raise RuntimeError('there is no network')\n")
    response = await api.get("/doctor")
    assert response.status_code == 200
    report = response.json()
    assert "there is no network" in json.dumps(report["findings"])
    await asyncio.to_thread(Command().run_from_argv, ["manage.py", "doctor", "--json"])
    command = json.loads(capsys.readouterr().out)
    assert command.keys() == report.keys()
    topics = [finding["topic"] for finding in command["findings"]]
    assert [finding["topic"] for finding in report["findings"]] == topics


async def test_those_who_ask_at_once_get_one_report(api, mochi, ollama):
    before = len(ollama.requests)
    first = await api.get("/doctor")
    alone = len(ollama.requests) - before
    reports = await asyncio.gather(*(api.get("/doctor") for _ in range(5)))
    assert len({report.content for report in reports}) == 1
    assert len(ollama.requests) - before == 2 * alone
    assert first.status_code == 200


async def test_it_has_no_secrets(api, mochi, settings):
    mochi.data_dir.mkdir(exist_ok=True)
    (mochi.data_dir / "mcp.json").write_text(
        json.dumps({"mcpServers": {"a": {"command": "nothing", "env": {"KEY": "s3cret-of-mcp"}}}})
    )
    settings.MOCHI = mochi.model_copy(
        update={
            "openai_api_key": SecretStr("s3cret-key"),
            "ollama_host": "http://me:s3cret-login@127.0.0.1:9",
            "redis_url": "redis://me:s3cret-word@127.0.0.1:9/0?password=s3cret-word",
        }
    )
    response = await api.get("/doctor")
    assert response.status_code == 200
    assert "s3cret" not in response.content.decode()
