"""``manage.py sessions show``: print one session."""

from __future__ import annotations

import argparse

import orjson

from mochi_project.management.console import as_json, plain_lines
from mochi_server.sessions.manager import SessionManager
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.transfer.exporting import as_markdown

from .action import Action, Console, Options, add_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``show ID [--json]``."""
    parser.add_argument("session_id", metavar="ID", help="Which one.")
    add_json(parser)


async def run(sessions: SessionManager, options: Options, console: Console) -> int:
    """Print the session."""
    session = await sessions.get(options["session_id"])
    console.out.write(as_object(session) if options["json"] else readable(session))
    return 0


def as_object(session: ChatSession) -> str:
    """Return what ``GET /sessions/{id}`` answers, indented."""
    metadata = session.metadata
    head = {**metadata.model_dump(mode="json"), **metadata.labels}
    return as_json({**head, "messages": orjson.loads(session.messages_json())})


def readable(session: ChatSession) -> str:
    """Return the session as Markdown, without characters that control a terminal."""
    return plain_lines(as_markdown(session).rstrip("\n"))


ACTION = Action("Print one session with its messages.", add_arguments, run)
