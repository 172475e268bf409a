"""The commands ``chat``, ``ask`` and ``completion``: clients of the HTTP API."""
