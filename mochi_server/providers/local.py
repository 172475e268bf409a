"""The former path of the provider, which settings may name."""

from .builtin.provider import LocalProvider

__all__ = ["LocalProvider"]
