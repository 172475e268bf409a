"""Every setting of the server, in one place: the environment is read here and nowhere else.

Precedence: command line, environment, ``.env`` in the working directory, default.
docs/reference/settings.md is the table of all of them.
"""

from .environment import (
    METRICS_FOLDER,
    SettingsError,
    child_environment,
    environment_variables,
    environment_without_settings,
    export,
    export_default,
    installer_environment,
    load_settings,
    metrics_folder,
    secret_files,
    server_processes,
    text_of_value,
    tool_environment,
    traces_are_wanted,
    unknown_variables,
    variables_of_file,
)
from .fields import variable_of
from .settings import MCP_CALLBACK_PATH, MochiServerSettings

__all__ = [
    "MCP_CALLBACK_PATH",
    "METRICS_FOLDER",
    "MochiServerSettings",
    "SettingsError",
    "child_environment",
    "environment_variables",
    "environment_without_settings",
    "export",
    "export_default",
    "installer_environment",
    "load_settings",
    "metrics_folder",
    "secret_files",
    "server_processes",
    "text_of_value",
    "tool_environment",
    "traces_are_wanted",
    "unknown_variables",
    "variable_of",
    "variables_of_file",
]
