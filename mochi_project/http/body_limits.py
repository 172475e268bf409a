"""How long the body of a request may be."""

from __future__ import annotations

from dataclasses import dataclass

from mochi_server.config import MochiServerSettings

from .wires import wire_of

UPLOADS = "/api/v1/sessions/import"
"""The route whose bodies are written to the disk as they arrive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyLimits:
    """Largest bodies, in bytes."""

    usual: int
    wire: int = 0
    """On the APIs of vendors."""
    upload: int = 0
    """Of a file that is imported."""

    @classmethod
    def of(cls, settings: MochiServerSettings) -> BodyLimits:
        return cls(
            usual=settings.max_body_bytes,
            wire=settings.max_wire_body_bytes,
            upload=settings.max_upload_bytes,
        )

    @property
    def room(self) -> int:
        """Bytes of all bodies together that may be in memory."""
        return max(10 * self.usual, 3 * self.wire)

    def of_path(self, path: str) -> int:
        if path.rstrip("/") == UPLOADS:
            return self.upload
        return self.usual if wire_of(path) is None else self.wire
