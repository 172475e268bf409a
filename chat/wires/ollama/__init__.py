"""Ollama's own API (docs/reference/ollama-api.md)."""
