"""Conversations of other programs, as their readers give them: trees of plain messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final, Literal, Protocol

from pydantic import JsonValue

from ...core.json_text import read_json
from ...core.limits import STORED_LEVELS, is_too_deep
from ...protocol.messages import ToolCall
from .fields import LeftOut

Role = Literal["system", "user", "assistant", "tool"]

MAX_BRANCHES: Final = 100
"""Branches of one conversation that become forks, beside the one that is shown."""
MAX_MESSAGES: Final = 100_000
"""Of all branches of one conversation together: forks repeat what is before them."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file that belongs to a message."""

    name: str
    read: Callable[[], bytes | str]
    """Returns the content, or a data URL of it; reads each time anew, so that not all files of a
    conversation are in memory."""


class Files(Protocol):
    """The files of an export, beside its conversations."""

    def find(self, file_id: str) -> SourceFile | None:
        """Return the file of an id; None if the export has none."""


def file_of_data_url(url: str, name: str = "") -> SourceFile | None:
    """Return the file that is in a URL; None if it is elsewhere."""
    return SourceFile(name, lambda: url) if url.startswith("data:") else None


def file_of_text(text: str, name: str) -> SourceFile:
    return SourceFile(name, text.encode)


@dataclass(slots=True)
class SourceMessage:
    """A message of a conversation."""

    role: Role
    text: str = ""
    thinking: str = ""
    calls: list[ToolCall] = field(default_factory=list)
    """Of the model."""
    tool_name: str = ""
    """Of a result: what was called."""
    tool_call_id: str = ""
    """Of a result: the call; empty: the first one before it that has no result yet."""
    model: str = ""
    time: str | None = None
    message_id: str = ""
    """Where the source has one that a session can have."""
    files: list[SourceFile] = field(default_factory=list)
    is_partial: bool = False
    """Of a reply: it was cut off."""

    @property
    def is_thinking_alone(self) -> bool:
        return self.role == "assistant" and not (self.text or self.calls)


@dataclass(slots=True)
class Node:
    """A place in the tree: the messages that the source has as one, or none."""

    parent: str | None
    """Key of the node before; one that does not exist counts as none."""
    messages: list[SourceMessage]


@dataclass(slots=True, kw_only=True)
class SourceConversation:
    """A conversation of another program."""

    program: str
    """Such as ``chatgpt``."""
    source_id: str
    """Its id there, which is the same in a later export."""
    place: str = ""
    """Where it is in the file."""
    title: str = ""
    created_at: str | None = None
    updated_at: str | None = None
    model: str = ""
    system_prompt: str = ""
    tags: list[str] = field(default_factory=list)
    is_pinned: bool = False
    is_archived: bool = False
    nodes: dict[str, Node] = field(default_factory=dict)
    """By their keys, in the order of the source."""
    shown: str = ""
    """Key of the last node of the branch that the program shows; empty: of the newest one."""
    left_out: LeftOut = field(default_factory=Counter)

    def append(self, key: str, messages: list[SourceMessage]) -> None:
        """Add a node behind the last one."""
        self.nodes[key] = Node(next(reversed(self.nodes), None), messages)

    def branches(self) -> Iterator[list[tuple[str, SourceMessage]]]:
        """Yield the messages of each branch with the keys of their nodes, the one shown first."""
        self._cut_circles()
        leaves = self._leaves()
        if len(leaves) > MAX_BRANCHES + 1:
            self.left_out["branch beyond the first hundred"] += len(leaves) - MAX_BRANCHES - 1
        messages = 0
        for number, leaf in enumerate(leaves[: MAX_BRANCHES + 1]):
            branch = joined(self._path(leaf))
            if number and messages + len(branch) > MAX_MESSAGES:
                self.left_out["branch of a very long conversation"] += 1
                continue
            messages += len(branch)
            yield branch

    def _cut_circles(self) -> None:
        """Let the first node of each circle follow none."""
        passed: set[str | None] = set()
        for key in self.nodes:
            way: set[str | None] = set()
            at: str | None = key
            while at in self.nodes and at not in passed:
                passed.add(at)
                way.add(at)
                at = self.nodes[at].parent
            if at in way:
                self.nodes[str(at)].parent = None
                self.left_out["link of a message to one that follows it"] += 1

    def _leaves(self) -> list[str]:
        """Return the last nodes with messages of all branches, that of the shown one first."""
        children: dict[str, list[str]] = {}
        roots = []
        for key, node in self.nodes.items():
            if node.parent in self.nodes:
                children.setdefault(str(node.parent), []).append(key)
            else:
                roots.append(key)
        shown = self.shown
        if shown not in self.nodes:
            shown = roots[-1] if roots else ""
            while shown in children:
                shown = children[shown][-1]
        ends = [key for key in self.nodes if key not in children]
        inner: set[str] = set()
        leaves: dict[str, None] = {}
        passed: set[str] = set()
        for end in [shown, *reversed(ends)]:
            leaf = self._last_with_messages(end, passed)
            if leaf is not None and leaf not in inner:
                leaves[leaf] = None
                above = self.nodes[leaf].parent
                while above in self.nodes and above not in inner:
                    inner.add(above)
                    above = self.nodes[above].parent
        first = self._last_with_messages(shown, set())
        others = [leaf for leaf in leaves if leaf != first and leaf not in inner]
        return others if first is None else [first, *others]

    def _last_with_messages(self, key: str, passed: set[str]) -> str | None:
        """Return the last node with messages up to this one; None if it was looked for before.

        ``passed``: keys of nodes from which it was looked for; it adds more.
        """
        at: str | None = key
        while at in self.nodes and at not in passed:
            node = self.nodes[at]
            if node.messages:
                return at
            passed.add(at)
            at = node.parent
        return None

    def _path(self, leaf: str) -> Iterator[tuple[str, SourceMessage]]:
        keys: list[str] = []
        at: str | None = leaf
        while at in self.nodes:
            keys.append(at)
            at = self.nodes[at].parent
        for key in reversed(keys):
            for message in self.nodes[key].messages:
                yield key, message


def joined(
    path: Iterable[tuple[str, SourceMessage]],
) -> list[tuple[str, SourceMessage]]:
    """Return messages with thinking at its reply, and results at their calls."""
    messages: list[tuple[str, SourceMessage]] = []
    open_calls: dict[str, str] = {}
    for key, message in path:
        if message.role == "assistant" and messages and messages[-1][1].is_thinking_alone:
            before = messages.pop()[1]
            thinking = "\n\n".join(filter(None, (before.thinking, message.thinking)))
            message = replace(message, thinking=thinking)  # noqa: PLW2901
        if message.role == "tool":
            call_id = message.tool_call_id or next(iter(open_calls), "")
            name = message.tool_name or open_calls.get(call_id, "")
            open_calls.pop(call_id, None)
            message = replace(message, tool_call_id=call_id, tool_name=name)  # noqa: PLW2901
        open_calls.update({call.id: call.name for call in message.calls})
        messages.append((key, message))
    return messages


class ReplyBuilder:
    """Makes messages of the parts of one reply, in which a model thinks, calls and writes."""

    def __init__(self, key: str, model: str = "", time: str | None = None) -> None:
        self.messages: list[SourceMessage] = []
        self._key, self._model, self._time = key, model, time
        self._calls = 0

    def _reply(self) -> SourceMessage:
        if not self.messages or self.messages[-1].role != "assistant":
            self.messages.append(SourceMessage("assistant", model=self._model, time=self._time))
        return self.messages[-1]

    def text(self, text: str) -> None:
        if text:
            reply = self._reply()
            reply.text = "\n\n".join(filter(None, (reply.text, text)))

    def thinking(self, text: str) -> None:
        if text:
            reply = self._reply()
            reply.thinking = "\n\n".join(filter(None, (reply.thinking, text)))

    def call(self, name: str, arguments: JsonValue, call_id: str = "") -> str:
        """Add a call, and return its id."""
        self._calls += 1
        call_id = call_id or f"{self._key}-{self._calls}"
        self._reply().calls.append(call_of(call_id, name, arguments))
        return call_id

    def result(self, text: str, call_id: str = "", name: str = "") -> None:
        message = SourceMessage("tool", text, tool_call_id=call_id, tool_name=name, time=self._time)
        self.messages.append(message)

    def files(self, files: list[SourceFile], left_out: LeftOut) -> None:
        """Add files; the replies of models cannot have them, only results of tools."""
        if files and self.messages and self.messages[-1].role == "tool":
            self.messages[-1].files += files
        elif files:
            left_out["file in a reply of a model"] += len(files)


def call_of(call_id: str, name: str, arguments: object) -> ToolCall:
    """Return a call; arguments that are no object, nor the JSON of one, are its ``input``."""
    if isinstance(arguments, str):
        parsed = read_json(arguments)
        arguments = parsed if isinstance(parsed, dict) else {"input": arguments}
    if not isinstance(arguments, dict):
        arguments = {} if arguments is None else {"input": arguments}
    if is_too_deep(arguments, STORED_LEVELS - 10):
        arguments = {"input": "(nested too deeply)"}
    return ToolCall(id=call_id, name=name or "unknown", arguments=arguments)


def text_of_parts(content: object, left_out: LeftOut, what: str = "result") -> str:
    """Return a text, or the joined ones of a list of texts and of objects with ``text``."""
    texts = []
    for part in content if isinstance(content, list) else [content or ""]:
        text = part.get("text") if isinstance(part, dict) else part
        if isinstance(text, str):
            texts.append(text)
        else:
            left_out[f"part of a {what} that is no text"] += 1
    return "\n\n".join(filter(None, texts))
