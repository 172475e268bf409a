"""System checks, run by ``manage.py check`` and ``runserver``; docs/reference/checks.md.

They read settings and folders, and never use the network. ``mochi-server`` runs none of them.
"""

from __future__ import annotations

from pathlib import Path

from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, Error

from mochi_server.backends import JSON_FILES
from mochi_server.config import MochiServerSettings
from mochi_server.doctor.extensions import PROMPT_ADVICE, prompt_problem
from mochi_server.server.startup import folder_problem, is_public
from mochi_server.sessions.catalogue.database import has_full_text

from .management.folders import load_agents, load_tools
from .runtime import HANDLERS, InvalidBackend, shared_problems


def check_folders(**_: object) -> list[CheckMessage]:
    """``mochi.E001``: the sessions' folders can be written."""
    folders = [
        Path(storage["OPTIONS"]["folder"])
        for storage in settings.MOCHI_SESSION_STORAGES.values()
        if storage.get("BACKEND") == JSON_FILES and "folder" in storage.get("OPTIONS", {})
    ]
    problems = map(folder_problem, folders)
    return [
        Error(text, hint="Set MOCHI_DATA_DIR to a folder that you own.", id="mochi.E001")
        for text in problems
        if text is not None
    ]


def check_backends(**_: object) -> list[CheckMessage]:
    """``mochi.E002``: every backend is what it should be; ``mochi.E003``: none is missing."""
    messages: list[CheckMessage] = []
    for kind in HANDLERS:
        handler = kind()
        for alias in sorted(kind.required - set(handler.backends)):
            text = f"{kind.setting} has no {alias!r}."
            messages.append(Error(text, hint="Add this alias.", id="mochi.E003"))
        for alias in handler.backends:
            try:
                handler.check(alias)
            except InvalidBackend as error:  # noqa: PERF203 - each one is reported
                hint = f"BACKEND must be the dotted path of a {kind.base.__name__}."
                messages.append(Error(str(error), hint=hint, id="mochi.E002"))
    return messages


def check_processes(**_: object) -> list[CheckMessage]:
    """``mochi.E004``: several processes see each other's sessions and confirmations."""
    hint = "See docs/how-to/several-workers.md."
    return [Error(text, hint=hint, id="mochi.E004") for text in shared_problems()]


def check_exposure(**_: object) -> list[CheckMessage]:
    """``mochi.W002``: nobody can use a public server without a token."""
    mochi: MochiServerSettings = settings.MOCHI
    if mochi.demands_token or not is_public(mochi.host):
        return []
    text = f"The server listens on {mochi.host}, and MOCHI_API_TOKEN is not set."
    hint = "Set MOCHI_API_TOKEN, or listen on 127.0.0.1."
    return [checks.Warning(text, hint=hint, id="mochi.W002")]


def check_search(**_: object) -> list[CheckMessage]:
    """``mochi.W003``: sessions can be searched."""
    if has_full_text():
        return []
    text = "This Python's SQLite has no full-text search (FTS5): sessions cannot be searched."
    hint = "Use a Python whose SQLite has it; the usual ones do."
    return [checks.Warning(text, hint=hint, id="mochi.W003")]


def check_prompts(**_: object) -> list[CheckMessage]:
    """``prompts.W001``: prompt files can be used by sessions."""
    paths = sorted(settings.MOCHI.system_prompts_path.glob("*.*"))
    problems = [prompt_problem(path) for path in paths if path.suffix in {".md", ".txt"}]
    return [
        checks.Warning(problem, hint=PROMPT_ADVICE, id="prompts.W001")
        for problem in problems
        if problem is not None
    ]


def check_tools(**_: object) -> list[CheckMessage]:
    """``tools.W001``: everything in the folder of tools can be used. Imports the user's code."""
    hint = "Correct it; the other tools work meanwhile."
    problems = [each for each in load_tools(settings.MOCHI).problems if not each.is_hint]
    return [checks.Warning(str(each), hint=hint, id="tools.W001") for each in problems]


def check_agents(**_: object) -> list[CheckMessage]:
    """``agents.W001``: every agent can be used, and has what it names. Imports their tools."""
    hint = "Correct it; the other agents work meanwhile."
    problems = [each for each in load_agents(settings.MOCHI)[1] if not each.is_hint]
    return [checks.Warning(str(each), hint=hint, id="agents.W001") for each in problems]


CHECKS = (
    *(check_folders, check_backends, check_processes, check_exposure, check_search),
    *(check_prompts, check_tools, check_agents),
)
