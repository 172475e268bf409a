"""The models of an Ollama server."""

from .provider import OllamaProvider

__all__ = ["OllamaProvider"]
