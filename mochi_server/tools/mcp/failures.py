"""What failures of the SDK say, for people and models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pydantic import ValidationError
from pydantic_core import to_json

from ...core.logs import one_line
from ...core.problems import placed_text
from .secret_values import SecretValues

if TYPE_CHECKING:
    from mcp.shared.exceptions import MCPError

MAX_SHOWN: Final = 2_000
"""Characters of an error of a server that are shown."""
SHOWN_PROBLEMS: Final = 3


def error_text(error: MCPError, secrets: SecretValues) -> str:
    """Return the message of a server's error, and its data, which may say what is to be mended."""
    said = error.message
    if error.data not in (None, "", {}, []):
        data = error.data
        said += f" {data if isinstance(data, str) else to_json(data).decode()}"
    return one_line(secrets.redacted(said, MAX_SHOWN), MAX_SHOWN)


def first_problems(error: ValidationError) -> str:
    """Return where an answer is not as the protocol says, in one line."""
    problems = error.errors(include_url=False, include_input=False)[:SHOWN_PROBLEMS]
    return "; ".join(map(placed_text, problems))


def reason_of(error: BaseException) -> str:
    """Return the first cause in a group of exceptions, as the end of a sentence."""
    while causes := getattr(error, "exceptions", None):  # Python 3.10 has no exception groups
        error = causes[0]
    if isinstance(error, ValidationError):
        return first_problems(error)
    if isinstance(error, ModuleNotFoundError):
        return "the extra is not installed: pip install 'mochi-server[mcp]'"
    if isinstance(error, FileNotFoundError):
        return f"there is no program {str(error.filename)!r}"
    if isinstance(error, OSError) and error.strerror:
        return f"it cannot be reached or started: {error.strerror}"
    return str(error) or type(error).__name__
