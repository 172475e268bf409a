"""The path of the provider for settings that were written before its package was there."""

from .openai import OpenAICompatibleProvider

__all__ = ["OpenAICompatibleProvider"]
