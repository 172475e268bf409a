"""The commands that begin with a slash."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from ...core.aio import in_thread
from ...core.json_text import value_of
from ...errors import JSONObject
from ..client import path_of
from .conversation import TerminalConversation
from .keyboard import Left

NONE: Final = "none"
"""Word that removes a setting."""

FORMATS: Final = {"markdown": "md", "json": "json", "jsonl": "jsonl", "html": "html", "zip": "zip"}
"""Formats of exports, with the ends of their files' names."""

POLICIES: Final = ("always_confirm", "confirm_destructive", "never_confirm")
MODES: Final = ("native", "prompted")
LEVELS: Final = {"off": False, "on": True} | {
    level: level for level in ("low", "medium", "high", "max")
}
SESSIONS: Final = 10
"""Sessions that ``/search`` lists."""


@dataclass(frozen=True, slots=True)
class Command:
    """What runs a command, and what ``/help`` says about it."""

    run: Callable[[str], Awaitable[None]]
    arguments: str
    text: str


class SlashCompleter(Completer):
    """Completes the names of commands, and names after them that the server has told."""

    def __init__(self) -> None:
        self.names: dict[str, list[str]] = {}
        """Words that may follow a command, by its name."""

    def get_completions(
        self,
        document: Document,
        complete_event: CompleteEvent,  # noqa: ARG002 - prompt_toolkit's
    ) -> Iterable[Completion]:
        text = document.text_before_cursor
        command, space, _ = text.partition(" ")
        if not command.startswith("/"):
            return
        word = document.get_word_before_cursor(WORD=True)
        known = self.names.get(command, []) if space else list(self.names)
        for name in known:
            if name.startswith(word):
                yield Completion(name, -len(word))


class SlashCommands:
    """Runs the commands of one conversation."""

    def __init__(self, conversation: TerminalConversation, completer: SlashCompleter) -> None:
        self._conversation = conversation
        self._client = conversation.client
        self._screen = conversation.screen
        self._names = completer.names
        self._known = {
            "/model": Command(self._model, "[NAME]", "list the models, or use another one"),
            "/tools": Command(
                self._tools,
                "[NAME ... | none | group NAME | policy POLICY]",
                "list the tools, or choose those of this session",
            ),
            "/agents": Command(self._agents, "[NAME ... | none]", "the same for agents"),
            "/system": Command(
                self._system, "[TEXT | file NAME | none]", "show or set the system prompt"
            ),
            "/options": Command(
                self._options, "[NAME=VALUE ... | none]", "options such as temperature=0.2"
            ),
            "/think": Command(self._think, "[off | on | low ... max]", "let the model think first"),
            "/search": Command(self._search, "[WORDS]", "find sessions; the latest without words"),
            "/open": Command(self._open, "ID", "go on with another session"),
            "/new": Command(self._new, "", "begin a new session"),
            "/retry": Command(self._retry, "", "answer again, and keep the present answer"),
            "/branch": Command(
                self._branch, "[N]", "go on in a copy, without the last N questions"
            ),
            "/compact": Command(
                self._compact, "", "replace what is before the last question by a summary"
            ),
            "/export": Command(self._export, "[FORMAT] [FILE]", "write the session to a file"),
            "/inbox": Command(self._inbox, "", "decide about calls of all sessions"),
            "/help": Command(self._help, "", "list the commands"),
            "/quit": Command(self._quit, "", "leave"),
        }
        self._names.update({name: [] for name in self._known})
        self._names["/export"] = list(FORMATS)
        self._names["/think"] = list(LEVELS)

    async def run(self, line: str) -> None:
        """Run a command line such as ``/model qwen3:8b``.

        Raises:
            Left: It was /quit.
            RequestRefused: The server refuses it.
            ServerUnreachable: The server went away.
        """
        name, _, arguments = line.strip().partition(" ")
        command = self._known.get(name)
        if command is None:
            self._screen.error(f"There is no command {name}. /help lists them.")
            return
        await command.run(arguments.strip())

    async def _help(self, _: str) -> None:
        rows = [
            (f"{name} {command.arguments}".rstrip(), command.text)
            for name, command in self._known.items()
        ]
        self._screen.table(("command", "does"), rows)
        self._screen.note("Alt-Enter begins a new line. Ctrl-C stops an answer, Ctrl-D leaves.")

    async def _quit(self, _: str) -> None:
        raise Left

    # ---- what the session is sent with

    async def _model(self, name: str) -> None:
        if name:
            if self._conversation.session_id is not None:
                await self._conversation.change({"model": name})
            else:
                await self._client.request("GET", f"/models{path_of(*name.split('/'))}")
            self._conversation.model = name
            self._screen.note(f"The model is {name}.")
            return
        models = (await self._client.request("GET", "/models"))["models"]
        self._names["/model"] = [model["name"] for model in models]
        rows = [
            (
                "*" if model["name"] == self._conversation.model else "",
                model["name"],
                model["kind"] if model["kind"] != "model" else model["parameter_size"] or "",
                ", ".join(model["capabilities"]),
            )
            for model in models
        ]
        self._screen.table(("", "model", "", "can"), rows)

    async def _tools(self, arguments: str) -> None:
        listed = await self._client.request("GET", "/tools")
        words = [NONE, "group", "policy", *POLICIES, "mode", *MODES]
        self._names["/tools"] = [*listed["tools"], *words]
        words = arguments.split()
        if words:
            session = await self._conversation.read()
            settings: dict[str, Any] = dict(session.get("tool_settings") or {})
            match words:
                case ["policy", policy]:
                    settings["execution_policy"] = policy
                case ["mode", mode]:
                    settings["tool_mode"] = mode
                case ["group", group]:
                    settings |= {"tool_group": group, "tools": []}
                case ["none"]:
                    settings |= {"tools": [], "tool_group": None}
                case _:
                    settings |= {"tools": words, "tool_group": None}
            await self._conversation.change({"tool_settings": settings})
        status = await self._status()
        active = status.get("active_tools", [])
        rows = [
            ("*" if name in active else "", name, _first_sentence(tool["description"]))
            for name, tool in listed["tools"].items()
        ]
        self._screen.table(("", "tool", ""), rows)
        for name in status.get("unknown_tools", []):
            self._screen.error(f"There is no tool {name}.")
        if status:
            self._screen.note(f"policy: {status['execution_policy']}, mode: {status['tool_mode']}")

    async def _agents(self, arguments: str) -> None:
        listed = await self._client.request("GET", "/agents")
        self._names["/agents"] = [*listed["agents"], NONE]
        if words := arguments.split():
            session = await self._conversation.read()
            enabled: list[Any] = [] if words == [NONE] else words
            settings = {**(session.get("agent_settings") or {}), "enabled_agents": enabled}
            await self._conversation.change({"agent_settings": settings})
        status = await self._status()
        active = status.get("enabled_agents", [])
        rows = [
            (
                "*" if name in active else "",
                name,
                agent["error_message"] or _first_sentence(agent["description"]),
            )
            for name, agent in listed["agents"].items()
        ]
        self._screen.table(("", "agent", ""), rows)
        for name in status.get("unknown_agents", []):
            self._screen.error(f"There is no agent {name}.")

    async def _status(self) -> dict[str, Any]:
        """Return what the session's next turn will use; nothing without a session."""
        session_id = self._conversation.session_id
        if session_id is None:
            return {}
        status: dict[str, Any] = await self._client.request(
            "GET", path_of("sessions", session_id, "status")
        )
        return status

    async def _system(self, arguments: str) -> None:
        prompts = await self._client.request("GET", "/system-prompts")
        files = [prompt["filename"] for prompt in prompts["prompts"]]
        self._names["/system"] = [NONE, "file", *files]
        if arguments:
            session_id = await self._conversation.require_session()
            path = path_of("sessions", session_id, "system-prompt")
            if arguments == NONE:
                await self._client.request("DELETE", path)
            elif arguments.startswith("file "):
                name = arguments.removeprefix("file ").strip()
                await self._client.request("PUT", path, {"source_file": name})
            else:
                await self._client.request("PUT", path, {"content": arguments})
        text = None
        if self._conversation.session_id is not None:
            messages = (await self._conversation.read())["messages"]
            text = next((each["content"] for each in messages if each["role"] == "system"), None)
        self._screen.line(text if text is not None else "There is no system prompt.")
        if files and not arguments:
            self._screen.note(f"files: {', '.join(files)}")

    async def _options(self, arguments: str) -> None:
        session = await self._conversation.read()
        options = session.get("options") or {}
        if arguments:
            pairs = [word.partition("=") for word in arguments.split()]
            if arguments != NONE and not all(equals for _, equals, _ in pairs):
                self._screen.error("Write options as NAME=VALUE, such as temperature=0.2")
                return
            new = {} if arguments == NONE else {name: value_of(text) for name, _, text in pairs}
            options = {**options, **new} if new else {}
            await self._conversation.change({"options": options})
        text = ", ".join(f"{name}={value}" for name, value in options.items())
        self._screen.line(text or "The options are those that are usual for the model.")

    async def _think(self, level: str) -> None:
        if level and level not in LEVELS:
            self._screen.error(f"Levels are {', '.join(LEVELS)}.")
            return
        if level:
            self._conversation.think = LEVELS[level]
        levels = (name for name, value in LEVELS.items() if value == self._conversation.think)
        self._screen.note(f"Thinking is {next(levels, 'as the preset says, or off')}.")

    # ---- sessions

    async def _search(self, words: str) -> None:
        query: dict[str, Any] = {"query": words} if words else {}
        answer = await self._client.request("GET", "/sessions", limit=SESSIONS, **query)
        self._names["/open"] = [session["session_id"] for session in answer["sessions"]]
        if not answer["sessions"]:
            self._screen.line("Nothing was found." if words else "There are no sessions.")
        for session in answer["sessions"]:
            title = session["title"] or session["preview"] or "(empty)"
            self._screen.line(f"{session['session_id']}  {_first_line(title)}")
            if snippet := session.get("snippet"):
                self._screen.note("    " + "".join(piece["text"] for piece in snippet))

    async def _open(self, session_id: str) -> None:
        if not session_id:
            self._screen.error("Which one? /search lists sessions.")
            return
        await self._conversation.open(session_id)

    async def _new(self, _: str) -> None:
        await self._conversation.leave_session()
        self._screen.note(f"A new session with {self._conversation.model}.")

    async def _retry(self, _: str) -> None:
        await self._conversation.send({"keep": True})

    async def _branch(self, arguments: str) -> None:
        back = int(arguments) if arguments.isdecimal() else 0
        session = await self._conversation.read()
        messages = session["messages"]
        asked = [at for at, each in enumerate(messages) if each["role"] == "user"]
        if back > len(asked) or (arguments and not back):
            self._screen.error(f"N is a number from 1 to {len(asked)}.")
            return
        body: JSONObject = {}
        draft = ""
        if back:
            at = asked[-back]
            if not at:
                self._screen.error("Nothing comes before this question. /new begins anew.")
                return
            body, draft = {"message_id": messages[at - 1]["message_id"]}, messages[at]["content"]
        path = path_of("sessions", session["session_id"], "fork")
        fork = await self._client.request("POST", path, body)
        await self._conversation.open(fork["session_id"])
        self._conversation.draft = draft
        self._screen.note(f"This is {fork['session_id']}, a copy of {session['session_id']}.")

    async def _compact(self, _: str) -> None:
        session = await self._conversation.read()
        self._screen.note("The model writes a summary ...")
        path = path_of("sessions", session["session_id"], "compact")
        summary = await self._client.request("POST", path)
        self._screen.line(summary["text"])
        self._screen.note("The model reads this in the place of the messages, which are kept.")

    async def _export(self, arguments: str) -> None:
        words = arguments.split(maxsplit=1)
        kind = words.pop(0) if words and words[0] in FORMATS else "markdown"
        session = await self._conversation.read()
        name = re.sub(r"\W+", "-", session["title"] or session["session_id"]).strip("-")
        path = Path(words[0] if words else f"{name}.{FORMATS[kind]}")
        content = await self._client.download(
            "GET", path_of("sessions", session["session_id"], "export"), format=kind
        )
        try:
            await in_thread(_write_new, path, content)
        except OSError as error:
            self._screen.error(f"{path}: {error.strerror}")
        else:
            self._screen.line(f"Written to {path}")

    async def _inbox(self, _: str) -> None:
        answer = await self._client.request("GET", "/confirmations")
        waiting = answer["confirmations"]
        if not waiting:
            self._screen.line("Nothing waits for a decision.")
        for confirmation in waiting:
            self._screen.note(f"session {confirmation['session_id']}")
            await self._conversation.decisions.decide(confirmation, may_skip=True)


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


def _first_sentence(text: str) -> str:
    return re.split(r"[.;\n]", text.strip(), maxsplit=1)[0]


def _write_new(path: Path, content: bytes) -> None:
    with path.expanduser().open("xb") as file:
        file.write(content)
