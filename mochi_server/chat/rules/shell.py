"""A shell's command line, split into the simple commands that it may run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from .shell_words import words_of

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

MAX_COMMAND = 4096
"""Characters of the longest command that is read."""

MAX_DEPTH = 60
"""Parts within each other; a command with more is not read."""

MAX_NODES = 6000

_UNREADABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
_EXPANSIONS = frozenset(
    {"simple_expansion", "expansion", "command_substitution", "process_substitution"}
    | {"arithmetic_expansion"}
)
_WORDS = frozenset(
    {"word", "number", "string", "raw_string", "ansi_c_string", "translated_string"}
    | {"concatenation", "array", "variable_assignment", "test_operator", "regex", "subscript"}
    | {"extglob_pattern", "variable_name", "special_variable_name", "brace_expression"}
    | _EXPANSIONS
)
"""Nodes of the syntax tree that are a word of a command, or a part of one."""
_COMMANDS = frozenset(
    {"command", "declaration_command", "unset_command", "test_command", "function_definition"}
)
_PLAIN = frozenset(
    {"program", "list", "pipeline", "command", "command_name", "word", "number", "string"}
    | {"string_content", "raw_string", "concatenation", "variable_assignment", "variable_name"}
    | {"redirected_statement", "file_redirect", "file_descriptor"}
)
"""Nodes of a command line in which nothing is replaced."""
OPERATORS = frozenset({"&&", "||", "|", "|&", ";", "&", "<", ">", ">>", "&>", ">|", "<&", ">&"})
SEPARATORS = frozenset({"&&", "||", "|", ";"})


@dataclass(slots=True)
class SimpleCommand:
    """A program with its words."""

    words: list[str] = field(default_factory=list)
    """The name first; with marks for what is not known."""
    others: list[str] = field(default_factory=list)
    """What is assigned before it, and where its input and output go."""


@dataclass(slots=True)
class CommandLine:
    """What could be read of a command line."""

    commands: list[SimpleCommand] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    """Words that belong to no command, such as those of ``for``."""
    inputs: list[str] = field(default_factory=list)
    """Texts that programs read: here-documents and here-strings."""
    plain: list[list[str]] | None = None
    """Tokens of each simple command as they are written, if nothing in the line is replaced."""
    tokens: list[str] = field(default_factory=list)
    """The same with the signs between them."""


def read_command_line(text: str) -> CommandLine | None:
    """Read a command line as bash does; None: that cannot be done for certain."""
    if len(text) > MAX_COMMAND or _UNREADABLE.search(text):
        return None
    tree = _parser().parse(text.encode())
    if tree.root_node.has_error:
        return None
    reader = _LineReader(text)
    if not reader.read(tree.root_node):
        return None
    line = reader.line
    _read_plain(text, tree.root_node, line)
    if "\\\n" in text:  # a line that goes on in the next one, also within a word
        joined = read_command_line(text.replace("\\\n", ""))
        if joined is None:
            return None
        line.commands += joined.commands
        line.words += joined.words
        line.inputs += joined.inputs
        line.plain = None
    return line


@lru_cache(maxsize=1)
def _parser() -> Parser:
    import tree_sitter  # noqa: PLC0415 - nobody needs it who has no rules about commands
    import tree_sitter_bash  # noqa: PLC0415

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


class _LineReader:
    def __init__(self, text: str) -> None:
        self._source = text
        encoded = text.encode()
        self._is_ascii = len(encoded) == len(text)
        self._encoded = encoded
        self._expansions: dict[int, int] = {}
        self._left = MAX_NODES
        self._made: dict[int, SimpleCommand] = {}
        """Commands by the ids of their nodes."""
        self.line = CommandLine()

    def read(self, root: Node) -> bool:
        """Read a tree; return False if it is too large."""
        self._find_expansions(root)
        return self._left > 0 and self._visit(root, self._free(), 0)

    def _free(self) -> SimpleCommand:
        return SimpleCommand(words=self.line.words, others=self.line.words)

    def _at(self, offset: int) -> int:
        """Return the position in the text of a byte."""
        return offset if self._is_ascii else len(self._encoded[:offset].decode(errors="replace"))

    def _find_expansions(self, root: Node) -> None:
        stack = [root]
        while stack and self._left > 0:
            self._left -= 1
            node = stack.pop()
            if node.type in _EXPANSIONS:
                self._expansions[self._at(node.start_byte)] = self._at(node.end_byte)
            stack += node.children

    def _visit(self, node: Node, owner: SimpleCommand, depth: int) -> bool:
        """Read a node; ``owner`` is the command whose words are within."""
        if depth > MAX_DEPTH:
            return False
        kind = node.type
        if kind == "redirected_statement":
            return self._visit_redirected(node, owner, depth)
        if kind == "file_redirect":
            return self._visit_file(node, owner, depth)
        if kind == "comment":
            return True
        if kind in _COMMANDS:
            owner = self._open_command(node)
        elif kind == "heredoc_body":
            self.line.inputs.append(self._text(node))
            owner = SimpleCommand()  # the text is read as a whole
        elif kind == "herestring_redirect":
            owner = SimpleCommand(words=self.line.inputs, others=self.line.inputs)
        elif kind == "command_name" or kind in _WORDS:
            words = owner.others if kind == "variable_assignment" else owner.words
            self._read_word(node, words, owner.others)
            owner = SimpleCommand()  # the word is read as a whole
        return self._visit_parts(node, owner, depth)

    def _open_command(self, node: Node) -> SimpleCommand:
        if node.type == "function_definition":
            return self._free()
        command = SimpleCommand()
        if node.type != "command":  # such as export and [, which are no word of the tree
            command.words.append(self._text(node.children[0]))
        self.line.commands.append(command)
        self._made[node.id] = command
        return command

    def _visit_parts(self, node: Node, owner: SimpleCommand, depth: int) -> bool:
        return all(self._visit(each, owner, depth + 1) for each in node.children)

    def _visit_file(self, node: Node, owner: SimpleCommand, depth: int) -> bool:
        """Read where input or output goes; words of the command may come after it."""
        file = node.child_by_field_name("destination")
        place = SimpleCommand(words=owner.others, others=owner.others)
        parts = [each for each in node.children if each.type != "file_descriptor"]
        return all(self._visit(each, place if each == file else owner, depth + 1) for each in parts)

    def _visit_redirected(self, node: Node, owner: SimpleCommand, depth: int) -> bool:
        body = node.child_by_field_name("body")
        rest = [each for each in node.children if each != body]
        if body is not None and not self._visit(body, owner, depth + 1):
            return False
        while body is not None and body.type in ("pipeline", "list", "negated_command"):
            body = body.children[-1]  # to its last command it belongs
        target = owner if body is None else self._made.get(body.id, owner)
        return all(self._visit(each, target, depth + 1) for each in rest)

    def _text(self, node: Node) -> str:
        return self._source[self._at(node.start_byte) : self._at(node.end_byte)]

    def _read_word(self, node: Node, words: list[str], others: list[str]) -> None:
        begin, end = self._at(node.start_byte), self._at(node.end_byte)
        made, other = words_of(self._source, begin, end, self._expansions)
        words += made
        others += other


def _read_plain(text: str, root: Node, line: CommandLine) -> None:
    """Note the tokens, if every sign of the line is a part of a word or stands between words."""
    tokens: list[str] = []
    for node in _leaves(root):
        if node is None:
            return
        tokens.append(node)
    if "".join("".join(tokens).split()) != "".join(text.split()) or not tokens:
        return
    line.tokens = tokens
    line.plain = [[]]
    for token in tokens:
        if token in SEPARATORS:
            line.plain.append([])
        else:
            line.plain[-1].append(token)
    if not line.plain[-1]:
        line.plain.pop()  # the line ends with ;


def _leaves(node: Node) -> Iterator[str | None]:
    """Yield the words and operators in order, and None where there is something else."""
    if node.type in ("command_name", "program", "list", "pipeline", "command") or node.type in (
        "redirected_statement",
        "file_redirect",
    ):
        for child in node.children:
            yield from _leaves(child)
    elif node.type in OPERATORS:
        yield node.type
    elif node.type == "file_descriptor" or _is_plain(node):
        yield (node.text or b"").decode(errors="replace")
    else:
        yield None


def _is_plain(node: Node) -> bool:
    if node.type in ('"', "=", "+="):
        return True
    return node.type in _PLAIN and all(_is_plain(child) for child in node.children)
