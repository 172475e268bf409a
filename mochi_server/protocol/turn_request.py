"""What a client may ask of a turn, whatever its wire."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from typing_extensions import Self

from ..errors import JSONObject
from .attachments import NewAttachment, attach
from .completions import Think
from .messages import Message, UserMessage
from .options import NO_OPTIONS, ModelOptions
from .response_format import ResponseFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRequest:
    """All that a client may ask of a turn; routes and wires make one of what they read."""

    message: str | None = None
    """The user's message; None answers the last one again. What follows that one is replaced when
    the first message of the new answer is stored, not before."""
    keep: bool = False
    """Whether what is replaced is kept as a variant for good."""
    new_messages: Sequence[Message] | None = None
    """In the place of a message, what a client adds: messages of the user, and results of calls
    that it has run. Without any, the model goes on after what is stored."""
    attachments: Sequence[NewAttachment] = ()
    """Files that belong to the message, or that new messages name."""
    model: str | None = None
    """Name of a model for this turn only, perhaps of a preset or an agent; None: the session's."""
    options: ModelOptions = NO_OPTIONS
    """Options for this turn; those of the session hold for what it does not name."""
    think: Think | None = None
    """Whether the model thinks first; None: as its preset says."""
    thinks_unasked: bool = False
    """Whether it does what its provider lets it do by default, where neither says it."""
    response_format: ResponseFormat | None = None
    """The form of the final answer, which is checked."""
    selected: Sequence[str] | None = None
    """Names of the server's tools of this turn; those of the session if None, else those of its
    preset or agent."""
    allowed: Sequence[str] | None = None
    """Names of what the model may call, of the server's tools and of the client's; None: all."""
    client_tools: Sequence[JSONObject] = ()
    """Schemas of the functions that the client runs:
    ``{"type": "function", "function": {"name", "description", "parameters"}}`` each. They come
    before tools of the same name. A call of one ends the turn."""
    must_call: bool = False
    """Whether the first reply must call a tool. If the provider cannot demand it,
    ``MessageComplete.ignored_options`` has ``tool_choice``."""
    wait: bool | None = None
    """Whether to wait for confirmations; else calls that need one are denied. None: a stream waits,
    and a reply in one piece does not."""
    continues: bool = False
    """Whether the turn goes on when nobody reads it."""
    after_run: int | None = None
    """Which one of the session's runs must be its last one until now, from 1; 0: it must have had
    none; None: any."""

    def added(self) -> Sequence[Message] | None:
        """Return the messages that it adds; None: it answers the last one again.

        Raises:
            InvalidRequest: there are more than ``MAX_ATTACHMENTS``.
        """
        if self.message is None:
            return self.new_messages
        question = UserMessage(content=self.message)
        attach(question, self.attachments)
        return [question]

    def client_functions(self) -> dict[str, JSONObject]:
        """Return the schemas of the client's functions that the model may call, by name."""
        functions = {}
        for tool in self.client_tools:
            function = tool["function"]
            functions[str(function["name"]) if isinstance(function, dict) else ""] = tool
        return {name: functions[name] for name in functions if self.allows(name)}

    def allows(self, name: str) -> bool:
        """Return whether the model may call a tool, or a function of the client."""
        return self.allowed is None or name in self.allowed

    def without_messages(self) -> Self:
        """Return it without what is stored in the session."""
        return replace(self, message=None, new_messages=None, attachments=())


NO_REQUEST: Final = TurnRequest()
"""Asks for nothing but what the session says."""
