"""Translate Ollama's errors into the errors of this project.

Its words stay in the message, but for what it quotes of its runner's log, of which known causes are
named in words of ours. The texts come from docs/reference/errors.md, "Ollama".
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import orjson

from ..core.utf8 import valid_utf8
from ..errors import (
    ContextOverflow,
    JSONObject,
    MochiError,
    ModelNotFound,
    OllamaError,
    OllamaUnreachable,
    ProviderBusy,
    ThinkingNotSupported,
)

OVERFLOW_TYPE = "exceed_context_size_error"
OVERFLOW_TEXT = re.compile(
    r"request \(\d+ tokens\) exceeds the available context size"
    r"|the prompt is longer than the context length"
    r"|the input length exceeds the context length"
)
RUNNER_DIED = re.compile(
    r"an error was encountered while running the model"
    r"|(?:llama-server|llama runner) process no longer running"
)
"""Beginnings of texts that end with lines of the runner's log, which may be of other requests."""
BACKENDS = "CUDA", "ROCm", "HIP", "Metal", "Vulkan"
"""What computes on a GPU, as its own errors name it."""
CAUSES: Sequence[tuple[re.Pattern[str], str]] = (
    (
        re.compile(
            r"out of (?:(?:host|device|system|gpu|video) )?memory|OutOf(?:Device|Host)?Memory"
            r"|(?:failed|unable) to allocate|cannot allocate|alloc_buffer\b.*failed"
            r"|cudaMalloc failed|bad_alloc|(?:insufficient|not enough|more system) memory"
            r"|signal: killed|SIGKILL",
            re.IGNORECASE,
        ),
        "out of memory, of which a smaller model or context window needs less",
    ),
    (
        re.compile(
            r"exceeds the (?:available )?context|failed to find a memory slot"
            r"|context (?:size|length|window) (?:was |is )?(?:exceeded|too small)"
            r"|context shift is (?:disabled|not)",
            re.IGNORECASE,
        ),
        "a text did not fit into the context window",
    ),
    (
        re.compile(r"no kernel image|unsupported (?:gpu|device)|driver version", re.IGNORECASE),
        "this GPU or its driver is not supported",
    ),
)
"""What the last lines of a runner's log look like, and what that means, in words of ours."""
CLOUD_DISABLED = "ollama cloud is disabled"
COUNTS = ("n_prompt_tokens", "n_ctx")
OURS = frozenset({"status", "incomplete"})
BUSY = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})
BUSY_SECONDS = 5
WAIT_DIGITS = 6
MAX_WORDS = 1000
"""Characters of the server's words in a message: it may send megabytes."""
SHOWN_CHARACTERS = 300

logger = logging.getLogger(__name__)


def failure_of_answer(
    status: int, body: bytes, *, model: str | None, host: str, retry_after: str | None = None
) -> MochiError:
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        text = f"{host} redirects elsewhere ({status})."
        text = f"{text} Redirects are not followed: correct MOCHI_OLLAMA_HOST."
        return OllamaError(text, details={"status": status, "host": host})
    try:
        answer = orjson.loads(valid_utf8(body))
    except orjson.JSONDecodeError:
        answer = None
    if not isinstance(answer, dict):
        return _not_ollama(status, body, host)
    text, fields = _words(answer)
    fields["status"] = status
    if status in BUSY:
        wait = (retry_after or "")[:WAIT_DIGITS]
        seconds = int(wait) if wait.isdecimal() else BUSY_SECONDS
        return ProviderBusy(text, details=fields, retry_after=seconds)
    if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        return _refused(text, fields)
    return _failure(text, fields, model=model, status=status)


def failure_of_line(line: Any, *, model: str | None) -> MochiError:  # noqa: ANN401 - any JSON
    """Return the error of a line that is not a chunk: ``{"error": …}``, or something odd."""
    if not isinstance(line, dict):
        shown = orjson.dumps(line)[:SHOWN_CHARACTERS].decode(errors="replace")
        text = f"Ollama sent a line that is not an object: {shown}"
        return OllamaError(text, details={"incomplete": True})
    text, fields = _words(line)
    fields["incomplete"] = True
    return _failure(text, fields, model=model)


def not_json(line: bytes) -> OllamaError:
    shown = line[:SHOWN_CHARACTERS].decode(errors="replace")
    text = f"Ollama sent a line that is not JSON: {shown!r}"
    return OllamaError(text, details={"incomplete": True})


def incomplete(how: str) -> OllamaError:
    return OllamaError(f"The reply of Ollama {how}.", details={"incomplete": True})


def _words(answer: dict[str, Any]) -> tuple[str, JSONObject]:
    """Return the message of an answer, which may be JSON itself, and what else it tells."""
    fields: JSONObject = {}
    if isinstance(url := answer.get("signin_url"), str):
        fields["signin_url"] = url[:MAX_WORDS]
    message: Any = answer.get("error")
    if message is None:  # 0.11 has used the message's first words as the key
        message = ": ".join(str(part) for pair in answer.items() for part in pair)
        message = message[:SHOWN_CHARACTERS]
    if isinstance(message, str) and message.startswith("{"):
        try:
            message = orjson.loads(message)
        except orjson.JSONDecodeError:
            return message[:MAX_WORDS], fields
    while isinstance(message, dict):
        fields |= {name: message[name] for name in COUNTS if isinstance(message.get(name), int)}
        if isinstance(kind := message.get("type"), str):
            fields["type"] = kind[:MAX_WORDS]
        message = message.get("error") or message.get("message")
    return (str(message)[:MAX_WORDS] if message else OllamaError.template), fields


def _failure(
    text: str, fields: JSONObject, *, model: str | None, status: int | None = None
) -> MochiError:
    if died := RUNNER_DIED.match(text):
        logger.info("Ollama says: %s", text)
        text = f"{died[0]}{_known_cause(text[died.end() :])}"
        return OllamaError(text, details={k: v for k, v in fields.items() if k in OURS})
    # A server that failed (5xx) may quote any text.
    told = status == HTTPStatus.BAD_REQUEST and OVERFLOW_TEXT.match(text)
    failed = status is not None and status >= HTTPStatus.INTERNAL_SERVER_ERROR
    if told or (fields.get("type") == OVERFLOW_TYPE and not failed):
        return ContextOverflow(text, details={"model": model, **fields})
    if (status == HTTPStatus.NOT_FOUND and "model" in text) or text == "invalid model name":
        return ModelNotFound(text, details={"model": model, **fields})
    if "does not support thinking" in text:
        return ThinkingNotSupported(text, details={"model": model, **fields})
    return OllamaError(text, details=fields)


def _known_cause(log: str) -> str:
    """Return the rest of a sentence that says why a runner has died, without a word of its log."""
    backends = (name for name in BACKENDS if re.search(rf"(?<![a-z]){name}", log, re.IGNORECASE))
    backend = next(backends, None)
    cause = next((words for pattern, words in CAUSES if pattern.search(log)), None)
    if cause is None and backend is None:
        return ". The log of Ollama says why."
    where = "" if backend is None else f"{backend} error: " if cause else f"{backend} error"
    return f": {where}{cause or ''}. The log of Ollama says more."


def _refused(text: str, fields: JSONObject) -> OllamaError:
    if text.startswith(CLOUD_DISABLED):
        text = (
            f"{text}. Choose a model that runs on this machine, or start Ollama without"
            " OLLAMA_NO_CLOUD and without `disable_ollama_cloud` in its server.json."
        )
    if "signin_url" in fields or fields["status"] == HTTPStatus.UNAUTHORIZED:
        text = f"{text} (Ollama is not signed in to its cloud: run `ollama signin` there)"
    return OllamaError(text, details=fields)


def _not_ollama(status: int, body: bytes, host: str) -> MochiError:
    details: JSONObject = {"status": status, "host": host}
    if status == HTTPStatus.FORBIDDEN and not body.strip():
        return OllamaUnreachable(
            f"Ollama at {host} does not accept requests for this host name (403). Use its address"
            " in MOCHI_OLLAMA_HOST, or start Ollama with OLLAMA_HOST=0.0.0.0.",
            details=details,
        )
    if status in BUSY:
        return ProviderBusy(
            f"Ollama at {host} is busy ({status}).", details=details, retry_after=BUSY_SECONDS
        )
    shown = " ".join(body[:SHOWN_CHARACTERS].decode(errors="replace").split())
    return OllamaError(
        f"{host} does not answer as Ollama does (status {status}): {shown!r}", details=details
    )
