"""The path of the provider for settings that were written before its package was there."""

from .builtin.provider import LocalProvider

__all__ = ["LocalProvider"]
