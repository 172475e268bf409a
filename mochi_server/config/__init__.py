"""Every setting of the server, in one place: the environment is read here and nowhere else.

Precedence: command line, environment, ``.env`` in the working directory, default.
docs/reference/settings.md is the table of all of them.
"""

from .environment import (
    SettingsError,
    child_environment,
    environment_without_settings,
    export,
    export_default,
    load_settings,
    server_processes,
    text_of_value,
    tool_environment,
    unknown_variables,
    with_tool_environment,
)
from .settings import MochiServerSettings, variable_of

__all__ = [
    "MochiServerSettings",
    "SettingsError",
    "child_environment",
    "environment_without_settings",
    "export",
    "export_default",
    "load_settings",
    "server_processes",
    "text_of_value",
    "tool_environment",
    "unknown_variables",
    "variable_of",
    "with_tool_environment",
]
