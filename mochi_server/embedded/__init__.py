"""The built-in model: its weights, and the child process that runs them.

Knows nothing of providers; :class:`mochi_server.providers.local.LocalProvider` builds on it.
"""
