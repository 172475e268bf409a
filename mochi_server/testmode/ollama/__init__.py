"""Ollama as its clients see it: what it refuses, how it tells of models, the lines of a stream.

``server`` is a stand-in that obeys all of it, without a model. docs/reference/test-mode.md says
what it does.
"""
