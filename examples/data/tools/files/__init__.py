"""Files in one folder, ``files`` beside the folder of the tools; nothing outside it is touched.

A sub-folder with an ``__init__.py`` is a package of tools too, and its group has the folder's name.
"""

from __future__ import annotations

from .reading import find_in_files, list_files, read_file
from .writing import append_to_file, delete_file, write_file

__all__ = [
    "append_to_file",
    "delete_file",
    "find_in_files",
    "list_files",
    "read_file",
    "write_file",
]

# With the policy confirm_destructive a person is asked about these, and not about the others.
__destructive__ = ["write_file", "append_to_file", "delete_file"]

# Each of these runs alone: two of them at a time could get in each other's way.
__sequential__ = ["write_file", "append_to_file", "delete_file"]

# Seconds; the others have MOCHI_TOOL_TIMEOUT_SECONDS.
__timeouts__ = {"find_in_files": 20}

# With MOCHI_TOOL_SANDBOX these may be written, and nothing else; relative to the data folder.
__sandbox__ = {"writable": ["files"]}
