"""What Prometheus reads of a server."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest

from tests.support.decisions import decide_next
from tests.support.fake_ollama import FakeOllama
from tests.support.metrics import Scrape, scrape
from tests.support.server import Server, running_server
from tests.support.sockets import socket
from tests.support.tool_folders import is_gone
from tests.support.tools import write_tools
from tests.support.waiting import until

TOOLS = '''
__all__ = ["greet", "fail"]


def greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello {name}"


def fail() -> str:
    """Fail."""
    raise ValueError("of no use")
'''
GREET = {"name": "greet", "arguments": {"name": "Ann"}}


async def say(server: Server, session: str, message: str = "Hi") -> list[str]:
    with anyio.fail_after(60):
        path = f"/chat/{session}/stream"
        return [event.event async for event in server.stream(path, {"message": message})]


async def becomes(server: Server, wanted: Callable[[Scrape], bool], seconds: float = 60) -> Scrape:
    """Scrape until it is as wanted."""
    found: Scrape = await until(lambda: scrape(server), wanted, seconds=seconds)
    return found


async def test_there_are_no_metrics_unless_they_are_switched_on(tmp_path: Path):
    async with running_server(data_dir=tmp_path) as server:
        async with server.http.get(f"{server.url}/metrics") as response:
            assert response.status == 404
            assert (await response.json())["error"]["code"] == "NOT_FOUND"
        _, page = await server.get("/health")
    assert page["status"] == "ok"


async def test_metrics_need_the_token_where_there_is_one(tmp_path: Path):
    key = {"Authorization": "Bearer t0psecret"}
    page = tmp_path / "page"
    page.mkdir()
    (page / "metrics").write_text("A file of the page, which needs no token.")
    async with running_server(
        data_dir=tmp_path, metrics=True, api_token="t0psecret", public_dir=page
    ) as server:
        for headers in ({}, {"Authorization": "Bearer guessed"}):
            async with server.http.get(f"{server.url}/metrics", headers=headers) as response:
                assert response.status == 401
                assert "mochi_" not in await response.text()
        assert (await scrape(server, headers=key))("mochi_processes") == 1
        for method, status in (("HEAD", 200), ("OPTIONS", 204), ("POST", 405)):
            url = f"{server.url}/metrics"
            async with server.http.request(method, url, headers=key) as response:
                assert (response.status, method) == (status, method)
        newer = {**key, "Accept": "application/openmetrics-text; version=1.0.0"}
        async with server.http.get(f"{server.url}/metrics", headers=newer) as response:
            assert response.content_type == "application/openmetrics-text"
            assert (await response.text()).endswith("# EOF\n")


async def test_turns_calls_and_confirmations_are_counted(tmp_path: Path, ollama: FakeOllama):
    write_tools(tmp_path / "tools", init=TOOLS)
    settings = {"tools": ["greet", "fail"], "execution_policy": "confirm_destructive"}
    async with running_server(data_dir=tmp_path, ollama=ollama, metrics=True) as server:
        free = await server.new_session(
            tool_settings={**settings, "execution_policy": "never_confirm"}
        )
        calls = [GREET, {"name": "fail", "arguments": {}}, {"name": "made_up_1", "arguments": {}}]
        ollama.reply(tool_calls=calls)
        ollama.reply(["All", " done"], prompt_eval_count=40, eval_count=2)
        assert (await say(server, free))[-1] == "done"

        asked = await server.new_session(
            tool_settings={**settings, "execution_policy": "always_confirm"}
        )
        ollama.reply(tool_calls=[GREET])
        ollama.reply(["Well"])
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(say, server, asked)
            await becomes(server, lambda now: now("mochi_runs", state="waiting") == 1)
            again = await becomes(
                server, lambda now: now("mochi_confirmations_oldest_seconds") > 0.2
            )
            assert again("mochi_confirmations_waiting") == 1
            assert again("mochi_streams_open") == 1
            assert again("mochi_confirmations_total", outcome="asked") == 1
            await decide_next(server, approved=True)
        async with socket(server):
            assert (await scrape(server))("mochi_sockets_open") == 1
        now = await scrape(server)

    assert now("mochi_runs_started_total") == now("mochi_runs_ended_total", state="done") == 2
    assert now("mochi_run_duration_seconds_count", state="done") == 2
    assert now("mochi_run_time_to_first_token_seconds_count") == 2
    assert now("mochi_runs") == now("mochi_streams_open") == 0
    outcomes = [("success", 2), ("tool_execution_failed", 1), ("tool_not_found", 1)]
    for outcome, count in outcomes:
        assert (outcome, now("mochi_tool_calls_total", outcome=outcome)) == (outcome, count)
    assert now.values("mochi_tool_calls_total", "gen_ai_tool_name") == {"greet", "fail", "other"}
    assert now("mochi_tool_call_duration_seconds_count", gen_ai_tool_name="greet") == 2
    assert now("mochi_tool_calls_running") == 0
    assert now("mochi_confirmations_total", outcome="approved") == 1
    assert now("mochi_confirmations_waiting") == now("mochi_confirmations_oldest_seconds") == 0
    assert now("mochi_events_total", type="tool_result") == 4
    assert now("mochi_events_total", type="delta") >= 3
    assert now("mochi_events_total", type="done") == 2
    of_model = {"gen_ai_provider_name": "ollama", "gen_ai_request_model": "qwen3:14b"}
    assert now("gen_ai_client_operation_duration_seconds_count", **of_model) == 4
    used = {"gen_ai_token_type": "output", **of_model}
    assert now("gen_ai_client_token_usage_count", **used) == 4
    assert now("process_resident_memory_bytes") > 1_000_000
    assert now("mochi_event_loop_lag_seconds_count") > 0


async def test_errors_of_providers_are_counted_by_code_and_stopped_turns_are_none(
    tmp_path: Path, ollama: FakeOllama
):
    duration = "gen_ai_client_operation_duration_seconds_count"
    error = {"gen_ai_provider_name": "ollama", "error_type": "OLLAMA_ERROR"}
    async with running_server(data_dir=tmp_path, ollama=ollama, metrics=True) as server:
        session = await server.new_session()
        ollama.reply(["So", "on"], pause_after=1, gate=asyncio.Event())
        async for event in server.stream(f"/chat/{session}/stream", {"message": "Hi"}):
            if event.event == "content_delta":
                break
        now = await becomes(server, lambda now: now("mochi_runs_ended_total") == 1)
        assert now("mochi_runs_ended_total", state="stopped") == 1
        assert now(duration, error_type="cancelled") == 1
        assert now("mochi_provider_errors_total") == 0

        ollama.reply(["So"], error="boom")
        assert (await say(server, session))[-2:] == ["error", "done"]
        now = await scrape(server)
        assert now("mochi_provider_errors_total", **error) == 1
        assert now(duration, error_type="OLLAMA_ERROR") == 1
        assert now("mochi_runs_ended_total", state="failed") == 1

        ollama.play("err_runner_gone", path="/api/tags")
        status, _ = await server.get("/models/unknown:1b")
        now = await scrape(server)
        assert (status, now("mochi_provider_errors_total", **error)) == (502, 2)


FEW = 3
WITH_FEW_NAMES = f"""
from mochi_server.__main__ import main
from mochi_server.observability import metrics
metrics.MOST_NAMES = {FEW}
main()
"""
"""A server with room for fewer names than others have."""


async def test_clients_cannot_make_more_numbers_than_there_is_room_for(tmp_path: Path):
    command = ("-c", WITH_FEW_NAMES, "--port", "0")
    async with (
        FakeOllama(any_model=True) as ollama,
        running_server(data_dir=tmp_path, ollama=ollama, command=command, metrics=True) as server,
    ):
        for number in range(FEW + 3):
            session = await server.new_session(f"model-{number}")
            status, _ = await server.post(f"/chat/{session}", {"message": "Hi"})
            assert status == 200
        now = await scrape(server)
    models = now.values("gen_ai_client_token_usage_count", "gen_ai_request_model")
    assert models == {"other", *(f"model-{number}" for number in range(FEW))}
    assert now("mochi_runs_ended_total") == FEW + 3


CONTAINER = ["unshare", "--pid", "--fork", "--kill-child", sys.executable]
IN_A_CONTAINER = f"import os, sys; os.execvp('unshare', [*{CONTAINER!r}, *sys.argv[1:]])"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make namespaces")
async def test_processes_of_containers_that_share_a_folder_have_the_same_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "metrics"
    folder.mkdir()
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(folder))
    command = ("-c", IN_A_CONTAINER, "-m", "mochi_server", "--port", "0")
    settings: dict[str, Any] = {"data_dir": tmp_path, "metrics": True, "command": command}
    async with running_server(**settings) as one:
        async with running_server(**settings) as two:
            for server, runs in ((one, 1), (two, 2)):
                session = await server.new_session("test/any")
                assert (await say(server, session))[-1] == "done"
                for at in (one, two):
                    now = await becomes(at, lambda now: now("mochi_processes") == 2)
                    assert now("mochi_runs_ended_total", state="done") == runs
            (folder / "mochi-1-0a.lock").mkdir()  # not by a server
            (folder / "theirs.lock").touch()
            (folder / "counter_mochi-1-0b.db").touch()  # of a process that begins to write
            two.process.kill()
            await two.process.wait()
            now = await becomes(one, lambda now: now("mochi_processes") == 1)
            assert now("mochi_runs_ended_total", state="done") == 2
        assert (folder / "theirs.lock").exists()
        one.process.kill()  # unshare ignores SIGTERM


async def workers_of(server: Server) -> set[int]:
    done = await anyio.run_process(["pgrep", "-P", str(server.pid)])
    return {int(line) for line in done.stdout.split()}


@pytest.mark.slow
async def test_one_answer_has_the_numbers_of_all_workers_and_of_killed_ones(
    tmp_path: Path, ollama: FakeOllama
):
    async with running_server(data_dir=tmp_path, ollama=ollama, workers=2, metrics=True) as server:
        await becomes(server, lambda now: now("mochi_processes") == 2)
        session = await server.new_session()

        async def turn() -> None:
            async with aiohttp.ClientSession() as http:
                url = f"{server.api}/sessions"
                async with http.post(url, json={"model": "qwen3:14b"}) as answer:
                    own = (await answer.json())["session_id"]
                async with http.post(f"{server.api}/chat/{own}", json={"message": "Hi"}) as answer:
                    assert answer.status == 200

        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(turn)
        for _ in range(10):  # whichever worker answers
            async with aiohttp.ClientSession() as http, http.get(f"{server.url}/metrics") as answer:
                now = Scrape(await answer.text())
            assert now("mochi_runs_ended_total", state="done") == 20
            assert now("gen_ai_client_token_usage_count", gen_ai_token_type="output") == 20
            assert now("mochi_build_info") == 1

        ollama.reply(["So", "on"], pause_after=1, gate=asyncio.Event())
        body = {"message": "Hi"}
        stream = server.http.post(f"{server.api}/chat/{session}/stream", json=body)
        async with stream as response:
            await response.content.readuntil(b"content_delta")
            await becomes(server, lambda now: now("mochi_runs", state="running") == 1)
            before = await workers_of(server)
            for pid in before:
                os.kill(pid, signal.SIGKILL)
            await until(lambda: all(map(is_gone, before)))
        # A worker that has come in the place of another one ends the run.
        now = await becomes(server, lambda now: now("mochi_runs_ended_total") == 21, seconds=150)
    assert now("mochi_runs_ended_total", state="interrupted") == 1
    assert now("mochi_runs_started_total") == 21
    assert now("mochi_runs") == now("mochi_streams_open") == 0
    assert 0 < now("mochi_processes") <= 2
