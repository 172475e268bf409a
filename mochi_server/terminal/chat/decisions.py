"""A person's decision about a tool call, and the answer to a tool that asks."""

from __future__ import annotations

from typing import Any

from ...core.json_text import parse_json, value_of
from ...errors import JSONObject
from ..client import Client, RequestRefused, ServerUnreachable, path_of
from .keyboard import Keyboard
from .screen import Screen

_CHOICES = "y: yes, n: no, e: edit"
_REMEMBER = {"s": "session", "t": "tool"}
_REMEMBER_CHOICES = {"s": "remember for this session", "t": "remember for all sessions"}
_NO_RULE = "This cannot be remembered: no rule would surely allow this call."
_ENTER = "/Enter"
_NOT_OPEN = {"CONFIRMATION_NOT_FOUND", "TOOL_CONFIRMATION_TIMEOUT"}


class Decisions:
    """Shows what waits for a decision, asks, and sends the decision."""

    def __init__(self, client: Client, screen: Screen, keyboard: Keyboard) -> None:
        self._client = client
        self._screen = screen
        self._keyboard = keyboard

    async def decide(self, confirmation: JSONObject, *, may_skip: bool = False) -> None:
        """Ask about a call, or for what a tool wants to know, until it is decided.

        Args:
            confirmation: The data of the event, or an entry of the list of confirmations.
            may_skip: An empty line leaves it open.

        Raises:
            Interrupted: Ctrl-C.
        """
        self._show(confirmation)
        ask = self._answer if "elicitation" in confirmation else self._decision
        path = path_of("confirmations", str(confirmation["confirmation_id"]))
        is_at_end = False
        while True:
            try:
                body = await ask(confirmation, may_skip=may_skip)
            except EOFError:  # nothing can be asked again
                body, is_at_end = None if may_skip else {"approved": False}, True
            if body is None:
                return
            try:
                await self._client.request("POST", path, body)
            except (RequestRefused, ServerUnreachable) as error:  # the server may come back
                self._screen.error(str(error))
                if is_at_end or (isinstance(error, RequestRefused) and error.code in _NOT_OPEN):
                    return
            else:
                return

    def _show(self, confirmation: JSONObject) -> None:
        name, agent = str(confirmation["tool_name"]), confirmation.get("agent_name")
        title = f"{name} of agent {agent}" if agent else name
        total = confirmation.get("queue_total", 1)
        if total != 1:
            title += f" ({confirmation.get('queue_position')} of {total})"
        notice = str(confirmation.get("notice") or "")
        self._screen.card(title, str(confirmation["shown"]), notice)

    async def _decision(self, confirmation: JSONObject, *, may_skip: bool) -> JSONObject | None:
        skip = ", Enter: later" if may_skip else ""
        letters = ["s", "t"] if confirmation.get("session_kept", True) else ["t"]
        keys = "/".join(["y", "n", "e", *letters])
        while True:
            line = await self._keyboard.line(f"Run it? [{keys}{_ENTER * may_skip}/?] ")
            answer = line.strip().lower()
            if not answer and may_skip:
                return None
            if answer in {"y", "yes"}:
                return {"approved": True}
            if answer in {"n", "no"}:
                reason = await self._keyboard.line("Reason, for the model (Enter: none): ")
                return {"approved": False, **({"reason": reason} if reason.strip() else {})}
            if answer in letters:
                patterns = await self._patterns(confirmation.get("suggestions", []))
                if patterns is not None:
                    return {"approved": True, "remember": _REMEMBER[answer], "patterns": patterns}
                continue
            if answer == "e":
                arguments = await self._edited(str(confirmation["shown"]))
                if arguments is not None:
                    return {"approved": True, "arguments": arguments}
                continue
            remember = "".join(f", {each}: {_REMEMBER_CHOICES[each]}" for each in letters)
            self._screen.note(_CHOICES + remember + skip)

    async def _patterns(self, suggestions: Any) -> JSONObject | None:  # noqa: ANN401 - any JSON
        """Ask which calls are allowed from now on; None: none."""
        choices: dict[str, JSONObject] = {}
        for number, suggestion in enumerate(suggestions, 1):
            self._screen.line(f"{number}: {suggestion['allows']}")
            choices[str(number)] = suggestion["patterns"]
        if not choices:
            self._screen.note(_NO_RULE)
            return None
        while True:
            line = await self._keyboard.line(f"Which? [{'/'.join(choices)}, Enter: none] ")
            answer = line.strip()
            if not answer:
                return None
            if answer in choices:
                return choices[answer]

    async def _edited(self, shown: str) -> dict[str, Any] | None:
        """Ask for other arguments; None if the line was emptied."""
        text = " ".join(line.strip() for line in shown.split("\n"))
        while True:
            text = (await self._keyboard.line("Arguments: ", default=text)).strip()
            if not text:
                return None
            try:
                arguments = parse_json(text)
            except ValueError as error:
                self._screen.error(f"This is not JSON: {error}")
                continue
            if isinstance(arguments, dict):
                return arguments
            self._screen.error("The arguments are a JSON object: {…}")

    async def _answer(self, confirmation: JSONObject, *, may_skip: bool) -> JSONObject | None:
        """Ask for each value of the schema of a tool that asks, or whether a page was opened."""
        elicitation: Any = confirmation["elicitation"]
        choice = await self._keyboard.line(f"Answer? [y/n{_ENTER * may_skip}] ")
        if not choice.strip() and may_skip:
            return None
        if choice.strip().lower() not in {"y", "yes"}:
            return {"approved": False}
        schema = elicitation.get("requested_schema") or {}
        values: dict[str, Any] = {}
        for name, kind in schema.get("properties", {}).items():
            allowed = f" ({', '.join(map(str, kind['enum']))})" if "enum" in kind else ""
            text = await self._keyboard.line(f"{name}{allowed}: ", str(kind.get("default", "")))
            if text:
                values[name] = text if kind.get("type") == "string" else value_of(text)
        return {"approved": True, "arguments": values}
