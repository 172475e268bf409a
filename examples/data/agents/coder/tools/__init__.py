"""What the coder can do, in one folder: ``workspace`` beside the folder of the agents.

Change, add and delete as you like: the server notices changed files by itself.
"""

from __future__ import annotations

from .reading import check_python, list_files, read_file, search_files
from .writing import delete_file, replace_in_file, write_file

__all__ = [
    "check_python",
    "delete_file",
    "list_files",
    "read_file",
    "replace_in_file",
    "search_files",
    "write_file",
]

# With the policy confirm_destructive a person is asked about these, and not about the others.
__destructive__ = ["write_file", "replace_in_file", "delete_file"]

# Each of these runs alone: two of them at a time could get in each other's way.
__sequential__ = ["write_file", "replace_in_file", "delete_file"]

# Seconds; the others have MOCHI_TOOL_TIMEOUT_SECONDS.
__timeouts__ = {"search_files": 20, "check_python": 20}
