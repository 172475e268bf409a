"""Anthropic's models."""

from .provider import AnthropicProvider

__all__ = ["AnthropicProvider"]
