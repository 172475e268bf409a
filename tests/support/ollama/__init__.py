"""Ollama as its clients see it: what it refuses, how it tells of models, the lines of a stream."""
