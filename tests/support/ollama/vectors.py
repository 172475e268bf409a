"""``/api/embed``: vectors that follow from texts, and mean nothing."""

from __future__ import annotations

from typing import Any, Final

from mochi_server.testmode.reply import tokens_of
from mochi_server.testmode.samples import vector_of

from .answers import Body, FakeResponse
from .chat import NANOSECONDS
from .fields import Fields, body_of, check_kinds, check_options
from .models import FakeModel, FakeModels
from .rules import named_model, window_of

_EMBED: Final[Fields] = {
    "model": ("string", "string"),
    "truncate": ("bool", "bool"),
    "dimensions": ("number", "int"),
    "options": ("object", "map[string]interface {}"),
}


def embedded(raw: bytes, models: FakeModels) -> Body:
    """The answer of ``/api/embed``.

    Raises:
        FakeResponse: the request cannot be answered so.
    """
    body = body_of(raw, "api.EmbedRequest")
    check_kinds(body, _EMBED, "EmbedRequest")
    texts = _texts(body.get("input"))
    model = named_model(body.get("model") or "", models)
    check_options(body.get("options") or {})
    counts = [min(tokens_of(text), _window(body, model, text)) for text in texts]
    vectors = [vector_of(text, int(body.get("dimensions") or 0)) for text in texts]
    answer: Body = {"model": body["model"], "embeddings": vectors}
    if not texts:
        return answer
    told = {
        "total_duration": NANOSECONDS * (1 + sum(counts)),
        "load_duration": NANOSECONDS,
        "prompt_eval_count": sum(counts),
    }
    return answer | {key: value for key, value in told.items() if value}


def _texts(given: Any) -> list[str]:
    texts = [] if given in (None, "") else given if isinstance(given, list) else [given]
    if not all(isinstance(text, str) for text in texts):
        raise FakeResponse(400, "invalid input type")
    return texts


def _window(body: Body, model: FakeModel, text: str) -> int:
    window = window_of(body, model)
    if body.get("truncate") is False and tokens_of(text) > window:
        raise FakeResponse(400, "the input length exceeds the context length")
    return window
