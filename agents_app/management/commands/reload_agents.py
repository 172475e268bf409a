"""``manage.py reload_agents``: look at the agents, and make running servers load them again."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from agents_app.loading import Found, find_agents
from mochi_project.commands import table, tell_servers
from mochi_server.agents import AgentDefinition
from mochi_server.agents.folders import RELOAD_STAMP
from mochi_server.config import MochiServerSettings

HEAD = ("NAME", "VALID", "MODEL", "TOOLS", "AGENTS")


class Command(BaseCommand):
    """Finds the agents, says what they are, and tells running servers."""

    help = (
        "Finds the agents, prints them and their problems, and makes every running server on this "
        "data folder load them again."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """``reload_agents [--json] [--check]``."""
        parser.add_argument("--json", action="store_true", help="Print JSON.")
        parser.add_argument(
            "--check",
            action="store_true",
            help="Only look: exit with 1 if there are problems, and leave servers alone.",
        )

    def handle(self, *args: Any, **options: Any) -> None:  # noqa: ANN401, ARG002 - Django's
        """Print what is there; exit or tell the servers."""
        mochi: MochiServerSettings = settings.MOCHI
        with redirect_stdout(sys.stderr):  # a module may print; that must not stand in our JSON
            found = find_agents(mochi)
        for line in json_lines(found, mochi) if options["json"] else text_lines(found, mochi):
            self.stdout.write(line)
        if not options["check"]:
            tell_servers(mochi.state_path / RELOAD_STAMP)
        elif found[1]:
            sys.exit(1)


def json_lines(found: Found, mochi: MochiServerSettings) -> Iterator[str]:
    """``{"folder", "agents": […], "problems": […]}``."""
    agents, problems = found
    yield json.dumps(
        {
            "folder": str(mochi.agents_path),
            "agents": [
                {
                    "name": agent.name,
                    "description": agent.description,
                    "valid": agent.valid,
                    "error_message": agent.error_message,
                    "model": agent.model,
                    "tools": list(agent.tools),
                    "agents": list(agent.agents),
                }
                for agent in agents.values()
            ],
            "problems": [problem.as_json() for problem in problems],
        },
        indent=2,
    )


def text_lines(found: Found, mochi: MochiServerSettings) -> Iterator[str]:
    """A table of the agents, then the problems."""
    agents, problems = found
    if agents:
        yield from table([HEAD, *(row(agent) for agent in agents.values())])
    else:
        yield f"No agents in {mochi.agents_path}."
    for problem in problems:
        yield f"problem: {problem.file}:{problem.line or 1}: {problem.reason}"


def row(agent: AgentDefinition) -> list[str]:
    """The cells of one agent."""
    return [
        agent.name,
        "yes" if agent.valid else "no",
        agent.model or "-",
        ", ".join(agent.tools) or "-",
        ", ".join(agent.agents) or "-",
    ]
