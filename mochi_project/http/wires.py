"""The wires: APIs of others that this server speaks, each declared once.

URLs, rights, forms of errors and limits of bodies come from here; a wire itself is imported when
one of its paths is asked for first. docs/reference/tokens.md repeats the rights.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .access import ADMIN, CHAT, READ, Access


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """An API of others. It is not loaded while one of its routes has no right."""

    name: str
    routes_module: str
    """Dotted path of the module whose ``api`` has the routes."""
    errors_module: str | None = None
    """Dotted path of the module whose ``error_shape`` forms its errors; None: they are ours."""
    prefixes: tuple[str, ...]
    """What its paths begin with; the first one stands for all in tables."""
    also_errors: tuple[str, ...] = ()
    """Paths below which the errors of unknown routes look like its own, as those of its routes."""
    shared_with: tuple[frozenset[str], str] | None = None
    """Headers (lower case) of the clients of another wire, and a path of that wire: their errors
    look like its errors."""
    headers: frozenset[str] = frozenset()
    """Headers (lower case) by which its clients are known; pages elsewhere may send them."""
    token_header: str | None = None
    """The one of them that has the token, where clients do not send it as ``Authorization``."""
    history: str = "messages"
    """Field of its requests with a conversation, which may have more values than the others."""
    routes: Mapping[str, Access]
    """What each route needs, by method and route below the prefix, as Django writes it."""

    @property
    def segments(self) -> frozenset[str]:
        """First segments of its routes."""
        return frozenset(route.partition(" ")[2].partition("/")[0] for route in self.routes)

    def access(self, prefixes: Iterable[str]) -> dict[str, Access]:
        """Return what its routes need, by method and route below each of the prefixes."""
        split = [(*route.partition(" ")[::2], access) for route, access in self.routes.items()]
        return {
            f"{method} {prefix}{route}": access
            for prefix in prefixes
            for method, route, access in split
        }


OLLAMA_AT_ROOT = "api/"
"""Prefix of Ollama's routes that is served where ``MOCHI_OLLAMA_AT_ROOT`` is set."""

ANTHROPIC_HEADERS = frozenset({"anthropic-version", "x-api-key"})

_V1 = ("v1/", "ollama/v1/")  # Ollama serves it as well
_OPENAI_ERRORS = "chat.wires.openai.errors"

WIRES = (
    Wire(
        name="agui",
        routes_module="chat.wires.agui.routes",
        prefixes=("api/v1/",),
        routes={"POST agui": CHAT},
    ),
    Wire(
        name="vercel",
        routes_module="chat.wires.vercel.routes",
        prefixes=("api/v1/",),
        routes={"POST ui/chat": CHAT},
    ),
    Wire(
        name="models",
        routes_module="chat.wires.models",
        errors_module=_OPENAI_ERRORS,
        prefixes=_V1,
        shared_with=(ANTHROPIC_HEADERS, "/v1/messages"),
        routes={"GET models": READ, "GET models/<path:name>": READ},
    ),
    Wire(
        name="openai",
        routes_module="chat.wires.openai.routes",
        errors_module=_OPENAI_ERRORS,
        prefixes=_V1,
        also_errors=_V1,
        routes={
            "POST chat/completions": CHAT,
            "POST completions": CHAT,
            "POST embeddings": CHAT,
        },
    ),
    Wire(
        name="anthropic",
        routes_module="chat.wires.anthropic.routes",
        errors_module="chat.wires.anthropic.errors",
        prefixes=_V1,
        headers=ANTHROPIC_HEADERS,
        token_header="x-api-key",  # noqa: S106 - no token
        routes={"POST messages": CHAT, "POST messages/count_tokens": CHAT},
    ),
    Wire(
        name="responses",
        routes_module="chat.wires.responses.routes",
        errors_module=_OPENAI_ERRORS,
        prefixes=_V1,
        history="input",
        routes={
            "POST responses": CHAT,
            "POST responses/input_tokens": CHAT,
            "POST responses/compact": CHAT,
            "GET responses/<response_id>": READ,
            "DELETE responses/<response_id>": Access("chat", "delete response"),
            "POST responses/<response_id>/cancel": CHAT,
            "GET responses/<response_id>/input_items": READ,
        },
    ),
    Wire(
        name="conversations",
        routes_module="chat.wires.responses.conversations",
        errors_module=_OPENAI_ERRORS,
        prefixes=_V1,
        routes={
            "POST conversations": CHAT,
            "GET conversations/<conversation_id>": READ,
            "POST conversations/<conversation_id>": CHAT,
            "DELETE conversations/<conversation_id>": Access("chat", "delete conversation"),
            "GET conversations/<conversation_id>/items": READ,
            "POST conversations/<conversation_id>/items": CHAT,
            "GET conversations/<conversation_id>/items/<item_id>": READ,
            "DELETE conversations/<conversation_id>/items/<item_id>": Access(
                "chat", "delete conversation item"
            ),
        },
    ),
    Wire(
        name="ollama",
        routes_module="chat.wires.ollama.routes",
        errors_module="chat.wires.ollama.errors",
        prefixes=("ollama/api/", OLLAMA_AT_ROOT),
        also_errors=("ollama/",),
        routes={
            "POST chat": CHAT,
            "POST generate": CHAT,
            "POST embed": CHAT,
            "POST embeddings": CHAT,
            "GET tags": READ,
            "POST show": READ,
            "GET ps": READ,
            "GET version": READ,
            "POST pull": ADMIN,
            "POST push": ADMIN,
            "DELETE push": ADMIN,
            "POST create": ADMIN,
            "DELETE create": ADMIN,
            "POST copy": ADMIN,
            "DELETE copy": ADMIN,
            "POST delete": ADMIN,
            "DELETE delete": ADMIN,
            "POST blobs/<digest>": ADMIN,
        },
    ),
)

_BY_BEGINNING = {
    beginning.rstrip("/"): wire
    for wire in WIRES
    for beginning in (
        *wire.also_errors,
        *(f"{prefix}{segment}" for prefix in wire.prefixes for segment in wire.segments),
    )
}
_DEPTH = max(beginning.count("/") for beginning in _BY_BEGINNING) + 1


def wire_of(path: str) -> Wire | None:
    """Return the wire that a path belongs to, whether there is a route or not."""
    segments = path.split("/", _DEPTH + 1)[1 : _DEPTH + 1]
    for count in range(len(segments), 0, -1):
        if (wire := _BY_BEGINNING.get("/".join(segments[:count]))) is not None:
            return wire
    return None
