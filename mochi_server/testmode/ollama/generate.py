"""``/api/generate``: a chat of one message, in other words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from .answers import Body, FakeResponse
from .fields import Fields, body_of, check_fields, check_format, check_kinds, check_options
from .models import FakeModel, FakeModels
from .rules import check_thinking, named_model

_REQUEST: Final[Fields] = {
    "model": ("string", "string"),
    "prompt": ("string", "string"),
    "suffix": ("string", "string"),
    "system": ("string", "string"),
    "template": ("string", "string"),
    "context": ("array", "[]int"),
    "raw": ("bool", "bool"),
    "images": ("array", "[]api.ImageData"),
}


def generate_of(raw: bytes, models: FakeModels) -> tuple[Body, FakeModel]:
    """A request to ``/api/generate``, as one to ``/api/chat``, and the model that it is for.

    Raises:
        FakeResponse: it is no such request, or nothing that this model can do.
    """
    body = body_of(raw, "api.GenerateRequest")
    check_kinds(body, _REQUEST, "GenerateRequest")
    body = {key: value for key, value in body.items() if key not in {"messages", "tools"}}
    check_fields(body, "GenerateRequest")
    model = named_model(body.get("model") or "", models)
    prompt, system = body.get("prompt"), body.get("system")
    if prompt or body.get("keep_alive") != 0:
        _check_abilities(body, model)
        check_options(body.get("options") or {})
        check_format(body.get("format"))
    said = [("system", system), ("user", prompt)] if prompt else []
    body["messages"] = [{"role": role, "content": text} for role, text in said if text]
    return body, model


def _check_abilities(body: Body, model: FakeModel) -> None:
    if body.get("raw") and any(body.get(key) for key in ("template", "system", "context")):
        raise FakeResponse(400, "raw mode does not support template, system, or context")
    check_thinking(body, model)
    if "completion" not in model.capabilities:
        raise FakeResponse(400, f'"{body["model"]}" does not support generate')
    if body.get("suffix") and "insert" not in model.capabilities:
        raise FakeResponse(400, f"registry.ollama.ai/library/{model.name} does not support insert")


class Generation:
    """Tells the lines of a chat in the words of this route; calls come with the last one."""

    def __init__(self) -> None:
        self._calls: list[Body] = []

    def __call__(self, line: Body) -> Iterator[Body]:
        """The line as it is sent; none where it has nothing but a call."""
        if "message" not in line:
            yield line
            return
        rest = {key: value for key, value in line.items() if key != "message"}
        message = line["message"]
        self._calls += message.get("tool_calls", ())
        said = {"response": message["content"]}
        if thinking := message.get("thinking"):
            said["thinking"] = thinking
        if not line["done"] and not any(said.values()):
            return
        head = {key: rest.pop(key) for key in ("model", "created_at")}
        calls = {"tool_calls": self._calls} if line["done"] and self._calls else {}
        yield {**head, **said, **rest, **calls}
