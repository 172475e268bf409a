"""Trees of messages: their branches, also of trees that are large for no good reason."""

from __future__ import annotations

from collections.abc import Iterator

from mochi_server.sessions.imports.conversation import (
    MAX_MESSAGES,
    Node,
    SourceConversation,
    SourceMessage,
)


def tree(stem: int, leaves: int, *, is_empty: bool = False) -> dict[str, Node]:
    """Return a row of nodes, and leaves that all follow its last one."""

    def said() -> list[SourceMessage]:
        return [] if is_empty else [SourceMessage("user", "Hi")]

    nodes = {f"s{n}": Node(f"s{n - 1}" if n else None, said()) for n in range(stem)}
    return nodes | {f"l{n}": Node(f"s{stem - 1}", said()) for n in range(leaves)}


class Watched(dict[str, Node]):
    """Nodes that count how often one is looked up."""

    count = 0

    def __getitem__(self, key: str) -> Node:
        self.count += 1
        return super().__getitem__(key)


def branches(nodes: dict[str, Node]) -> tuple[SourceConversation, Iterator[int]]:
    conversation = SourceConversation(program="test", source_id="1", place="", nodes=nodes)
    return conversation, (len(branch) for branch in conversation.branches())


def test_nodes_without_messages_are_passed_once() -> None:
    nodes = Watched(tree(1_000, 1_000, is_empty=True))
    _, lengths = branches(nodes)
    assert [*lengths] == []
    assert nodes.count < 10 * len(nodes)


def test_branches_that_repeat_very_many_messages_are_left_out() -> None:
    conversation, lengths = branches(tree(MAX_MESSAGES // 10, 15))
    assert len([*lengths]) == 9
    assert conversation.left_out == {"branch of a very long conversation": 6}


def test_the_branch_that_is_shown_has_any_length() -> None:
    _, lengths = branches(tree(MAX_MESSAGES, 1))
    assert [*lengths] == [MAX_MESSAGES + 1]
