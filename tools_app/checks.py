"""The system check of tools, run by ``manage.py check`` and ``runserver``.

It imports the user's code, in a process of its own where the settings say so; ``mochi-server`` runs
no checks. docs/reference/checks.md lists them all.
"""

from __future__ import annotations

from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, register

from .loading import describe_tools


@register
def check_tools(**_: object) -> list[CheckMessage]:
    """``tools.W001``: everything in the folder of tools can be used."""
    hint = "Correct it; the other tools work meanwhile."
    problems = [each for each in describe_tools(settings.MOCHI).problems if not each.is_hint]
    return [checks.Warning(str(each), hint=hint, id="tools.W001") for each in problems]
