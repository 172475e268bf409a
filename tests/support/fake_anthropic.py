"""Anthropic's Messages API on a socket, as it is documented."""

from __future__ import annotations

import re
from typing import Any

from .http_wire import Request
from .sse_vendor import FakeVendor, Refused, Script, event

KEY = "sk-ant-test"
MODEL = "claude-test-5"
PLAIN_MODEL = "claude-test-3"
STATUS = {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error",
          429: "rate_limit_error", 529: "overloaded_error"}  # fmt: skip
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_KNOWN = {"model", "messages", "stream", "max_tokens", "system", "tools", "tool_choice", "thinking",
          "output_config", "temperature", "top_p", "top_k", "stop_sequences",
          "service_tier"}  # fmt: skip


def _can(*, supported: bool) -> dict[str, bool]:
    return {"supported": supported}


def listed(name: str, *, new: bool = True) -> dict[str, Any]:
    """A model as the list has it; new ones think as they like, old ones within a budget."""
    yes, no = _can(supported=True), _can(supported=False)
    kinds = {"adaptive": _can(supported=new), "enabled": _can(supported=not new),
             "disabled": yes, "between_tools": no}  # fmt: skip
    return {
        "type": "model",
        "id": name,
        "display_name": name,
        "created_at": "2026-01-01T00:00:00Z",
        "lifecycle": "active",
        "max_input_tokens": 200_000,
        "max_tokens": 64_000,
        "capabilities": {
            "batch": yes, "citations": yes, "code_execution": yes, "image_input": yes,
            "pdf_input": yes, "structured_outputs": _can(supported=new),
            "context_management": {"supported": False},
            "effort": {"supported": new, "low": yes, "medium": yes, "high": yes, "max": no},
            "server_tools": {"supported": False},
            "thinking": {"supported": True, "types": kinds},
        },
    }  # fmt: skip


class FakeAnthropic(FakeVendor):
    """The service; it refuses what the real one refuses."""

    def __init__(self) -> None:
        super().__init__()
        self.models = {MODEL: listed(MODEL), PLAIN_MODEL: listed(PLAIN_MODEL, new=False)}

    def error(self, status: int, text: str) -> dict[str, Any]:
        kind = STATUS.get(status, "api_error")
        return {"type": "error", "error": {"type": kind, "message": text}, "request_id": "r"}

    def route(self, request: Request) -> Script:
        given = request.headers.get("x-api-key") or request.headers.get("authorization", "")
        if given.removeprefix("Bearer ") != KEY or "anthropic-version" not in request.headers:
            raise Refused("invalid x-api-key", 401)
        if request.path == "/v1/models":
            data = list(self.models.values())
            page = {"first_id": data[0]["id"], "last_id": data[-1]["id"], "has_more": False}
            return Script(body={"data": data, **page})
        if request.path.startswith("/v1/models/"):
            return Script(body=self._model(request.path.removeprefix("/v1/models/")))
        if request.path != "/v1/messages":
            raise Refused("Not found", 404)
        return self.next_script(request.body)

    def _model(self, name: str) -> dict[str, Any]:
        if name not in self.models:
            raise Refused(f"model: {name}", 404)
        return self.models[name]

    def check(self, body: dict[str, Any]) -> None:
        model = self._model(body.get("model", ""))
        if extra := body.keys() - _KNOWN:
            raise Refused(f"{extra}: Extra inputs are not permitted")
        if not 0 < body.get("max_tokens", 0) <= model["max_tokens"]:
            raise Refused("max_tokens: out of range")
        _check_messages(body["messages"])
        _check_tools(body)
        _check_thinking(body, model)


def _check_messages(messages: list[dict[str, Any]]) -> None:
    if [m["role"] for m in messages] != [
        ("user", "assistant")[n % 2] for n in range(len(messages))
    ]:
        raise Refused("messages: roles must alternate, the first must be user")
    open_ids: list[str] = []
    all_ids: set[str] = set()
    for number, message in enumerate(messages):
        blocks = message["content"]
        if not blocks or any(b["type"] == "text" and not b["text"].strip() for b in blocks):
            raise Refused(f"messages.{number}: text content blocks must be non-empty")
        results = [b["tool_use_id"] for b in blocks if b["type"] == "tool_result"]
        if sorted(results) != sorted(open_ids):
            raise Refused(f"messages.{number}: `tool_use` ids were found without `tool_result`")
        if results and any(b["type"] != "tool_result" for b in blocks[: len(results)]):
            raise Refused(f"messages.{number}: `tool_result` blocks must come first")
        if any("signature" in b and not b["signature"].startswith("sig:") for b in blocks):
            raise Refused(f"messages.{number}: Invalid `signature` in `thinking` block")
        open_ids = [b["id"] for b in blocks if b["type"] == "tool_use"]
        _check_calls(number, blocks, all_ids)
        all_ids |= set(open_ids)
        if message["role"] == "assistant" and "thinking" in blocks[-1]["type"]:
            words = "The final block in an assistant message cannot be `thinking`."
            raise Refused(f"messages.{number}: {words}")
    if open_ids:
        raise Refused("messages: `tool_use` ids were found without `tool_result` blocks")


def _check_calls(number: int, blocks: list[dict[str, Any]], before: set[str]) -> None:
    calls = [block for block in blocks if block["type"] == "tool_use"]
    ids = [call["id"] for call in calls]
    if not all(map(_ID.fullmatch, ids)):
        raise Refused(f"messages.{number}: tool_use.id: should match pattern")
    if len(set(ids)) < len(ids) or before & set(ids):
        raise Refused(f"messages.{number}: `tool_use` ids must be unique")
    if not all(_NAME.fullmatch(call["name"]) for call in calls):
        raise Refused(f"messages.{number}: tool_use.name: should match pattern")


def _check_tools(body: dict[str, Any]) -> None:
    used = any(b["type"] == "tool_use" for m in body["messages"] for b in m["content"])
    if used and not body.get("tools"):
        raise Refused("Requests which include `tool_use` blocks must define tools")
    names = [tool["name"] for tool in body.get("tools", ())]
    if not all(map(_NAME.fullmatch, names)) or len(set(names)) < len(names):
        raise Refused("tools: Tool names must be unique and match the pattern.")
    for tool in body.get("tools", ()):
        if tool["input_schema"].get("type") != "object":
            raise Refused("tools: input_schema.type: Field required")
        if tool["input_schema"].keys() & {"oneOf", "allOf", "anyOf"}:
            raise Refused("input_schema does not support oneOf, allOf, or anyOf at the top level")


def _check_thinking(body: dict[str, Any], model: dict[str, Any]) -> None:
    if (thinking := body.get("thinking")) is None:
        return
    if not model["capabilities"]["thinking"]["types"][thinking["type"]]["supported"]:
        raise Refused(f"thinking.type: {thinking['type']} is not supported on this model")
    if thinking["type"] == "disabled":
        return
    if thinking["type"] == "enabled" and not 1024 <= thinking["budget_tokens"] < body["max_tokens"]:
        raise Refused("max_tokens must be greater than thinking.budget_tokens")
    if body.get("temperature", 1) != 1 or "name" in body.get("tool_choice", {}):
        raise Refused("thinking: temperature and tool_choice may not be set")
    replies = [m["content"] for m in body["messages"] if m["role"] == "assistant"]
    last = replies[-1] if replies else []
    if any(b["type"] == "tool_use" for b in last) and "thinking" not in last[0]["type"]:
        raise Refused("Expected `thinking` or `redacted_thinking`, but found `tool_use`")


def start(prompt: int = 7, cached: int = 0) -> bytes:
    """The beginning of a reply."""
    usage = {"input_tokens": prompt, "cache_read_input_tokens": cached, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": MODEL, "content": [],
               "stop_reason": None, "stop_sequence": None, "usage": usage}  # fmt: skip
    ping = event({"type": "ping"}, "ping")
    return event({"type": "message_start", "message": message}, "message_start") + ping


def block(index: int, first: dict[str, Any], *deltas: dict[str, Any]) -> list[bytes]:
    """A content block: its start, its deltas, its end."""
    begin = {"type": "content_block_start", "index": index, "content_block": first}
    pieces = [event(begin, "content_block_start")]
    for delta in deltas:
        data = {"type": "content_block_delta", "index": index, "delta": delta}
        pieces.append(event(data, "content_block_delta"))
    end = {"type": "content_block_stop", "index": index}
    return [*pieces, event(end, "content_block_stop")]


def text(index: int, *words: str) -> list[bytes]:
    """A block of text."""
    deltas = ({"type": "text_delta", "text": word} for word in words)
    return block(index, {"type": "text", "text": ""}, *deltas)


def thinking(index: int, *words: str, signature: str = "sig:a") -> list[bytes]:
    """A block of thinking, signed at its end."""
    deltas = [{"type": "thinking_delta", "thinking": word} for word in words]
    deltas.append({"type": "signature_delta", "signature": signature})
    return block(index, {"type": "thinking", "thinking": "", "signature": ""}, *deltas)


def call(index: int, call_id: str, name: str, *fragments: str) -> list[bytes]:
    """A call, its arguments in fragments."""
    deltas = ({"type": "input_json_delta", "partial_json": part} for part in ("", *fragments))
    return block(index, {"type": "tool_use", "id": call_id, "name": name, "input": {}}, *deltas)


def end(
    reason: str = "end_turn", generated: int = 5, stop_sequence: str | None = None
) -> list[bytes]:
    """The end of a reply."""
    said = {"stop_reason": reason, "stop_sequence": stop_sequence}
    usage = {"output_tokens": generated}
    delta = {"type": "message_delta", "delta": said, "usage": usage}
    return [event(delta, "message_delta"), event({"type": "message_stop"}, "message_stop")]
