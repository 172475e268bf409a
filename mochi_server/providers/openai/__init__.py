"""The models of OpenAI, and of any server that speaks its chat completions."""

from .provider import OpenAICompatibleProvider

__all__ = ["OpenAICompatibleProvider"]
