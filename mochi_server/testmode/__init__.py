"""Test mode: replies that follow from the request alone, without any network.

A reply is composed once (``reply``) and then encoded for a wire: for OpenAI's SDK by the transport
that it gets (``provider``), for clients of Ollama by a server (``ollama``).
docs/reference/test-mode.md is the reference.
"""
