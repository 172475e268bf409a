"""Gemini's ``generateContent`` on a socket, as it is documented."""

from __future__ import annotations

import base64
import re
from typing import Any

from .http_wire import Request
from .sse_vendor import FakeVendor, Refused, Script, event

KEY = "AIza-secret"
MODEL = "gemini-test-3"
STATUS = {400: "INVALID_ARGUMENT", 404: "NOT_FOUND", 429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE"}
_KNOWN = {"contents", "systemInstruction", "tools", "toolConfig", "generationConfig",
          "service_tier"}  # fmt: skip
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}")
_CONFIG = {"maxOutputTokens", "temperature", "thinkingConfig", "responseMimeType",
           "responseJsonSchema", "topP", "topK", "seed", "presencePenalty", "frequencyPenalty",
           "stopSequences"}  # fmt: skip


def listed(name: str, **fields: Any) -> dict[str, Any]:
    """A model as the list has it."""
    about = {"name": f"models/{name}", "version": "3", "displayName": name, "thinking": True}
    limits = {"inputTokenLimit": 1_048_576, "outputTokenLimit": 65_536}
    methods = ["generateContent", "countTokens"]
    return {**about, **limits, "supportedGenerationMethods": methods, **fields}


class FakeGemini(FakeVendor):
    """The service; it refuses what the real one refuses."""

    def __init__(self) -> None:
        super().__init__()
        embedding = listed("embedding-1", supportedGenerationMethods=["embedContent"])
        self.models = {MODEL: listed(MODEL), "embedding-1": embedding}
        self.takes_ids = True
        """Whether calls may have ids; those of Vertex, which is behind some gateways, may not."""

    def error(self, status: int, text: str) -> dict[str, Any]:
        kind = STATUS.get(status, "INTERNAL")
        return {"error": {"code": status, "message": text, "status": kind}}

    def route(self, request: Request) -> Script:
        if request.headers.get("x-goog-api-key") != KEY:
            raise Refused("API key not valid. Please pass a valid API key.")
        path = re.sub("^/v1(beta)?/models", "", request.path)
        if path == "":
            return Script(body={"models": list(self.models.values())})
        name, _, method = path.removeprefix("/").partition(":")
        if name not in self.models:
            raise Refused(f"models/{name} is not found for API version v1", 404)
        if not method:
            return Script(body=self.models[name])
        if method != "streamGenerateContent":
            raise Refused("Not found", 404)
        return self.next_script(request.body)

    def check(self, body: dict[str, Any]) -> None:
        config = body.get("generationConfig", {})
        if extra := (body.keys() - _KNOWN) | (config.keys() - _CONFIG):
            raise Refused(f"Invalid JSON payload received. Unknown name {extra}")
        if not 0 < config.get("maxOutputTokens", 1) <= 65_536:
            raise Refused("max_output_tokens is out of range")
        contents = body["contents"]
        roles = [content["role"] for content in contents]
        if roles != [("user", "model")[n % 2] for n in range(len(contents))]:
            raise Refused("Please ensure that multiturn requests alternate between user and model.")
        declared = [d["name"] for t in body.get("tools", ()) for d in t["functionDeclarations"]]
        if not all(map(_NAME.fullmatch, declared)) or len(set(declared)) < len(declared):
            raise Refused("Invalid function name. Must start with a letter or an underscore.")
        parts = [part for content in contents for part in content["parts"]]
        calls = [
            part.get(key, {}) for part in parts for key in ("functionCall", "functionResponse")
        ]
        if not self.takes_ids and any("id" in call for call in calls):
            raise Refused(
                "Unknown name \"id\" at 'contents[1].parts[0].function_call': Cannot find."
            )
        _check_calls(contents)
        _check_signatures(contents)


def _check_calls(contents: list[dict[str, Any]]) -> None:
    calls: list[tuple[str | None, str]] = []
    for content in contents:
        if not content["parts"]:
            raise Refused("contents.parts must not be empty")
        answers = [p["functionResponse"] for p in content["parts"] if "functionResponse" in p]
        given = [(answer.get("id"), answer["name"]) for answer in answers]
        if sorted(map(str, given)) != sorted(map(str, calls)):
            raise Refused("The number of function response parts must equal that of the calls.")
        if not all(isinstance(answer["response"], dict) for answer in answers):
            raise Refused("function_response.response must be a struct")
        found = [p["functionCall"] for p in content["parts"] if "functionCall" in p]
        calls = [(call.get("id"), call["name"]) for call in found]
        if not all(_NAME.fullmatch(name) for _, name in calls):
            raise Refused("Invalid function name. Must start with a letter or an underscore.")
    if calls:
        raise Refused("The number of function response parts must equal that of the calls.")


def _check_signatures(contents: list[dict[str, Any]]) -> None:
    """The first call of each step of the current turn must bring its signature."""
    spoken = (n for n, c in enumerate(contents) if c["role"] == "user" and "text" in c["parts"][-1])
    begin = max(spoken, default=0)
    for content in contents[begin:]:
        first = next((part for part in content["parts"] if "functionCall" in part), None)
        if first is None:
            continue
        given = base64.b64decode(first.get("thoughtSignature", ""))
        if not given.startswith(b"sig:") and given != b"skip_thought_signature_validator":
            raise Refused("Function call is missing a thought_signature in functionCall parts.")


def signature(name: str = "a") -> str:
    """A thought signature."""
    return base64.b64encode(f"sig:{name}".encode()).decode()


def piece(
    *parts: dict[str, Any], reason: str | None = None, words: str | None = None, **usage: int
) -> bytes:
    """One answer of the stream."""
    candidate: dict[str, Any] = {"index": 0, "content": {"role": "model", "parts": list(parts)}}
    if reason:
        candidate["finishReason"] = reason
    if words:
        candidate["finishMessage"] = words
    counts = {"promptTokenCount": usage.get("prompt", 7)}
    if "generated" in usage:
        counts["candidatesTokenCount"] = usage["generated"]
    if "thoughts" in usage:
        counts["thoughtsTokenCount"] = usage["thoughts"]
    return event({"candidates": [candidate], "usageMetadata": counts, "modelVersion": MODEL})


def call(name: str, args: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A part with a call; Gemini sends calls whole."""
    signed = {"thoughtSignature": fields.pop("signed")} if "signed" in fields else {}
    return {"functionCall": {"name": name, "args": args, **fields}, **signed}
