"""Google's models."""

from .provider import GeminiProvider

__all__ = ["GeminiProvider"]
