"""Other answers to a user's message, kept in the session file beside the messages.

The file's key ``variants`` has, by the id of a user's message, what has followed it at other times:
each a list of messages, of which the first up to the next user's are the answer. One to another
version of the user's message begins with that version, which has the same id. They are not sent to
models, not counted and not searched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from ..core.ids import new_message_id
from ..core.limits import STORED_LEVELS, is_too_deep
from ..errors import JSONObject
from .codec import id_of, is_user

VARIANTS = "variants"
"""The key beside the messages; there only where answers are kept."""
REPLACED = "replaced"
"""A key of the message by which a branch is known: true until the answer that takes its place is
complete, with which it goes."""
LEVELS = 3
"""Levels of nesting around a message that is kept."""

Branch = list[JsonValue]
"""The messages after a user's message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One answer to a user's message."""

    message_id: str | None
    """Its last message; null where a file of an old writer has no id."""
    content: str
    """Empty where the model has said nothing before the user's next message."""
    model: str | None
    created_at: str | None
    shown: bool
    """Whether it is among the messages of the session."""
    question: str | None = None
    """What the user's message said then, if it was edited since."""

    @classmethod
    def of(cls, branch: Branch, *, shown: bool, to: str | None = None) -> Variant:
        """Return the answer that a branch begins with; ``to`` is the id of the user's message."""
        question, rest = split_branch(branch, to)
        main, answer = main_message(rest) or {}, _answer_of(rest) or {}
        return cls(
            message_id=id_of(main),
            content=_text(answer.get("content")) or "",
            model=_text(answer.get("model")),
            created_at=_text(main.get("timestamp")),
            shown=shown,
            question=None if question is None else _text(question.get("content")) or "",
        )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def read_branches(stored: object) -> dict[str, list[Branch]]:
    """Return what can be understood of the file's key."""
    branches: dict[str, list[Branch]] = {}
    for message_id, kept in stored.items() if isinstance(stored, dict) else ():
        lists = [one for one in (kept if isinstance(kept, list) else ()) if isinstance(one, list)]
        branches[message_id] = [one for one in lists if main_id(one, message_id)]
    return branches


def split_branch(branch: Branch, message_id: str | None) -> tuple[JSONObject | None, Branch]:
    """Return the version of the user's message that a branch begins with, if any, and the rest."""
    first = branch[0] if branch else None
    if is_user(first) and message_id is not None and id_of(first) == message_id:
        return first, branch[1:]
    return None, branch


def with_question(branch: Branch, question: JSONObject) -> Branch:
    """Return a branch that begins with a version of the user's message; its own one stays."""
    own, _ = split_branch(branch, id_of(question))
    return branch if own is not None else [question, *branch]


def main_id(branch: Branch, message_id: str | None) -> str | None:
    """Return the id by which a branch of a user's message is known."""
    return id_of(main_message(split_branch(branch, message_id)[1]))


def is_replaced(branch: Branch, message_id: str | None) -> bool:
    """Return whether a branch goes as soon as the present answer is complete."""
    main = main_message(split_branch(branch, message_id)[1])
    return main is not None and main.get(REPLACED) is True


def marked(branch: Branch, message_id: str | None, *, replaced: bool) -> Branch:
    """Return a branch that is, or is not, kept only until the present answer is complete."""
    main = main_message(split_branch(branch, message_id)[1]) or {}
    others = {key: value for key, value in main.items() if key != REPLACED}
    made: JSONObject = {**others, REPLACED: True} if replaced else others
    return [made if each is main else each for each in branch]


def with_id(message: JSONObject) -> JSONObject:
    """Return a message that has an id."""
    return message if id_of(message) else {**message, "message_id": new_message_id()}


def identified(branch: Sequence[JsonValue]) -> Branch:
    """Return a branch whose main message has an id; empty if it has no message."""
    main = main_message(branch)
    if main is None:
        return []
    return [with_id(main) if message is main else message for message in branch]


def is_storable(branch: Branch) -> bool:
    """Return whether a branch is not nested too deeply to be kept in the file."""
    return not is_too_deep(branch, STORED_LEVELS - LEVELS)


def reachable(branches: dict[str, list[Branch]], shown: Iterable[str]) -> dict[str, list[Branch]]:
    """Return the branches of messages that are shown, or that are in such a branch."""
    todo, found = [*shown], dict[str, list[Branch]]()
    while todo:
        message_id = todo.pop()
        if branches.get(message_id) and message_id not in found:
            found[message_id] = branches[message_id]
            todo += (each for branch in found[message_id] for each in _users_in(branch))
    return found


def _users_in(branch: Branch) -> Iterator[str]:
    for message in branch:
        if is_user(message) and (message_id := id_of(message)):
            yield message_id


def main_message(branch: Sequence[JsonValue]) -> JSONObject | None:
    """Return the message by which a branch is known: the answer that it begins with, if any."""
    objects = (message for message in branch if isinstance(message, dict))
    return _answer_of(branch) or next(objects, None)


def _answer_of(branch: Sequence[JsonValue]) -> JSONObject | None:
    """Return the last message of the model before the next one of the user."""
    answer = None
    for message in branch:
        if is_user(message):
            break
        if isinstance(message, dict) and message.get("role") == "assistant":
            answer = message
    return answer
