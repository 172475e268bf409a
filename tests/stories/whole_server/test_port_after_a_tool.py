"""What a tool leaves behind does not keep the server's port."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.support.fake_ollama import FakeOllama
from tests.support.redis import free_port
from tests.support.server import running_server
from tests.support.tools import write_tools

TOOL = '''
import os
from pathlib import Path

__all__ = ["leave_a_program"]


def leave_a_program() -> str:
    """Start a program that outlives everything."""
    place = Path(__file__).with_name("pid")
    os.system(f"setsid sh -c 'echo $$ > {place}; exec sleep 300' > /dev/null 2>&1 &")
    while not (place.exists() and place.read_text().strip()):
        pass
    return "It runs."
'''


async def test_a_server_can_start_again_though_a_tool_has_left_a_program(tmp_path: Path) -> None:
    write_tools(tmp_path / "tools", init=TOOL)
    settings = {"tools": ["leave_a_program"], "execution_policy": "never_confirm"}
    pid = None
    try:
        async with FakeOllama() as ollama:
            port = ("--port", str(free_port()))
            async with running_server(data_dir=tmp_path, ollama=ollama, arguments=port) as server:
                session = await server.new_session(tool_settings=settings)
                ollama.reply(tool_calls=[{"name": "leave_a_program", "arguments": {}}])
                ollama.reply(["Done."])
                status, answer = await server.post(f"/chat/{session}", {"message": "Leave one"})
                assert status == 200, answer
                assert answer["tool_calls_executed"][0]["result"] == "It runs."
                pid = int((tmp_path / "tools" / "pid").read_text())
                await server.stop()
            async with running_server(data_dir=tmp_path, ollama=ollama, arguments=port) as server:
                assert server.url.endswith(f":{port[1]}")
    finally:
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
