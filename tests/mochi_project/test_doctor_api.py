"""``GET /doctor``: what the command of this name says, of a server that runs."""

from __future__ import annotations

import asyncio
import json

from pydantic import SecretStr

from mochi_project.management.commands.doctor import Command
from tests.support.tools import write_tools


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
