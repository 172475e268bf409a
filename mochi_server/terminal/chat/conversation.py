"""The session that a person talks in: opening, changing, sending messages, following runs."""

from __future__ import annotations

from typing import Any, Final

from ...errors import JSONObject
from ..client import Client, path_of
from .decisions import Decisions
from .keyboard import Keyboard
from .run import ShownRun
from .screen import Screen

SHOWN_MESSAGES: Final = 10
"""Messages that are shown when a session is opened."""

_GOES_ON = {"running", "waiting", "queued"}
"""States of runs that have not ended."""


class TerminalConversation:
    """The session that the person talks in, and what the next message is sent with."""

    def __init__(self, client: Client, screen: Screen, keyboard: Keyboard) -> None:
        self.client = client
        self.screen = screen
        self.decisions = Decisions(client, screen, keyboard)
        self.session_id: str | None = None
        self.model: str | None = None
        """Model of the session, or of the one that the first message creates."""

        self.think: bool | str | None = None
        """Whether the model thinks; None: as its preset says."""

        self.draft = ""
        """Text that the next prompt begins with."""

        self._is_empty = False
        """Whether this program has created the session, and sent nothing yet."""

    async def require_session(self) -> str:
        """Return the id of the session, which is created if there is none yet."""
        if self.session_id is None:
            session = await self.client.request("POST", "/sessions", {"model": self.model})
            self.session_id, self._is_empty = session["session_id"], True
        return self.session_id

    async def read(self) -> dict[str, Any]:
        """Return the session, which is created if there is none yet."""
        session: dict[str, Any] = await self.client.request(
            "GET", path_of("sessions", await self.require_session())
        )
        return session

    async def change(self, body: JSONObject) -> None:
        """Change keys of the session, which is created if there is none yet."""
        await self.client.request("PATCH", path_of("sessions", await self.require_session()), body)

    async def open(self, session_id: str) -> None:
        """Go on with a session: show its end, and join what is running."""
        session = await self.client.request("GET", path_of("sessions", session_id))
        await self.leave_session()
        self.session_id, self.model = session["session_id"], session["model"]
        listed = await self.client.request("GET", "/runs", session_id=session_id)
        runs = [run for run in listed["runs"] if run["state"] in _GOES_ON]
        messages = [each for each in session["messages"] if each["role"] in {"user", "assistant"}]
        if runs:  # the run itself tells what came after the last question
            while messages and messages[-1]["role"] != "user":
                messages.pop()
        self._show_messages(session, messages)
        for run in runs:
            await self._follow(run["run_id"])

    async def leave_session(self) -> None:
        """Let the next message begin a new session."""
        if self._is_empty and self.session_id is not None:
            await self.client.request("DELETE", path_of("sessions", self.session_id))
        self.session_id, self._is_empty = None, False

    async def send(self, body: JSONObject) -> None:
        """Start a run with a message, or without one to answer the last again, and show it."""
        if self.think is not None:
            body = {**body, "think": self.think}
        path = path_of("chat", await self.require_session(), "runs")
        run = await self.client.request("POST", path, body)
        self._is_empty = False
        await self._follow(run["run_id"])

    async def _follow(self, run_id: str) -> None:
        await ShownRun(self.client, self.screen, self.decisions, run_id).show()

    def _show_messages(self, session: dict[str, Any], messages: list[dict[str, Any]]) -> None:
        title = session["title"] or self.session_id
        self.screen.note(f"{title} · {session['model']}")
        if len(messages) > SHOWN_MESSAGES:
            self.screen.note(f"({len(messages) - SHOWN_MESSAGES} messages before)")
        for message in messages[-SHOWN_MESSAGES:]:
            content = message["content"] or ""
            if message["role"] == "user":
                self.screen.line(f"> {content}", "bold")
            elif content:
                self.screen.markdown(content)
            for call in message.get("tool_calls") or ():
                self.screen.line(f"* {call['function']['name']}", "cyan")
            if message.get("interrupted"):
                self.screen.note("(interrupted)")
