"""``/api/pull``: every model is there already, so it ends at once."""

from __future__ import annotations

from typing import Final

from .answers import Body, FakeResponse
from .fields import Fields, body_of, check_kinds
from .models import FakeModels
from .rules import is_name

_PULL: Final[Fields] = {
    "model": ("string", "string"),
    "name": ("string", "string"),
    "stream": ("bool", "bool"),
}


def pulled(raw: bytes, models: FakeModels) -> tuple[list[Body], bool]:
    """The lines that tell of a pull, and whether they are wanted as a stream.

    Raises:
        FakeResponse: the request names no model.
    """
    body = body_of(raw, "api.PullRequest")
    check_kinds(body, _PULL, "PullRequest")
    name = body.get("model") or body.get("name") or ""
    model = models.named(name) if is_name(name) else None
    if model is None:
        raise FakeResponse(400, "invalid model name")
    layer = {"digest": f"sha256:{model.digest}", "total": model.size, "completed": model.size}
    lines: list[Body] = [
        {"status": "pulling manifest"},
        {"status": f"pulling {model.digest[:12]}", **layer},
        {"status": "verifying sha256 digest"},
        {"status": "writing manifest"},
        {"status": "success"},
    ]
    return lines, body.get("stream") is not False
