"""Requests for embeddings, and their answers, shared by all providers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["EmbeddingRequest", "Embeddings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingRequest:
    """A request for one vector for each text."""

    model: str
    """Full name of a model; to a provider, its own name of the model."""
    texts: Sequence[str]
    dimensions: int | None = None
    """Numbers of each vector; None for as many as the model makes."""
    truncate: bool = False
    """Whether a provider that can may cut a text that is too long; else it is an error."""
    keep_alive: str | float | None = None
    """How long the model stays loaded, as in the options of a model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Embeddings:
    """The vectors of texts."""

    vectors: Sequence[Sequence[float]]
    """In the order of the texts."""
    prompt_tokens: int = 0
    """Tokens of all texts; 0 where the provider does not say."""
