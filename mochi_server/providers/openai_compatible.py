"""The former path of the provider, which settings may name."""

from .openai import OpenAICompatibleProvider

__all__ = ["OpenAICompatibleProvider"]
