"""Models as Ollama tells of them in ``/api/tags``, ``/api/show`` and ``/api/ps``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from .answers import Body

MODIFIED: Final = "2026-05-10T08:06:48.639712648-07:00"
EXPIRES: Final = "2026-11-21T20:36:05.123456789Z"
"""Moments that never move: a clock would make two answers differ."""


@dataclass
class Model:
    """A model that is pulled."""

    name: str
    """With its tag."""
    capabilities: list[str] = field(default_factory=lambda: ["completion", "tools", "thinking"])
    context_length: int | None = 40_960
    """Tokens it was made for; None where its file does not say."""
    embedding_length: int | None = 5120
    family: str = "qwen3"
    architecture: str | None = None
    """Of the weights; the same as the family unless given."""
    parameter_size: str = "14.8B"
    parameter_count: int = 14_768_307_200
    block_count: int = 40
    quantization: str = "Q4_K_M"
    size: int = 9_276_198_565
    """Bytes."""
    remote_host: str | None = None
    """Where it runs, if not here."""
    window: int = 4096
    """Tokens of its context window where the request does not say."""
    loaded: int | None = None
    """The window it is loaded with; None while it is not."""

    @property
    def digest(self) -> str:
        """64 hex digits."""
        return sha256(self.name.encode()).hexdigest()

    def details(self, *, whole: bool = False) -> Body:
        """The part that all answers have; ``whole`` with the lengths, as in ``/api/tags``."""
        found: Body = {
            "parent_model": "",
            "format": "gguf",
            "family": self.family,
            "families": [self.family],
            "parameter_size": self.parameter_size,
            "quantization_level": self.quantization,
        }
        lengths = {
            "context_length": self.context_length,
            "embedding_length": self.embedding_length,
        }
        return found | {key: value for key, value in lengths.items() if whole and value}

    def _head(self) -> Body:
        head: Body = {"name": self.name, "model": self.name}
        if self.remote_host:
            remote = self.name.removesuffix("-cloud").removesuffix(":cloud")
            head |= {"remote_model": remote, "remote_host": self.remote_host}
        return head

    def listed(self, *, new: bool = True) -> Body:
        """The entry in ``/api/tags``; before 0.30 it says less."""
        entry = self._head() | {
            "modified_at": MODIFIED,
            "size": self.size,
            "digest": self.digest,
            "details": self.details(whole=new),
        }
        return entry | ({"capabilities": self.capabilities} if new else {})

    def shown(self) -> Body:
        """The answer of ``/api/show``."""
        info: Body = {}
        if self.context_length:
            architecture = self.architecture or self.family
            info = {
                "general.architecture": architecture,
                "general.parameter_count": self.parameter_count,
                f"{architecture}.block_count": self.block_count,
                f"{architecture}.context_length": self.context_length,
                f"{architecture}.embedding_length": self.embedding_length,
            }
        answer: Body = {"modelfile": "", "details": self.details()}
        if self.remote_host:
            answer |= {key: self._head()[key] for key in ("remote_model", "remote_host")}
        answer["model_info"] = info
        answer["capabilities"] = self.capabilities
        answer["modified_at"] = MODIFIED
        return answer

    def running(self) -> Body:
        """The entry in ``/api/ps``."""
        return self._head() | {
            "size": self.size,
            "digest": self.digest,
            "details": self.details(),
            "expires_at": EXPIRES,
            "size_vram": self.size,
            "context_length": self.loaded,
        }


class Models(dict[str, Model]):
    """Those that are pulled, by their names with tags."""

    def __init__(
        self, models: Iterable[Model] = (), *, others: Callable[[str], Model] | None = None
    ) -> None:
        """Pull some.

        Args:
            models: that are listed.
            others: makes one of any other name, which is not listed.
        """
        super().__init__((model.name, model) for model in models)
        self._make = others
        self._others: dict[str, Model] = {}

    @staticmethod
    def full(name: str) -> str:
        """The name with the tag that Ollama takes where none is given."""
        return name if ":" in name.rpartition("/")[2] else f"{name}:latest"

    def named(self, name: str) -> Model | None:
        """The one of that name, with or without its tag."""
        full = self.full(name)
        if full in self or self._make is None:
            return self.get(full)
        if full not in self._others:
            self._others[full] = self._make(full)
        return self._others[full]

    def tags(self, *, new: bool = True) -> Body:
        """The answer of ``/api/tags``."""
        return {"models": [model.listed(new=new) for model in self.values()]}

    def ps(self) -> Body:
        """The answer of ``/api/ps``."""
        known = [*self.values(), *self._others.values()]
        return {"models": [model.running() for model in known if model.loaded]}
