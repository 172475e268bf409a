"""Checks the format that a request asks for, and replies that must have it."""

from __future__ import annotations

import json
import logging
import sys
from collections import deque
from hashlib import sha256
from typing import Final

import anyio

from ..core.limits import is_too_deep
from ..errors import JSONObject, ResponseFormatInvalid
from ..protocol.response_format import JsonObjectFormat, JsonSchemaFormat, ResponseFormat
from . import json_schema

logger = logging.getLogger(__name__)

MAX_BYTES: Final = 100_000
"""Longest schema, as JSON."""
MAX_LEVELS: Final = 50
"""Levels of nesting of a schema."""
SECONDS: Final = 30
"""Longest wait for a check, which has fewer seconds of CPU time."""
TOO_LONG: Final = "it takes too long to check"
SHOWN_CHARACTERS: Final = 20_000
"""Characters of a reply that the model is shown when it is asked to repair it."""

_usable: deque[bytes] = deque(maxlen=100)
"""Digests of schemas that were checked last."""


async def check_format(response_format: ResponseFormat | None) -> None:
    """Check that the schema of a format can be used, if there is one.

    Raises:
        ResponseFormatInvalid: it is too large, no JSON schema, or refers to what is not in it.
    """
    if response_format is None or isinstance(response_format, JsonObjectFormat):
        return
    schema = response_format.schema_of_reply
    if is_too_deep(schema, MAX_LEVELS):
        raise _invalid("", f"it is nested more than {MAX_LEVELS} levels deep")
    encoded = json.dumps(schema, sort_keys=True).encode()
    if len(encoded) > MAX_BYTES:
        raise _invalid("", f"it has more than {MAX_BYTES:,} bytes")
    digest = sha256(encoded).digest()
    if digest in _usable:
        return
    problem = await _check(schema, None)
    if problem is not None:
        raise _invalid(problem["place"], problem["reason"])
    _usable.append(digest)


def _invalid(place: str, reason: str) -> ResponseFormatInvalid:
    field = "response_format.json_schema.schema"
    return ResponseFormatInvalid(field=f"{field}.{place}" if place else field, reason=reason)


async def problem_in(text: str, response_format: ResponseFormat) -> str | None:
    """Return why a reply does not have its format, in words for the model; None if it has."""
    if not text.strip():
        return "it is empty"
    problem = await _check(response_format.schema_of_reply, text)
    if problem is None:
        return None
    return f"{problem['place']}: {problem['reason']}" if problem["place"] else problem["reason"]


async def _check(schema: JSONObject, text: str | None) -> json_schema.Problem | None:
    """Run a check in a process of its own, which ends with the caller's wait."""
    query = json.dumps({"schema": schema, "text": text}).encode()
    with anyio.move_on_after(SECONDS):
        done = await anyio.run_process(
            [sys.executable, "-I", json_schema.__file__],
            input=query,
            check=False,
        )
        if not done.returncode:
            problem: json_schema.Problem | None = json.loads(done.stdout)
            return problem
        if done.returncode > 0:
            logger.warning("The check of a response format failed: %s", done.stderr[-1000:])
    return {"place": "", "reason": TOO_LONG}


def instruction(response_format: ResponseFormat) -> str:
    """Return words for a model whose provider does not hold it to the format."""
    text = "Your final answer must be JSON only, without any other text"
    if isinstance(response_format, JsonSchemaFormat):
        return f"{text}, and fit this JSON schema:\n{_written(response_format)}"
    return f"{text}: one JSON object."


def repair_messages(
    text: str, problem: str, response_format: ResponseFormat
) -> tuple[JSONObject, ...]:
    """Return the messages that ask a model to repair its reply."""
    wanted = "It must be one JSON object, without any other text."
    if isinstance(response_format, JsonSchemaFormat):
        wanted = (
            "It must be JSON only, without any other text, and fit this JSON schema:\n"
            f"{_written(response_format)}"
        )
    request: JSONObject = {
        "role": "user",
        "content": f"Your reply cannot be used: {problem}. Give it again. {wanted}",
    }
    if not text.strip():
        return (request,)
    return ({"role": "assistant", "content": text[:SHOWN_CHARACTERS]}, request)


def _written(response_format: JsonSchemaFormat) -> str:
    return json.dumps(response_format.schema_of_reply, ensure_ascii=False)
