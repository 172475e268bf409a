"""Anthropic's wire: messages and the count of their tokens (docs/reference/anthropic.md)."""
