"""Bodies and answers of ``/chat`` and ``/models``."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from mochi_server.errors import JSONObject

ASK: JSONObject = {"message": "What is the capital of France?", "think": False}
REPLY: JSONObject = {
    "session_id": "a1b2c3d4e5",
    "message": {
        "role": "assistant",
        "content": "The capital of France is Paris.",
        "model": "qwen3:14b",
        "message_id": "f1e2d3c4b5",
        "timestamp": "2025-01-15T10:35:00.000000Z",
        "eval_count": 45,
        "prompt_eval_count": 120,
    },
    "tool_calls_executed": [],
    "context_window": {
        "current_window": 8192,
        "usage_tokens": 165,
        "reason": "initial_setup",
    },
}
MODEL: JSONObject = {
    "name": "qwen3:14b",
    "size_mb": 9048.2,
    "format": "gguf",
    "family": "qwen3",
    "parameter_size": "14.8B",
    "quantization_level": "Q4_K_M",
    "capabilities": ["completion", "tools"],
    "context_length": 40960,
    "provider": "ollama",
    "remote_host": None,
}
PROBLEM: JSONObject = {
    "provider": "ollama",
    "code": "OLLAMA_UNREACHABLE",
    "message": "Cannot connect to Ollama at http://localhost:11434.",
}


class ChatRequest(BaseModel):
    """One user message, or none to answer the last one anew."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": ASK})

    message: str | None = Field(
        default=None,
        pattern=r"\S",
        description="Not only white space. Absent: what follows the last user message is dropped, "
        "and that one is answered again.",
    )
    think: bool | Literal["low", "medium", "high"] = Field(
        default=False, description="Let the model think first."
    )


class ChatReply(BaseModel):
    """The whole answer."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"example": REPLY})

    session_id: str
    message: dict[str, Any]
    tool_calls_executed: list[dict[str, Any]]
    context_window: dict[str, Any] | None


class Model(BaseModel):
    """One model."""

    model_config = ConfigDict(json_schema_extra={"example": MODEL})

    name: str = Field(description="What to write as `model` elsewhere.")
    size_mb: float | None = Field(description="Size of the weights in 10**6 bytes.")
    format: str | None
    family: str | None
    parameter_size: str | None
    quantization_level: str | None
    capabilities: list[str]
    context_length: int | None = Field(description="Longest context in tokens.")
    provider: str
    remote_host: str | None = Field(description="Where the text goes, if it leaves the machine.")


class ProviderProblem(BaseModel):
    """A provider that did not answer."""

    model_config = ConfigDict(json_schema_extra={"example": PROBLEM})

    provider: str
    code: str
    message: str


class ModelList(BaseModel):
    """Every model of every provider that answers."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"models": [MODEL], "problems": [PROBLEM]}}
    )

    models: list[Model]
    problems: list[ProviderProblem]


# One example for each event; docs/reference/events.md has their fields.
EVENTS: dict[str, JSONObject] = {
    "content_delta": {"content": "The capital", "role": "assistant"},
    "thinking_delta": {"content": "The user asks"},
    "tool_call": {"tool_name": "add", "arguments": {"a": 2, "b": 3}, "call_index": 0},
    "tool_result": {"tool_name": "add", "success": True, "result": "5", "call_index": 0},
    "tool_continuation_start": {"message": "Processing tool results..."},
    "message_complete": {
        "message_id": "f1e2d3c4b5",
        "model": "qwen3:14b",
        "eval_count": 45,
        "prompt_eval_count": 120,
        "context_window": {"current_window": 8192},
    },
    "error": {
        "code": "OLLAMA_UNREACHABLE",
        "message": "Cannot connect to Ollama at http://localhost:11434.",
        "details": {},
    },
    "done": {"session_id": "a1b2c3d4e5"},
}
