"""Errors that nobody has foreseen, as Sentry gets them; docs/how-to/observe.md says how."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.docs.pages import ROOT, blocks
from tests.support.fake_ollama import FakeOllama
from tests.support.receiver import Receiver, running_receiver
from tests.support.server import running_server
from tests.support.tool_folders import until
from tests.support.tools import write_tools

RECIPE = next(
    block.text
    for block in blocks(ROOT / "docs" / "how-to" / "observe.md")
    if "sentry_sdk" in block.text
)
BROKEN = """
MOCHI_PROVIDERS = {**MOCHI_PROVIDERS, "broken": {"BACKEND": "broken.Broken", "OPTIONS": {}}}
"""
PROVIDER = """
from mochi_server.providers.base import ContentDelta, ModelInfo, Provider


class Broken(Provider):
    async def list_models(self):
        return []

    async def show_model(self, name):
        if name == "in-a-view":
            secret = "-".join(["secret", "of", "view"])  # the code itself is reported
            raise RuntimeError("broken in a view")
        return ModelInfo(name=name)

    async def stream(self, request):
        secret = "-".join(["secret", "of", "turn"])
        yield ContentDelta(secret)
        raise RuntimeError("broken in a turn")

    async def check(self):
        return True
"""
TOOLS = '''
__all__ = ["fail"]


def fail() -> str:
    """Fail."""
    raise ValueError("of no use")
'''


def reports(receiver: Receiver) -> list[dict[str, Any]]:
    """The events that have come, out of their envelopes."""
    found = []
    for request in receiver.requests:
        lines = request.body.splitlines()[1:]
        for head, body in zip(lines[::2], lines[1::2], strict=True):
            if json.loads(head)["type"] == "event":
                found.append(json.loads(body))
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "my_settings.py").write_text(RECIPE + BROKEN)
    (tmp_path / "broken.py").write_text(PROVIDER)
    write_tools(tmp_path / "tools", init=TOOLS)
    return tmp_path


async def test_what_nobody_has_foreseen_arrives_once_with_its_ids_and_no_words(
    folder: Path, ollama: FakeOllama, monkeypatch: pytest.MonkeyPatch
):
    with running_receiver() as receiver:
        monkeypatch.setenv("SENTRY_DSN", receiver.url.replace("://", "://public@") + "/1")
        code = (
            f"import os, sys; sys.path[:0] = [{str(folder)!r}]; "
            "os.environ['DJANGO_SETTINGS_MODULE'] = 'my_settings'; "
            "from mochi_server.__main__ import main; sys.exit(main(['--port', '0']))"
        )
        async with running_server(
            data_dir=folder, ollama=ollama, command=("-c", code), api_token="t0psecret"
        ) as server:
            key = {"Authorization": "Bearer t0psecret"}

            async def post(path: str, body: Any, name: str) -> tuple[int, Any]:
                return await server.post(path, body, headers={**key, "X-Request-ID": name})

            status, body = await post("/sessions", {"model": "broken/in-a-view"}, "view")
            assert (status, body["error"]["code"]) == (500, "INTERNAL_ERROR")
            await until(lambda: len(reports(receiver)) == 1)

            _, session = await post("/sessions", {"model": "broken/in-a-turn"}, "x")
            path = f"/chat/{session['session_id']}/stream"
            headers = {**key, "X-Request-ID": "turn"}
            with anyio.fail_after(60):
                stream = server.stream(path, {"message": "secret-of-message"}, headers=headers)
                events = [event.event async for event in stream]
            assert events[-2:] == ["error", "done"]
            await until(lambda: len(reports(receiver)) == 2)

            _, session = await post(
                "/sessions",
                {
                    "model": "qwen3:14b",
                    "tool_settings": {"tools": ["fail"], "execution_policy": "never_confirm"},
                },
                "x",
            )
            ollama.reply(tool_calls=[{"name": "fail", "arguments": {}}])
            ollama.reply(["Well"])
            status, _ = await post(f"/chat/{session['session_id']}", {"message": "Hi"}, "tool")
            assert status == 200
            assert await server.stop() == 0
        found = reports(receiver)
        everything = b"".join(each.body for each in receiver.requests)

    of_view, of_turn = found
    for report, name, words in (
        (of_view, "view", "broken in a view"),
        (of_turn, "turn", "broken in a turn"),
    ):
        assert report["extra"]["request_id"] == name
        assert report["exception"]["values"][-1]["value"] == words
    assert of_turn["extra"]["run_id"].startswith("run_")
    assert b"secret-of" not in everything
    assert b"t0psecret" not in everything
