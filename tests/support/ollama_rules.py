"""What the real Ollama accepts and refuses, and how it describes its models."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import Any

DURATION = re.compile(r"^-?(\d+(\.\d+)?(ns|us|µs|ms|s|m|h))+$")
THINK = ("high", "medium", "low", "max")
INTEGER_OPTIONS = ("num_ctx", "num_predict", "num_keep", "seed", "top_k", "num_batch", "num_gpu")
MODIFIED = "2026-05-10T08:06:48.639712648-07:00"


class Answer(Exception):
    """A whole answer, in place of a stream; most are errors."""

    def __init__(self, status: int, body: Any, content_type: str | None = None) -> None:
        super().__init__(status, body)
        self.status = status
        self.body = body if isinstance(body, (bytes, dict)) else {"error": body}
        self.content_type = content_type or "application/json; charset=utf-8"


@dataclass
class FakeModel:
    """A model that is pulled."""

    name: str
    capabilities: list[str] = field(default_factory=lambda: ["completion", "tools", "thinking"])
    context_length: int | None = 40960
    family: str = "qwen3"
    architecture: str | None = None
    """Of the weights; the same as the family unless given."""
    parameter_size: str = "14.8B"
    quantization: str = "Q4_K_M"
    size: int = 9_276_198_565
    remote_host: str | None = None
    default_num_ctx: int = 4096
    loaded: int | None = None
    """num_ctx of the loaded runner."""
    busy: int = 0
    """Generations under way."""

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.name.encode()).hexdigest()

    def details(self, *, new: bool = False) -> dict[str, Any]:
        found = {
            "parent_model": "",
            "format": "gguf",
            "family": self.family,
            "families": [self.family],
            "parameter_size": self.parameter_size,
            "quantization_level": self.quantization,
        }
        if new and self.context_length:
            found["context_length"] = self.context_length
        return found

    def _head(self) -> dict[str, Any]:
        head: dict[str, Any] = {"name": self.name, "model": self.name}
        if self.remote_host:
            head |= {"remote_model": self.name.split(":")[0], "remote_host": self.remote_host}
        return head

    def listed(self, *, new: bool) -> dict[str, Any]:
        """The entry in ``/api/tags``; old servers tell less."""
        entry = self._head() | {
            "modified_at": MODIFIED,
            "size": self.size,
            "digest": self.digest,
            "details": self.details(new=new),
        }
        return entry | ({"capabilities": self.capabilities} if new else {})

    def shown(self) -> dict[str, Any]:
        """The answer of ``/api/show``."""
        info: dict[str, Any] = {}
        if self.context_length:
            architecture = self.architecture or self.family
            info = {
                "general.architecture": architecture,
                "general.parameter_count": 14_768_307_200,
                f"{architecture}.block_count": 40,
                f"{architecture}.context_length": self.context_length,
                f"{architecture}.embedding_length": 5120,
            }
        answer: dict[str, Any] = {"modelfile": "", "details": self.details()}
        if self.remote_host:
            answer |= {"remote_host": self.remote_host}
        answer["model_info"] = info
        answer["capabilities"] = self.capabilities
        answer["modified_at"] = MODIFIED
        return answer

    def running(self) -> dict[str, Any]:
        """The entry in ``/api/ps``."""
        return self._head() | {
            "size": self.size,
            "digest": self.digest,
            "details": self.details(),
            "expires_at": "2026-11-21T20:36:05.123456789Z",
            "size_vram": self.size,
            "context_length": self.loaded,
        }


def default_models() -> dict[str, FakeModel]:
    """One that can everything, one that cannot think or call, one that only embeds."""
    models = [
        FakeModel("qwen3:14b"),
        FakeModel(
            "gemma3:4b",
            capabilities=["completion", "vision"],
            context_length=131_072,
            family="gemma3",
            parameter_size="4.3B",
            size=3_338_801_804,
        ),
        FakeModel(
            "nomic-embed-text:latest",
            capabilities=["embedding"],
            context_length=2048,
            family="nomic-bert",
            parameter_size="137M",
            quantization="F16",
            size=274_302_450,
        ),
    ]
    return {model.name: model for model in models}


def check_chat(body: dict[str, Any], model: FakeModel) -> None:
    """Refuse what the real server refuses, in its words."""
    name = body["model"]
    _check_think(body.get("think"), model, name)
    _check_keep_alive(body.get("keep_alive"))
    for message in body.get("messages") or []:
        _check_message(message)
    if body.get("messages"):
        if "completion" not in model.capabilities:
            raise Answer(400, f'"{name}" does not support chat')
        if body.get("tools") and "tools" not in model.capabilities:
            full = f"registry.ollama.ai/library/{model.name}"
            raise Answer(400, f"{full} does not support tools")
    _check_options(body.get("options") or {})
    form = body.get("format")
    if form not in (None, "", "json") and not isinstance(form, dict):
        raise Answer(500, f"invalid format: {form!r}; expected json or a valid JSON Schema object")


def _check_think(think: Any, model: FakeModel, name: str) -> None:
    if think is None or isinstance(think, bool) or think in THINK:
        if think and "thinking" not in model.capabilities:
            raise Answer(400, f'"{name}" does not support thinking')
        return
    allowed = ", ".join(f'"{level}"' for level in THINK)
    raise Answer(400, f'invalid think value: "{think}" (must be {allowed}, true, or false)')


def _check_keep_alive(value: Any) -> None:
    if isinstance(value, str) and not DURATION.match(value):
        raise Answer(400, f'time: missing unit in duration "{value}"')


def _check_message(message: Any) -> None:
    if not isinstance(message, dict) or not isinstance(message.get("content", ""), str):
        raise Answer(
            400,
            "json: cannot unmarshal object into Go struct field "
            "ChatRequest.messages.content of type string",
        )
    for call in message.get("tool_calls") or []:
        if not isinstance(call["function"].get("arguments"), dict):
            raise Answer(400, "json: cannot unmarshal string into Go struct field arguments")


def _check_options(options: dict[str, Any]) -> None:
    for key in INTEGER_OPTIONS:
        value = options.get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise Answer(500, f'option "{key}" must be of type integer')
    temperature = options.get("temperature")
    if temperature is not None and not isinstance(temperature, (int, float)):
        raise Answer(500, 'option "temperature" must be of type float32')


def overflow(tokens: int, num_ctx: int) -> Answer:
    """What the server says to a prompt that does not fit when it must not cut."""
    text = (
        '{"error":{"code":400,"message":"request (%d tokens) exceeds the available context size '
        '(%d tokens), try increasing it","type":"exceed_context_size_error","n_prompt_tokens":%d,'
        '"n_ctx":%d}}'
    )
    return Answer(400, text % (tokens, num_ctx, tokens, num_ctx), "application/json")


def example_of(schema: dict[str, Any], root: dict[str, Any] | None = None) -> Any:  # noqa: PLR0911
    """The least that obeys a schema: what a grammar makes of a model that has nothing to say."""
    root = root if root is not None else schema
    if "$ref" in schema:
        return example_of(root["$defs"][schema["$ref"].rsplit("/", 1)[1]], root)
    if "enum" in schema:
        return schema["enum"][0]
    if "anyOf" in schema:
        return example_of(schema["anyOf"][0], root)
    match schema.get("type"):
        case "object":
            properties = schema.get("properties", {})
            return {key: example_of(value, root) for key, value in properties.items()}
        case "array":
            return [example_of(schema["items"], root)] if "items" in schema else []
        case "integer" | "number":
            return 1
        case "boolean":
            return True
        case "null":
            return None
        case _:
            return "text"
