"""How errors look on the paths of vendors, which is known before their wires are loaded.

The gate refuses a request without them.
"""

from __future__ import annotations

from mochi_project.http.errors import VENDOR_HEADERS, VENDOR_SHAPES, error_shape

from .anthropic.errors import error_shape as anthropic_error_shape
from .ollama.errors import error_shape as ollama_error_shape
from .openai.errors import error_shape as openai_error_shape

OLLAMA_CHANGES = ("push", "create", "copy", "delete")
OLLAMA_NAMES = (
    *("chat", "generate", "tags", "show", "ps", "version", "embed", "embeddings"),
    *("pull", *OLLAMA_CHANGES, "blobs"),
)
"""Names of Ollama's routes, offered or not: their errors look like Ollama's."""

ANTHROPIC_HEADERS = frozenset({"anthropic-version", "x-api-key"})
"""Headers by which Anthropic's clients are known."""

VENDOR_SHAPES.update(
    {
        "/api/v1/agui": error_shape,
        "/api/v1/ui/": error_shape,
        "/v1/": openai_error_shape,
        "/v1/messages": anthropic_error_shape,
        "/ollama/": ollama_error_shape,
        **{f"/api/{name}": ollama_error_shape for name in OLLAMA_NAMES},
    }
)
VENDOR_HEADERS["/v1/models"] = (ANTHROPIC_HEADERS, "/v1/messages")
