#!/usr/bin/env python
"""Django's command line, with the server's settings."""

import sys
from pathlib import Path

from django.core.management import execute_from_command_line

from mochi_project import use_own_settings
from mochi_server.config import SettingsError, export, load_settings


def main() -> int:
    use_own_settings()
    try:
        if "data_dir" not in load_settings().model_fields_set:
            export({"data_dir": Path(__file__).absolute().parent / "data"})
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    execute_from_command_line(sys.argv)
    return 0


if __name__ == "__main__":
    sys.exit(main())
