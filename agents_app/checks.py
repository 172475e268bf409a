"""The system check of agents, run by ``manage.py check`` and ``runserver``.

It imports the code of their tools, in a process of its own where the settings say so;
``mochi-server`` runs no checks. docs/reference/checks.md lists them all.
"""

from __future__ import annotations

from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, register

from .loading import find_agents


@register
def check_agents(**_: object) -> list[CheckMessage]:
    """``agents.W001``: every agent can be used, and has what it names."""
    hint = "Correct it; the other agents work meanwhile."
    problems = [each for each in find_agents(settings.MOCHI)[1] if not each.is_hint]
    return [checks.Warning(str(each), hint=hint, id="agents.W001") for each in problems]
