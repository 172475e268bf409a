"""One conversation, over several wires."""

from __future__ import annotations

from typing import Any

import anyio
import ollama
import openai
import pytest

from tests.support.scripts import calls, says, scripted
from tests.support.server import Server
from tests.support.sockets import ready_socket, text_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

HELLO = scripted([says("Hello there.")])
SUM = scripted([says("Let me see. "), calls("add", a=2, b=3)], [says("It is five.")])


async def test_what_is_said_on_one_wire_is_heard_on_all_others(server: Server) -> None:
    """Begun over OpenAI's, continued over Ollama's, decided on the socket, read everywhere."""
    options: dict[str, Any] = {"api_key": "none", "max_retries": 0}
    async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", **options) as client:
        begun: Any = await client.chat.completions.create(
            model="lorem",
            messages=[{"role": "user", "content": HELLO}],
            extra_headers={"X-Mochi-Session": "new"},
        )
        session_id = begun.mochi["session_id"]
        asked = {"tools": ["add"], "execution_policy": "always_confirm"}
        status, _ = await server.request(
            "PATCH", f"/sessions/{session_id}", {"tool_settings": asked}
        )
        assert status == 200
        told: list[str] = []

        async def go_on() -> None:
            headers = {"X-Mochi-Session": session_id}
            own = ollama.AsyncClient(host=f"{server.url}/ollama", headers=headers)
            question = {"role": "user", "content": SUM}
            stream = await own.chat("lorem", [question], stream=True)
            told.extend([part.message.content or "" async for part in stream])
            await own.close()

        async with (
            ready_socket(server, session_id=session_id) as person,
            anyio.create_task_group() as group,
        ):
            group.start_soon(go_on)
            question = (await person.until("tool:approval_required"))["data"]
            assert (question["name"], question["args"]) == ("add", {"a": 2, "b": 3})
            decision = {"callId": question["confirmation_id"], "approved": True}
            await person.send("tool:approval", decision)
            assert (await person.until("tool:output"))["data"]["output"] == "5"
            done = await person.until("done")
        heard = text_of(person.of_run(done["run_id"]))
        assert heard == "Let me see. It is five."
        assert "".join(told).split() == heard.split()

        _, session = await server.get(f"/sessions/{session_id}")
        assert [(message["role"], message["content"]) for message in session["messages"]] == [
            *(("user", HELLO), ("assistant", begun.choices[0].message.content)),
            *(("user", SUM), ("assistant", "Let me see. "), ("tool", "5")),
            ("assistant", "It is five."),
        ]
        items = await client.conversations.items.list(session_id, order="asc")
        texts = [
            part.text
            async for item in items
            if item.type == "message"
            for part in item.content
            if part.type in {"input_text", "output_text"}
        ]
        assert texts == [
            message["content"] for message in session["messages"] if message["role"] != "tool"
        ]
        _, listed = await server.get("/sessions", params={"query": "five"})
        assert session_id in {each["session_id"] for each in listed["sessions"]}
